use std::time::Duration;

use super::*;
use crate::expand;
use crate::load::read_text;
use crate::secret::Secret;

/// The result of a read function, and the findings, one line each.
fn read<T>(text: &str, function: impl FnOnce(&mut Fields<'_>) -> T) -> (T, Vec<String>) {
    let (value, diagnostics) = read_text("exporters.otlp", text, function);
    (value, expand::tests::said(&diagnostics))
}

fn said<T>(text: &str, function: impl FnOnce(&mut Fields<'_>) -> T) -> Vec<String> {
    read(text, function).1
}

#[derive(Debug, PartialEq)]
struct Everything {
    endpoint: String,
    name: Option<String>,
    enabled: bool,
    count: u16,
    ratio: f64,
    timeout: Duration,
    limit: u64,
    compression: u8,
    keys: Vec<String>,
    labels: Vec<(String, String)>,
    headers: Vec<(String, Secret)>,
    tokens: Vec<Secret>,
    tls: Option<bool>,
    queue: u32,
    rules: Vec<String>,
    named: Vec<(String, u8)>,
}

fn read_everything(fields: &mut Fields<'_>) -> Everything {
    let compressions = [("none", 0), ("gzip", 1), ("zstd", 2)];
    Everything {
        endpoint: fields.string("endpoint", "localhost:4317", "Where to."),
        name: fields.optional_string("name", "A name."),
        enabled: fields.boolean("enabled", true, "On."),
        count: fields.integer("count", 10, 1..=100, "How many."),
        ratio: fields.optional_float("ratio", 0.5, 0.0..=1.0, "Part.").unwrap_or(0.5),
        timeout: fields.duration("timeout", Duration::from_secs(5), "How long."),
        limit: fields.size("limit", 4 << 20, 1..=u64::MAX, "How much."),
        compression: fields.choice("compression", 1, &compressions, "How."),
        keys: fields.string_list("keys", &["a", "b"], "Which."),
        labels: fields.string_lists("labels", "Labels."),
        headers: fields.secret_map("headers", "Headers."),
        tokens: fields.secret_list("tokens", "Tokens."),
        tls: fields.section("tls", "TLS.", |fields| fields.boolean("insecure", false, "No TLS.")),
        queue: fields.section_or_default("queue", "Queue.", |fields| {
            fields.integer("size", 512, 1..=1000, "Size.")
        }),
        rules: fields.sections("rules", "Rules.", |fields| fields.required_string("key", "Key.")),
        named: fields.named_sections("named", "Named.", |name, fields| {
            (name.to_owned(), fields.integer("n", 1, 0..=9, "N."))
        }),
    }
}

#[test]
fn returns_what_the_file_says() {
    let text = r#"
endpoint: example.com:4317
name: ""
enabled: false
count: 0x10
ratio: 1
timeout: 1m30s
limit: 8MiB
compression: zstd
keys: [x, "y"]
labels: {a: "1", b: "x,y", c: ["p,q", r]}
headers: {authorization: "Bearer abc"}
tokens: ["a,b", c]
tls:
queue: {size: 7}
rules: [{key: k1}, {key: k2}]
named: {first: {n: 3}, second: }
"#;
    let (value, said) = read(text, read_everything);
    assert_eq!(said, Vec::<String>::new());
    let pairs = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>()
    };
    let expected = Everything {
        endpoint: "example.com:4317".to_owned(),
        name: Some(String::new()),
        enabled: false,
        count: 16,
        ratio: 1.0,
        timeout: Duration::from_secs(90),
        limit: 8 << 20,
        compression: 2,
        keys: vec!["x".to_owned(), "y".to_owned()],
        labels: pairs(&[("a", "1"), ("b", "x"), ("b", "y"), ("c", "p,q"), ("c", "r")]),
        headers: vec![("authorization".to_owned(), Secret::new("Bearer abc"))],
        tokens: vec![Secret::new("a,b"), Secret::new("c")],
        tls: Some(false),
        queue: 7,
        rules: vec!["k1".to_owned(), "k2".to_owned()],
        named: vec![("first".to_owned(), 3), ("second".to_owned(), 1)],
    };
    assert_eq!(value, expected);
}

/// Scenario: nothing is set, or everything is null. Guarantee: the defaults; a section with null is
/// there, one without is not.
#[test]
fn returns_defaults() {
    let (value, problems) = read("", read_everything);
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(
        (value.endpoint.as_str(), value.name, value.count, value.tls),
        ("localhost:4317", None, 10, None)
    );
    assert_eq!(
        (value.keys, value.queue, value.limit),
        (vec!["a".to_owned(), "b".to_owned()], 512, 4 << 20)
    );
    let text = "endpoint:\nname: ~\ncount: null\nkeys:\nlabels:\nheaders:\ntokens:\ntls:\nqueue:\n\
                rules:\nnamed:";
    let (value, problems) = read(text, read_everything);
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(
        (value.endpoint.as_str(), value.name, value.tls),
        ("localhost:4317", None, Some(false))
    );
}

/// Guarantee: null is as if the option were absent, also where its text is parsed.
#[test]
fn null_leaves_a_parsed_option_its_default() {
    let port = |fields: &mut Fields<'_>| {
        let parse = |text: &str| text.parse::<u16>().map_err(|error| error.to_string());
        fields.parsed("port", "a port", Some("7"), "", parse)
    };
    for (text, expected) in [("port: '8'", Some(8)), ("port:", Some(7)), ("", Some(7))] {
        assert_eq!(read(text, port), (expected, Vec::new()), "{text}");
    }
    let (value, said) = read("port: x", port);
    assert_eq!((value, said.len()), (None, 1), "a wrong value has no default");
}

