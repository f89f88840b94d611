//! Log records as Fluent Bit has them, for the exporters that speak with its kind: a time, and a
//! map.
//!
//! A body that is a map becomes the fields of the record, any other one the field `log`. Attributes
//! are fields of their own. Resource attributes of Kubernetes get the names and the place that
//! Fluent Bit's filter `kubernetes` gives them, the others are in `resource`.

mod json;
mod msgpack;

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use sluice_config::Fields;
use sluice_net::compress;
use sluice_otlp::wire::{FIXED64, Fields as WireFields, LEN, VARINT};
use sluice_otlp::{AnyValue, Malformed, Value};

pub(crate) use json::write_json;
pub(crate) use msgpack::write_value;

pub(crate) type Map = Vec<(String, AnyValue)>;

/// Attributes of the resource that Fluent Bit's filter has under another name.
const KUBERNETES: [(&str, &str); 8] = [
    ("k8s.pod.name", "pod_name"),
    ("k8s.namespace.name", "namespace_name"),
    ("k8s.pod.uid", "pod_id"),
    ("k8s.pod.ip", "pod_ip"),
    ("k8s.node.name", "host"),
    ("k8s.container.name", "container_name"),
    ("container.id", "docker_id"),
    ("container.image.name", "container_image"),
];
/// The beginnings of the names of labels and annotations. The Collector has used both spellings.
const LABELS: [&str; 2] = ["k8s.pod.labels.", "k8s.pod.label."];
const ANNOTATIONS: [&str; 2] = ["k8s.pod.annotations.", "k8s.pod.annotation."];

/// The switches of records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    pub dedot: bool,
    pub drop_labels: bool,
    pub keep_annotations: bool,
}

impl Layout {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Layout {
        let doc = "Replace dots in the names of labels and annotations by underscores, as \
                   Elasticsearch and OpenSearch need it.";
        let dedot = fields.boolean("dedot", false, doc);
        let doc = "Leave out `kubernetes.labels`.";
        let drop_labels = fields.boolean("drop_labels", false, doc);
        let doc = "Keep `kubernetes.annotations`.";
        let keep_annotations = fields.boolean("keep_annotations", false, doc);
        Layout { dedot, drop_labels, keep_annotations }
    }

    /// The fields of all records of a resource.
    fn resource_fields(&self, attributes: Map) -> Map {
        let (mut kubernetes, mut labels, mut annotations) = (Map::new(), Map::new(), Map::new());
        let mut other = Map::new();
        for (key, value) in attributes {
            let behind = |beginnings: [&str; 2]| {
                beginnings
                    .into_iter()
                    .find_map(|it| key.strip_prefix(it))
                    .map(|name| if self.dedot { name.replace('.', "_") } else { name.to_owned() })
            };
            if let Some(name) = behind(LABELS) {
                labels.push((name, value));
            } else if let Some(name) = behind(ANNOTATIONS) {
                annotations.push((name, value));
            } else if let Some((_, name)) = KUBERNETES.into_iter().find(|(from, _)| *from == key) {
                kubernetes.push((name.to_owned(), value));
            } else {
                other.push((key, value));
            }
        }
        let kept = [
            ("labels", labels, !self.drop_labels),
            ("annotations", annotations, self.keep_annotations),
        ];
        for (name, map, is_kept) in kept {
            if is_kept && !map.is_empty() {
                kubernetes.push((name.to_owned(), AnyValue::Map(map)));
            }
        }
        let maps = [("kubernetes", kubernetes), ("resource", other)].into_iter();
        let maps = maps.filter(|(_, map)| !map.is_empty());
        maps.map(|(name, map)| (name.to_owned(), AnyValue::Map(map))).collect()
    }
}

/// One record.
#[derive(Debug, PartialEq)]
pub(crate) struct Record {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Each key occurs once.
    pub fields: Map,
}

