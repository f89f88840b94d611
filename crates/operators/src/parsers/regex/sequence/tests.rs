use proptest::prelude::*;
use regex::Regex;
use sluice_config::Pattern;

use super::*;

/// An expression of Go, for the general engine.
fn regex(expression: &str) -> Regex {
    Pattern::new(expression).expect("an expression").regex().clone()
}

fn sequence(expression: &str) -> Option<Sequence> {
    Sequence::of(regex(expression).as_str())
}

type Places = Vec<Option<(usize, usize)>>;

/// Places of the groups by the general engine.
fn expected(expression: &str, text: &str) -> Option<Places> {
    let regex = regex(expression);
    let captures = regex.captures(text)?;
    Some(captures.iter().map(|group| group.map(|it| (it.start(), it.end()))).collect())
}

/// The same by the sequence. `Err`: too many trials.
fn found(expression: &str, text: &str) -> Result<Option<Places>, ()> {
    let groups = regex(expression).captures_len();
    let sequence = sequence(expression).unwrap_or_else(|| panic!("{expression} is none"));
    let mut slots = vec![Some(7); groups * 2];
    let is_match = sequence.matches(text.as_bytes(), &mut slots).ok_or(())?;
    let places = slots.chunks(2).map(|slot| slot[0].zip(slot[1])).collect();
    Ok(is_match.then_some(places))
}

const NGINX: &str = "^(?P<remote>[^ ]*) (?P<host>[^ ]*) (?P<user>[^ ]*) \\[(?P<time>[^\\]]*)\\] \
                     \"(?P<method>\\S+)(?: +(?P<path>[^\"]*?)(?: +\\S*)?)?\" (?P<code>[^ ]*) \
                     (?P<size>[^ ]*)(?: \"(?P<referer>[^\"]*)\" \"(?P<agent>[^\"]*)\")?$";

/// Expressions of log lines, as documents of Fluent Bit and of the Collector have them.
#[test]
fn usual_expressions_are_sequences_and_find_what_the_engine_finds() {
    let lines = [
        "10.1.2.3 - alice [13/Apr/2026:07:59:37 +0000] \"GET /a b HTTP/1.1\" 200 53 \"-\" \"M (X)\"",
        "10.1.2.3 - alice [13/Apr/2026:07:59:37 +0000] \"GET\" 200 53",
        "é - ü [t] \"GET /ä HTTP/1.1\" 200 53 \"ö\" \"\"",
        "2026-04-13T07:59:37.505Z stdout F text \u{1f600} text",
        "2026-04-13 07:59:37,505 WARN [main] com.example.Shop - out of stock: 3",
        "level=info msg=\"a message\" n=3",
        "",
        "\n",
    ];
    for expression in [
        NGINX,
        "^(?P<time>[^ ]+) (?P<stream>stdout|stderr) (?P<flags>[^ ]*) (?P<log>.*)$",
        "^(?P<time>\\d{4}-\\d{2}-\\d{2}[ T]\\d+:\\d+:\\d+(?:[.,]\\d+)?) (?P<level>[A-Z]+) +\
         \\[(?P<thread>[^\\]]*)\\] (?P<logger>\\S+) - (?P<message>.*)$",
        "^level=(?P<level>\\w+) msg=\"(?P<msg>.*)\" n=(?P<n>\\d+)",
        "^(?P<all>.*)$",
        "^(?P<lazy>.*?)(?P<rest> .*)?$",
    ] {
        for line in lines {
            assert_eq!(found(expression, line), Ok(expected(expression, line)), "{expression}");
        }
    }
}

#[test]
fn what_is_no_sequence_is_left_to_the_engine() {
    for expression in ["a", "(a)", "^(ab)*$", "^\\ba", "^[é-ü]$", "^(?m:^a)", "^\\p{L}{2}$", ""] {
        assert!(sequence(expression).is_none(), "{expression}");
    }
}

/// Scenario: an expression of which each part can take the text of the next one. Guarantee: the
/// engine, whose time is bounded, is asked after a bounded number of trials.
#[test]
fn trials_are_bounded() {
    let text = "a".repeat(10_000);
    assert_eq!(found("^(.*)(.*)(.*)(.*)(.*)x$", &text), Err(()));
    let mut expression = "^(?:ab)?".to_owned();
    (0..100).for_each(|_| expression += "(?:ab)?");
    assert_eq!(found(&(expression + "x$"), &"ab".repeat(100)), Err(()));
}

/// A part of an expression.
fn part() -> impl Strategy<Value = String> {
    let character = prop::sample::select(vec![
        "a",
        "b",
        " ",
        "é",
        ".",
        "[^ ]",
        "[ab]",
        "\\S",
        "[^a\\n]",
        "[^\\x00-\\x7f]",
        "\"",
        "x{2}",
    ]);
    let repeated =
        prop::sample::select(vec!["", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}"]);
    let leaf = (character, repeated).prop_map(|(character, repeated)| match character {
        "x{2}" => "a{2,3}".to_owned(),
        _ => format!("{character}{repeated}"),
    });
    leaf.prop_recursive(3, 24, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
            inner.clone().prop_map(|part| format!("({part})")),
            inner.clone().prop_map(|part| format!("(?:{part})?")),
            inner.clone().prop_map(|part| format!("({part})??")),
            (inner.clone(), inner.clone()).prop_map(|(one, two)| format!("(?:{one}|({two}))")),
            (inner.clone(), inner).prop_map(|(one, two)| format!("(({one})|{two})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn sequences_find_what_the_engine_finds(
        parts in prop::collection::vec(part(), 1..6),
        has_end in any::<bool>(),
        texts in prop::collection::vec("[ab \"é\\n]{0,12}", 4),
    ) {
        let expression = format!("^{}{}", parts.concat(), if has_end { "$" } else { "" });
        if sequence(&expression).is_some() {
            for text in texts {
                if let Ok(found) = found(&expression, &text) {
                    let expected = expected(&expression, &text);
                    prop_assert_eq!(found, expected, "{} {:?}", expression, text);
                }
            }
        }
    }
}
