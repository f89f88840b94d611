//! Subjects that cannot be tested: each is refused with one sentence that has the remedy, and
//! nothing is left.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;
use tempfile::TempDir;

use crate::support::{folder, load_test, relay_folder, run, stderr, warnings};

/// The message of a refusal, which leaves the temporary folder empty.
fn refused(command: &mut Command) -> String {
    let temporary = TempDir::new().unwrap();
    let output = command.env("TMPDIR", temporary.path()).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    let left: Vec<_> = std::fs::read_dir(temporary.path()).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    stderr(&output)
}

fn refused_folder(folder: &Path, args: &[&str]) -> String {
    refused(load_test(args).arg("--subject-dir").arg(folder))
}

#[test]
fn what_a_folder_has_wrong_is_named_before_anything_starts() {
    let described = |more: serde_json::Value| relay_folder(more);
    let misspelt = described(json!({ "comand": ["x"] }));
    let said = refused_folder(misspelt.path(), &[]);
    assert!(
        said.contains("subject.json:1: unknown field `comand`: did you mean `command`?"),
        "{said}"
    );
    let template = described(json!({ "config": "engine.yaml" }));
    std::fs::write(template.path().join("engine.yaml"), "a: 1\nlisten: @LISTN@\n").unwrap();
    let said = refused_folder(template.path(), &[]);
    assert!(
        said.contains("engine.yaml:2: no variable `@LISTN@`: did you mean `LISTEN`?"),
        "{said}"
    );
    let metrics_only = described(json!({ "targets": { "metrics": {} } }));
    let said = refused_folder(metrics_only.path(), &["-t", "traces"]);
    assert!(
        said.contains("relay cannot be tested with -t traces")
            && said.contains("names metrics only"),
        "{said}"
    );
    let said = refused_folder(Path::new("/nonexistent"), &[]);
    assert!(
        said.contains("/nonexistent/subject.json") && said.contains("needs subject.json"),
        "{said}"
    );
}

