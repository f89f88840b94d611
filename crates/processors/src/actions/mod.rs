//! Actions on attributes, for `resource` and `attributes`, as in the Collector 0.160.

mod config;
mod convert;
mod source;

use sha2::{Digest, Sha256};
use sluice_config::Pattern;
use sluice_flow::Metadata;
use sluice_otlp::{AnyValue, Attributes, NewValue, Value};

pub(crate) use config::read;

use crate::fingerprint::Fingerprint;
use convert::ConvertedType;
use source::{ContextKey, Source};

/// Actions in the order in which they are carried out; each sees the result of the one before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Actions(pub Vec<Action>);

#[derive(Clone, Debug)]
pub(crate) struct Action {
    /// As configurations name it.
    name: &'static str,
    key: String,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// Sets the attribute, depending on whether it is there.
    Put(Put, Source),
    /// Removes the first attribute named `key`, then all whose key matches.
    Delete(Option<Pattern>),
    /// Replaces the values of the attributes that `Delete` would remove by their SHA-256.
    Hash(Option<Pattern>),
    /// Sets one attribute for each named group of the pattern, if the string in `key` matches.
    Extract(Pattern),
    /// Changes the type of the value, where that can be done.
    Convert(ConvertedType),
}

/// When an attribute is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    Insert,
    Update,
    Upsert,
}

impl Actions {
    /// Sets attributes to fixed values.
    pub(crate) fn of_values(on: Put, values: impl Iterator<Item = (String, AnyValue)>) -> Actions {
        let action = |(key, value): (String, AnyValue)| {
            let source = Source { value: Some(value.encoded()), ..Source::default() };
            Action { name: on.name(), key, what: What::Put(on, source) }
        };
        Actions(values.map(action).collect())
    }

    /// Carries out the actions for one request. Values from its sender are encoded once.
    pub(crate) fn prepare(&self, metadata: &Metadata) -> impl Fn(&mut Attributes<'_>) {
        let from_context = |action: &Action| {
            let text = action.context_key()?.find(metadata)?;
            Some(AnyValue::String(text).encoded())
        };
        let prepared: Vec<_> = self.0.iter().map(|action| (action, from_context(action))).collect();
        move |attributes: &mut Attributes<'_>| {
            for (action, from_context) in &prepared {
                action.apply(from_context.as_deref(), attributes);
            }
        }
    }

    /// Names of the request metadata that actions read.
    pub(crate) fn metadata_keys(&self) -> Vec<String> {
        let keys = self.0.iter().filter_map(|action| action.context_key()?.metadata_key());
        keys.map(str::to_owned).collect()
    }

    pub(crate) fn reads_address(&self) -> bool {
        self.0.iter().any(|action| action.context_key() == Some(&ContextKey::ClientAddress))
    }

    pub(crate) fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.list(&self.0, |fingerprint, action| action.fingerprint(fingerprint));
    }
}

impl Put {
    /// As configurations name it.
    fn name(self) -> &'static str {
        match self {
            Put::Insert => "insert",
            Put::Update => "update",
            Put::Upsert => "upsert",
        }
    }
}

impl Action {
    /// The fact about the request's sender that it reads.
    fn context_key(&self) -> Option<&ContextKey> {
        match &self.what {
            What::Put(_, source) => source.from_context.as_ref(),
            _ => None,
        }
    }

    fn apply(&self, from_context: Option<&[u8]>, attributes: &mut Attributes<'_>) {
        let key = self.key.as_bytes();
        match &self.what {
            What::Put(on, source) => {
                if let Some(value) = source.find(from_context, attributes) {
                    put(key, *on, value, attributes);
                }
            }
            What::Delete(pattern) => targets(key, pattern.as_ref(), attributes)
                .into_iter()
                .for_each(|index| attributes.remove(index)),
            What::Hash(pattern) => hash(key, pattern.as_ref(), attributes),
            What::Extract(pattern) => extract(key, pattern, attributes),
            What::Convert(to) => {
                if let Some(index) = attributes.find(key)
                    && let Some(converted) = to.convert(attributes.value(index))
                {
                    attributes.set(index, NewValue::Encoded(&converted.encoded()));
                }
            }
        }
    }

    fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.add(self.name);
        fingerprint.add(&self.key);
        match &self.what {
            What::Put(_, source) => source.fingerprint(fingerprint),
            What::Delete(pattern) | What::Hash(pattern) => {
                fingerprint.optional(pattern.as_ref().map(Pattern::text));
            }
            What::Extract(pattern) => fingerprint.add(pattern.text()),
            What::Convert(to) => fingerprint.add(to.name()),
        }
    }
}

fn put(key: &[u8], on: Put, value: NewValue<'_>, attributes: &mut Attributes<'_>) {
    match attributes.find(key) {
        Some(index) if on != Put::Insert => attributes.set(index, value),
        None if on != Put::Update => attributes.add(key, value),
        _ => {}
    }
}

/// The first attribute named `key`, and all whose key matches. An empty key stands for none.
fn targets(key: &[u8], pattern: Option<&Pattern>, attributes: &Attributes<'_>) -> Vec<usize> {
    let named = if key.is_empty() { None } else { attributes.find(key) };
    let mut targets: Vec<usize> = named.into_iter().collect();
    if let Some(pattern) = pattern {
        let matching = attributes.keys().filter(|(_, key)| pattern.matches(key));
        targets.extend(matching.map(|(index, _)| index).filter(|index| Some(*index) != named));
    }
    targets
}

/// An attribute that is both named and matched is hashed twice, as in the Collector.
fn hash(key: &[u8], pattern: Option<&Pattern>, attributes: &mut Attributes<'_>) {
    let named = targets(key, None, attributes);
    let matching = targets(b"", pattern, attributes);
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
        put(name.as_bytes(), Put::Upsert, NewValue::Encoded(&value), attributes);
    }
}

#[cfg(test)]
mod tests;
