//! Attributes of resources, scopes and points as labels.

use std::borrow::Cow;

use sluice_otlp::Value;
use sluice_otlp::text::text_of;
use sluice_otlp::wire::{Fields, LEN, Malformed, varint_len, write_len_field, write_varint};

use crate::layout::{Entry, Extra, Layouts, Source};
use crate::names::label_name;
use crate::settings::{SERVICE_INSTANCE, SERVICE_NAME, SERVICE_NAMESPACE, Settings, Version};
use crate::symbols::Symbols;

/// Attributes of a point, or of a resource and a scope, that become labels.
pub(crate) const ATTRIBUTES_LIMIT: usize = 2048;

/// An attribute, with its value as text.
pub(crate) struct Attribute<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: Cow<'a, [u8]>,
}

impl<'a> Attribute<'a> {
    /// Reads a `KeyValue`.
    pub(crate) fn read(encoded: &'a [u8]) -> Result<Attribute<'a>, Malformed> {
        if let Some(attribute) = Attribute::short(encoded) {
            return Ok(attribute);
        }
        let (mut key, mut value) = (&[][..], Value::Empty);
        let mut fields = Fields::of(encoded);
        while let Some(field) = fields.next_field()? {
            match (field.number, field.wire_type) {
                (1, LEN) => key = &encoded[field.content()],
                (2, LEN) => value = Value::read(&encoded[field.content()]),
                _ => {}
            }
        }
        let value = match value {
            Value::String(text) => Cow::Borrowed(text),
            other => match text_of(other) {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            },
        };
        Ok(Attribute { key, value })
    }

    /// The usual form: a key and a text of less than 128 bytes each, and nothing else.
    #[inline(always)]
    fn short(encoded: &'a [u8]) -> Option<Attribute<'a>> {
        let [0x0a, key_len @ ..=0x7f, rest @ ..] = encoded else { return None };
        let (key, rest) = rest.split_at_checked(usize::from(*key_len))?;
        let [0x12, value_len, 0x0a, text_len @ ..=0x7f, text @ ..] = rest else { return None };
        let fits =
            usize::from(*text_len) == text.len() && usize::from(*value_len) == text.len() + 2;
        fits.then_some(Attribute { key, value: Cow::Borrowed(text) })
    }
}

/// Of several labels of the same name, the one of the highest rank stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    External,
    /// Of the point or, if the settings say so, of its resource.
    Attribute,
    /// `job` and `instance`.
    Service,
    Scope,
}

/// A label of all points of a scope.
pub(crate) struct Fixed {
    pub(crate) name: String,
    pub(crate) rank: Rank,
    /// Of an attribute.
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

impl Fixed {
    pub(crate) fn copy(&self) -> Fixed {
        let (name, key, value) = (self.name.clone(), self.key.clone(), self.value.clone());
        Fixed { name, rank: self.rank, key, value }
    }
}

/// `job` and `instance` of a resource.
pub(crate) fn service_labels(resource: &[Attribute<'_>]) -> Vec<Fixed> {
    let find = |key: &[u8]| {
        let found = resource.iter().find(|attribute| attribute.key == key);
        found.map(|attribute| &*attribute.value)
    };
    let label = |name: &str, value: Vec<u8>| Fixed {
        name: name.to_owned(),
        rank: Rank::Service,
        key: Vec::new(),
        value,
    };
    let mut labels = Vec::new();
    if let Some(name) = find(SERVICE_NAME).filter(|name| !name.is_empty()) {
        let job = match find(SERVICE_NAMESPACE) {
            Some(namespace) => [namespace, b"/", name].concat(),
            None => name.to_vec(),
        };
        labels.push(label("job", job));
    }
    if let Some(instance) = find(SERVICE_INSTANCE).filter(|instance| !instance.is_empty()) {
        labels.push(label("instance", instance.to_vec()));
    }
    labels
}

/// The labels that the settings add to each series.
pub(crate) fn external_labels(settings: &Settings) -> impl Iterator<Item = Fixed> {
    settings.external_labels.iter().map(|(name, value)| Fixed {
        name: name.clone(),
        rank: Rank::External,
        key: Vec::new(),
        value: value.clone().into_bytes(),
    })
}

/// Attributes of a resource as labels of each of its series.
pub(crate) fn resource_labels(
    settings: &Settings,
    resource: &[Attribute<'_>],
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Vec<Fixed> {
    let wanted = resource.iter().filter(|it| is_wanted(it.key) && !it.value.is_empty());
    let label = |attribute: &Attribute<'_>| {
        Some(Fixed {
            name: label_name(settings.strategy, &String::from_utf8_lossy(attribute.key))?,
            rank: Rank::Attribute,
            key: attribute.key.to_vec(),
            value: attribute.value.to_vec(),
        })
    };
    wanted.filter_map(label).collect()
}

/// Name, version and attributes of a scope.
pub(crate) fn scope_labels(
    settings: &Settings,
    name: &[u8],
    version: &[u8],
    attributes: &[Attribute<'_>],
) -> Vec<Fixed> {
    let mut labels = Vec::new();
    let mut add = |key: &str, value: &[u8]| labels.extend(scope_label(settings, key, value));
    add("name", name);
    add("version", version);
    for attribute in attributes {
        if !matches!(attribute.key, b"name" | b"version" | b"schema_url") {
            add(&String::from_utf8_lossy(attribute.key), &attribute.value);
        }
    }
    labels
}

/// The schema of a scope.
pub(crate) fn schema_label(settings: &Settings, url: &[u8]) -> Option<Fixed> {
    scope_label(settings, "schema_url", url)
}

fn scope_label(settings: &Settings, key: &str, value: &[u8]) -> Option<Fixed> {
    let name = label_name(settings.strategy, &format!("otel_scope_{key}"));
    let name = name.filter(|_| !value.is_empty())?;
    Some(Fixed { name, rank: Rank::Scope, key: Vec::new(), value: value.to_vec() })
}

/// The encoded labels of a point, without the metric's name and without the extra label.
#[derive(Default)]
pub(crate) struct Encoded {
    pub(crate) bytes: Vec<u8>,
    /// Where the metric's name stands, and behind it the extra label.
    pub(crate) name_at: usize,
    pub(crate) extra_at: usize,
}

/// Makes the labels of points.
#[derive(Default)]
pub(crate) struct Labels {
    fixed: Vec<Fixed>,
    layouts: Layouts,
    pub(crate) encoded: Encoded,
    merged: Vec<u8>,
}

impl Labels {
    /// Sets the labels that all points from here on have.
    pub(crate) fn set_fixed(&mut self, fixed: Vec<Fixed>) {
        let same = |(new, old): (&Fixed, &Fixed)| {
            (&new.name, new.rank, &new.key) == (&old.name, old.rank, &old.key)
        };
        if fixed.len() != self.fixed.len() || !fixed.iter().zip(&self.fixed).all(same) {
            self.layouts.clear();
        }
        self.fixed = fixed;
    }

    /// `job` and `instance` that all points have, with their values.
    pub(crate) fn service(&self) -> impl Iterator<Item = &Fixed> {
        self.fixed.iter().filter(|label| label.rank == Rank::Service)
    }

    /// Encodes the labels of a point into `self.encoded`. `symbols`: of remote write 2.0.
    pub(crate) fn encode(
        &mut self,
        settings: &Settings,
        symbols: &mut Symbols,
        attributes: &[Attribute<'_>],
        extra: Extra,
    ) {
        let layout = self.layouts.of(settings.strategy, &self.fixed, attributes, extra);
        let encoded = &mut self.encoded;
        encoded.bytes.clear();
        let (name_at, extra_at) = (layout.name_at, layout.extra_at);
        for (index, entry) in layout.entries.iter_mut().enumerate() {
            if index == name_at {
                encoded.name_at = encoded.bytes.len();
            }
            if index == extra_at {
                encoded.extra_at = encoded.bytes.len();
            }
            let value = match &entry.source {
                Source::Fixed(index) => &*self.fixed[*index].value,
                Source::Point(index) => &*attributes[*index].value,
                Source::Merged(sources) => {
                    merge(&mut self.merged, sources, &self.fixed, attributes);
                    &self.merged
                }
            };
            match settings.version {
                Version::V1 => write_label(&mut encoded.bytes, entry, value),
                Version::V2 => {
                    write_refs(&mut encoded.bytes, symbols, &entry.name, value, &mut entry.symbols)
                }
            }
        }
        if name_at == layout.entries.len() {
            encoded.name_at = encoded.bytes.len();
        }
        if extra_at == layout.entries.len() {
            encoded.extra_at = encoded.bytes.len();
        }
    }
}

/// Different values stand behind one another.
fn merge(merged: &mut Vec<u8>, sources: &[Source], fixed: &[Fixed], attributes: &[Attribute<'_>]) {
    merged.clear();
    for (index, source) in sources.iter().enumerate() {
        let value = match source {
            Source::Fixed(index) => &*fixed[*index].value,
            Source::Point(index) => &*attributes[*index].value,
            Source::Merged(_) => continue,
        };
        if index == 0 {
            merged.extend_from_slice(value);
        } else if merged != value {
            merged.push(b';');
            merged.extend_from_slice(value);
        }
    }
}

/// A label of remote write 1.0.
fn write_label(out: &mut Vec<u8>, entry: &Entry, value: &[u8]) {
    let len = entry.prefix.len() + varint_len(value.len()) + value.len();
    out.push(1 << 3 | LEN);
    write_varint(out, len as u64);
    out.extend_from_slice(&entry.prefix);
    write_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// The numbers of name and value.
fn write_refs(
    out: &mut Vec<u8>,
    symbols: &mut Symbols,
    name: &str,
    value: &[u8],
    known: &mut Option<(u32, u32)>,
) {
    let (name, value) = match *known {
        Some((name, likely)) => (name, symbols.number_or(likely, value)),
        None => (symbols.number(name.as_bytes()), symbols.number(value)),
    };
    *known = Some((name, value));
    write_varint(out, u64::from(name));
    write_varint(out, u64::from(value));
}

/// A label of its own, in the form of the version.
pub(crate) fn write_single(
    out: &mut Vec<u8>,
    version: Version,
    symbols: &mut Symbols,
    name: &str,
    value: &[u8],
) {
    match version {
        Version::V1 => {
            let mut label = Vec::with_capacity(name.len() + value.len() + 8);
            write_len_field(&mut label, 1, name.as_bytes());
            write_len_field(&mut label, 2, value);
            write_len_field(out, 1, &label);
        }
        Version::V2 => write_refs(out, symbols, name, value, &mut None),
    }
}
