use proptest::prelude::*;
use sluice_config::expand::expand;
use sluice_config::source::Source;
use sluice_config::{Diagnostics, Fields, SystemEnvironment, read_text, yaml};

use super::*;

/// The rules of a text, and what is said of them.
fn rules_in(scheme: NameScheme, text: &str) -> (Vec<Rule>, Vec<String>) {
    let text = format!("rules:\n{text}");
    let (rules, diagnostics) =
        read_text("x", &text, |fields| read(fields, "rules", scheme, "Rules."));
    let said = diagnostics.items().iter().map(|item| diagnostics.line(item)).collect();
    (rules, said)
}

/// Rules without anything to say of them.
fn rules(text: &str) -> Vec<Rule> {
    let (rules, said) = rules_in(NameScheme::Utf8, text);
    assert_eq!(said, Vec::<String>::new(), "{text}");
    rules
}

/// `a=1 b=2` as labels.
fn labels(text: &str) -> Labels {
    text.split(' ').filter_map(|pair| pair.split_once('=')).collect()
}

/// The labels that rules leave, as text; nothing if they drop them.
fn relabelled(text: &str, input: &str) -> Option<String> {
    let mut labels = labels(input);
    let kept = apply(&rules(text), &mut labels);
    let pair = |label: &Label| format!("{}={}", label.name, label.value);
    kept.then(|| labels.iter().map(pair).collect::<Vec<_>>().join(" "))
}