/// Scenario: newer Collectors write headers as a list; older ones lists as one string. Guarantee:
/// both are read.
#[test]
fn reads_both_forms_of_maps_and_lists() {
    let (value, said) = read("headers: [{name: a, value: b}]\nkeys: x, y", read_everything);
    assert_eq!(said, Vec::<String>::new());
    assert_eq!(value.headers, vec![("a".to_owned(), Secret::new("b"))]);
    assert_eq!(value.keys, vec!["x".to_owned(), "y".to_owned()]);
}

/// Scenario: numbers with and without units, and variables without braces. Guarantee: the message
/// has what to write. No part of a secret is in it.
#[test]
fn a_wrong_value_comes_with_what_to_write() {
    fn options(fields: &mut Fields<'_>) {
        fields.optional_integer::<u64>("limit_mib", 1..=1000, "");
        fields.duration_in(
            "wait",
            Duration::from_secs(1),
            Duration::from_millis(1)..=Duration::MAX,
            "",
        );
        fields.boolean("on", true, "");
        let is_address = |text: &str| text.parse::<u16>().map_err(|_| "no port".to_owned());
        fields.parsed("port", "a port", None, "", is_address);
        if fields.secret("password", "").is_some() {
            fields.error_at("password", "is too weak");
        }
    }
    const NANOSECONDS: &str = "a number without unit means nanoseconds, as in the Collector: ";
    for (text, expected) in [
        (
            "limit_mib: 256MiB",
            "must be a whole number, not a string (write `256`: the unit is MiB)",
        ),
        (
            "limit_mib: 1.5GiB",
            "must be a whole number, not a string (write `1536`: the unit is MiB)",
        ),
        ("limit_mib: '5'", "must be a whole number, not a string (write `5`: the unit is MiB)"),
        ("limit_mib: much", "must be a whole number, not a string"),
        ("wait: 5", "must be 1ms or longer, not `5`"),
        (
            "port: $PORT",
            "`$PORT` is not a port: no port (`$` without braces is not replaced: write `${env:PORT}`)",
        ),
        ("on: $ON", "(`$` without braces is not replaced: write `${env:ON}`)"),
        (
            "password: pa$word",
            "is too weak (`$` without braces is not replaced: write `${env:NAME}`)",
        ),
        ("port: a@b$word", "write `${env:NAME}`)"),
    ] {
        let (_, said) = read(text, options);
        assert!(said[0].ends_with(expected), "{text}: {said:?}");
        let is_time = text.starts_with("wait");
        assert_eq!(said.len(), if is_time { 2 } else { 1 }, "{said:?}");
        assert!(!is_time || said[1].contains(NANOSECONDS), "{said:?}");
    }
}

