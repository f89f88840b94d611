//! A parser of line protocol that is simple rather than fast, and points that all parsers agree on.

#![allow(dead_code, reason = "each test file uses a part of this")]

use sluice_influx::{Builder, Faults, Limits, Precision, Reader, Settings, Value};

/// A value that is comparable to the bit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owned {
    Float(u64),
    Integer(i64),
    Unsigned(u64),
    Boolean(bool),
    String(String),
}

impl Owned {
    pub(crate) fn of(value: &Value<'_>) -> Owned {
        match value {
            Value::Float(value) => Owned::Float(value.to_bits()),
            Value::Integer(value) => Owned::Integer(*value),
            Value::Unsigned(value) => Owned::Unsigned(*value),
            Value::Boolean(value) => Owned::Boolean(*value),
            Value::String(text) => Owned::String(text.to_string()),
        }
    }

    pub(crate) fn as_value(&self) -> Value<'_> {
        match self {
            Owned::Float(bits) => Value::Float(f64::from_bits(*bits)),
            Owned::Integer(value) => Value::Integer(*value),
            Owned::Unsigned(value) => Value::Unsigned(*value),
            Owned::Boolean(value) => Value::Boolean(*value),
            Owned::String(text) => Value::String(text.as_str().into()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) measurement: String,
    pub(crate) tags: Vec<(String, String)>,
    pub(crate) fields: Vec<(String, Owned)>,
    pub(crate) time_ns: Option<i64>,
}

/// One field of a point: InfluxDB stores each on its own.
pub(crate) type Sample = (String, Vec<(String, String)>, String, Owned, Option<i64>);

/// All fields, in an order of their own.
pub(crate) fn samples(points: &[Point]) -> Vec<Sample> {
    let mut samples = Vec::new();
    for point in points {
        let mut tags = point.tags.clone();
        tags.sort();
        for (key, value) in &point.fields {
            let (measurement, tags) = (point.measurement.clone(), tags.clone());
            samples.push((measurement, tags, key.clone(), value.clone(), point.time_ns));
        }
    }
    samples.sort();
    samples
}

/// The lines of a body that comes in pieces.
pub(crate) fn read_pieces(pieces: &[&[u8]], limits: Limits) -> (Vec<Point>, Faults) {
    let mut points = Vec::new();
    let mut each = |line: &sluice_influx::Line<'_>| {
        points.push(Point {
            measurement: line.measurement().into_owned(),
            tags: line.tags().map(|(key, value)| (key.into(), value.into())).collect(),
            fields: line.fields().map(|(key, value)| (key.into(), Owned::of(&value))).collect(),
            time_ns: line.time_ns(),
        });
    };
    let mut reader = Reader::new(Precision::Nanoseconds, limits);
    for piece in pieces {
        reader.read(piece, &mut each);
        assert!(reader.held_bytes() <= limits.line_bytes);
    }
    let faults = reader.finish(&mut each);
    (points, faults)
}

pub(crate) fn read(body: &[u8]) -> (Vec<Point>, Faults) {
    read_pieces(&[body], Limits::default())
}

/// The request that a body becomes; lines without a time get this one.
pub(crate) fn build(body: &[u8], arrival_ns: i64) -> (Vec<u8>, u32) {
    let mut builder = Builder::new(&Settings::default());
    let mut reader = Reader::new(Precision::Nanoseconds, Limits::default());
    reader.read(body, |line| builder.add(line, arrival_ns));
    reader.finish(|line| builder.add(line, arrival_ns));
    let points = builder.points();
    let request = builder.take(&[]);
    assert!(builder.take(&[]).is_empty());
    (request, points)
}

/// Splits at a byte that has no backslash before it and, if quotes count, is in none.
fn split(text: &str, separator: char, has_quotes: bool) -> Vec<String> {
    let (mut parts, mut before, mut is_quoted) = (vec![String::new()], ' ', false);
    for letter in text.chars() {
        let is_escaped = before == '\\';
        if has_quotes && letter == '"' && !is_escaped {
            is_quoted = !is_quoted;
        }
        if letter == separator && !is_quoted && !is_escaped {
            parts.push(String::new());
        } else {
            parts.last_mut().expect("one part at least").push(letter);
        }
        // In quotes a backslash behind a backslash escapes nothing.
        before = if is_quoted && letter == '\\' && is_escaped { ' ' } else { letter };
    }
    parts
}

fn plain(text: &str) -> String {
    text.replace("\\,", ",").replace("\\ ", " ").replace("\\=", "=")
}

fn value(text: &str) -> Option<Owned> {
    if let Some(inner) = text.strip_prefix('"') {
        let inner = inner.strip_suffix('"')?;
        return Some(Owned::String(inner.replace("\\\"", "\"").replace("\\\\", "\\")));
    }
    Some(match text {
        "t" | "T" | "true" | "True" | "TRUE" => Owned::Boolean(true),
        "f" | "F" | "false" | "False" | "FALSE" => Owned::Boolean(false),
        _ => match (text.strip_suffix('i'), text.strip_suffix('u')) {
            (Some(digits), _) => Owned::Integer(digits.parse().ok()?),
            (_, Some(digits)) => Owned::Unsigned(digits.parse().ok()?),
            _ => Owned::Float(text.parse::<f64>().ok().filter(|it| it.is_finite())?.to_bits()),
        },
    })
}

/// Reads one line of the usual form: no comment, no blanks but single spaces.
pub(crate) fn simple(line: &str) -> Option<Point> {
    let parts = split(line, ' ', true);
    let [head, fields, rest @ ..] = &parts[..] else { return None };
    let mut head = split(head, ',', false).into_iter();
    let measurement = head.next()?.replace("\\,", ",").replace("\\ ", " ");
    let pair = |text: &String, has_quotes| {
        let parts = split(text, '=', has_quotes);
        match &parts[..] {
            [key, rest @ ..] if !rest.is_empty() => Some((plain(key), rest.join("="))),
            _ => None,
        }
    };
    let tags = head.map(|tag| pair(&tag, false).map(|(key, value)| (key, plain(&value))));
    let fields = split(fields, ',', true);
    let fields = fields.iter().map(|field| {
        let (key, text) = pair(field, true)?;
        Some((key, value(&text)?))
    });
    let time_ns = match rest {
        [] => None,
        [time] => Some(time.parse().ok()?),
        _ => return None,
    };
    Some(Point {
        measurement,
        tags: tags.collect::<Option<_>>()?,
        fields: fields.collect::<Option<_>>()?,
        time_ns,
    })
}
