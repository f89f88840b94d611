use serde_json::{Value as Json, json};

use super::*;
use crate::record::Origin;
use crate::testing::{chain, parts, read, record, run};

fn body(text: &str) -> Record {
    record(json!({ "body": text }))
}

fn bodies(records: &[Record]) -> Vec<Json> {
    records.iter().map(|record| parts(record)["body"].clone()).collect()
}

/// Scenario: four operators in a row, two of one type. Guarantee: each record passes them in order.
#[test]
fn records_pass_the_operators_in_their_order() {
    let operators = "
- {type: filter, expr: body matches '^DEBUG'}
- {type: move, from: body, to: body.message}
- {type: add, field: attributes.a, value: EXPR(body.message + '!')}
- {type: noop}
- {type: add, field: resource.b, value: [1, {c: 1.5}, true]}
";
    let out = run(operators, [body("DEBUG x"), body("INFO y")]);
    let expected = json!({
        "body": {"message": "INFO y"},
        "attributes": {"a": "INFO y!"},
        "resource": {"b": [1, {"c": 1.5}, true]}
    });
    assert_eq!(out.iter().map(parts).collect::<Vec<_>>(), [expected]);
    assert_eq!(bodies(&run("  []", [body("x")])), ["x"]);
}

/// Scenario: outputs that lead further down, back up, and to two operators.
#[test]
fn outputs_lead_anywhere_but_in_circles() {
    let operators = "
- type: router
  routes: [{expr: body == `a`, output: last}, {expr: body == `b`, output: [mark, last]}]
  default: mark
- {type: add, id: first, field: body, value: EXPR(body + '1'), output: end}
- {type: add, id: mark, field: body, value: EXPR(body + '2'), output: first}
- {type: add, id: last, field: body, value: EXPR(body + '3')}
- {type: noop, id: end}
";
    let out = run(operators, [body("a"), body("b"), body("c")]);
    assert_eq!(bodies(&out), ["a3", "b21", "b3", "c21"]);
}

/// Scenario: an operator fails. Guarantee: `on_error` decides, and the counts tell.
#[test]
fn failures_are_dealt_with_as_on_error_says() {
    for (on_error, arrives, reports) in [
        ("send", true, true),
        ("send_quiet", true, false),
        ("drop", false, true),
        ("drop_quiet", false, false),
    ] {
        let operators = format!(
            "
- {{type: remove, field: body.missing, on_error: {on_error}}}
- {{type: add, field: attributes.a, value: 1}}"
        );
        let (mut chain, mut out) = (chain(&operators), Vec::new());
        chain.process(body("x"), &mut out);
        assert_eq!(out.len(), usize::from(arrives), "{on_error}");
        let dropped = u64::from(!arrives);
        assert_eq!(chain.counts(), Counts { errors: 1, dropped, ..Counts::default() });
        let failure = chain.take_failure();
        let reason = "the record has no `body.missing`".to_owned();
        let expected = Failure { operator: "remove".to_owned(), reason };
        assert_eq!(failure, reports.then_some(expected), "{on_error}");
        assert_eq!(chain.take_failure(), None);
    }
}

/// A record for which `if` does not hold passes unchanged, one for which it fails is an error.
#[test]
fn conditions_let_records_pass() {
    let operators = "
- {type: add, if: body.kind == 'a', field: attributes.a, value: 1, on_error: drop}
- {type: filter, if: body.kind == 'b', expr: true == true}
";
    let records = [
        record(json!({"body": {"kind": "a"}})),
        record(json!({"body": {"kind": "b"}})),
        record(json!({"body": {"kind": "c"}})),
        body("text"),
    ];
    let (mut chain, mut out) = (chain(operators), Vec::new());
    records.into_iter().for_each(|record| chain.process(record, &mut out));
    let found: Vec<_> = out.iter().map(parts).collect();
    let first = json!({"body": {"kind": "a"}, "attributes": {"a": 1}});
    assert_eq!(found, [first, json!({"body": {"kind": "c"}})]);
    let expected = Counts { errors: 1, dropped: 1, filtered: 1, let_go: 0 };
    assert_eq!(chain.counts(), expected);
}

