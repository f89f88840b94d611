//! Which item is which: every generated item is known by its generator and its sequence number, so that a backend can
//! tell lost items from doubled ones.

use std::fmt;
use std::sync::atomic::{AtomicU16, Ordering};

/// Resource attribute that marks a generated request. Its value is 32 hexadecimal digits: the identity of the request's
/// first item and the time of sending in nanoseconds since the epoch.
pub const REQUEST_ATTRIBUTE: &str = "load_test.request";
/// Attribute of every item whose value is [`ORDINARY_MARK`] or [`POISON_MARK`].
pub const MARK_ATTRIBUTE: &str = "load_test.mark";
pub const ORDINARY_MARK: &str = "ordinary";
pub const POISON_MARK: &str = "poisoned";

/// Begins the identity of an item that is text, a log line: 32 hexadecimal digits follow as in [`REQUEST_ATTRIBUTE`].
pub const TEXT_MARK: &str = "load-test-item-";
/// Is at the end of such a text: without it the item has been torn.
pub const TEXT_END: &str = "load-test-end";

/// Begins the identity of an item that is a number, a sample of a scraped target: 16 bits of the generator and 32 bits of the
/// sequence number follow. Such a number is whole, exact in a double, and always of [`SAMPLE_DIGITS`] digits.
const SAMPLE_MARK: u64 = 22 << 48;
pub(crate) const SAMPLE_DIGITS: usize = 16;

/// Sequence numbers take the lower 48 bits of an identity.
const SEQUENCE_BITS: u32 = 48;
/// An item of this "generator" carries its index in the request; the request's attribute says where that begins.
const RELATIVE: u16 = u16::MAX;

/// A generator's number (1 to 65,534, unique in this process) and a sequence number (48 bits) in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity(pub u64);

impl Identity {
    pub fn new(generator: u16, sequence: u64) -> Self {
        debug_assert!(sequence < 1 << SEQUENCE_BITS);
        Identity(u64::from(generator) << SEQUENCE_BITS | sequence)
    }

    pub(crate) fn relative(index: u32) -> Self {
        Identity::new(RELATIVE, u64::from(index))
    }

    pub fn generator(self) -> u16 {
        (self.0 >> SEQUENCE_BITS) as u16
    }

    pub fn sequence(self) -> u64 {
        self.0 & ((1 << SEQUENCE_BITS) - 1)
    }

    /// As a sample's value. The sequence number must be below [`SequenceSet::LIMIT`].
    pub(crate) fn to_sample(self) -> u64 {
        debug_assert!(self.sequence() < SequenceSet::LIMIT);
        SAMPLE_MARK | u64::from(self.generator()) << 32 | self.sequence()
    }

    /// `None`: the value is none of ours.
    pub(crate) fn from_sample(value: f64) -> Option<Identity> {
        let number = value as u64;
        let is_ours = number >> 48 == SAMPLE_MARK >> 48 && number as f64 == value;
        is_ours.then(|| Identity::new((number >> 32) as u16, number & u64::from(u32::MAX)))
    }

    /// The identity proper of an item whose request begins at `base`.
    pub(crate) fn resolve(self, base: Identity) -> Identity {
        if self.generator() == RELATIVE { Identity(base.0.wrapping_add(self.sequence())) } else { self }
    }
}

/// A generator number that nobody else in this process has.
pub(crate) fn next_generator() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let generator = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(generator != 0 && generator < RELATIVE, "more than 65,534 generators in one process");
    generator
}

/// A set of sequence numbers at one bit each, that grows as far as the highest one seen.
#[derive(Clone, Default)]
pub struct SequenceSet {
    words: Vec<u64>,
    len: u64,
}

/// The bits themselves would fill pages.
impl fmt::Debug for SequenceSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} sequence numbers", self.len)
    }
}

impl SequenceSet {
    /// Sequence numbers beyond this are refused, which bounds a set to 512 MiB.
    pub const LIMIT: u64 = 1 << 32;

    /// Adds one number; false if it was there already (or is beyond [`SequenceSet::LIMIT`]).
    pub fn insert(&mut self, sequence: u64) -> bool {
        if sequence >= Self::LIMIT {
            return false;
        }
        let word = (sequence / 64) as usize;
        if word >= self.words.len() {
            self.words.resize((word + 1).next_power_of_two(), 0);
        }
        let bit = 1 << (sequence % 64);
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.len += u64::from(new);
        new
    }

