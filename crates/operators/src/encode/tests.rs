use proptest::prelude::*;
use serde_json::json;
use sluice_otlp::wire::Fields;
use sluice_otlp::{Signal, scan};

use super::*;
use crate::testing::{map, record};

fn encoded(records: &[Record]) -> (Vec<u8>, Encoded) {
    let mut out = Vec::new();
    let encoded = encode(records, &mut out);
    assert_eq!(scan(Signal::Logs, &out), Ok(encoded.items), "the engine takes it");
    (out, encoded)
}

/// The contents of the messages with this number.
fn messages(bytes: &[u8], number: u32) -> Vec<&[u8]> {
    let (mut fields, mut found) = (Fields::of(bytes), Vec::new());
    while let Some(field) = fields.next_message(number).unwrap() {
        found.push(&bytes[field.content()]);
    }
    found
}

/// The only log record of a request.
fn only(bytes: &[u8]) -> &[u8] {
    messages(messages(messages(bytes, 1)[0], 2)[0], 2)[0]
}

#[test]
fn every_part_of_a_record_has_its_field() {
    let mut full =
        record(json!({"body": {"a": [1, 1.5, true, null, "x"]}, "attributes": {"k": "v"}}));
    full.time_ns = Some(0x0102_0304_0506_0708);
    full.observed_ns = 0x1112_1314_1516_1718;
    (full.severity, full.severity_text) = (9, "info".to_owned());
    (full.trace_id, full.span_id) = (vec![7; 16], vec![8; 8]);
    full.trace_flags = vec![1];
    let (bytes, _) = encoded(std::slice::from_ref(&full));
    let mut expected = vec![1 << 3 | 1, 8, 7, 6, 5, 4, 3, 2, 1, 2 << 3, 9];
    write_len_field(&mut expected, 3, b"info");
    write_len_field(&mut expected, 5, &full.body.encoded());
    write_len_field(&mut expected, 6, b"\x0a\x01k\x12\x03\x0a\x01v");
    expected.extend_from_slice(&[8 << 3 | 5, 1, 0, 0, 0]);
    write_len_field(&mut expected, 9, &[7; 16]);
    write_len_field(&mut expected, 10, &[8; 8]);
    expected.extend_from_slice(&[11 << 3 | 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11]);
    assert_eq!(only(&bytes), expected);
}

/// Parts without a value are left out. A severity without a text has its own name.
#[test]
fn empty_parts_are_left_out() {
    let mut empty = record(json!({}));
    empty.observed_ns = 0;
    assert_eq!(only(&encoded(std::slice::from_ref(&empty)).0), [0_u8; 0]);
    empty.severity = 18;
    (empty.trace_id, empty.span_id) = (vec![0; 16], vec![]);
    assert_eq!(only(&encoded(&[empty]).0), b"\x10\x12\x1a\x06ERROR2");
}

/// Guarantee: records are grouped by resource, whatever the order of its keys, then by scope, and
/// keep their order within a group.
#[test]
fn records_are_grouped_by_resource_and_scope() {
    let of = |resource: serde_json::Value, scope: &str, body: &str| {
        let mut record = record(json!({"body": body, "resource": resource}));
        record.scope_name = scope.to_owned();
        record
    };
    let mut turned = of(json!({}), "", "3");
    turned.resource = map(&json!({"a": 1, "b": 2})).into_iter().rev().collect();
    let records = [
        of(json!({"a": 1, "b": 2}), "", "0"),
        of(json!({"a": 2}), "", "1"),
        of(json!({"a": 1, "b": 2}), "s", "2"),
        turned,
        of(json!({"a": 2}), "", "4"),
        of(json!({}), "", "5"),
    ];
    let (bytes, _) = encoded(&records);
    let shape: Vec<Vec<Vec<u8>>> = messages(&bytes, 1)
        .into_iter()
        .map(|resource| {
            let scopes = messages(resource, 2).into_iter();
            scopes
                .map(|scope| {
                    let bodies = messages(scope, 2).into_iter().map(|it| messages(it, 5)[0][2]);
                    bodies.collect()
                })
                .collect()
        })
        .collect();
    assert_eq!(
        shape,
        [vec![b"03".to_vec(), b"2".to_vec()], vec![b"14".to_vec()], vec![b"5".to_vec()]]
    );
    assert_eq!(messages(messages(messages(&bytes, 1)[0], 2)[1], 1), [b"\x0a\x01s"]);
}

/// Guarantee: whatever the resources and scopes, a request is as long as was said, or shorter.
#[test]
fn resources_and_scopes_count_as_bytes() {
    let of = |resource: String, scope: &str| {
        let mut record = record(json!({"body": "x", "resource": {"name": resource}}));
        record.scope_name = scope.to_owned();
        record
    };
    let long = || "r".repeat(1000);
    for records in [
        vec![of(long(), "")],
        vec![of(long(), &long()), of(String::new(), "s"), of(long(), "t")],
        (0..100).map(|number| of(long() + &number.to_string(), "")).collect(),
    ] {
        let mut encoder = Encoder::default();
        records.iter().for_each(|record| encoder.push(record));
        let said = encoder.len();
        let made = encoder.finish().len();
        assert!((made..made + 50 * records.len()).contains(&said), "{made} {said}");
        assert_eq!(encoder.len(), 0);
    }
}

/// Guarantee: no record nests too deeply for a backend.
#[test]
fn nesting_is_cut_off() {
    let deep = (0..500).fold(AnyValue::Int(1), |inner, _| AnyValue::Array(vec![inner]));
    let maps = (0..500).fold(AnyValue::Int(1), |inner, _| AnyValue::Map(vec![("k".into(), inner)]));
    let mut record = record(json!({}));
    (record.body, record.attributes) = (deep, vec![("a".to_owned(), maps.clone())]);
    record.resource = vec![("r".to_owned(), maps)];
    assert_eq!(encoded(&[record]).1, Encoded { items: 1, replaced: 3 });
}

proptest! {
    /// Guarantee: bodies of any length are encoded as the plain encoder does.
    #[test]
    fn lengths_of_any_size_are_right(sizes in prop::collection::vec(0..40_000_usize, 0..6)) {
        let texts = sizes.iter().map(|size| AnyValue::String("x".repeat(*size)));
        let mut record = record(json!({}));
        record.body = AnyValue::Map(vec![("k".to_owned(), AnyValue::Array(texts.collect()))]);
        let (bytes, _) = encoded(std::slice::from_ref(&record));
        prop_assert_eq!(messages(only(&bytes), 5)[0], record.body.encoded());
    }
}
