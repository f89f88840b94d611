//! Help for tests: records, and chains from texts.

use std::time::Duration;

use serde_json::Value as Json;
use sluice_config::read_text;
use sluice_otlp::AnyValue;

use crate::chain::{Chain, ChainConfig};
use crate::record::{Origin, Record};

pub(crate) fn value(json: &Json) -> AnyValue {
    match json {
        Json::Null => AnyValue::Empty,
        Json::Bool(value) => AnyValue::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(value) => AnyValue::Int(value),
            None => AnyValue::Double(number.as_f64().unwrap()),
        },
        Json::String(text) => AnyValue::String(text.clone()),
        Json::Array(items) => AnyValue::Array(items.iter().map(value).collect()),
        Json::Object(map) => {
            AnyValue::Map(map.iter().map(|(key, it)| (key.clone(), value(it))).collect())
        }
    }
}

pub(crate) fn map(json: &Json) -> Vec<(String, AnyValue)> {
    match value(json) {
        AnyValue::Map(map) => map,
        _ => Vec::new(),
    }
}

pub(crate) fn json(value: &AnyValue) -> Json {
    match value {
        AnyValue::Empty => Json::Null,
        AnyValue::Bool(value) => (*value).into(),
        AnyValue::Int(value) => (*value).into(),
        AnyValue::Double(value) => (*value).into(),
        AnyValue::String(text) => text.clone().into(),
        AnyValue::Bytes(bytes) => bytes.clone().into(),
        AnyValue::Array(items) => items.iter().map(json).collect(),
        AnyValue::Map(map) => map.iter().map(|(key, value)| (key.clone(), json(value))).collect(),
    }
}

/// A record of `{"body": …, "attributes": …, "resource": …}`, each of which may be missing.
pub(crate) fn record(parts: Json) -> Record {
    let mut record = Record::new(value(&parts["body"]), 1, Origin { stream: 0, range: 0..1 });
    record.attributes = map(&parts["attributes"]);
    record.resource = map(&parts["resource"]);
    record
}

/// The parts of a record that are not empty, as [`record`] takes them.
pub(crate) fn parts(record: &Record) -> Json {
    let mut parts = serde_json::Map::new();
    if record.body != AnyValue::Empty {
        parts.insert("body".into(), json(&record.body));
    }
    for (name, map) in [("attributes", &record.attributes), ("resource", &record.resource)] {
        if !map.is_empty() {
            parts.insert(name.into(), json(&AnyValue::Map(map.clone())));
        }
    }
    parts.into()
}

/// The chain of a list in YAML, and what was found about it, a finding per line.
pub(crate) fn read(operators: &str) -> (ChainConfig, String) {
    let text = format!("operators:\n{operators}");
    let (chain, diagnostics) = read_text("r", &text, |fields| Chain::read(fields, "operators", ""));
    let lines: Vec<_> = diagnostics.items().iter().map(|item| diagnostics.line(item)).collect();
    (chain, lines.join("\n"))
}

pub(crate) fn chain(operators: &str) -> Chain {
    let (chain, findings) = read(operators);
    assert_eq!(findings, "", "{operators}");
    chain.build()
}

/// All records that come out of a chain, also those that it holds until the end.
pub(crate) fn run(operators: &str, records: impl IntoIterator<Item = Record>) -> Vec<Record> {
    let (mut chain, mut out) = (chain(operators), Vec::new());
    records.into_iter().for_each(|record| chain.process(record, &mut out));
    chain.flush(Duration::MAX, &mut out);
    out
}
