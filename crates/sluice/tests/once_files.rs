//! An agent that tails files and is killed at random: each line is in the gateway's log once.

mod gateway;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gateway::{Gateway, alone, eventually, exporter};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;
use sluice_load_test::{Backend, BackendOptions};
use tempfile::TempDir;

/// Requests that the backend keeps: more than come.
const KEPT: usize = 1 << 20;
const ARRIVES_WITHIN: Duration = Duration::from_secs(60);
const LINES_A_ROTATION: u64 = 2_000;

/// Writes numbered lines into a file, which it renames now and then.
struct Writer {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<u64>,
}

impl Writer {
    fn start(folder: &Path, name: &'static str) -> Writer {
        let (stop, path) = (Arc::new(AtomicBool::new(false)), folder.join(format!("{name}.log")));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || write_lines(&path, name, &stopped));
        Writer { stop, thread }
    }

    /// The number of lines.
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("writes")
    }
}

fn write_lines(path: &Path, name: &str, stop: &AtomicBool) -> u64 {
    let open = || File::create_new(path).expect("is made");
    let (mut file, mut number, mut rotations) = (open(), 0, 0);
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..20 {
            writeln!(file, "{name} {number} {}", "x".repeat(fastrand::usize(1..200)))
                .expect("is written");
            number += 1;
        }
        if number % LINES_A_ROTATION == 0 {
            rotations += 1;
            fs::rename(path, path.with_extension(format!("log.{rotations}"))).expect("is renamed");
            file = open();
        }
        std::thread::sleep(Duration::from_millis(fastrand::u64(1..20)));
    }
    number
}

/// The times that each line has come, by its beginning.
fn lines(backend: &Backend) -> BTreeMap<String, u64> {
    let mut lines = BTreeMap::new();
    for request in backend.kept() {
        let request = ExportLogsServiceRequest::decode(request.body.clone()).expect("logs");
        let scopes = request.resource_logs.iter().flat_map(|it| &it.scope_logs);
        for record in scopes.flat_map(|it| &it.log_records) {
            let body = record.body.as_ref().and_then(|body| body.value.clone());
            let Some(Value::StringValue(text)) = body else { panic!("a line is a text") };
            let (beginning, _) = text.rsplit_once(' ').expect("three words");
            *lines.entry(beginning.to_owned()).or_default() += 1;
        }
    }
    lines
}

fn agent_config(folder: &Path, gateway: &Gateway, operators: &str) -> String {
    let (logs, state) = (folder.join("logs"), folder.join("state"));
    format!(
        "receivers:\n  file_log:\n    include: ['{}/*.log*']\n    start_at: beginning\n    \
         storage: file_storage\n{operators}extensions:\n  file_storage:\n    directory: {}\n    \
         create_directory: true\nexporters:\n  otlp/gateway:\n    endpoint: {}\n    \
         idempotent: true\n    tls:\n      insecure: true\nservice:\n  \
         extensions: [health_check, file_storage]\n  pipelines:\n    logs:\n      \
         receivers: [file_log]\n      exporters: [otlp/gateway]\n",
        logs.display(),
        state.display(),
        gateway.grpc
    )
}

async fn an_agent_is_killed(kills: usize, operators: &str) {
    let _alone = alone().await;
    let folder = TempDir::with_prefix("sluice-once-files-").expect("a folder");
    let logs: PathBuf = folder.path().join("logs");
    fs::create_dir(&logs).expect("is made");
    let options = BackendOptions { keep_requests: KEPT, ..BackendOptions::default() };
    let backend = Backend::start(options).await.expect("a backend");
    let config = format!(
        "exporters:\n{}buffer:\n  directory: {}\nservice:\n  pipelines:\n    logs:\n      \
         receivers: [otlp]\n      exporters: [otlp/backend]\n",
        exporter("backend", &backend),
        folder.path().join("gateway").display()
    );
    let gateway = Gateway::start(&config).await;
    let writers = ["one", "two", "three"].map(|name| Writer::start(&logs, name));
    let config = agent_config(folder.path(), &gateway, operators);
    for _ in 0..kills {
        let agent = Gateway::start(&config).await;
        tokio::time::sleep(Duration::from_millis(fastrand::u64(20..1_500))).await;
        agent.kill().await;
    }
    let agent = Gateway::start(&config).await;
    let written: Vec<u64> = writers.into_iter().map(Writer::end).collect();
    let all: u64 = written.iter().sum();
    eventually(ARRIVES_WITHIN, async || lines(&backend).len() as u64 >= all).await;
    let lines = lines(&backend);
    let repeated = gateway.metric("sluice_log_repeated_requests", &[]).await;
    println!("{all} lines, {kills} kills, {repeated} requests repeated");
    assert_eq!(lines.len() as u64, all, "every line arrives");
    let doubled: Vec<_> = lines.iter().filter(|(_, times)| **times > 1).collect();
    assert!(doubled.is_empty(), "{} of {all} doubled: {:?}", doubled.len(), doubled.first());
    assert!(repeated > 0.0, "the test is about lines that are read again");
    drop(agent);
}

/// Scenario: an agent without a buffer on disk is killed at random while files grow and rotate.
/// Guarantee: each line is in the gateway's log, and once, although many are read again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_are_read_again_after_a_kill_are_stored_once() {
    an_agent_is_killed(10, "").await;
}

/// The same behind operators that change each record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parsed_lines_that_are_read_again_after_a_kill_are_stored_once() {
    let operators = "    operators:\n      - type: regex_parser\n        \
                     regex: '^(?P<writer>\\w+) (?P<number>\\d+)'\n";
    an_agent_is_killed(10, operators).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes long"]
async fn torture_lines_that_are_read_again_after_a_kill_are_stored_once() {
    an_agent_is_killed(200, "").await;
}
