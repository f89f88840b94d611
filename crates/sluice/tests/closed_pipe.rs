//! Commands whose output is not read to its end (`| head`), or cannot be written.

mod log_directory;

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

use log_directory::{DEAD, HEALTHY, LogDirectory};

const GATEWAY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/gateway.yaml");

/// The exit code of a command with these outputs, and the text on the standard error.
fn run(arguments: &[&str], output: Stdio, errors: Stdio) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(arguments).stdin(Stdio::null()).stdout(output).stderr(errors);
    let output = command.spawn().expect("it starts").wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The commands that print, each with its exit code.
fn commands(directory: &str) -> Vec<(Vec<&str>, i32)> {
    let dead = ["--delivery", DEAD];
    vec![
        (vec!["plan", GATEWAY], 0),
        (vec!["validate", GATEWAY], 0),
        (vec!["components"], 0),
        (vec!["docs"], 0),
        (vec!["docs", "metrics"], 0),
        (vec!["completions", "bash"], 0),
        (vec!["load-test", "--dry-run"], 0),
        (vec!["load-test", "subjects"], 0),
        (vec!["log", "ls", directory], 0),
        (vec!["log", "ls", directory, "--json"], 0),
        (vec!["log", "show", directory, dead[0], dead[1]], 0),
        (vec!["log", "show", directory, dead[0], dead[1], "--body"], 0),
        (vec!["log", "dead-letters", directory], 0),
        (vec!["log", "verify", directory], 0),
        (vec!["log", "repair", directory], 0),
        (vec!["log", "replay", directory, "--delivery", HEALTHY, "--to-file", "-"], 0),
    ]
}

/// Scenario: every command that prints, into closed pipes. Guarantee: none of them panics; the exit
/// code is the one that it has otherwise.
#[test]
fn commands_do_not_panic_when_nothing_reads_their_output() {
    let directory = LogDirectory::filled();
    let mut all = commands(directory.path.to_str().expect("a name"));
    all.push((vec!["validate", "/there/is/no/such/file.yaml"], 1));
    let closed = || Stdio::from(std::io::pipe().expect("a pipe").1);
    for (arguments, expected) in all {
        for both in [false, true] {
            let errors = if both { closed() } else { Stdio::piped() };
            let (code, errors) = run(&arguments, closed(), errors);
            assert_eq!(code, Some(expected), "{arguments:?}, both: {both}: {errors}");
            assert!(!errors.contains("panicked"), "{arguments:?}: {errors}");
        }
    }
}

/// Scenario: the same onto a full disk. Guarantee: each says so and fails, without a panic.
#[test]
fn commands_fail_when_their_output_cannot_be_written() {
    let directory = LogDirectory::filled();
    for (arguments, _) in commands(directory.path.to_str().expect("a name")) {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let (code, errors) = run(&arguments, full.into(), Stdio::piped());
        assert_eq!(code, Some(1), "{arguments:?}: {errors}");
        assert!(errors.contains("No space left on device"), "{arguments:?}: {errors}");
        assert_eq!(errors.matches("os error 28").count(), 1, "{arguments:?}: {errors}");
        assert!(!errors.contains("panicked"), "{arguments:?}: {errors}");
    }
}