/// Guarantee: each action means the same as in Prometheus.
#[test]
fn actions_are_those_of_prometheus() {
    for (rules, input, expected) in [
        // Replace: groups, several values, the whole has to match, rules in their order.
        (
            "- {source_labels: [fruit], regex: 'b(.*)', target_label: x, replacement: 'l${1}/$1'}",
            "fruit=bean kind=k",
            Some("fruit=bean kind=k x=lean/ean"),
        ),
        (
            "- {source_labels: [a, b], regex: '(.);(.*)', target_label: a, replacement: $2$1}\n\
             - {source_labels: [a], target_label: c}",
            "a=1 b=23",
            Some("a=231 b=23 c=231"),
        ),
        (
            "- {source_labels: [a], regex: x|y, target_label: b, replacement: z}",
            "a=xy",
            Some("a=xy"),
        ),
        (
            "- {source_labels: [a], regex: true, target_label: b, replacement: 1}",
            "a=true",
            Some("a=true b=1"),
        ),
        (
            "- {source_labels: [a, b], separator: '', target_label: c}",
            "a=1 b=2",
            Some("a=1 b=2 c=12"),
        ),
        (
            "- {source_labels: [a, b], separator: , target_label: c}",
            "a=1 b=2",
            Some("a=1 b=2 c=12"),
        ),
        ("- {source_labels: [a, none], target_label: c}", "a=1", Some("a=1 c=1;")),
        ("- {target_label: a, replacement: x}", "", Some("a=x")),
        // An empty value removes the label, also one that never was.
        ("- {source_labels: [none], target_label: a}", "a=1 b=2", Some("b=2")),
        ("- {target_label: a, replacement: ''}", "a=1 b=2", Some("b=2")),
        ("- {target_label: a, replacement: }", "a=1 b=2", Some("b=2")),
        (
            "- {source_labels: [a], regex: '(.)=?(.)?', target_label: $1, replacement: $2}",
            "a=b b=2",
            Some("a=b"),
        ),
        // The name of the label comes from a group; without a name nothing happens.
        (
            "- {source_labels: [a], regex: '(.*):(.*)', target_label: $1, replacement: $2}",
            "a=k:v",
            Some("a=k:v k=v"),
        ),
        (
            "- {source_labels: [a], regex: '(.*):(.*)', target_label: $3, replacement: $2}",
            "a=k:v",
            Some("a=k:v"),
        ),
        (
            "- {source_labels: [a], regex: '(?P<one>.).*(?<two>.)', target_label: 'x.${one}', replacement: $two}",
            "a=bcd",
            Some("a=bcd x.b=d"),
        ),
        // An empty or a null pattern matches only what is empty.
        ("- {source_labels: [a], regex: '', target_label: b, replacement: x}", "a=1", Some("a=1")),
        (
            "- {source_labels: [b], regex: , target_label: b, replacement: x}",
            "a=1",
            Some("a=1 b=x"),
        ),
        // Keep and drop.
        ("- {source_labels: [a], regex: 'x.*', action: keep}", "a=xyz", Some("a=xyz")),
        ("- {source_labels: [a], regex: 'x', action: Keep}", "a=xyz", None),
        ("- {source_labels: [a], regex: 'x|z', action: DROP}", "a=xyz", Some("a=xyz")),
        (
            "- {source_labels: [a], regex: '.*y.*', action: drop}\n- {target_label: b, replacement: x}",
            "a=xyz",
            None,
        ),
        ("- {source_labels: [a], regex: '^(xyz)$', action: drop}", "a=xyz", None),
        ("- {source_labels: [a], action: drop}", "b=1", None),
        ("- {source_labels: [a], target_label: b, action: keepequal}", "a=1 b=1", Some("a=1 b=1")),
        ("- {source_labels: [a], target_label: b, action: keepequal}", "a=1 b=2", None),
        ("- {source_labels: [a], target_label: b, action: dropequal}", "a=1 b=1", None),
        ("- {source_labels: [a], target_label: b, action: dropequal}", "a=1", Some("a=1")),
        // Letter case.
        (
            "- {source_labels: [a], target_label: up, action: uppercase}\n\
             - {source_labels: [a], target_label: a, action: lowercase}",
            "a=aBß1",
            Some("a=abß1 up=ABß1"),
        ),
        // Names.
        (
            "- {regex: 'm_(.+)', action: labelmap}",
            "m_a=1 m_b=2 n=3",
            Some("a=1 b=2 m_a=1 m_b=2 n=3"),
        ),
        (
            "- {regex: 'm_(.+)', replacement: 'm_${1}x', action: labelmap}",
            "m_a=1",
            Some("m_a=1 m_ax=1"),
        ),
        ("- {regex: 'm_(.*)', action: labelmap}", "m_=1", Some("m_=1")),
        (
            "- {regex: '(.)1', replacement: $1, action: labelmap}",
            "a=0 a1=1 a12=2",
            Some("a=1 a1=1 a12=2"),
        ),
        ("- {regex: 'm_.*', action: labeldrop}", "m_a=1 b=2 am_=3", Some("am_=3 b=2")),
        ("- {regex: 'm_.*|b', action: labelkeep}", "m_a=1 b=2 am_=3", Some("b=2 m_a=1")),
    ] {
        assert_eq!(relabelled(rules, input).as_deref(), expected, "{rules} on {input}");
    }
}

/// Guarantee: hashes are those of Prometheus, so that shards divide targets in the same way. The
/// values are from its own tests, and from `md5sum`.
#[test]
fn hashes_are_those_of_prometheus() {
    let rule = "- {source_labels: [a], target_label: h, modulus: 1000, action: hashmod}";
    assert_eq!(relabelled(rule, "a=baz").as_deref(), Some("a=baz h=976"));
    let mut lines: Labels = [("a", "foo\nbar")].into_iter().collect();
    assert!(apply(&rules(rule), &mut lines));
    assert_eq!(&**lines.get("h"), "734");
    // md5("") = d41d8cd98f00b204 e9800998ecf8427e
    let whole =
        "- {source_labels: [b], target_label: h, modulus: 18446744073709551615, action: hashmod}";
    let expected = format!("h={}", 0xe980_0998_ecf8_427e_u64);
    assert_eq!(relabelled(whole, ""), Some(expected));
}

