//! Line protocol in and out is one codec: what is written can be read, and is the same.

mod support;

use std::collections::BTreeSet;

use proptest::prelude::*;
use sluice_influx::{Limits, LineWriter, write};
use sluice_otlp::{Signal, scan};
use support::{Owned, Point, build, read, read_pieces, samples, simple};

/// Texts of names and tags: no line break, no backslash at the end.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => "[a-z_]{1,8}",
        2 => "[a-c ,=\\\\\"#]{0,4}[a-z]",
        1 => "[a-z]\\PC{0,4}[a-z]",
        1 => Just("value".to_owned()),
    ]
}

fn string() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[a-z/:. ]{0,12}", 2 => "[a\"\\\\,= \n\r]{0,6}", 1 => "\\PC{0,6}"]
}

fn a_value() -> impl Strategy<Value = Owned> {
    let floats = prop_oneof![
        any::<f64>().prop_filter("finite", |value| value.is_finite()),
        (-1_000_000..1_000_000_i32).prop_map(|value| f64::from(value) / 1000.0),
    ];
    prop_oneof![
        4 => floats.prop_map(|value| Owned::Float(value.to_bits())),
        2 => any::<i64>().prop_map(Owned::Integer),
        1 => any::<u64>().prop_map(Owned::Unsigned),
        1 => any::<bool>().prop_map(Owned::Boolean),
        2 => string().prop_map(Owned::String),
    ]
}

fn a_point() -> impl Strategy<Value = Point> {
    let measurement = name().prop_filter("no comment", |name| !name.starts_with('#'));
    let tags = prop::collection::btree_map(name(), name(), 0..5);
    let fields = prop::collection::btree_map(name(), a_value(), 1..5);
    let time = prop_oneof![
        4 => (1_600_000_000_000_000_000..1_800_000_000_000_000_000_i64).prop_map(Some),
        1 => (i64::MIN + 2..i64::MAX).prop_map(Some),
        1 => Just(Some(0)),
        1 => Just(None),
    ];
    (measurement, tags, fields, time).prop_map(|(measurement, tags, fields, time_ns)| Point {
        measurement,
        tags: tags.into_iter().collect(),
        fields: fields.into_iter().collect(),
        time_ns,
    })
}

fn written(points: &[Point]) -> String {
    let mut out = Vec::new();
    for point in points {
        let mut line = LineWriter::new(&mut out, &point.measurement).expect("a measurement");
        for (key, value) in &point.tags {
            line.tag(key.as_bytes(), value.as_bytes());
        }
        for (key, value) in &point.fields {
            line.field(key.as_bytes(), &value.as_value()).expect("a field");
        }
        assert!(line.end(point.time_ns));
    }
    String::from_utf8(out).expect("text")
}

/// Many points with few shapes, as senders have them.
fn bodies() -> impl Strategy<Value = Vec<Point>> {
    (
        prop::collection::vec(a_point(), 1..5),
        prop::collection::vec(any::<prop::sample::Index>(), 1..12),
    )
        .prop_map(|(shapes, uses)| uses.iter().map(|index| index.get(&shapes).clone()).collect())
}

/// Texts that are nearly lines.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let parts = prop_oneof![
        Just("m"),
        Just(","),
        Just(" "),
        Just("="),
        Just("\""),
        Just("\\"),
        Just("\n"),
        Just("a=b"),
        Just("v=1"),
        Just("i"),
        Just("#"),
        Just("\r\n"),
        Just("\0"),
        Just("\t"),
        Just("true"),
        Just("1700000000000000000"),
        Just("-"),
        Just("\u{e9}"),
        Just("m,a=b v=\"x\" 1\n"),
    ];
    prop::collection::vec(parts, 0..24).prop_map(|parts| parts.concat().into_bytes())
}

proptest! {
    /// Out and in: points are the same after they were written and read, also by a parser that
    /// shares nothing with this one.
    #[test]
    fn what_is_written_can_be_read(points in bodies()) {
        let text = written(&points);
        let (found, faults) = read(text.as_bytes());
        prop_assert_eq!(faults.count, 0, "{} {}", faults, text);
        prop_assert_eq!(&found, &points);
        for point in &points {
            let line = written(std::slice::from_ref(point));
            // That parser takes each quote for the start or the end of a string.
            let names = point.tags.iter().flat_map(|(key, value)| [key, value]);
            let mut names = names.chain(point.fields.iter().map(|(key, _)| key));
            if !point.measurement.contains('"') && names.all(|name| !name.contains('"')) {
                let found = simple(line.strip_suffix('\n').expect("a line"));
                prop_assert_eq!(found.as_ref(), Some(point), "{}", line);
            }
        }
    }

    /// In and out: no sample changes on its way through OTLP, in which it is valid.
    #[test]
    fn what_is_read_can_be_written(points in bodies(), arrival in 1..i64::MAX) {
        let (request, count) = build(written(&points).as_bytes(), arrival);
        prop_assert_eq!(scan(Signal::Metrics, &request), Ok(count));
        let mut out = Vec::new();
        let counts = write(&request, 1 << 20, &mut out).expect("is written");
        prop_assert_eq!((counts.points, counts.left_out), (u64::from(count), 0));
        let mut expected = points;
        expected.iter_mut().for_each(|it| it.time_ns = it.time_ns.or(Some(arrival)));
        let (found, faults) = read(&out);
        prop_assert_eq!(faults.count, 0, "{}", faults);
        prop_assert_eq!(samples(&found), samples(&expected));
        // The lines that came out are the same when they go in again.
        let (again, _) = build(&out, 0);
        let mut twice = Vec::new();
        write(&again, 1 << 20, &mut twice).expect("is written");
        prop_assert_eq!(samples(&read(&twice).0), samples(&found));
    }

    /// Guarantee: it makes no difference where a body is cut, whatever it is.
    #[test]
    fn cuts_make_no_difference(
        body in prop_oneof![
            bodies().prop_map(|points| written(&points).into_bytes()),
            nearly(),
            prop::collection::vec(any::<u8>(), 0..64),
        ],
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        line_bytes in prop_oneof![Just(1 << 20), 1..40_usize],
    ) {
        let limits = Limits { line_bytes };
        let whole = read_pieces(&[&body], limits);
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        at.extend([0, body.len()]);
        at.sort_unstable();
        let pieces: Vec<&[u8]> = at.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect();
        prop_assert_eq!(&read_pieces(&pieces, limits), &whole);
        let bytes: Vec<&[u8]> = body.chunks(1).collect();
        prop_assert_eq!(&read_pieces(&bytes, limits), &whole);
    }

    /// Guarantee: every line that is taken survives the way through OTLP, however odd it is.
    #[test]
    fn odd_lines_survive_too(body in nearly()) {
        let (points, faults) = read(&body);
        let (request, count) = build(&body, 5);
        if points.is_empty() {
            prop_assert!(request.is_empty());
            return Ok(());
        }
        prop_assert_eq!(scan(Signal::Metrics, &request), Ok(count), "{}", faults);
        let mut out = Vec::new();
        write(&request, 1 << 20, &mut out).expect("is written");
        let (found, faults) = read(&out);
        prop_assert_eq!(faults.count, 0, "{} {}", faults, String::from_utf8_lossy(&out));
        let all = |points: &[Point]| -> BTreeSet<_> {
            let points = points.iter().cloned();
            let timed = points.map(|it| Point { time_ns: it.time_ns.or(Some(5)), ..it });
            samples(&timed.collect::<Vec<_>>()).into_iter().collect()
        };
        prop_assert_eq!(all(&found), all(&points));
    }
}