/// Guarantee: an option that is null has its default, and its operator works.
#[test]
fn options_that_are_null_have_their_defaults() {
    let operators = "
- {type: json_parser, parse_to: , parse_from: null}
- {type: recombine, combine_field: body, is_last_entry: 'true == true', source_identifier: ~}
";
    let out = run(operators, [body(r#"{"a":"b"}"#)]);
    assert_eq!(parts(&out[0])["attributes"], json!({"a": "b"}));
}

/// Wrong lists are refused, each with its place and a remedy.
#[test]
fn wrong_lists_are_refused_with_their_place() {
    let cases = [
        (
            "- {type: noop, output: nop}",
            "config.yaml:2: there is no operator `nop` in this list (did you mean `noop`?)",
        ),
        (
            "- {type: noop, output: elsewhere}",
            "config.yaml:2: there is no operator `elsewhere` in this list (its operators are `noop`)",
        ),
        ("- {type: noop, output: noop}", "config.yaml:2: the output makes a loop: noop → noop"),
        (
            "- {type: noop, id: a}\n- {type: noop, id: b}\n- {type: noop, id: c, output: b}",
            "config.yaml:4: the output makes a loop: b → c → b",
        ),
        (
            "- {type: noop, id: a}\n- {type: add, id: a, field: body, value: 1}",
            "config.yaml:3: an operator before has the `id` `a` too",
        ),
        (
            "- {type: mov}",
            "config.yaml:2: `r.operators[0].type` is `mov`, and this build of Sluice has no such operator (did you mean `move`?)",
        ),
        ("- {id: x, from: y}", "config.yaml:2: `r.operators[0].type` is required"),
        (
            "- {type: noop, field: body}",
            "config.yaml:2: `r.operators[0]` has no option `field` (the options are `type`, `id`, `output`, `if` and `on_error`)",
        ),
        (
            "- {type: noop, on_error: ignore}",
            "config.yaml:2: `r.operators[0].on_error` must be one of `send`, `send_quiet`, `drop`, `drop_quiet`, not `ignore`",
        ),
        (
            "- {type: noop, if: 'body =='}",
            "config.yaml:2: `r.operators[0].if`: `body ==` is not an expression: the end is not expected here (line 1, column 8)",
        ),
        (
            "- {type: noop, if: \"'a'\"}",
            "config.yaml:2: `r.operators[0].if`: `'a'` is not an expression: it gives a string, and a boolean is needed",
        ),
        (
            "- {type: noop, if: level == 'a'}",
            "config.yaml:2: `r.operators[0].if` is probably wrong: `level` is always nil: records have `body`, `attributes`, `resource`, `timestamp`",
        ),
        (
            "- {type: noop, output: c}\n- {type: noop, id: b}\n- {type: noop, id: c}",
            "config.yaml:2: `r.operators` has an operator `b` that no output leads to",
        ),
    ];
    for (operators, expected) in cases {
        let (_, findings) = read(operators);
        assert_eq!(findings, expected, "{operators}");
    }
    let doubling: String = (0..12)
        .map(|place| format!("- {{type: noop, id: n{place}, output: [n{0}, n{0}]}}\n", place + 1))
        .collect();
    let (_, findings) = read(&(doubling + "- {type: noop, id: n12}"));
    assert!(findings.contains("copy a record more than 1000 times"), "{findings}");
}

/// Types that are used again have names with numbers, as in the Collector.
#[test]
fn names_are_made_of_types() {
    let operators = "
- {type: noop, output: noop2}
- {type: noop, id: noop1}
- {type: noop, output: noop3}
- {type: noop, output: noop1}
";
    // The third is `noop2`, as `noop1` is taken, and the fourth `noop3`; it leads back to `noop1`.
    let (_, findings) = read(operators);
    let expected = "config.yaml:6: the output makes a loop: noop1 → noop2 → noop3 → noop1";
    assert_eq!(findings, expected);
}

const COMBINING: &str = "
- {type: recombine, combine_field: body, is_first_entry: \"body matches '^[^ ]'\", combine_with: ''}
- {type: noop}
";

fn from(stream: u64, start: u64, text: &str) -> Record {
    let end = start + text.len() as u64;
    Record { origin: Origin { stream, range: start..end }, ..body(text) }
}

/// Guarantee: the lowest held offset of each stream is known, and nothing of a forgotten one comes.
#[test]
fn held_records_keep_their_checkpoint_back() {
    let (mut chain, mut out) = (chain(COMBINING), Vec::new());
    for record in [from(1, 0, "a"), from(1, 1, " b"), from(2, 5, "c"), from(1, 3, "d")] {
        chain.process(record, &mut out);
    }
    assert_eq!(bodies(&out), ["a b"]);
    assert_eq!(out[0].origin, Origin { stream: 1, range: 0..3 });
    assert_eq!(
        [1, 2, 3].map(|stream| chain.held().get(&stream).copied()),
        [Some(3), Some(5), None]
    );
    chain.forget(1);
    assert_eq!([1, 2].map(|stream| chain.held().get(&stream).copied()), [None, Some(5)]);
    out.clear();
    for seconds in [1000, 1004] {
        chain.flush(Duration::from_secs(seconds), &mut out);
        assert_eq!(out.len(), 0);
    }
    chain.flush(Duration::from_secs(1005), &mut out);
    assert_eq!(bodies(&out), ["c"]);
    assert_eq!((chain.held_bytes(), chain.held().get(&2).copied()), (0, None));
}

/// Guarantee: bytes are due when their record is, and that leaves then.
#[test]
fn bytes_are_due_with_their_records() {
    let container = "\n- {type: container, add_metadata_from_filepath: false}\n";
    for (operators, text) in [(COMBINING, "a"), (container, "2024-04-13T07:59:37Z stdout P a")] {
        let (mut chain, mut out) = (chain(operators), Vec::new());
        chain.process(from(1, 0, text), &mut out);
        let at = Duration::from_secs;
        assert_eq!(chain.due_bytes(at(1000)), 0, "its time begins");
        chain.process(from(2, 0, text), &mut out);
        chain.flush(at(1004), &mut out);
        assert_eq!((chain.due_bytes(at(1004)), out.len()), (0, 0));
        let due = chain.due_bytes(at(1005));
        assert_eq!(due * 2, chain.held_bytes());
        assert_eq!(chain.due_bytes(Duration::MAX), chain.held_bytes());
        chain.flush(at(1005), &mut out);
        assert_eq!((chain.held_bytes(), out.len()), (due, 1));
    }
}

/// Guarantee: a chain holds at most 4 MiB; beyond, the oldest leave.
#[test]
fn held_records_are_bounded() {
    let (mut chain, mut out) = (chain(COMBINING), Vec::new());
    let text = " ".to_owned() + &"x".repeat(999_999);
    for stream in 0..10 {
        chain.process(from(stream, 0, &text), &mut out);
        assert!(chain.held_bytes() <= HELD_LIMIT);
    }
    assert!(chain.counts().let_go > 0);
    assert_eq!(out.len() as u64, chain.counts().let_go);
    assert_eq!(out[0].origin.stream, 0);
    chain.flush(Duration::MAX, &mut out);
    assert_eq!(out.len(), 10);
}

/// Scenario: one operator that holds leads to another. Guarantee: the end lets all go.
#[test]
fn the_end_lets_all_go_whatever_the_order_of_the_list() {
    let operators = "
- {type: noop, output: one}
- type: recombine
  id: two
  combine_field: body
  is_last_entry: body == 'never'
  combine_with: '+'
  output: last
- type: recombine
  id: one
  combine_field: body
  is_last_entry: body == 'never'
  combine_with: '-'
  output: two
- {type: noop, id: last}
";
    assert_eq!(bodies(&run(operators, [body("a"), body("b")])), ["a-b"]);
}

/// Scenario: lines of JSON, one of them broken. Guarantee: parsers, conditions and changes meet.
#[test]
fn parsers_are_operators_of_a_chain() {
    let operators = "
- {type: json_parser, parse_to: body, on_error: send_quiet, severity: {parse_from: body.level}}
- {type: move, if: type(body) == 'map', from: body.message, to: attributes.message}
- {type: filter, expr: attributes.message == 'noise'}
";
    let lines = [r#"{"level":"warn","message":"a"}"#, r#"{"message":"noise"}"#, "{broken"];
    let out = run(operators, lines.map(body));
    let first = json!({"body": {"level": "warn"}, "attributes": {"message": "a"}});
    assert_eq!(out.iter().map(parts).collect::<Vec<_>>(), [first, json!({"body": "{broken"})]);
    assert_eq!(out[0].severity, 13);
}

/// A copy passes all operators on its way before the next one sets out.
#[test]
fn a_copy_goes_its_whole_way_before_the_next() {
    let operators = "
- {type: noop, output: [a, b]}
- {type: add, id: a, field: body, value: EXPR(body + 'a'), output: [c, d]}
- {type: add, id: b, field: body, value: EXPR(body + 'b'), output: [c, d]}
- {type: add, id: c, field: body, value: EXPR(body + 'c'), output: end}
- {type: add, id: d, field: body, value: EXPR(body + 'd')}
- {type: noop, id: end}
";
    assert_eq!(bodies(&run(operators, [body("")])), ["ac", "ad", "bc", "bd"]);
}

/// Scenario: labels with expressions, of which one fails for a record. Guarantee: they are there
/// before the operators, what the record has stays, and the failure is told.
#[test]
fn labels_come_before_the_operators() {
    use crate::field::Root;
    use crate::label::Label;
    let operators = "
- {type: router, routes: [{expr: attributes.level == 'a', output: two}], default: one}
- {type: add, id: one, field: body, value: 1, output: end}
- {type: add, id: two, field: body, value: 2}
- {type: noop, id: end}
";
    let label = |root, key, text| Label::new(root, key, text).unwrap();
    let labels = vec![
        label(Root::Attributes, "level", "EXPR(body.level)"),
        label(Root::Attributes, "file", "EXPR(body.level)"),
        label(Root::Resource, "host", "x-EXPR(body.level)-y"),
    ];
    let (mut chain, mut out) = (read(operators).0.labelled(labels.clone()).build(), Vec::new());
    let given = [
        record(json!({"body": {"level": "a"}, "attributes": {"file": "f"}})),
        record(json!({"body": {"level": 3}})),
    ];
    given.into_iter().for_each(|record| chain.process(record, &mut out));
    let expected = json!({
        "body": 2,
        "attributes": {"file": "f", "level": "a"},
        "resource": {"host": "x-a-y"}
    });
    assert_eq!(parts(&out[0]), expected);
    assert_eq!(parts(&out[1]), json!({"body": 1}));
    let failure = chain.take_failure().unwrap();
    assert_eq!(failure.operator, "attributes");
    assert_eq!(chain.counts().errors, 1);
    let alone = read("  []").0.labelled(labels);
    assert!(!alone.is_empty() && alone.build().counts() == Counts::default());
    assert!(Label::new(Root::Resource, "a", "EXPR(1 +)").is_err());
}
