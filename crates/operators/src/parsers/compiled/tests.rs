//! Compiled chains do the same as their operators.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use sluice_otlp::AnyValue;

use crate::chain::{Chain, Counts};
use crate::encode::Encoder;
use crate::record::{Origin, Record};
use crate::testing::chain;

type Map = Vec<(String, AnyValue)>;

const CHAINS: [&str; 21] = [
    "- {type: container}",
    "- {type: container, add_metadata_from_filepath: false}",
    "- {type: container, format: docker, on_error: drop}",
    "- {type: container, format: containerd}\n- {type: json_parser}",
    "- {type: container, format: crio}\n- {type: json_parser, parse_ints: true}",
    "- {type: container}\n- {type: json_parser, on_error: drop}",
    "- {type: container}\n- {type: json_parser, parse_ints: true, on_error: send_quiet}",
    "- {type: container}\n- {type: regex_parser, regex: '^(?P<a>\\S+) (?P<b>.*)$'}",
    "- {type: json_parser}",
    "- {type: json_parser, parse_ints: true}",
    "- {type: regex_parser, regex: '^(?P<time>\\S+)(?: (?P<log>std\\w+))? (?P<x>.*)$'}",
    "- {type: regex_parser, regex: '(?P<a>é|[{])', on_error: drop_quiet}",
    "- {type: regex_parser, regex: '(?P<logtag>\\S*)(?P<end>)'}",
    "- {type: json_parser, timestamp: {parse_from: attributes.time, layout: '%Y-%m-%dT%T.%LZ'}}",
    "- {type: json_parser, severity: {parse_from: attributes.level}, on_error: drop}",
    "- {type: json_parser, parse_ints: true, timestamp: {parse_from: attributes.time, \
        layout_type: epoch, layout: s}, severity: {parse_from: attributes.level, \
        overwrite_text: true, mapping: {error: [5xx, ''], info: {min: -1, max: 100}}}}",
    "- {type: container}\n- {type: json_parser, severity: {parse_from: attributes.level}, \
        timestamp: {parse_from: attributes.time, layout_type: gotime, layout: \
        '2006-01-02T15:04:05Z07:00'}, on_error: send_quiet}",
    "- {type: json_parser}\n- {type: severity_parser, parse_from: attributes.level}\n\
        - {type: time_parser, parse_from: attributes.time, layout_type: epoch, layout: s.ms}",
    "- {type: regex_parser, regex: '^(?P<time>\\S+)( (?P<level>\\w+))? (?P<x>.*)$', \
        timestamp: {parse_from: attributes.time, layout: '%Y-%m-%dT%T%z'}}\n\
        - {type: severity_parser, parse_from: attributes.level}",
    "- {type: regex_parser, regex: '^(?P<time>\\S+)', \
        severity: {parse_from: attributes.time, mapping: {fatal: today}}, \
        timestamp: {parse_from: attributes.time, layout: '%FT%T.%fZ', location: Europe/Paris}}",
    "- {type: json_parser, timestamp: {parse_from: 'attributes[\"log.iostream\"]', layout: '%Y'}, \
        severity: {parse_from: 'attributes[\"log.file.path\"]'}}",
];

const POD: &str = "/var/log/pods/ns_pod_0a-1b/main/0.log";

/// Attributes and resources that records begin with.
fn sources() -> [(Map, Map); 5] {
    let text = |text: &str| AnyValue::String(text.to_owned());
    let of = |entries: &[(&str, AnyValue)]| -> Map {
        entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
    };
    let pod = ("log.file.path", text(POD));
    [
        (of(&[("log.file.name", text("0.log")), pod.clone()]), of(&[])),
        (of(std::slice::from_ref(&pod)), of(&[("k8s.pod.name", text("x")), ("s", text("y"))])),
        (of(&[pod.clone(), ("logtag", text("z")), ("n", AnyValue::Int(1))]), of(&[])),
        (of(&[("log.file.path", text("/elsewhere"))]), of(&[("s", AnyValue::Double(0.5))])),
        (of(&[("a", AnyValue::Array(vec![AnyValue::Empty])), pod]), of(&[])),
    ]
}

/// A chain, and the request that it fills.
struct Run {
    chain: Chain,
    out: Encoder,
}

impl Run {
    fn new(operators: &str) -> Run {
        Run { chain: chain(operators), out: Encoder::default() }
    }

