//! Quantities as the API has them: `500m`, `1.5Gi`, `1e3`.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

const NANOS: i128 = 1_000_000_000;
/// The API keeps no more.
const LARGEST: i128 = i64::MAX as i128;
/// Digits and zeros of larger numbers would not be counted: they are larger than any that is kept.
const EXPONENT_LIMIT: i32 = 60;

/// An amount, exact to billionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity {
    units: i64,
    /// Of the same sign.
    nanos: i32,
}

impl Quantity {
    /// Whole units, rounded away from zero.
    pub fn units(self) -> i64 {
        self.units.saturating_add(i64::from(self.nanos.signum()))
    }

    /// As near as a double is.
    pub fn value(self) -> f64 {
        self.units as f64 + f64::from(self.nanos) / NANOS as f64
    }

    /// Thousandths, rounded away from zero: millicores.
    pub fn thousandths(self) -> i64 {
        let nanos = i128::from(self.units) * NANOS + i128::from(self.nanos);
        let rest = (nanos % 1_000_000).signum();
        let whole = (nanos / 1_000_000 + rest).clamp(-LARGEST, LARGEST);
        i64::try_from(whole).unwrap_or(i64::MAX)
    }

    fn of_nanos(nanos: i128) -> Quantity {
        let units = (nanos / NANOS).clamp(-LARGEST, LARGEST);
        let nanos = if units.abs() == LARGEST { 0 } else { nanos % NANOS };
        Quantity { units: units as i64, nanos: nanos as i32 }
    }
}

impl FromStr for Quantity {
    type Err = String;

    /// # Errors
    /// It is no quantity.
    fn from_str(text: &str) -> Result<Quantity, String> {
        parse(text).map(Quantity::of_nanos).ok_or_else(|| format!("`{text}` is no quantity"))
    }
}

/// Billionths.
fn parse(text: &str) -> Option<i128> {
    let (is_negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = rest.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (base, exponent) = scale(suffix)?;
    let mut digits: i128 = 0;
    let mut dropped = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        // More digits than these are beyond what is kept, of large and of small numbers.
        match digits.checked_mul(10).filter(|many| *many < i128::MAX / (1 << 60) / 10) {
            Some(many) => digits = many + i128::from(digit - b'0'),
            None => dropped += 1,
        }
    }
    let fraction_len = i32::try_from(fraction.len()).ok()?;
    let nanos = shifted(digits * base, exponent + 9 + dropped - fraction_len);
    Some(if is_negative { -nanos } else { nanos })
}

/// The factor of a suffix, and the power of ten beside it.
fn scale(suffix: &str) -> Option<(i128, i32)> {
    let decimal = |exponent| Some((1, exponent));
    let binary = |power: u32| Some((1 << (10 * power), 0));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            decimal(exponent.clamp(-EXPONENT_LIMIT, EXPONENT_LIMIT))
        }
    }
}

/// Times a power of ten, rounded up; as large as it can be rather than too large.
fn shifted(value: i128, exponent: i32) -> i128 {
    let Some(factor) = 10_i128.checked_pow(exponent.unsigned_abs()) else {
        return if value == 0 {
            0
        } else if exponent > 0 {
            LARGEST * NANOS
        } else {
            1
        };
    };
    if exponent >= 0 {
        value.checked_mul(factor).unwrap_or(LARGEST * NANOS)
    } else {
        value / factor + (value % factor).signum()
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Quantity;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a quantity")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Quantity, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Quantity, E> {
                Ok(Quantity::of_nanos(i128::from(value) * NANOS))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Quantity, E> {
                Ok(Quantity::of_nanos(i128::from(value) * NANOS))
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Quantity, E> {
                value.to_string().parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(text: &str) -> (i64, i64) {
        let quantity: Quantity = text.parse().unwrap_or_else(|error| panic!("{error}"));
        (quantity.units(), quantity.thousandths())
    }

    /// Guarantee: quantities mean what they mean in Go: rounded up, and never beyond 63 bits.
    #[test]
    fn quantities_are_read_as_the_api_means_them() {
        for (text, units, thousandths) in [
            ("0", 0, 0),
            ("100m", 1, 100),
            ("1500m", 2, 1500),
            ("2", 2, 2000),
            ("1.5", 2, 1500),
            (".5", 1, 500),
            ("5.", 5, 5000),
            ("+3", 3, 3000),
            ("-1500m", -2, -1500),
            ("1n", 1, 1),
            ("1e3", 1000, 1_000_000),
            ("1E-3", 1, 1),
            ("12E2", 1200, 1_200_000),
            ("1E", 1_000_000_000_000_000_000, i64::MAX),
            ("1Ki", 1024, 1_024_000),
            ("1.5Gi", 1_610_612_736, 1_610_612_736_000),
            ("128M", 128_000_000, 128_000_000_000),
            ("100E", i64::MAX, i64::MAX),
            ("9Ei", i64::MAX, i64::MAX),
            ("0.0000000001", 1, 1),
            ("1e-99999", 1, 1),
            ("0e99999", 0, 0),
            ("1e99999", i64::MAX, i64::MAX),
        ] {
            assert_eq!(values(text), (units, thousandths), "{text}");
        }
        let long = format!("1{}", "0".repeat(200));
        assert_eq!(values(&long), (i64::MAX, i64::MAX));
        assert_eq!(values(&format!("0.{}1", "0".repeat(200))), (1, 1));
        for text in ["", "-", ".", "x", "1x", "1 ", "1.2.3", "1Kii", "1e", "--1", "1e1.5", "é"] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
        let of_json = |text: &str| serde_json::from_str::<Quantity>(text).expect("is read");
        assert_eq!(of_json("\"2Gi\"").units(), 2 << 30);
        assert_eq!(
            [of_json("3"), of_json("-3"), of_json("0.25")].map(Quantity::thousandths),
            [3000, -3000, 250]
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[-+]?[0-9]{0,45}[.]?[0-9]{0,45}[a-zA-Z0-9-]{0,5}") {
            if let Ok(quantity) = text.parse::<Quantity>() {
                prop_assert!(quantity.thousandths().signum() == quantity.units().signum());
            }
        }

        #[test]
        fn whole_numbers_are_what_they_are(value in any::<i32>()) {
            let value = i64::from(value);
            prop_assert_eq!(values(&value.to_string()), (value, value * 1000));
            prop_assert_eq!(values(&format!("{value}m")).1, value);
        }
    }
}
