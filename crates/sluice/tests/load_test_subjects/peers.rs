//! Real engines, side by side.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::component::component;
use crate::support::{load_test, number, run, stderr};

/// Adds both subjects, with their programs.
fn with_peers<'a>(command: &'a mut Command, otelcol: &Path, rotel: &Path) -> &'a mut Command {
    command.args(["--subject", "otelcol", "--subject", "rotel"]);
    command.arg("--subject-binary").arg(format!("otelcol={}", otelcol.display()));
    command.arg("--subject-binary").arg(format!("rotel={}", rotel.display()))
}

fn turns<'a>(record: &'a Value, subject: &str) -> &'a Vec<Value> {
    let subjects = record["subjects"].as_array().unwrap();
    let found = subjects
        .iter()
        .find(|one| one["name"] == *subject)
        .unwrap_or_else(|| panic!("no {subject}: {record}"));
    found["turns"].as_array().unwrap()
}

/// Every item that was accepted has arrived, once.
fn assert_whole(turn: &Value) {
    let kpis = &turn["kpis"];
    assert!(number(kpis, "accepted") > 0.0, "{kpis}");
    assert_eq!((number(kpis, "lost"), number(kpis, "doubled")), (0.0, 0.0), "{kpis}");
    assert!(number(kpis, "cpu_cores") > 0.0 && number(kpis, "memory_bytes") > 0.0, "{kpis}");
}

/// A B A B, and ratios with their spread.
#[test]
fn the_collector_and_rotel_take_turns_with_traces_and_are_compared_turn_by_turn() {
    let (Some(otelcol), Some(rotel)) =
        (component("SLUICE_TEST_OTELCOL"), component("SLUICE_TEST_ROTEL"))
    else {
        return;
    };
    let mut command = load_test(&[
        "-t",
        "traces",
        "-r",
        "5120",
        "-d",
        "2",
        "--turns",
        "2",
        "--fail-if",
        "lost>0",
        "--cpus",
        "1",
    ]);
    let (output, record) = run(with_peers(&mut command, &otelcol, &rotel));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for subject in ["otelcol", "rotel"] {
        assert_eq!(turns(&record, subject).len(), 2);
        turns(&record, subject).iter().for_each(assert_whole);
    }
    assert_eq!(record["subjects"][0]["version"], json!("0.160.0"));
    assert_eq!(record["subjects"][1]["version"], json!("0.0.1-alpha10"));
    // Turns say on standard error when they are done: the order is A B A B.
    let said = stderr(&output);
    let order: Vec<&str> = said
        .lines()
        .filter_map(|line| line.contains("lost 0").then(|| line.split([':', ' ']).next())?)
        .collect();
    assert_eq!(order, ["otelcol", "rotel", "otelcol", "rotel"], "{said}");
    let markdown = String::from_utf8_lossy(&output.stdout).into_owned();
    let ratio = markdown
        .lines()
        .find(|line| line.contains("otelcol : rotel"))
        .unwrap_or_else(|| panic!("{markdown}"));
    // CPU time and memory are never the same twice: the range of the turns is told.
    assert!(ratio.contains(" (") && ratio.matches('|').count() > 5, "{ratio}");
}

#[test]
fn the_collector_and_rotel_deliver_metrics_and_logs_whole() {
    let (Some(otelcol), Some(rotel)) =
        (component("SLUICE_TEST_OTELCOL"), component("SLUICE_TEST_ROTEL"))
    else {
        return;
    };
    for target in ["metrics", "logs-otel"] {
        // Requests as large as the Collector's batches: its last batch would wait for ten seconds
        // otherwise.
        let size = if target == "metrics" { "1024" } else { "512" };
        let mut command = load_test(&[
            "-t",
            target,
            "-r",
            "4096",
            "--batch-size",
            size,
            "-d",
            "2",
            "--fail-if",
            "lost>0",
        ]);
        let (output, record) = run(with_peers(&mut command, &otelcol, &rotel));
        assert_eq!(output.status.code(), Some(0), "{target}: {}", stderr(&output));
        for subject in ["otelcol", "rotel"] {
            turns(&record, subject).iter().for_each(assert_whole);
        }
    }
}

#[test]
fn sluice_and_the_collector_deliver_to_three_pipelines_and_tell_their_queues_apart() {
    let Some(otelcol) = component("SLUICE_TEST_OTELCOL") else { return };
    let mut command =
        load_test(&["-t", "traces", "-m", "-r", "5120", "-d", "2", "--fail-if", "lost>0"]);
    command.args(["--subject", "sluice", "--subject", "otelcol"]);
    command.arg("--subject-binary").arg(format!("otelcol={}", otelcol.display()));
    let (output, record) = run(&mut command);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for subject in ["sluice", "otelcol"] {
        let turn = &turns(&record, subject)[0];
        assert_whole(turn);
        let pipelines = turn["kpis"]["pipelines"].as_array().unwrap();
        assert_eq!(pipelines.len(), 3, "{subject}");
        for pipeline in pipelines {
            assert_eq!(
                (&pipeline["lost"], &pipeline["doubled"]),
                (&json!(0), &json!(0)),
                "{subject}: {pipeline}"
            );
            assert!(pipeline["queue"].is_number(), "{subject}: {pipeline}");
        }
    }
}

/// This version of Rotel takes one exporter a signal and says so: its words are shown.
#[test]
fn rotel_with_three_pipelines_ends_at_once_and_its_reason_is_shown() {
    let Some(rotel) = component("SLUICE_TEST_ROTEL") else { return };
    let mut command = load_test(&["-t", "traces", "-m", "-d", "1", "--subject", "rotel"]);
    let output =
        command.arg("--subject-binary").arg(format!("rotel={}", rotel.display())).output().unwrap();
    assert!(!output.status.success());
    let said = stderr(&output);
    assert!(said.contains("rotel ended") && said.contains("Only one exporter supported"), "{said}");
}