/// Scenario: a file of the Collector, where `$$` stands for `$`, and a `$1` without it. Guarantee:
/// both are groups of the pattern.
#[test]
fn dollars_are_written_as_for_the_collector() {
    let text = "rules: [{source_labels: [a], regex: '(.)(.)', target_label: b, \
                replacement: '$$2-${1}-$1'}]";
    let text = text.replace("${1}", "$${1}");
    let mut diagnostics = Diagnostics::default();
    let file = diagnostics.sources.add(Source::new("c.yaml", text.clone()));
    let node = yaml::parse(&text, file, 8).map_err(|error| error.message).expect("is YAML");
    let node = expand(node, &SystemEnvironment, &mut diagnostics);
    let rules = Fields::read("x", &node, node.span, &mut diagnostics, |fields| {
        read(fields, "rules", NameScheme::Utf8, "")
    });
    assert!(diagnostics.items().is_empty(), "{}", diagnostics.render(false));
    let mut labels = labels("a=xy");
    assert!(apply(&rules, &mut labels));
    assert_eq!(&**labels.get("b"), "y-x-x");
}

/// Scenario: a page with a series of very many labels, which a rule copies. Guarantee: that takes
/// no time to speak of.
#[test]
fn very_many_labels_take_no_time() {
    let started = std::time::Instant::now();
    let pairs = (0..200_000).rev().map(|number| (format!("a{number:06}"), "x"));
    let mut labels: Labels = pairs.collect();
    assert!(apply(&rules("- {regex: 'a(.*)', replacement: '$1', action: labelmap}"), &mut labels));
    assert_eq!((labels.len(), &**labels.get("000007")), (400_000, "x"));
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

/// Guarantee: a dot matches a line break, as in Prometheus.
#[test]
fn values_may_have_lines() {
    let mut lines: Labels = [("a", "one\ntwo")].into_iter().collect();
    let rule = "- {source_labels: [a], regex: 'one.two', target_label: b, replacement: 'x$1'}";
    assert!(apply(&rules(rule), &mut lines));
    assert_eq!(&**lines.get("b"), "x");
}

/// Scenario: what Prometheus refuses, and what it takes without effect. Guarantee: an error or a
/// warning with place and reason.
#[test]
fn mistakes_are_named() {
    use NameScheme::{Legacy, Utf8};
    for (scheme, rule, expected) in [
        (Utf8, "{}", "`x.rules[0].target_label` is required"),
        (Utf8, "{action: lowercase}", "`x.rules[0].target_label` is required"),
        (Utf8, "{action: hashmod, target_label: a}", "`x.rules[0]` needs a `modulus` above 0"),
        (Utf8, "{action: hashmod, target_label: a, modulus: 0}", "needs a `modulus` above 0"),
        (
            Utf8,
            "{action: repl, target_label: a}",
            "`x.rules[0].action` must be one of `replace`, `keep`",
        ),
        (Utf8, "{action: labelmap, replacement: ''}", "`x.rules[0].replacement` must not be empty"),
        (
            Utf8,
            "{regex: '(', target_label: a}",
            "`x.rules[0].regex`: `(` is not a regular expression:",
        ),
        (Utf8, "{source_labels: [''], target_label: a}", "source_labels` has an empty name"),
        (
            Utf8,
            "{action: labeldrop, source_labels: [a]}",
            "is not an option of the action `labeldrop`",
        ),
        (Utf8, "{action: keepequal, target_label: a, regex: b}", "regex` is not an option"),
        (
            Utf8,
            "{action: uppercase, target_label: a, replacement: b}",
            "replacement` is not an option",
        ),
        (Utf8, "{action: keep, target_label: a}", "has no effect with the action `keep`"),
        (Utf8, "{action: replace, target_label: a, colour: red}", "has no option `colour`"),
        (Legacy, "{target_label: a-b}", "is not the name of a label"),
        (Legacy, "{action: lowercase, target_label: '${3}'}", "is not the name of a label"),
        (Legacy, "{action: labelmap, replacement: 'a.$1'}", "is not the name of a label"),
    ] {
        let (_, said) = rules_in(scheme, &format!("- {rule}"));
        assert!(said.len() == 1 && said[0].contains(expected), "{rule}: {said:?}");
    }
    for (scheme, rule) in [
        (Utf8, "{target_label: 'a-${3}'}"),
        (Utf8, "{action: lowercase, target_label: '${3}'}"),
        (Utf8, "{action: labeldrop, regex: a, separator: ;}"),
        (Legacy, "{target_label: 'a$1', source_labels: [b.c]}"),
        (Legacy, "{action: labelmap, regex: 'm_(.+)'}"),
    ] {
        let (rules, said) = rules_in(scheme, &format!("- {rule}"));
        assert_eq!((rules.len(), said), (1, Vec::new()), "{rule}");
    }
}

/// Guarantee: in names of the old scheme groups stand anywhere, and nothing else is new.
#[test]
fn templates_of_old_names_are_checked() {
    for (text, is_valid) in [
        ("label", true),
        ("label${1}", true),
        ("${1}label", true),
        ("a$2b", true),
        ("_${1}_", true),
        ("-label", false),
        ("${", false),
        ("$", false),
        ("${}", false),
        ("a.b${1}", false),
    ] {
        let (rules, _) = rules_in(NameScheme::Legacy, &format!("- {{target_label: '{text}'}}"));
        assert_eq!(rules.len() == 1, is_valid, "{text}");
    }
}

/// Scenario: a name of the old scheme comes out of a value. Guarantee: one that is not valid sets
/// nothing.
#[test]
fn names_from_values_are_checked() {
    let rule = "- {source_labels: [a], target_label: 'x$1'}";
    let (rules, _) = rules_in(NameScheme::Legacy, rule);
    for (value, set) in [("y", "xy"), ("-", "")] {
        let mut labels: Labels = [("a", value)].into_iter().collect();
        assert!(apply(&rules, &mut labels));
        assert_eq!(labels.len(), 1 + usize::from(!set.is_empty()), "{value}");
    }
}

proptest! {
    /// Guarantee: no rule and no labels make relabelling panic; labels stay sorted, without empty
    /// values; `keep` and `drop` of the same rule are opposites.
    #[test]
    fn labels_stay_labels(
        action in prop::sample::select(vec![
            "replace", "keep", "drop", "keepequal", "dropequal", "hashmod", "labelmap", "labeldrop",
            "labelkeep", "lowercase", "uppercase",
        ]),
        regex in prop::sample::select(vec![
            "(.*)", "", "a.*", "(a)|(b)", "a)|(b", "(?i)[A-C]+(x)?", "$",
        ]),
        text in "[ab$1{}x]{1,8}",
        input in prop::collection::btree_map("[a-c]{1,3}", "[a-cA-C\n]{0,4}", 0..6),
        sources in prop::collection::vec("[a-c]", 0..3),
    ) {
        let sources = sources.join(", ");
        let file = format!(
            "rules:\n- {{action: {action}, regex: '{regex}', target_label: '{text}', \
             replacement: '{text}', modulus: 7, source_labels: [{sources}]}}"
        );
        let rules_of = |file: &str| {
            read_text("x", file, |fields| read(fields, "rules", NameScheme::Utf8, "")).0
        };
        let found = rules_of(&file);
        let mut labels: Labels = input.into_iter().collect();
        let before = labels.clone();
        let kept = apply(&found, &mut labels);
        prop_assert!(labels.iter().is_sorted_by(|a, b| a.name < b.name));
        prop_assert!(labels.iter().all(|label| !label.value.is_empty()));
        let opposite = match action { "keep" => "drop", "drop" => "keep", _ => return Ok(()) };
        let file = file.replacen(action, opposite, 1);
        let found = rules_of(&file);
        prop_assert_ne!(kept, apply(&found, &mut before.clone()));
        prop_assert_eq!(labels, before);
    }
}
