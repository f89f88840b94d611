//! Numbers as Prometheus reads and writes them.

/// The one NaN of a scraped value: all others are free to have a meaning.
const NORMAL_NAN: u64 = 0x7ff8_0000_0000_0001;
/// The value that says that a series has ended.
const STALE_NAN: u64 = 0x7ff0_0000_0000_0002;

pub(crate) fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE_NAN
}

/// A decimal number, or the words for infinity and NaN in any case. None for any other text, and
/// for a number that is out of range.
pub(crate) fn parse_float(text: &[u8]) -> Option<f64> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    if value.is_finite() {
        return Some(value);
    }
    let (word, has_sign) = match text.split_first() {
        Some((b'+' | b'-', word)) => (word, true),
        _ => (text, false),
    };
    match word.first()? {
        b'i' | b'I' => Some(value),
        b'n' | b'N' if !has_sign => Some(f64::from_bits(NORMAL_NAN)),
        _ => None,
    }
}

/// Seconds as milliseconds, cut. None for infinity and NaN.
pub(crate) fn parse_seconds(text: &[u8]) -> Option<i64> {
    parse_float(text).filter(|seconds| seconds.is_finite()).map(|seconds| (seconds * 1e3) as i64)
}

/// Nanoseconds since 1970; zero before that, and for what is no time.
pub(crate) fn nanos_of_seconds(seconds: f64) -> u64 {
    let whole = seconds.trunc();
    let nanos = ((seconds - whole) * 1e9) as u64;
    (whole as u64).saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Nanoseconds since 1970; zero before that.
pub(crate) fn nanos_of_millis(millis: i64) -> u64 {
    u64::try_from(millis).unwrap_or(0).saturating_mul(1_000_000)
}

/// The form that the labels `le` and `quantile` have in OpenMetrics: `1.0`, `0.25`, `1e+06`.
pub(crate) fn format_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = value.to_string();
    if plain.contains('.') { plain } else { plain + ".0" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: the words for infinity and NaN count in any case, and nothing else that Rust or
    /// Go may take for a number.
    #[test]
    fn numbers_are_those_of_prometheus() {
        for (text, value) in [
            ("1", 1.0),
            ("-0.5", -0.5),
            ("5.", 5.0),
            (".5", 0.5),
            ("1e5", 1e5),
            ("1E+5", 1e5),
            ("+Inf", f64::INFINITY),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("1e-999", 0.0),
        ] {
            assert_eq!(parse_float(text.as_bytes()), Some(value), "{text}");
        }
        for text in ["NaN", "nan", "NAN"] {
            assert_eq!(parse_float(text.as_bytes()).map(f64::to_bits), Some(NORMAL_NAN), "{text}");
        }
        for text in [
            "", ".", "+", "-NaN", "+nan", "1_000", "0x1p-3", "0x10", "1e999", "-1e999", "true",
            "1 ", " 1", "infin", "\u{661}",
        ] {
            assert_eq!(parse_float(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn boundaries_are_written_as_openmetrics_has_them() {
        for (value, text) in [
            (0.0, "0.0"),
            (1.0, "1.0"),
            (-1.0, "-1.0"),
            (0.25, "0.25"),
            (10.0, "10.0"),
            (123_456.0, "123456.0"),
            (1_234_567.0, "1.234567e+06"),
            (1e6, "1e+06"),
            (1e-5, "1e-05"),
            (1.5e21, "1.5e+21"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(format_float(value), text);
        }
    }

    #[test]
    fn times_before_1970_are_none() {
        assert_eq!(nanos_of_seconds(1.5), 1_500_000_000);
        assert_eq!(nanos_of_seconds(-1.5), 0);
        assert_eq!(nanos_of_seconds(f64::NAN), 0);
        assert_eq!(nanos_of_seconds(f64::INFINITY), u64::MAX);
        assert_eq!(nanos_of_seconds(18_446_744_073.9), u64::MAX);
        assert_eq!(nanos_of_millis(-1), 0);
        assert_eq!(nanos_of_millis(1), 1_000_000);
        assert_eq!(nanos_of_millis(i64::MAX), u64::MAX);
        assert_eq!(parse_seconds(b"1.0015"), Some(1001));
        assert_eq!(parse_seconds(b"NaN"), None);
    }
}
