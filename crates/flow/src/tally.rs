//! Counts by name, bounded: the entries of the ledger (docs/decisions/051-a-ledger-of-samples.md).

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

/// The name of all that has none of its own. No measurement begins with this sign: in line protocol
/// it begins a comment.
pub const OTHERS: &str = "#others";

/// Names that have rows whatever came before them, in order. No other rule is exact: a row that is
/// given up later makes counters fall or counts its items twice, and one that is given late lacks
/// what came before, so that it differs from that of another tally.
pub type Reserved = &'static [&'static str];

/// Counters of items by name. They only grow. Reserved names count by themselves, and so do the
/// first [`Tally::MOST_NAMES`] further names; what comes under others, or under a longer name, is
/// counted together.
#[derive(Debug, Default)]
pub struct Tally {
    reserved: Reserved,
    /// In the order of the names.
    of_reserved: Box<[AtomicU64]>,
    names: RwLock<HashMap<Box<str>, AtomicU64>>,
    others: AtomicU64,
}

/// A [`Tally`] at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub names: BTreeMap<String, u64>,
    /// Items under further names.
    pub others: u64,
    /// The names of which none are among these.
    reserved: Reserved,
    /// A new name would count among these.
    is_full: bool,
}

fn place(names: Reserved, name: &[u8]) -> Option<usize> {
    names.binary_search_by(|known| known.as_bytes().cmp(name)).ok()
}

impl Tally {
    /// Besides the reserved ones.
    pub const MOST_NAMES: usize = 256;
    const NAME_BYTES: usize = 256;

    /// `reserved`: in the order of their bytes.
    pub fn new(reserved: Reserved) -> Tally {
        debug_assert!(reserved.is_sorted(), "they are searched");
        let of_reserved = reserved.iter().map(|_| AtomicU64::new(0)).collect();
        Tally { reserved, of_reserved, ..Tally::default() }
    }

    /// `name` is UTF-8, or is made so.
    pub fn add(&self, name: &[u8], items: u64) {
        if items == 0 {
            return;
        }
        let place = place(self.reserved, name);
        if let Some(count) = place.and_then(|place| self.of_reserved.get(place)) {
            count.fetch_add(items, Ordering::Relaxed);
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
        let reserved = self.reserved.iter().copied().zip(&self.of_reserved);
        let counts = names.iter().map(|(name, count)| (&**name, count)).chain(reserved);
        let counts = counts.map(|(name, count)| (name, count.load(Ordering::Relaxed)));
        let used = counts.filter(|(_, count)| *count > 0);
        Counts {
            names: used.map(|(name, count)| (name.to_owned(), count)).collect(),
            others: self.others.load(Ordering::Relaxed),
            reserved: self.reserved,
            is_full: names.len() >= Self::MOST_NAMES,
        }
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
        let is_reserved = place(self.reserved, name.as_bytes()).is_some();
        let has_row = self.names.contains_key(name) || is_reserved;
        self.others > 0 && self.is_full && !has_row
    }

    pub fn add(&mut self, other: &Counts) {
        for (name, count) in &other.names {
            *self.names.entry(name.clone()).or_default() += count;
        }
        self.others += other.others;
        // Only where there is no room for further names it matters which are reserved.
        if other.is_full {
            let differs = self.is_full && self.reserved != other.reserved;
            self.reserved = if differs { &[] } else { other.reserved };
            self.is_full = true;
        }
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

    const RESERVED: [&str; 3] = ["http_reqs", "vus", "vus_max"];

    /// Scenario: 10,000 junk names come before reserved ones, or between those. Guarantee: each of
    /// these has a row with all of its items, no count ever falls, and nothing is left out of the
    /// total.
    #[test]
    fn junk_takes_no_reserved_row() {
        for comes_between in [false, true] {
            let tally = Tally::new(&RESERVED);
            let (mut before, mut each) = (Counts::default(), 0);
            let add_reserved = || RESERVED.iter().for_each(|name| tally.add(name.as_bytes(), 3));
            for index in 0..10_000 {
                tally.add(format!("junk{index}").as_bytes(), 2);
                if index % 1_000 == 999 && (comes_between || index == 9_999) {
                    add_reserved();
                    each += 3;
                }
                if index % 100 == 0 {
                    let now = tally.read();
                    assert!(before.names.iter().all(|(name, count)| now.of(name) >= *count));
                    assert!(now.others >= before.others);
                    before = now;
                }
            }
            let counts = tally.read();
            assert!(RESERVED.iter().all(|name| counts.of(name) == each), "{counts:?}");
            assert_eq!(counts.names.len(), Tally::MOST_NAMES + RESERVED.len());
            assert_eq!(counts.total(), 20_000 + each * RESERVED.len() as u64);
        }
    }

    /// Guarantee: a full table hides nothing of a reserved name that it has not seen, also when it
    /// is added to others, unless one of these may.
    #[test]
    fn reserved_names_are_never_hidden() {
        let full = |tally: Tally| {
            (0..300).for_each(|index| tally.add(format!("junk{index}").as_bytes(), 1));
            tally.read()
        };
        let counts = full(Tally::new(&RESERVED));
        assert!(!counts.may_hide("vus") && counts.may_hide("own_trend"));
        let mut merged = Counts::default();
        merged.add(&counts);
        merged.add(&Tally::default().read());
        assert!(!merged.may_hide("vus") && merged.may_hide("own_trend"));
        merged.add(&full(Tally::default()));
        assert!(merged.may_hide("vus"));
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
