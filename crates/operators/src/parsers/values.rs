//! Fields and values that parsers read, and their names in messages.

use std::collections::HashMap;

use sluice_config::Fields;
use sluice_otlp::AnyValue;

use crate::field::Field;
use crate::read;
use crate::record::Record;

pub(super) type Map = Vec<(String, AnyValue)>;

/// Values that one text may be parsed into. The smallest takes two bytes of the text and over fifty
/// of memory.
pub(super) const VALUES_LIMIT: usize = 65_536;

const TOO_MANY: &str = "the text has more than 65536 values";

/// The values that are still allowed of [`VALUES_LIMIT`].
pub(super) struct Budget(usize);

impl Default for Budget {
    fn default() -> Budget {
        Budget(VALUES_LIMIT)
    }
}

impl Budget {
    /// Asks for one value, before it is made.
    pub(super) fn take(&mut self) -> Result<(), &'static str> {
        self.0 = self.0.checked_sub(1).ok_or(TOO_MANY)?;
        Ok(())
    }
}

/// Reads `parse_from`; without a default it is required.
pub(super) fn read_source(
    fields: &mut Fields<'_>,
    default: Option<&str>,
    doc: &str,
) -> Option<Field> {
    match default {
        None => read::field(fields, "parse_from", doc),
        default => read::optional_field(fields, "parse_from", default, doc),
    }
}

/// The value of the field.
pub(super) fn value_at<'r>(field: &Field, record: &'r Record) -> Result<&'r AnyValue, String> {
    field.get(record).ok_or_else(|| field.missing())
}

/// The text of the field.
pub(super) fn text_at<'r>(field: &Field, record: &'r Record) -> Result<&'r str, String> {
    let value = value_at(field, record)?;
    let wrong = || format!("`{field}` is {}, not a text", kind_of(value));
    match value {
        AnyValue::String(text) => Ok(text),
        AnyValue::Bytes(bytes) => str::from_utf8(bytes).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
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
