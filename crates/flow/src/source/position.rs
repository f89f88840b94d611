//! Checkpoints of sources that can be read again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// The ranges of one stream of a source that are under way.
///
/// A stream is anything with offsets that only rise: a file, a partition. The source asks for a
/// [`Position`] for each range that it submits, in order, and keeps
/// [`Positions::lowest_unresolved`] as its checkpoint. A position is *resolved* once every delivery
/// has resolved its data or the log has it on disk: this process can no longer lose it. If a
/// request is refused or the process ends, its position and all later ones stay unresolved.
///
/// Memory: one entry for each range under way, until this is dropped and the last range ends.
#[derive(Debug)]
pub struct Positions {
    stream: Arc<Mutex<Stream>>,
}

#[derive(Debug)]
struct Stream {
    /// The number of the next range.
    next: u64,
    /// End of the last range.
    end: u64,
    /// The ranges under way, by their starts.
    unresolved: BTreeMap<u64, UnderWay>,
    /// Positions of these that were dropped without being resolved.
    dropped: usize,
}

#[derive(Debug)]
struct UnderWay {
    /// A range that is read again has another number, and the former has no effect any more.
    number: u64,
    /// Positions that are not resolved, and those among them that were dropped.
    positions: u32,
    dropped: u32,
}

impl Stream {
    fn lowest_unresolved(&self) -> u64 {
        self.unresolved.first_key_value().map_or(self.end, |(start, _)| *start)
    }
}

impl Positions {
    /// For a stream that is read from `offset` on.
    pub fn starting_at(offset: u64) -> Self {
        let stream = Stream { next: 0, end: offset, unresolved: BTreeMap::new(), dropped: 0 };
        Positions { stream: Arc::new(Mutex::new(stream)) }
    }

    /// The position of a range that is about to be submitted. Ranges neither overlap nor go back.
    pub fn begin(&self, range: Range<u64>) -> Position {
        assert!(range.start < range.end, "a range holds something");
        let mut stream = self.stream.lock();
        assert!(range.start >= stream.end, "ranges are submitted in order");
        let number = stream.next;
        stream.unresolved.insert(range.start, UnderWay { number, positions: 1, dropped: 0 });
        (stream.end, stream.next) = (range.end, number + 1);
        Position {
            stream: self.stream.clone(),
            start: range.start,
            number,
            is_resolved: AtomicBool::new(false),
            also: Vec::new(),
        }
    }

    /// Everything below is resolved: the offset of the checkpoint.
    pub fn lowest_unresolved(&self) -> u64 {
        self.stream.lock().lowest_unresolved()
    }

    /// The offset at which the source reads on: the end of the last range.
    pub fn end(&self) -> u64 {
        self.stream.lock().end
    }

    /// Whether a range was dropped unresolved, so that the source has to [`Positions::rewind`].
    pub fn is_interrupted(&self) -> bool {
        self.stream.lock().dropped > 0
    }

    /// Moves back to the lowest range that was dropped and returns its start; without one, the end.
    /// The source reads from there. Ranges below stay under way; those behind may arrive twice, and
    /// no longer move the checkpoint.
    pub fn rewind(&self) -> u64 {
        let mut stream = self.stream.lock();
        let lowest = stream.unresolved.iter().find(|(_, range)| range.dropped > 0);
        if let Some(start) = lowest.map(|(start, _)| *start) {
            stream.unresolved.split_off(&start);
            (stream.end, stream.dropped) = (start, 0);
        }
        stream.end
    }
}

/// A range of a stream under way. It travels with its request, and is resolved or dropped.
#[derive(Debug)]
pub struct Position {
    stream: Arc<Mutex<Stream>>,
    start: u64,
    number: u64,
    is_resolved: AtomicBool,
    also: Vec<Position>,
}

impl Position {
    /// Another position of the same range: the range is resolved when all of its positions are. For
    /// a range of which a part goes into a later request.
    pub fn share(&self) -> Position {
        let mut stream = self.stream.lock();
        if let Some(range) = self.under_way(&mut stream) {
            range.positions += 1;
        }
        Position {
            stream: self.stream.clone(),
            start: self.start,
            number: self.number,
            is_resolved: AtomicBool::new(false),
            also: Vec::new(),
        }
    }

