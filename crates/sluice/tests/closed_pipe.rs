//! Commands whose output is not read to its end (`| head`).

use std::process::{Command, Stdio};

const GATEWAY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/gateway.yaml");

/// The exit code of a command whose standard output, and standard error if `both`, are pipes that
/// are closed already; and what it wrote to the standard error.
fn run(arguments: &[&str], both: bool) -> (Option<i32>, String) {
    let closed = || Stdio::from(std::io::pipe().expect("a pipe").1);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(arguments).stdin(Stdio::null()).stdout(closed());
    command.stderr(if both { closed() } else { Stdio::piped() });
    let output = command.spawn().expect("it starts").wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Scenario: every command that prints, into closed pipes. Guarantee: none of them panics; the exit
/// code is the one that it has otherwise.
#[test]
fn commands_do_not_panic_when_nothing_reads_their_output() {
    let commands: [(&[&str], i32); 9] = [
        (&["plan", GATEWAY], 0),
        (&["validate", GATEWAY], 0),
        (&["validate", "/there/is/no/such/file.yaml"], 1),
        (&["components"], 0),
        (&["docs"], 0),
        (&["docs", "metrics"], 0),
        (&["completions", "bash"], 0),
        (&["load-test", "--dry-run"], 0),
        (&["load-test", "subjects"], 0),
    ];
    for (arguments, expected) in commands {
        for both in [false, true] {
            let (code, errors) = run(arguments, both);
            assert_eq!(code, Some(expected), "{arguments:?}, both: {both}: {errors}");
            assert!(!errors.contains("panicked"), "{arguments:?}: {errors}");
        }
    }
}
