//! The options that all parsers share, and the common course of a parse.

use std::collections::HashMap;

use sluice_config::Fields;
use sluice_otlp::AnyValue;

use super::scope_name::ScopeName;
use super::severity::Severity;
use super::time::Time;
use super::trace::Trace;
use crate::field::{Field, Root};
use crate::record::Record;

pub(super) type Map = Vec<(String, AnyValue)>;

/// Reads a text, puts the result, and then works on the embedded sections.
#[derive(Clone)]
pub(super) struct Parser {
    from: Field,
    to: Field,
    body: Option<Field>,
    time: Option<Time>,
    severity: Option<Severity>,
    trace: Option<Trace>,
    scope_name: Option<ScopeName>,
}

impl Parser {
    pub(super) fn read(fields: &mut Fields<'_>) -> Option<Parser> {
        let from = read_source(fields, Some("body"), "The text to parse.");
        let doc = "The place of the result: `attributes`, `body`, `resource`, or a field in them. \
                   A map that is there already is extended.";
        let kind = "a field";
        let to = fields.parsed("parse_to", kind, Some("attributes"), doc, Field::parse);
        let doc = "After parsing, the body is replaced by the value of this field.";
        let body = fields.parsed("body", kind, None, doc, Field::parse);
        if body.is_some() && to.as_ref().is_some_and(|to| *to == Field::body()) {
            fields.error_at("body", "cannot be given with `parse_to: body`: remove one of them");
        }
        let doc = "Takes the time of the record from a parsed field, as `time_parser` does.";
        let time = fields.section("timestamp", doc, Time::read);
        let doc = "Takes the severity from a parsed field, as `severity_parser` does.";
        let severity = fields.section("severity", doc, Severity::read);
        let doc = "Takes the ids of trace and span from parsed fields, as `trace_parser` does.";
        let trace = fields.section("trace", doc, Trace::read);
        let doc = "Takes the name of the scope from a parsed field, as `scope_name_parser` does.";
        let scope_name = fields.section("scope_name", doc, ScopeName::read);
        let parser = Parser {
            from: from?,
            to: to?,
            body,
            time: flat(time)?,
            severity: flat(severity)?,
            trace: flat(trace)?,
            scope_name: flat(scope_name)?,
        };
        Some(parser)
    }

    /// True if a section `timestamp` says where the time comes from.
    pub(super) fn has_time(&self) -> bool {
        self.time.is_some()
    }

    /// The whole course: `parse` turns the text into a value.
    ///
    /// # Errors
    /// The reason, in a line. If only an embedded section failed, the parsed value is in the
    /// record, as in the Collector.
    pub(super) fn apply(
        &self,
        record: &mut Record,
        parse: impl FnOnce(&str) -> Result<AnyValue, String>,
    ) -> Result<(), String> {
        let value = parse(self.text(record)?)?;
        self.finish(record, value)
    }

    /// The text to parse.
    pub(super) fn text<'r>(&self, record: &'r Record) -> Result<&'r str, String> {
        text_at(&self.from, record)
    }

    /// Puts the value and works on the embedded sections. All are tried; the first error counts.
    pub(super) fn finish(&self, record: &mut Record, value: AnyValue) -> Result<(), String> {
        extend(&self.to, record, value)?;
        if let Some(body) = self.body.as_ref().and_then(|field| field.copied(record)) {
            record.body = body;
        }
        let time = self.time.as_ref().map_or(Ok(()), |time| time.set(record));
        let severity = self.severity.as_ref().map_or(Ok(()), |severity| severity.set(record));
        let trace = self.trace.as_ref().map_or(Ok(()), |trace| trace.set(record));
        let scope = self.scope_name.as_ref().map_or(Ok(()), |scope| scope.set(record));
        time.map_err(|why| format!("timestamp: {why}"))?;
        severity.map_err(|why| format!("severity: {why}"))?;
        trace.map_err(|why| format!("trace: {why}"))?;
        scope.map_err(|why| format!("scope_name: {why}"))
    }
}

/// A section that is absent is fine, one with errors is not.
fn flat<T>(section: Option<Option<T>>) -> Option<Option<T>> {
    match section {
        Some(None) => None,
        Some(some) => Some(some),
        None => Some(None),
    }
}

/// Reads `parse_from`; without a default it is required.
pub(super) fn read_source(
    fields: &mut Fields<'_>,
    default: Option<&str>,
    doc: &str,
) -> Option<Field> {
    read_field(fields, "parse_from", default, doc)
}

/// Reads an option that names one value of a record.
pub(super) fn read_field(
    fields: &mut Fields<'_>,
    key: &str,
    default: Option<&str>,
    doc: &str,
) -> Option<Field> {
    let one_value = |text: &str| {
        let field = Field::parse(text)?;
        let is_whole = field.root != Root::Body && field.keys.is_empty();
        if is_whole { Err("needs a key behind it".to_owned()) } else { Ok(field) }
    };
    let kind = if default.is_some() { "a field" } else { "a field, required" };
    let field = fields.parsed(key, kind, default, doc, one_value);
    if default.is_none() && !fields.is_given(key) {
        fields.error_missing(key);
    }
    field
}

