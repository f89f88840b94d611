//! Rules and configurations of Prometheus' own tests, judged as its tests judge them.

#[path = "../../load-test/tests/support/component.rs"]
mod component;
#[path = "../../scrape/tests/support/go_source.rs"]
mod go_source;

use std::path::Path;

use component::component;
use go_source::{Value, function, table};
use sluice_config::read_text;
use sluice_discovery::relabel::{self, Rule};
use sluice_discovery::{Labels, NameScheme, ScrapeConfigs};

/// The rules of a text, or what is wrong with them.
fn rules(text: &str, scheme: NameScheme) -> Result<Vec<Rule>, String> {
    let text = format!("rules:\n{text}");
    let (rules, diagnostics) =
        read_text("x", &text, |fields| relabel::read(fields, "rules", scheme, "Rules."));
    let error = diagnostics.errors().next().map(|error| error.message.clone());
    error.map_or(Ok(rules), |error| Err(format!("{text}: {error}")))
}

/// A rule of a Go test as YAML. Those tests give empty fields their defaults.
fn yaml(config: &Value) -> String {
    let quoted = |text: &str| serde_json::to_string(text).expect("is a text");
    let mut options = Vec::new();
    for (field, option) in [
        ("SourceLabels", "source_labels"),
        ("Regex", "regex"),
        ("TargetLabel", "target_label"),
        ("Separator", "separator"),
        ("Replacement", "replacement"),
        ("Action", "action"),
        ("Modulus", "modulus"),
    ] {
        let text = match config.get(field) {
            None => continue,
            Some(Value::List(items)) => {
                let items: Vec<String> = items.iter().map(|item| quoted(&item.text())).collect();
                format!("[{}]", items.join(", "))
            }
            Some(Value::Word(word)) if word.starts_with("DefaultRelabelConfig") => continue,
            Some(Value::Word(word)) => word.to_lowercase(),
            Some(value) if value.text().is_empty() => continue,
            Some(value) => quoted(&value.text()),
        };
        options.push(format!("{option}: {text}"));
    }
    format!("- {{{}}}\n", options.join(", "))
}

fn labels(value: &Value) -> Labels {
    let Value::Call(_, arguments) = value else { panic!("{value:?} is no call") };
    let Value::Pairs(pairs) = &arguments[0] else { panic!("{value:?} has no labels") };
    pairs.iter().map(|(name, value)| (name.text(), value.text())).collect()
}

fn source(data: &Path) -> String {
    std::fs::read_to_string(data.join("model/relabel/relabel_test.go")).expect("is there")
}

/// Guarantee: rules leave the labels that they leave in Prometheus, or drop them as there.
#[test]
fn rules_do_what_they_do_in_prometheus() {
    let Some(data) = component("SLUICE_TEST_PROMETHEUS_TESTDATA") else { return };
    let cases = table(function(&source(&data), "TestRelabel"));
    for case in &cases {
        let configs = case.get("relabel").expect("rules").items();
        let text: String = configs.iter().map(yaml).collect();
        let rules = rules(&text, NameScheme::Utf8).expect("are rules");
        let mut found = labels(case.get("input").expect("labels"));
        let is_kept = relabel::apply(&rules, &mut found);
        let expected = case.get("output").map(labels);
        assert_eq!(is_kept.then_some(found), expected, "{text}");
    }
    assert!(cases.len() >= 30, "{}", cases.len());
}

/// Guarantee: rules are valid if they are so for Prometheus.
#[test]
fn rules_are_judged_as_by_prometheus() {
    let Some(data) = component("SLUICE_TEST_PROMETHEUS_TESTDATA") else { return };
    let source = source(&data);
    let mut judged = 0;
    for case in table(function(&source, "TestRelabelValidate")) {
        let config = case.get("config").expect("a rule");
        let scheme = match config.get("NameValidationScheme") {
            Some(Value::Word(word)) if word == "model.LegacyValidation" => NameScheme::Legacy,
            _ => NameScheme::Utf8,
        };
        let found = rules(&yaml(config), scheme);
        assert_eq!(found.is_ok(), case.get("expected").is_none(), "{found:?}");
        judged += 1;
    }
    for case in table(function(&source, "TestTargetLabelLegacyValidity")) {
        let [target, is_valid] = case.items() else { panic!("{case:?} is no pair") };
        let text = serde_json::to_string(&target.text()).expect("is a text");
        let found = rules(&format!("- target_label: {text}"), NameScheme::Legacy);
        assert_eq!(found.is_ok(), *is_valid == Value::Word("true".to_owned()), "{found:?}");
        judged += 1;
    }
    for case in table(function(&source, "BenchmarkRelabel")) {
        let found = rules(&case.get("config").expect("rules").text(), NameScheme::Utf8);
        assert!(found.is_ok(), "{found:?}");
        judged += 1;
    }
    assert!(judged >= 25, "{judged}");
}

/// Begins of names of files whose mistakes are in sections that are of no effect here.
const OF_THE_SERVER: [&str; 4] = ["otlp_", "rules", "tracing_", "tsdb_"];

/// Files that are judged otherwise on purpose.
const OTHERWISE: [(&str, &str); 3] = [
    ("empty_static_config.bad.yml", "a group without targets is a warning"),
    ("external_labels.good.yml", "the Collector has put variables in before"),
    (
        "scrape_config_files_fallback_scrape_protocol1.bad.yml",
        "letter case does not matter in the names that an option can have",
    ),
];

/// A valid configuration may be refused with this reason.
const NOT_IN_THIS_BUILD: &str = "is not in this build of Sluice";

/// Guarantee: the configurations of Prometheus' tests are accepted and refused as there, but for
/// what is not in this build, and what only the server has.
#[test]
fn configurations_are_judged_as_by_prometheus() {
    let Some(data) = component("SLUICE_TEST_PROMETHEUS_TESTDATA") else { return };
    let (mut wrong, mut valid, mut invalid) = (Vec::new(), 0, 0);
    let folder = data.join("config/testdata");
    // Some name files beside them.
    std::env::set_current_dir(&folder).expect("is there");
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("a file");
        let (_, diagnostics) = read_text("x", &text, ScrapeConfigs::read);
        let errors: Vec<&str> = diagnostics.errors().map(|error| &*error.message).collect();
        let mut others = errors.iter().filter(|error| !error.contains(NOT_IN_THIS_BUILD));
        let is_of_server = OF_THE_SERVER.iter().any(|prefix| name.starts_with(prefix));
        let is_wrong = match name.rsplit_once('.').and_then(|(name, _)| name.rsplit_once('.')) {
            Some((_, "bad")) => errors.is_empty() && !is_of_server,
            Some((_, "good")) => others.next().is_some(),
            _ => continue,
        };
        if is_wrong != OTHERWISE.iter().any(|(file, _)| *file == name) {
            wrong.push(format!("{name}: {errors:?}"));
        }
        *(if errors.is_empty() { &mut valid } else { &mut invalid }) += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(valid >= 20 && invalid >= 100, "{valid} {invalid}");
}
