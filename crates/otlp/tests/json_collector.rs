//! OTLP/JSON as a real OpenTelemetry Collector reads and writes it.

mod support;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::Value;
use sluice_otlp::Signal;
use sluice_otlp::json::{from_json, to_json};

use support::collector::Collector;
use support::decoded::{Decoded, assert_equivalent};
use support::generate::{Shape, wire_request};
use support::rewrite::Freedoms;
use support::schema::{Kind, Message, Presence};
use support::wire::{Record, records, write_record};

const LIMIT_BYTES: usize = 64 << 20;
const REQUESTS_PER_SIGNAL: usize = 60;

/// One Collector serves the whole test: starting it is most of the time that this takes.
#[test]
fn a_collector_reads_our_json_and_writes_the_same() {
    let Some(collector) = Collector::start() else {
        eprintln!("skipped: no Collector is installed (tests/components/install otelcol)");
        return;
    };
    for signal in Signal::ALL {
        arbitrary_requests_pass_unchanged(&collector, signal);
    }
    what_the_collector_reads_we_read_alike(&collector);
    what_the_collector_refuses_we_refuse(&collector);
}

fn arbitrary_requests_pass_unchanged(collector: &Collector, signal: Signal) {
    let shape = Shape { odd_ids: false, string_table: false, ..Shape::ANY };
    let strategy = wire_request(signal, shape, Freedoms::ALL)
        .prop_filter("the Collector drops what has no items", move |request| {
            Decoded::decode(signal, request).is_ok_and(|decoded| decoded.items() > 0)
        });
    let mut runner = TestRunner::deterministic();
    for _ in 0..REQUESTS_PER_SIGNAL {
        let request = strategy.new_tree(&mut runner).expect("a request").current();
        let mut ours = Vec::new();
        to_json(signal, &request, LIMIT_BYTES, &mut ours).expect("a valid request");
        let exported = collector.pass(signal, &ours).unwrap_or_else(|status| {
            panic!("the Collector answers {status} to {}", String::from_utf8_lossy(&ours));
        });
        let back =
            from_json(signal, &exported, LIMIT_BYTES).expect("the Collector's JSON can be read");
        let message = support::request(signal);
        assert_equivalent(
            signal,
            &with_absent_messages(message, &request),
            &with_absent_messages(message, &back),
        );
        assert_same_form(&ours, &exported);
    }
}

/// The Collector's data model has no absent messages but those of a oneof: it writes them as empty.
/// So both requests are given them before they are compared.
fn with_absent_messages(message: &'static Message, encoded: &[u8]) -> Vec<u8> {
    let original = records(encoded);
    let mut filled = Vec::new();
    for mut record in original.clone() {
        if let Some(Kind::Message(child)) =
            support::field(message, record.number).map(|field| field.kind)
        {
            record.value = with_absent_messages(child, &record.value);
        }
        write_record(&mut filled, &record, 0, 0);
    }
    for field in message.fields {
        let Kind::Message(child) = field.kind else { continue };
        let is_absent = original.iter().all(|record| record.number != field.number);
        if field.presence == Presence::Explicit && is_absent {
            let value = with_absent_messages(child, &[]);
            write_record(&mut filled, &Record { number: field.number, wire_type: 2, value }, 0, 0);
        }
    }
    filled
}

/// The same members with values of the same JSON types, whatever their order; empty objects count
/// as absent.
#[track_caller]
fn assert_same_form(ours: &[u8], theirs: &[u8]) {
    let form = |json| without_empty_objects(serde_json::from_slice(json).expect("JSON"));
    let (ours, theirs) = (form(ours), form(theirs));
    assert!(is_same_form(&ours, &theirs), "the forms differ\nours:   {ours}\ntheirs: {theirs}");
}