    /// One position for a request in which all of these have a part, in its own stream or others.
    /// `None` of none.
    pub fn of_all(mut positions: Vec<Position>) -> Option<Position> {
        let mut last = positions.pop()?;
        last.also.append(&mut positions);
        Some(last)
    }

    /// This process can no longer lose any of the range. Only the first call has an effect.
    pub fn resolve(&self) {
        if self.is_resolved.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut stream = self.stream.lock();
        if let Some(range) = self.under_way(&mut stream) {
            range.positions -= 1;
            if range.positions == 0 {
                stream.unresolved.remove(&self.start);
            }
        }
        drop(stream);
        self.also.iter().for_each(Position::resolve);
    }

    /// Resolves a share of this position that was dropped with its request. That was refused for
    /// good, and its data comes in other requests or is left out.
    pub fn resolve_dropped(&self) {
        let mut stream = self.stream.lock();
        let dropped = self.under_way(&mut stream).filter(|range| range.dropped > 0);
        if let Some(range) = dropped {
            range.dropped -= 1;
            range.positions -= 1;
            stream.dropped -= 1;
        }
    }

    /// The range, unless it is resolved or read again.
    fn under_way<'s>(&self, stream: &'s mut Stream) -> Option<&'s mut UnderWay> {
        stream.unresolved.get_mut(&self.start).filter(|range| range.number == self.number)
    }
}

