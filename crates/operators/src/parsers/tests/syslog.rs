//! `syslog_parser`, with the Collector's cases.

use sluice_otlp::AnyValue;

use super::{NOW_NS, applied, built, map, read_text, reader, sorted, text};
use crate::operator::Read;
use crate::parsers::time::rfc3339;
use crate::record::Record;

fn syslog(options: &str, body: &str) -> Result<Record, String> {
    let mut record = applied("syslog_parser", options, text(body))?;
    let AnyValue::Map(attributes) = sorted(AnyValue::Map(record.attributes)) else { panic!() };
    record.attributes = attributes;
    Ok(record)
}

fn attributes(record: Record) -> AnyValue {
    AnyValue::Map(record.attributes)
}

const INT: fn(i64) -> AnyValue = AnyValue::Int;

#[test]
fn messages_of_rfc_3164_are_parsed() {
    let expected = map([
        ("appname", text("apache_server")),
        ("facility", INT(4)),
        ("facility_text", text("auth")),
        ("hostname", text("1.2.3.4")),
        ("message", text("test message")),
        ("priority", INT(34)),
    ]);
    let body = "<34>Jan 12 06:30:00 1.2.3.4 apache_server: test message";
    for (location, time) in
        [("UTC", "2026-01-12T06:30:00Z"), ("America/Detroit", "2026-01-12T06:30:00-05:00")]
    {
        let found = syslog(&format!("protocol: rfc3164\nlocation: {location}"), body).unwrap();
        assert_eq!(found.time_ns, rfc3339(time));
        assert_eq!((found.severity, found.severity_text.as_str()), (18, "crit"));
        assert_eq!(attributes(found), expected);
    }
}

#[test]
fn parts_of_rfc_3164_may_be_absent() {
    for (rest, expected) in [
        (
            "host app[99]: hi",
            map([
                ("appname", text("app")),
                ("hostname", text("host")),
                ("message", text("hi")),
                ("proc_id", text("99")),
            ]),
        ),
        (
            "app[99]: hi",
            map([("appname", text("app")), ("message", text("hi")), ("proc_id", text("99"))]),
        ),
        ("app: hi: there", map([("appname", text("app")), ("message", text("hi: there"))])),
        ("app:hi", map([("appname", text("app")), ("message", text("app:hi"))])),
        (
            "host app[99] hi",
            map([
                ("appname", text("app")),
                ("hostname", text("host")),
                ("message", text("app[99] hi")),
                ("proc_id", text("99")),
            ]),
        ),
        ("host no tag here", map([("hostname", text("host")), ("message", text("no tag here"))])),
        ("alone", map([("message", text("alone"))])),
        ("alone ", map([("hostname", text("alone")), ("message", text("alone "))])),
        ("host   spaced out\n", map([("hostname", text("host")), ("message", text("spaced out"))])),
        (
            "host %ASA-1-104001: (é)\tx",
            map([
                ("appname", text("%ASA-1-104001")),
                ("hostname", text("host")),
                ("message", text("(é)\tx")),
            ]),
        ),
    ] {
        let body = format!("Feb 05 14:51:09 {rest}");
        let options = "protocol: rfc3164\nallow_skip_pri_header: true";
        let found = syslog(options, &body).unwrap();
        assert_eq!((found.severity, found.time_ns), (0, rfc3339("2026-02-05T14:51:09Z")));
        assert_eq!(attributes(found), expected, "{rest}");
    }
    let found = syslog("protocol: RFC3164", "<0>  Dec  6 14:51:09 h a: b").unwrap();
    assert_eq!(found.time_ns, rfc3339("2025-12-06T14:51:09Z"), "more than a week ahead");
    assert_eq!((found.severity, found.severity_text.as_str()), (21, "emerg"));
}

