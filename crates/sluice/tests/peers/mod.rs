//! Foreign programs before or behind the real binary: found through `tests/components/env`, run,
//! and judged by the data that reaches the backend.

#![allow(dead_code, unused_imports, reason = "each test file uses a part of this")]

#[path = "../../../load-test/tests/support/component.rs"]
mod component;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) use component::{component, pass_over};
use sluice_load_test::subject::{Subject, SubjectSpec};

/// No client may take longer: one that hangs is killed and fails its test.
const CLIENT_WITHIN_S: &str = "120";

/// The result of a program that was run to its end.
#[derive(Debug)]
pub(crate) struct Finished {
    /// 127: not installed; 124: it took too long.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a program to its end without holding up the backends that share this thread.
pub(crate) async fn run(program: &Path, args: Vec<String>) -> Finished {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", CLIENT_WITHIN_S]).arg(program).args(args).stdin(Stdio::null());
    let output =
        tokio::task::spawn_blocking(move || command.output()).await.expect("the thread ends");
    let output = output.expect("coreutils' timeout");
    Finished {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Starts a Collector and waits until it accepts connections at `ready`.
pub(crate) async fn start_collector(binary: &Path, config: &str, ready: SocketAddr) -> Subject {
    let spec = SubjectSpec {
        name: "otelcol".to_owned(),
        binary: binary.to_owned(),
        args: vec!["--config".to_owned(), "{config}".to_owned()],
        config: config.to_owned(),
        config_file: "config.yaml".to_owned(),
        ready: Some(ready.into()),
        ..SubjectSpec::default()
    };
    Subject::start(spec).await.unwrap_or_else(|error| panic!("{error}"))
}
