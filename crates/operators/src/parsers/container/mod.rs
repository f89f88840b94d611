//! `container`: log files of containers, as Docker, containerd and CRI-O write them.
//!
//! Each line's format is detected. The log becomes the body, its time the record's time, and
//! `stdout` or `stderr` the attribute `log.iostream`. Names from the file's path become attributes
//! of the resource. Lines that CRI-O and containerd cut (tag `P`) are joined, for each file's
//! `stdout` and `stderr` apart, and may be held for `PERIOD`.

mod joining;
mod line;
mod path;

use std::time::Duration;

use sluice_config::Fields;
use sluice_otlp::AnyValue;

use self::joining::Joining;
pub(super) use self::line::{Line, Log, Stream, docker_texts};
pub(super) use self::path::Pod;
use super::values::{kind_of, read_source};
use crate::field::{Field, merge_maps, put};
use crate::operator::{Refused, Stage};
use crate::record::{Origin, Record};
use crate::step::{Format, Step};

/// The attribute that a receiver of files sets.
pub(super) const PATH: &str = "log.file.path";
/// Attributes that are set.
pub(super) const TAG: &str = "logtag";
pub(super) const STREAM: &str = "log.iostream";

#[derive(Clone)]
struct Container {
    from: Field,
    format: Option<Format>,
    adds_metadata: bool,
    /// Of the last path: neighbouring records are mostly of one file.
    pod: Option<Pod>,
    joining: Joining,
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Stage>> {
    let from = read_source(fields, Some("body"), "The line to parse.");
    let formats = [
        ("docker", Some(Format::Docker)),
        ("containerd", Some(Format::Containerd)),
        ("crio", Some(Format::Crio)),
        ("", None),
    ];
    let doc = "The format of all lines. If it is not set, the format of each line is detected.";
    let format = fields.choice("format", None, &formats, doc);
    let doc = "Sets resource attributes from the attribute `log.file.path`: the names of \
               namespace, pod and container, the pod's uid and the number of restarts. The \
               receiver needs `include_file_path: true`.";
    let adds_metadata = fields.boolean("add_metadata_from_filepath", true, doc);
    let doc = "Lines that the runtime has cut are joined up to this length. A longer log leaves at \
               once. 0: no limit of its own.";
    let most = 1 << 30;
    let longest = match fields.size("max_log_size", 1 << 20, 0..=most, doc) {
        0 => most,
        longest => longest,
    };
    for key in ["parse_to", "body", "timestamp", "severity", "trace", "scope_name"] {
        fields.not_yet(key, "set it in a parser that follows this operator, which sees the body");
    }
    let longest = usize::try_from(longest).unwrap_or(usize::MAX);
    let joining = Joining::new(longest);
    Some(Box::new(Container { from: from?, format, adds_metadata, pod: None, joining }))
}

impl Stage for Container {
    fn take(&mut self, mut record: Record, out: &mut Vec<(usize, Record)>) -> Result<(), Refused> {
        match self.parse(&mut record) {
            Ok(None) => out.push((0, record)),
            Ok(Some((is_stderr, is_last))) => self.joining.add(record, is_stderr, is_last, out),
            Err(why) => return Err(Box::new((record, why))),
        }
        Ok(())
    }

    fn flush(&mut self, now: Duration, out: &mut Vec<(usize, Record)>) {
        self.joining.flush(now, out);
    }

    fn due_bytes(&mut self, now: Duration) -> usize {
        self.joining.due_bytes(now)
    }

    fn longest(&self) -> usize {
        self.joining.longest()
    }

    fn held_bytes(&self) -> usize {
        self.joining.held_bytes()
    }

    fn let_go_oldest(&mut self, out: &mut Vec<(usize, Record)>) {
        self.joining.let_go_oldest(out);
    }

    fn held(&self, origins: &mut Vec<Origin>) {
        self.joining.held(origins);
    }

    fn forget(&mut self, stream: u64) {
        self.joining.forget(stream);
    }

    fn holds(&self, stream: u64) -> bool {
        self.joining.holds(stream)
    }

    fn step(&self) -> Option<Step> {
        let Container { from, format, adds_metadata, .. } = self;
        let step = Step::Container { format: *format, adds_metadata: *adds_metadata };
        (*from == Field::body()).then_some(step)
    }
}

impl Container {
    /// Parses the line in place. For lines that may be parts of a log: whether it is of `stderr`,
    /// and whether it is the last part. An error leaves the record as it was.
    fn parse(&mut self, record: &mut Record) -> Result<Option<(bool, bool)>, String> {
        self.learn_pod(record)?;
        let value = self.from.get(record);
        let Some(AnyValue::String(text)) = value else {
            let kind = value.map_or("absent", kind_of);
            return Err(format!("`{}` is {kind}, not a line of a container", self.from));
        };
        let Line { time_ns, stream, log } = Line::read(text, self.format)?;
        let is_stderr = matches!(stream, Stream::Stderr);
        let found = match log {
            Log::Behind { start, tag } => {
                let is_last = tag == "F";
                let tag = tag.to_owned();
                put(&mut record.attributes, TAG, AnyValue::String(tag));
                cut_to(&self.from, start, record);
                Some((is_stderr, is_last))
            }
            Log::Text(log, others) => {
                merge_maps(&mut record.attributes, others, false);
                record.body = log;
                None
            }
        };
        record.time_ns = Some(time_ns);
        put(&mut record.attributes, STREAM, stream.into_value());
        if let Some(pod) = self.pod.as_ref().filter(|_| self.adds_metadata) {
            pod.add_to(&mut record.resource);
        }
        Ok(found)
    }

    /// Reads the record's path, if it is another than the last.
    fn learn_pod(&mut self, record: &Record) -> Result<(), String> {
        if !self.adds_metadata {
            return Ok(());
        }
        let path = record.attributes.iter().find(|(key, _)| key == PATH).map(|(_, value)| value);
        let Some(AnyValue::String(path)) = path else {
            return Err(format!(
                "the record has no attribute `{PATH}` to take metadata from: set \
                 `include_file_path: true` in the receiver, or `add_metadata_from_filepath: false`"
            ));
        };
        if self.pod.as_ref().is_none_or(|pod| pod.path() != path) {
            self.pod = Some(Pod::read(path)?);
        }
        Ok(())
    }
}

/// Makes the text behind `start` of the line the body, in place if the line is the body.
fn cut_to(from: &Field, start: usize, record: &mut Record) {
    let is_body = from.keys.is_empty();
    let log = match from.get(record) {
        Some(AnyValue::String(text)) if !is_body => text[start..].to_owned(),
        _ => {
            if let AnyValue::String(text) = &mut record.body {
                text.drain(..start);
            }
            return;
        }
    };
    record.body = AnyValue::String(log);
}
