//! The unit of timestamps.

const MICRO: i64 = 1_000;
const MILLI: i64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;

/// The unit of a body's timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    #[default]
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Seconds,
    Minutes,
    Hours,
    /// Told from the size of each timestamp, as InfluxDB 3 does.
    Auto,
}

impl Precision {
    /// By the names of InfluxDB 1.x, 2.x and 3; none is nanoseconds.
    pub fn named(name: &str) -> Option<Precision> {
        Some(match name {
            "" | "n" | "ns" | "nanosecond" => Precision::Nanoseconds,
            "u" | "µ" | "us" | "µs" | "microsecond" => Precision::Microseconds,
            "ms" | "millisecond" => Precision::Milliseconds,
            "s" | "second" => Precision::Seconds,
            "m" => Precision::Minutes,
            "h" => Precision::Hours,
            "auto" => Precision::Auto,
            _ => return None,
        })
    }

    fn unit_ns(self, timestamp: i64) -> i64 {
        match self {
            Precision::Nanoseconds => 1,
            Precision::Microseconds => MICRO,
            Precision::Milliseconds => MILLI,
            Precision::Seconds => SECOND,
            Precision::Minutes => 60 * SECOND,
            Precision::Hours => 3600 * SECOND,
            Precision::Auto => match timestamp.unsigned_abs() {
                0..5_000_000_000 => SECOND,
                5_000_000_000..5_000_000_000_000 => MILLI,
                5_000_000_000_000..5_000_000_000_000_000 => MICRO,
                _ => 1,
            },
        }
    }

    /// A timestamp in nanoseconds since 1970, if InfluxDB knows the time.
    pub(crate) fn nanos(self, timestamp: i64) -> Option<i64> {
        let nanos = timestamp.checked_mul(self.unit_ns(timestamp))?;
        (FIRST_NS..=LAST_NS).contains(&nanos).then_some(nanos)
    }

    /// A time in nanoseconds since 1970 in this unit, cut to it. `Auto` counts nanoseconds.
    pub(crate) fn count(self, time_ns: i64) -> i64 {
        time_ns.div_euclid(self.step_ns())
    }

    /// The unit in nanoseconds; that of `Auto` is one.
    pub(crate) fn step_ns(self) -> i64 {
        match self {
            Precision::Auto => 1,
            _ => self.unit_ns(0),
        }
    }

    /// The time of arrival as the time of lines without one: InfluxDB cuts it to the unit.
    ///
    /// `now_ns`: nanoseconds since 1970.
    pub fn arrival_ns(self, now_ns: i64) -> i64 {
        match self {
            Precision::Auto => now_ns,
            _ => now_ns - now_ns.rem_euclid(self.unit_ns(now_ns)),
        }
    }
}

/// The times that InfluxDB knows.
pub(crate) const FIRST_NS: i64 = i64::MIN + 2;
pub(crate) const LAST_NS: i64 = i64::MAX - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_in_their_unit() {
        for (name, nanos) in [
            ("", 7),
            ("ns", 7),
            ("u", 7_000),
            ("us", 7_000),
            ("ms", 7_000_000),
            ("s", 7_000_000_000),
            ("m", 420_000_000_000),
            ("h", 25_200_000_000_000),
            ("auto", 7_000_000_000),
        ] {
            let precision = Precision::named(name).expect("a unit");
            assert_eq!(precision.nanos(7), Some(nanos), "{name}");
            assert_eq!(precision.nanos(-7), Some(-nanos), "{name}");
            if precision != Precision::Auto {
                for time_ns in [nanos, nanos + precision.step_ns() - 1] {
                    assert_eq!(precision.count(time_ns), 7, "{name}");
                }
                assert_eq!(precision.count(-nanos), -7, "{name}");
            }
        }
        assert_eq!(Precision::named("d"), None);
        for nanos in [i64::MIN, i64::MIN + 1, i64::MAX] {
            assert_eq!(Precision::Nanoseconds.nanos(nanos), None);
        }
        assert_eq!(Precision::Hours.nanos(i64::MAX / 1000), None);
        let now = 1_700_000_000_123_456_789;
        assert_eq!(Precision::Seconds.arrival_ns(now), 1_700_000_000_000_000_000);
        assert_eq!(Precision::Auto.arrival_ns(now), now);
        for (timestamp, unit) in [(now, 1), (now / 1000, MICRO), (now / MILLI, MILLI)] {
            assert_eq!(Precision::Auto.nanos(timestamp), Some(timestamp * unit));
        }
    }
}
