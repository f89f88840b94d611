//! Operators between the lines and their requests, and the ranges of which they hold records.
//!
//! A record that an operator holds is in no request yet. Each range that ends while a record of it
//! or from before it is held has a second position here. That goes into the request that is made
//! once nothing is held of the range any more, so that the checkpoint stays before it until then.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sluice_flow::source::Position;
use sluice_operators::{Chain, Counts, Record, encode};
use sluice_tail::FileId;

/// Held records are let go at most this late.
pub(super) const FLUSH_INTERVAL: Duration = Duration::from_millis(100);
/// Failures of operators are told at most this often; all of them are counted.
const TELL_INTERVAL: Duration = Duration::from_secs(10);
/// Memory of a record beside its text, about.
const RECORD_BYTES: usize = 128;

pub(super) struct Operators {
    chain: Chain,
    /// Records that have left the chain, for the next request.
    records: Vec<Record>,
    /// Bytes of the lines that have entered it since the last request.
    bytes: usize,
    /// Of each file, the ends of ranges of which records may be held, in order.
    held: HashMap<FileId, VecDeque<(u64, Position)>>,
    began: Instant,
    told: Option<Instant>,
}

impl Operators {
    pub(super) fn new(chain: Chain) -> Operators {
        let (records, held, told) = (Vec::new(), HashMap::new(), None);
        Operators { chain, records, bytes: 0, held, began: Instant::now(), told }
    }

    pub(super) fn push(&mut self, record: Record, line_bytes: usize) {
        self.bytes += line_bytes + RECORD_BYTES;
        self.chain.process(record, &mut self.records);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn items(&self) -> u32 {
        self.records.len() as u32
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.chain.held_bytes()
    }

    /// Lets go the records that were held for their time; at the end all of them.
    pub(super) fn flush(&mut self, is_end: bool) {
        let now = if is_end { Duration::MAX } else { self.began.elapsed() };
        self.chain.flush(now, &mut self.records);
    }

    /// The positions of ranges of which nothing is held any more, for the request of the records
    /// that have left.
    pub(super) fn released(&mut self) -> Vec<Position> {
        let mut released = Vec::new();
        if self.held.is_empty() {
            return released;
        }
        let lowest = self.chain.held();
        self.held.retain(|id, ranges| {
            let lowest = lowest.get(&id.0).copied().unwrap_or(u64::MAX);
            while ranges.front().is_some_and(|(end, _)| *end <= lowest) {
                released.extend(ranges.pop_front().map(|(_, position)| position));
            }
            !ranges.is_empty()
        });
        released
    }

    /// A range of a file has ended here.
    pub(super) fn end_range(&mut self, id: FileId, end: u64, position: &Position) {
        if self.chain.held_bytes() > 0 && self.chain.held().get(&id.0).is_some_and(|it| *it < end) {
            self.held.entry(id).or_default().push_back((end, position.share()));
        }
    }

    /// Drops what is held of a file, which is read again from there.
    pub(super) fn forget(&mut self, id: FileId) {
        self.held.remove(&id);
        self.chain.forget(id.0);
    }

    /// The request of the records that have left. It is empty if there are none.
    pub(super) fn finish(&mut self) -> Bytes {
        let mut out = Vec::with_capacity(self.bytes);
        if !self.records.is_empty() {
            encode(&self.records, &mut out);
        }
        self.records.clear();
        self.bytes = 0;
        out.into()
    }

    pub(super) fn counts(&self) -> Counts {
        self.chain.counts()
    }

    /// Logs a failure, unless one was logged a moment ago.
    pub(super) fn tell_failure(&mut self, now: Instant) {
        let Some(failure) = self.chain.take_failure() else { return };
        if self.told.is_none_or(|told| now.duration_since(told) >= TELL_INTERVAL) {
            self.told = Some(now);
            tracing::warn!(
                operator = failure.operator,
                reason = failure.reason,
                "an operator failed on a record; `on_error` says what becomes of it"
            );
        }
    }
}
