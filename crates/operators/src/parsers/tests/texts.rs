//! The parsers of JSON, regular expressions, CSV, pairs and URIs, with the Collector's cases.

use sluice_otlp::AnyValue;

use super::{applied, built, map, parsed, text};

fn list<const N: usize>(values: [&str; N]) -> AnyValue {
    AnyValue::Array(values.map(text).to_vec())
}

fn fails(name: &str, options: &str, body: &str, expected: &str) {
    let error = parsed(name, options, body).unwrap_err();
    assert!(error.contains(expected), "{body:?}: {error}");
}

#[test]
fn objects_of_json_become_maps() {
    let double = AnyValue::Double;
    for (body, expected) in [
        ("{}", map([])),
        ("null", map([])),
        (r#" {"key":"value"} "#, map([("key", text("value"))])),
        (
            r#"{"a":1,"b":-1.5e3,"c":true,"d":false,"e":null}"#,
            map([
                ("a", double(1.0)),
                ("b", double(-1500.0)),
                ("c", AnyValue::Bool(true)),
                ("d", AnyValue::Bool(false)),
                ("e", AnyValue::Empty),
            ]),
        ),
        (
            r#"{"superkey":{"nested":[1,{"x":[]},"\u00e9\ud83d\ude00\t"]}}"#,
            map([(
                "superkey",
                map([(
                    "nested",
                    AnyValue::Array(vec![
                        double(1.0),
                        map([("x", AnyValue::Array(vec![]))]),
                        text("é😀\t"),
                    ]),
                )]),
            )]),
        ),
        (r#"{"a":1,"a":"last"}"#, map([("a", text("last"))])),
        (
            r#"{"big":9223372036854775807,"zero":-0}"#,
            map([("big", double(i64::MAX as f64)), ("zero", double(-0.0))]),
        ),
        (
            "{\"raw\":\"a\tb\nc\",\"half\":\"\\ud800x\"}",
            map([("half", text("\u{fffd}x")), ("raw", text("a\tb\nc"))]),
        ),
        (
            r#"{"exact":0.1,"long":0.12345678901234567}"#,
            map([("exact", double(0.1)), ("long", double(0.123_456_789_012_345_67))]),
        ),
        (r#"{"\\q\"":"\/\b\f\n\r"}"#, map([("\\q\"", text("/\u{8}\u{c}\n\r"))])),
    ] {
        assert_eq!(parsed("json_parser", "", body), Ok(expected), "{body}");
    }
}

#[test]
fn whole_numbers_can_stay_whole() {
    let expected = map([
        ("a", AnyValue::Int(1)),
        ("b", AnyValue::Double(1.5)),
        ("c", AnyValue::Double(1e3)),
        ("d", AnyValue::Int(i64::MIN)),
        ("e", AnyValue::Double(18_446_744_073_709_551_615.0)),
        ("f", AnyValue::Array(vec![AnyValue::Int(7), map([("g", AnyValue::Int(-8))])])),
    ]);
    let body = r#"{"a":1,"b":1.5,"c":1e3,"d":-9223372036854775808,
                   "e":18446744073709551615,"f":[7,{"g":-8}]} rest"#;
    assert_eq!(parsed("json_parser", "parse_ints: true", body), Ok(expected));
}

#[test]
fn text_that_is_not_json_is_refused() {
    for body in [
        "",
        "invalid",
        "[]",
        "1",
        "\"x\"",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,}",
        "{a:1}",
        "{\"a\":01}",
        "{\"a\":1.}",
        "{\"a\":.5}",
        "{\"a\":-}",
        "{\"a\":1e}",
        "{\"a\":+1}",
        "{\"a\":1e999}",
        "{\"a\":nul}",
        "{\"a\":tru}",
        "{\"a\":\"x}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12\"}",
        "{\"a\":\"\\u+123\"}",
        "{\"a\":[1,]}",
        "{\"a\":[1 2]}",
        "{} {}",
        "{\"a\":\"\\",
        "{\"a\":\"\\ué\"}",
        "nullx",
    ] {
        fails("json_parser", "", body, "the text is not JSON: expected");
    }
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(23), "]".repeat(23));
    assert!(parsed("json_parser", "", &deep).is_ok());
    fails("json_parser", "", &format!("{{\"a\":{}", "[".repeat(1_000_000)), "levels deep");
}