/// Calls `visit` with each record of a request of logs.
///
/// # Errors
/// [`Malformed`] if it is none, or the error of `visit`.
pub(crate) fn each_record<E: From<Malformed>>(
    chunks: &[Bytes],
    layout: &Layout,
    mut visit: impl FnMut(Record) -> Result<(), E>,
) -> Result<(), E> {
    let request = compress::joined(chunks);
    let mut resources = WireFields::of(&request);
    while let Some(resource) = resources.next_message(1)? {
        let resource = &request[resource.content()];
        let mut attributes = Map::new();
        let mut fields = WireFields::of(resource);
        while let Some(field) = fields.next_message(1)? {
            attributes.extend(attributes_of(&resource[field.content()], 1)?);
        }
        let common = layout.resource_fields(attributes);
        let mut scopes = WireFields::of(resource);
        while let Some(scope) = scopes.next_message(2)? {
            let scope = &resource[scope.content()];
            let mut records = WireFields::of(scope);
            while let Some(record) = records.next_message(2)? {
                visit(record_of(&scope[record.content()], &common)?)?;
            }
        }
    }
    Ok(())
}

/// The attributes that are fields with this number of a message.
fn attributes_of(message: &[u8], number: u32) -> Result<Map, Malformed> {
    let mut map = Map::new();
    let mut fields = WireFields::of(message);
    while let Some(field) = fields.next_message(number)? {
        let pair = &message[field.content()];
        let (mut key, mut value) = (String::new(), AnyValue::Empty);
        let mut parts = WireFields::of(pair);
        while let Some(part) = parts.next_field()? {
            let content = &pair[part.content()];
            match (part.number, part.wire_type) {
                (1, LEN) => key = String::from_utf8_lossy(content).into_owned(),
                (2, LEN) => value = AnyValue::decode(content)?,
                _ => {}
            }
        }
        map.push((key, value));
    }
    Ok(map)
}

fn record_of(record: &[u8], common: &Map) -> Result<Record, Malformed> {
    let (mut time_ns, mut observed_ns) = (0, 0);
    let (mut body, mut own) = (Vec::new(), Map::new());
    let mut fields = WireFields::of(record);
    while let Some(field) = fields.next_field()? {
        let content = &record[field.content()];
        let text = || Value::String(content).to_owned();
        let id = || AnyValue::String(content.iter().map(|byte| format!("{byte:02x}")).collect());
        match (field.number, field.wire_type) {
            (1, FIXED64) => time_ns = content.try_into().map_or(0, u64::from_le_bytes),
            (11, FIXED64) => observed_ns = content.try_into().map_or(0, u64::from_le_bytes),
            (2, VARINT) => {
                let number = AnyValue::Int(field.varint(record) as i64);
                own.push(("severity_number".to_owned(), number));
            }
            (3, LEN) if !content.is_empty() => own.push(("severity_text".to_owned(), text())),
            (9, LEN) if !content.is_empty() => own.push(("trace_id".to_owned(), id())),
            (10, LEN) if !content.is_empty() => own.push(("span_id".to_owned(), id())),
            (5, LEN) => body.extend_from_slice(content),
            (12, LEN) if !content.is_empty() => own.push(("event_name".to_owned(), text())),
            _ => {}
        }
    }
    let mut fields = match AnyValue::decode(&body)? {
        AnyValue::Map(map) => map,
        AnyValue::Empty => Map::new(),
        body => vec![("log".to_owned(), body)],
    };
    fields.extend(attributes_of(record, 6)?);
    fields.extend(own);
    fields.extend(common.iter().cloned());
    let now = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
    };
    let time_ns = [time_ns, observed_ns].into_iter().find(|time| *time > 0).unwrap_or_else(now);
    Ok(Record { time_ns, fields: unique(fields) })
}

/// The last value of each key, at the place of the first.
fn unique(fields: Map) -> Map {
    let mut places = std::collections::HashMap::with_capacity(fields.len());
    let mut kept = Map::with_capacity(fields.len());
    for (key, value) in fields {
        match places.get(&key) {
            Some(place) => {
                let (_, kept): &mut (String, AnyValue) = &mut kept[*place];
                *kept = value;
            }
            None => {
                places.insert(key.clone(), kept.len());
                kept.push((key, value));
            }
        }
    }
    kept
}

#[cfg(test)]
pub(crate) mod tests;