#[test]
fn messages_of_rfc_5424_are_parsed() {
    let body = [
        "<86>1 2015-08-05T21:58:59.693Z 192.168.1.132 SecureAuth0 23108 ID52020",
        r#" [SecureAuth@27389 UserHostAddress="192.168.2.132" Realm="SecureAuth0""#,
        r#" Note="a \"q\" \\ \]" Empty=""][other@1] Found the user"#,
    ]
    .concat();
    let expected = map([
        ("appname", text("SecureAuth0")),
        ("facility", INT(10)),
        ("facility_text", text("authpriv")),
        ("hostname", text("192.168.1.132")),
        ("message", text("Found the user")),
        ("msg_id", text("ID52020")),
        ("priority", INT(86)),
        ("proc_id", text("23108")),
        (
            "structured_data",
            map([
                (
                    "SecureAuth@27389",
                    map([
                        ("Empty", text("")),
                        ("Note", text("a \"q\" \\ ]")),
                        ("Realm", text("SecureAuth0")),
                        ("UserHostAddress", text("192.168.2.132")),
                    ]),
                ),
                ("other@1", map([])),
            ]),
        ),
        ("version", INT(1)),
    ]);
    for (options, body) in [
        ("protocol: rfc5424", body.clone()),
        ("protocol: rfc5424\nenable_octet_counting: true", format!("{} {body}", body.len())),
        ("protocol: rfc5424\nnon_transparent_framing_trailer: LF", format!("{body}\n")),
        ("protocol: rfc5424\nnon_transparent_framing_trailer: NUL", format!("{body}\0")),
    ] {
        let found = syslog(options, &body).unwrap();
        assert_eq!(found.time_ns, rfc3339("2015-08-05T21:58:59.693Z"));
        assert_eq!((found.severity, found.severity_text.as_str()), (9, "info"));
        assert_eq!(attributes(found), expected, "{options}");
    }
}

#[test]
fn parts_of_rfc_5424_may_be_absent() {
    let found = syslog("protocol: rfc5424", "<191>999 - - - - - -").unwrap();
    assert_eq!((found.time_ns, found.severity), (None, 5));
    let expected = [
        ("facility", INT(23)),
        ("facility_text", text("local7")),
        ("priority", INT(191)),
        ("version", INT(999)),
    ];
    assert_eq!(attributes(found), map(expected));
    let options = "protocol: rfc5424\nallow_skip_pri_header: true";
    let found = syslog(options, "1 2015-08-05T21:58:59+02:00 h - - - - m\nn").unwrap();
    assert_eq!((found.time_ns, found.severity), (rfc3339("2015-08-05T19:58:59Z"), 0));
    assert_eq!(
        attributes(found),
        map([("hostname", text("h")), ("message", text("m\nn")), ("version", INT(1))])
    );
}

#[test]
fn any_text_is_a_message_without_a_protocol() {
    let found = syslog("protocol: none\nenable_octet_counting: true", "9 <34>hello").unwrap();
    assert_eq!((found.severity, found.severity_text.as_str(), found.time_ns), (18, "crit", None));
    let expected = [
        ("facility", INT(4)),
        ("facility_text", text("auth")),
        ("message", text("<34>hello")),
        ("priority", INT(34)),
    ];
    assert_eq!(attributes(found), map(expected));
    for body in ["plain", "<192>x", "<>x", "9 <34>hello", "<+34>x"] {
        let found = syslog("protocol: none", body).unwrap();
        assert_eq!(attributes(found), map([("message", text(body))]), "{body}");
    }
}

#[test]
fn lengths_before_messages_are_checked() {
    let options = "protocol: rfc3164\nenable_octet_counting: true\nmax_octets: 40";
    let body = "<34>Oct 11 22:14:15 h a: two\nlines\n";
    let found = syslog(options, &format!("{} {body}", body.len())).unwrap();
    let AnyValue::Map(values) = attributes(found) else { panic!() };
    assert!(values.contains(&("message".to_owned(), text("two\nlines"))));
    for (ending, expected) in [("\r\n", "text"), ("\n\n", "text\n"), ("\r", "text\r")] {
        let body = format!("<34>Oct 11 22:14:15 h a: text{ending}");
        let found = syslog(options, &format!("{} {body}", body.len())).unwrap();
        let AnyValue::Map(values) = attributes(found) else { panic!() };
        assert!(values.contains(&("message".to_owned(), text(expected))), "{body:?}");
    }
    for (body, expected) in [
        (body.to_owned(), "has no length before it"),
        (format!("{} {body}", body.len() + 1), "as its length says"),
        (format!("{} {body}", body.len() - 7), "text behind the message"),
        (format!("41 {body}"), "raise `max_octets`"),
        (format!("035 {body}"), "has no length before it"),
        ("2 é€".to_owned(), "text behind the message"),
        ("1 é".to_owned(), "as its length says"),
    ] {
        let error = syslog(options, &body).unwrap_err();
        assert!(error.contains(expected), "{body:?}: {error}");
    }
}

