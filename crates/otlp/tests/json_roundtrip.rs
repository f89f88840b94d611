//! Properties of the translation between protobuf and OTLP/JSON, judged by the official generated
//! types.

mod support;

use proptest::prelude::*;
use sluice_otlp::json::{JsonReason, ToJsonError, from_json, to_json};
use sluice_otlp::{NESTING_LIMIT, Signal, scan};

use support::decoded::{Decoded, assert_equivalent};
use support::generate::{Shape, any_request, nested_value};
use support::wire::{Record, write_record};

const LIMIT_BYTES: usize = 64 << 20;

fn json_of(signal: Signal, request: &[u8]) -> Vec<u8> {
    let mut json = Vec::new();
    to_json(signal, request, LIMIT_BYTES, &mut json)
        .expect("a valid request can be written as JSON");
    json
}

proptest! {
    /// Whatever wire form a request has, its JSON is one line and means the same.
    #[test]
    fn a_request_survives_the_way_to_json_and_back(
        (signal, request) in any_request(Shape { odd_ids: false, ..Shape::ANY }),
    ) {
        let json = json_of(signal, &request);
        prop_assert!(!json.contains(&b'\n'));
        let back = from_json(signal, &json, LIMIT_BYTES).expect("what is written can be read");
        assert_equivalent(signal, &request, &back);
        prop_assert!(scan(signal, &back).is_ok(), "what is read from JSON is valid");
    }

    /// The JSON is JSON, and every member occurs once: an independent reader sees the same in every
    /// wire form.
    #[test]
    fn every_wire_form_of_a_request_has_the_same_json(
        (signal, request) in any_request(Shape::ANY),
    ) {
        let canonical = Decoded::decode(signal, &request).expect("a valid request").encode();
        let json = json_of(signal, &request);
        prop_assert!(serde_json::from_slice::<serde_json::Value>(&json).is_ok());
        prop_assert_eq!(String::from_utf8(json), String::from_utf8(json_of(signal, &canonical)));
    }

    /// Formatting, escapes and original field names change nothing.
    #[test]
    fn other_spellings_of_the_json_read_the_same(
        (signal, request) in any_request(Shape { odd_ids: false, ..Shape::ANY }),
    ) {
        let json = json_of(signal, &request);
        let spelled = respell(std::str::from_utf8(&json).expect("JSON is text"));
        let back = from_json(signal, spelled.as_bytes(), LIMIT_BYTES);
        let back = back.expect("another spelling can be read");
        assert_equivalent(signal, &request, &back);
    }

    /// No body makes the reader panic, and an accepted body is a valid request within the limit.
    #[test]
    fn damaged_json_is_refused_or_read(
        (signal, request) in any_request(Shape::ANY),
        at: prop::sample::Index,
        with: u8,
        cut: bool,
    ) {
        let mut json = json_of(signal, &request);
        let index = at.index(json.len());
        if cut { json.truncate(index) } else { json[index] = with }
        match from_json(signal, &json, LIMIT_BYTES) {
            Ok(read) => prop_assert!(scan(signal, &read).is_ok()),
            Err(error) => prop_assert!(error.offset <= json.len()),
        }
    }

    /// No request makes the writer panic; a request that the scan accepts can be written.
    #[test]
    fn damaged_requests_are_refused_or_written(
        (signal, request) in any_request(Shape::ANY),
        at: prop::sample::Index,
        with: u8,
    ) {
        let mut request = request;
        if !request.is_empty() {
            let index = at.index(request.len());
            request[index] = with;
        }
        let mut json = b"before".to_vec();
        let written = to_json(signal, &request, LIMIT_BYTES, &mut json);
        if scan(signal, &request).is_ok() {
            prop_assert!(written.is_ok(), "{:?}", written);
        }
        prop_assert!(json.starts_with(b"before"));
        prop_assert!(written.is_ok() || json.len() == 6, "nothing is left behind by a failure");
    }

    /// Both directions stop at their limit, never a byte above it.
    #[test]
    fn limits_hold(
        (signal, request) in any_request(Shape { odd_ids: false, ..Shape::ANY }),
        at: prop::sample::Index,
    ) {
        let json = json_of(signal, &request);
        let limit = at.index(json.len());
        prop_assert_eq!(
            to_json(signal, &request, limit, &mut Vec::new()),
            Err(ToJsonError::TooLarge { limit_bytes: limit })
        );
        prop_assert!(to_json(signal, &request, json.len(), &mut Vec::new()).is_ok());

        let read = from_json(signal, &json, LIMIT_BYTES).expect("valid JSON");
        prop_assert_eq!(&from_json(signal, &json, read.len()).expect("the limit suffices"), &read);
        if !read.is_empty() {
            let limit = at.index(read.len());
            prop_assert!(from_json(signal, &json, limit).is_err_and(|error| error.is_too_large()));
        }
    }
}