#[test]
fn a_program_that_is_not_there_is_named_with_the_ways_to_give_it() {
    let said = refused(
        load_test(&["--subject", "vector"])
            .env("PATH", "/nonexistent")
            .env_remove("SLUICE_TEST_VECTOR"),
    );
    for part in [
        "no program `vector` in PATH",
        "install a release",
        "--subject-binary vector=PATH",
        "SLUICE_TEST_VECTOR",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let said = refused(&mut load_test(&[
        "--subject",
        "rotel",
        "--subject-binary",
        "rotel=/nonexistent/rotel",
    ]));
    assert!(said.contains("rotel: no program at /nonexistent/rotel"), "{said}");
    let said = refused(
        load_test(&["--subject", "fluent-bit"]).env("SLUICE_TEST_FLUENT_BIT", "/nonexistent/fb"),
    );
    assert!(said.contains("fluent-bit: no program at /nonexistent/fb"), "{said}");
    let said = refused(&mut load_test(&["--subject-binary", "rotel=/bin/true"]));
    assert!(said.contains("--subject-binary names `rotel`, which is not tested here"), "{said}");
    let said = refused(&mut load_test(&["--subject", "otelcoll"]));
    assert!(
        said.contains("no subject `otelcoll`: did you mean `otelcol`?")
            && said.contains("--subject-dir"),
        "{said}"
    );
    let said = refused(&mut load_test(&["--subject", "sluice", "--subject", "sluice"]));
    assert!(said.contains("given twice: --turns repeats"), "{said}");
}

/// The subjects can be listed. Those written from documentation alone are told from those that were
/// tried.
#[test]
fn the_subjects_that_come_with_the_program_are_listed() {
    let mut command = load_test(&["subjects"]);
    let output =
        command.env("PATH", "/nonexistent").env_remove("SLUICE_TEST_VECTOR").output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    let line = |name: &str| {
        listed
            .lines()
            .find(|line| line.trim_start().starts_with(name))
            .unwrap_or_else(|| panic!("{listed}"))
    };
    assert!(line("sluice").contains(" here"), "{listed}");
    assert!(line("vector").contains("no ") && line("vector").contains("not here"), "{listed}");
    for name in ["otelcol", "rotel", "telegraf", "fluent-bit", "df_engine"] {
        line(name);
    }
}

#[test]
fn a_subject_that_ends_at_once_is_shown_with_its_last_words() {
    let talks = folder(
        &json!({
            "name": "talks",
            "command": ["/bin/sh", "-c", "echo no such option >&2; exit 3"],
        }),
        &[],
    );
    let said = refused_folder(talks.path(), &["-d", "1"]);
    for part in [
        "talks ended (exit status: 3) instead of listening on",
        "check its command",
        "no such option",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let no_program =
        folder(&json!({ "name": "text", "command": ["./engine"] }), &[("engine", "not a program")]);
    let said = refused_folder(no_program.path(), &["-d", "1"]);
    assert!(said.contains("text"), "{said}");
}

#[test]
fn a_subject_that_is_never_ready_is_ended_after_its_time() {
    let sleeps = folder(
        &json!({ "name": "sleeps", "command": ["/bin/sleep", "600"], "ready_within_s": 1 }),
        &[],
    );
    let said = refused_folder(sleeps.path(), &["-d", "1"]);
    assert!(said.contains("sleeps is not listening on") && said.contains("after 1s"), "{said}");
}

#[test]
fn readiness_is_told_by_output_or_http_as_well() {
    let output = relay_folder(json!({ "ready": { "output": "running 1 test" } }));
    let mut command = load_test(&["-r", "5120", "-d", "1", "--fail-if", "lost>0"]);
    let (done, record) = run(command.arg("--subject-dir").arg(output.path()));
    assert_eq!(done.status.code(), Some(0), "{record}");
    let silent =
        relay_folder(json!({ "ready": { "http": "@METRICS@/health" }, "ready_within_s": 1 }));
    let said = refused_folder(silent.path(), &["-d", "1"]);
    assert!(
        said.contains("relay is not answering http://127.0.0.1:")
            && said.contains("/health with 200"),
        "{said}"
    );
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let folder = relay_folder(json!({ "ready": { "connect": addr } }));
    let said = refused_folder(folder.path(), &["-d", "1"]);
    let expected =
        format!("something else listens on {addr} already: end it or choose another port");
    assert!(said.contains(&expected), "{said}");
}

#[test]
fn a_quota_that_the_machine_cannot_give_and_nonsense_are_refused() {
    let said = refused(&mut load_test(&["--cpus", "1000"]));
    assert!(
        said.contains("--cpus 1000: the subject has") && said.contains("core(s) of this machine"),
        "{said}"
    );
    let said = refused(&mut load_test(&["--cpus", "none"]));
    assert!(said.contains("give a number of cores"), "{said}");
    let said = refused(&mut load_test(&["--memory-limit", "1"]));
    assert!(said.contains("--memory-limit"), "{said}");
    let said = refused(&mut load_test(&["--subject-binary", "rotel"]));
    assert!(said.contains("rotel=/opt/rotel-agent"), "{said}");
}

/// With one core there is nothing to divide: the run goes on, and warns of its figures.
#[test]
fn a_single_core_is_warned_of() {
    let folder = relay_folder(json!({}));
    let mut command = Command::new("taskset");
    command.args([
        "--cpu-list",
        "0",
        env!("CARGO_BIN_EXE_sluice"),
        "load-test",
        "-r",
        "5120",
        "-d",
        "1",
    ]);
    let (output, record): (Output, _) = run(command.arg("--subject-dir").arg(folder.path()));
    assert!(output.status.success(), "{}", stderr(&output));
    let said = warnings(&record);
    assert!(
        said.contains("subject and bench share one core")
            && said.contains("run on two cores or more"),
        "{said}"
    );
    assert_eq!(record["subjects"][0]["limits"]["pinned_cores"], json!([]));
}

/// The record has the limits in force, not those asked for, where the machine allows limits.
#[test]
fn limits_are_stated_as_they_were_in_force() {
    let folder = relay_folder(json!({}));
    let mut command =
        load_test(&["-r", "5120", "-d", "1", "--cpus", "0.5", "--memory-limit", "300"]);
    let (_, record) = run(command.arg("--subject-dir").arg(folder.path()));
    let limits = &record["subjects"][0]["limits"];
    let said = warnings(&record);
    assert!(
        limits["cpu_cores"] == json!(0.5) || said.contains("it runs without a CPU quota"),
        "{limits} {said}"
    );
    assert!(
        limits["memory_bytes"] == json!(300 << 20)
            || said.contains("it runs without a memory limit"),
        "{limits} {said}"
    );
}
