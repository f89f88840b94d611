//! Ranges of a content that were sent, and the names that they had. A range that is read again has
//! its name again only if its bytes, and what was made of them, are the same: else it gets another
//! one. So a name stands for the same for ever, whatever becomes of a file or of a checkpoint.

use std::collections::VecDeque;
use std::ops::Range;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::window::Window;
use crate::{FileId, Tail};

/// The name of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// A random id of the [`crate::Tail`] that gave it.
    pub run: u128,
    /// Counts the names that it gave, of all contents.
    pub number: u64,
}

/// A range that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub name: Name,
    /// Its offsets in the content.
    pub start: u64,
    pub end: u64,
    /// Of its bytes, of all that decides what is made of them, and of that.
    pub sum: u32,
}

impl Sent {
    /// A few words, without the end of a line.
    pub fn to_words(&self) -> String {
        let Sent { name: Name { run, number }, start, end, sum } = self;
        format!("{run:x} {number:x} {start} {end} {sum:x}")
    }

    /// Reads them. `None`: they are no such words.
    pub fn of_words(text: &str) -> Option<Sent> {
        let mut words = text.split(' ');
        let mut word = || words.next();
        let run = u128::from_str_radix(word()?, 16).ok()?;
        let name = Name { run, number: u64::from_str_radix(word()?, 16).ok()? };
        let (start, end) = (word()?.parse().ok()?, word()?.parse().ok()?);
        let sum = u32::from_str_radix(word()?, 16).ok()?;
        (start < end && words.next().is_none()).then_some(Sent { name, start, end, sum })
    }
}

/// The ranges of one content that were sent and are not resolved: in order, and apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SentRanges {
    ranges: VecDeque<Sent>,
    /// Counts the times at which all were forgotten, as other bytes took their places: a checkpoint
    /// has to forget them too.
    pub(crate) resets: u32,
}

impl SentRanges {
    pub(crate) const fn new() -> SentRanges {
        SentRanges { ranges: VecDeque::new(), resets: 0 }
    }

    /// Adds a range. Others that it overlaps were cut otherwise: they are forgotten.
    pub(crate) fn insert(&mut self, sent: Sent) {
        let first = self.ranges.partition_point(|it| it.end <= sent.start);
        let behind = self.ranges.partition_point(|it| it.start < sent.end);
        self.ranges.drain(first..behind.max(first));
        self.ranges.insert(first, sent);
    }

    /// The name that a range had.
    pub(crate) fn name(&self, start: u64, end: u64, sum: u32) -> Option<Name> {
        let at = self.ranges.partition_point(|it| it.start < start);
        let found =
            self.ranges.get(at).filter(|it| (it.start, it.end, it.sum) == (start, end, sum));
        found.map(|it| it.name)
    }

    /// The first place behind this one at which a range began or ended.
    pub(crate) fn next_bound(&self, offset: u64) -> Option<u64> {
        let at = self.ranges.partition_point(|it| it.end <= offset);
        self.ranges.get(at).map(|it| if it.start > offset { it.start } else { it.end })
    }

    /// Forgets all: they are those of other bytes.
    pub(crate) fn reset(&mut self) {
        (self.ranges, self.resets) = (VecDeque::new(), self.resets.wrapping_add(1));
    }

