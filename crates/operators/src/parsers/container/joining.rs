//! Joins the parts of logs that a container runtime has cut.

use std::collections::HashMap;
use std::time::Duration;

use sluice_otlp::AnyValue;

use crate::record::{Origin, Record};

/// The longest time for which parts are held, as in the Collector.
const PERIOD: Duration = Duration::from_secs(5);

/// Logs that are held at once, as in the Collector.
const COUNT_LIMIT: usize = 1000;

/// Memory of a record beside its text, about.
const RECORD_BYTES: usize = 256;

/// A file, and whether the log is of `stderr`.
type Source = (u64, bool);

#[derive(Clone)]
pub(super) struct Joining {
    longest: usize,
    held: HashMap<Source, Held>,
    /// Of the texts.
    held_bytes: usize,
    /// Counts the logs that were begun.
    begun: u64,
}

/// A log whose last part has not come.
#[derive(Clone)]
struct Held {
    record: Record,
    /// When a flush saw it first.
    since: Option<Duration>,
    number: u64,
}

impl Joining {
    /// `longest`: a log that is longer, in bytes, leaves without its end.
    pub(super) fn new(longest: usize) -> Joining {
        Joining { longest, held: HashMap::new(), held_bytes: 0, begun: 0 }
    }

    /// Takes a part. The joined log is the first part's record with the text of all.
    pub(super) fn add(
        &mut self,
        record: Record,
        is_stderr: bool,
        is_last: bool,
        out: &mut Vec<(usize, Record)>,
    ) {
        let source = (record.origin.stream, is_stderr);
        let held = if self.held.is_empty() { None } else { self.held.get_mut(&source) };
        let Some(held) = held else {
            if is_last || length(&record) > self.longest {
                out.push((0, record));
            } else {
                self.held_bytes += length(&record);
                self.begun += 1;
                self.held.insert(source, Held { record, since: None, number: self.begun });
                self.keep_bounds(out);
            }
            return;
        };
        self.held_bytes += length(&record);
        if let (AnyValue::String(text), AnyValue::String(more)) =
            (&mut held.record.body, &record.body)
        {
            text.push_str(more);
        }
        held.record.origin.range.end = record.origin.range.end;
        if is_last || length(&held.record) > self.longest {
            self.release(source, out);
        } else {
            self.keep_bounds(out);
        }
    }

    pub(super) fn flush(&mut self, now: Duration, out: &mut Vec<(usize, Record)>) {
        let due = self.due(now).map(|(source, held)| (held.number, *source));
        let mut due: Vec<_> = due.collect();
        due.sort_unstable();
        due.into_iter().for_each(|(_, source)| self.release(source, out));
    }

    /// Those that have been held for their time.
    fn due(&mut self, now: Duration) -> impl Iterator<Item = (&Source, &mut Held)> {
        self.held.iter_mut().filter_map(move |(source, held)| {
            let since = *held.since.get_or_insert(now);
            let is_due = now == Duration::MAX || now.saturating_sub(since) >= PERIOD;
            is_due.then_some((source, held))
        })
    }

    pub(super) fn due_bytes(&mut self, now: Duration) -> usize {
        self.due(now).map(|(_, held)| length(&held.record) + RECORD_BYTES).sum()
    }

    pub(super) fn held(&self, origins: &mut Vec<Origin>) {
        origins.extend(self.held.values().map(|held| held.record.origin.clone()));
    }

    pub(super) fn holds(&self, stream: u64) -> bool {
        let is_held = |is_stderr| self.held.contains_key(&(stream, is_stderr));
        !self.held.is_empty() && (is_held(false) || is_held(true))
    }

    pub(super) fn forget(&mut self, stream: u64) {
        self.held.retain(|source, _| source.0 != stream);
        self.held_bytes = self.held.values().map(|held| length(&held.record)).sum();
    }

    fn release(&mut self, source: Source, out: &mut Vec<(usize, Record)>) {
        if let Some(held) = self.held.remove(&source) {
            self.held_bytes = self.held_bytes.saturating_sub(length(&held.record));
            out.push((0, held.record));
        }
    }

    fn keep_bounds(&mut self, out: &mut Vec<(usize, Record)>) {
        while self.held.len() > COUNT_LIMIT {
            self.let_go_oldest(out);
        }
    }

    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// The chain bounds them. More than 0 also if the parts have no text.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes + self.held.len() * RECORD_BYTES
    }

    pub(super) fn let_go_oldest(&mut self, out: &mut Vec<(usize, Record)>) {
        let oldest = self.held.iter().min_by_key(|(_, held)| held.number);
        if let Some(source) = oldest.map(|(source, _)| *source) {
            self.release(source, out);
        }
    }
}

/// Of the log, in bytes.
fn length(record: &Record) -> usize {
    if let AnyValue::String(text) = &record.body { text.len() } else { 0 }
}
