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

fn find<'u>(units: &[(&str, &'u str)], word: &'u str) -> &'u str {
    units.iter().find(|(known, _)| *known == word).map_or(word, |(_, unit)| unit)
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
