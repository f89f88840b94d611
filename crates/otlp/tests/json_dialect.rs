//! Unusual JSON that the reader takes or refuses, and the texts of its errors.

mod support;

use sluice_otlp::Signal;
use sluice_otlp::json::{JsonError, JsonReason, from_json, to_json};

use support::decoded::assert_equivalent;

fn read(json: &str) -> Result<Vec<u8>, JsonError> {
    from_json(Signal::Logs, json.as_bytes(), 1 << 20)
}

fn log_record(members: &str) -> String {
    format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{{{members}}}]}}]}}]}}"#)
}

/// Reads the record and writes it again: the members that were understood, in the writer's form.
fn understood(members: &str) -> Result<String, JsonReason> {
    let request = read(&log_record(members)).map_err(|error| error.reason)?;
    let mut json = Vec::new();
    to_json(Signal::Logs, &request, 1 << 20, &mut json).expect("what was read can be written");
    let json = String::from_utf8(json).expect("JSON is text");
    let record = json
        .strip_prefix(r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"#)
        .expect("one record");
    Ok(record.strip_suffix("}]}]}]}").expect("one record").to_owned())
}

#[test]
fn an_empty_object_is_an_empty_request() {
    for json in [
        "{}",
        " {\r\n\t} ",
        r#"{"resourceLogs":[]}"#,
        r#"{"resourceLogs":null}"#,
        r#"{"other":[1]}"#,
    ] {
        assert_eq!(read(json), Ok(Vec::new()), "{json}");
    }
}

#[test]
fn null_is_absent() {
    assert_eq!(
        understood(r#""timeUnixNano":null,"body":null,"attributes":null,"traceId":null"#)
            .as_deref(),
        Ok("")
    );
    assert_eq!(understood(r#""body":{"stringValue":null}"#).as_deref(), Ok(r#""body":{}"#));
    assert_eq!(
        understood(r#""body":{"arrayValue":{"values":[null,{}]}}"#).as_deref(),
        Ok(r#""body":{"arrayValue":{"values":[{},{}]}}"#)
    );
}

#[test]
fn integers_are_numbers_or_strings() {
    let expected = Ok(r#""timeUnixNano":"1000","flags":7"#.to_owned());
    assert_eq!(understood(r#""timeUnixNano":"1000","flags":7"#), expected);
    assert_eq!(understood(r#""timeUnixNano":1000,"flags":"7""#), expected);
    assert_eq!(understood(r#""timeUnixNano":1e3,"flags":7.0"#), expected);
}

#[test]
fn enums_are_integers_or_names() {
    for members in [r#""severityNumber":17"#, r#""severityNumber":"SEVERITY_NUMBER_ERROR""#] {
        assert_eq!(understood(members).as_deref(), Ok(r#""severityNumber":17"#), "{members}");
    }
    assert_eq!(
        understood(r#""severityNumber":99"#).as_deref(),
        Ok(r#""severityNumber":99"#),
        "enums are open"
    );
    assert_eq!(understood(r#""severityNumber":"ERROR""#), Err(JsonReason::UnknownEnumName));
}

/// Default values are left out, but not where presence matters.
#[test]
fn defaults_are_left_out_unless_they_are_set_explicitly() {
    assert_eq!(
        understood(
            r#""timeUnixNano":"0","severityNumber":0,"severityText":"","traceId":"","body":{}"#
        )
        .as_deref(),
        Ok(r#""body":{}"#)
    );
    for body in [
        r#"{"stringValue":""}"#,
        r#"{"intValue":"0"}"#,
        r#"{"boolValue":false}"#,
        r#"{"bytesValue":""}"#,
    ] {
        assert_eq!(understood(&format!(r#""body":{body}"#)), Ok(format!(r#""body":{body}"#)));
    }
}

/// As on the wire: the last scalar counts, even a default; messages and arrays add up; the last
/// member of a oneof counts.
#[test]
fn a_member_that_occurs_twice_reads_as_two_occurrences_on_the_wire() {
    assert_eq!(
        understood(r#""severityText":"a","severityText":"b""#).as_deref(),
        Ok(r#""severityText":"b""#)
    );
    assert_eq!(understood(r#""severityText":"a","severityText":"""#).as_deref(), Ok(""));
    assert_eq!(understood(r#""flags":1,"flags":0"#).as_deref(), Ok(""));
    assert_eq!(
        understood(r#""attributes":[{"key":"a"}],"attributes":[{"key":"b"}]"#).as_deref(),
        Ok(r#""attributes":[{"key":"a"},{"key":"b"}]"#)
    );
    assert_eq!(
        understood(r#""body":{"stringValue":"x","intValue":1}"#).as_deref(),
        Ok(r#""body":{"intValue":"1"}"#)
    );
}

/// Special doubles have no JSON number.
#[test]
fn special_doubles_are_strings() {
    for text in [r#""NaN""#, r#""Infinity""#, r#""-Infinity""#, "1.5", "-0.0", "0.001"] {
        let body = format!(r#""body":{{"doubleValue":{text}}}"#);
        assert_eq!(understood(&body).as_deref(), Ok(body.as_str()));
    }
    assert_eq!(
        understood(r#""body":{"doubleValue":"1.5"}"#).as_deref(),
        Ok(r#""body":{"doubleValue":1.5}"#)
    );
}

#[test]
fn values_of_another_type_are_refused() {
    let cases = [
        (r#""timeUnixNano":true"#, JsonReason::Expected("an unsigned 64-bit integer")),
        (r#""timeUnixNano":-1"#, JsonReason::OutOfRange("an unsigned 64-bit integer")),
        (r#""timeUnixNano":1.5"#, JsonReason::Expected("an integer")),
        (r#""timeUnixNano":"1 ""#, JsonReason::Expected("an integer")),
        (r#""flags":4294967296"#, JsonReason::OutOfRange("an unsigned 32-bit integer")),
        (r#""severityText":1"#, JsonReason::Expected("a string")),
        (r#""body":"text""#, JsonReason::Expected("an object")),
        (r#""body":{"boolValue":"true"}"#, JsonReason::Expected("true or false")),
        (r#""body":{"bytesValue":"~"}"#, JsonReason::InvalidBase64),
        (r#""attributes":{}"#, JsonReason::Expected("an array")),
        (r#""traceId":"5b8efff7""#, JsonReason::IdLength { expected: 32, actual: 8 }),
        (r#""spanId":"eee19b7ec3c1b17g""#, JsonReason::InvalidHex),
    ];
    for (members, reason) in cases {
        assert_eq!(understood(members), Err(reason), "{members}");
    }
}

#[test]
fn bodies_that_are_not_one_json_object_are_refused() {
    let cases = [
        ("", JsonReason::UnexpectedEnd),
        ("[]", JsonReason::Expected("an object")),
        ("null", JsonReason::Expected("an object")),
        ("{}{}", JsonReason::TrailingData),
        ("{", JsonReason::UnexpectedEnd),
        ("{,}", JsonReason::Expected("a string")),
        (r#"{"a":1,}"#, JsonReason::Expected("a string")),
        (r#"{"resourceLogs":[{}"#, JsonReason::UnexpectedEnd),
        (r#"{"resourceLogs":[{},]}"#, JsonReason::Expected("an object")),
    ];
    for (json, reason) in cases {
        assert_eq!(read(json).map_err(|error| error.reason), Err(reason), "{json}");
    }
}

/// The reader of the answer has to find the place without this code at hand.
#[test]
fn an_error_names_the_member_and_the_place() {
    let json = "{\"resourceLogs\":[{},\n {\"scopeLogs\":[{\"logRecords\":[{},{},\n  \
                {\"traceId\": \"12\"}]}]}]}";
    let error = read(json).expect_err("the id is too short");
    assert_eq!(error.path, "resourceLogs[1].scopeLogs[0].logRecords[2].traceId");
    assert_eq!((error.line, error.column), (3, 15));
    assert_eq!(&json[error.offset..error.offset + 4], "\"12\"");
    assert_eq!(
        error.to_string(),
        "invalid OTLP/JSON at line 3, column 15 (resourceLogs[1].scopeLogs[0].logRecords[2].traceId): \
         the id must have 32 hexadecimal digits, not 2"
    );
    assert_eq!(
        read("[]").expect_err("not an object").to_string(),
        "invalid OTLP/JSON at line 1, column 1: expected an object"
    );
}

/// Text that protobuf must not carry is mended, not refused: a whole batch hangs on it.
#[test]
fn text_that_is_not_unicode_is_replaced_both_ways() {
    let json = log_record("\"severityText\":\"?\"").replace('?', "\u{1}").into_bytes();
    let json: Vec<u8> = json.into_iter().map(|byte| if byte == 1 { 0xff } else { byte }).collect();
    let mended = read(&log_record("\"severityText\":\"\u{fffd}\"")).expect("valid");
    assert_equivalent(
        Signal::Logs,
        &mended,
        &from_json(Signal::Logs, &json, 1000).expect("mended"),
    );

    let broken = [0x0a, 7, 0x12, 5, 0x12, 3, 0x1a, 1, 0xff];
    let mut json = Vec::new();
    to_json(Signal::Logs, &broken, 1000, &mut json)
        .expect("a string that is not UTF-8 can be written");
    assert_eq!(
        String::from_utf8(json).expect("UTF-8"),
        log_record("\"severityText\":\"\u{fffd}\"")
    );
}
