//! Values as text, in the form in which the Collector writes them (`pcommon.Value.AsString`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

use crate::{AnyValue, Value};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The text of a value: strings as they are, arrays and maps as JSON, bytes as Base64.
pub fn text_of(value: Value<'_>) -> Cow<'_, str> {
    match value {
        Value::Empty => Cow::Borrowed(""),
        Value::String(text) => String::from_utf8_lossy(text),
        Value::Bool(value) => Cow::Borrowed(if value { "true" } else { "false" }),
        Value::Int(value) => Cow::Owned(value.to_string()),
        Value::Double(value) => Cow::Owned(double_text(value)),
        Value::Bytes(bytes) => Cow::Owned(STANDARD.encode(bytes)),
        Value::Nested(_) => {
            let mut json = String::new();
            let written = write_json(&value.to_owned(), &mut json);
            Cow::Owned(written.map_or_else(String::new, |()| json))
        }
    }
}

/// ECMAScript's notation, with `NaN` and `Infinity`.
pub fn double_text(value: f64) -> String {
    let magnitude = value.abs();
    if value.is_finite() && magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = format!("{value:e}");
        return if text.contains("e-") { text } else { text.replace('e', "e+") };
    }
    value.to_string().replace("inf", "Infinity")
}

/// Without an exponent, as Go's `strconv.FormatFloat(value, 'f', -1, 64)`.
pub fn plain_double_text(value: f64) -> String {
    if value.is_infinite() { format!("{value:+}").replace('i', "I") } else { value.to_string() }
}

/// JSON as Go writes it: keys sorted, the last of equal ones. Nothing if a number is not finite.
fn write_json(value: &AnyValue, out: &mut String) -> Option<()> {
    match value {
        AnyValue::Empty => out.push_str("null"),
        AnyValue::String(text) => write_json_string(text, out),
        AnyValue::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        AnyValue::Int(value) => write!(out, "{value}").ok()?,
        AnyValue::Double(value) if !value.is_finite() => return None,
        AnyValue::Double(value) => out.push_str(&double_text(*value)),
        // Go's copy of an empty byte slice is nil.
        AnyValue::Bytes(bytes) if bytes.is_empty() => out.push_str("null"),
        AnyValue::Bytes(bytes) => write!(out, "\"{}\"", STANDARD.encode(bytes)).ok()?,
        AnyValue::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                out.push(if index == 0 { '[' } else { ',' });
                write_json(value, out)?;
            }
            out.push_str(if values.is_empty() { "[]" } else { "]" });
        }
        AnyValue::Map(entries) => {
            let sorted: BTreeMap<&String, &AnyValue> =
                entries.iter().map(|(key, value)| (key, value)).collect();
            for (index, (key, value)) in sorted.into_iter().enumerate() {
                out.push(if index == 0 { '{' } else { ',' });
                write_json_string(key, out);
                out.push(':');
                write_json(value, out)?;
            }
            out.push_str(if entries.is_empty() { "{}" } else { "}" });
        }
    }
    Some(())
}

/// Go escapes the two line separators, too.
fn write_json_string(text: &str, out: &mut String) {
    let json = serde_json::Value::from(text).to_string();
    out.push_str(&json.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Doubles look as Go's `float64AsString` makes them look.
    #[test]
    fn doubles_have_ecmascript_notation() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (100.0, "100"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (-1.5e300, "-1.5e+300"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (1.25e-10, "1.25e-10"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ];
        for (value, text) in cases {
            assert_eq!(double_text(value), text);
        }
        assert_eq!(plain_double_text(1e21), "1000000000000000000000");
        assert_eq!(plain_double_text(f64::NEG_INFINITY), "-Inf");
    }

    /// Nested values are JSON with sorted keys; a value that JSON cannot express makes the whole
    /// text empty, as in the Collector.
    #[test]
    fn nested_values_are_json() {
        let value = AnyValue::Map(vec![
            (
                "b".to_owned(),
                AnyValue::Array(vec![
                    AnyValue::Int(-1),
                    AnyValue::Empty,
                    AnyValue::Bytes(vec![1, 2]),
                ]),
            ),
            ("a".to_owned(), AnyValue::String("<\"\u{1}\u{2028}é>".to_owned())),
            ("b2".to_owned(), AnyValue::Bool(true)),
            ("a".to_owned(), AnyValue::String("last".to_owned())),
        ]);
        let encoded = value.encoded();
        assert_eq!(
            text_of(Value::read(&encoded)),
            r#"{"a":"last","b":[-1,null,"AQI="],"b2":true}"#
        );
        let quoted =
            AnyValue::Array(vec![AnyValue::String("<\"\u{1}\u{2028}é>".to_owned())]).encoded();
        assert_eq!(text_of(Value::read(&quoted)), "[\"<\\\"\\u0001\\u2028é>\"]");
        let infinite = AnyValue::Array(vec![AnyValue::Double(f64::INFINITY)]).encoded();
        assert_eq!(text_of(Value::read(&infinite)), "");
    }
}
