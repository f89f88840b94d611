//! The words that Prometheus has for units, as UCUM has them.

use std::borrow::Cow;

const UNITS: [(&str, &str); 26] = [
    ("days", "d"),
    ("hours", "h"),
    ("minutes", "min"),
    ("seconds", "s"),
    ("milliseconds", "ms"),
    ("microseconds", "us"),
    ("nanoseconds", "ns"),
    ("bytes", "By"),
    ("kibibytes", "KiBy"),
    ("mebibytes", "MiBy"),
    ("gibibytes", "GiBy"),
    ("tibibytes", "TiBy"),
    ("kilobytes", "KBy"),
    ("megabytes", "MBy"),
    ("gigabytes", "GBy"),
    ("terabytes", "TBy"),
    ("meters", "m"),
    ("volts", "V"),
    ("amperes", "A"),
    ("joules", "J"),
    ("watts", "W"),
    ("grams", "g"),
    ("celsius", "Cel"),
    ("hertz", "Hz"),
    ("ratio", "1"),
    ("percent", "%"),
];

const PER: [(&str, &str); 7] = [
    ("second", "s"),
    ("minute", "m"),
    ("hour", "h"),
    ("day", "d"),
    ("week", "w"),
    ("month", "mo"),
    ("year", "y"),
];

/// The unit in UCUM; unknown words stay.
pub(crate) fn ucum(unit: &str) -> Cow<'_, str> {
    let (word, per) = unit.split_once("_per_").unwrap_or((unit, ""));
    match per {
        "" => find(&UNITS, word).into(),
        per => format!("{}/{}", find(&UNITS, word), find(&PER, per)).into(),
    }
}

/// A metric's name without what its type and unit say.
pub(crate) fn trim_suffixes<'n>(name: &'n str, is_sum: bool, unit: &str) -> &'n str {
    let without = |name: &'n str, suffix: &str| {
        let stem = name.strip_suffix(suffix)?.strip_suffix('_')?;
        (!stem.is_empty() && !suffix.is_empty()).then_some(stem)
    };
    let name = without(name, if is_sum { "total" } else { "" }).unwrap_or(name);
    without(name, unit).unwrap_or(name)
}

fn find<'u>(units: &[(&str, &'u str)], word: &'u str) -> &'u str {
    units.iter().find(|(known, _)| *known == word).map_or(word, |(_, unit)| unit)
}

#[test]
fn only_suffixes_that_metadata_says_are_trimmed() {
    for (name, is_sum, unit, expected) in [
        ("a_seconds_total", true, "seconds", "a"),
        ("a_seconds_total", false, "seconds", "a_seconds_total"),
        ("a_seconds_total", true, "", "a_seconds"),
        ("a_bytes_per_second", false, "bytes_per_second", "a"),
        ("a_seconds", false, "bytes", "a_seconds"),
        ("aseconds", false, "seconds", "aseconds"),
        ("_total", true, "", "_total"),
        ("total", true, "", "total"),
    ] {
        assert_eq!(trim_suffixes(name, is_sum, unit), expected);
    }
}

#[test]
fn units_are_translated_word_by_word() {
    for (unit, expected) in [
        ("", ""),
        ("seconds", "s"),
        ("bytes_per_second", "By/s"),
        ("requests_per_minute", "requests/m"),
        ("widgets", "widgets"),
        ("seconds_per_", "s"),
    ] {
        assert_eq!(ucum(unit), expected);
    }
}