#[test]
fn arrays_of_json_become_lists_or_maps() {
    let body = r#"["stanza",42,"INFO",true,false,null,{"a": 1}]"#;
    let values = vec![
        text("stanza"),
        AnyValue::Int(42),
        text("INFO"),
        AnyValue::Bool(true),
        AnyValue::Bool(false),
        AnyValue::Empty,
        text(r#"{"a": 1}"#),
    ];
    let found = applied("json_array_parser", "parse_to: body", text(body)).unwrap();
    assert_eq!(found.body, AnyValue::Array(values.clone()));
    let header = "header: a,b,c,d,e,f,g";
    let AnyValue::Map(found) = parsed("json_array_parser", header, body).unwrap() else { panic!() };
    assert!(found.into_iter().map(|(_, value)| value).eq(values));
    fails("json_array_parser", "header: a,b", "[1]", "the array has 1 elements, the header 2");
    fails("json_array_parser", "header: a,b", "{}", "expected an array");
    fails("json_array_parser", "header: a", "[[1]]", "an array within it");
    fails("json_array_parser", "header: a", "[1] x", "expected the end");
    fails("json_array_parser", "", "[1]", "can only be set to a map");
}

#[test]
fn named_groups_of_a_regular_expression_become_a_map() {
    for (regex, body, expected) in [
        ("a=(?P<a>.*)", "a=b", map([("a", text("b"))])),
        (
            r"^(?P<host>[^\s]+) (?P<code>\d+)(?: (?P<rest>.*))?$",
            "h 200",
            map([("code", text("200")), ("host", text("h")), ("rest", text(""))]),
        ),
        (r"(\w)(?P<second>\w)", "éab", map([("second", text("b"))])),
    ] {
        let found = parsed("regex_parser", &format!("regex: '{regex}'"), body);
        assert_eq!(found, Ok(expected), "{regex}");
    }
    fails("regex_parser", "regex: 'a=(?P<a>x+)'", "a=b", "does not match `a=b`");
    fails(
        "regex_parser",
        "regex: 'a=(?P<a>x+)'",
        &"é".repeat(1000),
        &format!("`{}…`", "é".repeat(64)),
    );
    for (options, expected) in [
        ("", "`operators[0].regex` is required"),
        ("regex: '('", "is not a regular expression"),
        ("regex: '(.*)'", "has no named group"),
    ] {
        let error = built("regex_parser", options).err().unwrap_or_default();
        assert!(error.contains(expected), "{options}: {error}");
    }
    assert!(
        built("regex_parser", "regex: '(?P<a>.)'\ncache: {size: 100}").is_ok(),
        "a warning only"
    );
}

#[test]
fn rows_of_csv_become_maps() {
    let abc = |values: [&str; 3]| {
        let [a, b, c] = values.map(text);
        Ok(map([("a", a), ("b", b), ("c", c)]))
    };
    for (options, body, expected) in [
        ("header: 'a,b,c'", "1,debug,\"x, y\"", ["1", "debug", "x, y"]),
        ("header: 'a,b,c'", "1,,3", ["1", "", "3"]),
        ("header: 'a,b,c'", "\"say \"\"hi\"\"\",,\"\"", ["say \"hi\"", "", ""]),
        ("header: 'a,b,c'", "1,\"two\nlines\",3\r\n", ["1", "two\nlines", "3"]),
        ("header: 'a,b,c'", "1,two\nlines,3", ["1", "two\nlines", "3"]),
        ("header: 'a,b,c'", "\n1,2\n\n,3", ["1", "2\n", "3"]),
        ("header: 'a,b,c'", "1,2,3\r\r\n\r", ["1", "2", "3\r"]),
        ("header: 'a,b,c'\ndelimiter: \"\\t\"\nheader_delimiter: ','", "1\t2\t3", ["1", "2", "3"]),
        ("header: 'a|b|c'\ndelimiter: '|'", "1|2|3", ["1", "2", "3"]),
        ("header: 'a,b,c'\nlazy_quotes: true", "a \"x\" b,\"y\"z\",3", ["a \"x\" b", "y\"z", "3"]),
        ("header: 'a,b,c'\nignore_quotes: true", "\"1,2\",\"3", ["\"1", "2\"", "\"3"]),
    ] {
        assert_eq!(parsed("csv_parser", options, body), abc(expected), "{body:?}");
    }
    for (body, expected) in [
        ("1,2", "the row has 2 fields, the header 3"),
        ("1,2,3,4", "the row has 4 fields, the header 3"),
        ("", "the row is empty"),
        ("a\"b,2,3", "a quote within a field"),
        ("\"a\"b,2,3", "text behind the end of a quoted field"),
        ("1,2,\"3", "a quote without its end"),
    ] {
        fails("csv_parser", "header: 'a,b,c'", body, expected);
    }
}

#[test]
fn the_header_of_csv_may_come_with_each_record() {
    let mut parser = built("csv_parser", "header_attribute: h\ndelimiter: ';'").unwrap();
    for (header, body, expected) in [("x;y", "1;2", ["x", "y"]), ("y;z", "1;2", ["y", "z"])] {
        let mut given = super::record(text(body));
        given.attributes.push(("h".to_owned(), text(header)));
        parser.apply(&mut given).unwrap();
        let keys: Vec<&str> = given.attributes[1..].iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, expected);
    }
    let error = parser.apply(&mut super::record(text("1;2"))).unwrap_err();
    assert_eq!(error, "the attribute `h` is absent, not a header");
    for (options, expected) in [
        ("", "needs `header` or `header_attribute`"),
        ("header: a", "has no delimiter"),
        ("header: 'a,b'\nheader_attribute: h", "cannot be given both"),
        ("header: 'a,b'\ndelimiter: ';;'", "must have one character"),
        ("header: 'a,b'\nlazy_quotes: true\nignore_quotes: true", "cannot be given both"),
    ] {
        let error = built("csv_parser", options).err().unwrap_or_default();
        assert!(error.contains(expected), "{options}: {error}");
    }
}