#[test]
fn says_what_is_wrong_with_a_value() {
    for (text, expected) in [
        (
            "endpoint: 4317",
            "1:11: error: `exporters.otlp.endpoint` must be a string, not an integer (put it in quotes: \"4317\")",
        ),
        (
            "endpoint: [a]",
            "1:11: error: `exporters.otlp.endpoint` must be a single value, not a list",
        ),
        (
            "enabled: yes",
            "1:10: error: `exporters.otlp.enabled` must be `true` or `false`, not a string (write `true`, without quotes)",
        ),
        ("count: 0", "1:8: error: `exporters.otlp.count` must be between 1 and 100, not `0`"),
        (
            "count: 70000",
            "1:8: error: `exporters.otlp.count` must be between 1 and 100, not `70000`",
        ),
        (
            "count: 1.5",
            "1:8: error: `exporters.otlp.count` must be a whole number, not a number with a fraction",
        ),
        ("count: '5'", "1:8: error: `exporters.otlp.count` must be a whole number, not a string"),
        ("ratio: 2", "1:8: error: `exporters.otlp.ratio` must be between 0 and 1, not `2`"),
        ("ratio: .nan", "1:8: error: `exporters.otlp.ratio` must be between 0 and 1, not `.nan`"),
        (
            "timeout: 5x",
            "1:10: error: `exporters.otlp.timeout`: `5x` is not a duration: `x` is not a unit (ns, us, ms, s, m, h)",
        ),
        (
            "timeout: true",
            "1:10: error: `exporters.otlp.timeout` must be a duration such as `5s`, not a boolean",
        ),
        (
            "timeout: 5",
            "1:10: warning: `exporters.otlp.timeout` a number without unit means nanoseconds, as in the Collector: 5ns (write a unit: `5s` for seconds, `5ms`)",
        ),
        (
            "limit: 4 parsec",
            "1:8: error: `exporters.otlp.limit`: `4 parsec` is not a size: `parsec` is not a unit (B, KB, KiB, MB, MiB, GB, GiB, TB, TiB)",
        ),
        ("limit: 0", "1:8: error: `exporters.otlp.limit` must be 1 or more, not `0`"),
        (
            "compression: gzi",
            "1:14: error: `exporters.otlp.compression` must be one of `none`, `gzip`, `zstd`, not `gzi` (did you mean `gzip`?)",
        ),
        ("keys: {a: b}", "1:7: error: `exporters.otlp.keys` must be a list, not a mapping"),
        (
            "keys: [1]",
            "1:8: error: `exporters.otlp.keys[0]` must be a string, not an integer (put it in quotes: \"1\")",
        ),
        (
            "labels: {a: 1}",
            "1:13: error: `exporters.otlp.labels.a` must be a string, not an integer (put it in quotes: \"1\")",
        ),
        (
            "labels: x",
            "1:9: error: `exporters.otlp.labels` must be a mapping of names to strings, not a string",
        ),
        (
            "tokens: [1]",
            "1:10: error: `exporters.otlp.tokens[0]` must be a string, not an integer (put it in quotes: \"…\")",
        ),
        ("tokens: {a: b}", "1:9: error: `exporters.otlp.tokens` must be a list, not a mapping"),
        (
            "headers: [{name: a}]",
            "1:11: error: each item of `exporters.otlp.headers` must have a `name` and a `value` and nothing else",
        ),
        (
            "tls: true",
            "1:6: error: `exporters.otlp.tls` must be a mapping of options, not a boolean",
        ),
        ("rules: [{}]", "1:9: error: `exporters.otlp.rules[0].key` is required"),
        ("rules: [{key: ''}]", "1:15: error: `exporters.otlp.rules[0].key` must not be empty"),
        ("named: [a]", "1:8: error: `exporters.otlp.named` must be a mapping, not a list"),
    ] {
        assert_eq!(said(text, read_everything), vec![format!("config.yaml:{expected}")], "{text}");
    }
}

#[test]
fn reports_unknown_options_with_the_nearest_name() {
    for (text, expected) in [
        (
            "time_out: 5s",
            "1:1: error: `exporters.otlp` has no option `time_out` (did you mean `timeout`?)",
        ),
        (
            "tls: {insecur: true}",
            "1:7: error: `exporters.otlp.tls` has no option `insecur` (did you mean `insecure`?)",
        ),
        (
            "tls: {color: red}",
            "1:7: error: `exporters.otlp.tls` has no option `color` (its only option is `insecure`)",
        ),
        ("colour: red", "1:1: error: `exporters.otlp` has no option `colour`"),
    ] {
        assert_eq!(said(text, read_everything), vec![format!("config.yaml:{expected}")], "{text}");
    }
    let few = said("colour: red", |fields| {
        (fields.boolean("a", false, ""), fields.boolean("b", false, ""))
    });
    assert_eq!(
        few,
        [
            "config.yaml:1:1: error: `exporters.otlp` has no option `colour` (the options are `a` and `b`)"
        ]
    );
}

/// Guarantee: one run finds all errors.
#[test]
fn collects_all_errors() {
    assert_eq!(said("count: 0\ntimeout: 5x\ncolour: red\ntls: 1", read_everything).len(), 4);
}

