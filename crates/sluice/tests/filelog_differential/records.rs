//! Log records as texts that can be compared and read.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use prost::Message;
use sluice_load_test::backend::Received;

/// The records of each file of a case, in the order of their arrival. Records that do not say their
/// file are those of the file "".
pub(crate) type Files = BTreeMap<String, Vec<String>>;

/// The records of each case.
pub(crate) struct Logs(BTreeMap<String, Files>);

static NONE: Files = Files::new();

impl Logs {
    pub(crate) fn of_all(requests: &[Received]) -> Logs {
        let mut logs = BTreeMap::<String, Files>::new();
        for request in requests {
            let request = ExportLogsServiceRequest::decode(request.body.clone()).expect("logs");
            for group in &request.resource_logs {
                let resource = group.resource.clone().unwrap_or_default().attributes;
                let case = text_of(&resource, "case").expect("every record has its case");
                let files = logs.entry(case).or_default();
                for scope in &group.scope_logs {
                    let name = scope.scope.as_ref().map_or("", |scope| &scope.name);
                    for record in &scope.log_records {
                        let file = text_of(&record.attributes, "log.file.name");
                        let records = files.entry(file.unwrap_or_default()).or_default();
                        records.push(record_text(&resource, name, record));
                    }
                }
            }
        }
        Logs(logs)
    }

    pub(crate) fn of(&self, case: &str) -> &Files {
        self.0.get(case).unwrap_or(&NONE)
    }
}

fn text_of(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        _ => None,
    }
}

/// All that a record has but its time of observation.
fn record_text(resource: &[KeyValue], scope: &str, record: &LogRecord) -> String {
    let mut out = value_text(record.body.as_ref());
    let _ = write!(out, " attributes {}", map_text(&record.attributes));
    let _ = write!(out, " resource {}", map_text(resource));
    for (name, number) in [
        ("time", record.time_unix_nano),
        ("severity", record.severity_number as u64),
        ("flags", record.flags.into()),
        ("dropped", record.dropped_attributes_count.into()),
    ] {
        if number != 0 {
            let _ = write!(out, " {name} {number}");
        }
    }
    for (name, text) in
        [("severity", &*record.severity_text), ("scope", scope), ("event", &record.event_name)]
    {
        if !text.is_empty() {
            let _ = write!(out, " {name} {text:?}");
        }
    }
    for (name, id) in [("trace", &record.trace_id), ("span", &record.span_id)] {
        if !id.is_empty() {
            let _ = write!(out, " {name} {id:02x?}");
        }
    }
    out
}

/// A value with its type. Maps have no order.
fn value_text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        None => "nil".to_owned(),
        Some(Value::StringValue(text)) => format!("{text:?}"),
        Some(Value::BoolValue(value)) => value.to_string(),
        Some(Value::IntValue(value)) => value.to_string(),
        Some(Value::DoubleValue(value)) => format!("{value:?}"),
        Some(Value::BytesValue(bytes)) => format!("b\"{}\"", bytes.escape_ascii()),
        Some(Value::ArrayValue(list)) => {
            let items: Vec<_> = list.values.iter().map(|item| value_text(Some(item))).collect();
            format!("[{}]", items.join(", "))
        }
        Some(Value::KvlistValue(map)) => map_text(&map.values),
        Some(other) => format!("{other:?}"),
    }
}

fn map_text(entries: &[KeyValue]) -> String {
    let entry = |entry: &KeyValue| format!("{:?}: {}", entry.key, value_text(entry.value.as_ref()));
    let mut entries: Vec<String> = entries.iter().map(entry).collect();
    entries.sort();
    format!("{{{}}}", entries.join(", "))
}

/// The first difference between the records of a case.
pub(crate) fn difference(expected: &Files, actual: &Files, is_ordered: bool) -> Option<String> {
    let nothing = Vec::new();
    let sorted = |records: &Vec<String>| {
        let mut records = records.clone();
        if !is_ordered {
            records.sort();
        }
        records
    };
    let names = expected.keys().chain(actual.keys());
    for name in names {
        let expected = sorted(expected.get(name).unwrap_or(&nothing));
        let actual = sorted(actual.get(name).unwrap_or(&nothing));
        let both = expected.iter().zip(&actual);
        let same = both.take_while(|(expected, actual)| expected == actual).count();
        let shown = |records: &[String]| match records.get(same) {
            Some(record) => record.chars().take(700).collect(),
            None => "nothing".to_owned(),
        };
        if expected.len() != same || actual.len() != same {
            return Some(format!(
                "record {} of {}, file `{name}`\n  Collector: {}\n  Sluice {}: {}",
                same + 1,
                expected.len(),
                shown(&expected),
                actual.len(),
                shown(&actual)
            ));
        }
    }
    None
}
