//! Sizes in bytes as Go's humanize package reads them: `4MiB`, `10 MB`, `512`.

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
