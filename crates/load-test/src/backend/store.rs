//! What a backend has taken.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use http::HeaderMap;
use sluice_otlp::{Encoding, Signal};

use super::scan::Item;
use crate::identity::SequenceSet;
use crate::latency::{Latency, new_histogram, record};
use crate::status::Code;

/// Seconds of history that are kept.
const WINDOWS_LIMIT: usize = 24 * 3600;

/// What a backend has received. Requests that a fault answered are in `requests` and `refused` only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub connections: u64,
    /// Export requests read to their end, whatever became of them.
    pub requests: u64,
    /// Requests answered OK and counted.
    pub taken_requests: u64,
    /// Answers other than OK, by code.
    pub refused: BTreeMap<Code, u64>,
    /// Requests reset instead of answered.
    pub resets: u64,
    /// Items in taken requests, doubled ones included. Where compressed requests are counted lightly: an estimate.
    pub items: u64,
    pub traces_items: u64,
    pub metrics_items: u64,
    pub logs_items: u64,
    /// Items that had come before. Only where items are verified.
    pub doubled: u64,
    /// Items of unknown origin. Only where items are verified.
    pub unidentified: u64,
    /// Message bytes of taken requests, as sent (compressed where they were).
    pub bytes: u64,
    /// Requests that are not OTLP.
    pub malformed: u64,
    /// Items by the second in which they were taken, since the start.
    pub items_per_second: Vec<u64>,
}

/// A request as a backend took it.
#[derive(Clone, Debug)]
pub struct Received {
    pub signal: Signal,
    pub headers: HeaderMap,
    /// How it came.
    pub encoding: Encoding,
    /// Inflated.
    pub body: Bytes,
    /// True where `body` is JSON.
    pub is_json: bool,
}

pub(crate) struct Store {
    pub(crate) counts: Counts,
    seen: HashMap<u16, SequenceSet>,
    doubled: HashMap<u16, SequenceSet>,
    latency_us: Histogram<u64>,
    /// When an item came that had not come before.
    last_new: Option<Instant>,
    kept: VecDeque<Received>,
    keep_requests: usize,
    started: Instant,
}

impl Store {
    pub(crate) fn new(keep_requests: usize) -> Self {
        Store {
            counts: Counts::default(),
            seen: HashMap::new(),
            doubled: HashMap::new(),
            latency_us: new_histogram(),
            last_new: None,
            kept: VecDeque::new(),
            keep_requests,
            started: Instant::now(),
        }
    }

    /// Counts a taken request of so many items.
    pub(crate) fn take(&mut self, signal: Signal, items: u64, bytes: u64) {
        let counts = &mut self.counts;
        counts.taken_requests += 1;
        counts.items += items;
        counts.bytes += bytes;
        *match signal {
            Signal::Traces => &mut counts.traces_items,
            Signal::Metrics => &mut counts.metrics_items,
            Signal::Logs => &mut counts.logs_items,
        } += items;
        let second = self.started.elapsed().as_secs() as usize;
        if second < WINDOWS_LIMIT {
            if second >= counts.items_per_second.len() {
                counts.items_per_second.resize(second + 1, 0);
            }
            counts.items_per_second[second] += items;
        }
    }

    /// Notes which items have come, and how long ago they were sent.
    pub(crate) fn verify(&mut self, items: &[Item]) {
        let now = crate::unix_ns();
        for run in items.chunk_by(|one, next| one.sent_unix_ns == next.sent_unix_ns) {
            if run[0].sent_unix_ns > 0 {
                let latency = Duration::from_nanos(now.saturating_sub(run[0].sent_unix_ns));
                record(&mut self.latency_us, latency, run.len() as u64);
            }
        }
        let mut arrived = false;
        for item in items {
            let Some(identity) = item.identity else {
                self.counts.unidentified += 1;
                continue;
            };
            let is_new = self.seen.entry(identity.generator()).or_default().insert(identity.sequence());
            if is_new {
                arrived = true;
            } else {
                self.counts.doubled += 1;
                self.doubled.entry(identity.generator()).or_default().insert(identity.sequence());
            }
        }
        if arrived {
            self.last_new = Some(Instant::now());
        }
    }

    pub(crate) fn keep(&mut self, received: Received) {
        self.kept.push_back(received);
        while self.kept.len() > self.keep_requests {
            self.kept.pop_front();
        }
    }

    pub(crate) fn seen(&self, generator: u16) -> Option<&SequenceSet> {
        self.seen.get(&generator)
    }

    pub(crate) fn all_seen(&self) -> HashMap<u16, SequenceSet> {
        self.seen.clone()
    }

    pub(crate) fn all_doubled(&self) -> HashMap<u16, SequenceSet> {
        self.doubled.clone()
    }

    pub(crate) fn last_new(&self) -> Option<Instant> {
        self.last_new
    }

    pub(crate) fn unique(&self) -> u64 {
        self.seen.values().map(SequenceSet::len).sum()
    }

    pub(crate) fn latency(&self) -> Latency {
        Latency::of(&self.latency_us)
    }

    pub(crate) fn latency_histogram(&self) -> Histogram<u64> {
        self.latency_us.clone()
    }

    pub(crate) fn reset_latency(&mut self) {
        self.latency_us.reset();
    }

    pub(crate) fn kept(&self) -> Vec<Received> {
        self.kept.iter().cloned().collect()
    }
}