/// The same JSON with white space around every token, the member names of the .proto files, and
/// everything outside of ASCII escaped. (Not by way of `serde_json::Value`, which rounds doubles.)
fn respell(json: &str) -> String {
    let mut spelled = String::new();
    let mut rest = json;
    while let Some(first) = rest.chars().next() {
        if first != '"' {
            let is_punctuation = "{}[],:".contains(first);
            spelled.push_str(&if is_punctuation {
                format!("\n\t {first}\r\n")
            } else {
                first.to_string()
            });
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let mut escaped = false;
        let end = rest[1..]
            .find(|character| {
                let ends = character == '"' && !escaped;
                escaped = character == '\\' && !escaped;
                ends
            })
            .expect("a string ends");
        let (string, after) = rest.split_at(end + 2);
        let is_name = after.starts_with(':');
        spelled.push_str(&if is_name { original_name(string) } else { escape_non_ascii(string) });
        rest = after;
    }
    spelled
}

fn original_name(camel: &str) -> String {
    let separated = camel.chars().map(|character| match character.is_ascii_uppercase() {
        true => format!("_{}", character.to_ascii_lowercase()),
        false => character.to_string(),
    });
    separated.collect()
}

fn escape_non_ascii(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        if character.is_ascii() {
            escaped.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04X}"));
            }
        }
    }
    escaped
}

/// A body nested in `levels` arrays lies 4 + 2 × levels messages below the request.
fn nested_json(levels: usize) -> String {
    let body =
        format!("{}{{}}{}", "{\"arrayValue\":{\"values\":[".repeat(levels), "]}}".repeat(levels));
    format!("{{\"resourceLogs\":[{{\"scopeLogs\":[{{\"logRecords\":[{{\"body\":{body}}}]}}]}}]}}")
}

/// JSON may nest as deep as protobuf: a depth bomb is refused at the limit, not followed.
#[test]
fn nesting_is_bounded_as_on_the_wire() {
    let deepest = (NESTING_LIMIT - 4) / 2;
    let read = from_json(Signal::Logs, nested_json(deepest).as_bytes(), LIMIT_BYTES)
        .expect("nests within the limit");
    assert!(scan(Signal::Logs, &read).is_ok());
    assert_eq!(
        String::from_utf8(json_of(Signal::Logs, &read)).expect("JSON is text"),
        nested_json(deepest)
    );
    for levels in [deepest + 1, 100_000] {
        let error = from_json(Signal::Logs, nested_json(levels).as_bytes(), LIMIT_BYTES)
            .expect_err("too deep");
        assert_eq!(error.reason, JsonReason::TooDeep { limit: NESTING_LIMIT });
    }

    let too_deep = log_request(&prost::Message::encode_to_vec(&nested_value(deepest + 1)));
    assert!(matches!(
        to_json(Signal::Logs, &too_deep, LIMIT_BYTES, &mut Vec::new()),
        Err(ToJsonError::Malformed(_))
    ));
}

/// A singular message in absurdly many parts costs an error, not memory.
#[test]
fn parts_of_a_singular_message_are_bounded() {
    let resource_in_parts = |parts| {
        let mut resource_logs = Vec::new();
        for _ in 0..parts {
            write_record(
                &mut resource_logs,
                &Record { number: 1, wire_type: 2, value: Vec::new() },
                0,
                0,
            );
        }
        let mut request = Vec::new();
        write_record(&mut request, &Record { number: 1, wire_type: 2, value: resource_logs }, 0, 0);
        to_json(Signal::Logs, &request, LIMIT_BYTES, &mut Vec::new())
    };
    assert!(resource_in_parts(1024).is_ok());
    assert!(matches!(resource_in_parts(1025), Err(ToJsonError::Malformed(_))));
}

fn log_request(body: &[u8]) -> Vec<u8> {
    [5, 2, 2, 1].into_iter().fold(body.to_vec(), |value, number| {
        let mut message = Vec::new();
        write_record(&mut message, &Record { number, wire_type: 2, value }, 0, 0);
        message
    })
}