    pub fn insert_range(&mut self, range: std::ops::Range<u64>) {
        for sequence in range {
            self.insert(sequence);
        }
    }

    pub fn remove_range(&mut self, range: std::ops::Range<u64>) {
        for sequence in range.filter(|sequence| *sequence < Self::LIMIT) {
            let Some(word) = self.words.get_mut((sequence / 64) as usize) else { return };
            let bit = 1 << (sequence % 64);
            self.len -= u64::from(*word & bit != 0);
            *word &= !bit;
        }
    }

    pub fn contains(&self, sequence: u64) -> bool {
        self.words.get((sequence / 64) as usize).is_some_and(|word| word & (1 << (sequence % 64)) != 0)
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn insert_all(&mut self, other: &SequenceSet) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (own, other) in self.words.iter_mut().zip(&other.words) {
            *own |= other;
        }
        self.len = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
    }

    pub fn remove_all(&mut self, other: &SequenceSet) {
        for (own, other) in self.words.iter_mut().zip(&other.words) {
            *own &= !other;
        }
        self.len = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
    }

    /// How many numbers of this set are missing from `other`.
    pub fn count_missing_from(&self, other: &SequenceSet) -> u64 {
        let others = other.words.iter().copied().chain(std::iter::repeat(0));
        self.words.iter().zip(others).map(|(own, other)| u64::from((own & !other).count_ones())).sum()
    }

    /// The first few numbers of this set that are missing from `other`: for messages.
    pub fn first_missing_from(&self, other: &SequenceSet, limit: usize) -> Vec<u64> {
        let all = 0..self.words.len() as u64 * 64;
        all.filter(|&sequence| self.contains(sequence) && !other.contains(sequence)).take(limit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_keeps_generator_and_sequence() {
        let identity = Identity::new(7, (1 << 48) - 1);
        assert_eq!((identity.generator(), identity.sequence()), (7, (1 << 48) - 1));
        assert_eq!(Identity::relative(5).resolve(Identity::new(3, 100)), Identity::new(3, 105));
        assert_eq!(Identity::new(2, 9).resolve(Identity::new(3, 100)), Identity::new(2, 9));
    }

    #[test]
    fn an_identity_survives_as_the_value_of_a_sample() {
        for (generator, sequence) in [(1, 0), (7, 123_456), (u16::MAX - 1, SequenceSet::LIMIT - 1)] {
            let identity = Identity::new(generator, sequence);
            let text = identity.to_sample().to_string();
            assert_eq!(text.len(), SAMPLE_DIGITS);
            assert_eq!(Identity::from_sample(text.parse().unwrap()), Some(identity));
            let scientific = format!("{:e}", text.parse::<f64>().unwrap());
            assert_eq!(Identity::from_sample(scientific.parse().unwrap()), Some(identity));
        }
        for strange in [0.0, 1.0, -1.0, f64::NAN, f64::INFINITY, 1e18, SAMPLE_MARK as f64 - 1.0] {
            assert_eq!(Identity::from_sample(strange), None, "{strange}");
        }
    }

    #[test]
    fn sets_count_to_the_item_what_is_missing_and_what_came_twice() {
        let mut acknowledged = SequenceSet::default();
        acknowledged.insert_range(0..1000);
        let mut seen = SequenceSet::default();
        assert!(seen.insert(3) && seen.insert(999) && !seen.insert(3));
        assert_eq!((seen.len(), acknowledged.count_missing_from(&seen)), (2, 998));
        assert_eq!(acknowledged.first_missing_from(&seen, 4), [0, 1, 2, 4]);
        assert_eq!(seen.count_missing_from(&acknowledged), 0);
        assert!(!seen.insert(SequenceSet::LIMIT), "bounded");
        acknowledged.remove_all(&seen);
        assert_eq!((acknowledged.len(), acknowledged.contains(999)), (998, false));
        seen.insert_all(&acknowledged);
        assert_eq!((seen.len(), acknowledged.count_missing_from(&seen)), (1000, 0));
        seen.remove_range(990..2_000);
        seen.remove_range(995..996);
        assert_eq!((seen.len(), seen.contains(989), seen.contains(990)), (990, true, false));
    }
}
