//! Values during an evaluation: borrowed from the record where they can be.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::Write as _;

use sluice_otlp::{AnyValue, civil_time};

#[derive(Clone, Debug)]
pub(super) enum Val<'a> {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    Array(Cow<'a, [AnyValue]>),
    Map(Cow<'a, [(String, AnyValue)]>),
    /// Nanoseconds since 1970.
    Time(i128),
    /// Nanoseconds.
    Duration(i64),
}

/// Go's time zero, the first of January of the year 1, at which a record without time is.
pub(super) const NO_TIME: i128 = -62_135_596_800_000_000_000;

impl<'a> Val<'a> {
    pub(super) fn of(value: &'a AnyValue) -> Val<'a> {
        match value {
            AnyValue::Empty => Val::Nil,
            AnyValue::String(text) => Val::Text(Cow::Borrowed(text)),
            AnyValue::Bool(value) => Val::Bool(*value),
            AnyValue::Int(value) => Val::Int(*value),
            AnyValue::Double(value) => Val::Float(*value),
            AnyValue::Bytes(bytes) => Val::Bytes(Cow::Borrowed(bytes)),
            AnyValue::Array(items) => Val::Array(Cow::Borrowed(items)),
            AnyValue::Map(map) => Val::Map(Cow::Borrowed(map)),
        }
    }

    pub(super) fn owned(value: AnyValue) -> Val<'a> {
        match value {
            AnyValue::Empty => Val::Nil,
            AnyValue::String(text) => Val::Text(Cow::Owned(text)),
            AnyValue::Bool(value) => Val::Bool(value),
            AnyValue::Int(value) => Val::Int(value),
            AnyValue::Double(value) => Val::Float(value),
            AnyValue::Bytes(bytes) => Val::Bytes(Cow::Owned(bytes)),
            AnyValue::Array(items) => Val::Array(Cow::Owned(items)),
            AnyValue::Map(map) => Val::Map(Cow::Owned(map)),
        }
    }

    /// For a record, which has neither times nor durations: they become text and nanoseconds.
    pub(super) fn into_value(self) -> AnyValue {
        match self {
            Val::Nil => AnyValue::Empty,
            Val::Bool(value) => AnyValue::Bool(value),
            Val::Int(value) | Val::Duration(value) => AnyValue::Int(value),
            Val::Float(value) => AnyValue::Double(value),
            Val::Text(text) => AnyValue::String(text.into_owned()),
            Val::Bytes(bytes) => AnyValue::Bytes(bytes.into_owned()),
            Val::Array(items) => AnyValue::Array(items.into_owned()),
            Val::Map(map) => AnyValue::Map(map.into_owned()),
            Val::Time(_) => AnyValue::String(self.shown()),
        }
    }

    /// The name of the type, as the function `type` gives it.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Val::Nil => "nil",
            Val::Bool(_) => "bool",
            Val::Int(_) => "int",
            Val::Float(_) => "float",
            Val::Text(_) => "string",
            Val::Bytes(_) | Val::Array(_) => "array",
            Val::Map(_) => "map",
            Val::Time(_) => "time.Time",
            Val::Duration(_) => "time.Duration",
        }
    }

    /// Bytes behind the value: of its text, or of the values within it.
    pub(super) fn size(&self) -> usize {
        match self {
            Val::Text(text) => text.len(),
            Val::Bytes(bytes) => bytes.len(),
            Val::Array(items) => items.iter().map(weight).sum(),
            Val::Map(map) => map_weight(map),
            _ => 0,
        }
    }

    /// Bytes that a clone copies: none of what is borrowed.
    pub(super) fn owned_size(&self) -> usize {
        match self {
            Val::Text(Cow::Owned(_))
            | Val::Bytes(Cow::Owned(_))
            | Val::Array(Cow::Owned(_))
            | Val::Map(Cow::Owned(_)) => self.size(),
            _ => 0,
        }
    }

    /// The value as Go's `%v` shows it.
    pub(super) fn shown(&self) -> String {
        let mut out = String::new();
        self.show(&mut out);
        out
    }

    fn show(&self, out: &mut String) {
        // Writing to a string cannot fail.
        let _ = match self {
            Val::Nil => out.write_str("<nil>"),
            Val::Bool(value) => write!(out, "{value}"),
            Val::Int(value) => write!(out, "{value}"),
            Val::Duration(value) => write!(out, "{}", duration_text(*value)),
            Val::Float(value) => out.write_str(&float_text(*value)),
            Val::Text(text) => out.write_str(text),
            Val::Bytes(bytes) => write!(out, "{}", format!("{bytes:?}").replace(',', "")),
            Val::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index > 0 { " " } else { "" });
                    Val::of(item).show(out);
                }
                out.write_str("]")
            }
            Val::Map(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_by(|one, other| one.0.cmp(&other.0));
                out.push_str("map[");
                for (index, (key, value)) in entries.into_iter().enumerate() {
                    out.push_str(if index > 0 { " " } else { "" });
                    out.push_str(key);
                    out.push(':');
                    Val::of(value).show(out);
                }
                out.write_str("]")
            }
            Val::Time(at) => out.write_str(&time_text(*at)),
        };
    }
}

