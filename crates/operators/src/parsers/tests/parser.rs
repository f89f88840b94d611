//! The options that all parsers share, and the parsers of parts of a record.

use sluice_otlp::AnyValue;

use super::{NOW_NS, applied, built, map, record, text};

fn json(options: &str, body: &str) -> Result<crate::record::Record, String> {
    applied("json_parser", options, text(body))
}

#[test]
fn the_result_goes_where_parse_to_says() {
    let body = r#"{"a":1}"#;
    let one = map([("a", AnyValue::Double(1.0))]);
    let AnyValue::Map(attributes) = one.clone() else { unreachable!() };
    assert_eq!(json("", body).unwrap().attributes, attributes);
    assert_eq!(json("parse_to: resource", body).unwrap().resource, attributes);
    assert_eq!(json("parse_to: body", body).unwrap().body, one);
    let nested = json("parse_to: attributes.x['y.z']", body).unwrap();
    assert_eq!(nested.attributes, [("x".to_owned(), map([("y.z", one.clone())]))]);
    assert_eq!(nested.body, text(body));
    let replaced = json("parse_to: body.x", body).unwrap();
    assert_eq!(replaced.body, map([("x", one)]));
}

/// A map that is there is extended, a key that is there gets the new value.
#[test]
fn results_extend_maps_that_are_there() {
    for (place, options) in
        [("attributes", "parse_from: body.text"), ("body", "parse_from: body.text\nparse_to: body")]
    {
        let mut parser = built("json_parser", options).unwrap();
        let mut given = record(map([("text", text(r#"{"a":true,"b":true}"#)), ("a", text("old"))]));
        given.attributes.push(("a".to_owned(), text("old")));
        parser.apply(&mut given).unwrap();
        let is = |key| (key, AnyValue::Bool(true));
        if place == "body" {
            let source = text(r#"{"a":true,"b":true}"#);
            assert_eq!(given.body, map([("text", source), is("a"), is("b")]));
        } else {
            assert_eq!(AnyValue::Map(given.attributes), map([is("a"), is("b")]));
        }
    }
    let mut parser = built("json_parser", "parse_to: attributes.in").unwrap();
    let mut given = record(text(r#"{"a":true}"#));
    given.attributes.push(("in".to_owned(), map([("z", text("old"))])));
    parser.apply(&mut given).unwrap();
    let expected = map([("in", map([("z", text("old")), ("a", AnyValue::Bool(true))]))]);
    assert_eq!(AnyValue::Map(given.attributes), expected);
}

/// Many keys: each is there once, with the last value.
#[test]
fn large_maps_are_merged_by_key() {
    let object = |range: std::ops::Range<usize>, value: &str| {
        let members: Vec<String> = range.map(|key| format!("\"k{key}\":\"{value}\"")).collect();
        members.join(",")
    };
    let mut parser = built("json_parser", "").unwrap();
    let mut given = record(text(&format!("{{{}}}", object(0..500, "old"))));
    parser.apply(&mut given).unwrap();
    given.body = text(&format!("{{{},{}}}", object(250..750, "lost"), object(250..750, "new")));
    parser.apply(&mut given).unwrap();
    assert_eq!(given.attributes.len(), 750);
    for (index, (key, value)) in given.attributes.iter().enumerate() {
        let expected = if index < 250 { "old" } else { "new" };
        assert_eq!((key, value), (&format!("k{index}"), &text(expected)));
    }
}

#[test]
fn the_body_can_be_taken_from_the_result() {
    let found = json("body: attributes.msg", r#"{"msg":"hi","n":1}"#).unwrap();
    assert_eq!(found.body, text("hi"));
    let kept = json("body: attributes.other", r#"{"msg":"hi"}"#).unwrap();
    assert_eq!(kept.body, text(r#"{"msg":"hi"}"#));
    let error = built("json_parser", "body: attributes.msg\nparse_to: body").err().unwrap();
    assert!(error.contains("cannot be given with `parse_to: body`"), "{error}");
}

#[test]
fn embedded_sections_work_on_the_result() {
    let options = "timestamp: {parse_from: attributes.t, layout_type: epoch, layout: s}\n\
                   severity: {parse_from: attributes.level}\n\
                   trace:\n  trace_id: {parse_from: attributes.trace}\n  \
                   span_id: {parse_from: attributes.span}\n  \
                   trace_flags: {parse_from: attributes.flags}\n\
                   scope_name: {parse_from: attributes.logger}";
    let body = r#"{"t":"1136214245","level":"warn","trace":"480140f3d770a5ae32f0a22b6a812cff",
                   "span":"92c3792d54ba94f3","flags":"01","logger":"my.Class"}"#;
    let found = json(options, body).unwrap();
    assert_eq!(found.time_ns, Some(1_136_214_245_000_000_000));
    assert_eq!((found.severity, found.severity_text.as_str()), (13, "warn"));
    assert_eq!(found.trace_id[..2], [0x48, 0x01]);
    assert_eq!((found.trace_id.len(), found.span_id.len()), (16, 8));
    assert_eq!(found.trace_flags, [1]);
    assert_eq!(found.scope_name, "my.Class");
}

/// All sections are tried, and the result stays, so that little is lost.
#[test]
fn an_embedded_section_that_fails_leaves_the_rest() {
    let options = "timestamp: {parse_from: attributes.t, layout: '%F'}\n\
                   severity: {parse_from: attributes.level}";
    let mut parser = built("json_parser", options).unwrap();
    let mut given = record(text(r#"{"t":"never","level":"warn"}"#));
    let error = parser.apply(&mut given).unwrap_err();
    assert_eq!(error, "timestamp: `never` does not fit the layout `%F`: no year at `never`");
    assert_eq!((given.severity, given.time_ns, given.attributes.len()), (13, None, 2));
    given.body = text(r#"{"t":"2026-01-01"}"#);
    given.attributes.clear();
    let error = parser.apply(&mut given).unwrap_err();
    assert_eq!(error, "severity: the record has no `attributes.level`");
    assert!(given.time_ns.is_some_and(|time| time < NOW_NS));
}

#[test]
fn what_cannot_be_parsed_leaves_the_record() {
    for (options, body, expected) in [
        ("", AnyValue::Int(1), "`body` is an integer, not a text"),
        ("", text("[1]"), "expected an object at byte 0"),
        ("parse_from: attributes.x.y", text("{}"), "the record has no `attributes.x.y`"),
    ] {
        let mut parser = built("json_parser", options).unwrap();
        let mut given = record(body);
        let before = given.clone();
        let error = parser.apply(&mut given).unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert_eq!(given, before);
    }
}

#[test]
fn options_that_are_wrong_are_named() {
    for (options, expected) in [
        ("parse_from: message", "must begin with `body`, `attributes` or `resource`"),
        ("parse_from: attributes", "it needs a key, as in `attributes.name`"),
        ("parse_to: attributes.", "ends with a point"),
        ("severity: {preset: none}", "`operators[0].severity.parse_from` is required"),
        ("scope_name: {}", "`operators[0].scope_name.parse_from` is required"),
        ("timestamp: {parse_from: body, layout: '%Q'}", "has `%Q`, which is no directive"),
        ("trace: {trace_id: {parse_from: x}}", "`operators[0].trace.trace_id.parse_from`"),
        ("parse_int: true", "has no option `parse_int`"),
    ] {
        let error = built("json_parser", options).err().unwrap_or_default();
        assert!(error.contains(expected), "{options}: {error}");
    }
}

#[test]
fn trace_ids_are_hexadecimal() {
    let body = map([
        ("trace_id", text("480140f3d770a5ae32f0a22b6a812cffFF")),
        ("span_id", text("92C3")),
        ("trace_flags", AnyValue::Int(10)),
    ]);
    let found = applied("trace_parser", "", body).unwrap();
    assert_eq!((found.trace_id.len(), found.trace_id[15]), (16, 0xff));
    assert_eq!(found.span_id, [0x92, 0xc3, 0, 0, 0, 0, 0, 0]);
    assert_eq!(found.trace_flags, [0x10]);
    let nothing = applied("trace_parser", "", map([])).unwrap();
    assert_eq!((nothing.trace_id, nothing.span_id), (Vec::new(), Vec::new()));
    for wrong in ["xy", "1", "é1", "0x12"] {
        let error = applied("trace_parser", "", map([("span_id", text(wrong))])).unwrap_err();
        assert!(error.contains("`body.span_id` is"), "{wrong}: {error}");
    }
}

#[test]
fn scope_names_are_texts() {
    let found = applied("scope_name_parser", "parse_from: body", text("my-scope")).unwrap();
    assert_eq!(found.scope_name, "my-scope");
    let error = applied("scope_name_parser", "parse_from: body", AnyValue::Int(1)).unwrap_err();
    assert_eq!(error, "`body` is an integer, not a text");
    assert!(built("scope_name_parser", "").is_err());
}

/// Scenario: texts with far more values than a log has, each of which takes a few bytes. Guarantee:
/// the parser fails before it has made more of them than the bound, and says so.
#[test]
fn values_of_a_text_are_bounded() {
    let (many, header) = (100_000, format!("header: '{}'", "a,".repeat(70_000)));
    let of = |start: &str, part: &str, end: &str| {
        let most = super::super::values::VALUES_LIMIT;
        [many, most, 3].map(|count| format!("{start}{}{end}", part.repeat(count)))
    };
    for (name, options, texts) in [
        ("json_parser", "", of("{\"a\":[", "{},", "1]}")),
        ("json_parser", "", of("{", "\"a\":1,", "\"b\":1}")),
        ("json_array_parser", "parse_to: attributes.a", of("[", "1,", "1]")),
        ("key_value_parser", "", of("a=b", " a=b", "")),
        ("uri_parser", "", of("?a", "&a", "")),
        ("csv_parser", &header, of("1", ",1", "")),
        ("csv_parser", &format!("{header}\nignore_quotes: true"), of("1", ",1", "")),
        ("syslog_parser", "protocol: rfc5424", of("<1>1 - - - - - [a", " k=\"\"", "] x")),
    ] {
        for (text, is_parsed) in texts.iter().zip([false, false, true]) {
            let found = applied(name, options, super::text(text));
            let why = found.err().unwrap_or_default();
            assert_eq!(why.contains("more than 65536 values"), !is_parsed, "{name}: {why}");
            assert!(why.is_empty() || !is_parsed || name == "csv_parser", "{name}: {why}");
        }
    }
}

/// Guarantee: a section that is null is absent, as in the Collector.
#[test]
fn sections_that_are_null_are_absent() {
    let options = "parse_to: body\ntimestamp:\nseverity: null\ntrace: ~\nscope_name:";
    let body = r#"{"trace_id":"480140f3d770a5ae32f0a22b6a812cff"}"#;
    let found = applied("json_parser", options, text(body)).unwrap();
    assert!(found.trace_id.is_empty() && found.time_ns.is_none());
    let found = applied("regex_parser", "regex: '(?P<5xx>5.*)'\ncache:", text("503")).unwrap();
    assert_eq!(found.attributes, [("5xx".to_owned(), text("503"))]);
}

/// Guarantee: if only a section fails, the record has the parsed values and what other sections
/// take from them, as in the Collector and as `on_error` is documented.
#[test]
fn a_section_that_fails_leaves_what_was_parsed() {
    let options = "timestamp: {parse_from: attributes.ts, layout: '%H'}\n\
                   severity: {parse_from: attributes.level}";
    let mut parser = built("json_parser", options).unwrap();
    let mut given = record(text(r#"{"ts":"x","level":"warn"}"#));
    assert!(parser.apply(&mut given).unwrap_err().starts_with("timestamp: "));
    let attributes = map([("ts", text("x")), ("level", text("warn"))]);
    assert_eq!((AnyValue::Map(given.attributes), given.severity), (attributes, 13));
}
