use proptest::prelude::*;
use serde_json::{Value as Json, json};
use sluice_otlp::AnyValue;

use super::{Expression, Template};
use crate::record::Record;
use crate::testing;

fn record() -> Record {
    let mut record = testing::record(json!({
        "body": {
            "text": "GET /index.html 200", "n": 7, "f": 1.5, "yes": true, "nothing": null,
            "list": [3, 1, 2], "users": [{"name": "ann", "age": 30}, {"name": "bob", "age": 20}],
            "in": "word", "deep": {"a": {"b": "c"}}
        },
        "attributes": {"x": "y", "log.file.name": "app.log", "count": 3},
        "resource": {"id": "value"}
    }));
    record.time_ns = Some(1_700_000_000_000_000_000);
    record
}

fn value(text: &str) -> Result<Json, String> {
    Ok(testing::json(&Expression::compile(text)?.value(&record())?))
}

/// The values are those that the Collector's language gives.
#[test]
fn expressions_have_the_values_of_the_collector() {
    let cases: Vec<(&str, Json)> = vec![
        // Literals.
        ("1", json!(1)),
        ("0x1F + 0b11 + 0o17 + 1_000", json!(31 + 3 + 15 + 1000)),
        (".5 + 1.5e1", json!(15.5)),
        (r#""a\tb\x41\u00e9\u{1F600}\101""#, json!("a\tbA\u{e9}\u{1F600}A")),
        (r"'it\'s'", json!("it's")),
        ("`raw \\d ``quoted```", json!("raw \\d `quoted`")),
        ("nil", Json::Null),
        ("[1, 'a', [true],]", json!([1, "a", [true]])),
        ("{a: 1, 'b c': 2, 3: 4, ('d' + 'e'): 5}", json!({"a": 1, "b c": 2, "3": 4, "de": 5})),
        ("1 /* one */ + 2 // three", json!(3)),
        ("type(b'\\xff')", json!("array")),
        // The record.
        ("body.text", json!("GET /index.html 200")),
        ("$.n", json!(7)),
        ("attributes['log.file.name']", json!("app.log")),
        ("attributes.missing", Json::Null),
        ("resource.id", json!("value")),
        ("body.deep.a.b", json!("c")),
        ("body.in", json!("word")),
        ("body.list[0] + body.list[-1]", json!(5)),
        ("'abc'[1]", json!(98)),
        ("body.deep?.a?.b", json!("c")),
        ("body.nothing?.a.b", Json::Null),
        ("body.nothing?.['a']", Json::Null),
        ("body.nothing ?? attributes.missing ?? 'default'", json!("default")),
        // Arithmetic.
        ("2 + 3 * 4 - 1", json!(13)),
        ("7 / 2", json!(3.5)),
        ("7 % 4", json!(3)),
        ("2 ** 3 ** 2", json!(512.0)),
        ("2 ^ 3", json!(8.0)),
        ("-2 ** 2", json!(-4.0)),
        ("-body.n + +1", json!(-6)),
        ("1 + 1.5", json!(2.5)),
        ("'a' + 'b'", json!("ab")),
        ("9223372036854775807 + 1", json!(i64::MIN)),
        ("1..4", json!([1, 2, 3, 4])),
        ("3..1", json!([])),
        // Comparisons and logic.
        ("1 == 1.0 and 'a' != 'b'", json!(true)),
        ("1 < 2 <= 2", json!(true)),
        ("1 < 2 > 3", json!(false)),
        ("'a' < 'b'", json!(true)),
        ("[1, 2] == [1.0, 2]", json!(true)),
        ("{a: 1, b: 2} == {b: 2, a: 1}", json!(true)),
        ("1 == 'a'", json!(false)),
        ("nil == nil && attributes.missing == nil", json!(true)),
        ("true || body.text.fails", json!(true)),
        ("false && body.text.fails", json!(false)),
        ("not true or !false", json!(true)),
        ("true or false and false", json!(true)),
        ("1 in body.list and 9 not in body.list", json!(true)),
        ("'x' in attributes and 'z' not in attributes", json!(true)),
        ("1 in nil", json!(false)),
        ("body.text matches '^GET .*\\\\d+$'", json!(true)),
        ("body.text matches `\\d{3}$`", json!(true)),
        ("body.text not matches 'POST'", json!(true)),
        ("body.text matches 'PO' + 'ST'", json!(false)),
        ("attributes.missing matches 'a'", json!(false)),
        ("body.text contains 'index'", json!(true)),
        ("body.text startsWith 'GET' and body.text endsWith '200'", json!(true)),
        ("attributes.missing contains 'a'", json!(false)),
        ("body.yes ? 'a' : 'b'", json!("a")),
        ("false ?: 'b'", json!("b")),
        ("true ?: 'b'", json!(true)),
        ("false ? 1 : false ? 2 : 3", json!(3)),
        ("if body.n > 5 { 'big' } else if body.n > 3 { 'middle' } else { 'small' }", json!("big")),
        // Slices.
        ("'hello'[1:3]", json!("el")),
        ("'hello'[:-1] + 'hello'[3:]", json!("helllo")),
        ("body.list[1:]", json!([1, 2])),
        ("body.list[:]", json!([3, 1, 2])),
        ("body.list[5:9]", json!([])),
        ("'é'[0:1]", json!("\u{FFFD}")),
        // Variables, sequences and pipes.
        ("let x = 2; let y = x * 3; x + y", json!(8)),
        ("1; 2", json!(2)),
        ("' A b ' | trim() | lower() | split(' ')", json!(["a", "b"])),
        ("body.list | len", json!("error")),
        // Functions.
        ("len('h\u{e9}') + len(body.list) + len(attributes)", json!(2 + 3 + 3)),
        ("int('42') + int(1.9)", json!(43)),
        ("float('1.5') + float(1)", json!(2.5)),
        ("string(1) + string(1.0) + string(nil) + string(true)", json!("11<nil>true")),
        ("string([1, 'a']) + string({b: 1, a: [2]})", json!("[1 a]map[a:[2] b:1]")),
        ("string(1e21) + ' ' + string(1e20) + ' ' + string(0.00001)", json!("1e+21 1e+20 1e-05")),
        ("string(1.5) + string(b'ab')", json!("1.5[97 98]")),
        (
            "[type(1), type(1.5), type('a'), type(nil), type([]), type({})]",
            json!(["int", "float", "string", "nil", "array", "map"]),
        ),
        (
            "[type(true), type(now()), type(duration('1s'))]",
            json!(["bool", "time.Time", "time.Duration"]),
        ),
        ("trim('__a__', '_') + trimPrefix('abc', 'a') + trimSuffix('abc', 'c')", json!("abcab")),
        ("upper('a\u{e9}') + lower('B')", json!("A\u{c9}b")),
        ("upper('stra\u{df}e\u{fb01}\u{149}')", json!("STRA\u{df}E\u{fb01}\u{149}")),
        ("upper('\u{1f80}\u{1f88}\u{1fb3}\u{1fb7}')", json!("\u{1f88}\u{1f88}\u{1fbc}\u{1fb7}")),
        ("lower('\u{130}\u{38c}\u{3a3}')", json!("i\u{3cc}\u{3c3}")),
        ("split('a,b,c', ',', 2)", json!(["a", "b,c"])),
        ("split('ab', '')", json!(["a", "b"])),
        ("split('', ',')", json!([""])),
        ("split('a,b', ',', 0)", json!([])),
        ("replace('aaa', 'a', 'b', 2) + replace('xyx', 'x', '')", json!("bbay")),
        ("repeat('ab', 3)", json!("ababab")),
        ("join(['a', 'b'], '-') + join(['c'])", json!("a-bc")),
        ("indexOf('abcabc', 'c') + lastIndexOf('abcabc', 'c') + indexOf('a', 'z')", json!(6)),
        ("hasPrefix('abc', 'ab') and hasSuffix('abc', 'bc')", json!(true)),
        (
            "[first(body.list), last(body.list), first([]), get(body.list, 9), get(nil, 'a')]",
            json!([3, 2, null, null, null]),
        ),
        ("keys({a: 1, b: 2}) == ['a', 'b'] and values({a: 1}) == [1]", json!(true)),
        // Predicates.
        (
            "all(body.list, # > 0) and any(body.list, {# == 3}) and none(body.list, # > 3)",
            json!(true),
        ),
        ("one(body.list, # > 2)", json!(true)),
        ("filter(body.users, .age > 25) | map(.name)", json!(["ann"])),
        ("map(1..3, # * #index)", json!([0, 2, 6])),
        ("count(body.list, # > 1) + count([true, false])", json!(3)),
        ("sum(body.list) + sum(body.users, .age)", json!(56)),
        ("find(body.list, # < 3)", json!(1)),
        ("find(body.list, # > 9)", Json::Null),
        ("reduce(1..4, #acc * #)", json!(24)),
        ("reduce(body.list, #acc + #, 10)", json!(16)),
        (
            "filter(body.users, {let user = #; any(body.users, .age < user.age)})",
            json!([{"age": 30, "name": "ann"}]),
        ),
        // Times.
        ("string(timestamp)", json!("2023-11-14 22:13:20 +0000 UTC")),
        ("now() > timestamp and timestamp + duration('1h') > timestamp", json!(true)),
        ("(now() - timestamp) > duration('24h')", json!(true)),
        (
            "string(duration('1h0m0.5s')) + string(duration('90s')) + string(duration('-3ms'))",
            json!("1h0m0.5s1m30s-3ms"),
        ),
        ("env('SLUICE_TEST_THERE_IS_NO_SUCH_VARIABLE')", json!("")),
        ("env('PATH') == os_env_func('PATH') and env('PATH') != ''", json!(true)),
        // Not the variables of the process, but those of the language.
        ("$env.body.n + $env['$'].n + $env?.['body'].n", json!(21)),
        ("let body = 1; $env['resource'].id + $env?.attributes.x", json!("valuey")),
        ("($env['PATH'] ?? $env.PATH ?? $env.timestamp) == timestamp", json!(true)),
    ];
    for (text, expected) in cases {
        match value(text) {
            Ok(value) => assert_eq!(value, expected, "{text}"),
            Err(why) => assert_eq!(expected, json!("error"), "{text}: {why}"),
        }
    }
}

/// Parts that are wrong, or not here, are refused where they stand.
#[test]
fn wrong_expressions_are_refused_with_their_place() {
    let cases = [
        ("", "the end is not expected here (line 1, column 1)"),
        ("1 +", "the end is not expected here (line 1, column 4)"),
        ("1 2", "`2` is not expected here (line 1, column 3)"),
        ("(1", "`)` is expected, not the end (line 1, column 3)"),
        ("body.\n  [", "a key is expected, not `[` (line 2, column 3)"),
        ("'a", "a quoted string has no end (line 1, column 1)"),
        ("`a", "a string in backquotes has no end (line 1, column 1)"),
        ("/* a", "a comment has no end (line 1, column 1)"),
        (
            r"body matches '\d'",
            r"`\d` is no escape: write `\\d`, or the string in backquotes (line 1, column 15)",
        ),
        ("body matches '('", "`(`: unclosed group (line 1, column 14)"),
        ("12ab", "a number is not well formed (line 1, column 1)"),
        ("99999999999999999999", "`99999999999999999999` is no number (line 1, column 1)"),
        ("a \u{a7} b", "`\u{a7}` has no meaning here (line 1, column 3)"),
        ("1 not 2", "`not` is not expected here (line 1, column 3)"),
        ("a ?? b + c", "`??` and `+` need parentheses around one of them (line 1, column 8)"),
        ("lenn(body)", "there is no function `lenn`, did you mean `len`? (line 1, column 1)"),
        (
            "fromJSON(body)",
            "the function `fromJSON` is not in this build of Sluice (line 1, column 1)",
        ),
        (
            "1 + len($env)",
            "`$env` needs a name behind it, as in `$env.body`. An environment variable is \
             `env(\"NAME\")` in an expression, and `${env:NAME}` in any option (line 1, column 9)",
        ),
        ("len()", "`len` takes 1 arguments, not 0 (line 1, column 1)"),
        ("trim('a', 'b', 'c')", "`trim` takes 1 to 2 arguments, not 3 (line 1, column 1)"),
        ("filter(body)", "`filter` needs an array and a predicate (line 1, column 1)"),
        ("# > 1", "`#` is not expected here (line 1, column 1)"),
        (
            "timestamp.Unix()",
            "the method `Unix` is not in this build of Sluice (line 1, column 11)",
        ),
        ("let x = 1", "`;` is expected, not the end (line 1, column 10)"),
    ];
    for (text, expected) in cases {
        assert_eq!(Expression::compile(text).unwrap_err(), expected, "{text}");
    }
    for text in ["'a'", "1 + 1 / 2", "attributes", "len(body)", "[true]", "-1"] {
        let refused = Expression::condition(text);
        let is_sum = text.contains('+');
        assert_eq!(refused.is_err(), !is_sum, "{text}");
    }
}

/// A failure names the expression. Nil is no boolean but for the condition as a whole.
#[test]
fn failures_say_what_is_needed() {
    let cases = [
        ("body.text.a", "`body.text.a`: there is no `a` in string"),
        ("attributes.missing.a", "`attributes.missing.a`: there is no `a` in nil"),
        ("body.list[3]", "`body.list[3]`: there is no index 3 in 3"),
        ("body.n and true", "`body.n and true`: a boolean is needed, not int"),
        (
            "attributes.missing and true",
            "`attributes.missing and true`: a boolean is needed, not nil",
        ),
        ("1 % 0", "`1 % 0`: a division by zero"),
        ("1 + 'a'", "`1 + 'a'`: `+` has no meaning for int and string"),
        ("1 < 'a'", "`1 < 'a'`: int and string have no order"),
        (
            "not body.text matches 'a'",
            "`not body.text matches 'a'`: a boolean is needed, not string",
        ),
        ("lower(1)", "`lower(1)`: a string is needed, not int"),
        ("int('x')", "`int('x')`: `x` is no whole number"),
        (
            "reduce([], #acc)",
            "`reduce([], #acc)`: `reduce` of an empty array needs an initial value",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(value(text).unwrap_err(), expected);
    }
    let holds = |text: &str| Expression::condition(text).unwrap().holds(&record());
    assert_eq!(holds("attributes.missing"), Ok(false));
    assert!(holds("body.text").is_err());
}

/// Guarantee: no expression takes time or memory without bound.
#[test]
fn evaluations_are_bounded() {
    let doubled = "let a = 'aaaaaaaaaaaaaaaa';".to_owned() + &"let a = a + a;".repeat(30) + "a";
    // Copies of values that were made count as much as the values.
    let copied = "any([repeat('a', 1000000)], false".to_owned() + &" or type(#) == ''".repeat(9);
    let copied = copied + ")";
    for text in [
        "let x = repeat('a', 1000000); all(1..5000, type(x) == 'string')",
        &copied,
        "1..9000000000000000000",
        "repeat('a', 9000000000)",
        "replace(repeat('a', 4000), '', repeat('b', 4000))",
        "sum(1..100000, sum(1..100000, #))",
        "reduce(1..1000, [#acc])",
        "reduce(1..30, [#acc, #acc], 1..100)",
        &doubled,
    ] {
        let expression = Expression::compile(text);
        let Ok(expression) = expression else {
            assert!(text.starts_with("let"), "{text}");
            continue;
        };
        assert!(expression.value(&record()).is_err(), "{text}");
    }
}

/// Guarantee: nesting is refused before it overflows a stack, and long rows are not nested.
#[test]
fn nesting_is_bounded() {
    for (open, close) in [("(", ")"), ("[", "]"), ("-", ""), ("not ", ""), ("len(", ")")] {
        let text = open.repeat(100_000.min(16_000 / open.len())) + "1" + close;
        assert!(Expression::compile(&text).is_err(), "{open}");
    }
    for text in ["1".to_owned() + &" + 1".repeat(3000), "body".to_owned() + &".a".repeat(3000)] {
        assert!(Expression::compile(&text).unwrap_err().contains("too deeply"));
    }
    let row = "true".to_owned() + &" and true".repeat(1500);
    assert_eq!(value(&row), Ok(json!(true)));
}

/// Names that are nothing are nil, with a warning.
#[test]
fn unknown_names_are_nil_with_a_warning() {
    let expression = Expression::compile("severity_text == 'x' or unknown == nil").unwrap();
    assert_eq!(expression.holds(&record()), Ok(true));
    assert_eq!(expression.warnings().len(), 2);
    let warning =
        "`severity_text` is always nil: records have `body`, `attributes`, `resource`, `timestamp`";
    assert_eq!(expression.warnings()[0], warning);
    let expression = Expression::compile("$env.body.text + $env['HOST']").unwrap();
    let warning = "`HOST` in `$env` is always nil: it has `body`, `attributes`, `resource`, \
                   `timestamp`. An environment variable is `env(\"HOST\")` in an expression, and \
                   `${env:HOST}` in any option";
    assert_eq!(expression.warnings(), [warning]);
}

/// The cases of the Collector's own test.
#[test]
fn templates_have_expressions_within_text() {
    let cases = [
        ("test", "test"),
        ("EXPR( 'test' )", "test"),
        ("prefix-EXPR('test')-suffix", "prefix-test-suffix"),
        ("prefix-EXPR('test')-suffix-EXPR('test2' + 'test3')", "prefix-test-suffix-test2test3"),
        ("EXPR('test' )EXPR('asdf')", "testasdf"),
        ("EXPR", "EXPR"),
        ("EXPR(", "EXPR("),
        (")EXPR(", ")EXPR("),
        ("my EXPR( body.deep.a.b )", "my c"),
        ("EXPR( resource.id )", "value"),
        ("EXPR(lower('A'))", "a"),
    ];
    for (text, expected) in cases {
        assert_eq!(Template::compile(text).unwrap().render(&record()).unwrap(), expected, "{text}");
    }
    assert!(Template::compile("EXPR(1 +)").is_err());
    assert!(Template::compile("EXPR(1)").unwrap().render(&record()).is_err());
}

/// Scenario: a few elements, for each of which a long text or list is copied, compared or searched.
/// Guarantee: each is charged by its size, before it is copied.
#[test]
fn work_on_long_values_is_charged_by_their_size() {
    let text = AnyValue::String("x".repeat(1 << 20));
    let number = |number: i64| AnyValue::Int(number);
    let items = AnyValue::Array((0..1000).map(number).collect());
    let long = AnyValue::Array((0..10_000).map(number).collect());
    let entry = |key: &str, value: &AnyValue| (key.to_owned(), value.clone());
    let entries = [("text", &text), ("same", &text), ("items", &items), ("long", &long)];
    let body = entries.map(|(key, value)| entry(key, value)).to_vec();
    let record = Record { body: AnyValue::Map(body), ..record() };
    for (text, expected) in [
        ("map(body.items, body.text)", "bytes"),
        ("map(body.items, body.long)", "bytes"),
        ("map(body.items, [body.text])", "bytes"),
        ("map(body.items, [{k: body.text}])", "bytes"),
        ("map(body.items, values(body))", "bytes"),
        ("all(body.items, body.text == body.same)", "steps"),
        ("all(body.items, body.text <= body.same)", "steps"),
        ("none(body.items, body.text contains 'y')", "steps"),
        ("none(body.items, body.text matches 'y')", "steps"),
        ("none(body.items, -1 in body.long)", "steps"),
        ("all(body.items, len(body.text) > 0)", "steps"),
    ] {
        let failure = Expression::compile(text).unwrap().value(&record).unwrap_err();
        assert!(failure.contains(&format!(" {expected}")), "{failure}");
    }
    for text in ["body.text == body.same", "body.text contains 'y'", "9999 in body.long"] {
        assert!(Expression::compile(text).unwrap().value(&record).is_ok(), "once is fine: {text}");
    }
}

/// Text of the language's words in any order.
fn words() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "body", ".x", "['a']", "[1:]", "?.", "??", "(", ")", "[", "]", "{", "}", "1.5", "'a'",
        "matches", "not", "in", "and", "-", "**", "..", "|", "len(", "filter(", "reduce(", "#",
        "#acc", ",", ":", ";", "?", "let x =", "if", "else", "nil", "\\", "\u{e9}", "'",
        "b'\\xff'",
    ]);
    prop::collection::vec(word, 0..24).prop_map(|words| words.join(" "))
}