    fn process(&mut self, line: &[u8], place: u64, stream: u64, source: &(Map, Map)) {
        let body = match str::from_utf8(line) {
            Ok(text) => AnyValue::String(text.to_owned()),
            Err(_) => AnyValue::Bytes(line.to_vec()),
        };
        let range = place * 10..place * 10 + 9;
        let mut record = Record::new(body, 7, Origin { stream, range });
        (record.attributes, record.resource) = source.clone();
        let mut left = Vec::new();
        self.chain.process(record, &mut left);
        left.iter().for_each(|record| self.out.push(record));
    }

    /// Whether it was written without a record.
    fn write(&mut self, line: &[u8], stream: u64, source: &(Map, Map)) -> bool {
        self.chain.begin(&source.0, &source.1);
        str::from_utf8(line).is_ok_and(|text| self.chain.write(text, stream, 7, &mut self.out))
    }

    fn end(mut self) -> (Vec<u8>, Counts, Option<crate::chain::Failure>) {
        let mut left = Vec::new();
        self.chain.flush(Duration::MAX, &mut left);
        left.iter().for_each(|record| self.out.push(record));
        (self.out.finish().to_vec(), self.chain.counts(), self.chain.take_failure())
    }
}

/// Text of JSON of all forms, also such as is wrong.
fn json() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        4 => select(vec![
            "0", "-0", "1", "-12", "127", "128", "9007199254740993", "9223372036854775807",
            "-9223372036854775808", "9223372036854775808", "123456789012345678901234567890",
            "0.1", "1.0", "-2.5e-3", "1E5", "1e400", "5e-324", "01", "1.", "-", "+1", ".5", "1e",
            "true", "false", "null", "tru", "NaN", "\"\"", "\"a b\"", "\"\\n\\\"\\u00e9\"",
            "\"2024-04-13T07:59:37.5Z\"", "\"2024-04-13T07:59:37Z\"", "\"1712995177.505\"",
            "1712995177", "1712995177.505", "\"warn\"", "\"INFO\"", "\"info\"", "\"e\\u0072ror\"",
            "17", "503", "\"503\"", "13.0",
            "\"\\ud83d\\ude00\"", "\"\\ud800x\"", "\"\\q\"", "\"tab\there\"", "\"é€\"", "\"open",
        ]).prop_map(str::to_owned),
        1 => any::<String>().prop_map(|text| serde_json::Value::from(text).to_string()),
        1 => (0..300_usize).prop_map(|length| format!("\"{}\"", "x".repeat(length))),
    ];
    let value = scalar.prop_recursive(4, 40, 6, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..6);
        prop_oneof![
            list.prop_map(|values| format!("[{}]", values.join(", "))),
            object(inner, 6),
            (1..30_usize, any::<bool>()).prop_map(|(depth, is_map)| {
                let (open, close) = if is_map { ("{\"k\":", "}") } else { ("[", "]") };
                format!("{}1{}", open.repeat(depth), close.repeat(depth))
            }),
        ]
    });
    let end = select(vec!["", "", "", "", " ", " x", "}"]);
    let whole = prop_oneof![8 => object(value, 12), 1 => Just("null".to_owned())];
    (whole, end).prop_map(|(object, end)| object + end)
}

fn object(value: impl Strategy<Value = String>, most: usize) -> impl Strategy<Value = String> {
    let key = prop_oneof![
        4 => "[a-z]{1,8}",
        2 => select(vec!["time", "level"]).prop_map(str::to_owned),
        1 => select(vec![
            "a", "n", "logtag", "log.iostream", "log.file.path", "", "é", "\\u0061", "log\\n", "k",
        ]).prop_map(str::to_owned),
    ];
    let member = (key, value).prop_map(|(key, value)| format!("\"{key}\":{value}"));
    let members = prop_oneof![
        9 => prop::collection::vec(member, 0..most),
        1 => (60..70_usize).prop_map(|count| (0..count).map(|n| format!("\"n{n}\":1")).collect()),
    ];
    members.prop_map(|members| format!("{{{}}}", members.join(",")))
}