fn without_empty_objects(value: Value) -> Value {
    match value {
        Value::Array(values) => values.into_iter().map(without_empty_objects).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(name, value)| (name, without_empty_objects(value)))
            .filter(|(_, value)| value.as_object().is_none_or(|members| !members.is_empty()))
            .collect(),
        scalar => scalar,
    }
}

/// Doubles may be written in different ways (`5` and `5.0`), and `serde_json::Value` rounds them:
/// that they are equal is asserted on the request.
fn is_same_form(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Number(_), Value::Number(_)) => true,
        (Value::Array(ours), Value::Array(theirs)) => {
            ours.len() == theirs.len()
                && ours.iter().zip(theirs).all(|(ours, theirs)| is_same_form(ours, theirs))
        }
        (Value::Object(ours), Value::Object(theirs)) => {
            ours.len() == theirs.len()
                && ours.iter().all(|(name, ours)| {
                    theirs.get(name).is_some_and(|theirs| is_same_form(ours, theirs))
                })
        }
        _ => ours == theirs,
    }
}

fn log_record(members: &str) -> String {
    format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{{{members}}}]}}]}}]}}"#)
}

/// Spellings beside the usual that senders may rely on because the Collector takes them.
fn what_the_collector_reads_we_read_alike(collector: &Collector) {
    let spellings = [
        r#""timeUnixNano":1544712660300000000,"flags":"7""#,
        r#""time_unix_nano":"5","severity_text":"a","dropped_attributes_count":3"#,
        r#""severityNumber":"SEVERITY_NUMBER_WARN2""#,
        r#""severityNumber":9,"aMemberOfTomorrow":{"a":[1,{"b":null}]}"#,
        r#""traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"eee19b7ec3c1b174""#,
        r#""traceId":"","spanId":"""#,
        r#""body":{"doubleValue":"-Infinity"}"#,
        r#""body":{"doubleValue":"1.5"}"#,
        r#""body":{"bytesValue":"AP+A"}"#,
        r#""body":{"arrayValue":{"values":[null,{}]}}"#,
        r#""body":{"stringValue":"x","intValue":1}"#,
        r#""body":{"stringValue":"\ud83d\ude00 \ud83d \u00e9 \/"}"#,
        r#""severityText":"a","severityText":"b","attributes":[{"key":"a"}],"attributes":[{"key":"b"}]"#,
    ];
    let message = support::request(Signal::Logs);
    for members in spellings {
        let json = log_record(members);
        let exported = collector
            .pass(Signal::Logs, json.as_bytes())
            .unwrap_or_else(|status| panic!("the Collector answers {status} to {members}"));
        let theirs = from_json(Signal::Logs, &exported, LIMIT_BYTES)
            .expect("the Collector's JSON can be read");
        let ours = from_json(Signal::Logs, json.as_bytes(), LIMIT_BYTES)
            .unwrap_or_else(|error| panic!("the Collector takes {members}, we do not: {error}"));
        assert_equivalent(
            Signal::Logs,
            &with_absent_messages(message, &theirs),
            &with_absent_messages(message, &ours),
        );
    }
}

fn what_the_collector_refuses_we_refuse(collector: &Collector) {
    let refused = [
        r#""traceId":"5b8efff7""#,
        r#""spanId":"eee19b7ec3c1b17g""#,
        r#""timeUnixNano":true"#,
        r#""timeUnixNano":-1"#,
        r#""timeUnixNano":1.5"#,
        r#""flags":4294967296"#,
        r#""severityNumber":"ERROR""#,
        r#""severityText":1"#,
        r#""body":{"boolValue":"true"}"#,
        r#""body":{"bytesValue":"~"}"#,
        r#""body":{"stringValue":"unended"#,
    ];
    for members in refused {
        let json = log_record(members);
        assert!(
            collector.pass(Signal::Logs, json.as_bytes()).is_err(),
            "the Collector takes {members}"
        );
        assert!(from_json(Signal::Logs, json.as_bytes(), LIMIT_BYTES).is_err(), "{members}");
    }
}
