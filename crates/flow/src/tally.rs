//! Counts by name, bounded: the entries of the ledger (docs/decisions/051-a-ledger-of-samples.md).

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

/// The name of all that has none of its own. No measurement begins with this sign: in line protocol
/// it begins a comment.
pub const OTHERS: &str = "#others";

/// Counters of items by name. They only grow. What comes under more than [`Tally::MOST_NAMES`]
/// names, or under a longer name, is counted together.
#[derive(Debug, Default)]
pub struct Tally {
    names: RwLock<HashMap<Box<str>, AtomicU64>>,
    others: AtomicU64,
}

/// A [`Tally`] at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub names: BTreeMap<String, u64>,
    /// Items under further names.
    pub others: u64,
}

impl Tally {
    pub const MOST_NAMES: usize = 256;
    const NAME_BYTES: usize = 256;

    /// `name` is UTF-8, or is made so.
    pub fn add(&self, name: &[u8], items: u64) {
        if items == 0 {
            return;
        }
        let name = String::from_utf8_lossy(name);
        if let Some(count) = self.names.read().get(&*name) {
            count.fetch_add(items, Ordering::Relaxed);
            return;
        }
        let mut names = self.names.write();
        let has_room = names.len() < Self::MOST_NAMES || names.contains_key(&*name);
        let count = match has_room && name.len() <= Self::NAME_BYTES && !name.starts_with('#') {
            true => names.entry(name.into()).or_default(),
            false => &self.others,
        };
        count.fetch_add(items, Ordering::Relaxed);
    }

    pub fn read(&self) -> Counts {
        let names = self.names.read();
        let counts = names.iter().map(|(name, it)| (name.to_string(), it.load(Ordering::Relaxed)));
        Counts { names: counts.collect(), others: self.others.load(Ordering::Relaxed) }
    }
}

impl Counts {
    pub fn total(&self) -> u64 {
        self.names.values().sum::<u64>() + self.others
    }

    /// Zero for a name that is not known.
    pub fn of(&self, name: &str) -> u64 {
        self.names.get(name).copied().unwrap_or(0)
    }

    /// Counts by name, those under further names as [`OTHERS`].
    pub fn all(&self) -> impl Iterator<Item = (&str, u64)> {
        let others = (self.others > 0).then_some((OTHERS, self.others));
        self.names.iter().map(|(name, count)| (name.as_str(), *count)).chain(others)
    }

    /// Some items of this name may be among [`Counts::others`].
    pub fn may_hide(&self, name: &str) -> bool {
        self.others > 0 && self.names.len() >= Tally::MOST_NAMES && !self.names.contains_key(name)
    }

    pub fn add(&mut self, other: &Counts) {
        for (name, count) in &other.names {
            *self.names.entry(name.clone()).or_default() += count;
        }
        self.others += other.others;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: more names than are kept, names that are too long, and such that no measurement
    /// has. Guarantee: nothing is left out of the total, and a name that is kept stays exact.
    #[test]
    fn names_are_bounded_and_nothing_is_left_out() {
        let tally = Tally::default();
        for index in 0..2 * Tally::MOST_NAMES {
            tally.add(format!("m{index}").as_bytes(), 2);
        }
        tally.add("x".repeat(Tally::NAME_BYTES + 1).as_bytes(), 5);
        tally.add(b"m0", 1);
        let counts = tally.read();
        assert_eq!((counts.names.len(), counts.of("m0")), (Tally::MOST_NAMES, 3));
        assert_eq!(counts.total(), 4 * Tally::MOST_NAMES as u64 + 6);
        let last = format!("m{}", 2 * Tally::MOST_NAMES - 1);
        assert!(counts.may_hide(&last) && !counts.may_hide("m0"));
        assert_eq!(counts.all().last(), Some((OTHERS, 2 * Tally::MOST_NAMES as u64 + 5)));
    }

    #[test]
    fn odd_names_have_a_place() {
        let tally = Tally::default();
        for name in [&b"#others"[..], b"#m", b"\xff", b"", b"a b"] {
            tally.add(name, 1);
        }
        tally.add(b"unseen", 0);
        let counts = tally.read();
        assert_eq!((counts.others, counts.of("\u{fffd}"), counts.of("")), (2, 1, 1));
        assert_eq!((counts.names.len(), counts.of("unseen")), (3, 0));
        let mut twice = counts.clone();
        twice.add(&counts);
        assert_eq!((twice.total(), twice.of("a b")), (10, 2));
    }
}
