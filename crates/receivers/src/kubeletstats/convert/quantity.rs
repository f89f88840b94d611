//! Quantities of Kubernetes: `100m`, `1.5`, `128Mi`, `2e3`.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// In the unit that it has no suffix for: cores, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::kubeletstats) struct Quantity(pub(in crate::kubeletstats) f64);

impl Quantity {
    /// Whole units. A part of one counts as one, as in Kubernetes.
    pub(in crate::kubeletstats) fn whole(self) -> f64 {
        self.0.ceil()
    }

    fn parse(text: &str) -> Option<Quantity> {
        let (is_negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let is_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
        let end = rest.bytes().position(|byte| !is_number(&byte)).unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let number: f64 = number.parse().ok()?;
        let value = match suffix {
            "" => number,
            "Ki" => number * f64::from(1 << 10),
            "Mi" => number * f64::from(1 << 20),
            "Gi" => number * f64::from(1 << 30),
            "Ti" => number * (1u64 << 40) as f64,
            "Pi" => number * (1u64 << 50) as f64,
            "Ei" => number * (1u64 << 60) as f64,
            suffix => {
                let exponent = match suffix {
                    "n" => -9,
                    "u" => -6,
                    "m" => -3,
                    "k" => 3,
                    "M" => 6,
                    "G" => 9,
                    "T" => 12,
                    "P" => 15,
                    "E" => 18,
                    _ => suffix.strip_prefix(['e', 'E'])?.parse::<i8>().ok()?,
                };
                // A decimal number times a power of ten that is no double itself.
                format!("{number}e{exponent}").parse().ok()?
            }
        };
        let value = if is_negative { -value } else { value };
        Some(Quantity(value)).filter(|it| it.0.is_finite())
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
        deserializer.deserialize_any(Text)
    }
}

struct Text;

impl Visitor<'_> for Text {
    type Value = Quantity;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a quantity such as `100m` or `128Mi`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Quantity, E> {
        Quantity::parse(text).ok_or_else(|| E::custom("a quantity is none"))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Quantity, E> {
        Ok(Quantity(number as f64))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Quantity, E> {
        Ok(Quantity(number as f64))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Quantity, E> {
        Ok(Quantity(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_those_of_kubernetes() {
        for (text, expected) in [
            ("\"100m\"", Some(0.1)),
            ("\"1.5\"", Some(1.5)),
            ("\"2\"", Some(2.0)),
            ("2", Some(2.0)),
            ("\"128Mi\"", Some(134_217_728.0)),
            ("\"1Ei\"", Some(1_152_921_504_606_846_976.0)),
            ("\"1G\"", Some(1e9)),
            ("\"2e3\"", Some(2000.0)),
            ("\"2E-3\"", Some(0.002)),
            ("\"-.5k\"", Some(-500.0)),
            ("\"32564740Ki\"", Some(33_346_293_760.0)),
            ("\"\"", None),
            ("\"Mi\"", None),
            ("\"1Zi\"", None),
            ("\"1e999\"", None),
            ("\"nan\"", None),
            ("\"1_0\"", None),
            ("[]", None),
        ] {
            let found = serde_json::from_str::<Quantity>(text).ok();
            assert_eq!(found, expected.map(Quantity), "{text}");
        }
        assert_eq!(Quantity(0.5).whole(), 1.0);
    }
}
