//! The corpus of InfluxData's own Go module: lines with what its parsers make of them, and points
//! with the lines that it writes.

#[path = "../../load-test/tests/support/component.rs"]
mod component;
mod support;

use component::component;
use serde_json::Value as Json;
use sluice_influx::{Limits, LineWriter, Precision, Reader, Value};
use support::{Owned, Point, read};

/// Inputs that InfluxDB 1.x reads otherwise than this module: in strings it knows no other escapes
/// than those of quotes and backslashes.
fn differs(text: &[u8]) -> bool {
    let has = |escape: &[u8]| text.windows(2).any(|pair| pair == escape);
    text.contains(&b'"') && (has(br"\n") || has(br"\r") || has(br"\t"))
}

fn corpus() -> Option<Json> {
    let folder = component("SLUICE_TEST_LINE_PROTOCOL_TESTDATA")?;
    let text = std::fs::read(folder.join("corpus.json")).expect("is there");
    Some(serde_json::from_slice(&text).expect("JSON"))
}

fn base64(text: &str) -> Vec<u8> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        let place = LETTERS.iter().position(|known| *known == letter).expect("a letter");
        bits = bits << 6 | place as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

/// A text, which is base64 where it is no UTF-8.
fn bytes(json: &Json) -> Vec<u8> {
    match json {
        Json::String(text) => text.clone().into_bytes(),
        other => base64(other["binary"].as_str().expect("binary")),
    }
}

fn text(json: &Json) -> String {
    String::from_utf8(bytes(json)).expect("text")
}

fn value(json: &Json) -> Owned {
    let (kind, value) = json.as_object().and_then(|it| it.iter().next()).expect("a value");
    match kind.as_str() {
        "float" => Owned::Float(value.as_f64().expect("a number").to_bits()),
        "int" => Owned::Integer(value.as_i64().expect("a number")),
        "uint" => Owned::Unsigned(value.as_u64().expect("a number")),
        "bool" => Owned::Boolean(value.as_bool().expect("a boolean")),
        _ => Owned::String(text(value)),
    }
}

fn list(json: &Json) -> &[Json] {
    json.as_array().map_or(&[], Vec::as_slice)
}

fn point(json: &Json) -> Point {
    let tags = list(&json["tags"]).iter().map(|tag| (text(&tag["key"]), text(&tag["value"])));
    let fields =
        list(&json["fields"]).iter().map(|field| (text(&field["key"]), value(&field["value"])));
    Point {
        measurement: text(&json["name"]),
        tags: tags.collect(),
        fields: fields.collect(),
        time_ns: Some(json["time"].as_i64().unwrap_or(0)),
    }
}

/// Whether they are the same, as far as the corpus tells: its numbers are JSON, which has no sign
/// of zero, and whose reader may miss a double by one.
fn are_alike(points: &[Point], expected: &[Point]) -> bool {
    let alike = |one: &Owned, other: &Owned| match (one, other) {
        (Owned::Float(one), Owned::Float(other)) => {
            let is_zero = |bits: u64| bits << 1 == 0;
            one.abs_diff(*other) <= 1 || is_zero(*one) && is_zero(*other)
        }
        _ => one == other,
    };
    let same = |one: &Point, other: &Point| {
        let fields = one.fields.iter().zip(&other.fields);
        let rest = |point: &Point| Point { fields: Vec::new(), ..point.clone() };
        one.fields.len() == other.fields.len()
            && fields.into_iter().all(|(one, other)| one.0 == other.0 && alike(&one.1, &other.1))
            && rest(one) == rest(other)
    };
    points.len() == expected.len()
        && points.iter().zip(expected).all(|(one, other)| same(one, other))
}

fn precision(json: &Json) -> Precision {
    let name = json["precision"].as_str().expect("a precision").trim_start_matches('1');
    Precision::named(name).expect("a precision")
}

/// Guarantee: what InfluxData's parser reads, Sluice reads the same; and of what one with fewer
/// rules refuses, it takes only what InfluxDB 1.x takes, which knows no forbidden characters.
#[test]
fn lines_are_read_as_influxdata_reads_them() {
    let Some(corpus) = corpus() else { return };
    let (mut same, mut refused, mut wrong) = (0, 0, Vec::new());
    for case in corpus["decode"].as_object().expect("cases").values() {
        let (input, output) = (&case["input"], &case["output"]);
        let body = bytes(&input["text"]);
        let precision = precision(input);
        let default = precision.arrival_ns(input["defaultTime"].as_i64().expect("a time"));
        let mut reader = Reader::new(precision, Limits::default());
        let mut points = Vec::new();
        let mut each = |line: &sluice_influx::Line<'_>| {
            let mut tags: Vec<_> =
                line.tags().map(|(key, value)| (key.into_owned(), value.into_owned())).collect();
            tags.sort();
            points.push(Point {
                measurement: line.measurement().into_owned(),
                tags,
                fields: line.fields().map(|(key, value)| (key.into(), Owned::of(&value))).collect(),
                time_ns: Some(line.time_ns().unwrap_or(default)),
            });
        };
        reader.read(&body, &mut each);
        let faults = reader.finish(&mut each);
        if output.get("error").is_some() {
            refused += u32::from(faults.count > 0);
            let is_plain = body.iter().all(|byte| !byte.is_ascii_control() || *byte == b'\n');
            if is_plain && faults.count == 0 && input["implementation"] != "fuzz" {
                wrong.push(format!("{input} {} taken: {points:?}", output["error"]));
            }
            continue;
        }
        let expected: Vec<_> = list(&output["result"]).iter().map(point).collect();
        match faults.count == 0 && are_alike(&points, &expected) {
            true => same += 1,
            false if differs(&body) => {}
            false => wrong.push(format!("{input} {faults} {points:?}, not {expected:?}")),
        }
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
    assert!(same > 380 && refused > 5000, "{same} the same, {refused} refused");
}

/// Guarantee: the line that Sluice writes of a point is the one that InfluxData's module writes,
/// but for the notation of floats with an exponent, and it reads as the point.
#[test]
fn points_are_written_as_influxdata_writes_them() {
    let Some(corpus) = corpus() else { return };
    let (mut same, mut wrong) = (0, Vec::new());
    for case in corpus["encode"].as_object().expect("cases").values() {
        let (input, output) = (&case["input"], &case["output"]);
        if output.get("error").is_some() || precision(input) != Precision::Nanoseconds {
            continue;
        }
        let expected = text(&output["result"]);
        let point = point(&input["point"]);
        let mut out = Vec::new();
        let mut line = LineWriter::new(&mut out, &point.measurement).expect("a measurement");
        for (key, value) in &point.tags {
            line.tag(key.as_bytes(), value.as_bytes());
        }
        for (key, value) in &point.fields {
            let value: Value<'_> = value.as_value();
            line.field(key.as_bytes(), &value).expect("a field");
        }
        line.end(point.time_ns);
        assert_eq!(read(&out).0, [point]);
        let written = String::from_utf8(out).expect("text");
        match written.trim_end_matches('\n') == expected {
            true => same += 1,
            false if expected.contains("e+") || differs(expected.as_bytes()) => {}
            false => wrong.push(format!("{written} not {expected}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(same > 70, "{same}");
}
