//! The real k6, from a script to its summary.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// A run of k6.
pub(crate) struct K6 {
    pub(crate) program: PathBuf,
    /// Script and summary are here; so is what else k6 writes.
    pub(crate) folder: PathBuf,
    pub(crate) script: &'static str,
    /// Arguments of `--out`.
    pub(crate) outputs: Vec<String>,
    /// The script reads them as `__ENV`, k6's outputs as their options.
    pub(crate) env: Vec<(&'static str, String)>,
}

/// The end of a run that succeeded.
pub(crate) struct Finished {
    /// Standard error.
    pub(crate) said: String,
    /// The file of `--summary-export`.
    pub(crate) path: PathBuf,
}

impl K6 {
    pub(crate) fn new(program: &Path, folder: &Path, script: &'static str) -> K6 {
        let (program, folder) = (program.into(), folder.into());
        K6 { program, folder, script, outputs: Vec::new(), env: Vec::new() }
    }

    pub(crate) fn out(mut self, output: impl Into<String>) -> K6 {
        self.outputs.push(output.into());
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl ToString) -> K6 {
        self.env.push((name, value.to_string()));
        self
    }

    pub(crate) async fn run(self) -> Finished {
        let [script, path] = ["script.js", "summary"].map(|name| self.folder.join(name));
        std::fs::write(&script, self.script).expect("is written");
        let mut command = Command::new(self.program);
        command.args(["run", "--quiet", "--no-usage-report", "--address", "localhost:0"]);
        for output in &self.outputs {
            command.args(["--out", output]);
        }
        command
            .arg("--summary-export")
            .arg(&path)
            .arg(&script)
            .env("HOME", &self.folder)
            .envs(self.env)
            .stdin(Stdio::null());
        let ended = tokio::task::spawn_blocking(move || command.output()).await;
        let ended = ended.expect("ends").expect("k6 runs");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success(), "{said}");
        Finished { said, path }
    }
}

impl Finished {
    /// Sums of the counters. Of all metrics, only counters have a `count` in the summary.
    pub(crate) fn counters(&self) -> BTreeMap<String, f64> {
        let summary = std::fs::read(&self.path).expect("a summary");
        let summary: Value = serde_json::from_slice(&summary).expect("is JSON");
        let metrics = summary["metrics"].as_object().expect("metrics").iter();
        metrics.filter_map(|(name, it)| Some((name.clone(), it["count"].as_f64()?))).collect()
    }
}
