mod recombine;

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use crate::chain::Counts;
use crate::testing::{chain, parts, read, record, run};

/// Runs one operator on one record: the parts of the result, or the failure's reason.
fn apply(operator: &str, before: &Json) -> Result<Json, String> {
    let mut chain = chain(&format!("- {{{operator}}}"));
    let mut out = Vec::new();
    chain.process(record(before.clone()), &mut out);
    match chain.take_failure() {
        Some(failure) => {
            assert_eq!(parts(&out[0]), *before, "a failed record stays as it is");
            Err(failure.reason)
        }
        None => Ok(parts(&out[0])),
    }
}

fn check(cases: Vec<(&str, Json, Json)>) {
    for (operator, before, after) in cases {
        assert_eq!(apply(operator, &before), Ok(after), "{operator} on {before}");
    }
}

fn check_failures(cases: Vec<(&str, Json, &str)>) {
    for (operator, before, reason) in cases {
        assert_eq!(apply(operator, &before), Err(reason.to_owned()), "{operator} on {before}");
    }
}

fn nested() -> Json {
    json!({"body": {"key": "val", "nested": {"nestedkey": "nestedval"}}})
}

fn with(mut parts: Json, name: &str, value: Json) -> Json {
    parts[name] = value;
    parts
}

#[test]
fn move_takes_a_value_to_another_place() {
    let in_nested = |value: Json| json!({"body": {"key": "val", "nested": value}});
    check(vec![
        (
            "type: move, from: body.key, to: body.new",
            nested(),
            json!({"body": {"new": "val", "nested": {"nestedkey": "nestedval"}}}),
        ),
        (
            "type: move, from: body.key, to: attributes.new",
            nested(),
            json!({"body": {"nested": {"nestedkey": "nestedval"}}, "attributes": {"new": "val"}}),
        ),
        (
            "type: move, from: attributes.new, to: body.new",
            with(nested(), "attributes", json!({"new": "val"})),
            json!({"body": {"key": "val", "new": "val", "nested": {"nestedkey": "nestedval"}}}),
        ),
        (
            "type: move, from: 'attributes[\"dotted.attr\"]', to: 'resource[\"a.b\"]'",
            with(nested(), "attributes", json!({"dotted.attr": "val"})),
            with(nested(), "resource", json!({"a.b": "val"})),
        ),
        (
            "type: move, from: resource.new, to: attributes.new",
            with(nested(), "resource", json!({"new": "val"})),
            with(nested(), "attributes", json!({"new": "val"})),
        ),
        (
            "type: move, from: body.nested, to: body.newnest",
            nested(),
            json!({"body": {"key": "val", "newnest": {"nestedkey": "nestedval"}}}),
        ),
        (
            "type: move, from: body.nested.nestedkey, to: body.unnested",
            nested(),
            json!({"body": {"key": "val", "nested": {}, "unnested": "nestedval"}}),
        ),
        (
            "type: move, from: body.new, to: body.nested.new",
            json!({"body": {"key": "val", "new": 1, "nested": {"nestedkey": "nestedval"}}}),
            in_nested(json!({"nestedkey": "nestedval", "new": 1})),
        ),
        // A map is merged into a map: onto the body, and into an object.
        (
            "type: move, from: body.nested, to: body",
            nested(),
            json!({"body": {"key": "val", "nestedkey": "nestedval"}}),
        ),
        (
            "type: move, from: body.a, to: body.nested",
            json!({"body": {"key": "val", "a": {"x": 1}, "nested": {"y": 2}}}),
            in_nested(json!({"x": 1, "y": 2})),
        ),
        (
            "type: move, from: body.nested.nestedkey, to: body",
            nested(),
            json!({"body": "nestedval"}),
        ),
        (
            "type: move, from: body, to: body.message",
            json!({"body": "x"}),
            json!({"body": {"message": "x"}}),
        ),
    ]);
    check_failures(vec![
        (
            "type: move, from: body.missing, to: body.a",
            nested(),
            "the record has no `body.missing`",
        ),
        (
            "type: move, from: body.a, to: body.b",
            json!({"body": "x"}),
            "the record has no `body.a`",
        ),
    ]);
}

