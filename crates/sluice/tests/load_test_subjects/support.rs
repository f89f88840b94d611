//! The command, a mock of a pipeline engine (this program itself), and a look at processes.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_load_test::subject::usage_of_process;
use tempfile::TempDir;

pub(crate) use crate::command::{load_test, stderr};
use crate::relay::{self, Action};

/// CPU time that the mock burns at the begin of each life.
pub(crate) const BURNT: Duration = Duration::from_millis(200);
/// Lifetime of a mock that ends by itself.
pub(crate) const LIFE: Duration = Duration::from_secs(1);

/// Not a test: a relay that forwards all it gets, and burns CPU time when it starts. With
/// RELAY_LIFE_S it ends by itself.
#[test]
#[ignore = "the process that other tests put under load"]
fn relay_process() {
    let variable = |name: &str| std::env::var(name).ok();
    let (Some(listen), Some(backend)) = (variable("RELAY_LISTEN"), variable("RELAY_BACKEND"))
    else {
        return;
    };
    while usage_of_process(std::process::id()).unwrap().cpu < BURNT {}
    let (listen, backend): (SocketAddr, SocketAddr) =
        (listen.parse().unwrap(), backend.parse().unwrap());
    let life =
        variable("RELAY_LIFE_S").map(|seconds| Duration::from_secs(seconds.parse().unwrap()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let forward = Arc::new(|_| Action::Forward { times: 1, after: Duration::ZERO });
        relay::start_relay_on(listen, backend, forward).await;
        match life {
            Some(life) => tokio::time::sleep(life).await,
            None => std::future::pending().await,
        }
    });
    // A test that passes would leave with 0, as an engine that was asked to end.
    std::process::exit(7);
}

pub(crate) fn relay_command() -> Value {
    json!([
        std::env::current_exe().unwrap(),
        "support::relay_process",
        "--exact",
        "--ignored",
        "--nocapture"
    ])
}

/// A folder that describes the relay, with other fields added.
pub(crate) fn relay_folder(more: Value) -> TempDir {
    let mut subject = json!({
        "name": "relay",
        "command": relay_command(),
        "env": { "RELAY_LISTEN": "@LISTEN@", "RELAY_BACKEND": "@BACKEND@" },
    });
    for (name, value) in more.as_object().unwrap() {
        subject[name] = value.clone();
    }
    folder(&subject, &[])
}

pub(crate) fn folder(subject: &Value, files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("subject.json"), subject.to_string()).unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Runs it and reads its record.
pub(crate) fn run(command: &mut Command) -> (Output, Value) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("out.json");
    let output = command.arg("--json").arg(&path).output().unwrap();
    assert!(path.exists(), "{}", stderr(&output));
    let record = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    (output, record)
}

pub(crate) fn kpis(record: &Value) -> &Value {
    &record["subjects"][0]["turns"][0]["kpis"]
}

pub(crate) fn number(kpis: &Value, name: &str) -> f64 {
    kpis[name].as_f64().unwrap_or_else(|| panic!("{name} is not known: {kpis}"))
}

pub(crate) fn warnings(record: &Value) -> String {
    record["warnings"].to_string()
}

/// Waits for a process that this one started and whose command line contains `text`.
pub(crate) fn wait_for_child(parent: u32, text: &str) -> u32 {
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < Duration::from_secs(20), "no child with `{text}`");
        let children = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            (parent_of(pid)? == parent && command_line(&entry.path())?.contains(text))
                .then_some(pid)
        });
        if let Some(pid) = children.min() {
            return pid;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

fn command_line(process: &Path) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(process.join("cmdline")).ok()?).replace('\0', " "))
}
