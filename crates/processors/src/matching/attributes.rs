//! Matching attributes by key and value.

use std::borrow::Cow;

use sluice_otlp::text::plain_double_text;
use sluice_otlp::{AnyValue, Attributes, Value};

use super::Strings;
use crate::fingerprint::Fingerprint;

/// An attribute that has to be there.
#[derive(Clone, Debug)]
pub(crate) struct AttributeMatcher {
    pub key: String,
    pub value: ValueMatcher,
}

#[derive(Clone, Debug)]
pub(crate) enum ValueMatcher {
    /// The key is enough.
    Any,
    /// Equal in type and value.
    Equal(AnyValue),
    /// Strings, numbers and booleans, as text.
    Matches(Strings),
}

/// Whether all matchers find their attribute. Of several with the same key the first one is meant.
pub(super) fn all_match(matchers: &[AttributeMatcher], attributes: &Attributes<'_>) -> bool {
    let matches = |AttributeMatcher { key, value }: &AttributeMatcher| {
        attributes.get(key.as_bytes()).is_some_and(|found| value.matches(found))
    };
    matchers.iter().all(matches)
}

impl ValueMatcher {
    fn matches(&self, value: Value<'_>) -> bool {
        match self {
            ValueMatcher::Any => true,
            ValueMatcher::Equal(expected) => is_equal(expected, value),
            ValueMatcher::Matches(strings) => {
                scalar_text(value).is_some_and(|text| strings.match_text(&text))
            }
        }
    }
}

fn is_equal(expected: &AnyValue, value: Value<'_>) -> bool {
    match (expected, value) {
        (AnyValue::String(expected), Value::String(value)) => expected.as_bytes() == value,
        (AnyValue::Bool(expected), Value::Bool(value)) => *expected == value,
        (AnyValue::Int(expected), Value::Int(value)) => *expected == value,
        (AnyValue::Double(expected), Value::Double(value)) => *expected == value,
        (AnyValue::Array(_) | AnyValue::Map(_), Value::Nested(_)) => {
            normalised(expected) == normalised(&value.to_owned())
        }
        _ => false,
    }
}

/// Maps are equal whatever the order of their entries.
fn normalised(value: &AnyValue) -> AnyValue {
    match value {
        AnyValue::Array(values) => AnyValue::Array(values.iter().map(normalised).collect()),
        AnyValue::Map(entries) => {
            let mut entries: Vec<_> =
                entries.iter().map(|(key, value)| (key.clone(), normalised(value))).collect();
            entries.sort_by(|(first, _), (second, _)| first.cmp(second));
            AnyValue::Map(entries)
        }
        scalar => scalar.clone(),
    }
}

fn scalar_text(value: Value<'_>) -> Option<Cow<'_, [u8]>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Bool(value) => Some(Cow::Borrowed(if value { b"true" } else { b"false" })),
        Value::Int(value) => Some(Cow::Owned(value.to_string().into_bytes())),
        Value::Double(value) => Some(Cow::Owned(plain_double_text(value).into_bytes())),
        Value::Empty | Value::Bytes(_) | Value::Nested(_) => None,
    }
}

impl AttributeMatcher {
    pub(super) fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.add(&self.key);
        match &self.value {
            ValueMatcher::Any => fingerprint.add("any"),
            ValueMatcher::Equal(value) => {
                fingerprint.add("equal");
                fingerprint.add(value.encoded());
            }
            ValueMatcher::Matches(strings) => Strings::fingerprint(Some(strings), fingerprint),
        }
    }
}
