//! `sluice load-test` as tests call it.

use std::process::{Command, Output, Stdio};

pub(crate) fn load_test(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.arg("load-test").args(args).stdin(Stdio::null());
    command
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
