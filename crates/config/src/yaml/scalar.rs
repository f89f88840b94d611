//! The type and value of a plain scalar, as in Go's yaml.v3 (`resolve.go`): YAML 1.2's core schema
//! with octal numbers, binary numbers and underscores as in YAML 1.1, but without `yes` and `on`.

use super::node::ScalarValue;

/// Resolves the text of an unquoted scalar.
pub fn resolve_plain(text: &str) -> ScalarValue {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return ScalarValue::Null,
        "true" | "True" | "TRUE" => return ScalarValue::Boolean(true),
        "false" | "False" | "FALSE" => return ScalarValue::Boolean(false),
        ".nan" | ".NaN" | ".NAN" => return ScalarValue::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return ScalarValue::Float(f64::INFINITY);
        }
        "-.inf" | "-.Inf" | "-.INF" => return ScalarValue::Float(f64::NEG_INFINITY),
        _ => {}
    }
    match text.as_bytes()[0] {
        b'0'..=b'9' | b'+' | b'-' => number(&text.replace('_', "")),
        b'.' => decimal(text),
        _ => ScalarValue::String,
    }
}

fn number(text: &str) -> ScalarValue {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let value = magnitude(digits).map(i128::from);
    let value = value.map(|value| if text.starts_with('-') { -value } else { value });
    let value = value.filter(|value| *value >= i128::from(i64::MIN));
    value.map_or_else(|| decimal(text), ScalarValue::Integer)
}

/// An unsigned whole number with Go's prefixes: `0x`, `0o`, `0b`, and a leading `0` for octal.
fn magnitude(digits: &str) -> Option<u64> {
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    // `from_str_radix` would accept a sign.
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

/// A decimal number: `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`, else a string. Rust
/// parses exactly these, and some words. Go leaves a number that does not fit as a string.
fn decimal(text: &str) -> ScalarValue {
    let has_words =
        text.contains(|first: char| first.is_ascii_alphabetic() && !"eE".contains(first));
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && !has_words => ScalarValue::Float(value),
        _ => ScalarValue::String,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::ScalarValue::{Boolean, Float, Integer, Null};
    use super::*;

    /// Scenario: scalars on which YAML's versions differ. Guarantee: the values of yaml.v3.
    #[test]
    fn resolves_like_yaml_v3() {
        for (text, expected) in [
            ("", Null),
            ("~", Null),
            ("null", Null),
            ("nULL", ScalarValue::String),
            ("true", Boolean(true)),
            ("FALSE", Boolean(false)),
            ("yes", ScalarValue::String),
            ("on", ScalarValue::String),
            ("n", ScalarValue::String),
            ("0", Integer(0)),
            ("-7", Integer(-7)),
            ("+7", Integer(7)),
            ("0644", Integer(420)),
            ("0o644", Integer(420)),
            ("-0o17", Integer(-15)),
            ("0x1F", Integer(31)),
            ("0b101", Integer(5)),
            ("1_000_000", Integer(1_000_000)),
            ("0899", Float(899.0)),
            ("9223372036854775807", Integer(i64::MAX.into())),
            ("-9223372036854775808", Integer(i64::MIN.into())),
            ("18446744073709551615", Integer(u64::MAX.into())),
            ("18446744073709551616", Float(18446744073709551616.0)),
            ("1.5", Float(1.5)),
            ("1.", Float(1.0)),
            (".5", Float(0.5)),
            ("1e3", Float(1000.0)),
            ("-1.5E-2", Float(-0.015)),
            (".inf", Float(f64::INFINITY)),
            ("-.Inf", Float(f64::NEG_INFINITY)),
            ("1e999", ScalarValue::String),
            ("2024-01-31", ScalarValue::String),
            ("2024-01-31T10:00:00Z", ScalarValue::String),
            ("0.0.0.0", ScalarValue::String),
            ("127.0.0.1:4317", ScalarValue::String),
            ("10s", ScalarValue::String),
            ("0x", ScalarValue::String),
            ("-", ScalarValue::String),
            ("--1", ScalarValue::String),
            ("0-5", ScalarValue::String),
            (".", ScalarValue::String),
            ("1:20", ScalarValue::String),
            ("inf", ScalarValue::String),
            ("nan", ScalarValue::String),
        ] {
            assert_eq!(resolve_plain(text), expected, "{text}");
        }
        assert!(matches!(resolve_plain(".nan"), Float(value) if value.is_nan()));
    }

    proptest! {
        #[test]
        fn whole_numbers_round_trip(value: i64) {
            prop_assert_eq!(resolve_plain(&value.to_string()), Integer(value.into()));
        }

        #[test]
        fn fractions_round_trip(value in proptest::num::f64::NORMAL) {
            prop_assert_eq!(resolve_plain(&format!("{value:e}")), Float(value));
        }

        #[test]
        fn other_radixes_round_trip(value in 0..=i64::MAX) {
            prop_assert_eq!(resolve_plain(&format!("{value:#x}")), Integer(value.into()));
            prop_assert_eq!(resolve_plain(&format!("{value:#o}")), Integer(value.into()));
            prop_assert_eq!(resolve_plain(&format!("{value:#b}")), Integer(value.into()));
            prop_assert_eq!(resolve_plain(&format!("0{value:o}")), Integer(value.into()));
        }

        #[test]
        fn never_panics(text in ".{0,40}") {
            resolve_plain(&text);
        }
    }
}
