//! Durations as Go writes them: `300ms`, `1.5h`, `1h30m`.

use std::time::Duration;

/// The maximum of Go's `time.Duration`: about 292 years.
const LIMIT_NS: u128 = i64::MAX as u128;

/// Parses a duration as Go's `time.ParseDuration` does, except that negative durations are errors.
/// The error says what is wrong, to follow "`5x` is not a duration: ".
pub fn parse(text: &str) -> Result<Duration, String> {
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    if unsigned.starts_with('-') {
        return Err("it is negative".to_owned());
    }
    if unsigned == "0" {
        return Ok(Duration::ZERO);
    }
    if unsigned.is_empty() {
        return Err("it is empty".to_owned());
    }
    let mut rest = unsigned;
    let mut total_ns: u128 = 0;
    while !rest.is_empty() {
        let part_ns;
        (part_ns, rest) = parse_part(rest)?;
        total_ns = total_ns.saturating_add(part_ns);
    }
    match total_ns {
        0..=LIMIT_NS => Ok(Duration::from_nanos(total_ns as u64)),
        _ => Err("it is longer than 292 years".to_owned()),
    }
}

/// One number and its unit from the start of `text`, in nanoseconds, and the rest of the text.
fn parse_part(text: &str) -> Result<(u128, &str), String> {
    let is_number = |character: char| character.is_ascii_digit() || character == '.';
    let number_end = text.find(|character| !is_number(character)).unwrap_or(text.len());
    let (number, rest) = text.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err("a number is expected before each unit".to_owned());
    }
    let unit_end = rest.find(is_number).unwrap_or(rest.len());
    let (unit_name, rest) = rest.split_at(unit_end);
    let unit_ns: u128 = match unit_name {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "" => return Err("a unit is missing (ns, us, ms, s, m, h)".to_owned()),
        _ => return Err(format!("`{unit_name}` is not a unit (ns, us, ms, s, m, h)")),
    };
    let whole = match whole {
        "" => 0,
        _ => whole.parse::<u64>().map_err(|_| "the number is too large".to_owned())?,
    };
    // Digits beyond the 18th stand for less than a nanosecond in every unit.
    let fraction = &fraction[..fraction.len().min(18)];
    let fraction_ns = fraction.parse().unwrap_or(0) * unit_ns / 10_u128.pow(fraction.len() as u32);
    Ok((u128::from(whole) * unit_ns + fraction_ns, rest))
}

/// Writes a duration so that [`parse`] and Go read the same back: `1h30m`, `1.5s`, `300ms`, `0s`.
pub fn format(duration: Duration) -> String {
    let total_ns = duration.as_nanos();
    let (smallest_ns, smallest) = match total_ns {
        1..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let mut text = String::new();
    let mut rest_ns = total_ns;
    for (unit_ns, unit) in [(3_600_000_000_000, "h"), (60_000_000_000, "m")] {
        if rest_ns >= unit_ns {
            text.push_str(&format!("{}{unit}", rest_ns / unit_ns));
            rest_ns %= unit_ns;
        }
    }
    if rest_ns > 0 || text.is_empty() {
        text.push_str(&format!("{}{smallest}", decimal(rest_ns, smallest_ns)));
    }
    text
}

fn decimal(value_ns: u128, unit_ns: u128) -> String {
    let fraction = value_ns % unit_ns;
    if fraction == 0 {
        return (value_ns / unit_ns).to_string();
    }
    let width = unit_ns.ilog10() as usize;
    format!("{}.{}", value_ns / unit_ns, format!("{fraction:0width$}").trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Scenario: the examples of Go's own documentation. Guarantee: the same values.
    #[test]
    fn reads_what_go_reads() {
        for (text, expected_ns) in [
            ("0", 0),
            ("5s", 5_000_000_000),
            ("300ms", 300_000_000),
            ("1.5h", 5_400_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("2h45m30.5s", 9_930_500_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("+1us", 1_000),
            ("1µs", 1_000),
            ("10ns", 10),
            ("0.3333333333333333333h", 1_199_999_999_999),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(expected_ns)), "{text}");
        }
    }

    /// Scenario: texts that are no duration. Guarantee: an error that says why.
    #[test]
    fn refuses_what_go_refuses() {
        for (text, reason) in [
            ("", "it is empty"),
            ("5", "a unit is missing (ns, us, ms, s, m, h)"),
            ("5x", "`x` is not a unit (ns, us, ms, s, m, h)"),
            ("5 s", "` s` is not a unit (ns, us, ms, s, m, h)"),
            ("1d", "`d` is not a unit (ns, us, ms, s, m, h)"),
            ("s", "a number is expected before each unit"),
            (".s", "a number is expected before each unit"),
            ("1.2.3s", "a number is expected before each unit"),
            ("-5s", "it is negative"),
            ("99999999999999999999s", "the number is too large"),
            ("9999999h", "it is longer than 292 years"),
        ] {
            assert_eq!(parse(text), Err(reason.to_owned()), "{text}");
        }
    }

    #[test]
    fn formats_for_people() {
        for (duration, text) in [
            (Duration::ZERO, "0s"),
            (Duration::from_secs(5), "5s"),
            (Duration::from_millis(1500), "1.5s"),
            (Duration::from_millis(20), "20ms"),
            (Duration::from_secs(300), "5m"),
            (Duration::from_secs(5400), "1h30m"),
            (Duration::from_nanos(1_000_001), "1.000001ms"),
        ] {
            assert_eq!(format(duration), text);
        }
    }

    proptest! {
        /// Guarantee: a written duration is read back, for every duration that Go can represent.
        #[test]
        fn round_trips(nanoseconds in 0..=i64::MAX as u64) {
            let duration = Duration::from_nanos(nanoseconds);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }

        /// Guarantee: no input makes the parser panic.
        #[test]
        fn never_panics(text in ".{0,40}") {
            let _ = parse(&text);
        }
    }
}
