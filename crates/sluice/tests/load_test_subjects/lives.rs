//! Subjects that end during a turn.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use crate::support::{
    BURNT, LIFE, kpis, load_test, number, relay_folder, run, stderr, wait_for_child, warnings,
};

#[test]
fn one_that_ends_every_second_is_started_again_counted_and_paid_for_in_all_its_lives() {
    let env = json!({
        "RELAY_LISTEN": "@LISTEN@", "RELAY_BACKEND": "@BACKEND@",
            "RELAY_LIFE_S": LIFE.as_secs().to_string()
    });
    let folder = relay_folder(json!({ "env": env, "restart_delay_ms": 50 }));
    let mut command =
        load_test(&["-r", "5120", "-d", "5", "--drain-within", "1", "--fail-if", "restarts>0"]);
    let (output, record) = run(command.arg("--subject-dir").arg(folder.path()));
    let kpis = kpis(&record);
    let restarts = number(kpis, "restarts");
    assert!(restarts >= 2.0, "{kpis}");
    assert!(number(kpis, "accepted") > 0.0 && number(kpis, "exported_per_s") > 0.0, "{kpis}");
    // The first life begins before the load. Some of the others may have begun after it, while the
    // rest was sent again.
    let burnt_s = number(kpis, "cpu_cores") * 5.0;
    let lives = (restarts - 1.0).min(2.0);
    assert!(
        burnt_s > 0.9 * BURNT.as_secs_f64() * lives,
        "{burnt_s} s in {restarts} restarts: {kpis}"
    );
    assert!(number(kpis, "memory_max_bytes") > 0.0, "{kpis}");
    let warnings = warnings(&record);
    assert!(
        warnings.contains("times during the run (the last time: exit status: 7)"),
        "{warnings}"
    );
    assert_eq!(output.status.code(), Some(1), "the threshold is met: {}", stderr(&output));
}

#[test]
fn one_that_is_not_to_be_started_again_stays_down_and_the_warning_says_so() {
    let env = json!({ "RELAY_LISTEN": "@LISTEN@", "RELAY_BACKEND": "@BACKEND@",
            "RELAY_LIFE_S": "1" });
    let folder = relay_folder(json!({ "env": env, "restart": false }));
    let mut command = load_test(&["-r", "5120", "-d", "3", "--drain-within", "1"]);
    let (_, record) = run(command.arg("--subject-dir").arg(folder.path()));
    assert_eq!(kpis(&record)["restarts"], json!(0), "{record}");
    let warnings = warnings(&record);
    assert!(
        warnings.contains(
            "the subject ended during the run (exit status: 7) and was not started again"
        ),
        "{warnings}"
    );
}

/// Data in the killed process's memory is lost and reported as such; data that it had delivered is
/// not counted twice.
#[test]
fn sluice_killed_with_sigkill_is_started_again_and_goes_on() {
    let folder = TempDir::new().unwrap();
    let json = folder.path().join("out.json");
    let mut command = load_test(&["-r", "5120", "-d", "5", "--drain-within", "5"]);
    let bench = command
        .arg("--json")
        .arg(&json)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let subject = wait_for_child(bench.id(), "--drain-timeout");
    std::thread::sleep(Duration::from_millis(1500));
    kill_process(Pid::from_raw(subject.cast_signed()).unwrap(), Signal::KILL).unwrap();
    let output = bench.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let record = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let kpis = kpis(&record);
    assert_eq!((number(kpis, "restarts"), number(kpis, "doubled")), (1.0, 0.0), "{kpis}");
    let (accepted, received) = (number(kpis, "accepted"), number(kpis, "received_per_s"));
    assert!(
        accepted >= 5120.0 && number(kpis, "lost") < 0.5 * accepted,
        "it takes and delivers after the restart: {kpis}"
    );
    // Its counter began again at 0, and its count of the last second before its end is unknown.
    assert!((1000.0..=6000.0).contains(&received), "{kpis}");
    let warnings = warnings(&record);
    assert!(
        warnings.contains(
            "the subject ended during the run (signal: 9 (SIGKILL)) and was started again"
        ),
        "{warnings}"
    );
}
