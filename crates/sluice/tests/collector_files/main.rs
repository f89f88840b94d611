//! Configurations of the Collector, judged by Sluice as the Collector judges them: those of its own
//! test data, by what its tests say, and those of `cases.txt`, by the real Collector.
//!
//! `verdicts.txt` says how each file of the test data becomes a whole configuration, and which of
//! its parts are invalid. `exceptions.txt` has what Sluice judges otherwise on purpose.

#[path = "../../../load-test/tests/support/component.rs"]
mod component;
mod tables;
mod whole;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use component::component;
use tables::{Case, Exceptions, Verdict, cases, verdicts};
use whole::Configuration;

/// A program that judges configurations: `validate` with its locations.
fn judge(mut command: Command, locations: &[String]) -> (Verdict, String) {
    let arguments = locations.iter().flat_map(|location| ["--config", location]);
    let output: Output = command.arg("validate").args(arguments).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(0) => (Verdict::Valid, said),
        Some(1) => (Verdict::Invalid, said),
        other => panic!("{locations:?}: {other:?}: {said}"),
    }
}

fn sluice() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    // As the tests of `k8s_attributes` set it.
    command.env("K8S_NODE", "node");
    command
}

/// Valid if it is in a pipeline of any signal: some options are for one signal only.
fn judged_by_sluice(configuration: &Configuration, folder: &Path) -> (Verdict, String) {
    let mut said = String::new();
    for locations in configuration.write(folder) {
        let (verdict, text) = judge(sluice(), &locations);
        if verdict == Verdict::Valid {
            return (verdict, text);
        }
        said = text;
    }
    (Verdict::Invalid, said)
}

/// Compares one verdict with the wanted one. An exception must be one.
fn compare(
    name: &str,
    wanted: Verdict,
    (found, said): &(Verdict, String),
    exceptions: &mut Exceptions,
    wrong: &mut Vec<String>,
) {
    match exceptions.take(name) {
        None if *found != wanted => {
            wrong.push(format!("{name} is {wanted:?} for the Collector, {found:?} here: {said}"));
        }
        Some(listed) if listed != *found || *found == wanted => {
            wrong.push(format!("{name} is {found:?} here: its entry in exceptions.txt is wrong"));
        }
        _ => {}
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => files.extend(files_below(&path)),
            false => files.push(path),
        }
    }
    files
}

/// Guarantee: every configuration in the test data of the Collector's modules, part by part, is
/// accepted or refused as the Collector's own tests expect, except those in the list of exceptions;
/// and the list has nothing else.
#[test]
fn the_collectors_test_data_is_judged_as_its_tests_judge_it() {
    let Some(data) = component("SLUICE_TEST_COLLECTOR_TESTDATA") else { return };
    let folder = tempfile::tempdir().expect("a directory");
    let mut exceptions = Exceptions::read();
    let (mut wrong, mut judged) = (Vec::new(), BTreeMap::from([(true, 0), (false, 0)]));
    let verdicts = verdicts();
    for path in files_below(&data) {
        let file = path.strip_prefix(&data).expect("below").to_string_lossy().into_owned();
        let Some(entry) = verdicts.get(&file) else {
            wrong.push(format!("{file} is not in verdicts.txt"));
            continue;
        };
        let text = std::fs::read_to_string(&path).expect("a file");
        for (part, configuration) in entry.place.configurations(&text) {
            let name = if part.is_empty() { file.clone() } else { format!("{file}#{part}") };
            let wanted = entry.verdict_of(&part);
            *judged.entry(wanted == Verdict::Valid).or_insert(0) += 1;
            let found = judged_by_sluice(&configuration, folder.path());
            compare(&name, wanted, &found, &mut exceptions, &mut wrong);
        }
    }
    for file in verdicts.keys().filter(|file| !data.join(file).exists()) {
        wrong.push(format!("{file} is in verdicts.txt, but not in the test data"));
    }
    wrong.extend(exceptions.unused("cases.txt"));
    let [invalid, valid] = [false, true].map(|verdict| judged[&verdict]);
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), valid + invalid);
    assert!(valid >= 90 && invalid >= 50, "{valid} valid, {invalid} invalid");
}

/// Guarantee: what the real Collector accepts or refuses at the borders of its language, Sluice
/// accepts or refuses, except where the list of exceptions says otherwise.
#[test]
fn borders_of_the_language_are_where_the_real_collector_has_them() {
    let Some(otelcol) = component("SLUICE_TEST_OTELCOL") else { return };
    let folder = tempfile::tempdir().expect("a directory");
    let mut exceptions = Exceptions::read();
    let mut wrong = Vec::new();
    let all = cases();
    for Case { name, place, text } in &all {
        let (_, configuration) = place.configurations(text).remove(0);
        let locations = configuration.write(folder.path()).remove(0);
        let set = |mut command: Command| {
            command.env("TEXT_COMMENT", "#x").env("TEXT_JSON", "{\"a\":1}").env("TEXT_LIST", "[x]");
            command.env("TEXT_MAPPING", "a: b").env("TEXT_NULL", "null").env("TEXT_NUMBER", "0123");
            command
        };
        let (wanted, by_collector) = judge(set(Command::new(&otelcol)), &locations);
        let (verdict, said) = judge(set(sluice()), &locations);
        let said = format!("{said}; the Collector: {by_collector}");
        compare(name, wanted, &(verdict, said), &mut exceptions, &mut wrong);
    }
    wrong.extend(exceptions.unused("testdata/"));
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), all.len());
    assert!(all.len() >= 40, "{} cases", all.len());
}
