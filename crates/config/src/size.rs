//! Sizes in bytes as Go's humanize package reads them: `4MiB`, `10 MB`, `512`; and for people.

/// Parses a size. The error says what is wrong, to follow "`5x` is not a size: ".
pub fn parse(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let is_number = |character: char| character.is_ascii_digit() || character == '.';
    let number_end = trimmed.find(|character| !is_number(character)).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(number_end);
    if number.is_empty() {
        return Err("it must start with a number".to_owned());
    }
    let unit = unit.trim().to_ascii_lowercase();
    let factor: u64 = match unit.as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "kib" => 1 << 10,
        "m" | "mb" => 1_000_000,
        "mib" => 1 << 20,
        "g" | "gb" => 1_000_000_000,
        "gib" => 1 << 30,
        "tb" => 1_000_000_000_000,
        "tib" => 1 << 40,
        _ => return Err(format!("`{unit}` is not a unit (B, KB, KiB, MB, MiB, GB, GiB, TB, TiB)")),
    };
    let too_large = || "it is too large".to_owned();
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(too_large);
    }
    let number: f64 = number.parse().map_err(|_| format!("`{number}` is not a number"))?;
    let bytes = number * factor as f64;
    if bytes >= u64::MAX as f64 { Err(too_large()) } else { Ok(bytes as u64) }
}

/// Writes a size with the largest binary unit that divides it: `4MiB`, `1500`, `0`.
pub fn format(bytes: u64) -> String {
    for (factor, unit) in [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    bytes.to_string()
}

/// A size for people, rounded: one decimal place below 100 of its unit, without a `.0`.
pub fn rounded(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut size, mut unit) = (bytes as f64, 0);
    // From here on the size would be shown as 1024.
    while size >= 1023.5 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    let tenths = (size * 10.0).round();
    let is_whole = tenths % 10.0 == 0.0 || tenths >= 1000.0;
    let decimals = if is_whole { 0 } else { 1 };
    format!("{size:.decimals$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_decimal_and_binary_units() {
        for (text, expected) in [
            ("512", 512),
            ("4MiB", 4 << 20),
            ("4 mib", 4 << 20),
            ("10 MB", 10_000_000),
            ("1.5KiB", 1536),
            ("1kB", 1000),
            ("2TiB", 2 << 40),
            (" 7 B ", 7),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn people_read_few_digits() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            ((36 << 10) + 100, "36.1 KiB"),
            ((100 << 10) + 600, "101 KiB"),
            ((1 << 20) - 1, "1 MiB"),
            ((1 << 20) - 600, "1023 KiB"),
            (64 << 20, "64 MiB"),
            (10 << 30, "10 GiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(rounded(bytes), expected, "{bytes}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, reason) in [
            ("", "it must start with a number"),
            ("MiB", "it must start with a number"),
            ("-1", "it must start with a number"),
            ("4 parsecs", "`parsecs` is not a unit (B, KB, KiB, MB, MiB, GB, GiB, TB, TiB)"),
            ("1.2.3", "`1.2.3` is not a number"),
            ("99999999999TiB", "it is too large"),
            ("99999999999.5TiB", "it is too large"),
        ] {
            assert_eq!(parse(text), Err(reason.to_owned()), "{text}");
        }
    }

    proptest! {
        /// Guarantee: a written size is read back, for every size.
        #[test]
        fn round_trips(bytes: u64) {
            prop_assert_eq!(parse(&format(bytes)), Ok(bytes));
            let mebibytes = (bytes >> 24) << 20;
            prop_assert_eq!(parse(&format(mebibytes)), Ok(mebibytes));
        }

        #[test]
        fn never_panics(text in ".{0,40}") {
            let _ = parse(&text);
        }
    }
}