#[test]
fn copy_leaves_the_value_where_it_was() {
    check(vec![
        (
            "type: copy, from: body.key, to: attributes.new",
            nested(),
            with(nested(), "attributes", json!({"new": "val"})),
        ),
        (
            "type: copy, from: body, to: body.whole",
            json!({"body": {"a": 1}}),
            json!({"body": {"a": 1, "whole": {"a": 1}}}),
        ),
        (
            "type: copy, from: resource.a, to: attributes.nested.a",
            json!({"resource": {"a": [1]}}),
            json!({"resource": {"a": [1]}, "attributes": {"nested": {"a": [1]}}}),
        ),
    ]);
    let failure = ("type: copy, from: body.x, to: body.y", nested(), "the record has no `body.x`");
    check_failures(vec![failure]);
}

#[test]
fn add_sets_values_and_expressions() {
    let one = json!({"body": {"a": 1}});
    check(vec![
        (
            "type: add, field: body.new, value: randomMessage",
            one.clone(),
            json!({"body": {"a": 1, "new": "randomMessage"}}),
        ),
        (
            "type: add, field: body.new, value: 'EXPR(body.a + 1)'",
            one.clone(),
            json!({"body": {"a": 1, "new": 2}}),
        ),
        (
            "type: add, field: body.new, value: {n: {m: [1, 2]}}",
            one.clone(),
            json!({"body": {"a": 1, "new": {"n": {"m": [1, 2]}}}}),
        ),
        ("type: add, field: body.a, value: over", one.clone(), json!({"body": {"a": "over"}})),
        (
            "type: add, field: body, value: 'prefix EXPR(body.a)'",
            one.clone(),
            json!({"body": "prefix EXPR(body.a)"}),
        ),
        (
            "type: add, field: attributes.one.two, value: false",
            json!({}),
            json!({"attributes": {"one": {"two": false}}}),
        ),
        (
            "type: add, field: resource.a, value: 'EXPR(attributes.missing)'",
            json!({}),
            json!({"resource": {"a": null}}),
        ),
        (
            "type: add, field: attributes.t, value: 'EXPR(timestamp)'",
            json!({}),
            json!({"attributes": {"t": "0001-01-01 00:00:00 +0000 UTC"}}),
        ),
    ]);
    let reason = "`body.a.b`: there is no `b` in int";
    check_failures(vec![("type: add, field: body.new, value: 'EXPR(body.a.b)'", one, reason)]);
}

#[test]
fn remove_takes_a_field_away() {
    let full = || {
        with(
            with(nested(), "attributes", json!({"a": {"b": 1, "c": 2}})),
            "resource",
            json!({"r": 1}),
        )
    };
    check(vec![
        (
            "type: remove, field: body.key",
            nested(),
            json!({"body": {"nested": {"nestedkey": "nestedval"}}}),
        ),
        (
            "type: remove, field: body.nested.nestedkey",
            nested(),
            json!({"body": {"key": "val", "nested": {}}}),
        ),
        ("type: remove, field: body", nested(), json!({})),
        (
            "type: remove, field: attributes.a.b",
            full(),
            with(full(), "attributes", json!({"a": {"c": 2}})),
        ),
        (
            "type: remove, field: attributes",
            json!({"attributes": {"a": 1}, "resource": {"r": 1}}),
            json!({"resource": {"r": 1}}),
        ),
        (
            "type: remove, field: resource",
            json!({"attributes": {"a": 1}, "resource": {"r": 1}}),
            json!({"attributes": {"a": 1}}),
        ),
        ("type: remove, field: resource", json!({}), json!({})),
    ]);
    check_failures(vec![(
        "type: remove, field: attributes.x",
        full(),
        "the record has no `attributes.x`",
    )]);
}

