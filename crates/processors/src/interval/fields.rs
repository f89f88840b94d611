//! Statistics as fields of line protocol: the names that Telegraf's aggregators give them.

use sluice_influx::metadata::{BOOLEAN, FIELD, STRING, STRINGS, TYPE};
use sluice_otlp::wire::{Fields, write_len_field};

const METADATA: u32 = 12;
/// Kinds of an `AnyValue`.
const TEXT: u32 = 1;
const LIST: u32 = 5;

pub(super) struct Names {
    /// The measurement, and the field behind it.
    pub metric: Vec<u8>,
    pub field: Vec<u8>,
}

/// The names of a statistic. `default`: the field of a metric that did not come as another one.
pub(super) fn names(metric: &[u8], metadata: &[u8], default: &str, ending: &str) -> Names {
    let own = own_field(metadata);
    let stem = own.and_then(|own| metric.strip_suffix(own)?.strip_suffix(b"_"));
    let field = own.unwrap_or(default.as_bytes());
    let field = [field, b"_", ending.as_bytes()].concat();
    Names { metric: [stem.unwrap_or(metric), b"_", &field].concat(), field }
}

/// The field that a metric says it is. `metadata`: whole fields of a metric.
pub(super) fn own_field(metadata: &[u8]) -> Option<&[u8]> {
    content(value_of(metadata, FIELD)?, TEXT)
}

/// The type of that field, if it has to be said.
pub(super) fn own_type(metadata: &[u8]) -> Option<&[u8]> {
    content(value_of(metadata, TYPE)?, TEXT)
}

/// Whether the metric is a field that has no numbers.
pub(super) fn is_no_number(metadata: &[u8]) -> bool {
    own_type(metadata).is_some_and(|kind| [BOOLEAN, STRING].map(str::as_bytes).contains(&kind))
}

/// The keys of attributes that are fields of text.
pub(super) fn texts(metadata: &[u8]) -> Vec<&[u8]> {
    let list = value_of(metadata, STRINGS).and_then(|value| content(value, LIST));
    let Some(list) = list else { return Vec::new() };
    let (mut keys, mut values) = (Vec::new(), Fields::of(list));
    while let Ok(Some(value)) = values.next_message(1) {
        keys.extend(content(&list[value.content()], TEXT));
    }
    keys
}

/// The key of an attribute, and of any other pair.
pub(super) fn key_of(pair: &[u8]) -> Option<&[u8]> {
    content(pair, 1)
}

fn value_of<'m>(metadata: &'m [u8], wanted: &str) -> Option<&'m [u8]> {
    let mut entries = Fields::of(metadata);
    while let Some(entry) = entries.next_message(METADATA).ok()? {
        let entry = &metadata[entry.content()];
        if key_of(entry) == Some(wanted.as_bytes()) {
            return content(entry, 2);
        }
    }
    None
}

/// The content of the first field with this number.
fn content(message: &[u8], number: u32) -> Option<&[u8]> {
    let field = Fields::of(message).next_message(number).ok()??;
    Some(&message[field.content()])
}

/// Writes metadata of a metric: a name, and a text.
pub(super) fn write_metadata(out: &mut Vec<u8>, key: &str, text: &[u8]) {
    let (mut entry, mut value) = (Vec::new(), Vec::new());
    write_len_field(&mut value, 1, text);
    write_len_field(&mut entry, 1, key.as_bytes());
    write_len_field(&mut entry, 2, &value);
    write_len_field(out, METADATA, &entry);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: the metric's own field counts, and the measurement stays what it is.
    #[test]
    fn a_statistic_is_a_field_of_its_measurement() {
        let named = |metric: &str, own: Option<&str>| {
            let mut metadata = Vec::new();
            write_metadata(&mut metadata, TYPE, BOOLEAN.as_bytes());
            if let Some(own) = own {
                write_metadata(&mut metadata, FIELD, own.as_bytes());
            }
            let names = names(metric.as_bytes(), &metadata, "value", "mean");
            [names.metric, names.field].map(|it| String::from_utf8(it).unwrap())
        };
        assert_eq!(named("vus", None), ["vus_value_mean", "value_mean"]);
        assert_eq!(named("cpu_idle", Some("idle")), ["cpu_idle_mean", "idle_mean"]);
        assert_eq!(named("renamed", Some("idle")), ["renamed_idle_mean", "idle_mean"]);
    }
}
