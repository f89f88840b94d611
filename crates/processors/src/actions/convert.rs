//! The action `convert`.

use sluice_otlp::text::text_of;
use sluice_otlp::{AnyValue, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConvertedType {
    String,
    Int,
    Double,
}

impl ConvertedType {
    pub(crate) const ALL: [(&'static str, ConvertedType); 3] = [
        ("string", ConvertedType::String),
        ("int", ConvertedType::Int),
        ("double", ConvertedType::Double),
    ];

    pub(crate) fn name(self) -> &'static str {
        ConvertedType::ALL[self as usize].0
    }

    /// The converted value; nothing if it has the type already or cannot be converted.
    pub(super) fn convert(self, value: Value<'_>) -> Option<AnyValue> {
        Some(match (self, value) {
            (ConvertedType::String, Value::String(_)) => return None,
            (ConvertedType::String, value) => AnyValue::String(text_of(value).into_owned()),
            (ConvertedType::Int, Value::Double(value)) => AnyValue::Int(value as i64),
            (ConvertedType::Int, Value::Bool(value)) => AnyValue::Int(i64::from(value)),
            (ConvertedType::Int, Value::String(text)) => {
                AnyValue::Int(str::from_utf8(text).ok()?.parse().ok()?)
            }
            (ConvertedType::Double, Value::Int(value)) => AnyValue::Double(value as f64),
            (ConvertedType::Double, Value::Bool(value)) => AnyValue::Double(value.into()),
            (ConvertedType::Double, Value::String(text)) => {
                AnyValue::Double(parse_double(str::from_utf8(text).ok()?)?)
            }
            _ => return None,
        })
    }
}

/// Reads a number as Go's `strconv.ParseFloat`, but for hexadecimal ones. Too large: no number.
fn parse_double(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_word = |word: &str| unsigned.eq_ignore_ascii_case(word);
    if is_word("nan") {
        return (unsigned.len() == text.len()).then_some(f64::NAN);
    }
    if is_word("inf") || is_word("infinity") {
        return text.parse().ok();
    }
    let parse = |digits: &str| digits.parse().ok().filter(|value: &f64| value.is_finite());
    if !text.contains('_') {
        return parse(text);
    }
    // Go lets an underscore stand between two digits.
    let is_digit = |character: char| character.is_ascii_digit();
    let parts: Vec<&str> = text.split('_').collect();
    let is_between = |pair: &[&str]| pair[0].ends_with(is_digit) && pair[1].starts_with(is_digit);
    parts.windows(2).all(is_between).then(|| parse(&parts.concat()))?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Collector's table of conversions.
    #[test]
    fn conversions_are_the_collectors() {
        let nested = AnyValue::Array(vec![AnyValue::Int(1)]).encoded();
        let cases = [
            (ConvertedType::Int, Value::String(b"-12"), Some(AnyValue::Int(-12))),
            (ConvertedType::Int, Value::String(b"+12"), Some(AnyValue::Int(12))),
            (ConvertedType::Int, Value::String(b"12.0"), None),
            (ConvertedType::Int, Value::String(b""), None),
            (ConvertedType::Int, Value::String(b"9223372036854775808"), None),
            (ConvertedType::Int, Value::Double(-2.9), Some(AnyValue::Int(-2))),
            (ConvertedType::Int, Value::Bool(true), Some(AnyValue::Int(1))),
            (ConvertedType::Int, Value::Int(1), None),
            (ConvertedType::Int, Value::Nested(&nested), None),
            (ConvertedType::Double, Value::String(b"1.5e3"), Some(AnyValue::Double(1500.0))),
            (
                ConvertedType::Double,
                Value::String(b"-inf"),
                Some(AnyValue::Double(f64::NEG_INFINITY)),
            ),
            (ConvertedType::Double, Value::String(b"1e999"), None),
            (ConvertedType::Double, Value::String(b"-nan"), None),
            (ConvertedType::Double, Value::String(b"1_0.5"), Some(AnyValue::Double(10.5))),
            (ConvertedType::Double, Value::String(b"1__0"), None),
            (ConvertedType::Double, Value::String(b"_1"), None),
            (ConvertedType::Double, Value::String(b" 1"), None),
            (ConvertedType::Double, Value::Int(3), Some(AnyValue::Double(3.0))),
            (ConvertedType::Double, Value::Bool(false), Some(AnyValue::Double(0.0))),
            (ConvertedType::Double, Value::Empty, None),
            (ConvertedType::String, Value::Int(7), Some(AnyValue::String("7".to_owned()))),
            (ConvertedType::String, Value::Bool(false), Some(AnyValue::String("false".to_owned()))),
            (
                ConvertedType::String,
                Value::Nested(&nested),
                Some(AnyValue::String("[1]".to_owned())),
            ),
            (ConvertedType::String, Value::Empty, Some(AnyValue::String(String::new()))),
            (ConvertedType::String, Value::String(b"x"), None),
        ];
        for (to, value, expected) in cases {
            assert_eq!(to.convert(value), expected, "{value:?} to {to:?}");
        }
    }
}
