//! `recombine` makes one record of several that follow each other.

use std::collections::VecDeque;
use std::time::Duration;

use sluice_config::Fields;
use sluice_otlp::AnyValue;

use crate::expression::{Expression, weight};
use crate::field::Field;
use crate::operator::{Refused, Stage};
use crate::read;
use crate::record::{Origin, Record};

pub(super) const DOC: &str = "Combines records that follow each other into one, such as the lines \
                              of a stack trace. The checkpoint of `file_log` stays before \
                              records that it holds.";

#[derive(Clone)]
struct Recombine {
    expression: Expression,
    /// The expression holds for the first record of a batch rather than for the last.
    is_first: bool,
    options: Options,
    /// In the order in which they were begun.
    batches: VecDeque<Batch>,
}

#[derive(Clone)]
struct Options {
    field: Field,
    with: String,
    source: Field,
    overwrite_with_newest: bool,
    flush_after: Duration,
    /// Each of these limits is off if it is 0.
    max_records: usize,
    max_unmatched: usize,
    max_bytes: u64,
    max_sources: usize,
}

/// Records of one source, in one stream.
#[derive(Clone)]
struct Batch {
    source: Vec<u8>,
    record: Record,
    combined: Vec<u8>,
    records: usize,
    has_matched: bool,
    /// When a flush saw it first.
    since: Option<Duration>,
    /// Bytes that it takes, roughly.
    weight: usize,
}

pub(super) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Stage>> {
    let doc = "Holds for the first record of a batch. Either this or `is_last_entry` is required.";
    let first = read::condition(fields, "is_first_entry", doc);
    let last = read::condition(fields, "is_last_entry", "Holds for the last record of a batch.");
    let doc = "The field whose texts are combined. A record without it leaves as `on_error` says.";
    let field = read::field(fields, "combine_field", doc);
    let with = fields.string("combine_with", "\\n", "The text between two of them.");
    let with = if fields.is_present("combine_with") { with } else { "\n".to_owned() };
    let doc = "The most records of a batch. 0: no limit.";
    let max_records = fields.integer("max_batch_size", 1000, 0..=usize::MAX, doc);
    let doc = "The most records of a batch in which the expression has not held yet. 0: no limit.";
    let max_unmatched = fields.integer("max_unmatched_batch_size", 100, 0..=usize::MAX, doc);
    let doc = "A batch whose combined text is longer leaves at once. 0: no limit.";
    let max_bytes = fields.size("max_log_size", 0, 0..=1 << 30, doc);
    let doc = "The most sources that have a batch at a time. One more source lets all batches go.";
    let max_sources = fields.integer("max_sources", 1000, 1..=usize::MAX, doc);
    let doc = "The field that names the source. Records of different sources or files are never \
               combined.";
    let default = "attributes[\"log.file.path\"]";
    let source = read::optional_field(fields, "source_identifier", Some(default), doc);
    let doc = "Which record gives the other fields of the result.";
    let overwrite_with_newest = fields.choice(
        "overwrite_with",
        false,
        &[("oldest", false), ("newest", true), ("", false)],
        doc,
    );
    let doc = "A batch leaves when it is this old.";
    let flush_after = fields.duration("force_flush_period", Duration::from_secs(5), doc);
    let is_first = first.is_some();
    if is_first == last.is_some() {
        match (fields.is_given("is_first_entry"), fields.is_given("is_last_entry")) {
            (true, true) => fields.error("cannot have both `is_first_entry` and `is_last_entry`"),
            (false, false) => fields.error("needs either `is_first_entry` or `is_last_entry`"),
            _ => {}
        }
        return None;
    }
    let options = Options {
        field: field?,
        with,
        source: source?,
        overwrite_with_newest,
        flush_after,
        max_records,
        max_unmatched,
        max_bytes,
        max_sources,
    };
    let batches = VecDeque::new();
    Some(Box::new(Recombine { expression: first.or(last)?, is_first, options, batches }))
}

type Out = Vec<(usize, Record)>;

impl Recombine {
    fn find(&self, source: &[u8], stream: u64) -> Option<usize> {
        self.batches
            .iter()
            .position(|batch| batch.record.origin.stream == stream && batch.source == source)
    }

    /// The batches that have been held for their time, which are the first ones.
    fn due(&mut self, now: Duration) -> impl Iterator<Item = &Batch> {
        for batch in &mut self.batches {
            batch.since.get_or_insert(now);
        }
        let flush_after = self.options.flush_after;
        self.batches.iter().take_while(move |batch| {
            let held = batch.since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
            now == Duration::MAX || held >= flush_after
        })
    }