#[test]
fn messages_of_another_form_are_refused() {
    for (protocol, body, expected) in [
        ("rfc3164", "", "no priority"),
        ("rfc3164", "Jan 12 06:30:00 h a: b", "no priority"),
        ("rfc3164", "<192>Jan 12 06:30:00 h a: b", "no priority"),
        ("rfc3164", "<034>Jan 12 06:30:00 h a: b", "no priority"),
        ("rfc3164", "<34>Jan 32 06:30:00 h a: b", "is not a time"),
        ("rfc3164", "<34>Feb 30 06:30:00 h a: b", "is not a time"),
        ("rfc3164", "<34>Jan 12 24:30:00 h a: b", "is not a time"),
        ("rfc3164", "<34>Jan 12", "ends before its time"),
        ("rfc3164", "<34>Jan 12 06:30:00", "no message behind the time"),
        ("rfc3164", "<34>Jan 12 06:30:00h a: b", "no message behind the time"),
        ("rfc3164", "<34>Jan 12 06:30:00 h a: b\nc", "a control character"),
        ("rfc5424", "<34>0 - - - - - -", "no version"),
        ("rfc5424", "<34>1", "no time"),
        ("rfc5424", "<34>1 2015-08-05 - - - - -", "`2015-08-05` is not a time"),
        ("rfc5424", "<34>1 2015-08-05T21:58:59.1234567Z - - - - -", "is not a time"),
        ("rfc5424", "<34>1 2015-08-05T21:58:59+24:00 - - - - -", "is not a time"),
        ("rfc5424", "<34>1 2015-08-05T21:58:59-01:60 - - - - -", "is not a time"),
        ("rfc5424", "<34>1 - é - - - -", "no `hostname`"),
        ("rfc5424", "<34>1 - h a p", "no `msg_id`"),
        ("rfc5424", "<34>1 - - - - -", "ends before its structured data"),
        ("rfc5424", "<34>1 - - - - - [a b=c]", "the structured data is not"),
        ("rfc5424", "<34>1 - - - - - [a b=\"c\\x\"]", "the structured data is not"),
        ("rfc5424", "<34>1 - - - - - [a][a]", "has an id twice"),
        ("rfc5424", "<34>1 - - - - - -x", "no space behind its structured data"),
    ] {
        let error = syslog(&format!("protocol: {protocol}"), body).unwrap_err();
        assert!(error.contains(expected), "{body:?}: {error}");
    }
}

/// A section `timestamp` replaces the message's own time.
#[test]
fn embedded_sections_come_first() {
    let options = "protocol: rfc5424\ntimestamp: {parse_from: attributes.message, layout: '%F'}";
    let body = "<34>1 2015-08-05T21:58:59Z - - - - - 2026-01-01";
    assert_eq!(syslog(options, body).unwrap().time_ns, rfc3339("2026-01-01T00:00:00Z"));
    assert!(rfc3339("2026-01-01T00:00:00Z") < Some(NOW_NS));
}

#[test]
fn a_priority_that_may_lack_without_effect_is_warned_of() {
    let Read::Transform(read) = reader("syslog_parser") else { panic!("it is a stage") };
    let said = |options: &str| {
        let options = format!("protocol: rfc5424\nallow_skip_pri_header: {options}");
        let (parser, diagnostics) = read_text("operators[0]", &options, read);
        assert!(parser.is_some() && !diagnostics.has_errors());
        diagnostics.render(false)
    };
    let warning = "`operators[0].allow_skip_pri_header` has no effect";
    assert!(said("true\nenable_octet_counting: true").contains(warning));
    assert_eq!((said("true"), said("false\nenable_octet_counting: true")), Default::default());
}

#[test]
fn options_that_do_not_fit_each_other_are_named() {
    for (options, expected) in [
        ("", "`operators[0].protocol` is required"),
        ("protocol: rfc1", "must be one of `rfc3164`, `rfc5424`, `none`"),
        ("protocol: rfc5424\nlocation: fake", "there is no such time zone"),
        (
            "protocol: rfc3164\nnon_transparent_framing_trailer: LF",
            "is only for `protocol: rfc5424`",
        ),
        ("protocol: rfc5424\nnon_transparent_framing_trailer: CR", "must be one of `LF`, `NUL`"),
        (
            "protocol: rfc5424\nnon_transparent_framing_trailer: LF\nenable_octet_counting: true",
            "cannot be given both",
        ),
    ] {
        let error = built("syslog_parser", options).err().unwrap_or_default();
        assert!(error.contains(expected), "{options}: {error}");
    }
}