    /// Forgets the ranges that end before a place, or there.
    pub(crate) fn forget_before(&mut self, offset: u64) {
        let count = self.ranges.partition_point(|it| it.end <= offset);
        self.ranges.drain(..count);
        if self.ranges.is_empty() && self.ranges.capacity() > 0 {
            self.ranges = VecDeque::new();
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sent> {
        self.ranges.iter()
    }
}

impl FromIterator<Sent> for SentRanges {
    fn from_iter<I: IntoIterator<Item = Sent>>(sent: I) -> Self {
        let mut ranges = SentRanges::default();
        sent.into_iter().for_each(|it| ranges.insert(it));
        ranges
    }
}

/// The sum of a range that is being read.
#[derive(Debug)]
pub(crate) struct Sum {
    start: u64,
    /// Bytes before it are in the sum.
    at: u64,
    sum: u32,
    /// Reading stops here: a range that was sent before began or ended here.
    pub stop: Option<u64>,
}

impl Sum {
    /// `seed`: decides, beside the bytes, what is made of them.
    pub(crate) fn new(start: u64, seed: u64, stop: Option<u64>) -> Sum {
        Sum { start, at: start, sum: crc32c::crc32c(&seed.to_le_bytes()), stop }
    }

    /// Adds the bytes up to a place. `None`: they are not in memory any more.
    pub(crate) fn reach(mut self, window: &Window, offset: u64) -> Option<Sum> {
        let bytes = window.between(self.at, offset)?;
        self.sum = crc32c::crc32c_append(self.sum, bytes);
        self.at = offset;
        Some(self)
    }

    /// The sum, if it is that of this range.
    pub(crate) fn of(&self, start: u64, end: u64, made: u32) -> Option<u32> {
        let is_whole = self.start == start && self.at == end && start < end;
        is_whole.then(|| crc32c::crc32c_append(self.sum, &made.to_le_bytes()))
    }
}

impl Tail {
    /// The range that has just begun may get a name. [`Tail::line`] stops where ranges began and
    /// ended that were sent before. `seed`: changes with what is made of lines.
    pub fn sum_range(&mut self, id: FileId, seed: u64) {
        self.sum = self.files.get(&id).map(|file| {
            let start = file.mark.offset;
            Sum::new(start, seed, file.rare.sent.next_bound(start))
        });
    }

    /// Whether reading has stopped where a range began or ended that was sent before.
    pub fn is_at_stop(&self, id: FileId) -> bool {
        let stop = self.sum.as_ref().and_then(|sum| sum.stop);
        stop.is_some_and(|stop| self.files.get(&id).is_some_and(|it| it.mark.offset >= stop))
    }

    pub(crate) fn sum_up(&mut self, id: FileId) {
        let file = self.files.get(&id).filter(|_| self.sum.is_some() && self.window.holds(id));
        let offset = file.map(|file| file.mark.offset);
        let sum = self.sum.take().zip(offset);
        self.sum = sum.and_then(|(sum, offset)| sum.reach(&self.window, offset));
    }

    /// The name for the range that has just ended. `made`: the number of items that are made of it,
    /// or a sum over them. It is the one that the range was sent with before, if its bytes, seed
    /// and `made` are the same. Otherwise it is new (true), and has to be noted before it is sent.
    /// `None`: no sum was asked for, or there is none.
    pub fn name(&mut self, id: FileId, range: &Range<u64>, made: u32) -> Option<(Sent, bool)> {
        let (start, end) = (range.start, range.end);
        let sum = self.sum.take()?.of(start, end, made)?;
        let file = self.files.get_mut(&id)?;
        let known = file.rare.sent.name(start, end, sum);
        let name = known.or_else(|| Some(Name { run: self.run?, number: self.next_name }))?;
        let sent = Sent { name, start, end, sum };
        if known.is_none() {
            self.next_name += 1;
            file.rare.sent.insert(sent);
        }
        Some((sent, known.is_none()))
    }
}

/// The id of a run. `None`: the kernel has no random bytes.
pub(crate) fn new_run() -> Option<u128> {
    let mut bytes = [0; 16];
    let filled = rustix::io::retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()));
    // Fewer bytes than were asked for would be zeros.
    filled.ok().filter(|length| *length == bytes.len()).map(|_| u128::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sent(start: u64, end: u64, number: u64) -> Sent {
        Sent { name: Name { run: 7, number }, start, end, sum: number as u32 }
    }

    #[test]
    fn a_range_is_read_as_it_was_written() {
        let name = Name { run: u128::MAX - 1, number: 1 << 40 };
        let written = Sent { name, start: 3, end: u64::MAX, sum: 0xabc };
        assert_eq!(Sent::of_words(&written.to_words()), Some(written));
        for bad in ["", "1 1 2 3", "1 1 3 3 0", "1 1 2 3 0 0", "x 1 2 3 0"] {
            assert_eq!(Sent::of_words(bad), None, "{bad}");
        }
    }

    #[test]
    fn reading_stops_where_ranges_began_and_ended() {
        let ranges: SentRanges =
            [sent(10, 20, 1), sent(20, 25, 2), sent(40, 50, 3)].into_iter().collect();
        let bounds: Vec<Option<u64>> =
            [0, 10, 19, 20, 25, 40, 50].iter().map(|at| ranges.next_bound(*at)).collect();
        assert_eq!(bounds, [Some(10), Some(20), Some(20), Some(25), Some(40), Some(50), None]);
    }

    proptest! {
        /// Guarantee: a range has a name exactly if it was inserted and no later one has bytes in
        /// common with it.
        #[test]
        fn a_range_has_its_name_until_another_one_overlaps_it(
            all in prop::collection::vec((0_u64..60, 1_u64..9), 0..40),
            before in 0_u64..60,
        ) {
            let all: Vec<Sent> = (0..).zip(all)
                .map(|(number, (start, len))| sent(start, start + len, number))
                .collect();
            let mut ranges: SentRanges = all.iter().copied().collect();
            let lives = |at: usize| {
                all[at + 1..].iter().all(|it| it.end <= all[at].start || all[at].end <= it.start)
            };
            for (at, it) in all.iter().enumerate() {
                let found = ranges.name(it.start, it.end, it.sum);
                prop_assert_eq!(found, lives(at).then_some(it.name));
                prop_assert_eq!(ranges.name(it.start, it.end, it.sum + 100), None);
            }
            let starts: Vec<u64> = ranges.iter().map(|it| it.start).collect();
            prop_assert!(starts.is_sorted());
            ranges.forget_before(before);
            let left: Vec<Sent> = ranges.iter().copied().collect();
            let mut expected: Vec<Sent> = all.iter().enumerate()
                .filter(|(at, it)| lives(*at) && it.end > before).map(|(_, it)| *it).collect();
            expected.sort_by_key(|it| it.start);
            prop_assert_eq!(left, expected);
        }
    }
}
