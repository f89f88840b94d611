//! Counts by name, bounded: the entries of the ledger (docs/decisions/051-a-ledger-of-samples.md).

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

/// The name of all that has none of its own. No measurement begins with this sign: in line protocol
/// it begins a comment.
pub const OTHERS: &str = "#others";

/// The metrics that k6 has built in, in order. They have rows whatever came before them. No other
/// rule is exact: a row that is given up later makes counters fall or counts its items twice, and
/// one that is given late lacks what came before, so that it differs from that of another tally.
pub const K6_METRICS: [&str; 38] = [
    "browser_data_received",
    "browser_data_sent",
    "browser_http_req_duration",
    "browser_http_req_failed",
    "browser_web_vital_cls",
    "browser_web_vital_fcp",
    "browser_web_vital_fid",
    "browser_web_vital_inp",
    "browser_web_vital_lcp",
    "browser_web_vital_ttfb",
    "checks",
    "data_received",
    "data_sent",
    "dropped_iterations",
    "group_duration",
    "grpc_req_duration",
    "grpc_streams",
    "grpc_streams_msgs_received",
    "grpc_streams_msgs_sent",
    "http_req_blocked",
    "http_req_connecting",
    "http_req_duration",
    "http_req_failed",
    "http_req_receiving",
    "http_req_sending",
    "http_req_tls_handshaking",
    "http_req_waiting",
    "http_reqs",
    "iteration_duration",
    "iterations",
    "vus",
    "vus_max",
    "ws_connecting",
    "ws_msgs_received",
    "ws_msgs_sent",
    "ws_ping",
    "ws_session_duration",
    "ws_sessions",
];

/// Counters of items by name. They only grow. [`K6_METRICS`] count by themselves, and so do the
/// first [`Tally::MOST_NAMES`] further names; what comes under others, or under a longer name, is
/// counted together.
#[derive(Debug)]
pub struct Tally {
    /// In the order of [`K6_METRICS`].
    of_k6: [AtomicU64; K6_METRICS.len()],
    names: RwLock<HashMap<Box<str>, AtomicU64>>,
    others: AtomicU64,
}

/// A [`Tally`] at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub names: BTreeMap<String, u64>,
    /// Items under further names.
    pub others: u64,
    /// A new name would count among these.
    is_full: bool,
}

impl Default for Tally {
    fn default() -> Tally {
        let of_k6 = [const { AtomicU64::new(0) }; K6_METRICS.len()];
        Tally { of_k6, names: RwLock::default(), others: AtomicU64::default() }
    }
}

fn k6_metric(name: &[u8]) -> Option<usize> {
    K6_METRICS.binary_search_by(|known| known.as_bytes().cmp(name)).ok()
}

impl Tally {
    /// Besides [`K6_METRICS`].
    pub const MOST_NAMES: usize = 256;
    const NAME_BYTES: usize = 256;

    /// `name` is UTF-8, or is made so.
    pub fn add(&self, name: &[u8], items: u64) {
        if items == 0 {
            return;
        }
        if let Some(count) = k6_metric(name).and_then(|index| self.of_k6.get(index)) {
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
        let of_k6 = K6_METRICS.into_iter().zip(&self.of_k6);
        let counts = names.iter().map(|(name, count)| (&**name, count)).chain(of_k6);
        let counts = counts.map(|(name, count)| (name, count.load(Ordering::Relaxed)));
        let used = counts.filter(|(_, count)| *count > 0);
        Counts {
            names: used.map(|(name, count)| (name.to_owned(), count)).collect(),
            others: self.others.load(Ordering::Relaxed),
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
        let has_row = self.names.contains_key(name) || k6_metric(name.as_bytes()).is_some();
        self.others > 0 && self.is_full && !has_row
    }

    pub fn add(&mut self, other: &Counts) {
        for (name, count) in &other.names {
            *self.names.entry(name.clone()).or_default() += count;
        }
        self.others += other.others;
        self.is_full |= other.is_full;
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

    /// Scenario: 10,000 junk names come before k6's, or between those. Guarantee: each of k6's has
    /// a row with all of its items, no count ever falls, and nothing is left out of the total.
    #[test]
    fn junk_takes_no_row_of_k6() {
        assert!(K6_METRICS.is_sorted());
        for comes_between in [false, true] {
            let (tally, mut before, mut each) = (Tally::default(), Counts::default(), 0);
            let add_k6 = || K6_METRICS.iter().for_each(|name| tally.add(name.as_bytes(), 3));
            for index in 0..10_000 {
                tally.add(format!("junk{index}").as_bytes(), 2);
                if index % 1_000 == 999 && (comes_between || index == 9_999) {
                    add_k6();
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
            assert!(K6_METRICS.iter().all(|name| counts.of(name) == each), "{counts:?}");
            assert_eq!(counts.names.len(), Tally::MOST_NAMES + K6_METRICS.len());
            assert_eq!(counts.total(), 20_000 + each * K6_METRICS.len() as u64);
        }
    }

    /// Guarantee: a full table that has not seen a metric of k6 hides nothing of it.
    #[test]
    fn metrics_of_k6_are_never_hidden() {
        let tally = Tally::default();
        (0..300).for_each(|index| tally.add(format!("junk{index}").as_bytes(), 1));
        let counts = tally.read();
        assert!(!counts.may_hide("vus") && counts.may_hide("own_trend"));
        let mut merged = Counts::default();
        merged.add(&counts);
        assert!(!merged.may_hide("vus") && merged.may_hide("own_trend"));
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
