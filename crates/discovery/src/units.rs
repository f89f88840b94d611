//! Durations and sizes as Prometheus writes them: `1h30m`, `512MB`.

use std::time::Duration;

/// From the largest to the smallest, in milliseconds.
const UNITS: [(&str, u64); 7] = [
    ("y", 365 * 24 * 3_600_000),
    ("w", 7 * 24 * 3_600_000),
    ("d", 24 * 3_600_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// The longest duration of Go, in milliseconds.
const LONGEST_MS: u64 = i64::MAX as u64 / 1_000_000;

/// Whole numbers with units, the larger ones first; or `0`.
///
/// # Errors
/// The reason, to follow "`5x` is not a duration: ".
pub fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    let mut units = UNITS.iter();
    let (mut rest, mut total_ms) = (text, 0u64);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let unit_end = after.find(|next: char| next.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        if number.is_empty() || unit.is_empty() {
            return Err("whole numbers with units are expected, as in `1m30s`".to_owned());
        }
        if !UNITS.iter().any(|(known, _)| *known == unit) {
            return Err(format!("`{unit}` is not a unit (ms, s, m, h, d, w, y)"));
        }
        let Some((_, unit_ms)) = units.find(|(known, _)| *known == unit) else {
            return Err("larger units stand before smaller ones, each once".to_owned());
        };
        let part = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*unit_ms));
        let total = part.and_then(|part| part.checked_add(total_ms));
        let total = total.filter(|total| *total <= LONGEST_MS);
        total_ms = total.ok_or_else(|| "it is longer than 292 years".to_owned())?;
        rest = after;
    }
    Ok(Duration::from_millis(total_ms))
}

/// The text of a duration in whole milliseconds; years and weeks only if nothing is left over.
pub fn show(duration: Duration) -> String {
    let mut rest_ms = u64::try_from(duration.as_millis()).unwrap_or(LONGEST_MS);
    if rest_ms == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, unit_ms) in UNITS {
        let is_whole = rest_ms.is_multiple_of(unit_ms) || !matches!(unit, "y" | "w");
        if is_whole && rest_ms >= unit_ms {
            text.push_str(&format!("{}{unit}", rest_ms / unit_ms));
            rest_ms %= unit_ms;
        }
    }
    text
}

/// Bytes: numbers with units of powers of 1024, with or without `i`: `1MB` and `1MiB` are the same.
///
/// # Errors
/// The reason, to follow "`5x` is not a size: ".
pub fn size(text: &str) -> Result<u64, String> {
    if text == "0" {
        return Ok(0);
    }
    let is_number = |character: char| character.is_ascii_digit() || character == '.';
    let unit_at = text.find(|character| !is_number(character)).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let factor = match unit {
        "B" => 1,
        "" => return Err("a unit is missing, as in `10MB` (B, KB, MB, GB, TB)".to_owned()),
        _ => {
            let letter = unit.strip_suffix("iB").or_else(|| unit.strip_suffix('B'));
            let power = letter.filter(|letter| letter.len() == 1);
            let power = power.and_then(|letter| "KMGTPE".find(letter));
            let unknown = || format!("`{unit}` is not a unit (B, KB, KiB, MB, MiB, GB, GiB)");
            1u64 << (10 * (power.ok_or_else(unknown)? + 1))
        }
    };
    let number: f64 = number.parse().map_err(|_| format!("`{number}` is not a number"))?;
    let bytes = number * factor as f64;
    if bytes < i64::MAX as f64 { Ok(bytes as u64) } else { Err("it is too large".to_owned()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_those_of_prometheus() {
        const HOUR_S: u64 = 3600;
        for (text, seconds) in [
            ("0", 0),
            ("0s", 0),
            ("15s", 15),
            ("1m30s", 90),
            ("1d", 24 * HOUR_S),
            ("2w1d", 15 * 24 * HOUR_S),
            ("1y", 365 * 24 * HOUR_S),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(duration("1s5ms"), Ok(Duration::from_millis(1005)));
        for (text, reason) in [
            ("", "it is empty"),
            ("15", "whole numbers with units"),
            ("s", "whole numbers with units"),
            ("1.5s", "`.` is not a unit"),
            ("-1s", "whole numbers with units"),
            ("1us", "`us` is not a unit"),
            ("1s1m", "larger units stand before"),
            ("1s1s", "larger units stand before"),
            ("300y", "longer than 292 years"),
            ("99999999999999999999s", "longer than 292 years"),
        ] {
            let error = duration(text).expect_err(text);
            assert!(error.starts_with(reason) || error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn sizes_are_those_of_prometheus() {
        for (text, bytes) in
            [("0", 0), ("5B", 5), ("1KB", 1 << 10), ("1.5MiB", 3 << 19), ("2GB", 2 << 30)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "5", "MB", "1kB", "1MiBs", "1.2.3MB", "99999999999EB", "1XB", "é"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn durations_round_trip(milliseconds in 0..=LONGEST_MS) {
            let value = Duration::from_millis(milliseconds);
            prop_assert_eq!(duration(&show(value)), Ok(value));
        }

        #[test]
        fn no_text_panics(text in ".{0,20}|[0-9yms.KMB]{0,12}") {
            let _ = (duration(&text), size(&text));
        }
    }
}
