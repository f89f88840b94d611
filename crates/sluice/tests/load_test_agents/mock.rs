//! A mock of an agent that behaves in a known way: it scrapes and tails as agents do, and sends
//! what it has read, changed as its mode says.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use sluice_load_test::scrape::Scrape;
use tempfile::TempDir;

/// Its output when it is ready.
const READY: &str = "the mock agent begins";
const REQUEST_ITEMS: usize = 1_000;
/// The most items a second that it sends in mode `paced`.
pub(crate) const PACED_ITEMS_PER_S: u32 = 4_000;

/// A folder that describes it as a subject.
pub(crate) fn folder(mode: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let tail = json!({ "env": { "MOCK_LOG_ROOT": "@LOG_ROOT@" } });
    let scrape = json!({ "env": {
        "MOCK_TARGETS": "@EACH_TARGET@@TARGET@@END@",
        "MOCK_INTERVAL_MS": "@SCRAPE_INTERVAL_MS@",
    } });
    let subject = json!({
        "name": mode,
        "command": [
            std::env::current_exe().unwrap(), "mock_agent_process", "--exact", "--ignored",
            "--nocapture",
        ],
        "env": { "MOCK_MODE": mode, "MOCK_BACKEND": "@BACKEND@" },
        "ready": { "output": READY },
        "targets": { "logagent": tail, "logs-fluentbit": tail, "metricagent": scrape },
    });
    fs::write(folder.path().join("subject.json"), subject.to_string()).unwrap();
    folder
}

/// Runs until it is killed. Does nothing if it was not started as a subject.
pub(crate) fn run() {
    let variable = |name: &str| std::env::var(name).ok();
    let (Some(mode), Some(backend)) = (variable("MOCK_MODE"), variable("MOCK_BACKEND")) else {
        return;
    };
    let mut outlet = Outlet { backend, mode, count: 0, next: Instant::now() };
    println!("{READY}");
    match (variable("MOCK_LOG_ROOT"), variable("MOCK_TARGETS"), variable("MOCK_INTERVAL_MS")) {
        (Some(root), _, _) => tail(&root.into(), &mut outlet),
        (_, Some(targets), Some(interval_ms)) => {
            scrape(&targets, Duration::from_millis(interval_ms.parse().unwrap()), &mut outlet);
        }
        _ => panic!("neither files nor targets"),
    }
}

/// Reads every file of the tree again and again, by inode, so that renamed ones go on.
fn tail(root: &PathBuf, outlet: &mut Outlet) {
    let mut positions: HashMap<u64, u64> = HashMap::new();
    loop {
        let mut lines = Vec::new();
        for path in files_below(root) {
            let Ok(mut file) = File::open(&path) else { continue };
            let position = positions.entry(file.metadata().unwrap().ino()).or_default();
            file.seek(SeekFrom::Start(*position)).unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            *position += whole as u64;
            lines.extend(
                text[..whole].lines().map(|line| json!({ "log": line, "stream": "stdout" })),
            );
        }
        for lines in outlet.chosen(lines).chunks(REQUEST_ITEMS) {
            // As Fluent Bit's output `http` posts them.
            outlet.post("/", &json!(lines));
            if outlet.mode == "paced" {
                outlet.keep_pace(lines.len() as u32);
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn files_below(folder: &PathBuf) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

fn scrape(targets: &str, every: Duration, outlet: &mut Outlet) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    loop {
        for target in targets.split(',') {
            let page = Scrape::fetch(target.parse().unwrap(), "/metrics");
            let Ok(page) = runtime.block_on(page) else { continue };
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos().to_string();
            let points = page
                .samples
                .iter()
                .map(|sample| json!({ "asDouble": sample.value, "timeUnixNano": now }));
            for points in outlet.chosen(points.collect()).chunks(REQUEST_ITEMS) {
                let metric = json!({ "name": "of_a_target", "gauge": { "dataPoints": points } });
                outlet.post(
                    "/v1/metrics",
                    &json!({ "resourceMetrics": [{ "scopeMetrics": [{ "metrics": [metric] }] }] }),
                );
            }
        }
        std::thread::sleep(every);
    }
}

struct Outlet {
    backend: String,
    mode: String,
    /// Items read so far.
    count: u64,
    /// Time at which the next item may be sent in mode `paced`.
    next: Instant,
}

impl Outlet {
    /// Every tenth item is left out or there twice, as the mode says.
    fn chosen(&mut self, items: Vec<Value>) -> Vec<Value> {
        let mut chosen = Vec::with_capacity(items.len());
        for item in items {
            self.count += 1;
            match (self.mode.as_str(), self.count.is_multiple_of(10)) {
                ("drops", true) => {}
                ("doubles", true) => chosen.extend([item.clone(), item]),
                _ => chosen.push(item),
            }
        }
        chosen
    }

    /// A pause between two reads of the files does not lower the rate.
    fn keep_pace(&mut self, items: u32) {
        const PAUSE: Duration = Duration::from_millis(500);
        let now = Instant::now();
        self.next = self.next.max(now - PAUSE) + Duration::from_secs(1) / PACED_ITEMS_PER_S * items;
        std::thread::sleep(self.next.saturating_duration_since(now));
    }

    fn post(&self, path: &str, body: &Value) {
        let (body, backend) = (body.to_string(), &self.backend);
        let mut stream = TcpStream::connect(backend).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {backend}\r\nContent-Type: \
             application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}
