//! The record of the requests that a backend has received and taken.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use http::HeaderMap;
use sluice_net::grpc::Code;
use sluice_otlp::{Encoding, Signal};

use super::scan::{Item, scan};
use crate::identity::{Identity, SEQUENCE_LIMIT, SequenceSet, Stamp};
use crate::latency::{new_histogram, record};

/// Counts of a backend. Requests that a fault answered are in `requests`, `refused`, `resets` only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Export requests read to their end, taken or not.
    pub requests: u64,
    /// Requests answered OK and counted.
    pub taken_requests: u64,
    /// Answers other than OK, by code.
    pub refused: BTreeMap<Code, u64>,
    /// Requests reset instead of answered.
    pub resets: u64,
    /// Items in taken requests, doubled ones included. Light counting estimates compressed ones.
    pub items: u64,
    pub items_by_signal: BTreeMap<Signal, u64>,
    /// Items that had arrived before. Only where items are verified.
    pub doubled: u64,
    /// Items of unknown origin. Only where items are verified.
    pub unidentified: u64,
    /// Message bytes of taken requests, as sent (compressed where they were).
    pub bytes: u64,
    /// Requests that are not OTLP.
    pub malformed: u64,
}

/// A request as a backend took it.
#[derive(Clone, Debug)]
pub struct Received {
    pub signal: Signal,
    pub headers: HeaderMap,
    /// Encoding as received.
    pub encoding: Encoding,
    /// Inflated.
    pub body: Bytes,
    pub is_json: bool,
}

impl Received {
    /// The items of a protobuf request. Those of unknown origin are left out.
    pub fn identities(&self) -> Vec<Identity> {
        let mut items = Vec::new();
        // It was taken: it can be read.
        let _ = scan(self.signal, &self.body, &mut items);
        items.into_iter().flatten().map(|stamp| stamp.identity).collect()
    }
}

pub struct Store {
    pub(super) counts: Counts,
    /// Sequence numbers, by generator.
    pub seen: HashMap<u16, SequenceSet>,
    /// Those that came more than once, by generator.
    pub doubled: HashMap<u16, SequenceSet>,
    /// Time from an item's first sending to its arrival.
    pub latency_us: Histogram<u64>,
    /// Arrival of the last item that had not arrived before.
    pub last_arrival: Option<Instant>,
    /// Oldest first.
    pub(super) kept: VecDeque<Received>,
}

impl Store {
    pub(super) fn new() -> Self {
        Store {
            counts: Counts::default(),
            seen: HashMap::new(),
            doubled: HashMap::new(),
            latency_us: new_histogram(),
            last_arrival: None,
            kept: VecDeque::new(),
        }
    }

    /// Counts a taken request: its items, and its bytes as sent.
    pub(super) fn take(&mut self, signal: Signal, items: u64, bytes: u64) {
        let counts = &mut self.counts;
        counts.taken_requests += 1;
        counts.items += items;
        counts.bytes += bytes;
        *counts.items_by_signal.entry(signal).or_default() += items;
    }

    /// Records the identities and the latencies of a request's items.
    pub(super) fn verify(&mut self, items: &[Item]) {
        let known: Vec<Stamp> = items.iter().copied().flatten().collect();
        self.counts.unidentified += (items.len() - known.len()) as u64;
        let now = crate::unix_ns();
        for run in known.chunk_by(|one, next| one.sent_unix_ns == next.sent_unix_ns) {
            if run[0].sent_unix_ns > 0 {
                let latency = Duration::from_nanos(now.saturating_sub(run[0].sent_unix_ns));
                record(&mut self.latency_us, latency, run.len() as u64);
            }
        }
        // The items of one request mostly follow one another.
        for run in known.chunk_by(|one, next| next.identity.0 == one.identity.0.wrapping_add(1)) {
            self.see(run[0].identity, run.len() as u64);
        }
    }

    /// Records items with consecutive identities. Those beyond [`SEQUENCE_LIMIT`] are left out.
    fn see(&mut self, first: Identity, count: u64) {
        let run = first.sequence()..(first.sequence() + count).min(SEQUENCE_LIMIT);
        if run.is_empty() {
            return;
        }
        let seen = self.seen.entry(first.generator()).or_default();
        // Sequence numbers have 32 bits, which are one bitmap of the set.
        let range = run.start as u32..=(run.end - 1) as u32;
        let doubled: u64 =
            seen.bitmaps().map(|(_, low)| low.range_cardinality(range.clone())).sum();
        if doubled > 0 {
            let again = self.doubled.entry(first.generator()).or_default();
            again.extend(run.clone().filter(|sequence| seen.contains(*sequence)));
            self.counts.doubled += doubled;
        }
        if seen.insert_range(run) > 0 {
            self.last_arrival = Some(Instant::now());
        }
    }

    pub(super) fn keep(&mut self, received: Received, limit: usize) {
        if self.kept.len() == limit {
            self.kept.pop_front();
        }
        if limit > 0 {
            self.kept.push_back(received);
        }
    }

    pub(super) fn unique(&self) -> u64 {
        self.seen.values().map(SequenceSet::len).sum()
    }
}
