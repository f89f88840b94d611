//! No text makes a parser panic, and a text that fails leaves the record as it was.

use proptest::prelude::*;

use super::{PARSERS, Read, applied, built, record, stage, text};

/// Options under which each parser parses the body.
fn options(name: &str) -> &'static [&'static str] {
    match name {
        "csv_parser" => &["header: 'a,b'", "header: 'a,b'\nlazy_quotes: true"],
        "json_array_parser" => &["header: 'a,b'", "parse_to: body"],
        "regex_parser" => &[r"regex: '^(?P<time>\S+) (?P<stream>\w+)'"],
        "scope_name_parser" | "severity_parser" => &["parse_from: body"],
        "syslog_parser" => &[
            "protocol: rfc3164",
            "protocol: rfc5424",
            "protocol: rfc5424\nenable_octet_counting: true",
            "protocol: rfc3164\nallow_skip_pri_header: true\nlocation: Europe/Berlin",
            "protocol: none",
        ],
        "time_parser" => &[
            "parse_from: body\nlayout: '%a %b %d %H:%M:%S.%f %p %z %Z %y'",
            "parse_from: body\nlayout: '%D %T%j'",
            "parse_from: body\nlayout_type: gotime\nlayout: '2006-01-02T15:04:05.000Z07:00 MST'",
            "parse_from: body\nlayout_type: gotime\nlayout: '002 3:04PM'\nlocation: Europe/Berlin",
            "parse_from: body\nlayout_type: epoch\nlayout: s.us",
        ],
        "trace_parser" => &["trace_id: {parse_from: body}"],
        _ => &["", "parse_to: body"],
    }
}

/// Texts that are made of pieces of all formats.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("{\"a\":"),
        Just("\"b\""),
        Just("[1,"),
        Just("}"),
        Just("]"),
        Just("\\u"),
        Just("\\ud8"),
        Just("\""),
        Just("'"),
        Just(","),
        Just("="),
        Just(" "),
        Just("\n"),
        Just("\r"),
        Just("%2"),
        Just("?"),
        Just("&"),
        Just(":"),
        Just("/"),
        Just("@"),
        Just("["),
        Just("é"),
        Just("\u{0}"),
        Just("<34>"),
        Just("<34>1 "),
        Just("12 "),
        Just("Oct 11 22:14:15"),
        Just("host app[1]: "),
        Just("2003-10-11T22:14:15.003Z"),
        Just("+01:00"),
        Just("- - - - "),
        Just("stdout"),
        Just(" F "),
        Just("PM"),
        Just("GMT"),
        Just("+7"),
        Just("1e9"),
        Just("-"),
        Just("0"),
        Just("99999999999999999999"),
        Just("http://"),
        Just("Mon"),
        Just("2024"),
        Just("."),
        Just("[id k=\"v\"]"),
    ];
    prop_oneof![
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat()),
        any::<String>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn no_text_makes_a_parser_panic(body in texts()) {
        for parser in PARSERS {
            let Read::Transform(_) = parser.read else {
                let mut stage = stage("add_metadata_from_filepath: false").unwrap();
                let given = record(text(&body));
                if let Err(refused) = stage.take(given.clone(), &mut Vec::new()) {
                    let (back, _) = *refused;
                    prop_assert_eq!(back, given);
                }
                continue;
            };
            for options in options(parser.name) {
                let mut built = built(parser.name, options).unwrap();
                let mut given = record(text(&body));
                if let Err(why) = built.apply(&mut given) {
                    prop_assert!(why.len() < 1000 && !why.is_empty());
                    prop_assert_eq!(given, record(text(&body)));
                }
            }
        }
    }

    #[test]
    fn no_path_makes_the_container_panic(path in "[a-z_/\\\\.0-9é-]{0,40}") {
        let mut stage = stage("").unwrap();
        let mut given = record(text("2024-04-13T07:59:37Z stdout F x"));
        given.attributes.push(("log.file.path".to_owned(), text(&path)));
        let _ = stage.take(given, &mut Vec::new());
    }

    /// Options of any text are read or refused.
    #[test]
    fn no_layout_makes_the_time_parser_panic(
        layout in "[%A-Za-z0-9 .,:_éJanMonPMSTZ-]{1,24}",
        body in texts(),
    ) {
        for kind in ["gotime", "strptime"] {
            let options = format!("parse_from: body\nlayout_type: {kind}\nlayout: '{layout}'");
            if let Ok(mut parser) = built("time_parser", &options) {
                let _ = parser.apply(&mut record(text(&body)));
                let _ = parser.apply(&mut record(text(&layout)));
            }
        }
    }

    /// JSON that serde writes is read with the same values.
    #[test]
    fn json_is_read_as_serde_reads_it(value in json_values()) {
        let object = serde_json::json!({ "value": value });
        let body = object.to_string();
        let record = applied("json_parser", "parse_ints: true", text(&body)).unwrap();
        prop_assert_eq!(&record.attributes[0].1, &from_serde(&object["value"]), "{}", body);
    }
}

fn json_values() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        prop::num::f64::NORMAL.prop_map(serde_json::Value::from),
        any::<String>().prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::from),
            prop::collection::hash_map(any::<String>(), inner, 0..5)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

fn from_serde(value: &serde_json::Value) -> sluice_otlp::AnyValue {
    use serde_json::Value;
    use sluice_otlp::AnyValue;
    match value {
        Value::Null => AnyValue::Empty,
        Value::Bool(value) => AnyValue::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => AnyValue::Int(integer),
            None => AnyValue::Double(number.as_f64().unwrap()),
        },
        Value::String(value) => text(value),
        Value::Array(values) => AnyValue::Array(values.iter().map(from_serde).collect()),
        Value::Object(map) => {
            AnyValue::Map(map.iter().map(|(key, value)| (key.clone(), from_serde(value))).collect())
        }
    }
}
