//! Folders of `--output` that have an earlier run.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{load_test, record, relay_folder, stderr};

/// A short run into this folder. The exit code, and what was said.
fn run(name: &str, folder: &Path, more: &[&str]) -> (Option<i32>, String) {
    let subject = relay_folder("forwards");
    let mut command = load_test(&["-n", name, "-r", "5120", "-d", "1", "--drain-within", "1"]);
    command.args(more).arg("--subject-dir").arg(subject.path()).arg("--output").arg(folder);
    let output = command.output().unwrap();
    (output.status.code(), stderr(&output))
}

fn name(record: &Value) -> &str {
    record["scenario"]["name"].as_str().unwrap()
}

/// Scenario: a run names the folder of an earlier one, which had more targets. Guarantee: it is
/// refused before anything runs, also as a dry run, and nothing is changed; with `--overwrite` the
/// folder has the new run alone.
#[test]
fn a_run_replaces_an_earlier_one_only_on_demand() {
    let folder = TempDir::new().unwrap();
    let (path, of_target) = (folder.path(), folder.path().join("metrics"));
    assert_eq!(run("first", path, &[]).0, Some(0));
    fs::create_dir(&of_target).unwrap();
    fs::copy(path.join("run.json"), of_target.join("run.json")).unwrap();
    fs::write(path.join("notes.txt"), "mine").unwrap();
    for dry in [&[][..], &["--dry-run"]] {
        let (code, said) = run("second", path, dry);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("run.json is of an earlier run"), "{said}");
        assert!(said.contains("--overwrite"), "{said}");
        assert_eq!(name(&record(&path.join("run.json"))), "first");
    }
    let (code, said) = run("second", path, &["--overwrite"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(name(&record(&path.join("run.json"))), "second");
    assert!(!of_target.join("run.json").exists(), "of the earlier run");
    assert_eq!(fs::read_to_string(path.join("notes.txt")).unwrap(), "mine");
}

/// Guarantee: `report` replaces reports only on demand, and never a record.
#[test]
fn merged_reports_replace_others_only_on_demand() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    assert_eq!(run("first", path, &[]).0, Some(0));
    let before = fs::read(path.join("run.json")).unwrap();
    fs::write(path.join("report.csv"), "another").unwrap();
    let merge = |more: &[&str]| {
        let mut command = load_test(&["report"]);
        command.arg(path).arg("--output").arg(path).args(more).output().unwrap()
    };
    let refused = merge(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("report.md is of an earlier run"), "{}", stderr(&refused));
    assert_eq!(fs::read_to_string(path.join("report.csv")).unwrap(), "another");
    let taken = merge(&["--overwrite"]);
    assert_eq!(taken.status.code(), Some(0), "{}", stderr(&taken));
    assert_ne!(fs::read_to_string(path.join("report.csv")).unwrap(), "another");
    assert_eq!(fs::read(path.join("run.json")).unwrap(), before);
}