#[test]
fn remarks_on_options() {
    let function = |fields: &mut Fields<'_>| {
        fields.no_effect("num_consumers", "concurrency follows the backend");
        fields.not_yet("storage", "disk comes later");
        let new = fields.integer("new", 1, 0..=9, "");
        fields.warn_at("new", "is odd");
        fields.error("has no backend");
        new
    };
    let (value, said) = read("num_consumers: 3\nstorage: file_storage\nnew: 4", function);
    assert_eq!(value, 4);
    let expected = [
        "config.yaml:1:16: warning: `exporters.otlp.num_consumers` has no effect: concurrency follows the backend",
        "config.yaml:2:10: error: `exporters.otlp.storage` is not in this build of Sluice: disk comes later",
        "config.yaml:3:6: warning: `exporters.otlp.new` is odd",
        "config.yaml:1:1: error: `exporters.otlp` has no backend",
    ];
    assert_eq!(said, expected);
    for nothing in ["false", "", "[]", "{}", "{enabled: false, directory: /tmp}"] {
        let (_, said) = read(&format!("storage: {nothing}"), function);
        assert!(!said.iter().any(|line| line.contains("storage")), "{nothing}: {said:?}");
    }
}

/// Scenario: errors in lines with secrets, also where the option's name is misspelt or its kind is
/// wrong. Guarantee: no rendering shows the secret.
#[test]
fn never_shows_secrets() {
    let function = |fields: &mut Fields<'_>| {
        fields.secret("passphrase_x", "");
        fields.secret("shared", "");
        fields.secret_map("headers", "");
        fields.secret_list("keys", "");
        fields.warn_at("shared", "is short");
        fields.error_at("headers", "have a bad name");
    };
    for text in [
        "shared: hunter2",
        "shared: 0xhunter2",
        "shred: hunter2",
        "shared: [hunter2]",
        "shared: {a: hunter2}",
        "headers: {x: hunter2}",
        "headers: {x: [hunter2]}",
        "headers:\n  x: {hunter2: a}\n",
        "headers: [{name: a, value: hunter2, more: 1}]",
        "headers: hunter2",
        "keys: hunter2",
        "keys: [0xhunter2, [hunter2]]",
        "keys: {a: hunter2}",
        "keyz: [hunter2]",
        "pasword: hunter2",
        "shared: |\n  hunter2\n  hunter2\n",
        "{shared: hunter2, x: 1}",
    ] {
        let ((), diagnostics) = read_text("exporters.otlp", text, function);
        for colours in [false, true] {
            let rendered = diagnostics.render(colours);
            let is_key = text.contains("{hunter2:");
            assert!(is_key || !rendered.contains("hunter2"), "{text}\n{rendered}");
        }
        let lines = expand::tests::said(&diagnostics);
        assert!(!lines.is_empty(), "{text}");
        assert!(!lines.concat().contains("hunter2"), "{text} {lines:?}");
    }
    let ((), diagnostics) = read_text("exporters.otlp", "shared: 123456", function);
    assert!(!diagnostics.render(false).contains("123456"));
}

#[test]
fn describes_every_option_in_order() {
    let options = Fields::describe(|fields| {
        read_everything(fields);
        fields.no_effect("num_consumers", "why");
        fields.not_yet("storage", "later");
    });
    let lines: Vec<String> = options
        .iter()
        .map(|option| {
            format!("{} | {} | {} | {}", option.path, option.kind, option.default, option.doc)
        })
        .collect();
    let expected = [
        "endpoint | string | `localhost:4317` | Where to.",
        "name | string |  | A name.",
        "enabled | boolean | `true` | On.",
        "count | integer (1 to 100) | `10` | How many.",
        "ratio | number (0 to 1) | `0.5` | Part.",
        "timeout | duration | `5s` | How long.",
        "limit | size (1 or more) | `4MiB` | How much.",
        "compression | one of `none`, `gzip`, `zstd` | `gzip` | How.",
        "keys | list of strings | `[a, b]` | Which.",
        "labels | map of strings or lists of strings |  | Labels.",
        "headers | map of secret strings |  | Headers.",
        "tokens | list of secret strings |  | Tokens.",
        "tls | section |  | TLS.",
        "tls.insecure | boolean | `false` | No TLS.",
        "queue | section |  | Queue.",
        "queue.size | integer (1 to 1000) | `512` | Size.",
        "rules | list of sections |  | Rules.",
        "rules[].key | string, required |  | Key.",
        "named | map of sections |  | Named.",
        "named.<name>.n | integer (0 to 9) | `1` | N.",
        "num_consumers | any |  | ",
        "storage | any |  | ",
    ];
    assert_eq!(lines, expected);
    let effects: Vec<&Effect> = options.iter().rev().take(2).map(|option| &option.effect).collect();
    assert_eq!(effects, [&Effect::NotYet("later".to_owned()), &Effect::NoEffect("why".to_owned())]);
}
