//! The values of fields that are no strings.

use crate::fault::Reason;
use crate::line::ValueAt;

const INVALID: Reason = Reason::Borrowed("invalid number");

/// The powers of ten that a double has exactly.
const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Reads a value without quotes.
pub(crate) fn read(text: &[u8]) -> Result<ValueAt, Reason> {
    match text {
        [b'0'..=b'9' | b'.' | b'-' | b'N' | b'n', ..] => number(text),
        b"t" | b"T" | b"true" | b"True" | b"TRUE" => Ok(ValueAt::Boolean(true)),
        b"f" | b"F" | b"false" | b"False" | b"FALSE" => Ok(ValueAt::Boolean(false)),
        _ => Err("invalid boolean".into()),
    }
}

fn number(text: &[u8]) -> Result<ValueAt, Reason> {
    if let Some(value) = short_decimal(text) {
        return Ok(ValueAt::Float(value));
    }
    match text {
        [digits @ .., b'i'] => integer(digits).map(ValueAt::Integer),
        [digits @ .., b'u'] => unsigned(digits).map(ValueAt::Unsigned),
        _ => float(text).map(ValueAt::Float),
    }
}

/// A decimal number that a double has to the last digit before it is divided, which then rounds
/// once: the nearest double.
fn short_decimal(text: &[u8]) -> Option<f64> {
    let (digits, is_negative) = match text {
        [b'-', digits @ ..] => (digits, true),
        _ => (text, false),
    };
    let (mut whole, mut point) = (0_u64, None);
    // No number of 19 digits overflows.
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    for (at, byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => whole = whole * 10 + u64::from(byte - b'0'),
            b'.' if point.is_none() && digits.len() > 1 => point = Some(at),
            _ => return None,
        }
    }
    let decimals = point.map_or(0, |point| digits.len() - point - 1);
    if whole > 1 << 53 {
        return None;
    }
    let value = whole as f64 / TENS[decimals];
    Some(if is_negative { -value } else { value })
}

fn float(text: &[u8]) -> Result<f64, Reason> {
    let is_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    if !text.iter().all(is_number) || !text.iter().any(u8::is_ascii_digit) {
        return Err(INVALID);
    }
    if text.iter().filter(|byte| **byte == b'.').count() > 1 {
        return Err(INVALID);
    }
    let value = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    value.filter(|value| value.is_finite()).ok_or(Reason::Borrowed("invalid float"))
}

fn integer(text: &[u8]) -> Result<i64, Reason> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let text = digits_of(digits).map(|_| text).ok_or(INVALID)?;
    let text = std::str::from_utf8(text).map_err(|_| INVALID)?;
    text.parse().map_err(|_| out_of_range("integer", text))
}

fn unsigned(digits: &[u8]) -> Result<u64, Reason> {
    let text = digits_of(digits).ok_or(INVALID)?;
    text.parse().map_err(|_| out_of_range("unsigned", text))
}

fn digits_of(digits: &[u8]) -> Option<&str> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)
}

fn out_of_range(kind: &str, digits: &str) -> Reason {
    let digits = &digits[..digits.len().min(64)];
    let parser = if kind == "integer" { "ParseInt" } else { "ParseUint" };
    let why = format!("strconv.{parser}: parsing \"{digits}\": value out of range");
    format!("unable to parse {kind} {digits}: {why}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(value: Result<ValueAt, Reason>) -> String {
        match value {
            Ok(value) => format!("{value:?}"),
            Err(reason) => reason.into_owned(),
        }
    }

    #[test]
    fn values_are_those_of_influxdb() {
        for (text, expected) in [
            ("1", "Float(1.0)"),
            ("-0", "Float(-0.0)"),
            ("1.", "Float(1.0)"),
            (".5", "Float(0.5)"),
            ("-.5e3", "Float(-500.0)"),
            ("1E+2", "Float(100.0)"),
            ("1e-400", "Float(0.0)"),
            ("9007199254740993", "Float(9007199254740992.0)"),
            ("0.1234567890123456789", "Float(0.12345678901234568)"),
            ("12i", "Integer(12)"),
            ("-9223372036854775808i", "Integer(-9223372036854775808)"),
            ("18446744073709551615u", "Unsigned(18446744073709551615)"),
            ("t", "Boolean(true)"),
            ("True", "Boolean(true)"),
            ("FALSE", "Boolean(false)"),
            ("tRUE", "invalid boolean"),
            ("inf", "invalid boolean"),
            ("+1", "invalid boolean"),
            ("", "invalid boolean"),
            ("NaN", "invalid number"),
            ("-", "invalid number"),
            (".", "invalid number"),
            ("-.", "invalid number"),
            ("1.2.3", "invalid number"),
            ("1x", "invalid number"),
            ("1.0i", "invalid number"),
            ("i", "invalid boolean"),
            ("-i", "invalid number"),
            ("--1i", "invalid number"),
            ("-1u", "invalid number"),
            ("1ui", "invalid number"),
            ("-inf", "invalid number"),
            ("0x1p3", "invalid number"),
            ("1_0", "invalid number"),
            ("1e", "invalid float"),
            ("1e400", "invalid float"),
            (
                "9223372036854775808i",
                "unable to parse integer 9223372036854775808: strconv.ParseInt: parsing \
                 \"9223372036854775808\": value out of range",
            ),
        ] {
            assert_eq!(text_of(read(text.as_bytes())), expected, "{text}");
        }
    }

    /// Guarantee: the short way gives the same number as the long one.
    #[test]
    fn short_decimals_are_rounded_right() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200_000 {
            let bits = random.u32(1..60);
            let mut text = random.u64(..1 << bits).to_string();
            text.insert(random.usize(..=text.len()), '.');
            if random.bool() {
                text.insert(0, '-');
            }
            let parsed: f64 = text.parse().expect("a number");
            if let Some(value) = short_decimal(text.as_bytes()) {
                assert_eq!(value.to_bits(), parsed.to_bits(), "{text}");
            }
        }
    }
}
