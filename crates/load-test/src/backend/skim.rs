//! Counts the items of an encoded export request while it streams by, without keeping it: only tags and lengths are read.

use sluice_otlp::Signal;

/// Deepest nesting above an item: request, resource, scope, metric, data.
const LEVELS: usize = 5;

enum Expects {
    Tag,
    Length { field: u64 },
    VarintValue,
}

/// A resumable scan of one message.
pub(crate) struct Skimmer {
    signal: Signal,
    items: u64,
    position: u64,
    skip: u64,
    /// Where the open messages end.
    ends: [u64; LEVELS],
    depth: usize,
    expects: Expects,
    varint: u64,
    shift: u32,
    malformed: bool,
}

impl Skimmer {
    pub(crate) fn new(signal: Signal) -> Self {
        Skimmer {
            signal,
            items: 0,
            position: 0,
            skip: 0,
            ends: [u64::MAX; LEVELS],
            depth: 0,
            expects: Expects::Tag,
            varint: 0,
            shift: 0,
            malformed: false,
        }
    }

    /// The items found; `None` where the message was malformed or is incomplete.
    pub(crate) fn finish(mut self) -> Option<u64> {
        self.close_ended();
        let complete = self.skip == 0 && self.depth == 0 && self.shift == 0 && matches!(self.expects, Expects::Tag);
        (complete && !self.malformed).then_some(self.items)
    }

    pub(crate) fn feed(&mut self, mut chunk: &[u8]) {
        while !chunk.is_empty() && !self.malformed {
            if self.skip > 0 {
                let skipped = self.skip.min(chunk.len() as u64);
                self.skip -= skipped;
                self.position += skipped;
                chunk = &chunk[skipped as usize..];
                continue;
            }
            let byte = chunk[0];
            chunk = &chunk[1..];
            if self.shift == 0 && matches!(self.expects, Expects::Tag) {
                self.close_ended();
            }
            self.position += 1;
            self.varint |= u64::from(byte & 0x7f).checked_shl(self.shift).unwrap_or(0);
            if byte & 0x80 != 0 {
                self.shift += 7;
                self.malformed = self.shift > 63;
                continue;
            }
            let value = std::mem::take(&mut self.varint);
            self.shift = 0;
            self.take(value);
        }
    }

    fn close_ended(&mut self) {
        while self.depth > 0 && self.position >= self.ends[self.depth] {
            self.malformed |= self.position > self.ends[self.depth];
            self.depth -= 1;
        }
    }

    fn take(&mut self, value: u64) {
        match std::mem::replace(&mut self.expects, Expects::Tag) {
            Expects::VarintValue => {}
            Expects::Tag => match value & 7 {
                0 => self.expects = Expects::VarintValue,
                1 => self.skip = 8,
                2 => self.expects = Expects::Length { field: value >> 3 },
                5 => self.skip = 4,
                _ => self.malformed = true,
            },
            Expects::Length { field } => self.open(field, value),
        }
    }

    /// Goes into a message that leads to items; counts or skips any other.
    fn open(&mut self, field: u64, len: u64) {
        let is_metrics = self.signal == Signal::Metrics;
        let descends = match self.depth {
            0 => field == 1,
            1 => field == 2,
            2 => field == 2 && is_metrics,
            3 => matches!(field, 5 | 7 | 9 | 10 | 11),
            _ => false,
        };
        if descends {
            self.depth += 1;
            self.ends[self.depth] = self.position.saturating_add(len);
            return;
        }
        let is_item = if is_metrics { self.depth == 4 && field == 1 } else { self.depth == 2 && field == 2 };
        self.items += u64::from(is_item);
        self.skip = len;
    }
}
