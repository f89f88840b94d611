//! Conversion of records, as the Collector's receiver does it.

use sluice_net::compress::compress;

use super::*;

/// The Collector's own test of attribute types.
#[test]
fn values_of_all_types_become_attributes_as_in_the_collector() {
    let message = single("my-tag", |out| {
        out.write_map(12);
        let values: [(&str, &[u8]); 7] = [
            ("a", &[0xcb, 0x40, 0x14, 0, 0, 0, 0, 0, 0]),
            ("b", &[0xca, 0x40, 0xc0, 0, 0]),
            ("c", &[0xc3]),
            ("d", &[0xd0, 0xff]),
            ("k", &[0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            ("m", &[0xc4, 3, 1, 0x65, 2]),
            ("x", &[0xd4, 9, 7]),
        ];
        for (key, value) in values {
            out.write_str(key);
            out.extend_from_slice(value);
        }
        // A name may be a binary.
        out.write_bin(b"n");
        out.write_array(2);
        out.write_str("first");
        out.write_nil();
        out.write_str("o");
        out.write_map(1);
        out.write_str("p");
        out.write_int(24);
        out.write_str("p");
        out.write_nil();
        out.write_str("message");
        out.write_str("earlier");
        out.write_str("log");
        out.write_str("later");
    });
    let records = convert(&[&message], 1 << 20).expect("is taken");
    let array = ArrayValue { values: vec![AnyValue { value: text("first") }, AnyValue::default()] };
    let map = KeyValueList { values: vec![pair("p", Some(Value::IntValue(24)))] };
    let expected = vec![
        pair("fluent.tag", text("my-tag")),
        pair("a", Some(Value::DoubleValue(5.0))),
        pair("b", Some(Value::DoubleValue(6.0))),
        pair("c", Some(Value::BoolValue(true))),
        pair("d", Some(Value::IntValue(-1))),
        pair("k", text("18446744073709551615")),
        pair("m", text("\u{1}e\u{2}")),
        pair("x", Some(Value::BytesValue(vec![7]))),
        pair("n", Some(Value::ArrayValue(array))),
        pair("o", Some(Value::KvlistValue(map))),
        pair("p", None),
    ];
    assert_eq!(records[0].attributes, expected);
    assert_eq!(records[0].time_unix_nano, 5_000_000_000_000);
    assert_eq!((body(&records[0]), records[0].observed_time_unix_nano), (text("later"), 0));
}

/// Guarantee: of fields with the same name the last one counts. The tag of a single event is the
/// first field, that of others the last.
#[test]
fn the_last_of_several_fields_counts() {
    let record = |out: &mut Vec<u8>| {
        out.write_map(5);
        for (key, value) in [("a", "1"), ("fluent.tag", "mine"), ("b", "2"), ("a", "3")] {
            out.write_str(key);
            out.write_str(value);
        }
        out.write_str("log");
        out.write_map(0);
    };
    let alone = single("t", record);
    let mut listed = Vec::new();
    listed.write_array(2);
    listed.write_str("t");
    listed.write_array(1);
    listed.write_array(2);
    listed.write_int(1);
    record(&mut listed);
    let records = convert(&[&alone, &listed], 1 << 20).expect("are taken");
    let pairs = |record: &LogRecord| record.attributes.clone();
    let [mine, b, a] =
        [("fluent.tag", "mine"), ("b", "2"), ("a", "3")].map(|(key, value)| pair(key, text(value)));
    assert_eq!(pairs(&records[0]), [mine, b.clone(), a.clone()]);
    assert_eq!(pairs(&records[1]), [b, a, pair("fluent.tag", text("t"))]);
    assert_eq!(body(&records[0]), Some(Value::KvlistValue(KeyValueList::default())));
}

#[test]
fn strings_that_are_not_utf8_are_repaired_and_long_ones_kept() {
    let long = "ä".repeat(100_000);
    let message = single("t", |out| {
        out.write_map(2);
        out.write_str("log");
        out.write_str(&long);
        out.write_bin(b"a\xff\xfe");
        out.write_bin(b"\xc3");
    });
    let records = convert(&[&message], 1 << 20).expect("is taken");
    assert_eq!(body(&records[0]), text(&long));
    assert_eq!(records[0].attributes[1], pair("a??", text("?")));
}

#[test]
fn compressed_events_are_unpacked_and_limited() {
    let plain = Bytes::from(events(0..5000));
    for (name, encoding) in [("gzip", Encoding::Gzip), ("zstd", Encoding::Zstd)] {
        let half = plain.len() / 2;
        // Concatenated members are one stream.
        let members = [plain.slice(..half), plain.slice(half..)];
        let members = members.map(|it| compress(encoding, &[it], None).expect("is compressed"));
        let mut message = Vec::new();
        write_packed(&mut message, "t", &members.concat(), 5000, None, true);
        let at = message.len() - 4;
        message[at..].copy_from_slice(name.as_bytes());
        let records = convert(&[&message], 1 << 20).expect("is taken");
        assert_eq!(records.len(), 5000);
        assert_eq!(body(&records[4999]), text("4999"));
        assert_eq!(convert(&[&message], plain.len() - 1), Err(Reason::TooLarge));
        // It inflates to no more than is allowed, and becomes too large as OTLP.
        assert_eq!(convert(&[&message], plain.len()), Err(Reason::TooLarge));
        message[at..].copy_from_slice(b"lzma");
        assert_eq!(convert(&[&message], 1 << 20), Err(Reason::Invalid));
    }
}

#[test]
fn hostile_records_are_refused() {
    let nested = |levels: usize| {
        single("t", |out| {
            out.write_map(1);
            out.write_str("a");
            for _ in 0..levels {
                out.write_map(1);
                out.write_str("a");
            }
            out.write_nil();
        })
    };
    assert!(convert(&[&nested(31)], 1 << 20).is_ok());
    assert_eq!(convert(&[&nested(32)], 1 << 20), Err(Reason::Invalid));
    // As deep as OTLP has them, also of empty ones.
    for (key, deepest) in [("a", 47), ("log", 48)] {
        let nested = |levels: usize| {
            single("t", |out| {
                out.write_map(1);
                out.write_str(key);
                (1..levels).for_each(|_| out.write_array(1));
                out.write_array(0);
            })
        };
        assert!(convert(&[&nested(deepest)], 1 << 20).is_ok(), "{key}");
        assert_eq!(convert(&[&nested(deepest + 2)], 1 << 20), Err(Reason::Invalid), "{key}");
    }
    let numbers = single("t", |out| {
        out.write_map(1);
        out.write_str("a");
        out.write_array(10_000);
        out.extend_from_slice(&[0xff; 10_000]);
    });
    assert!(convert(&[&numbers], 1 << 20).is_ok());
    assert_eq!(convert(&[&numbers], 20_000), Err(Reason::TooLarge));
    let many = single("t", |out| {
        out.write_map(20_000);
        (0..20_000).for_each(|number| {
            out.write_str(&number.to_string());
            out.write_nil();
        });
    });
    assert_eq!(convert(&[&many], 8 << 20), Err(Reason::Invalid));
    // A long tag is repeated in each record.
    let mut tags = Vec::new();
    write_packed(&mut tags, &"t".repeat(60_000), &events(0..5000), 0, None, false);
    assert_eq!(convert(&[&tags], 4 << 20), Err(Reason::TooLarge));
    for bad in [&[0x93, 0xa1, b't', 1, 0x90][..], &[0x93, 0xa1, b't', 1, 0x81, 1, 1]] {
        assert_eq!(convert(&[bad], 1 << 20), Err(Reason::Invalid));
    }
}

fn pack_text(out: &mut Vec<u8>, pairs: &[(&str, &str)]) {
    out.write_map(pairs.len());
    for (key, value) in pairs {
        out.write_str(key);
        out.write_str(value);
    }
}

/// `[[time, metadata], record]`.
fn event(
    time: &[u8],
    metadata: impl FnOnce(&mut Vec<u8>),
    record: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    let mut out = Vec::new();
    out.write_array(2);
    out.write_array(2);
    out.extend_from_slice(&[0xd7, 0]);
    out.extend_from_slice(time);
    metadata(&mut out);
    record(&mut out);
    out
}

const TIME: &[u8] = &[0, 0, 0, 5, 0, 0, 0, 6];

fn log(out: &mut Vec<u8>) {
    pack_text(out, &[("log", "hi"), ("own", "field")]);
}

/// Scenario: events with metadata, as Fluent Bit sends them since 2.1. Guarantee: its entries are
/// attributes; fields of the record win over them.
#[test]
fn metadata_become_attributes() {
    let metadata = |out: &mut Vec<u8>| pack_text(out, &[("own", "metadata"), ("k", "v")]);
    let plain = event(TIME, |out| out.write_map(0), log);
    let mut message = Vec::new();
    write_packed(&mut message, "t", &[event(TIME, metadata, log), plain].concat(), 2, None, false);
    // In the mode for a single event metadata are an option.
    let mut single = Vec::new();
    single.write_array(4);
    single.write_str("t");
    single.write_int(5);
    log(&mut single);
    single.write_map(1);
    single.write_str("metadata");
    metadata(&mut single);
    let records = convert(&[&message, &single], 1 << 20).expect("are taken");
    let [k, own, tag] = [("k", "v"), ("own", "field"), ("fluent.tag", "t")]
        .map(|(key, value)| pair(key, text(value)));
    assert_eq!(records[0].attributes, [k.clone(), own.clone(), tag.clone()]);
    assert_eq!((records[0].time_unix_nano, body(&records[0])), (5_000_000_006, text("hi")));
    assert_eq!(records[1].attributes, [own.clone(), tag.clone()]);
    assert_eq!(records[2].attributes, [tag, k, own]);
    let bad = event(TIME, |out| out.write_int(1), log);
    let mut message = Vec::new();
    write_packed(&mut message, "t", &bad, 1, None, false);
    assert_eq!(convert(&[&message], 1 << 20), Err(Reason::Invalid));
}

/// Scenario: logs that Fluent Bit got by OTLP. Guarantee: they become what they were: the fields of
/// a record, its resource and scope, for the records of their group only.
#[test]
fn records_that_were_otlp_are_it_again() {
    let otlp = |out: &mut Vec<u8>| {
        out.write_map(1);
        out.write_str("otlp");
        out.write_map(9);
        let numbers = [("timestamp", 7), ("observed_timestamp", 8), ("severity_number", 9)];
        for (key, value) in numbers.into_iter().chain([("trace_flags", 1), ("unknown", 1)]) {
            out.write_str(key);
            out.write_int(value);
        }
        out.write_str("severity_text");
        out.write_str("INFO");
        out.write_str("trace_id");
        out.write_bin(&[0xab; 16]);
        out.write_str("span_id");
        out.write_str(&"0c".repeat(8));
        out.write_str("attributes");
        pack_text(out, &[("a", "1")]);
    };
    let group = |out: &mut Vec<u8>| {
        out.write_map(2);
        out.write_str("resource");
        out.write_map(2);
        out.write_str("attributes");
        pack_text(out, &[("service.name", "lost"), ("service.name", "shop")]);
        out.write_str("schema_url");
        out.write_str("https://r");
        out.write_str("scope");
        out.write_map(3);
        out.write_str("name");
        out.write_str("lib");
        out.write_str("version");
        out.write_str("1");
        out.write_str("attributes");
        pack_text(out, &[("s", "2")]);
    };
    let empty = |out: &mut Vec<u8>| out.write_map(0);
    let (start, end) = ([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0], [0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0]);
    let outside = event(TIME, empty, log);
    let inside = event(TIME, otlp, log);
    let group = [event(&start, empty, group), inside.repeat(2), event(&end, empty, empty)].concat();
    let without = [event(&start, empty, empty), event(&end, empty, empty)].concat();
    let mut message = Vec::new();
    let events = [&*outside, &group, &without, &outside, &group].concat();
    write_packed(&mut message, "t", &events, 0, Some("id"), false);
    // A group ends with its message.
    let mut open = Vec::new();
    write_packed(&mut open, "t", &event(&start, empty, |out| out.write_map(0)), 0, None, false);
    let pieces = converted(&[&message, &open, &packed(0..1, None)], 1 << 20);
    let [piece] = &pieces[..] else { panic!("{} pieces", pieces.len()) };
    assert_eq!(piece.items, 7);
    let request = ExportLogsServiceRequest::decode(&*piece.payload).expect("is a request");
    let resources = request.resource_logs;
    let counts: Vec<_> = resources.iter().map(|it| it.scope_logs[0].log_records.len()).collect();
    assert_eq!(counts, [1, 2, 1, 2, 1]);
    for (index, resource) in resources.iter().enumerate() {
        let scope = &resource.scope_logs[0];
        if index % 2 == 0 {
            assert!(resource.resource.is_none() && scope.scope.is_none());
            continue;
        }
        let attributes = &resource.resource.as_ref().expect("has one").attributes;
        assert_eq!(*attributes, [pair("service.name", text("shop"))]);
        assert_eq!(resource.schema_url, "https://r");
        let library = scope.scope.as_ref().expect("has one");
        assert_eq!((&*library.name, &*library.version), ("lib", "1"));
        assert_eq!(library.attributes, [pair("s", text("2"))]);
        let record = &scope.log_records[1];
        assert_eq!((record.time_unix_nano, record.observed_time_unix_nano), (7, 8));
        assert_eq!((record.severity_number, &*record.severity_text, record.flags), (9, "INFO", 1));
        assert_eq!((&*record.trace_id, &*record.span_id), (&[0xab; 16][..], &[0x0c; 8][..]));
        let attributes = [("a", "1"), ("own", "field"), ("fluent.tag", "t")];
        assert_eq!(record.attributes, attributes.map(|(key, value)| pair(key, text(value))));
    }
}