#[test]
fn pairs_become_maps() {
    let pipes = "delimiter: '|'\npair_delimiter: ' : '";
    for (options, body, expected) in [
        ("", "name=stanza age=2", map([("age", text("2")), ("name", text("stanza"))])),
        (
            "",
            "  a=1   b=\"x y\" c='it \"is\"'  ",
            map([("a", text("1")), ("b", text("x y")), ("c", text("it \"is\""))]),
        ),
        ("", "a=b=c", map([("a", text("b=c"))])),
        ("", "a=1 a=2", map([("a", text("2"))])),
        ("", r#"m="say \"hi\"""#, map([("m", text(r#"say \"hi\""#))])),
        (pipes, "a|b : c|d", map([("a", text("b")), ("c", text("d"))])),
        ("pair_delimiter: \"\\n\"", " x = 1 \ny=2", map([("x", text("1")), ("y", text("2"))])),
        ("pair_delimiter: ','", "é=ü,ö=ä", map([("é", text("ü")), ("ö", text("ä"))])),
    ] {
        assert_eq!(parsed("key_value_parser", options, body), Ok(expected), "{body}");
    }
    fails("key_value_parser", "", "a=1 b", "`b` has no `=` behind a key");
    fails("key_value_parser", "", "", "the text is empty");
    fails("key_value_parser", "", "a=\"x", "a quote without its end");
    for (options, expected) in
        [("delimiter: ''", "must not be empty"), ("delimiter: ' '", "must not be the same")]
    {
        let error = built("key_value_parser", options).err().unwrap_or_default();
        assert!(error.contains(expected), "{options}: {error}");
    }
}

#[test]
fn uris_become_maps() {
    let query = |entries: AnyValue| ("query", entries);
    for (body, expected) in [
        ("http://google.com", map([("host", text("google.com")), ("scheme", text("http"))])),
        (
            "https://dev:pa%20ss@www.google.com:443/app/",
            map([
                ("host", text("www.google.com")),
                ("path", text("/app/")),
                ("port", text("443")),
                ("scheme", text("https")),
                ("user", text("dev")),
            ]),
        ),
        (
            "HTTP://[::1]:80/a%2Fb",
            map([
                ("host", text("::1")),
                ("path", text("/a%2Fb")),
                ("port", text("80")),
                ("scheme", text("http")),
            ]),
        ),
        (
            "/a/b?x=1&x=2&y=a+b%21&z",
            map([
                ("path", text("/a/b")),
                query(map([("x", list(["1", "2"])), ("y", list(["a b!"])), ("z", list([""]))])),
            ]),
        ),
        ("?token=0&sso=x", map([query(map([("sso", list(["x"])), ("token", list(["0"]))]))])),
        ("?", map([])),
        ("/ü b", map([("path", text("/%C3%BC%20b"))])),
        ("//host/path", map([("path", text("//host/path"))])),
        ("*", map([("path", text("*"))])),
        (
            "mailto:a@b?x=%zz&y=1",
            map([query(map([("y", list(["1"]))])), ("scheme", text("mailto"))]),
        ),
        ("/a#b", map([("path", text("/a%23b"))])),
    ] {
        assert_eq!(parsed("uri_parser", "", body), Ok(expected), "{body}");
    }
    for (body, expected) in [
        ("", "it is empty"),
        ("google.com/x", "neither a scheme nor an absolute path"),
        (":foo", "no scheme before the `:`"),
        ("http://a:b/", "its port is no number"),
        ("http://[::1/", "its host has no `]`"),
        ("http://h#x", "its host has a character"),
        ("http://a::1", "its port is no number"),
        ("/%zz", "without two hexadecimal digits"),
        ("/a\u{1}", "a control character"),
        ("http://a b@c/", "its user has a character"),
        ("?a=%", "its query has"),
        ("?a;b", "its query has"),
    ] {
        fails("uri_parser", "", body, expected);
    }
}
