//! Lines of files as requests of OTLP log records.
//!
//! A line is written straight from the window that it was read into. Where it is not that simple, a
//! [`Record`] is made of it and encoded. With operators, they work on that record in between.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use sluice_operators::{Origin, Record};
use sluice_otlp::AnyValue;
use sluice_otlp::wire::{write_len_field, write_varint};
use sluice_tail::{Charset, FileId, Line};

use super::FilelogConfig;
use super::attributes::Attributes;
use super::operators::Operators;

/// A request is full with this many bytes.
pub(super) const REQUEST_BYTES: usize = 256 << 10;
/// Room for the tags and lengths before the first record.
const HEADER_BYTES: usize = 48;

/// Makes requests of lines.
pub(super) struct Lines {
    charset: Charset,
    includes_number: bool,
    includes_offset: bool,
    operators: Option<Operators>,
    /// Attributes of the resource, and the same as a field of `ResourceLogs`.
    resource_attributes: Attributes,
    resource: Vec<u8>,
    /// The request in the making: room for its header, then records.
    out: Vec<u8>,
    items: u32,
    observed_ns: i64,
    file: FileId,
    attributes: Attributes,
    /// The same, encoded as fields of a record.
    encoded: Vec<u8>,
}

impl Lines {
    pub(super) fn new(config: &FilelogConfig) -> Lines {
        let mut resource = Vec::new();
        if !config.resource.is_empty() {
            write_len_field(&mut resource, 1, &encode_attributes(&config.resource, 1));
        }
        Lines {
            charset: config.options.splitter.charset,
            includes_number: config.files.record_number,
            includes_offset: config.files.record_offset,
            operators: (!config.operators.is_empty())
                .then(|| Operators::new(config.operators.build())),
            resource_attributes: config.resource.clone(),
            resource,
            out: Vec::new(),
            items: 0,
            observed_ns: 0,
            file: FileId(0),
            attributes: Vec::new(),
            encoded: Vec::new(),
        }
    }

    /// Begins a request of lines of one file.
    pub(super) fn begin(&mut self, file: FileId, attributes: &Attributes) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.observed_ns = since.as_nanos() as i64;
        self.file = file;
        self.items = 0;
        if self.operators.is_none() {
            self.out = Vec::with_capacity(HEADER_BYTES + self.resource.len() + REQUEST_BYTES / 4);
            self.out.resize(HEADER_BYTES + self.resource.len(), 0);
        }
        if self.attributes != *attributes {
            self.encoded = encode_attributes(attributes, 6);
            self.attributes = attributes.clone();
        }
    }

    pub(super) fn operators(&mut self) -> Option<&mut Operators> {
        self.operators.as_mut()
    }

    pub(super) fn is_full(&self) -> bool {
        self.operators.as_ref().map_or(self.out.len(), Operators::bytes) >= REQUEST_BYTES
    }

    pub(super) fn items(&self) -> u32 {
        self.operators.as_ref().map_or(self.items, Operators::items)
    }

    pub(super) fn push(&mut self, line: Line<'_>) {
        let text = self.charset.decode(line.text);
        let is_text = match self.charset {
            Charset::Nop => false,
            Charset::Utf8Raw => str::from_utf8(&text).is_ok(),
            _ => true,
        };
        let is_plain = self.operators.is_none() && !self.includes_number && !self.includes_offset;
        if is_text && is_plain {
            self.items += 1;
            let value_len = 1 + varint_len(text.len()) + text.len();
            let length = 9 + 1 + varint_len(value_len) + value_len + self.encoded.len();
            let out = &mut self.out;
            out.reserve(length + 6);
            out.push(0x12);
            write_varint(out, length as u64);
            out.push(0x59);
            out.extend_from_slice(&self.observed_ns.to_le_bytes());
            out.push(0x2a);
            write_varint(out, value_len as u64);
            out.push(0x0a);
            write_varint(out, text.len() as u64);
            out.extend_from_slice(&text);
            out.extend_from_slice(&self.encoded);
            return;
        }
        let body = match String::from_utf8(text.into_owned()) {
            Ok(text) if is_text => AnyValue::String(text),
            Ok(text) => AnyValue::Bytes(text.into_bytes()),
            Err(error) => AnyValue::Bytes(error.into_bytes()),
        };
        let record = self.record(body, line);
        match &mut self.operators {
            Some(operators) => operators.push(record, line.text.len()),
            None => self.push_record(&record),
        }
    }

    /// The record of a line.
    fn record(&self, body: AnyValue, line: Line<'_>) -> Record {
        let range = line.offset..line.offset + line.text.len() as u64;
        let mut record = Record::new(body, self.observed_ns, Origin { stream: self.file.0, range });
        record.attributes.clone_from(&self.attributes);
        if self.operators.is_some() {
            record.resource.clone_from(&self.resource_attributes);
        }
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

    /// Encodes a record, but for its resource and scope: that of all lines is the same.
    fn push_record(&mut self, record: &Record) {
        self.items += 1;
        let mut content = Vec::new();
        let mut fixed = |tag: u8, value: i64| {
            content.push(tag);
            content.extend_from_slice(&value.to_le_bytes());
        };
        if let Some(time) = record.time_ns {
            fixed(0x09, time);
        }
        fixed(0x59, record.observed_ns);
        if record.severity > 0 {
            content.extend_from_slice(&[0x10, record.severity]);
        }
        if !record.severity_text.is_empty() {
            write_len_field(&mut content, 3, record.severity_text.as_bytes());
        }
        write_len_field(&mut content, 5, &record.body.encoded());
        content.extend_from_slice(&encode_attributes(&record.attributes, 6));
        if let Some(flags) = record.trace_flags.first() {
            content.extend_from_slice(&[0x45, *flags, 0, 0, 0]);
        }
        for (number, id) in [(9, &record.trace_id), (10, &record.span_id)] {
            if !id.is_empty() {
                write_len_field(&mut content, number, id);
            }
        }
        write_len_field(&mut self.out, 2, &content);
    }

    /// The request. Its header is written right before the records, so that none is moved.
    pub(super) fn finish(&mut self) -> Bytes {
        if let Some(operators) = &mut self.operators {
            return operators.finish();
        }
        let mut out = std::mem::take(&mut self.out);
        let room = HEADER_BYTES + self.resource.len();
        let records_len = out.len() - room;
        let mut scope_logs = vec![0x12];
        write_varint(&mut scope_logs, records_len as u64);
        let content_len = self.resource.len() + scope_logs.len() + records_len;
        let mut header = vec![0x0a];
        write_varint(&mut header, content_len as u64);
        header.extend_from_slice(&self.resource);
        header.extend_from_slice(&scope_logs);
        let start = room - header.len();
        out[start..room].copy_from_slice(&header);
        if out.capacity() > out.len() * 2 {
            out.shrink_to_fit();
        }
        Bytes::from(out).slice(start..)
    }
}

fn encode_attributes(attributes: &Attributes, number: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in attributes {
        let mut attribute = Vec::new();
        write_len_field(&mut attribute, 1, key.as_bytes());
        write_len_field(&mut attribute, 2, &value.encoded());
        write_len_field(&mut out, number, &attribute);
    }
    out
}

/// Bytes of a value as a varint.
const fn varint_len(value: usize) -> usize {
    (70 - (value as u64 | 1).leading_zeros() as usize) / 7
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use prost::Message as _;
    use sluice_config::load::read_text;
    use sluice_otlp::{Signal, scan};

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
