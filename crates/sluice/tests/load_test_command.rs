//! `sluice load-test` from outside: its figures against subjects whose behaviour is known, and what it refuses.

#[path = "../../load-test/tests/support/mod.rs"]
mod relay;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_load_test::subject::usage_of_group;
use tempfile::TempDir;

const REQUEST_ITEMS: u64 = 512;

fn load_test(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.arg("load-test").args(args).stdin(Stdio::null());
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Not a test: the subject of those below, this program as a relay that behaves in a known way.
#[test]
#[ignore = "the process that other tests put under load"]
fn relay_process() {
    let variable = |name: &str| std::env::var(name).ok();
    let (Some(listen), Some(backend), Some(mode)) =
        (variable("RELAY_LISTEN"), variable("RELAY_BACKEND"), variable("RELAY_MODE"))
    else {
        return;
    };
    let (listen, backend): (SocketAddr, SocketAddr) = (listen.parse().unwrap(), backend.parse().unwrap());
    let behaviour = Arc::new(move |number: u64| {
        let (times, after) = match mode.as_str() {
            "discards" => (0, Duration::ZERO),
            "doubles" => (1 + u32::from(number.is_multiple_of(10)), Duration::ZERO),
            "delays" => (1, Duration::from_millis(400)),
            _ => (1, Duration::ZERO),
        };
        relay::Action::Forward { times, after }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        relay::start_relay_on(listen, backend, behaviour).await;
        std::future::pending::<()>().await;
    });
}

/// A folder that describes the relay as a subject.
fn relay_folder(mode: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let subject = json!({
        "name": mode,
        "command": [std::env::current_exe().unwrap(), "relay_process", "--exact", "--ignored", "--nocapture"],
        "env": { "RELAY_LISTEN": "@LISTEN@", "RELAY_BACKEND": "@BACKEND@", "RELAY_MODE": mode },
    });
    std::fs::write(folder.path().join("subject.json"), subject.to_string()).unwrap();
    folder
}

fn record(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Puts the relay under load for two seconds: 10 requests a second.
fn run_relay(mode: &str, more: &[&str]) -> (Output, Value) {
    let folder = relay_folder(mode);
    let json = folder.path().join("out.json");
    let mut command = load_test(&["-r", "5120", "-d", "2", "--drain-within", "1"]);
    command.arg("--subject-dir").arg(folder.path()).arg("--json").arg(&json).args(more);
    let output = command.output().unwrap();
    let record = record(&json);
    (output, record)
}

fn kpis(record: &Value) -> &Value {
    &record["subjects"][0]["turns"][0]["kpis"]
}

#[test]
fn a_subject_that_answers_and_stores_nothing_has_lost_everything_and_fails_the_threshold() {
    let (output, record) = run_relay("discards", &["--fail-if", "lost>0"]);
    let kpis = kpis(&record);
    assert!(kpis["accepted"].as_u64().unwrap() >= 10 * REQUEST_ITEMS, "{kpis}");
    assert_eq!(kpis["lost"], kpis["accepted"], "{kpis}");
    assert_eq!(
        (&kpis["exported_per_s"], &kpis["drain_s"], &kpis["latency_p99_ms"]),
        (&json!(0.0), &Value::Null, &Value::Null)
    );
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let verdict = &record["verdicts"][0];
    assert_eq!((verdict["failed"].as_bool(), verdict["value"].as_f64()), (Some(true), kpis["lost"].as_f64()));
}

#[test]
fn every_tenth_request_doubled_is_reported_to_the_item_and_nothing_is_lost() {
    let (output, record) = run_relay("doubles", &["--fail-if", "lost>0"]);
    let kpis = kpis(&record);
    let requests = kpis["accepted"].as_u64().unwrap() / REQUEST_ITEMS;
    assert!(requests >= 10, "{kpis}");
    assert_eq!(kpis["doubled"], json!(requests.div_ceil(10) * REQUEST_ITEMS), "{kpis}");
    assert_eq!((&kpis["lost"], &kpis["refused"]), (&json!(0), &json!(0)), "{kpis}");
    assert!(kpis["wire_out_bytes"].as_u64() > kpis["wire_in_bytes"].as_u64(), "the doubled ones went out too: {kpis}");
    assert!(kpis["cpu_s_per_million"].as_f64().unwrap() > 0.0 && kpis["drain_s"].is_number(), "{kpis}");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn a_subject_that_delays_shows_in_the_latency_and_has_a_sample_a_second() {
    let (_, record) = run_relay("delays", &[]);
    let kpis = kpis(&record);
    assert!(kpis["latency_p50_ms"].as_f64().unwrap() >= 400.0, "{kpis}");
    assert!(kpis["latency_p999_ms"].as_f64() >= kpis["latency_p50_ms"].as_f64(), "{kpis}");
    assert_eq!(kpis["lost"], json!(0));
    assert!(record["subjects"][0]["turns"][0]["samples"].as_array().unwrap().len() >= 2, "{record}");
}

#[test]
fn sluice_under_backpressure_in_three_pipelines_loses_nothing_and_fills_every_report() {
    let folder = TempDir::new().unwrap();
    let mut command = load_test(&["-t", "metrics", "-n", "0.92", "-m", "true", "-b", "true", "-r", "2048", "-d", "3"]);
    let output = command.args(["--fail-if", "lost>0", "--output"]).arg(folder.path()).output().unwrap();
    let record = record(&folder.path().join("run.json"));
    let kpis = kpis(&record);
    assert_eq!(output.status.code(), Some(0), "{} {kpis}", stderr(&output));
    assert_eq!((&kpis["lost"], kpis["pipelines"].as_array().unwrap().len()), (&json!(0), 3), "{kpis}");
    assert!(kpis["received_per_s"].as_f64().unwrap() > 0.0 && kpis["queue"].is_number(), "{kpis}");
    assert_eq!(record["subjects"][0]["turns"][0]["fault_windows"][0]["label"], "70 % of requests answered 503");
    let markdown = String::from_utf8(output.stdout).unwrap();
    assert!(markdown.contains("0.92"), "{markdown}");
    for report in ["report.md", "report.csv", "report.html"] {
        assert!(folder.path().join(report).exists(), "{report}");
    }
    let merged = load_test(&["report"]).arg(folder.path()).output().unwrap();
    assert!(merged.status.success() && String::from_utf8_lossy(&merged.stdout).contains("0.92"), "{}", stderr(&merged));
}

#[test]
fn an_interrupted_run_reports_what_it_has_says_so_and_leaves_nothing_running() {
    let folder = relay_folder("forwards");
    let json = folder.path().join("out.json");
    let mut command = load_test(&["-r", "5120", "-d", "600"]);
    command.arg("--subject-dir").arg(folder.path()).arg("--json").arg(&json).env("TMPDIR", folder.path());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    let subject = loop {
        assert!(began.elapsed() < Duration::from_secs(20), "the subject does not start");
        std::thread::sleep(Duration::from_millis(50));
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap_or_default();
        if let Some(pid) = children.split_whitespace().next() {
            break pid.parse::<u32>().unwrap();
        }
    };
    std::thread::sleep(Duration::from_secs(2));
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let record = record(&json);
    assert_eq!(record["interrupted"], json!(true));
    assert!(kpis(&record)["accepted"].as_u64().unwrap() > 0, "{record}");
    assert!(usage_of_group(subject).is_none(), "the subject still runs");
    let left = std::fs::read_dir(folder.path()).unwrap().flatten().filter(|entry| entry.path().is_dir()).count();
    assert_eq!(left, 0, "temporary folders are left");
}

#[test]
fn what_cannot_be_done_is_refused_in_one_sentence_that_says_what_helps() {
    let folder = TempDir::new().unwrap();
    let broken = json!({ "name": "broken", "command": ["/nonexistent/engine"] });
    std::fs::write(folder.path().join("subject.json"), broken.to_string()).unwrap();
    let broken = folder.path().display().to_string();
    let cases: [(&[&str], &str); 9] = [
        (&["-t", "metricagent"], "Sluice has no agent yet, it scrapes no targets: -t metricagent can be tested with"),
        (&["-t", "logagent"], "it tails no files: -t logagent can be tested with --subject otelcol"),
        (&["-t", "logs-fluentbit"], "Sluice has no agent yet"),
        (&["--subject", "vector"], "no program `vector` in PATH"),
        (&["-s", "100"], "-t logs-otel"),
        (&["--fault-share", "0.5"], "add -b"),
        (&["-d", "0"], "1 second or more"),
        (&["--fail-if", "losst>0"], "no figure `losst`"),
        (&["--subject-dir", &broken], "no program at /nonexistent/engine"),
    ];
    for (args, expected) in cases {
        let output = load_test(args).output().unwrap();
        assert!(!output.status.success(), "{args:?}");
        assert!(stderr(&output).contains(expected), "{args:?}: {}", stderr(&output));
    }
}
