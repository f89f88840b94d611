//! Operators that change, route, join and drop records.

use fastrand::Rng;

use super::Case;
use crate::contents;

/// Objects with fields of all types, as operators find them.
const OBJECTS: &str = r#"
{"a":"x","n":7,"f":1.5,"t":true,"m":{"b":"y","c":{"d":1}},"l":["p","q"],"q":"\"in\\tside\""}
{"z":null}
{"a":"X1","n":-7,"m":{},"l":[],"q":"`raw`"}
{"m":"text","l":{"b":1},"n":"7","q":"none"}
{"a":{"b":{"c":"deep"}},"m":{"a":"inner","b":null},"q":"\"\\x\""}
{}
{"a":""}
"#;

const ONE_OPERATOR: [(&str, &str); 34] = [
    ("add-text", "{type: add, field: attributes.new, value: text}"),
    ("add-number", "{type: add, field: attributes.new, value: 17}"),
    ("add-double", "{type: add, field: attributes.new, value: 1.5}"),
    ("add-map", "{type: add, field: attributes.new, value: {a: 1, b: [true, x]}}"),
    ("add-over", "{type: add, field: attributes.a.b, value: over}"),
    ("add-deep", "{type: add, field: attributes.p.q.r, value: deep}"),
    ("add-merged", "{type: add, field: attributes.m, value: {e: 5}}"),
    ("add-resource", "{type: add, field: resource.host, value: h}"),
    ("add-body", "{type: add, field: body, value: whole}"),
    ("add-expression", "{type: add, field: attributes.new, value: 'EXPR(attributes.a)'}"),
    (
        "add-template",
        "{type: add, field: attributes.new, value: 'a-EXPR(attributes.a)-EXPR(body)'}",
    ),
    ("add-list-expression", "{type: add, field: attributes.new, value: 'EXPR([1, attributes.n])'}"),
    ("copy", "{type: copy, from: attributes.a, to: attributes.copied}"),
    ("copy-to-body", "{type: copy, from: attributes.m, to: body}"),
    ("copy-from-body", "{type: copy, from: body, to: attributes.raw}"),
    ("copy-into-text", "{type: copy, from: attributes.n, to: attributes.a.deep}"),
    ("copy-to-resource", "{type: copy, from: attributes.m, to: resource.m}"),
    ("move", "{type: move, from: attributes.a, to: attributes.moved}"),
    ("move-body", "{type: move, from: body, to: attributes.m.raw}"),
    ("move-to-body", "{type: move, from: attributes.m, to: body}"),
    ("move-into-itself", "{type: move, from: attributes.m, to: attributes.m.inner}"),
    ("move-dotted", "{type: move, from: attributes.m.b, to: 'attributes[\"a.b\"]'}"),
    ("remove", "{type: remove, field: attributes.m.b}"),
    ("remove-body", "{type: remove, field: body}"),
    ("remove-attributes", "{type: remove, field: attributes}"),
    ("retain", "{type: retain, fields: [attributes.a, attributes.m.b]}"),
    ("retain-body", "{type: retain, fields: [body]}"),
    ("retain-missing", "{type: retain, fields: [attributes.none]}"),
    ("flatten", "{type: flatten, field: attributes.m}"),
    ("flatten-text", "{type: flatten, field: attributes.a}"),
    ("assign-keys", "{type: assign_keys, field: attributes.l, keys: [one, two]}"),
    ("unquote", "{type: unquote, field: attributes.q}"),
    ("noop", "{type: noop}"),
    (
        "regex-replace",
        "{type: regex_replace, field: attributes.a, regex: '([a-z])(\\d*)', replace_with: \
        '<$$2|$${1}>'}",
    ),
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let parsed = "  - {type: json_parser, parse_ints: true}\n";
    for (name, operator) in ONE_OPERATOR {
        let operators = format!("{parsed}  - {operator}");
        cases.push(Case::operators(name, &operators, OBJECTS));
        let closed = operator.trim_end_matches('}');
        let braces = operator.len() - closed.len() - 1;
        let inner = format!("{closed}{}", "}".repeat(braces));
        let conditional = format!("{parsed}  - {inner}, on_error: drop, if: attributes.n != 7}}");
        cases.push(Case::operators(&format!("{name}-if"), &conditional, OBJECTS));
    }
    cases.push(Case::new(
        "sanitize",
        "encoding: utf-8-raw\noperators:\n  - type: sanitize_utf8",
        contents::bytes(100),
    ));
    cases.extend(filters());
    cases.extend(routes());
    cases.extend(joined());
    cases.extend(chains());
    cases
}