impl Drop for Position {
    fn drop(&mut self) {
        if *self.is_resolved.get_mut() {
            return;
        }
        let mut stream = self.stream.lock();
        if let Some(range) = self.under_way(&mut stream) {
            range.dropped += 1;
            stream.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_checkpoint_stands_at_the_lowest_range_that_is_not_resolved() {
        let (positions, others) = (Positions::starting_at(0), Positions::starting_at(7));
        assert_eq!((positions.lowest_unresolved(), others.lowest_unresolved()), (0, 7));
        assert_eq!((positions.end(), others.end()), (0, 7));
        let [first, second, third] = [0..10, 10..20, 25..30].map(|range| positions.begin(range));
        let other = others.begin(7..9);
        second.resolve();
        assert_eq!(positions.lowest_unresolved(), 0);
        first.resolve();
        assert_eq!((positions.lowest_unresolved(), positions.end()), (25, 30));
        third.resolve();
        assert_eq!((positions.lowest_unresolved(), others.lowest_unresolved()), (30, 7));
        drop(other);
        assert_eq!((others.lowest_unresolved(), others.is_interrupted()), (7, true));
    }

    /// Guarantee: once a source is dropped and its ranges have ended, its stream takes no memory.
    #[test]
    fn a_stream_is_forgotten_with_its_source_and_its_last_range() {
        let positions = Positions::starting_at(0);
        let stream = Arc::downgrade(&positions.stream);
        let (first, second) = (positions.begin(0..10), positions.begin(10..20));
        drop(positions);
        first.resolve();
        drop((first, second));
        assert_eq!(stream.strong_count(), 0);
    }

    #[test]
    fn what_is_dropped_is_read_again_with_everything_behind_it() {
        let positions = Positions::starting_at(0);
        let [first, dropped, behind] = [0..10, 10..20, 20..30].map(|range| positions.begin(range));
        first.resolve();
        drop(first);
        assert!(!positions.is_interrupted());
        drop(dropped);
        assert!(positions.is_interrupted());
        assert_eq!(positions.rewind(), 10);
        assert!(!positions.is_interrupted());
        let again = positions.begin(10..25);
        // It was submitted before the rewind: the checkpoint waits for the same range read again.
        behind.resolve();
        drop(behind);
        assert_eq!((positions.lowest_unresolved(), positions.is_interrupted()), (10, false));
        again.resolve();
        assert_eq!(positions.lowest_unresolved(), 25);
    }

    /// Scenario: a part of a range goes into a later request, with ranges of another stream.
    /// Guarantee: the range is resolved with both requests, and read again if one is dropped.
    #[test]
    fn a_range_in_two_requests_is_resolved_with_both() {
        let (positions, others) = (Positions::starting_at(0), Positions::starting_at(0));
        let first = positions.begin(0..10);
        let (rest, other) = (first.share(), others.begin(0..5));
        let later = Position::of_all(vec![rest, other]).expect("there are two");
        first.resolve();
        drop(first);
        assert_eq!((positions.lowest_unresolved(), positions.is_interrupted()), (0, false));
        later.resolve();
        assert_eq!((positions.lowest_unresolved(), others.lowest_unresolved()), (10, 5));
        let second = positions.begin(10..20);
        drop(Position::of_all(vec![second.share(), others.begin(5..6)]));
        second.resolve();
        assert_eq!((positions.is_interrupted(), others.is_interrupted()), (true, true));
        assert_eq!((positions.rewind(), others.rewind()), (10, 5));
        assert!(Position::of_all(Vec::new()).is_none());
    }

    /// Scenario: a request with parts of two ranges is refused for good and left out, another is
    /// lost. Guarantee: only what the lost one had is read again.
    #[test]
    fn what_is_left_out_is_not_read_again() {
        let positions = Positions::starting_at(0);
        let ranges = [positions.begin(0..10), positions.begin(10..20)];
        let lost = ranges[1].share();
        for _ in 0..2 {
            drop(Position::of_all(ranges.iter().map(Position::share).collect()));
            assert_eq!((positions.is_interrupted(), positions.lowest_unresolved()), (true, 0));
            ranges.iter().for_each(Position::resolve_dropped);
            assert_eq!((positions.is_interrupted(), positions.lowest_unresolved()), (false, 0));
        }
        ranges.iter().for_each(Position::resolve);
        assert_eq!((positions.is_interrupted(), positions.lowest_unresolved()), (false, 10));
        drop(lost);
        assert_eq!((positions.is_interrupted(), positions.rewind()), (true, 10));
        // They are read again by now.
        ranges.iter().for_each(Position::resolve_dropped);
        assert_eq!((positions.is_interrupted(), positions.lowest_unresolved()), (false, 10));
    }

    /// Scenario: a range is dropped while earlier ones are under way. Guarantee: those are not read
    /// again, and the checkpoint waits for them.
    #[test]
    fn ranges_before_one_that_is_dropped_stay_under_way() {
        let positions = Positions::starting_at(0);
        let [first, second, third] = [0..10, 10..20, 20..30].map(|range| positions.begin(range));
        drop(third);
        drop(second);
        assert_eq!(
            (positions.rewind(), positions.end(), positions.lowest_unresolved()),
            (10, 10, 0)
        );
        assert_eq!((positions.is_interrupted(), positions.rewind()), (false, 10));
        first.resolve();
        assert_eq!(positions.lowest_unresolved(), 10);
    }

    proptest! {
        /// For every order in which ranges are resolved or dropped: the checkpoint never passes an
        /// unresolved range, and only the ranges under way are kept.
        #[test]
        fn a_checkpoint_passes_nothing_that_is_unresolved(
            lengths in prop::collection::vec(1_u64..50, 1..40),
            order in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..60),
        ) {
            let positions = Positions::starting_at(0);
            let mut end = 0;
            let mut under_way: Vec<(u64, Option<Position>)> = Vec::new();
            for length in lengths {
                under_way.push((end, Some(positions.begin(end..end + length))));
                end += length;
            }
            for (which, resolves) in order {
                let index = which.index(under_way.len());
                if resolves {
                    if let Some(position) = under_way[index].1.take() {
                        position.resolve();
                    }
                } else if let Some(position) = &under_way[index].1 {
                    // Reading the checkpoint changes nothing.
                    prop_assert!(positions.lowest_unresolved() <= position.start);
                }
                let left: Vec<u64> = under_way
                    .iter()
                    .filter(|(_, position)| position.is_some())
                    .map(|(start, _)| *start)
                    .collect();
                let expected = left.first().copied().unwrap_or(end);
                prop_assert_eq!(positions.lowest_unresolved(), expected);
                prop_assert_eq!(positions.stream.lock().unresolved.len(), left.len());
            }
        }
    }
}
