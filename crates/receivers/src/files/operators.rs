//! Operators between the lines and their requests, and the ranges of which they hold records.
//!
//! A record that an operator holds is in no request yet. Each range that ends while a record of it
//! or from before it is held has a second position here. A request with records that were held
//! shares that of the first one's range, and the last one gets it: the checkpoint stays before the
//! range until all of them are resolved.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sluice_flow::source::Position;
use sluice_operators::{Chain, Counts, Encoder, Origin, Record};
use sluice_tail::FileId;

use super::attributes::Attributes;

/// Held records are let go at most this late.
pub(crate) const FLUSH_INTERVAL: Duration = Duration::from_millis(100);
/// Failures of operators are told at most this often; all of them are counted.
const TELL_INTERVAL: Duration = Duration::from_secs(10);
/// Memory of a record beside its text, about.
const RECORD_BYTES: usize = 128;
/// Ranges of a file of which records may be held. Beyond, neighbours have one position.
const RANGES_MAX: usize = 64;

pub(crate) struct Operators {
    chain: Chain,
    /// The next request, and the origins of its records.
    encoder: Encoder,
    origins: Vec<Origin>,
    /// Records that have just left the chain.
    left: Vec<Record>,
    /// Bytes of the lines that have entered it since the last request.
    bytes: usize,
    /// Of each file, the ranges of which records may be held, in order.
    held: HashMap<FileId, VecDeque<(Range<u64>, Position)>>,
    /// Nothing was held when the range began that is read now.
    begins_anew: bool,
    began: Instant,
    told: Option<Instant>,
}

/// A request of records that have left.
pub(crate) struct Left {
    pub(crate) bytes: Bytes,
    pub(crate) items: u32,
    /// Of its records, in their order; none if their order is another.
    pub(crate) origins: Vec<Origin>,
}

impl Operators {
    pub(crate) fn new(chain: Chain) -> Operators {
        Operators {
            chain,
            encoder: Encoder::default(),
            origins: Vec::new(),
            left: Vec::new(),
            bytes: 0,
            held: HashMap::new(),
            begins_anew: true,
            began: Instant::now(),
            told: None,
        }
    }

    /// Lines of a file come, whose records begin with these.
    pub(crate) fn begin(&mut self, attributes: &Attributes, resource: &Attributes) {
        self.chain.begin(attributes, resource);
        self.begins_anew = self.holds_nothing() && self.items() == 0;
    }

    /// Takes a line without a record, if that is possible.
    pub(crate) fn write(&mut self, line: &str, origin: Origin, observed_ns: i64) -> bool {
        let is_written = self.chain.write(line, origin.stream, observed_ns, &mut self.encoder);
        if is_written {
            self.bytes += line.len() + RECORD_BYTES;
            self.origins.push(origin);
        }
        is_written
    }

    pub(crate) fn push(&mut self, record: Record, line_bytes: usize) {
        self.bytes += line_bytes + RECORD_BYTES;
        self.chain.process(record, &mut self.left);
        self.take_left();
    }

    /// Takes the records that have just left. They are encoded at once, as values take far more
    /// memory than their text.
    fn take_left(&mut self) {
        for record in self.left.drain(..) {
            self.encoder.push(&record);
            self.origins.push(record.origin);
        }
    }

