//! Lines of files as requests of OTLP log records.
//!
//! A line is written straight from the window that it was read into. Where it is not that simple, a
//! [`Record`] is made of it and encoded, behind the operators if there are any.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use sluice_operators::{Encoder, Origin, Place, Record, TextRecord, encode_attributes};
use sluice_otlp::{AnyValue, Signal};
use sluice_tail::{Charset, FileId, Line};

use super::FilelogConfig;
use crate::files::{Attributes, Operators, REQUEST_BYTES, Records};
use crate::splitting::decoded;

/// Makes requests of lines.
pub(super) struct Lines {
    charset: Charset,
    includes_number: bool,
    includes_offset: bool,
    operators: Option<Operators>,
    resource: Attributes,
    /// The request in the making, without operators.
    encoder: Encoder,
    place: Option<Place>,
    /// Of its records.
    offsets: Vec<u64>,
    observed_ns: i64,
    file: FileId,
    attributes: Attributes,
    /// The same, encoded as fields of a record.
    encoded: Vec<u8>,
}

impl Lines {
    pub(super) fn new(config: &FilelogConfig) -> Lines {
        Lines {
            charset: config.options.splitter.charset,
            includes_number: config.files.record_number,
            includes_offset: config.files.record_offset,
            operators: (!config.operators.is_empty())
                .then(|| Operators::new(config.operators.build())),
            resource: config.resource.clone(),
            encoder: Encoder::default(),
            place: None,
            offsets: Vec::new(),
            observed_ns: 0,
            file: FileId(0),
            attributes: Vec::new(),
            encoded: Vec::new(),
        }
    }

    /// Writes the record of a line, if it needs not be made first.
    fn write(&mut self, text: &str, line: &Line<'_>) -> bool {
        if self.includes_number || self.includes_offset {
            return false;
        }
        if let Some(operators) = &mut self.operators {
            let origin = origin(self.file, line);
            return operators.write(text, origin, self.observed_ns);
        }
        let (observed_ns, attributes) = (self.observed_ns, [&self.encoded[..], &[], &[]]);
        let record = TextRecord { observed_ns, body: text, attributes, ..TextRecord::default() };
        self.encoder.push_text(&mut self.place, &self.resource, &record);
        true
    }

    /// The record of a line.
    fn record(&self, body: AnyValue, line: Line<'_>) -> Record {
        let origin = origin(self.file, &line);
        let mut record = Record::new(body, self.observed_ns, origin);
        record.attributes.clone_from(&self.attributes);
        record.resource.clone_from(&self.resource);
        let mut add = |name: &str, value: u64| {
            record.attributes.push((name.to_owned(), AnyValue::Int(value as i64)));
        };
        if self.includes_number {
            add("log.file.record_number", line.number);
        }
        if self.includes_offset {
            add("log.file.record_offset", line.offset);
        }
        record
    }
}

impl Records for Lines {
    fn signal(&self) -> Signal {
        Signal::Logs
    }

    fn begin(&mut self, file: FileId, attributes: &Attributes) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.observed_ns = since.as_nanos() as i64;
        self.file = file;
        self.offsets.clear();
        if self.attributes != *attributes {
            self.encoded = encode_attributes(attributes);
            self.attributes.clone_from(attributes);
        }
        if let Some(operators) = &mut self.operators {
            operators.begin(attributes, &self.resource);
        }
    }

    fn push(&mut self, line: Line<'_>) {
        if self.operators.is_none() {
            self.offsets.push(line.offset);
        }
        let text = match decoded(self.charset, line.text) {
            Ok(text) if self.write(&text, &line) => return,
            Ok(text) => AnyValue::String(text.into_owned()),
            Err(bytes) => AnyValue::Bytes(bytes),
        };
        let record = self.record(text, line);
        match &mut self.operators {
            Some(operators) => operators.push(record, line.text.len()),
            None => self.encoder.push(&record),
        }
    }

    fn is_full(&self) -> bool {
        self.operators.as_ref().map_or(self.encoder.len(), Operators::bytes) >= REQUEST_BYTES
    }

    fn items(&self) -> u32 {
        self.operators.as_ref().map_or(self.encoder.encoded().items, Operators::items)
    }

    fn place_of(&self, item: usize) -> Option<(FileId, u64)> {
        self.offsets.get(item).map(|offset| (self.file, *offset))
    }

    fn finish(&mut self) -> Bytes {
        match &mut self.operators {
            Some(operators) => operators.finish(),
            None => self.encoder.finish(),
        }
    }

    fn operators(&mut self) -> Option<&mut Operators> {
        self.operators.as_mut()
    }
}

fn origin(file: FileId, line: &Line<'_>) -> Origin {
    Origin { stream: file.0, range: line.offset..line.offset + line.text.len() as u64 }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use prost::Message as _;
    use sluice_config::load::read_text;
    use sluice_otlp::scan;

    use super::*;

    fn request(config: &str, lines: &[&[u8]]) -> (u32, ExportLogsServiceRequest) {
        let text = format!("include: [/a], {config}");
        let (config, diagnostics) =
            read_text("receivers.filelog", &format!("{{{text}}}"), FilelogConfig::read);
        assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
        let mut made = Lines::new(&config);
        let name = ("log.file.name".to_owned(), AnyValue::String("a".to_owned()));
        made.begin(FileId(1), &vec![name]);
        for (index, text) in lines.iter().enumerate() {
            made.push(Line { text, offset: index as u64 * 10, number: index as u64 + 1 });
        }
        let (items, bytes) = (made.items(), made.finish());
        assert_eq!(scan(Signal::Logs, &bytes).ok(), Some(items));
        (items, ExportLogsServiceRequest::decode(bytes).expect("is OTLP"))
    }

    /// Guarantee: a line that is written straight and one that is made a record of are the same but
    /// for the attribute that makes the difference.
    #[test]
    fn lines_become_log_records() {
        let (long, lines) = ("x".repeat(300), [&b"a"[..], "ä€".as_bytes(), b"\xff"]);
        let lines: Vec<&[u8]> = lines.into_iter().chain([long.as_bytes()]).collect();
        let (items, straight) = request("resource: {service.name: s}", &lines);
        assert_eq!(items, 4);
        let resource = straight.resource_logs[0].resource.as_ref().expect("is there");
        assert_eq!(resource.attributes[0].key, "service.name");
        let numbered = "resource: {service.name: s}, include_file_record_number: true";
        let (_, mut made) = request(numbered, &lines);
        let records = &mut made.resource_logs[0].scope_logs[0].log_records;
        for (index, record) in records.iter_mut().enumerate() {
            let number = record.attributes.pop().expect("is there");
            assert_eq!(number.key, "log.file.record_number");
            assert_eq!(number.value.expect("is there"), {
                use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value::Value};
                AnyValue { value: Some(Value::IntValue(index as i64 + 1)) }
            });
        }
        for request in [&straight, &made] {
            let records = &request.resource_logs[0].scope_logs[0].log_records;
            assert_eq!(records[0].attributes[0].key, "log.file.name");
            assert!(records.iter().all(|record| record.observed_time_unix_nano > 0));
        }
        let bodies = |request: &ExportLogsServiceRequest| {
            let records = &request.resource_logs[0].scope_logs[0].log_records;
            records.iter().map(|record| record.body.clone()).collect::<Vec<_>>()
        };
        assert_eq!(bodies(&straight), bodies(&made));
    }
}
