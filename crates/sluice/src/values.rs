//! Values of options on the command line.

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::builder::RangedI64ValueParser;

/// A whole number from 1 to `most`.
pub(crate) fn up_to<T: TryFrom<i64> + Clone + Send + Sync>(most: i64) -> RangedI64ValueParser<T> {
    RangedI64ValueParser::new().range(1..=most)
}

/// Reads a number of this range. `expected` is the error for any other text.
pub(crate) fn number(
    range: RangeInclusive<f64>,
    expected: &'static str,
) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| expected.to_owned())
    }
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 =
        text.trim_end_matches('s').parse().map_err(|_| "give a number of seconds".to_owned())?;
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err("give 0 to 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}
