//! Samples to requests of OTLP metrics, by way of line protocol.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::sync::Arc;

use bytes::Bytes;
use sluice_influx::{Builder, Limits, LineWriter, Precision, Reader, Settings, Value};
use sluice_otlp::{AnyValue, Signal};
use sluice_tail::{FileId, Line};

use super::config::{FieldKind, K6Config, TimeFormat};
use super::metrics::K6Counters;
use super::{csv, json};
use crate::files::{Attributes, FileAttributes, HEADER_TEXT, REQUEST_BYTES, Records};

const PATH: &str = "log.file.path";
/// Bytes at a file's beginning that are searched for definitions of metrics after a restart.
const DEFINITIONS_BYTES: u64 = 64 << 20;

/// The longest line that is searched for one.
const DEFINITION_BYTES: u64 = 64 << 10;
/// Files that are remembered, of those whose definitions were read. Beyond, all are read again.
const LEARNED: usize = 100_000;

/// The reason for which a line is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault(pub(super) &'static str);

/// The meaning of a line.
#[derive(Debug)]
pub(super) enum Read<'a> {
    Sample(Sample<'a>),
    /// This metric is a counter: each of its samples is an increment.
    Counter(Cow<'a, str>),
    Nothing,
}

#[derive(Debug)]
pub(super) struct Sample<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) time: Cow<'a, str>,
    pub(super) value: f64,
    pub(super) tags: Tags<'a>,
}