    fn emit(&mut self, place: usize, out: &mut Out) {
        let Some(Batch { mut record, combined, .. }) = self.batches.remove(place) else { return };
        // The field held a text, so that it can hold this one.
        let text = String::from_utf8(combined)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        let _ = self.options.field.set(&mut record, AnyValue::String(text));
        out.push((0, record));
    }

    /// Puts the record into its batch, which leaves if it is full.
    fn add(&mut self, source: Vec<u8>, record: Record, text: &[u8], matches: bool, out: &mut Out) {
        let options = &self.options;
        let place = match self.find(&source, record.origin.stream) {
            Some(place) => {
                let batch = &mut self.batches[place];
                batch.records += 1;
                let (one, other) = (&batch.record.origin.range, &record.origin.range);
                let range = one.start.min(other.start)..one.end.max(other.end);
                let origin = Origin { stream: record.origin.stream, range };
                if options.overwrite_with_newest {
                    batch.weight = batch.combined.len() + record_weight(&record);
                    batch.record = record;
                }
                batch.record.origin = origin;
                place
            }
            None => {
                if self.batches.len() >= options.max_sources {
                    while !self.batches.is_empty() {
                        self.emit(0, out);
                    }
                }
                let (combined, weight) = (Vec::new(), record_weight(&record));
                let (records, has_matched, since) = (1, false, None);
                let batch = Batch { source, record, combined, records, has_matched, since, weight };
                self.batches.push_back(batch);
                self.batches.len() - 1
            }
        };
        let (options, batch) = (&self.options, &mut self.batches[place]);
        batch.has_matched |= matches;
        let before = batch.combined.len();
        if !batch.combined.is_empty() {
            batch.combined.extend_from_slice(options.with.as_bytes());
        }
        batch.combined.extend_from_slice(text);
        batch.weight += batch.combined.len() - before;
        let exceeds = |limit: usize| limit > 0 && batch.records >= limit;
        let is_full = options.max_bytes > 0 && batch.combined.len() as u64 > options.max_bytes
            || exceeds(options.max_records)
            || !batch.has_matched && exceeds(options.max_unmatched);
        if is_full {
            self.emit(place, out);
        }
    }
}

/// The bytes of a text, which may be part of one: a character may be split among records.
fn text_of<'r>(field: &Field, record: &'r Record) -> Option<&'r [u8]> {
    match field.get(record)? {
        AnyValue::String(text) => Some(text.as_bytes()),
        AnyValue::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

fn record_weight(record: &Record) -> usize {
    let maps = record.attributes.iter().chain(&record.resource);
    let maps: usize = maps.map(|(key, value)| 24 + key.len() + weight(value)).sum();
    256 + maps + weight(&record.body)
}

impl Stage for Recombine {
    fn take(&mut self, record: Record, out: &mut Out) -> Result<(), Refused> {
        let matches = match self.expression.holds(&record) {
            Ok(matches) => matches,
            Err(reason) => return Err(Box::new((record, reason))),
        };
        let source = text_of(&self.options.source, &record).unwrap_or_default().to_vec();
        if matches
            && self.is_first
            && let Some(place) = self.find(&source, record.origin.stream)
        {
            self.emit(place, out);
        }
        let Some(text) = text_of(&self.options.field, &record).map(<[u8]>::to_vec) else {
            return Err(Box::new((record, "the field `combine_field` has no text".to_owned())));
        };
        let is_last = matches && !self.is_first;
        let stream = record.origin.stream;
        self.add(source.clone(), record, &text, matches, out);
        if is_last && let Some(place) = self.find(&source, stream) {
            self.emit(place, out);
        }
        Ok(())
    }

    fn flush(&mut self, now: Duration, out: &mut Out) {
        let due = self.due(now).count();
        (0..due).for_each(|_| self.emit(0, out));
    }

    fn due_bytes(&mut self, now: Duration) -> usize {
        self.due(now).map(|batch| batch.weight).sum()
    }

    fn longest(&self) -> usize {
        usize::try_from(self.options.max_bytes).unwrap_or(usize::MAX)
    }

    fn held_bytes(&self) -> usize {
        self.batches.iter().map(|batch| batch.weight).sum()
    }

    fn let_go_oldest(&mut self, out: &mut Out) {
        if !self.batches.is_empty() {
            self.emit(0, out);
        }
    }

    fn held(&self, origins: &mut Vec<Origin>) {
        origins.extend(self.batches.iter().map(|batch| batch.record.origin.clone()));
    }

    fn forget(&mut self, stream: u64) {
        self.batches.retain(|batch| batch.record.origin.stream != stream);
    }
}
