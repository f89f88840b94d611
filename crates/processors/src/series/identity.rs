//! The series that a point belongs to: a digest over the bytes of resource, scope, metric and
//! attributes.

use std::hash::{BuildHasher, Hasher, RandomState};

use sluice_otlp::{AnyValue, Attributes, Value};

/// Digests of what contains the point at hand. Their keys are random: no sender can choose
/// identities that collide.
pub(crate) struct Identity {
    keys: [RandomState; 2],
    bytes: Vec<u8>,
    resource: u128,
    scope: u128,
    metric: u128,
}

/// The keys of digests, the same for the life of a memory.
#[derive(Clone)]
pub(crate) struct Keys([RandomState; 2]);

impl Keys {
    pub(crate) fn new() -> Self {
        Keys([RandomState::new(), RandomState::new()])
    }
}

impl Identity {
    pub(crate) fn new(keys: &Keys) -> Self {
        let (bytes, resource, scope, metric) = Default::default();
        Identity { keys: keys.0.clone(), bytes, resource, scope, metric }
    }

    pub(crate) fn resource(&mut self, attributes: &Attributes<'_>) {
        self.bytes.clear();
        write_attributes(attributes, &mut self.bytes);
        self.resource = self.digest();
    }

    pub(crate) fn scope(
        &mut self,
        name: &[u8],
        version: &[u8],
        attributes: Option<&Attributes<'_>>,
    ) {
        self.start(self.resource);
        write_text(name, &mut self.bytes);
        write_text(version, &mut self.bytes);
        if let Some(attributes) = attributes {
            write_attributes(attributes, &mut self.bytes);
        }
        self.scope = self.digest();
    }

    pub(crate) fn metric(&mut self, name: &[u8], unit: &[u8], kind: [u8; 2]) {
        self.start(self.scope);
        write_text(name, &mut self.bytes);
        write_text(unit, &mut self.bytes);
        self.bytes.extend_from_slice(&kind);
        self.metric = self.digest();
    }

    /// The series of a point. `own` is what else tells points apart.
    pub(crate) fn point(&mut self, own: &[u8], attributes: &Attributes<'_>) -> u128 {
        self.start(self.metric);
        write_text(own, &mut self.bytes);
        write_attributes(attributes, &mut self.bytes);
        self.digest()
    }

    fn start(&mut self, outer: u128) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&outer.to_le_bytes());
    }

    fn digest(&self) -> u128 {
        let [high, low] = [0, 1].map(|index: usize| {
            let mut hasher = self.keys[index].build_hasher();
            hasher.write(&self.bytes);
            u128::from(hasher.finish())
        });
        high << 64 | low
    }
}

fn write_text(text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text);
}

/// Sorted by key. Of attributes with the same key the first counts, as in the Collector.
fn write_attributes(attributes: &Attributes<'_>, out: &mut Vec<u8>) {
    let mut sorted: Vec<(&[u8], usize)> =
        attributes.keys().map(|(index, key)| (key, index)).collect();
    sorted.sort_unstable();
    sorted.dedup_by(|later, first| later.0 == first.0);
    out.extend_from_slice(&(sorted.len() as u64).to_le_bytes());
    for (key, index) in sorted {
        write_text(key, out);
        write_value(attributes.value(index), out);
    }
}

fn write_value(value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Empty => out.push(0),
        Value::String(text) => {
            out.push(1);
            write_text(text, out);
        }
        Value::Bool(value) => out.extend_from_slice(&[2, u8::from(value)]),
        Value::Int(value) => {
            out.push(3);
            out.extend_from_slice(&value.to_le_bytes());
        }
        Value::Double(value) => {
            out.push(4);
            out.extend_from_slice(&value.to_bits().to_le_bytes());
        }
        Value::Bytes(bytes) => {
            out.push(5);
            write_text(bytes, out);
        }
        Value::Nested(_) => write_nested(&value.to_owned(), out),
    }
}

/// Depth is bounded, as [`AnyValue::decode`] refuses deeper values.
fn write_nested(value: &AnyValue, out: &mut Vec<u8>) {
    match value {
        AnyValue::Array(values) => {
            out.push(6);
            out.extend_from_slice(&(values.len() as u64).to_le_bytes());
            values.iter().for_each(|value| write_nested(value, out));
        }
        AnyValue::Map(entries) => {
            let mut sorted: Vec<_> = entries.iter().collect();
            sorted.sort_by(|one, other| one.0.cmp(&other.0));
            sorted.dedup_by(|later, first| later.0 == first.0);
            out.push(7);
            out.extend_from_slice(&(sorted.len() as u64).to_le_bytes());
            for (key, value) in sorted {
                write_text(key.as_bytes(), out);
                write_nested(value, out);
            }
        }
        scalar => write_value(Value::read(&scalar.encoded()), out),
    }
}
