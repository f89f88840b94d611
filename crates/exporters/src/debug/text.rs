//! Pieces of text that both verbosities share. Input is OTLP JSON: rendering for people is no fast path.

use std::fmt::Write;

use serde_json::Value;
use sluice_otlp::civil_date;

pub(super) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A number, whether JSON has it as a number or (64 bits) as a string. Absent means 0.
pub(super) fn integer(value: &Value, key: &str) -> i128 {
    value.get(key).map_or(0, integer_of)
}

pub(super) fn integer_of(value: &Value) -> i128 {
    match value {
        Value::String(text) => text.parse().unwrap_or(0),
        Value::Number(number) => {
            number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from)).unwrap_or(0)
        }
        _ => 0,
    }
}

/// A double: JSON has those that are not finite as strings.
pub(super) fn double(value: &Value) -> f64 {
    match value {
        Value::String(text) if text == "Infinity" => f64::INFINITY,
        Value::String(text) if text == "-Infinity" => f64::NEG_INFINITY,
        Value::String(text) => text.parse().unwrap_or(f64::NAN),
        value => value.as_f64().unwrap_or(0.0),
    }
}

/// The type's name and the value as the Collector writes them.
pub(super) fn any_value(value: &Value) -> (&'static str, String) {
    let Some((key, inner)) = value.as_object().and_then(|object| object.iter().next()) else {
        return ("Empty", String::new());
    };
    match key.as_str() {
        "stringValue" => ("Str", inner.as_str().unwrap_or_default().to_owned()),
        "boolValue" => ("Bool", inner.to_string()),
        "intValue" => ("Int", integer_of(inner).to_string()),
        "doubleValue" => ("Double", double(inner).to_string()),
        "arrayValue" => ("Slice", plain(value).to_string()),
        "kvlistValue" => ("Map", plain(value).to_string()),
        "bytesValue" => ("Bytes", inner.as_str().unwrap_or_default().to_owned()),
        _ => ("Empty", String::new()),
    }
}

/// A value as plain JSON, without the types' names.
fn plain(value: &Value) -> Value {
    let Some((key, inner)) = value.as_object().and_then(|object| object.iter().next()) else { return Value::Null };
    match key.as_str() {
        "arrayValue" => list(inner, "values").iter().map(plain).collect(),
        "kvlistValue" => {
            let pairs = list(inner, "values").iter();
            pairs.map(|pair| (text(pair, "key").to_owned(), pair.get("value").map_or(Value::Null, plain))).collect()
        }
        "intValue" => i64::try_from(integer_of(inner)).map_or(Value::Null, Value::from),
        _ => inner.clone(),
    }
}

pub(super) fn attribute(attribute: &Value) -> (&str, &'static str, String) {
    let (kind, value) = attribute.get("value").map_or(("Empty", String::new()), any_value);
    (text(attribute, "key"), kind, value)
}

/// Nanoseconds since 1970 as Go prints a time: `2020-02-11 20:26:12.000000321 +0000 UTC`.
pub(super) fn timestamp(nanos: i128) -> String {
    let seconds = i64::try_from(nanos.div_euclid(1_000_000_000)).unwrap_or(0);
    let fraction = nanos.rem_euclid(1_000_000_000);
    let (year, month, day) = civil_date(seconds.div_euclid(86_400));
    let time = seconds.rem_euclid(86_400);
    let mut out = format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", time / 3600, time / 60 % 60, time % 60);
    if fraction > 0 {
        let digits = format!("{fraction:09}");
        let _ = write!(out, ".{}", digits.trim_end_matches('0'));
    }
    out + " +0000 UTC"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: times with and without fractions, before 1970, on a leap day. Guarantee: Go's form.
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
        let nested = r#"{"kvlistValue":{"values":[{"key":"a","value":{"arrayValue":{"values":[{"intValue":"1"},{"boolValue":true}]}}}]}}"#;
        assert_eq!(shown(nested), ("Map", r#"{"a":[1,true]}"#.to_owned()));
    }
}
