//! The lines of one request.

use std::time::SystemTime;

use sluice_influx::{Builder, Line, Precision, Verdict};

/// A request is submitted from this size on: large enough to cost little beside its lines, and to
/// be sent alone.
pub(super) const CHUNK_BYTES: usize = 256 << 10;
/// The most of a body that is taken as a whole or not at all: its lines stay in one request.
pub(super) const WHOLE_BYTES: usize = 4 << 20;
/// A line becomes at most so long: each of its fields is a point with all tags.
const LINE_GROWTH_BYTES: usize = 8 << 20;
const GROWS: &str = "a line becomes at most 8 MiB, with its tags at each of its fields";
/// The fault of a line that no request can have.
pub(super) const TOO_LARGE: &str = "it takes more memory than there is for a request";
/// More is not remembered from one request to the next.
const REMEMBERED_BYTES: usize = 16 << 10;

/// The lines of the next request.
pub(super) struct Chunk {
    pub builder: Builder,
    precision: Precision,
    /// The time of lines without one.
    arrival_ns: i64,
    /// The most that a request grows to.
    limit_bytes: usize,
    /// The builder's size at which the request is submitted.
    full_at: usize,
    /// The builder's size at which memory is spent.
    pub spent_at: usize,
    /// Lines that were taken, of all requests.
    pub lines: u64,
    /// The growth by a line for which there was no memory.
    pub wanted_bytes: usize,
    /// There can never be memory for the next line.
    pub refuses_next: bool,
}

impl Chunk {
    pub(super) fn new(builder: Builder, precision: Precision, is_whole: bool) -> Chunk {
        let limit_bytes = if is_whole { WHOLE_BYTES } else { CHUNK_BYTES };
        let (full_at, spent_at, lines, wanted_bytes) = (limit_bytes, 0, 0, 0);
        let arrival_ns = now_ns();
        Chunk {
            builder,
            precision,
            arrival_ns,
            limit_bytes,
            full_at,
            spent_at,
            lines,
            wanted_bytes,
            refuses_next: false,
        }
    }

    /// The next request begins.
    pub(super) fn begin(&mut self) {
        if self.builder.held_bytes() > REMEMBERED_BYTES {
            self.builder.forget();
        }
        self.full_at = self.builder.held_bytes() + self.limit_bytes;
        self.arrival_ns = self.precision.arrival_ns(now_ns());
    }

    /// Forgets what is remembered of requests before, so that the next one begins with nothing.
    /// False: nothing is.
    pub(super) fn forget(&mut self) -> bool {
        let remembers = self.builder.held_bytes() > 0;
        self.builder.forget();
        remembers
    }

    /// Forgets the lines of the request.
    pub(super) fn give_up(&mut self) {
        self.builder.forget();
        self.lines = 0;
    }

    pub(super) fn offer(&mut self, line: &Line<'_>) -> Verdict {
        if std::mem::take(&mut self.refuses_next) {
            return Verdict::Refused(TOO_LARGE);
        }
        let (held, growth) = (self.builder.held_bytes(), self.builder.growth_bytes(line));
        if growth > LINE_GROWTH_BYTES {
            return Verdict::Refused(GROWS);
        }
        if held >= self.full_at {
            return Verdict::Later;
        }
        if held + growth > self.spent_at {
            self.wanted_bytes = growth;
            return Verdict::Later;
        }
        self.builder.add(line, self.arrival_ns);
        self.lines += 1;
        Verdict::Taken
    }
}

fn now_ns() -> i64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_nanos()).unwrap_or(i64::MAX)
}