fn filters() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, expression) in [
        ("matches", r#"body matches "^[0-9]*[02468] ""#),
        ("contains", r#"body contains "Gr" or body endsWith "-""#),
        ("negated", r#"not (body startsWith "1")"#),
        ("length", "len(body) > 20"),
        ("attribute", r#"attributes["log.file.name"] != "a.log" || len(body) < 5"#),
        ("half", "len(body) % 2 == 0"),
    ] {
        let operators = format!("  - type: filter\n    expr: '{expression}'");
        let content = contents::plain(101, 80);
        cases.push(Case::operators(&format!("filter-{name}"), &operators, content));
    }
    cases
}

fn routes() -> Vec<Case> {
    let router = |default: &str| {
        format!(
            "  - type: router\n{default}    routes:\n      \
             - {{expr: 'body startsWith \"{{\"', output: json}}\n      \
             - {{expr: 'body contains \"=\"', output: pairs, attributes: {{kind: pairs}}}}\n  \
             - {{type: json_parser, id: json, output: end}}\n  \
             - {{type: key_value_parser, id: pairs, output: end}}\n  \
             - {{type: add, id: other, field: attributes.other, value: true}}\n  \
             - {{type: add, id: end, field: attributes.end, value: true}}\n"
        )
    };
    let content = "{\"a\":1}\na=1 b=2\nother\n{\n=\n{\"b\":\"=\"}\n";
    vec![
        Case::operators("router", &router("    default: other\n"), content).in_any_order(),
        Case::operators("router-without-default", &router(""), content).in_any_order(),
        Case::operators(
            "two-outputs",
            "  - {type: noop, output: [one, two]}\n  \
             - {type: add, id: one, field: attributes.one, value: 1, output: end}\n  \
             - {type: add, id: two, field: attributes.two, value: 2}\n  \
             - {type: add, id: end, field: attributes.end, value: true}\n",
            content,
        )
        .in_any_order(),
        Case::operators(
            "routed-and-joined",
            "  - type: router\n    default: end\n    routes:\n      \
             - {expr: 'body startsWith \" \" or body startsWith \"2\"', output: join}\n  \
             - {type: recombine, id: join, combine_field: body, is_first_entry: 'body startsWith \
             \"2\"', \
             source_identifier: 'attributes[\"log.file.name\"]', force_flush_period: 3s, \
             output: end}\n  \
             - {type: add, id: end, field: attributes.end, value: true}\n",
            contents::stack(103),
        )
        .in_any_order(),
    ]
}

fn joined() -> Vec<Case> {
    let common = "combine_field: body, source_identifier: 'attributes[\"log.file.name\"]', \
                  force_flush_period: 3s";
    let mut cases = Vec::new();
    for (name, options) in [
        ("first", r#"is_first_entry: 'body matches "^[0-9]{4}-"'"#),
        ("last", r#"is_last_entry: 'body endsWith "end"'"#),
        ("last-glued", r#"is_last_entry: 'body endsWith "end"', combine_with: "|""#),
        ("newest", r#"is_first_entry: 'body matches "^[0-9]{4}-"', overwrite_with: newest"#),
        ("few", r#"is_first_entry: 'body matches "^[0-9]{4}-"', max_batch_size: 3"#),
        ("small", r#"is_last_entry: 'body endsWith "end"', max_log_size: 120"#),
        ("unmatched", r#"is_first_entry: 'body matches "^never"', max_unmatched_batch_size: 5"#),
        ("unmatched-last", r#"is_last_entry: 'body matches "^never"', max_batch_size: 7"#),
    ] {
        let operators = format!("  - {{type: recombine, {common}, {options}}}");
        let files = vec![
            ("a.log".to_owned(), contents::stack(104)),
            ("b.log".to_owned(), contents::stack(105)),
        ];
        let options = format!("operators:\n{operators}");
        cases.push(Case::of_files(&format!("recombine-{name}"), &options, files));
    }
    let attribute = "  - {type: regex_parser, regex: '^(?P<part>[A-Z])(?P<text>.*)$'}\n  \
                     - {type: recombine, combine_field: attributes.text, is_last_entry: \
                     'attributes.part == \"F\"', \
                     combine_with: '', source_identifier: 'attributes[\"log.file.name\"]', \
                     force_flush_period: 3s}";
    let mut rng = Rng::with_seed(106);
    let lines: String = (0..60)
        .map(|number| format!("{}{number} {}\n", ["P", "P", "F", "PF"][rng.usize(..4)], number % 7))
        .collect();
    cases.push(Case::operators("recombine-attribute", attribute, lines));
    cases
}

fn chains() -> Vec<Case> {
    let long = "  - type: json_parser
    on_error: send_quiet
    timestamp:
      parse_from: attributes.time
      layout_type: gotime
      layout: '2006-01-02T15:04:05.000Z'
    severity: {parse_from: attributes.level}
  - {type: move, if: 'attributes.msg != nil', from: attributes.msg, to: body}
  - {type: remove, if: '\"a\" in attributes', field: attributes.a}
  - {type: flatten, if: 'type(attributes.user) == \"map\"', field: attributes.user}
  - {type: copy, if: 'attributes.n >= 10', from: attributes.n, to: resource.count, on_error: drop}
  - {type: filter, expr: 'attributes.n != nil and attributes.n > 50'}
  - {type: add, field: attributes.kind, value: 'EXPR(type(body))'}
  - {type: retain, if: 'attributes.b != nil', fields: [attributes.b, attributes.kind, body]}";
    let names = "  - {type: json_parser, id: first, output: third}
  - {type: add, id: second, field: attributes.second, value: 1, output: fourth}
  - {type: add, id: third, field: attributes.third, value: 1, output: second}
  - {type: add, id: fourth, field: attributes.fourth, value: 1}";
    vec![
        Case::operators("chain", long, contents::json(111, true)),
        Case::operators("chain-order", names, contents::json(112, false)),
    ]
}