#[test]
fn retain_keeps_what_it_names() {
    let full = json!({
        "body": {"key": "val", "nested": {"a": 1, "b": 2}, "deleteme": true},
        "attributes": {"foo": "bar", "deleteme": "yes"},
        "resource": {"foo": "bar", "deleteme": "yes"}
    });
    check(vec![
        (
            "type: retain, fields: [body.key]",
            full.clone(),
            with(full.clone(), "body", json!({"key": "val"})),
        ),
        (
            "type: retain, fields: [body.nested.a, attributes.foo]",
            full.clone(),
            with(
                json!({"body": {"nested": {"a": 1}}, "attributes": {"foo": "bar"}}),
                "resource",
                full["resource"].clone(),
            ),
        ),
        (
            "type: retain, fields: [resource.foo, resource.missing]",
            full.clone(),
            with(full.clone(), "resource", json!({"foo": "bar"})),
        ),
        ("type: retain, fields: [body]", full.clone(), full.clone()),
        (
            "type: retain, fields: [attributes.missing]",
            json!({"body": 1, "attributes": {"a": 1}}),
            json!({"body": 1}),
        ),
    ]);
}

#[test]
fn flatten_moves_entries_up() {
    check(vec![
        (
            "type: flatten, field: body.nested",
            nested(),
            json!({"body": {"key": "val", "nestedkey": "nestedval"}}),
        ),
        (
            "type: flatten, field: body.a.b",
            json!({"body": {"a": {"b": {"x": 1, "y": {"z": 2}}, "c": 3}}}),
            json!({"body": {"a": {"x": 1, "y": {"z": 2}, "c": 3}}}),
        ),
        (
            "type: flatten, field: attributes.n",
            json!({"attributes": {"n": {"a": 1}, "a": 0}}),
            json!({"attributes": {"a": 1}}),
        ),
        (
            "type: flatten, field: resource.n",
            json!({"resource": {"n": {"a": 1}}}),
            json!({"resource": {"a": 1}}),
        ),
    ]);
    check_failures(vec![
        ("type: flatten, field: body.key", nested(), "the field is not a map"),
        ("type: flatten, field: body.missing", nested(), "the record has no `body.missing`"),
    ]);
}

#[test]
fn assign_keys_makes_a_map_of_a_list() {
    check(vec![
        (
            "type: assign_keys, field: body, keys: [origin, sev]",
            json!({"body": ["body", "INFO"]}),
            json!({"body": {"origin": "body", "sev": "INFO"}}),
        ),
        (
            "type: assign_keys, field: attributes.input, keys: [a, b]",
            json!({"attributes": {"input": [1, 2]}}),
            json!({"attributes": {"input": {"a": 1, "b": 2}}}),
        ),
    ]);
    check_failures(vec![
        (
            "type: assign_keys, field: body, keys: [a]",
            json!({"body": [1, 2]}),
            "the list has 2 values, and there are 1 keys",
        ),
        (
            "type: assign_keys, field: body, keys: [a]",
            json!({"body": "x"}),
            "the field is not a list",
        ),
        (
            "type: assign_keys, field: body.x, keys: [a]",
            json!({"body": {}}),
            "the record has no `body.x`",
        ),
    ]);
}