/// A text with what chains look for.
fn timed() -> impl Strategy<Value = String> {
    let times = select(vec![
        "2024-04-13T07:59:37.505201169Z",
        "2024-04-13T07:59:37Z",
        "2024-04-13T07:59:37+0100",
        "1712995177",
        "1712995177.505",
        "today",
    ]);
    let levels = select(vec!["warn", "INFO", "17", "503", "-1", "1e2", "none", "", "e\\u0072r"]);
    (times, levels, 0..6_usize, "[ab\"]{0,3}").prop_map(|(time, level, form, more)| match form {
        0 => format!("{time} {level} {more}"),
        1 => format!("{{\"level\":\"{level}\",\"n\":{{\"time\":1}},\"time\":\"{time}\"}}"),
        2 => format!("{{\"time\":{time},\"level\":{level}}}"),
        3 => format!("{{\"time\":{time},\"level\":\"{level}\",\"m\":\"{more}\"}}"),
        _ => format!("{{\"time\":\"{time}\",\"level\":\"{level}\"}}"),
    })
}

/// A program's text.
fn log() -> impl Strategy<Value = String> {
    prop_oneof![4 => json(), 3 => timed(), 1 => any::<String>(), 1 => "[a-z é{]{0,200}"]
}

fn time() -> impl Strategy<Value = &'static str> {
    select(vec![
        "2024-04-13T07:59:37.505201169Z",
        "2024-04-13T07:59:37.505201169Z",
        "2024-04-13T07:59:37Z",
        "2024-04-13T07:59:37.5-10:00",
        "1970-01-01T00:00:00Z",
        "2024-13-13T07:59:37Z",
        "today",
    ])
}

fn stream() -> impl Strategy<Value = &'static str> {
    select(vec!["stdout", "stdout", "stdout", "stderr", "stdin"])
}

/// Lines as containerd and CRI-O write them, Docker's, and others.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let tag = select(vec!["F", "F", "F", "P", "P", "F:x", ""]);
    let cri = (time(), stream(), tag, log())
        .prop_map(|(time, stream, tag, log)| format!("{time} {stream} {tag} {log}"));
    let more = select(vec!["", "", "", ",\"attrs\":{\"a\":1}", ",\"log\":\"again\"", ",\"a\":1"]);
    let docker =
        (time(), stream(), log(), more, 0..8_usize).prop_map(|(time, stream, log, more, turn)| {
            let log = match turn {
                0 => "1".to_owned(),
                1 => format!("\"{log}\""),
                _ => serde_json::Value::from(log + "\n").to_string(),
            };
            let (time, stream) =
                (format!("\"time\":\"{time}\""), format!("\"stream\":\"{stream}\""));
            let members = match turn % 3 {
                0 => [&*time, &*stream, "\"log\":"].join(","),
                1 => [&*stream, &*time, "\"log\":"].join(","),
                _ => return format!("{{\"log\":{log},{stream},{time}{more}}}"),
            };
            format!("{{{members}{log}{more}}}")
        });
    let text = prop_oneof![4 => cri, 3 => docker, 3 => log()].prop_map(String::into_bytes);
    prop_oneof![20 => text, 1 => prop::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Guarantee: the bytes of the request, the counts and the failure are those of the operators,
    /// whatever lines come in whatever order.
    #[test]
    fn compiled_chains_write_what_their_operators_make(
        chain in 0..CHAINS.len(),
        source in 0..5_usize,
        lines in prop::collection::vec((line(), 0..2_u64), 1..8),
    ) {
        let (mut plain, mut compiled) = (Run::new(CHAINS[chain]), Run::new(CHAINS[chain]));
        let source = &sources()[source];
        for ((line, stream), place) in lines.iter().zip(0..) {
            plain.process(line, place, *stream, source);
            if !compiled.write(line, *stream, source) {
                compiled.process(line, place, *stream, source);
            }
            prop_assert_eq!(plain.chain.held(), compiled.chain.held());
        }
        prop_assert_eq!(plain.end(), compiled.end(), "{}", CHAINS[chain]);
    }
}

