use super::*;
use crate::source::{Source, Sources};

fn file() -> FileId {
    Sources::default().add(Source::new("", ""))
}

/// The tree in a compact form, for comparison: `{a:1,b:["x"]}`; strings in quotes, other scalars as
/// their value.
fn shape(node: &Node) -> String {
    match &node.value {
        Value::Scalar(scalar) => match scalar.value {
            ScalarValue::Null => "null".to_owned(),
            ScalarValue::Boolean(value) => value.to_string(),
            ScalarValue::Integer(value) => value.to_string(),
            ScalarValue::Float(value) => format!("{value:?}"),
            ScalarValue::String => format!("{:?}", scalar.text),
        },
        Value::List(items) => {
            format!("[{}]", items.iter().map(shape).collect::<Vec<_>>().join(","))
        }
        Value::Mapping(entries) => {
            let entries =
                entries.iter().map(|entry| format!("{}:{}", entry.key, shape(&entry.value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        }
    }
}

fn read(text: &str) -> String {
    match parse(text, file(), DEPTH_LIMIT) {
        Ok(node) => shape(&node),
        Err(error) => {
            let span = error.span.unwrap();
            format!("{}:{}: {}", span.line, span.column, error.message)
        }
    }
}

#[test]
fn reads_scalars_lists_and_mappings() {
    for (text, expected) in [
        ("", "null"),
        ("# only a comment", "null"),
        ("a: 0644\nb: '0644'\nc: yes\nd:\ne: ~", "{a:420,b:\"0644\",c:\"yes\",d:null,e:null}"),
        ("a: {b: [1, 2.5, x], c: {}}", "{a:{b:[1,2.5,\"x\"],c:{}}}"),
        ("- a\n- - b\n  - c", "[\"a\",[\"b\",\"c\"]]"),
        ("1: a\ntrue: b", "{1:\"a\",true:\"b\"}"),
        ("a: |\n  x\n  y\nb: >-\n  x\n  y", "{a:\"x\\ny\\n\",b:\"x y\"}"),
        (
            "a: !!str 12\nb: !!int '12'\nc: !!float 1\nd: !!bool 'true'",
            "{a:\"12\",b:12,c:1.0,d:true}",
        ),
        ("---\na: 1\n...\n", "{a:1}"),
        ("\u{feff}a: 1", "{a:1}"),
        ("a: 1\r\nb: 2\r\n", "{a:1,b:2}"),
        ("endpoint: ${env:HOST:-localhost}:4317", "{endpoint:\"${env:HOST:-localhost}:4317\"}"),
    ] {
        assert_eq!(read(text), expected, "{text}");
    }
}

/// Guarantee: aliases and merge keys have their meaning of YAML 1.1; own keys win, then earlier
/// merged ones.
#[test]
fn expands_anchors_and_merge_keys() {
    for (text, expected) in [
        ("a: &x [1]\nb: *x", "{a:[1],b:[1]}"),
        ("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}", "{a:{p:1,q:2},b:{q:3,p:1}}"),
        (
            "a: &x {p: 1}\nb: &y {p: 2, q: 2}\nc:\n  <<: [*x, *y]",
            "{a:{p:1},b:{p:2,q:2},c:{p:1,q:2}}",
        ),
        ("a: &x 1\nb: &x 2\nc: *x", "{a:1,b:2,c:2}"),
        ("'<<': 1", "{<<:1}"),
    ] {
        assert_eq!(read(text), expected, "{text}");
    }
}

#[test]
fn refuses_with_line_and_column() {
    for (text, expected) in [
        ("a: 1\nb: 2\na: 3", "3:1: duplicate key `a`, first in line 1"),
        ("a: {b: 1, b: 2}", "1:11: duplicate key `b`, first in line 1"),
        ("a: 1\n---\nb: 2", "2:1: the file has several YAML documents"),
        ("a: *x", "1:4: there is no anchor `&x` before this alias"),
        ("a: &x [*x]", "1:8: the alias is inside the value that it refers to"),
        ("a:\n\tb: 1", "2:1: a tab is used for indentation"),
        ("a:\n  b: 1\n\tc: 2\nd: 3", "3:1: a tab is used for indentation"),
        ("a:\n  b:\n  \tc: 1\n  d: 2", "3:3: a tab is used for indentation"),
        ("a:\n  - b\n\t- c\n", "3:1: a tab is used for indentation"),
        ("a: b: c", "1:5: not valid YAML: mapping values are not allowed in this context"),
        ("[a, b]: c", "1:1: a key must be a single value, not a list or a mapping"),
        (": c", "1:1: a key is empty"),
        ("a: {<<: 1}", "1:5: `<<` takes a mapping or a list of mappings"),
        ("a: !thing 1", "1:11: the tag `!thing` is not supported"),
        ("a: !!int x", "1:10: the value does not fit its tag `!!int`"),
        ("a: [1, 2", "1:4: not valid YAML: unclosed bracket '['"),
        ("a: 'x", "1:4: not valid YAML: unclosed quote"),
    ] {
        assert_eq!(read(text), expected, "{text}");
    }
}

/// Scenario: nine lines that stand for 10^9 values. Guarantee: refused after as many as the limit
/// allows, not after all.
#[test]
fn stops_a_million_laughs() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..=9 {
        let item = format!("*a{}", level - 1);
        text.push_str(&format!("a{level}: &a{level} [{}]\n", vec![item; 10].join(", ")));
    }
    let error = parse(&text, file(), DEPTH_LIMIT).unwrap_err();
    assert_eq!(
        error.message,
        "the document has more than 200000 values once its aliases are expanded"
    );
    assert_eq!(error.span.unwrap().line, 6);
}

/// Scenario: the same through merge keys. Guarantee: bounded as well.
#[test]
fn stops_a_million_laughs_by_merging() {
    let mut text = "a0: &a0 {k: {k: {k: 1}}}\n".to_owned();
    for level in 1..=30 {
        text.push_str(&format!(
            "a{level}: &a{level} {{x: *a{0}, y: *a{0}, <<: *a{0}}}\n",
            level - 1
        ));
    }
    let error = parse(&text, file(), DEPTH_LIMIT).unwrap_err();
    assert_eq!(
        error.message,
        "the document has more than 200000 values once its aliases are expanded"
    );
}

/// Scenario: nesting a million deep, in every form. Guarantee: an error, no exhausted stack.
#[test]
fn bounds_depth() {
    let deep_flow = "[".repeat(1_000_000);
    let deep_block = "- ".repeat(1_000_000);
    let mut deep_alias = "a0: &a0 {k: 1}\n".to_owned();
    for level in 1..=100 {
        deep_alias.push_str(&format!("a{level}: &a{level} {{k: *a{}}}\n", level - 1));
    }
    for text in [deep_flow, deep_block, deep_alias] {
        let error = parse(&text, file(), DEPTH_LIMIT).unwrap_err();
        assert_eq!(error.message, "lists and mappings are nested more than 64 deep");
    }
    let allowed = format!("{}1{}", "[".repeat(64), "]".repeat(64));
    assert!(parse(&allowed, file(), DEPTH_LIMIT).is_ok());
}

#[test]
fn bounds_size() {
    let text = "x".repeat(TEXT_LIMIT_BYTES + 1);
    let error = parse(&text, file(), DEPTH_LIMIT).unwrap_err();
    assert_eq!(error.message, "the text has 16777217 bytes; at most 16777216 are read");
    assert!(parse(&text[1..], file(), DEPTH_LIMIT).is_ok());
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Guarantee: any string survives in double quotes, and no text makes the parser panic.
        #[test]
        fn quoted_strings_round_trip(text in "[ -~äß€\\n\\t]{0,40}") {
            let quoted = format!("a: {text:?}");
            let node = parse(&quoted, file(), DEPTH_LIMIT).unwrap();
            prop_assert_eq!(&node.get("a").unwrap().as_scalar().unwrap().text, &text);
        }

        #[test]
        fn never_panics(text in "[a-c:\\-\\[\\]{},&*<!|>'\"#% \\n\\t${}]{0,60}") {
            let _ = parse(&text, file(), DEPTH_LIMIT);
        }

        /// Guarantee: spans point at their text.
        #[test]
        fn spans_point_at_their_text(
            indent in 0usize..5,
            key in "[a-z]{1,8}",
            value in "[a-z]{1,8}1",
        ) {
            let text = format!("top:\n{}{key}: {value}\n", " ".repeat(indent + 1));
            let node = parse(&text, file(), DEPTH_LIMIT).unwrap();
            let entry = &node.get("top").unwrap().as_mapping().unwrap()[0];
            let slice = |span: Span| &text[span.start as usize..span.end as usize];
            prop_assert_eq!(slice(entry.key_span), &key);
            prop_assert_eq!(slice(entry.value.span), &value);
            prop_assert_eq!((entry.key_span.line, entry.key_span.column as usize), (2, indent + 2));
        }
    }
}
