use std::collections::HashMap;
use std::path::PathBuf;

use super::*;
use crate::diagnostics::Severity;
use crate::load::read_tree;

/// An environment that the test defines.
#[derive(Default)]
pub(crate) struct Fake {
    variables: HashMap<String, String>,
    files: HashMap<PathBuf, String>,
}

impl Fake {
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(PathBuf::from(path), text.to_owned());
        self
    }
}

impl Environment for Fake {
    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    fn read_file(&self, path: &Path, _limit_bytes: u64) -> std::io::Result<String> {
        self.files.get(path).cloned().ok_or_else(|| Error::other("no such file"))
    }
}

/// The tree in a compact form: strings in quotes, other scalars as their value, with their text
/// where that differs.
pub(crate) fn shape(node: &Node) -> String {
    match &node.value {
        Value::Scalar(scalar) => {
            let value = match scalar.value {
                ScalarValue::Null => "null".to_owned(),
                ScalarValue::Boolean(value) => value.to_string(),
                ScalarValue::Integer(value) => value.to_string(),
                ScalarValue::Float(value) => format!("{value:?}"),
                ScalarValue::String => return format!("{:?}", scalar.text),
            };
            if scalar.expanded { format!("{value}/{:?}", scalar.text) } else { value }
        }
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

/// The findings, each as `file:line:column: error: message` with the hint in brackets.
pub(crate) fn said(diagnostics: &Diagnostics) -> Vec<String> {
    let place = |span: Span| {
        let file = &diagnostics.sources.get(span.file).name;
        format!("{file}:{}:{}", span.line, span.column)
    };
    let one_line = |diagnostic: &Diagnostic| {
        let severity = match diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let mut text = diagnostic.span.map_or(String::new(), |span| place(span) + ": ");
        text.push_str(&format!("{severity}: {}", diagnostic.message));
        for (span, why) in &diagnostic.related {
            text.push_str(&format!("; {why}: {}", place(*span)));
        }
        if let Some(hint) = &diagnostic.hint {
            text.push_str(&format!(" ({hint})"));
        }
        text.replace('\n', " ")
    };
    diagnostics.items().iter().map(one_line).collect()
}

fn expanded(text: &str, environment: Fake) -> (String, Vec<String>) {
    let environment = environment.file("c.yaml", text);
    let mut diagnostics = Diagnostics::default();
    let tree = read_tree(&["c.yaml".to_owned()], &environment, &mut diagnostics).unwrap();
    (shape(tree.get("a").unwrap()), said(&diagnostics))
}

fn environment() -> Fake {
    Fake::default()
        .variable("HOST", "example.com")
        .variable("PORT", "4317")
        .variable("CODE", "0123")
        .variable("LIST", "[1, x, '${HOST}']")
        .variable("MAP", "{b: 1}")
        .variable("NAME", "HOST")
        .variable("EMPTY", "")
        .variable("QUOTED", "\"0123\"")
        .variable("COLON", "a: b: c")
        .variable("DOLLARS", "a$$b")
        .variable("INDIRECT", "x-${env:HOST}")
        .file("token", "s3cret\n")
        .file("part.yaml", "b: 1\nc: ${env:HOST}\n")
        .file("cert", "-----BEGIN-----\nabc=\n-----END-----\n")
}

/// Guarantee: the same results as in the Collector.
#[test]
fn expands_like_the_collector() {
    for (value, expected) in [
        ("${HOST}", r#""example.com""#),
        ("${env:HOST}", r#""example.com""#),
        ("'${env:HOST}'", r#""example.com""#),
        ("${env:HOST}:${env:PORT}", r#""example.com:4317""#),
        ("${env:HOST}-${env:HOST}", r#""example.com-example.com""#),
        ("${env:PORT}", r#"4317/"4317""#),
        ("${env:CODE}", r#"83/"0123""#),
        ("x${env:CODE}", r#""x0123""#),
        ("${env:QUOTED}", r#""\"0123\"""#),
        ("${env:COLON}", r#""a: b: c""#),
        ("${env:LIST}", r#"[1,"x","example.com"]"#),
        ("${env:MAP}", "{b:1}"),
        ("${env:EMPTY}", r#"null/"""#),
        ("x${env:EMPTY}y", r#""xy""#),
        ("${env:NOT:-4318}", r#"4318/"4318""#),
        ("${env:NOT:-}", r#""""#),
        ("${env:NOT:-a:-b}", r#""a:-b""#),
        ("x${env:NOT:-}y", r#""xy""#),
        ("${env:EMPTY:-}", r#"null/"""#),
        ("${env:EMPTY:-default}", r#"null/"""#),
        ("${env:HOST:-default}", r#""example.com""#),
        ("${env:NOT:-${env:HOST}}", r#""example.com""#),
        ("${env:${env:NAME}}", r#""example.com""#),
        ("${env:INDIRECT}", r#""x-example.com""#),
        ("${file:token}", r#""s3cret""#),
        ("Bearer ${file:token}", r#""Bearer s3cret""#),
        ("${file:part.yaml}", r#"{b:1,c:"example.com"}"#),
        ("${file:cert}", r#""-----BEGIN-----\nabc=\n-----END-----""#),
        ("'${yaml:{b: 2}}'", r#""{b: 2}""#),
        ("'${yaml:[1, 2]}'", "[1,2]"),
        ("$${HOST}", r#""${HOST}""#),
        ("$$${HOST}", r#""$example.com""#),
        ("$$$${HOST}", r#""$${HOST}""#),
        ("a$$b", r#""a$b""#),
        ("${env:DOLLARS}", r#""a$b""#),
        ("a$HOST", r#""a$HOST""#),
        ("$$HOST", r#""$HOST""#),
        ("$apr1$a$b", r#""$apr1$a$b""#),
        ("'}${HOST}'", r#""}example.com""#),
        ("$1", r#""$1""#),
    ] {
        let (shape, said) = expanded(&format!("a: {value}"), environment());
        assert_eq!((shape.as_str(), said), (expected, Vec::new()), "{value}");
    }
}

/// Scenario: a reference without braces, or without its end. Guarantee: the value stays as it is,
/// as in the Collector, and a warning says so without showing it.
#[test]
fn what_was_meant_as_a_reference_is_told() {
    let bare = "c.yaml:1:4: warning: a `$` without braces is taken as it stands (write \
                `${env:NAME}` for a variable, `$$` for a literal `$`)";
    let open = "c.yaml:1:4: warning: a `${` without its `}` is taken as it stands (close it, as in \
                `${env:NAME}`, `$$` for a literal `$`)";
    for (value, said) in [
        ("$HOST", bare),
        ("$HOST:4317", bare),
        ("${HOST", open),
        ("${env:HOST:4317", open),
        ("a-${env:HOST", open),
    ] {
        let (shape, found) = expanded(&format!("a: {value}"), environment());
        assert_eq!((shape, found), (format!("{value:?}"), vec![said.to_owned()]), "{value}");
    }
    let (_, said) = expanded("a: $env.body", environment());
    assert_eq!(said, Vec::<String>::new(), "it is an expression of an operator");
}

/// Scenario: an option wants a string and the variable looks like a number. Guarantee: it gets the
/// text.
#[test]
fn strings_keep_their_text() {
    let file = "a: ${env:CODE}\nb: ${env:PORT}\nc: ${env:NOT}\nd: ${env:NOT}\n\
                e: {k: '${yaml:#pw}', l: '${yaml:~}', m: }";
    let environment = environment().file("c.yaml", file);
    let mut diagnostics = Diagnostics::default();
    let tree = read_tree(&["c.yaml".to_owned()], &environment, &mut diagnostics).unwrap();
    let span = tree.span;
    crate::Fields::read("x", &tree, span, &mut diagnostics, |fields| {
        assert_eq!(fields.string("a", "", ""), "0123");
        assert_eq!(fields.integer("b", 1u16, 1..=u16::MAX, ""), 4317);
        assert_eq!(fields.optional_string("c", ""), Some(String::new()));
        assert_eq!(fields.integer("d", 7, 1..=9, ""), 7);
        let map = fields.secret_map("e", "");
        let map: Vec<_> = map.iter().map(|(k, v)| (k.as_str(), v.expose())).collect();
        assert_eq!(map, [("k", "#pw"), ("l", "~"), ("m", "")]);
    });
    assert!(!diagnostics.has_errors());
    assert_eq!(diagnostics.warnings().count(), 2);
}

/// Scenario: passwords that YAML reads as null, a comment, an anchor, a list or a mapping, as they
/// stand and with a reference in them. Guarantee: a string is the variable's text, as in the
/// Collector; an option that wants a list gets the list.
#[test]
fn strings_are_the_text_of_a_variable_whatever_it_looks_like() {
    for text in [
        "#x",
        "&x",
        "*x",
        "~",
        "null",
        "---",
        "!x",
        "%x",
        "@x",
        "`x",
        "- x",
        "{\"a\":1}",
        "[x]",
        "a: b",
        "a: b: c",
        "{",
        "\"x\"",
        "'x",
        "0x1F",
        "true",
        " x ",
        "x # y",
        "{}",
    ] {
        let file = "a: ${env:V}\nb: {k: '${env:V}'}\nc: ['${env:V}']\nd: ${env:V}\n";
        let environment = environment().variable("V", text).file("c.yaml", file);
        let mut diagnostics = Diagnostics::default();
        let tree = read_tree(&["c.yaml".to_owned()], &environment, &mut diagnostics).unwrap();
        let span = tree.span;
        crate::Fields::read("x", &tree, span, &mut diagnostics, |fields| {
            assert_eq!(fields.required_string("a", ""), text);
            assert_eq!(fields.secret_map("b", "")[0].1.expose(), text);
            assert_eq!(fields.secret_list("c", "")[0].expose(), text);
            assert_eq!(fields.secret("d", "").unwrap().expose(), text);
        });
        assert_eq!(said(&diagnostics), Vec::<String>::new(), "{text}");
    }
    let environment = environment()
        .variable("V", "{\"a\":\"${HOST}\",\"b\":\"$$\"}")
        .file("c.yaml", "a: ${env:V}\nb: ${env:LIST}\nc: ${env:LIST}");
    let mut diagnostics = Diagnostics::default();
    let tree = read_tree(&["c.yaml".to_owned()], &environment, &mut diagnostics).unwrap();
    let span = tree.span;
    crate::Fields::read("x", &tree, span, &mut diagnostics, |fields| {
        let expected = "{\"a\":\"example.com\",\"b\":\"$\"}";
        assert_eq!(fields.required_string("a", ""), expected);
        assert_eq!(fields.required_string("b", ""), "[1, x, 'example.com']");
        let list = fields.node("c", "list", "").and_then(|node| node.as_list());
        assert_eq!(list.map(<[_]>::len), Some(3));
    });
    assert_eq!(said(&diagnostics), Vec::<String>::new());
}

#[test]
fn says_what_cannot_be_expanded() {
    for (value, expected) in [
        (
            "${env:NOT}",
            "c.yaml:1:4: warning: the environment variable `NOT` is not set and is taken as empty (give a default with `${env:NOT:-…}`)",
        ),
        (
            "${vault:x}",
            "c.yaml:1:4: error: `${vault:x}` is not a known kind of reference (known are `${NAME}`, `${env:NAME}`, `${env:NAME:-default}`, `${file:PATH}` and `${yaml:TEXT}`)",
        ),
        (
            "${HOST:-x}",
            "c.yaml:1:4: error: `${HOST:-x}` is not a known kind of reference (did you mean `${env:HOST:-x}`?)",
        ),
        (
            "${1}",
            "c.yaml:1:4: error: `${1}` has no valid name of an environment variable (names have letters, digits and `_`, and do not start with a digit; write `$$` for a literal `$`)",
        ),
        ("${file:nowhere}", "c.yaml:1:4: error: `${file:nowhere}` cannot be read: no such file"),
    ] {
        let (_, said) = expanded(&format!("a: {value}"), environment());
        assert_eq!(said, [expected], "{value}");
    }
}

/// Scenario: an address whose host is a variable that is not set, empty, or set. Guarantee: a
/// warning says what follows from an empty host, without defaults.
#[test]
fn an_address_without_a_host_is_named() {
    let environment = || environment().variable("EMPTY", "");
    for (value, references) in [
        ("${env:NOT}:4317", Some("`${env:NOT}`")),
        ("${env:EMPTY:-hunter2}:4317", Some("`${env:EMPTY}`")),
        ("${env:EMPTY}:${env:PORT}", Some("`${env:EMPTY}` and `${env:PORT}`")),
        ("${env:HOST}:4317", None),
        (":${env:PORT}", None),
        ("${env:EMPTY}:a", None),
    ] {
        let (_, said) = expanded(&format!("a: '{value}'"), environment());
        let said: Vec<_> = said.iter().filter(|it| it.contains("all interfaces")).collect();
        let expected = references.map(|references| {
            format!(
                "c.yaml:1:4: warning: {references} leaves the host of this address empty: a \
                 receiver listens on all interfaces then (set {references}, or write the host as \
                 `localhost` or `0.0.0.0`)"
            )
        });
        assert_eq!(said, expected.iter().collect::<Vec<_>>(), "{value}");
    }
}

/// Scenario: references to themselves, in a circle, doubling, and files that include themselves.
/// Guarantee: an error after bounded work.
#[test]
fn bounds_expansion() {
    let endless = "the references `${…}` of this configuration expand without end";
    let long = "this value becomes longer than 1048576 bytes";
    let mut doubling = Fake::default().variable("V0", "xx");
    for level in 1..=40 {
        doubling =
            doubling.variable(&format!("V{level}"), &format!("${{V{0}}}-${{V{0}}}", level - 1));
    }
    for (value, environment, message) in [
        ("${A}", Fake::default().variable("A", "${A}"), endless),
        ("${A}", Fake::default().variable("A", "x${B}").variable("B", "${A}x"), endless),
        ("${A}", Fake::default().variable("A", "[${A}, ${A}]"), long),
        ("${A}", Fake::default().variable("A", "['${A}', '${A}']"), endless),
        ("${file:f}", Fake::default().file("f", "- ${file:f}\n- ${file:f}\n"), endless),
        ("${V40}", doubling, long),
    ] {
        let (_, said) = expanded(&format!("a: {value}"), environment);
        assert!(said.iter().any(|line| line.contains(message)), "{value}: {said:?}");
        assert!(said.len() < 10, "said once: {said:?}");
    }
}

/// Scenario: a secret that was put in makes the next reference wrong. Guarantee: the message does
/// not show it.
#[test]
fn does_not_show_what_was_put_in() {
    let environment = Fake::default().variable("SECRET", "hunter2:x");
    let (_, said) = expanded("a: ${${SECRET}}", environment);
    assert_eq!(said.len(), 1);
    assert!(said[0].contains("a nested `${…}` is not a known kind of reference"), "{said:?}");
    assert!(!said[0].contains("hunter2"), "{said:?}");
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Guarantee: any text with every `$` doubled comes out as it was.
        #[test]
        fn escaped_text_round_trips(text in "[a${}:x-]{0,30}") {
            let escaped = text.replace('$', "$$");
            let (shape, said) = expanded(&format!("a: {:?}", escaped), environment());
            prop_assert_eq!(shape, format!("{:?}", text));
            prop_assert_eq!(said, Vec::<String>::new());
        }

        #[test]
        fn never_panics(text in "[A${}:envfil-]{0,40}") {
            expanded(&format!("a: {text:?}"), Fake::default().variable("A", "${A}"));
        }
    }
}
