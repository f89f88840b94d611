//! The command, and a subject of known behaviour: this program itself, as a relay (a mock of a
//! pipeline engine).

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Output;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) use crate::command::{load_test, stderr};
use crate::relay::{self, Action};

pub(crate) const REQUEST_ITEMS: u64 = 512;
/// Requests a second that the paced relay takes, and the longest pause that it makes up for.
pub(crate) const PACED_REQUESTS_PER_S: u64 = 100;
const PACED_CREDIT: Duration = Duration::from_millis(250);
/// CPU time that the burning relay takes for each request.
pub(crate) const BURNT: Duration = Duration::from_millis(10);
/// Queue on the metrics page of the relay.
pub(crate) const QUEUE: u64 = 7;

/// Not a test: the subject of those beside it.
#[test]
#[ignore = "the process that other tests put under load"]
fn relay_process() {
    let variable = |name: &str| std::env::var(name).ok();
    let (Some(listen), Some(backend), Some(mode)) =
        (variable("RELAY_LISTEN"), variable("RELAY_BACKEND"), variable("RELAY_MODE"))
    else {
        return;
    };
    let (listen, backend): (SocketAddr, SocketAddr) =
        (listen.parse().unwrap(), backend.parse().unwrap());
    let metrics: SocketAddr = variable("RELAY_METRICS").unwrap().parse().unwrap();
    std::thread::spawn(move || serve_metrics(metrics));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        relay::start_relay_on(listen, backend, behaviour(mode)).await;
        std::future::pending::<()>().await;
    });
}

fn behaviour(mode: String) -> relay::Behaviour {
    let next = Mutex::new(Instant::now());
    Arc::new(move |number| {
        let (times, after) = (1, Duration::ZERO);
        match mode.as_str() {
            "discards" => Action::Forward { times: 0, after },
            "doubles" => Action::Forward { times: 1 + u32::from(number.is_multiple_of(10)), after },
            "drops" => Action::Forward { times: u32::from(!number.is_multiple_of(7)), after },
            "delays" => Action::Forward { times, after: Duration::from_millis(400) },
            "lags" => Action::ForwardLater { after: Duration::from_millis(1500) },
            "repeats" => Action::RepeatSpans { every: 10, request_spans: REQUEST_ITEMS },
            "burns" => Action::Burn { cpu: BURNT },
            "refuses" => Action::Refuse,
            "paced" => Action::Forward { times, after: wait_for_turn(&mut next.lock().unwrap()) },
            "forwards" => Action::Forward { times, after },
            other => panic!("no behaviour `{other}`"),
        }
    })
}

/// Requests pass one after the other at a fixed rate, whatever the machine does meanwhile.
fn wait_for_turn(next: &mut Instant) -> Duration {
    let now = Instant::now();
    let turn = (*next).max(now - PACED_CREDIT);
    *next = turn + Duration::from_secs(1) / u32::try_from(PACED_REQUESTS_PER_S).unwrap();
    turn.saturating_duration_since(now)
}

fn serve_metrics(addr: SocketAddr) {
    let listener = TcpListener::bind(addr).unwrap();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut page = format!("# TYPE relay_queue gauge\nrelay_queue {QUEUE}\n");
        for pipeline in 0..3 {
            page += &format!("relay_pipeline_queue{{pipeline=\"{pipeline}\"}} {}\n", 10 * pipeline);
        }
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            page.len()
        );
        // A client that leaves early asks again.
        let _ =
            stream.read(&mut [0; 4096]).and_then(|_| stream.write_all((head + &page).as_bytes()));
    }
}

/// A folder that describes the relay as a subject.
pub(crate) fn relay_folder(mode: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let subject = json!({
        "name": mode,
        "command": [
            std::env::current_exe().unwrap(), "support::relay_process", "--exact", "--ignored",
            "--nocapture"
        ],
        "env": {
            "RELAY_LISTEN": "@LISTEN@", "RELAY_BACKEND": "@BACKEND@",
            "RELAY_METRICS": "@METRICS@", "RELAY_MODE": mode
        },
        "metrics": {
            "queue": "relay_queue",
            "pipeline": { "queue": "relay_pipeline_queue{pipeline=\"@INDEX@\"}" }
        },
    });
    std::fs::write(folder.path().join("subject.json"), subject.to_string()).unwrap();
    folder
}

pub(crate) fn record(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Puts the relay under load for two seconds: 10 requests a second.
pub(crate) fn run_relay(mode: &str, more: &[&str]) -> (Output, Value) {
    run_relay_with(mode, &[&["-r", "5120", "-d", "2", "--drain-within", "1"], more].concat())
}

pub(crate) fn run_relay_with(mode: &str, args: &[&str]) -> (Output, Value) {
    let folder = relay_folder(mode);
    let json = folder.path().join("out.json");
    let mut command = load_test(args);
    command.arg("--subject-dir").arg(folder.path()).arg("--json").arg(&json);
    let output = command.output().unwrap();
    assert!(json.exists(), "{}", stderr(&output));
    let record = record(&json);
    (output, record)
}

pub(crate) fn kpis(record: &Value) -> &Value {
    &record["subjects"][0]["turns"][0]["kpis"]
}

pub(crate) fn count(kpis: &Value, name: &str) -> u64 {
    kpis[name].as_u64().unwrap_or_else(|| panic!("{name} is not known: {kpis}"))
}

/// Messages of all warnings.
pub(crate) fn warnings(record: &Value) -> Vec<&str> {
    let warnings = record["warnings"].as_array().unwrap();
    warnings.iter().filter_map(|warning| warning["message"].as_str()).collect()
}