/// Memory of a value and of the key of one, each without its text.
pub(super) const VALUE_BYTES: usize = 32;
pub(super) const KEY_BYTES: usize = 24;

/// Bytes of memory that a value takes, roughly.
pub(crate) fn weight(value: &AnyValue) -> usize {
    VALUE_BYTES
        + match value {
            AnyValue::String(text) => text.len(),
            AnyValue::Bytes(bytes) => bytes.len(),
            AnyValue::Array(items) => items.iter().map(weight).sum(),
            AnyValue::Map(map) => map_weight(map),
            _ => 0,
        }
}

fn map_weight(map: &[(String, AnyValue)]) -> usize {
    map.iter().map(|(key, value)| KEY_BYTES + key.len() + weight(value)).sum()
}

/// Whole and fractional numbers compare by value, maps without order.
pub(super) fn equal(one: &Val<'_>, other: &Val<'_>) -> bool {
    match (one, other) {
        (Val::Nil, Val::Nil) => true,
        (Val::Bool(one), Val::Bool(other)) => one == other,
        (Val::Int(one), Val::Int(other)) => one == other,
        (Val::Int(whole), Val::Float(float)) | (Val::Float(float), Val::Int(whole)) => {
            *whole as f64 == *float
        }
        (Val::Float(one), Val::Float(other)) => one == other,
        (Val::Text(one), Val::Text(other)) => one == other,
        (Val::Bytes(one), Val::Bytes(other)) => one == other,
        (Val::Time(one), Val::Time(other)) => one == other,
        (Val::Duration(one), Val::Duration(other)) => one == other,
        (Val::Array(one), Val::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other.iter()).all(|(a, b)| same(a, b))
        }
        (Val::Map(one), Val::Map(other)) => same_maps(one, other),
        _ => false,
    }
}

fn same(one: &AnyValue, other: &AnyValue) -> bool {
    equal(&Val::of(one), &Val::of(other))
}

pub(crate) fn same_maps(one: &[(String, AnyValue)], other: &[(String, AnyValue)]) -> bool {
    const FEW: usize = 32;
    let mut table: Option<HashMap<&str, &AnyValue>> = None;
    one.len() == other.len()
        && one.iter().enumerate().all(|(place, (key, value))| {
            // Two maps that came the same way have the same order.
            let found = match &other[place] {
                (name, found) if name == key => Some(found),
                _ if other.len() <= FEW => {
                    other.iter().find(|(name, _)| name == key).map(|(_, found)| found)
                }
                _ => {
                    let entries = || other.iter().map(|(name, it)| (name.as_str(), it)).collect();
                    table.get_or_insert_with(entries).get(key.as_str()).copied()
                }
            };
            found.is_some_and(|found| same(value, found))
        })
}

/// The order of two values, where they have one.
pub(super) fn order(one: &Val<'_>, other: &Val<'_>) -> Option<Ordering> {
    match (one, other) {
        (Val::Int(one), Val::Int(other)) | (Val::Duration(one), Val::Duration(other)) => {
            Some(one.cmp(other))
        }
        (Val::Int(whole), Val::Float(float)) => (*whole as f64).partial_cmp(float),
        (Val::Float(float), Val::Int(whole)) => float.partial_cmp(&(*whole as f64)),
        (Val::Float(one), Val::Float(other)) => one.partial_cmp(other),
        (Val::Text(one), Val::Text(other)) => Some(one.cmp(other)),
        (Val::Time(one), Val::Time(other)) => Some(one.cmp(other)),
        _ => None,
    }
}

/// A number as Go's `%v` shows it: with an exponent below 1e-4 and from 1e6.
fn float_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn duration_text(nanoseconds: i64) -> String {
    let length = std::time::Duration::from_nanos(nanoseconds.unsigned_abs());
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let seconds = length.as_secs();
    // As Go shows it, every unit below the largest is there: `1h0m5s`.
    let rest = format!("{}", seconds % 60);
    let fraction = format!("{:09}", length.subsec_nanos());
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    match seconds {
        0 => format!("{sign}{}", sluice_config::duration::format(length)),
        1..60 => format!("{sign}{rest}{point}{fraction}s"),
        60..3600 => format!("{sign}{}m{rest}{point}{fraction}s", seconds / 60),
        _ => format!("{sign}{}h{}m{rest}{point}{fraction}s", seconds / 3600, seconds / 60 % 60),
    }
}

fn time_text(at: i128) -> String {
    let seconds = at.div_euclid(1_000_000_000) as i64;
    let fraction = format!("{:09}", at.rem_euclid(1_000_000_000));
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{}{point}{fraction} +0000 UTC", civil_time(seconds).replace('T', " "))
}

/// Levels of arrays and maps within each other.
pub(super) fn depth(value: &AnyValue) -> usize {
    match value {
        AnyValue::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        AnyValue::Map(map) => 1 + map.iter().map(|(_, value)| depth(value)).max().unwrap_or(0),
        _ => 0,
    }
}