/// Samples of one request have the same tags: what is written the same is read once.
#[derive(Debug)]
pub(super) enum Tags<'a> {
    Json(&'a [u8]),
    Csv(&'a [u8]),
    Read(Vec<(String, String)>),
}

/// The tags that were read last, as parts of a line of line protocol.
#[derive(Default)]
struct Head {
    raw: Vec<u8>,
    is_json: bool,
    tags: Vec<u8>,
    fields: Vec<u8>,
    number: usize,
}

/// The attributes of a file that samples need: none of them becomes one of a sample.
pub(super) fn wanted() -> FileAttributes {
    FileAttributes { path: true, ..FileAttributes::default() }
}

/// Makes requests of samples.
pub(super) struct Samples {
    time_format: TimeFormat,
    /// Tags that are kept. `None`: all.
    kept: Option<HashSet<String>>,
    tags_as_fields: Vec<(String, FieldKind)>,
    reader: Reader,
    builder: Builder,
    counters: Arc<K6Counters>,
    path: String,
    /// Files whose definitions were read: files have turns, and each is searched once.
    learned: HashSet<FileId>,
    /// Columns of tags of a file of rows.
    columns: Option<Vec<String>>,
    /// Of the file whose columns these are.
    header: String,
    head: Head,
    /// The last time, as written, in nanoseconds since 1970, and the nanoseconds of its unit.
    time: (String, i64, i64),
    line: Vec<u8>,
}

impl Samples {
    pub(super) fn new(config: &K6Config, counters: Arc<K6Counters>) -> Samples {
        let settings = Settings { sums: config.counters.iter().cloned().collect() };
        Samples {
            time_format: config.time_format,
            kept: config.tags.clone(),
            tags_as_fields: config.tags_as_fields.clone(),
            reader: Reader::new(Precision::Nanoseconds, Limits::default()),
            builder: Builder::new(&settings),
            counters,
            path: String::new(),
            learned: HashSet::new(),
            columns: None,
            header: String::new(),
            head: Head::default(),
            time: (String::new(), 0, 1),
            line: Vec::new(),
        }
    }

    /// Learns which metrics are counters: lines before this one said so, and may have been read
    /// before a restart.
    fn learn(&mut self) {
        let Ok(file) = File::open(&self.path) else { return };
        let mut lines = BufReader::new(file.take(DEFINITIONS_BYTES));
        let (mut line, mut goes_on) = (Vec::new(), false);
        let mut next =
            |line: &mut Vec<u8>| lines.by_ref().take(DEFINITION_BYTES).read_until(b'\n', line);
        while next(&mut line).is_ok_and(|bytes| bytes > 0) {
            let is_rest = std::mem::replace(&mut goes_on, !line.ends_with(b"\n"));
            if !is_rest
                && line.starts_with(br#"{"type":"Metric""#)
                && let Ok(Read::Counter(name)) = json::read(&line)
            {
                self.builder.note_sum(&name);
            }
            if !is_rest && !line.starts_with(b"{") {
                return;
            }
            line.clear();
        }
    }

    fn add(&mut self, line: &[u8], offset: u64) -> Result<(), Fault> {
        let read = match line.first() {
            Some(b'{') => json::read(line)?,
            _ if csv::is_open(line) => return Err(Fault("has a quote that does not end")),
            _ => csv::read(line, self.columns.is_some())?,
        };
        match read {
            Read::Sample(sample) => self.add_sample(sample, offset),
            Read::Counter(name) => {
                self.builder.note_sum(&name);
                Ok(())
            }
            Read::Nothing => Ok(()),
        }
    }

    fn add_sample(&mut self, sample: Sample<'_>, offset: u64) -> Result<(), Fault> {
        let is_json = matches!(sample.tags, Tags::Json(_) | Tags::Read(_));
        let time_ns = self.time_ns(&sample.time, (!is_json).then_some(offset))?;
        self.read_tags(sample.tags)?;
        self.line.clear();
        let unwritable = Fault("has no name that a measurement can have");
        let mut writer = LineWriter::new(&mut self.line, &sample.name).map_err(|_| unwritable)?;
        writer.append(&self.head.tags, &self.head.fields, self.head.number);
        let value = writer.field(b"value", &Value::Float(sample.value));
        value.map_err(|_| Fault("has a value that is no finite number"))?;
        writer.end(Some(time_ns));
        let (builder, before) = (&mut self.builder, self.reader.faults().count);
        self.reader.read(&self.line, |line| builder.add(line, time_ns));
        if self.reader.faults().count > before {
            return Err(Fault("is too long, or a tag has bytes that line protocol has not"));
        }
        Ok(())
    }

    /// All samples of a second have one time in a row, and InfluxDB would keep one of each series.
    /// The offset tells them apart, also when a row is read again. A second has less than a GB.
    fn time_ns(&mut self, text: &str, offset: Option<u64>) -> Result<i64, Fault> {
        if self.time.0 != text {
            let time = self.time_format.read(text);
            let wrong = Fault("has a time that `time_format` does not allow");
            (self.time.1, self.time.2) = time.ok_or(wrong)?;
            self.time.0.clear();
            self.time.0.push_str(text);
        }
        let (time_ns, unit_ns) = (self.time.1, self.time.2);
        let apart_ns = offset.map_or(0, |offset| (offset % unit_ns as u64) as i64);
        Ok(time_ns.saturating_add(apart_ns))
    }

    fn read_tags(&mut self, tags: Tags<'_>) -> Result<(), Fault> {
        let (raw, is_json, pairs) = match tags {
            Tags::Json(raw) | Tags::Csv(raw)
                if raw == self.head.raw && matches!(tags, Tags::Json(_)) == self.head.is_json =>
            {
                return Ok(());
            }
            Tags::Json(raw) => {
                (raw, true, json::tags(raw).ok_or(Fault("has tags that are no JSON object"))?)
            }
            Tags::Csv(raw) => {
                (raw, false, csv::tags(raw, self.columns.as_deref().unwrap_or_default()))
            }
            Tags::Read(pairs) => (&[][..], true, pairs),
        };
        self.head.raw.clear();
        self.head.raw.extend_from_slice(raw);
        self.head.is_json = is_json;
        self.write_head(&pairs);
        Ok(())
    }

    /// Writes tags, and those that are fields, behind a measurement of one byte.
    fn write_head(&mut self, pairs: &[(String, String)]) {
        let Head { tags, fields, number, .. } = &mut self.head;
        tags.clear();
        fields.clear();
        *number = 0;
        let kind_of = |key: &str| self.tags_as_fields.iter().find(|(name, _)| name == key);
        let kept = |key: &str| self.kept.as_ref().is_none_or(|kept| kept.contains(key));
        let pairs = || pairs.iter().filter(|(key, _)| kept(key));
        if let Ok(mut writer) = LineWriter::new(tags, "m") {
            for (key, value) in pairs().filter(|(key, _)| kind_of(key).is_none()) {
                writer.tag(key.as_bytes(), value.as_bytes());
            }
        }
        if let Ok(mut writer) = LineWriter::new(fields, "m") {
            for (key, value) in pairs() {
                let Some((_, kind)) = kind_of(key) else { continue };
                let written = writer.field(key.as_bytes(), &kind.read(value));
                *number += usize::from(written.is_ok());
            }
        }
        tags.drain(..1);
        fields.drain(..1);
    }

    fn note(&self, fault: Fault, offset: u64) {
        self.counters.count_fault(&self.path, offset, fault.0);
    }
}

impl Records for Samples {
    fn signal(&self) -> Signal {
        Signal::Metrics
    }

    fn begin(&mut self, file: FileId, attributes: &Attributes) {
        let text = |wanted: &str| {
            attributes.iter().find_map(|(key, value)| match value {
                AnyValue::String(text) if key == wanted => Some(text.clone()),
                _ => None,
            })
        };
        let (header, path) =
            (text(HEADER_TEXT).unwrap_or_default(), text(PATH).unwrap_or_default());
        if header != self.header {
            self.columns = csv::columns(&header);
            self.header = header;
            self.head = Head::default();
        }
        self.path = path;
        if !self.learned.contains(&file) {
            if self.learned.len() >= LEARNED {
                self.learned.clear();
            }
            self.learned.insert(file);
            self.learn();
        }
    }

    fn push(&mut self, line: Line<'_>) {
        if let Err(fault) = self.add(line.text, line.offset) {
            self.note(fault, line.offset);
        }
    }

    fn is_full(&self) -> bool {
        self.builder.points() > 0 && self.builder.held_bytes() >= REQUEST_BYTES
    }

    fn items(&self) -> u32 {
        self.builder.points()
    }

    /// Points of a request are sorted by metric.
    fn place_of(&self, _: usize) -> Option<(FileId, u64)> {
        None
    }

    fn note_taken(&self, request: &Bytes) {
        self.counters.note_received(request);
    }

    fn finish(&mut self) -> Bytes {
        self.builder.take(&[]).into()
    }
}
