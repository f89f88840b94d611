//! Operators of logs: their parsers, chains of them, and the language of expressions.
//!
//! The first byte of an input of `operators` chooses a chain, and each line behind it is the body
//! of a record. An input of `expression` is an expression, and behind the first line feed the JSON
//! of the attributes.

use std::sync::OnceLock;
use std::time::Duration;

use sluice_config::read_text;
use sluice_operators::{Chain, ChainConfig, Encoder, Origin, Record, encode};
use sluice_otlp::{AnyValue, Signal, scan};

/// More than an evaluation may make, and a record besides.
const MOST_BYTES: usize = 16 << 20;

/// Chains of one operator each, which sends a record on that it cannot parse: as it came.
const PARSERS: [&str; 24] = [
    "{type: json_parser}",
    "{type: json_parser, parse_ints: true, parse_to: body}",
    "{type: json_array_parser, parse_to: body}",
    "{type: json_array_parser, header: 'a,b'}",
    "{type: csv_parser, header: 'a,b,c'}",
    "{type: csv_parser, header: 'a,b', lazy_quotes: true}",
    "{type: csv_parser, header: 'a,b', ignore_quotes: true}",
    "{type: key_value_parser}",
    "{type: key_value_parser, delimiter: ':', pair_delimiter: ','}",
    "{type: uri_parser}",
    "{type: regex_parser, regex: '^(?P<time>\\S+) \\[(?P<level>\\w*)\\] (?P<text>.*)$'}",
    "{type: syslog_parser, protocol: rfc3164}",
    "{type: syslog_parser, protocol: rfc3164, allow_skip_pri_header: true}",
    "{type: syslog_parser, protocol: rfc5424}",
    "{type: syslog_parser, protocol: rfc5424, enable_octet_counting: true}",
    "{type: time_parser, parse_from: body, layout: '%Y-%m-%dT%H:%M:%S.%f%z'}",
    "{type: time_parser, parse_from: body, layout: '%a %b %e %I:%M %p %Z'}",
    "{type: time_parser, parse_from: body, layout_type: gotime, layout: 'Jan _2 15:04:05.000 MST'}",
    "{type: time_parser, parse_from: body, layout_type: epoch, layout: s.us}",
    "{type: severity_parser, parse_from: body}",
    "{type: trace_parser, trace_id: {parse_from: body}, span_id: {parse_from: body}}",
    "{type: scope_name_parser, parse_from: body}",
    "{type: unquote, field: body}",
    "{type: container, format: docker, add_metadata_from_filepath: false}",
];

/// Chains in which records wait, part and change.
const CHAINS: [&str; 5] = [
    "[{type: container, add_metadata_from_filepath: false}, {type: json_parser, if: 'body \
    contains \"{\"'}]",
    "[{type: recombine, combine_field: body, is_first_entry: 'body matches \"^[0-9]\"', \
    max_log_size: 40}]",
    "[{type: recombine, combine_field: body, is_last_entry: 'body endsWith \".\"', \
    max_batch_size: 3}]",
    "[{type: json_parser, on_error: drop_quiet, timestamp: {parse_from: attributes.time, \
    layout_type: epoch, layout: s}, \
      severity: {parse_from: attributes.level}}, {type: flatten, field: attributes.m}, \
      {type: move, from: attributes.a, to: body}, {type: copy, from: body, to: attributes.b.c}]",
    "[{type: container, add_metadata_from_filepath: false}, {type: json_parser, parse_ints: true, \
    timestamp: {parse_from: attributes.time, layout: '%Y-%m-%dT%H:%M:%S.%f%z'}, \
      severity: {parse_from: attributes.level, mapping: {error: 5xx}}}]",
];

fn read(operators: &str) -> Result<ChainConfig, String> {
    let text = format!("{{operators: {operators}}}");
    let (chain, diagnostics) = read_text("r", &text, |fields| Chain::read(fields, "operators", ""));
    if diagnostics.has_errors() { Err(diagnostics.render(false)) } else { Ok(chain) }
}

