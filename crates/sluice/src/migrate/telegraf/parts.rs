//! The parts of Telegraf's configuration as the parts of Sluice's that they become.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::shape::Shape;

/// The names of components, each given once.
#[derive(Default)]
pub(super) struct Ids(BTreeMap<String, usize>);

impl Ids {
    /// `influxdb`, then `influxdb/2`.
    pub(super) fn next(&mut self, kind: &str) -> String {
        let number = self.0.entry(kind.to_owned()).or_default();
        *number += 1;
        if *number == 1 { kind.to_owned() } else { format!("{kind}/{number}") }
    }
}

/// `[agent]` and `[global_tags]`.
#[derive(Debug, Default)]
pub(super) struct Agent {
    /// Of scrapes, as it stands in its line.
    pub interval: Option<(usize, String)>,
    /// The most metrics of a request.
    pub batch_size: Option<Value>,
    pub host: Host,
    pub tags: Vec<(String, String)>,
    pub log_level: Option<&'static str>,
}

/// The tag `host`.
#[derive(Debug, Default, PartialEq)]
pub(super) enum Host {
    #[default]
    Detected,
    Named(String),
    Omitted,
}

pub(super) struct Input {
    pub line: usize,
    /// As `inputs.tail`.
    pub name: String,
    pub kind: InputKind,
    /// Tags that the plugin adds to each metric.
    pub tags: Vec<(String, String)>,
    pub extensions: Vec<(String, Value)>,
}

pub(super) enum InputKind {
    K6 {
        /// All options but those that the shape decides.
        config: Value,
        shape: Shape,
    },
    /// Lines of InfluxDB's protocol, by an id.
    Lines(String, Value),
    /// Metrics that Telegraf makes of OTLP or of Prometheus' pages.
    Others(String, Value),
}

pub(super) struct Output {
    pub id: String,
    pub config: Value,
    /// Tags that it does not get.
    pub excluded: Vec<String>,
    pub extensions: Vec<(String, Value)>,
}

/// An action of the processors `attributes` and `resource` that sets an attribute unless it is
/// there.
pub(super) fn insert(key: &str, value: &str) -> Value {
    json!({"key": key, "value": value, "action": "insert"})
}

pub(super) fn delete(key: &str) -> Value {
    json!({"key": key, "action": "delete"})
}

/// The actions that rename an attribute.
pub(super) fn rename(from: &str, to: &str) -> [Value; 2] {
    [json!({"key": to, "from_attribute": from, "action": "upsert"}), delete(from)]
}
