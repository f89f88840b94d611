//! Numbers of protobuf's JSON mapping: JSON numbers, or strings that contain one.

use super::error::JsonReason;

/// Every integer up to here is a double: above it, one with a fraction or an exponent is not exact.
const EXACT_DOUBLE: f64 = 9_007_199_254_740_992.0;

/// An integer of any OTLP type. `1e3` and `5.0` are integers too, where a double is exact.
pub(super) fn integer(text: &str) -> Result<i128, JsonReason> {
    if let Ok(value) = text.parse::<i64>() {
        return Ok(i128::from(value));
    }
    if let Ok(value) = text.parse::<u64>() {
        return Ok(i128::from(value));
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(JsonReason::OutOfRange("a 64-bit integer"));
    }
    match text.parse::<f64>() {
        Ok(value) if value.fract() == 0.0 && value.abs() <= EXACT_DOUBLE => Ok(value as i128),
        _ => Err(JsonReason::Expected("an integer")),
    }
}

/// A double; `NaN`, `Infinity` and `-Infinity` come as strings only: JSON has no such numbers.
pub(super) fn double(text: &str) -> Result<f64, JsonReason> {
    let value = text.parse::<f64>().map_err(|_| JsonReason::Expected("a number"))?;
    if value.is_infinite() && text.bytes().any(|byte| byte.is_ascii_digit()) {
        return Err(JsonReason::OutOfRange("a double"));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_every_width_are_read_exactly() {
        assert_eq!(integer("18446744073709551615"), Ok(i128::from(u64::MAX)));
        assert_eq!(integer("-9223372036854775808"), Ok(i128::from(i64::MIN)));
        assert_eq!(integer("1544712660300000001"), Ok(1_544_712_660_300_000_001));
        assert_eq!(integer("1e3"), Ok(1000));
        assert_eq!(integer("5.0"), Ok(5));
    }

    /// A wrong number would be worse than a refusal.
    #[test]
    fn what_is_no_exact_integer_is_refused() {
        for text in ["", "-", "x", "1x", "0x10", "5.5", "1e19", "1e-1", "NaN", "1e", "1e400"] {
            assert_eq!(integer(text), Err(JsonReason::Expected("an integer")), "{text}");
        }
        for text in ["18446744073709551616", "-9223372036854775809"] {
            assert_eq!(integer(text), Err(JsonReason::OutOfRange("a 64-bit integer")), "{text}");
        }
    }

    #[test]
    fn doubles_include_the_special_ones() {
        assert_eq!(double("-1.5e3"), Ok(-1500.0));
        assert_eq!(double("Infinity"), Ok(f64::INFINITY));
        assert_eq!(double("-Infinity"), Ok(f64::NEG_INFINITY));
        assert!(double("NaN").is_ok_and(f64::is_nan));
        assert_eq!(double("1e999"), Err(JsonReason::OutOfRange("a double")));
        assert_eq!(double("-1e999"), Err(JsonReason::OutOfRange("a double")));
        assert_eq!(double(""), Err(JsonReason::Expected("a number")));
        assert_eq!(double("one"), Err(JsonReason::Expected("a number")));
    }
}