fn chains() -> &'static [ChainConfig] {
    static MADE: OnceLock<Vec<ChainConfig>> = OnceLock::new();
    MADE.get_or_init(|| {
        let parsers = PARSERS.iter().map(|parser| format!("[{parser}]"));
        let chains = parsers.chain(CHAINS.map(str::to_owned));
        chains
            .map(|chain| read(&chain).unwrap_or_else(|errors| panic!("{chain}: {errors}")))
            .collect()
    })
}

fn record(body: AnyValue, start: usize, end: usize) -> Record {
    let range = start as u64..end as u64;
    Record::new(body, 1, Origin { stream: 1, range })
}

/// The records that come out of a chain make a valid request. It is the same if lines are written
/// straight, where they can be. A parser that fails changes nothing, and nothing stays behind.
pub fn check_operators(data: &[u8]) {
    let Some((&first, lines)) = data.split_first() else { return };
    let number = usize::from(first) % chains().len();
    let (mut chain, mut straight) = (chains()[number].build(), chains()[number].build());
    let (mut written, mut left) = (Encoder::default(), Vec::new());
    straight.begin(&Vec::new(), &Vec::new());
    let (mut out, mut at, mut taken) = (Vec::new(), 0, 0);
    for line in lines.split(|byte| *byte == b'\n') {
        let body = match std::str::from_utf8(line) {
            Ok(text) => AnyValue::String(text.to_owned()),
            Err(_) => AnyValue::Bytes(line.to_vec()),
        };
        let given = record(body, at, at + line.len());
        at += line.len() + 1;
        taken += 1;
        let errors = chain.counts().errors;
        chain.process(given.clone(), &mut out);
        let text = std::str::from_utf8(line);
        if !text.is_ok_and(|text| straight.write(text, 1, 1, &mut written)) {
            straight.process(given.clone(), &mut left);
            left.drain(..).for_each(|record| written.push(&record));
        }
        if number < PARSERS.len() && chain.counts().errors > errors {
            assert_eq!(out.last(), Some(&given), "a record that failed is as it was");
        }
    }
    chain.flush(Duration::MAX, &mut out);
    assert_eq!(chain.held_bytes(), 0);
    assert!(chain.held().is_empty());
    if number < PARSERS.len() {
        assert_eq!(out.len(), taken, "one record for each");
    }
    straight.flush(Duration::MAX, &mut left);
    left.iter().for_each(|record| written.push(record));
    assert_eq!(straight.counts(), chain.counts());
    let most = written.len();
    let written = written.finish();
    assert!(written.len() <= most);
    assert!(written == check_encoded(&out), "the same, whichever way");
}

fn check_encoded(records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let encoded = encode(records, &mut bytes);
    assert_eq!(encoded.items as usize, records.len());
    assert_eq!(scan(Signal::Logs, &bytes).ok(), Some(encoded.items));
    bytes
}

/// An expression is refused with a reason, or gives the same for a record each time: a value of a
/// bounded size, or a failure.
pub fn check_expression(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (expression, object) = text.split_once('\n').unwrap_or((text, "{}"));
    // A string of JSON is one of YAML.
    let value = serde_json::Value::from(format!("EXPR({expression})"));
    let condition = serde_json::Value::from(expression);
    let operators = format!(
        "[{{type: json_parser, parse_ints: true}}, {{type: add, field: attributes.value, value: \
        {value}}}, \
         {{type: add, field: attributes.holds, value: true, if: {condition}}}]"
    );
    let config = match read(&operators) {
        Ok(config) => config,
        Err(reason) => {
            assert!(!reason.trim().is_empty());
            return;
        }
    };
    let run = || {
        let (mut chain, mut out) = (config.build(), Vec::new());
        chain.process(record(AnyValue::String(object.to_owned()), 0, object.len()), &mut out);
        (out, chain.counts())
    };
    let first = run();
    assert_eq!(first.0.len(), 1);
    let mut bytes = Vec::new();
    encode(&first.0, &mut bytes);
    assert!(bytes.len() < MOST_BYTES + 2 * text.len(), "{} bytes", bytes.len());
    check_encoded(&first.0);
    if !expression.contains("now") {
        let second = run();
        // Not by `==`: a number may be NaN.
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
    }
}