/// Expressions that are well formed, whatever their types.
fn expressions() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "body",
        "attributes",
        "timestamp",
        "body.text",
        "body.list",
        "body.users",
        "body.n",
        "body.f",
        "body.nothing",
        "1",
        "(-9223372036854775807 - 1)",
        "0.0",
        "'a\u{e9}'",
        "''",
        "[]",
        "{}",
        "b'\\xff'",
        "nil",
        "true",
        "now()",
        "duration('1s')",
        "1..9",
        "9223372036854775807",
    ]);
    let leaf = leaf.prop_map(str::to_owned);
    leaf.prop_recursive(5, 40, 3, |inner| {
        let sign = prop::sample::select(vec![
            "+",
            "-",
            "*",
            "/",
            "%",
            "**",
            "==",
            "<",
            ">=",
            "in",
            "matches",
            "contains",
            "startsWith",
            "and",
            "or",
            "..",
            "??",
        ]);
        let one = prop::sample::select(vec![
            "len", "string", "int", "float", "upper", "keys", "values", "first", "last", "sum",
            "count", "join", "type", "trim", "lower",
        ]);
        let two = prop::sample::select(vec!["split", "repeat", "get", "indexOf", "trim"]);
        let each = prop::sample::select(vec![
            "filter", "map", "all", "any", "count", "sum", "find", "reduce",
        ]);
        let (a, b, c) = (inner.clone(), inner.clone(), inner.clone());
        prop_oneof![
            (a.clone(), sign, b.clone()).prop_map(|(a, sign, b)| format!("({a}) {sign} ({b})")),
            (one, a.clone()).prop_map(|(name, a)| format!("{name}({a})")),
            (two, a.clone(), b.clone()).prop_map(|(name, a, b)| format!("{name}({a}, {b})")),
            (each, a.clone(), b.clone()).prop_map(|(name, a, b)| format!("{name}({a}, [#, {b}])")),
            (each_of(), a.clone(), b.clone())
                .prop_map(|(name, a, b)| format!("{name}({a}, # == {b})")),
            (a.clone(), b.clone(), c).prop_map(|(a, b, c)| format!("({a})[({b}):({c})]")),
            (a.clone(), b.clone()).prop_map(|(a, b)| format!("({a})?.[{b}]")),
            (a.clone(), b.clone()).prop_map(|(a, b)| format!("[{a}, {{k: {b}}}]")),
            (a, b).prop_map(|(a, b)| format!("(let x = {a}; not ({b}) ? x : -x)")),
        ]
    })
}

fn each_of() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["filter", "none", "one", "map"])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// Guarantee: no text makes the compiler panic, nor the evaluation of what it accepts.
    #[test]
    fn no_text_panics(text in "\\PC{0,60}", words in words()) {
        for text in [text, words] {
            if let Ok(expression) = Expression::compile(&text) {
                let _ = expression.value(&record());
            }
            let _ = Template::compile(&text).map(|template| template.render(&record()));
        }
    }

    /// Guarantee: no expression panics, whatever the types that meet in it.
    #[test]
    fn no_expression_panics(text in expressions()) {
        let expression = Expression::compile(&text);
        prop_assert!(expression.is_ok(), "{} {:?}", text, expression.err());
        let _ = expression.unwrap().value(&record());
    }
}