#[test]
fn unquote_reads_the_literals_of_go() {
    let of = |text: &str| json!({ "body": text });
    check(vec![
        ("type: unquote, field: body", of("\"val\""), of("val")),
        ("type: unquote, field: body", of("`v\\nal`"), of("v\\nal")),
        ("type: unquote, field: body", of("'v'"), of("v")),
        (
            "type: unquote, field: body",
            of(r#""a\n\t\"\\\x41\u00e9\U0001F600\101""#),
            of("a\n\t\"\\A\u{e9}\u{1F600}A"),
        ),
        ("type: unquote, field: body", of(r#""\xe5\xbe\x90 \xff""#), of("\u{5f90} \u{FFFD}")),
        (
            "type: unquote, field: attributes.foo",
            json!({"attributes": {"foo": "\"v\""}}),
            json!({"attributes": {"foo": "v"}}),
        ),
        ("type: unquote, field: attributes.bar", of("x"), of("x")),
    ]);
    let reason = "the text is not in quotes";
    let wrong = [
        "val",
        "'val'",
        "\"a",
        "\"a\"b\"",
        r#""\q""#,
        r#""\'""#,
        "\"a\nb\"",
        "`a`b`",
        "\"",
        r#""\x4""#,
        r#""\ud800""#,
    ];
    for text in wrong {
        check_failures(vec![("type: unquote, field: body", of(text), reason)]);
    }
    check_failures(vec![(
        "type: unquote, field: body",
        json!({"body": 123}),
        "the field is not a string",
    )]);
}

#[test]
fn regex_replace_replaces_all_matches() {
    let of = |text: &str| json!({ "body": text });
    let ansi = "type: regex_replace, field: body, regex_name: ansi_control_sequences";
    check(vec![
        (
            "type: regex_replace, field: body, regex: '_+', replace_with: ','",
            of("a__b__c"),
            of("a,b,c"),
        ),
        (
            "type: regex_replace, field: body, regex: '{(.)}', replace_with: '${1}'",
            of("{a}{b}{c}"),
            of("abc"),
        ),
        (
            "type: regex_replace, field: body, regex: '(?P<n>\\d)', replace_with: '<$n>$$'",
            of("1"),
            of("<1>$"),
        ),
        (ansi, of("asdf"), of("asdf")),
        (ansi, of("\x1b[m"), of("")),
        (ansi, of("start \x1b[31;1;4mred\x1b[0m end"), of("start red end")),
        (ansi, of("\x1b[31M"), of("")),
        ("type: regex_replace, field: body.x, regex: a", of("a"), of("a")),
    ]);
    check_failures(vec![(ansi, json!({"body": 123}), "the field is not a string")]);
}

#[test]
fn filter_drops_what_matches() {
    let cases = [
        ("body.message == 'test_message'", json!({"body": {"message": "test_message"}}), true),
        ("body.message == 'test_message'", json!({"body": {"message": "invalid"}}), false),
        ("body.message startsWith 'prefix'", json!({"body": {"other": 1}}), false),
        ("body.message matches '^test'", json!({"body": {"message": "test"}}), true),
        ("attributes.key == 'value'", json!({"attributes": {"key": "value"}}), true),
        ("attributes[\"a.b\"] == nil", json!({}), true),
    ];
    for (expression, parts, drops) in cases {
        let out = run(&format!("- type: filter\n  expr: {expression}"), [record(parts)]);
        assert_eq!(out.is_empty(), drops, "{expression}");
    }
    let mut out = Vec::new();
    let mut half = chain("- {type: filter, expr: body == 'x', drop_ratio: 0.5}");
    (0..10_000).for_each(|_| half.process(record(json!({"body": "x"})), &mut out));
    assert!((4000..6000).contains(&out.len()), "{}", out.len());
    assert_eq!(out.len() as u64 + half.counts().filtered, 10_000);
}

/// The first route that holds counts; a route that fails is passed over.
#[test]
fn router_sends_records_to_the_first_route_that_holds() {
    let operators = "
- type: router
  routes:
    - {expr: body.deep.a == 1, output: one}
    - {expr: body == 'two', output: two, attributes: {label: 'is EXPR(body)', none: null}}
    - {expr: body startsWith 't', output: one}
- {type: add, id: one, field: attributes.way, value: 1, output: end}
- {type: add, id: two, field: attributes.way, value: 2}
- {type: noop, id: end}
";
    let records = ["two", "three", "other"].map(|text| record(json!({ "body": text })));
    let (mut chain, mut out) = (chain(operators), Vec::new());
    records.into_iter().for_each(|record| chain.process(record, &mut out));
    let attributes: Vec<_> = out.iter().map(|record| parts(record)["attributes"].clone()).collect();
    assert_eq!(attributes, [json!({"label": "is two", "none": "", "way": 2}), json!({"way": 1})]);
    assert_eq!(chain.counts(), Counts { filtered: 1, ..Counts::default() });
}

/// Wrong options are refused, as by the Collector.
#[test]
fn wrong_options_are_refused() {
    let cases = [
        ("type: move, from: body.a", "`r.operators[0].to` is required"),
        ("type: copy, to: body.a", "`r.operators[0].from` is required"),
        ("type: add, field: body", "`r.operators[0].value` is required"),
        (
            "type: add, field: attributes, value: 1",
            "`attributes` is not a field: it needs a key, as in `attributes.name`",
        ),
        (
            "type: add, field: other.a, value: 1",
            "must begin with `body`, `attributes` or `resource`",
        ),
        (
            "type: add, field: body, value: 'EXPR(1 +)'",
            "`r.operators[0].value` has no valid expression: the end",
        ),
        ("type: add, field: body, value: 18446744073709551615", "does not fit into 64 bits"),
        ("type: remove", "`r.operators[0].field` is required"),
        ("type: retain", "`r.operators[0].fields` is required"),
        ("type: retain, fields: [x]", "`r.operators[0].fields` has `x`, which is no field"),
        ("type: assign_keys, field: body", "`r.operators[0].keys` is required"),
        ("type: regex_replace, field: body", "needs either `regex` or `regex_name`"),
        (
            "type: regex_replace, field: body, regex: a, regex_name: ansi_control_sequences",
            "cannot have both `regex` and `regex_name`",
        ),
        (
            "type: regex_replace, field: body, regex: '('",
            "is not a regular expression: unclosed group",
        ),
        ("type: filter", "`r.operators[0].expr` is required"),
        ("type: filter, expr: ''", "`` is not an expression: the end is not expected here"),
        (
            "type: filter, expr: body, drop_ratio: 1.5",
            "`r.operators[0].drop_ratio` must be between 0 and 1",
        ),
        ("type: router", "`r.operators[0].routes` is required"),
        ("type: router, routes: [{expr: 'true'}]", "`r.operators[0].routes[0].output` is required"),
        ("type: router, default: x", "there is no operator `x` in this list"),
        (
            "type: router, default: router, if: 'true'",
            "`r.operators[0].if` is no option of an operator with routes (write the condition into",
        ),
        (
            "type: recombine, combine_field: body",
            "needs either `is_first_entry` or `is_last_entry`",
        ),
        (
            "type: recombine, combine_field: body, is_first_entry: 'true', is_last_entry: 'true'",
            "cannot have both `is_first_entry` and `is_last_entry`",
        ),
        ("type: recombine, is_first_entry: 'true'", "`r.operators[0].combine_field` is required"),
        (
            "type: recombine, combine_field: body, is_first_entry: 'true', overwrite_with: x",
            "must be one of `oldest`, `newest`",
        ),
    ];
    for (operator, expected) in cases {
        let (_, findings) = read(&format!("- {{{operator}}}"));
        assert!(findings.contains(expected), "{operator}: {findings}");
    }
}

fn values() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        "[\"'`\\\\axu0\u{e9} ]{0,6}".prop_map(Json::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let items = prop::collection::vec(inner.clone(), 0..3).prop_map(Json::from);
        let map = prop::collection::btree_map("[ab]", inner, 0..3);
        prop_oneof![items, map.prop_map(|map| map.into_iter().collect::<Json>())]
    })
}

proptest! {
    /// Guarantee: no record makes an operator panic, and none is lost but by a filter.
    #[test]
    fn no_record_panics(body in values(), a in values(), b in values(), place in 0..12_usize) {
        let operators = [
            "type: move, from: body.a, to: attributes.a.b",
            "type: move, from: body, to: resource.a",
            "type: copy, from: attributes.a, to: body.a",
            "type: copy, from: body, to: body.b",
            "type: add, field: body.a.b, value: EXPR(body ?? attributes)",
            "type: remove, field: body.a",
            "type: retain, fields: [body.a.b, attributes.b]",
            "type: flatten, field: body.a",
            "type: assign_keys, field: body, keys: [a, a]",
            "type: unquote, field: body",
            "type: regex_replace, field: body, regex: '', replace_with: $1",
            "type: recombine, combine_field: body, is_first_entry: body == attributes.a",
        ];
        let parts = json!({"body": body, "attributes": {"a": a}, "resource": {"b": b}});
        let records = [record(parts.clone()), record(parts)];
        let out = run(&format!("- {{{}}}", operators[place]), records);
        prop_assert!(out.len() == 2 || place == 11 && !out.is_empty());
    }
}
