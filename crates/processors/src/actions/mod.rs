//! Actions on attributes: what `resource` and `attributes` have in common. They mean what they mean
//! in the Collector 0.160.

mod config;
mod convert;
mod source;

use sha2::{Digest, Sha256};
use sluice_flow::Metadata;
use sluice_otlp::{AnyValue, Attributes, NewValue, Value};

pub(crate) use config::{read, value_of};

use crate::fingerprint::Fingerprint;
use crate::go_regexp::Pattern;
use convert::ConvertedType;
use source::{ContextKey, Found, Source};

/// Actions in the order in which they are carried out; each sees what the one before has done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Actions(pub Vec<Action>);

#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Sets an attribute, depending on whether it is there.
    Put { key: String, on: Put, source: Source },
    /// Removes the first attribute named `key`, then all whose key matches.
    Delete { key: String, pattern: Option<Pattern> },
    /// Replaces the value of the first attribute named `key`, then of all whose key matches, by its
    /// SHA-256.
    Hash { key: String, pattern: Option<Pattern> },
    /// Sets one attribute for each named group of `pattern`, if the string in `key` matches.
    Extract { key: String, pattern: Pattern },
    /// Changes the type of a value, where that can be done.
    Convert { key: String, to: ConvertedType },
}

/// When an attribute is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// Only if it is not there.
    Insert,
    /// Only if it is there.
    Update,
    Upsert,
}

/// The actions for one request: what they take from its sender is looked up once.
pub(crate) struct Prepared<'c> {
    actions: &'c Actions,
    /// For each action the encoded value that `from_context` stands for.
    from_context: Vec<Option<Vec<u8>>>,
}

impl Actions {
    pub(crate) fn prepare(&self, metadata: &Metadata) -> Prepared<'_> {
        let from_context = self.0.iter().map(|action| {
            let text = action.context_key()?.find(metadata)?;
            Some(AnyValue::String(text).encoded())
        });
        Prepared { actions: self, from_context: from_context.collect() }
    }

    /// Names of the request metadata that actions read.
    pub(crate) fn metadata_keys(&self) -> Vec<String> {
        let keys = self.0.iter().filter_map(|action| action.context_key()?.metadata_key());
        keys.map(str::to_owned).collect()
    }

    pub(crate) fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.list(&self.0, |fingerprint, action| action.fingerprint(fingerprint));
    }
}

impl Prepared<'_> {
    pub(crate) fn apply(&self, attributes: &mut Attributes<'_>) {
        for (action, from_context) in self.actions.0.iter().zip(&self.from_context) {
            action.apply(from_context.as_deref(), attributes);
        }
    }
}

impl Action {
    /// What it takes from the request's sender.
    fn context_key(&self) -> Option<&ContextKey> {
        match self {
            Action::Put { source, .. } => source.from_context.as_ref(),
            _ => None,
        }
    }

    fn apply(&self, from_context: Option<&[u8]>, attributes: &mut Attributes<'_>) {
        match self {
            Action::Put { key, on, source } => {
                put(key.as_bytes(), *on, source.find(from_context, attributes), attributes)
            }
            Action::Delete { key, pattern } => targets(key, pattern.as_ref(), attributes)
                .into_iter()
                .for_each(|index| attributes.remove(index)),
            Action::Hash { key, pattern } => hash(key, pattern.as_ref(), attributes),
            Action::Extract { key, pattern } => extract(key.as_bytes(), pattern, attributes),
            Action::Convert { key, to } => {
                if let Some(index) = attributes.find(key.as_bytes())
                    && let Some(converted) = to.convert(attributes.value(index))
                {
                    attributes.set(index, NewValue::Encoded(&converted.encoded()));
                }
            }
        }
    }

    fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        let (name, key) = match self {
            Action::Put { key, on: Put::Insert, .. } => ("insert", key),
            Action::Put { key, on: Put::Update, .. } => ("update", key),
            Action::Put { key, on: Put::Upsert, .. } => ("upsert", key),
            Action::Delete { key, .. } => ("delete", key),
            Action::Hash { key, .. } => ("hash", key),
            Action::Extract { key, .. } => ("extract", key),
            Action::Convert { key, .. } => ("convert", key),
        };
        fingerprint.text(name);
        fingerprint.text(key);
        match self {
            Action::Put { source, .. } => source.fingerprint(fingerprint),
            Action::Delete { pattern, .. } | Action::Hash { pattern, .. } => {
                fingerprint.optional(pattern.as_ref().map(|pattern| pattern.text().as_bytes()));
            }
            Action::Extract { pattern, .. } => fingerprint.text(pattern.text()),
            Action::Convert { to, .. } => fingerprint.text(to.name()),
        }
    }
}

fn put(key: &[u8], on: Put, value: Found<'_>, attributes: &mut Attributes<'_>) {
    let value = match value {
        Found::Nothing => return,
        Found::Encoded(bytes) => NewValue::Encoded(bytes),
        Found::Attribute(index) => NewValue::CopyOf(index),
    };
    match attributes.find(key) {
        Some(index) if on != Put::Insert => attributes.set(index, value),
        None if on != Put::Update => attributes.add(key, value),
        _ => {}
    }
}

/// The first attribute named `key`, and all whose key matches. An empty key stands for none.
fn targets(key: &str, pattern: Option<&Pattern>, attributes: &Attributes<'_>) -> Vec<usize> {
    let named = if key.is_empty() { None } else { attributes.find(key.as_bytes()) };
    let mut targets: Vec<usize> = named.into_iter().collect();
    if let Some(pattern) = pattern {
        let matching = attributes.keys().filter(|(_, key)| pattern.matches(key));
        targets.extend(matching.map(|(index, _)| index).filter(|index| Some(*index) != named));
    }
    targets
}

/// An attribute that is both named and matched is hashed twice, as in the Collector.
fn hash(key: &str, pattern: Option<&Pattern>, attributes: &mut Attributes<'_>) {
    let named = targets(key, None, attributes);
    let matching = targets("", pattern, attributes);
    for index in named.into_iter().chain(matching) {
        let hashed = AnyValue::String(hash_of(attributes.value(index)));
        attributes.set(index, NewValue::Encoded(&hashed.encoded()));
    }
}

/// SHA-256 in hexadecimal of a string's bytes, of the little-endian bytes of a number, of 1 or 0
/// for a boolean. Anything else has the empty string for a hash.
fn hash_of(value: Value<'_>) -> String {
    let digest = match value {
        Value::String(text) => Sha256::digest(text),
        Value::Bool(value) => Sha256::digest([u8::from(value)]),
        Value::Int(value) => Sha256::digest(value.to_le_bytes()),
        Value::Double(value) => Sha256::digest(value.to_bits().to_le_bytes()),
        Value::Empty | Value::Bytes(_) | Value::Nested(_) => return String::new(),
    };
    format!("{digest:x}")
}

fn extract(key: &[u8], pattern: &Pattern, attributes: &mut Attributes<'_>) {
    let Some(Value::String(text)) = attributes.get(key) else { return };
    let Some(groups) = pattern.named_groups(text) else { return };
    for (name, text) in groups {
        let value = AnyValue::String(text).encoded();
        put(name.as_bytes(), Put::Upsert, Found::Encoded(&value), attributes);
    }
}

#[cfg(test)]
mod tests;
