//! Operators between the lines and their requests, and the ranges of which they hold records.
//!
//! A record that an operator holds is in no request yet. Each range that ends while a record of it
//! or from before it is held has a second position here. Each request with a record that was held
//! shares it, and the last one gets it: the checkpoint stays before the range until all of them are
//! resolved.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sluice_flow::source::Position;
use sluice_operators::{Chain, Counts, Encoder, Origin, Record};
use sluice_tail::FileId;

use super::attributes::Attributes;

/// Held records are let go at most this late.
pub(super) const FLUSH_INTERVAL: Duration = Duration::from_millis(100);
/// Failures of operators are told at most this often; all of them are counted.
const TELL_INTERVAL: Duration = Duration::from_secs(10);
/// Memory of a record beside its text, about.
const RECORD_BYTES: usize = 128;

pub(super) struct Operators {
    chain: Chain,
    /// The next request.
    encoder: Encoder,
    /// Of records in it that may be from before the range that is read now.
    origins: Vec<Origin>,
    /// Records that have just left the chain.
    left: Vec<Record>,
    /// Bytes of the lines that have entered it since the last request.
    bytes: usize,
    /// Of each file, the ranges of which records may be held, in order.
    held: HashMap<FileId, VecDeque<(Range<u64>, Position)>>,
    began: Instant,
    told: Option<Instant>,
}

impl Operators {
    pub(super) fn new(chain: Chain) -> Operators {
        Operators {
            chain,
            encoder: Encoder::default(),
            origins: Vec::new(),
            left: Vec::new(),
            bytes: 0,
            held: HashMap::new(),
            began: Instant::now(),
            told: None,
        }
    }

    /// Lines of a file come, whose records begin with these.
    pub(super) fn begin(&mut self, attributes: &Attributes, resource: &Attributes) {
        self.chain.begin(attributes, resource);
    }

    /// Takes a line without a record, if that is possible.
    pub(super) fn write(&mut self, line: &str, id: FileId, observed_ns: i64) -> bool {
        let is_written = self.chain.write(line, id.0, observed_ns, &mut self.encoder);
        self.bytes += if is_written { line.len() + RECORD_BYTES } else { 0 };
        is_written
    }

    pub(super) fn push(&mut self, record: Record, line_bytes: usize) {
        self.bytes += line_bytes + RECORD_BYTES;
        self.chain.process(record, &mut self.left);
        self.encode();
    }

    /// Each record is encoded at once: values take far more memory than their text.
    fn encode(&mut self) {
        for record in self.left.drain(..) {
            self.encoder.push(&record);
            self.origins.push(record.origin);
        }
    }

    /// Bytes of lines since the last request, or of the request that they became.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.max(self.encoder.len())
    }

    pub(super) fn items(&self) -> u32 {
        self.encoder.encoded().items
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.chain.held_bytes()
    }

    /// Lets go the records that were held for their time; at the end all of them.
    pub(super) fn flush(&mut self, is_end: bool) {
        let now = if is_end { Duration::MAX } else { self.began.elapsed() };
        self.chain.flush(now, &mut self.left);
        self.encode();
    }

    /// Ends a range of a file, with whose position and the returned ones its request resolves.
    pub(super) fn end_range(
        &mut self,
        id: FileId,
        range: Range<u64>,
        position: &Position,
    ) -> Vec<Position> {
        // Lines of which nothing has left fill no request.
        self.bytes = 0;
        let (lowest, now) = (self.lowest(), (id, range.start));
        if lowest.get(&id.0).is_some_and(|lowest| *lowest < range.end) {
            self.held.entry(id).or_default().push_back((range, position.share()));
        }
        self.released(Some(now), &lowest)
    }

    /// The positions for a request of records that were held.
    pub(super) fn end_flush(&mut self) -> Vec<Position> {
        let lowest = self.lowest();
        self.released(None, &lowest)
    }

    /// The lowest offset of each file of which something is held.
    fn lowest(&self) -> HashMap<u64, u64> {
        if self.chain.held_bytes() > 0 { self.chain.held() } else { HashMap::new() }
    }

    /// Positions of ranges of which nothing is held any more, and shares of ranges of which other
    /// records are still held. `now`: the file and the start of the range that is read now, which
    /// has a position of its own.
    fn released(
        &mut self,
        now: Option<(FileId, u64)>,
        lowest: &HashMap<u64, u64>,
    ) -> Vec<Position> {
        let mut released = Vec::new();
        if self.held.is_empty() {
            return released;
        }
        for Origin { stream, range } in &self.origins {
            let is_new = now.is_some_and(|(id, start)| id.0 == *stream && range.start >= start);
            if let Some(ranges) = self.held.get(&FileId(*stream)).filter(|_| !is_new) {
                let overlaps = |held: &Range<u64>| held.start < range.end && range.start < held.end;
                let shares = ranges.iter().filter(|(held, _)| overlaps(held));
                released.extend(shares.map(|(_, position)| position.share()));
            }
        }
        self.held.retain(|id, ranges| {
            let lowest = lowest.get(&id.0).copied().unwrap_or(u64::MAX);
            while ranges.front().is_some_and(|(range, _)| range.end <= lowest) {
                released.extend(ranges.pop_front().map(|(_, position)| position));
            }
            !ranges.is_empty()
        });
        released
    }

    /// Drops what is held of a file, which is read again from there.
    pub(super) fn forget(&mut self, id: FileId) {
        self.held.remove(&id);
        self.chain.forget(id.0);
    }

    /// The request of the records that have left. It is empty if there are none.
    pub(super) fn finish(&mut self) -> Bytes {
        self.origins.clear();
        self.bytes = 0;
        self.encoder.finish()
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
