//! Methods of times and durations.

use sluice_otlp::civil_date;

use super::value::Val;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Nanosecond,
    Unix,
    UnixMilli,
    UnixNano,
    IsZero,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
    Nanoseconds,
}

const NAMES: [(&str, Method); 16] = [
    ("Year", Method::Year),
    ("Month", Method::Month),
    ("Day", Method::Day),
    ("Hour", Method::Hour),
    ("Minute", Method::Minute),
    ("Second", Method::Second),
    ("Nanosecond", Method::Nanosecond),
    ("Unix", Method::Unix),
    ("UnixMilli", Method::UnixMilli),
    ("UnixNano", Method::UnixNano),
    ("IsZero", Method::IsZero),
    ("Hours", Method::Hours),
    ("Minutes", Method::Minutes),
    ("Seconds", Method::Seconds),
    ("Milliseconds", Method::Milliseconds),
    ("Nanoseconds", Method::Nanoseconds),
];

impl Method {
    pub(super) fn named(name: &str) -> Option<Method> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, method)| *method)
    }

    /// Nothing if the value has no such method.
    pub(super) fn call(self, value: &Val<'_>) -> Option<Val<'static>> {
        match *value {
            Val::Time(at) => self.of_time(at),
            Val::Duration(length) => self.of_duration(length),
            _ => None,
        }
    }

    fn of_time(self, at: i128) -> Option<Val<'static>> {
        let seconds = at.div_euclid(1_000_000_000) as i64;
        let (year, month, day) = civil_date(seconds.div_euclid(86_400));
        let of_day = seconds.rem_euclid(86_400);
        Some(Val::Int(match self {
            Method::Year => year,
            Method::Month => month,
            Method::Day => day,
            Method::Hour => of_day / 3600,
            Method::Minute => of_day / 60 % 60,
            Method::Second => of_day % 60,
            Method::Nanosecond => at.rem_euclid(1_000_000_000) as i64,
            Method::Unix => seconds,
            Method::UnixMilli => at.div_euclid(1_000_000) as i64,
            Method::UnixNano => at as i64,
            Method::IsZero => return Some(Val::Bool(at == super::value::NO_TIME)),
            _ => return None,
        }))
    }

    fn of_duration(self, length: i64) -> Option<Val<'static>> {
        let in_units = |unit: f64| Val::Float(length as f64 / unit);
        Some(match self {
            Method::Hours => in_units(3.6e12),
            Method::Minutes => in_units(6e10),
            Method::Seconds => in_units(1e9),
            Method::Milliseconds => Val::Int(length / 1_000_000),
            Method::Nanoseconds => Val::Int(length),
            _ => return None,
        })
    }
}
