//! The language of `if`, `expr` and `EXPR(…)`, one expression a case's operator.

use super::Case;

/// Values and functions, each added as an attribute.
const VALUES: [&str; 62] = [
    "1 + 2 * 3 - 4 / 2",
    "7 % 3",
    "2 ** 10",
    "7 / 2",
    "-7 / 2.0",
    "\"a\" + \"b\"",
    "1 < 2 and 2 <= 2",
    "1 == 1.0",
    "nil == attributes.none",
    "attributes.none?.x",
    "attributes.a ?? \"default\"",
    "attributes.none ?? \"default\"",
    "attributes.n > 5 ? \"big\" : \"small\"",
    "\"x\" in [\"x\", \"y\"]",
    "\"a\" in attributes",
    "attributes.n in 1..10",
    "attributes.l[0]",
    "attributes.l[-1]",
    "attributes[\"a\"]",
    "body[0:3]",
    "body[3:]",
    "[1, 2, 3][1:]",
    "len(attributes.l)",
    "len(body)",
    "upper(attributes.a)",
    "lower(\"ÄB\")",
    "trim(\"  x \")",
    "trim(\"xxaxx\", \"x\")",
    "trimPrefix(\"abc\", \"a\")",
    "trimSuffix(\"abc\", \"c\")",
    "split(\"a,b,c\", \",\")",
    "replace(\"aXa\", \"a\", \"b\")",
    "repeat(\"ab\", 3)",
    "join([\"a\", \"b\"], \"-\")",
    "indexOf(\"hello\", \"l\")",
    "lastIndexOf(\"hello\", \"l\")",
    "hasPrefix(body, \"{\")",
    "hasSuffix(body, \"}\")",
    "int(\"17\")",
    "int(1.9)",
    "float(\"1.5\")",
    "string(1.5)",
    "string([1, \"a\", nil])",
    "type(1)",
    "type(1.5)",
    "type(nil)",
    "type(attributes.m)",
    "first([1, 2])",
    "last([1, 2])",
    "get(attributes, \"a\")",
    "all([1, 2], # > 0)",
    "any(attributes.l, # == \"p\")",
    "none([1, 2], # > 5)",
    "one([1, 2], # > 1)",
    "filter([1, 2, 3], # > 1)",
    "map([1, 2], # * 2)",
    "count([1, 2, 3], # > 1)",
    "sum([1, 2, 3])",
    "find([1, 2, 3], # > 1)",
    "reduce([1, 2, 3], #acc + #)",
    "let x = 2; x * 3",
    "{\"k\": attributes.n, \"s\": [1]}",
];

/// Conditions, each of an operator of its own.
const CONDITIONS: [&str; 24] = [
    "body contains \"x\"",
    "body matches \"(?i)X\\\\d\"",
    "not (body startsWith \"{\")",
    "!(attributes.n == 7)",
    "attributes.n == 7 || attributes.a == \"X1\"",
    "attributes.n == 7 && attributes.t",
    "attributes.m.b == \"y\"",
    "attributes.m != nil and attributes.m.c != nil",
    "attributes[\"log.file.name\"] == \"a.log\"",
    "resource.case != nil",
    "attributes.f > 1",
    "attributes.f >= 1.5",
    "attributes.n < 0",
    "len(attributes.l) == 0",
    "attributes.z == nil",
    "\"b\" in attributes.m",
    "attributes.a matches \"^x$\"",
    "attributes.a in [\"x\", \"X1\"]",
    "type(attributes.n) == \"int\"",
    "type(attributes.m) == \"string\"",
    "(attributes.a ?? \"\") == \"\"",
    "attributes?.m?.c?.d == 1",
    "any(keys(attributes), # == \"a\")",
    "attributes.a == 'x'",
];

const OBJECTS: &str = r#"
{"a":"x","n":7,"f":1.5,"t":true,"z":null,"m":{"b":"y","c":{"d":1}},"l":["p","q"]}
{"a":"X1","n":-7,"f":1.0,"t":false,"m":{"c":null},"l":[]}
{"m":"text","l":{"b":1},"n":"7"}
{}
no object
"#;

/// A text in YAML's single quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

pub(super) fn cases() -> Vec<Case> {
    let parsed = "  - {type: json_parser, parse_ints: true}\n";
    let mut cases = Vec::new();
    // Several to a receiver: one that fails leaves its record as it was.
    for (number, values) in VALUES.chunks(8).enumerate() {
        let mut operators = parsed.to_owned();
        for (index, value) in values.iter().enumerate() {
            let value = quoted(&format!("EXPR({value})"));
            operators +=
                &format!("  - {{type: add, field: attributes.value{index}, value: {value}}}\n");
        }
        cases.push(Case::operators(&format!("values-{number}"), &operators, OBJECTS));
    }
    for (number, conditions) in CONDITIONS.chunks(8).enumerate() {
        let mut operators = parsed.to_owned();
        for (index, condition) in conditions.iter().enumerate() {
            operators += &format!(
                "  - {{type: add, field: attributes.holds{index}, value: true, if: {}}}\n",
                quoted(condition)
            );
        }
        cases.push(Case::operators(&format!("conditions-{number}"), &operators, OBJECTS));
    }
    cases
}
