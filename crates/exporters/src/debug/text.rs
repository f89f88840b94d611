//! Pieces of text that both verbosities share, from OTLP JSON: this is no fast path.

use std::fmt::Write;

use serde_json::Value;
use sluice_otlp::{Signal, civil_time};

/// The JSON members that contain the resources, scopes and entries of one signal.
pub(super) const fn members(signal: Signal) -> [&'static str; 3] {
    match signal {
        Signal::Traces => ["resourceSpans", "scopeSpans", "spans"],
        Signal::Metrics => ["resourceMetrics", "scopeMetrics", "metrics"],
        Signal::Logs => ["resourceLogs", "scopeLogs", "logRecords"],
    }
}

/// The bounds of exponential buckets, as distances from zero, and their counts.
pub(super) fn exponential_buckets<'a>(
    point: &'a Value,
    side: &str,
) -> impl DoubleEndedIterator<Item = (f64, f64, i128)> + use<'a> {
    let factor = std::f64::consts::LN_2 * (-(integer(&point["scale"]) as f64)).exp2();
    let buckets = &point[side];
    let offset = integer(&buckets["offset"]) as f64;
    let bound = move |index: usize| ((offset + index as f64) * factor).exp();
    let counts = list(buckets, "bucketCounts").iter().enumerate();
    counts.map(move |(index, count)| (bound(index), bound(index + 1), integer(count)))
}

pub(super) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Escapes characters by which a sender could drive a terminal or hide text from a reader: control
/// characters, except line breaks and tabs, and those that change the direction of writing.
pub(super) fn without_controls(text: String) -> String {
    let is_unsafe = |character: char| match character {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            true
        }
        character => character.is_control(),
    };
    if !text.contains(is_unsafe) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match u32::from(character) {
            _ if !is_unsafe(character) => escaped.push(character),
            0xd => escaped.push_str("\\r"),
            // A `String` takes all that is written.
            code @ ..0x80 => drop(write!(escaped, "\\x{code:02x}")),
            code => drop(write!(escaped, "\\u{code:04x}")),
        }
    }
    escaped
}

/// A number, whether JSON has it as a number or (64 bits) as a string. Absent means 0.
pub(super) fn integer(value: &Value) -> i128 {
    match value {
        Value::String(text) => text.parse().unwrap_or(0),
        Value::Number(number) => number.as_i128().unwrap_or(0),
        _ => 0,
    }
}

/// A double: JSON has those that are not finite as strings.
pub(super) fn double(value: &Value) -> f64 {
    match value {
        Value::String(text) => text.parse().unwrap_or(f64::NAN),
        value => value.as_f64().unwrap_or(0.0),
    }
}

/// As Go's `%v` prints it: with an exponent below 1e-4 and from 1e21.
pub(super) fn shortest(value: f64) -> String {
    shortest_from(-4, value)
}

/// As Go's `%f` prints it.
pub(super) fn fixed(value: f64) -> String {
    if value.is_finite() { format!("{value:.6}") } else { not_finite(value) }
}

fn shortest_from(least_exponent: i32, value: f64) -> String {
    if !value.is_finite() {
        return not_finite(value);
    }
    let scientific = format!("{value:e}");
    match scientific.split_once('e').map(|(digits, exponent)| (digits, exponent.parse::<i32>())) {
        Some((digits, Ok(exponent))) if !(least_exponent..21).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => value.to_string(),
    }
}

fn not_finite(value: f64) -> String {
    if value.is_nan() { "NaN".to_owned() } else { format!("{value:+}").replace("inf", "Inf") }
}

/// The type's name and the value as the Collector writes them.
pub(super) fn any_value(value: &Value) -> (&'static str, String) {
    let (key, inner) = variant(value);
    match key {
        "stringValue" => ("Str", inner.as_str().unwrap_or_default().to_owned()),
        "boolValue" => ("Bool", inner.to_string()),
        "intValue" => ("Int", integer(inner).to_string()),
        // As Go's JSON prints it: with an exponent below 1e-6, of as few digits as there are.
        "doubleValue" => ("Double", shortest_from(-6, double(inner)).replace("e-0", "e-")),
        "arrayValue" => ("Slice", plain(value).to_string()),
        "kvlistValue" => ("Map", plain(value).to_string()),
        "bytesValue" => ("Bytes", inner.as_str().unwrap_or_default().to_owned()),
        _ => ("Empty", String::new()),
    }
}

/// The name of a value's type, and its content.
fn variant(value: &Value) -> (&str, &Value) {
    let entry = value.as_object().and_then(|object| object.iter().next());
    entry.map_or(("", &Value::Null), |(key, inner)| (key.as_str(), inner))
}

/// A value as plain JSON, without the types' names.
fn plain(value: &Value) -> Value {
    let (key, inner) = variant(value);
    match key {
        "arrayValue" => list(inner, "values").iter().map(plain).collect(),
        "kvlistValue" => {
            let entry = |pair: &Value| (text(pair, "key").to_owned(), plain(&pair["value"]));
            list(inner, "values").iter().map(entry).collect()
        }
        "intValue" => i64::try_from(integer(inner)).map_or(Value::Null, Value::from),
        _ => inner.clone(),
    }
}

pub(super) fn attribute(attribute: &Value) -> (&str, &'static str, String) {
    let (kind, value) = any_value(&attribute["value"]);
    (text(attribute, "key"), kind, value)
}

/// Nanoseconds since 1970 as Go prints a time: `2020-02-11 20:26:12.000000321 +0000 UTC`.
pub(super) fn timestamp(nanos: i128) -> String {
    let seconds = i64::try_from(nanos.div_euclid(1_000_000_000)).unwrap_or(0);
    let fraction = nanos.rem_euclid(1_000_000_000);
    let mut out = civil_time(seconds).replace('T', " ");
    if fraction > 0 {
        let digits = format!("{fraction:09}");
        let _ = write!(out, ".{}", digits.trim_end_matches('0'));
    }
    out + " +0000 UTC"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: times with and without fractions, before 1970, on a leap day. Guarantee: Go's
    /// form.
    #[test]
    fn times_are_printed_as_go_prints_them() {
        assert_eq!(timestamp(1_581_452_772_000_000_321), "2020-02-11 20:26:12.000000321 +0000 UTC");
        assert_eq!(timestamp(1_581_452_772_500_000_000), "2020-02-11 20:26:12.5 +0000 UTC");
        assert_eq!(timestamp(0), "1970-01-01 00:00:00 +0000 UTC");
        assert_eq!(timestamp(1_709_164_800_000_000_000), "2024-02-29 00:00:00 +0000 UTC");
        assert_eq!(timestamp(-1_000_000_000), "1969-12-31 23:59:59 +0000 UTC");
    }

    #[test]
    fn values_are_printed_with_their_types() {
        let shown = |json: &str| any_value(&serde_json::from_str(json).expect("JSON"));
        assert_eq!(shown(r#"{"stringValue":"a"}"#), ("Str", "a".to_owned()));
        assert_eq!(shown(r#"{"intValue":"-5"}"#), ("Int", "-5".to_owned()));
        assert_eq!(shown(r#"{"doubleValue":1.5}"#), ("Double", "1.5".to_owned()));
        assert_eq!(shown("{}"), ("Empty", String::new()));
        let nested = r#"{"kvlistValue":{"values":[{"key":"a","value":{"arrayValue":{"values":
            [{"intValue":"1"},{"boolValue":true}]}}}]}}"#;
        assert_eq!(shown(nested), ("Map", r#"{"a":[1,true]}"#.to_owned()));
    }
}