/// Guarantee: lines as they mostly are need no record; those that an operator has to see do.
#[test]
fn usual_lines_are_written_straight() {
    let [pod, _, with_tag, elsewhere, _] = sources();
    let cri = |text: &str| format!("2024-04-13T07:59:37.505201169Z stdout F {text}");
    let docker = r#"{"log":"a\n","stream":"stderr","time":"2024-04-13T07:59:37.5Z"}"#;
    let json = r#"{"a": 1, "b": [{"c": "\u00e9"}], "d": null, "e": {"a": true}}"#;
    for (operators, line, source, expected) in [
        (0, cri("x"), &pod, true),
        (0, docker.to_owned(), &pod, true),
        (2, docker.replacen('{', "null,", 1), &pod, false),
        (0, cri("x").replace(" F ", " P "), &pod, false),
        (0, cri("x"), &with_tag, false),
        (0, cri("x"), &elsewhere, false),
        (1, cri("x"), &elsewhere, true),
        (5, cri(json), &pod, true),
        (5, cri("{"), &pod, false),
        (5, cri(r#"{"log.iostream": 1}"#), &pod, false),
        (5, cri(r#"{"a": {"b": 1, "b": 2}}"#), &pod, false),
        (5, docker.replace("a\\n", r#"{\"a\":1}\n"#), &pod, true),
        (7, cri("a b"), &pod, true),
        (8, json.to_owned(), &pod, true),
        (10, "x stdout y".to_owned(), &pod, true),
        (10, "xy".to_owned(), &pod, false),
        (12, "x".to_owned(), &with_tag, false),
        (13, r#"{"time": "2024-04-13T07:59:37.5Z"}"#.to_owned(), &pod, true),
        (13, r#"{"time": 1}"#.to_owned(), &pod, false),
        (13, r#"{"a": {"time": "2024-04-13T07:59:37.5Z"}}"#.to_owned(), &pod, false),
        (14, r#"{"level": "warn", "a": 1}"#.to_owned(), &pod, true),
        (15, r#"{"level": 17, "time": 1712995177}"#.to_owned(), &pod, true),
        (16, cri(r#"{"time": "2024-04-13T07:59:37Z", "level": "info"}"#), &pod, true),
        (16, cri(r#"{"time": "2024-04-13T07:59:37Z"}"#), &pod, false),
        (17, r#"{"level": 17, "time": 1712995177.5}"#.to_owned(), &pod, true),
        (18, "2024-04-13T07:59:37+0100 warn x".to_owned(), &pod, true),
        (19, "2024-04-13T07:59:37.25Z x".to_owned(), &pod, true),
    ] {
        let mut run = Run::new(CHAINS[operators]);
        assert_eq!(run.write(line.as_bytes(), 1, source), expected, "{} {line}", CHAINS[operators]);
    }
}

/// Scenario: a part of a log is held. Guarantee: lines of its file go to the operators, which join
/// them; those of another file do not.
#[test]
fn lines_behind_a_part_are_left_to_the_operators() {
    let (mut run, [pod, ..]) = (Run::new(CHAINS[0]), sources());
    let line = |tag: &str| format!("2024-04-13T07:59:37Z stdout {tag} x").into_bytes();
    assert!(run.write(&line("F"), 1, &pod));
    run.process(&line("P"), 0, 1, &pod);
    assert!(!run.write(&line("F"), 1, &pod));
    assert!(run.write(&line("F"), 2, &pod));
    run.process(&line("F"), 1, 1, &pod);
    assert!(run.write(&line("F"), 1, &pod));
}

/// Guarantee: other chains are left as they are.
#[test]
fn chains_with_anything_else_are_not_compiled() {
    let [pod, ..] = sources();
    for operators in [
        "- {type: noop}",
        "- {type: json_parser, if: body != ''}",
        "- {type: json_parser, parse_to: body}",
        "- {type: json_parser, parse_from: body.x}",
        "- {type: json_parser, severity: {parse_from: attributes.a.b}}",
        "- {type: json_parser, timestamp: {parse_from: body, layout: '%Y'}}",
        "- {type: json_parser, scope_name: {parse_from: attributes.a}}",
        "- {type: json_parser}\n- {type: severity_parser, if: true == true, parse_from: attributes.a}",
        "- {type: severity_parser, parse_from: attributes.a}\n- {type: json_parser}",
        "- {type: json_parser, severity: {parse_from: attributes.a}}\n\
            - {type: severity_parser, parse_from: attributes.a}",
        "- {type: json_parser}\n- {type: json_parser}",
        "- {type: json_parser, output: end}\n- {type: noop, id: end}",
        "- {type: container}\n- {type: container}",
        "- {type: container}\n- {type: json_parser}\n- {type: noop}",
        "- {type: container, output: [a, b]}\n- {type: json_parser, id: a}\n- {type: noop, id: b}",
    ] {
        let mut run = Run::new(operators);
        for line in ["{\"a\":1}", "2024-04-13T07:59:37Z stdout F {\"a\":1}"] {
            assert!(!run.write(line.as_bytes(), 1, &pod), "{operators}");
        }
    }
}