    /// Bytes of lines since the last request, or of the request that they became.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.max(self.encoder.len())
    }

    pub(crate) fn items(&self) -> u32 {
        self.encoder.encoded().items
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.chain.held_bytes()
    }

    /// The time of this moment for [`Operators::flush`], and the bytes of the records that it would
    /// let go, roughly.
    pub(crate) fn due(&mut self) -> (Duration, usize) {
        let now = self.began.elapsed();
        (now, self.chain.due_bytes(now))
    }

    /// Lets go the records that were held for their time; with [`Duration::MAX`] all of them.
    pub(crate) fn flush(&mut self, now: Duration) {
        self.chain.flush(now, &mut self.left);
        self.take_left();
    }

    /// The positions for the request of the records that have left: of ranges of which nothing is
    /// held any more, and shares of ranges of which other records are still held. `now`: the file
    /// and the start of the range that is read now, which has a position of its own.
    pub(crate) fn released(&mut self, now: Option<(FileId, u64)>) -> Vec<Position> {
        let mut released = Vec::new();
        if self.held.is_empty() {
            return released;
        }
        // Of each file, the first record: the checkpoint does not pass those behind it either.
        let mut starts: HashMap<FileId, u64> = HashMap::new();
        for Origin { stream, range } in &self.origins {
            let id = FileId(*stream);
            let is_new = now.is_some_and(|(own, start)| own == id && range.start >= start);
            if !is_new && self.held.contains_key(&id) {
                let start = starts.entry(id).or_insert(range.start);
                *start = range.start.min(*start);
            }
        }
        for (id, start) in starts {
            let mut ranges = self.held.get(&id).into_iter().flatten();
            let first = ranges.find(|(range, _)| start < range.end);
            released.extend(first.map(|(_, position)| position.share()));
        }
        let lowest = self.chain.held();
        self.held.retain(|id, ranges| {
            let lowest = lowest.get(&id.0).copied().unwrap_or(u64::MAX);
            while ranges.front().is_some_and(|(range, _)| range.end <= lowest) {
                released.extend(ranges.pop_front().map(|(_, position)| position));
            }
            !ranges.is_empty()
        });
        released
    }

    fn holds_nothing(&self) -> bool {
        self.chain.held_bytes() == 0 && self.held.is_empty()
    }

    /// Whether the next request has all records of the range that was read, and these depend on
    /// nothing else, so that they come again when it is read again.
    pub(crate) fn makes_the_same_again(&self) -> bool {
        self.begins_anew && self.holds_nothing()
    }

    /// A sum over the records that have left: of which lines they are, in their order. Operators
    /// that go by chance or by the time may make others of the same lines.
    pub(crate) fn made(&self) -> u32 {
        let mut hasher = DefaultHasher::new();
        for Origin { range, .. } in &self.origins {
            (range.start, range.end).hash(&mut hasher);
        }
        hasher.finish() as u32
    }

    /// The lowest offset of the file of which something is held.
    pub(crate) fn lowest_held(&self, id: FileId) -> Option<u64> {
        if self.chain.held_bytes() > 0 { self.chain.held().get(&id.0).copied() } else { None }
    }

    /// A range of a file has ended here.
    pub(crate) fn end_range(&mut self, id: FileId, range: Range<u64>, position: &Position) {
        // Lines of which nothing has left fill no request.
        self.bytes = 0;
        if self.lowest_held(id).is_some_and(|lowest| lowest < range.end) {
            let ranges = self.held.entry(id).or_default();
            ranges.push_back((range, position.share()));
            if ranges.len() > RANGES_MAX {
                merge_two(ranges);
            }
        }
    }

    /// Drops what is held of a file, which is read again from there.
    pub(crate) fn forget(&mut self, id: FileId) {
        self.held.remove(&id);
        self.chain.forget(id.0);
    }

    /// The records that have left, as a request.
    pub(crate) fn take(&mut self) -> Left {
        let items = self.items();
        let mut origins = std::mem::take(&mut self.origins);
        if !self.encoder.keeps_order() {
            origins.clear();
        }
        Left { bytes: self.finish(), items, origins }
    }

    /// The request of the records that have left. It is empty if there are none.
    pub(crate) fn finish(&mut self) -> Bytes {
        self.origins.clear();
        self.bytes = 0;
        self.encoder.finish()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.chain.counts()
    }

    /// Logs a failure, unless one was logged a moment ago.
    pub(crate) fn tell_failure(&mut self, now: Instant) {
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

/// Gives two neighbours the position of the first: those that are shortest together, so that each
/// is let go while reading goes on.
fn merge_two(ranges: &mut VecDeque<(Range<u64>, Position)>) {
    let length = |at: &usize| ranges[*at + 1].0.end - ranges[*at].0.start;
    let shortest = (0..ranges.len().saturating_sub(1)).min_by_key(length);
    if let Some(at) = shortest
        && let Some((range, position)) = ranges.remove(at + 1)
    {
        ranges[at].0.end = range.end;
        position.resolve();
    }
}

#[cfg(test)]
mod tests;