/// The value of the field.
pub(super) fn value_at<'r>(field: &Field, record: &'r Record) -> Result<&'r AnyValue, String> {
    field.get(record).ok_or_else(|| format!("the record has no `{}`", shown(field)))
}

/// The text of the field.
pub(super) fn text_at<'r>(field: &Field, record: &'r Record) -> Result<&'r str, String> {
    let value = value_at(field, record)?;
    let wrong = || format!("`{}` is {}, not a text", shown(field), kind_of(value));
    match value {
        AnyValue::String(text) => Ok(text),
        AnyValue::Bytes(bytes) => str::from_utf8(bytes).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

/// The field as the configuration writes it.
pub(super) fn shown(field: &Field) -> String {
    let root = match field.root {
        Root::Body => "body",
        Root::Attributes => "attributes",
        Root::Resource => "resource",
    };
    let mut text = root.to_owned();
    for key in &field.keys {
        if key.contains(['.', '[']) {
            text.push_str(&format!("[\"{key}\"]"));
        } else {
            text.push_str(&format!(".{key}"));
        }
    }
    text
}

/// The kind of a value, for messages.
pub(super) fn kind_of(value: &AnyValue) -> &'static str {
    match value {
        AnyValue::Empty => "empty",
        AnyValue::String(_) => "a text",
        AnyValue::Bool(_) => "a boolean",
        AnyValue::Int(_) => "an integer",
        AnyValue::Double(_) => "a number",
        AnyValue::Bytes(_) => "bytes",
        AnyValue::Array(_) => "a list",
        AnyValue::Map(_) => "a map",
    }
}

/// The start of a text, for messages.
pub(super) fn excerpt(text: &str) -> String {
    const LONGEST: usize = 64;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}

/// Puts a value as the Collector does: a map extends the map that is there.
fn extend(to: &Field, record: &mut Record, value: AnyValue) -> Result<(), String> {
    let AnyValue::Map(map) = value else { return to.set(record, value) };
    match (to.root, to.keys.is_empty()) {
        (Root::Attributes, true) => merge(&mut record.attributes, map),
        (Root::Resource, true) => merge(&mut record.resource, map),
        _ => {
            let merged = match to.take(record) {
                Some(AnyValue::Map(mut there)) => {
                    merge(&mut there, map);
                    there
                }
                _ => map,
            };
            return to.set(record, AnyValue::Map(merged));
        }
    }
    Ok(())
}

/// Adds the entries; a key that is there gets the new value. Both maps have each key once.
pub(super) fn merge(into: &mut Map, from: Map) {
    /// Comparisons up to which a search costs less than a table of places.
    const FEW: usize = 1024;
    if into.is_empty() {
        *into = from;
    } else if into.len().saturating_mul(from.len()) <= FEW {
        // Keys of `from` are unique, so that only those that were there can be met again.
        let known = into.len();
        into.reserve(from.len());
        for (key, value) in from {
            match into[..known].iter_mut().find(|(name, _)| *name == key) {
                Some((_, place)) => *place = value,
                None => into.push((key, value)),
            }
        }
    } else {
        let keys = into.iter().enumerate().map(|(place, (key, _))| (key.clone(), place));
        let places: HashMap<String, usize> = keys.collect();
        for (key, value) in from {
            match places.get(&key) {
                Some(place) => into[*place].1 = value,
                None => into.push((key, value)),
            }
        }
    }
}

/// Leaves of each key the last entry, as a map of Go does.
pub(super) fn keep_last(map: &mut Map) {
    /// Entries up to which comparing all pairs costs less than a table.
    const FEW: usize = 24;
    let few_are_unique = |map: &Map| {
        let is_new = |(place, (key, _)): (usize, &(String, AnyValue))| {
            map[..place].iter().all(|(name, _)| name != key)
        };
        map.len() <= FEW && map.iter().enumerate().all(is_new)
    };
    if few_are_unique(map) {
        return;
    }
    let places: HashMap<&str, usize> =
        map.iter().enumerate().map(|(place, (key, _))| (key.as_str(), place)).collect();
    if places.len() == map.len() {
        return;
    }
    let mut keeps: Vec<bool> = vec![false; map.len()];
    places.into_values().for_each(|place| keeps[place] = true);
    let mut keeps = keeps.into_iter();
    map.retain(|_| keeps.next().unwrap_or(true));
}

/// Sets one entry.
pub(super) fn set(map: &mut Map, key: &str, value: AnyValue) {
    match map.iter_mut().find(|(name, _)| name == key) {
        Some((_, place)) => *place = value,
        None => map.push((key.to_owned(), value)),
    }
}
