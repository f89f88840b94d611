//! How far the data of a source that can be read again is resolved.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// What of a source's streams is under way.
///
/// A stream is anything with offsets that only rise: a file, a partition. The source asks for a
/// [`Position`] for each range that it submits, in order, and keeps
/// [`Positions::lowest_unresolved`] as its checkpoint. A position is *resolved* once every delivery
/// has resolved its data or the log has it on disk: this process can no longer lose it. A refusal
/// or the end of the process leaves a position unresolved, and with it all later ones.
///
/// Memory: one entry for each range under way. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub struct Positions {
    streams: Arc<Mutex<HashMap<u64, Stream>>>,
}

#[derive(Debug, Default)]
struct Stream {
    /// Changes with each [`Positions::rewind`]. Positions of another one count for nothing.
    generation: u64,
    /// End of the last range.
    end: u64,
    /// Ranges under way: start to end.
    unresolved: BTreeMap<u64, u64>,
    /// A range was dropped without being resolved.
    is_interrupted: bool,
}

impl Stream {
    fn lowest_unresolved(&self) -> u64 {
        self.unresolved.first_key_value().map_or(self.end, |(start, _)| *start)
    }
}

impl Positions {
    /// The position of a range that is about to be submitted. Ranges of a stream neither overlap
    /// nor go back.
    pub fn begin(&self, stream: u64, range: Range<u64>) -> Position {
        assert!(range.start < range.end, "a range holds something");
        let mut streams = self.streams.lock();
        let state = streams.entry(stream).or_default();
        assert!(range.start >= state.end, "ranges are submitted in order");
        state.unresolved.insert(range.start, range.end);
        state.end = range.end;
        Position {
            streams: Arc::clone(&self.streams),
            stream,
            start: range.start,
            generation: state.generation,
            is_resolved: AtomicBool::new(false),
        }
    }

    /// Everything of the stream below is resolved: where its checkpoint may stand. `None` if
    /// nothing was submitted yet.
    pub fn lowest_unresolved(&self, stream: u64) -> Option<u64> {
        self.streams.lock().get(&stream).map(Stream::lowest_unresolved)
    }

    /// Whether a range of the stream was dropped without being resolved, so that the source has to
    /// [`Positions::rewind`].
    pub fn is_interrupted(&self, stream: u64) -> bool {
        self.streams.lock().get(&stream).is_some_and(|stream| stream.is_interrupted)
    }

    /// Begins again at the lowest unresolved offset, which is returned. The source reads from
    /// there; what is still under way from before may arrive twice, and moves no checkpoint any
    /// more.
    pub fn rewind(&self, stream: u64) -> Option<u64> {
        let mut streams = self.streams.lock();
        let state = streams.get_mut(&stream)?;
        state.end = state.lowest_unresolved();
        state.generation += 1;
        state.unresolved.clear();
        state.is_interrupted = false;
        Some(state.end)
    }

    pub fn under_way(&self) -> usize {
        self.streams.lock().values().map(|stream| stream.unresolved.len()).sum()
    }
}

/// A range of a stream on its way. It travels with its request, and is resolved or dropped.
#[derive(Debug)]
pub struct Position {
    streams: Arc<Mutex<HashMap<u64, Stream>>>,
    stream: u64,
    start: u64,
    generation: u64,
    is_resolved: AtomicBool,
}

impl Position {
    /// Nothing of the range can be lost by this process any more. Only the first call counts.
    pub fn resolve(&self) {
        if !self.is_resolved.swap(true, Ordering::AcqRel) {
            self.change(|stream, start| {
                stream.unresolved.remove(&start);
            });
        }
    }

    fn change(&self, change: impl FnOnce(&mut Stream, u64)) {
        let mut streams = self.streams.lock();
        let stream =
            streams.get_mut(&self.stream).filter(|stream| stream.generation == self.generation);
        if let Some(stream) = stream {
            change(stream, self.start);
        }
    }
}

impl Drop for Position {
    fn drop(&mut self) {
        if !*self.is_resolved.get_mut() {
            self.change(|stream, _| stream.is_interrupted = true);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_checkpoint_stands_at_the_lowest_range_that_is_not_resolved() {
        let positions = Positions::default();
        assert_eq!(positions.lowest_unresolved(1), None);
        let [first, second, third] = [0..10, 10..20, 25..30].map(|range| positions.begin(1, range));
        let other = positions.begin(2, 0..5);
        second.resolve();
        assert_eq!(positions.lowest_unresolved(1), Some(0));
        first.resolve();
        assert_eq!(positions.lowest_unresolved(1), Some(25));
        third.resolve();
        assert_eq!(
            (positions.lowest_unresolved(1), positions.lowest_unresolved(2)),
            (Some(30), Some(0))
        );
        drop(other);
        assert_eq!((positions.lowest_unresolved(2), positions.under_way()), (Some(0), 1));
    }

    #[test]
    fn what_is_dropped_is_read_again_with_everything_behind_it() {
        let positions = Positions::default();
        let [first, dropped, behind] =
            [0..10, 10..20, 20..30].map(|range| positions.begin(1, range));
        first.resolve();
        drop(first);
        assert!(!positions.is_interrupted(1));
        drop(dropped);
        assert!(positions.is_interrupted(1));
        assert_eq!(positions.rewind(1), Some(10));
        assert!(!positions.is_interrupted(1));
        let again = positions.begin(1, 10..25);
        // It was submitted before the rewind: the checkpoint waits for what was read again.
        behind.resolve();
        drop(behind);
        assert_eq!(
            (positions.lowest_unresolved(1), positions.is_interrupted(1)),
            (Some(10), false)
        );
        again.resolve();
        assert_eq!(positions.lowest_unresolved(1), Some(25));
    }

    proptest! {
        /// For every order in which ranges are resolved or dropped: the checkpoint never passes
        /// one that is not resolved, and only the ranges under way are remembered.
        #[test]
        fn a_checkpoint_passes_nothing_that_is_unresolved(
            lengths in prop::collection::vec(1_u64..50, 1..40),
            order in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..60),
        ) {
            let positions = Positions::default();
            let mut end = 0;
            let mut under_way: Vec<(u64, Option<Position>)> = Vec::new();
            for length in lengths {
                under_way.push((end, Some(positions.begin(7, end..end + length))));
                end += length;
            }
            for (which, resolves) in order {
                let index = which.index(under_way.len());
                if resolves {
                    if let Some(position) = under_way[index].1.take() {
                        position.resolve();
                    }
                } else if let Some(position) = &under_way[index].1 {
                    // Looking at it changes nothing.
                    prop_assert!(positions.lowest_unresolved(7) <= Some(position.start));
                }
                let left: Vec<u64> = under_way
                    .iter()
                    .filter(|(_, position)| position.is_some())
                    .map(|(start, _)| *start)
                    .collect();
                let expected = left.first().copied().unwrap_or(end);
                prop_assert_eq!(positions.lowest_unresolved(7), Some(expected));
                prop_assert_eq!(positions.under_way(), left.len());
            }
        }
    }
}
