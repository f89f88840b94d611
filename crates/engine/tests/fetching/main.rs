//! Receivers that fetch, in a real engine: in a process of its own, killed at random points, and
//! before a backend that is down. Each is a folder, `lines` and `scrape`, and its entry in the list
//! below; nothing else knows of it.

mod backend;
mod filelog;
mod lines;
mod pages;
mod records;
mod reloading;
mod scrape;
mod scraping;
mod started;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use sluice_config::SystemEnvironment;
use sluice_engine::{Engine, plan};
use sluice_receivers::ReceiverKinds;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

static RECEIVERS: ReceiverKinds = ReceiverKinds::new(&[lines::KIND, scrape::KIND]);

/// The kinds of receivers for a configuration: those of the build, or those of these tests.
fn kinds(config: &str) -> &'static ReceiverKinds {
    if config.contains("filelog") { &sluice_receivers::RECEIVERS } else { &RECEIVERS }
}

/// Holds the configuration of a process that runs an engine.
const CONFIG: &str = "SLUICE_TEST_CONFIG";
const MEMORY_LIMIT_MIB: u64 = 64;

fn config(folder: &Path, backend: SocketAddr, ack: &str) -> String {
    let folder = folder.display();
    format!(
        "receivers: {{lines: {{include: '{folder}/*.log', checkpoint: '{folder}/checkpoint'}}}}\n\
         exporters: {{otlphttp: {{endpoint: 'http://{backend}', compression: none}}}}\n\
         buffer: {{ack: {ack}, memory: {{limit_mib: {MEMORY_LIMIT_MIB}}}}}\n\
         service:\n  telemetry: {{metrics: {{readers: [{{pull: {{exporter: {{prometheus: \
         {{host: 127.0.0.1, port: 0}}}}}}}}]}}}}\n  \
         pipelines:\n    logs: {{receivers: [lines], exporters: [otlphttp]}}\n"
    )
}

/// Starts an engine. The directory of one that has just ended may stay locked for a moment.
async fn start(config: &str) -> Engine {
    for tries_left in (0..100).rev() {
        let (plan, diagnostics) =
            plan::load_with(&[format!("yaml:{config}")], &SystemEnvironment, kinds(config));
        let plan = plan.unwrap_or_else(|| panic!("{}", diagnostics.render(false)));
        match Engine::start(plan, None).await {
            Ok(engine) => return engine,
            Err(error) => assert!(tries_left > 0, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    unreachable!("the last try asserts")
}

/// Not a test of its own: the process that other tests start, and kill.
#[tokio::test]
async fn engine_process() {
    let Ok(config) = std::env::var(CONFIG) else { return };
    let engine = start(&config).await;
    println!("\nmetrics on {}", engine.metrics_address().expect("there are metrics"));
    std::future::pending::<()>().await;
}

struct Process {
    child: Child,
    metrics: SocketAddr,
}

impl Process {
    async fn start(config: &str) -> Process {
        let own = std::env::current_exe().expect("a path");
        let mut command = Command::new(own);
        command.args(["engine_process", "--exact", "--nocapture"]).env(CONFIG, config);
        let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("starts");
        let mut said = BufReader::new(child.stdout.take().expect("is piped")).lines();
        while let Some(line) = said.next_line().await.expect("is readable") {
            if let Some(address) = line.strip_prefix("metrics on ") {
                return Process { child, metrics: address.parse().expect("an address") };
            }
        }
        panic!("the process ended");
    }

    async fn kill(mut self) {
        self.child.kill().await.expect("is killed");
    }

    async fn metric(&self, name: &str) -> u64 {
        metric(self.metrics, name).await
    }

    /// The most memory that it ever had.
    fn peak_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id().expect("it runs"));
        let status = std::fs::read_to_string(path).expect("it runs");
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB")?.trim().parse().ok());
        peak.map(|kib: u64| kib << 10).expect("is a number")
    }
}

/// The value of the only sample whose name begins like this.
async fn metric(address: SocketAddr, name: &str) -> u64 {
    let mut socket = TcpStream::connect(address).await.expect("connects");
    let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    socket.write_all(request.as_bytes()).await.expect("is sent");
    let mut text = String::new();
    socket.read_to_string(&mut text).await.expect("is answered");
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.unwrap_or_else(|| panic!("no {name} in {text}")).rsplit(' ').next();
    value.and_then(|value| value.parse::<f64>().ok()).expect("a number") as u64
}

fn append(folder: &Path, file: &str, numbers: std::ops::Range<u32>, padding: &str) {
    let path = folder.join(file);
    let mut file_of =
        std::fs::OpenOptions::new().create(true).append(true).open(path).expect("a file");
    let text: String = numbers.map(|number| format!("{file} {number} {padding}\n")).collect();
    file_of.write_all(text.as_bytes()).expect("is written");
}

async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    for _ in 0..1200 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it never happened that {what}");
}

/// Scenario: the process is killed again and again while it reads files that grow, and its backend
/// refuses a third. Guarantee: each line arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_at_random_points_loses_no_line() {
    const FILES: [&str; 3] = ["a.log", "b.log", "c.log"];
    const LINES: u32 = 30_000;
    const ROUNDS: u32 = 8;
    let folder = tempfile::tempdir().expect("a folder");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let config = config(folder.path(), listener.local_addr().expect("an address"), "memory");
    let taken = backend::serve(listener, 3);
    let count = || taken.lock().expect("is not poisoned").len();
    for round in 0..ROUNDS {
        let numbers = LINES / ROUNDS * round..LINES / ROUNDS * (round + 1);
        let process = Process::start(&config).await;
        let before = count();
        FILES.iter().for_each(|file| append(folder.path(), file, numbers.clone(), ""));
        until("something arrives", async || count() > before).await;
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..300))).await;
        process.kill().await;
    }
    let process = Process::start(&config).await;
    let total = FILES.len() * (LINES / ROUNDS * ROUNDS) as usize;
    until("all lines arrive", async || count() == total).await;
    process.kill().await;
}

/// Scenario: a backend that is down, and files that are larger than all the memory. Guarantee:
/// reading stops at the delivery's limit; memory keeps its limit; when the backend is back every
/// line arrives once, and the checkpoint stands at the files' ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_stops_while_the_backend_is_down_and_memory_keeps_its_limit() {
    const LINES: u32 = 120_000;
    let folder = tempfile::tempdir().expect("a folder");
    let backend = backend::free_address().await;
    append(folder.path(), "a.log", 0..LINES, &"x".repeat(1000));
    let length = std::fs::metadata(folder.path().join("a.log")).expect("is there").len();
    assert!(length > (MEMORY_LIMIT_MIB * 3 / 2) << 20);
    let process = Process::start(&config(folder.path(), backend, "memory")).await;
    let read_bytes = async || process.metric("lines_read{").await;
    let budget = process.metric("sluice_delivery_budget_bytes").await;
    let stands = async || {
        let before = read_bytes().await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        before > 0 && before == read_bytes().await
    };
    until("reading stops", stands).await;
    let read = read_bytes().await;
    assert!(read < length, "all of it was read");
    assert!(read <= budget, "{read} bytes were read for a budget of {budget}");
    let (peak, limit) = (process.peak_bytes(), MEMORY_LIMIT_MIB << 20);
    assert!(peak <= limit + limit / 10, "{peak} bytes resident");
    let checkpoint =
        || std::fs::read_to_string(folder.path().join("checkpoint")).unwrap_or_default();
    assert_eq!(checkpoint(), "0 a.log\n", "nothing is resolved: a crash now would begin anew");

    let taken = backend::serve(TcpListener::bind(backend).await.expect("is free"), 0);
    until("all lines arrive", async || {
        taken.lock().expect("is not poisoned").len() == LINES as usize
    })
    .await;
    assert!(taken.lock().expect("is not poisoned").values().all(|times| *times == 1));
    until("the checkpoint is at the end", async || checkpoint() == format!("{length} a.log\n"))
        .await;
    process.kill().await;
}

/// Scenario: under `ack: delivered` a sole backend's refusal is handed to the sender; but files
/// have no sender to tell. Guarantee: lines that the backend refuses for good are set aside, the
/// rest arrives, and the checkpoint passes them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_backend_refuses_for_good_does_not_hold_up_the_checkpoint() {
    const LINES: u32 = 500;
    let folder = tempfile::tempdir().expect("a folder");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let config = config(folder.path(), listener.local_addr().expect("an address"), "delivered");
    let taken = backend::serve(listener, 0);
    append(folder.path(), "a.log", 0..LINES, "");
    append(folder.path(), "a.log", LINES..LINES + 1, "poison");
    append(folder.path(), "a.log", LINES + 1..2 * LINES, "");
    let length = std::fs::metadata(folder.path().join("a.log")).expect("is there").len();
    let process = Process::start(&config).await;
    let checkpoint =
        || std::fs::read_to_string(folder.path().join("checkpoint")).unwrap_or_default();
    until("the checkpoint is at the end", async || checkpoint() == format!("{length} a.log\n"))
        .await;
    assert_eq!(taken.lock().expect("is not poisoned").len() as u32, 2 * LINES - 1);
    process.kill().await;
}

/// Scenario: an orderly end while the backend is down, before anything was written to disk.
/// Guarantee: all that was read is on disk then, and its source knows: after the next start each
/// line arrives once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_orderly_end_writes_is_not_read_again() {
    const LINES: u32 = 2000;
    let folder = tempfile::tempdir().expect("a folder");
    let backend = backend::free_address().await;
    let on_disk =
        format!("buffer: {{directory: '{}/log', flush_after: 60s,", folder.path().display());
    let config = config(folder.path(), backend, "memory").replace("buffer: {", &on_disk);
    append(folder.path(), "a.log", 0..LINES, "");
    let length = std::fs::metadata(folder.path().join("a.log")).expect("is there").len();
    let checkpoint = || std::fs::read_to_string(folder.path().join("checkpoint"));
    let engine = start(&config).await;
    let metrics = engine.metrics_address().expect("there are metrics");
    until("all is read", async || metric(metrics, "lines_read{").await == length).await;
    until("there is a checkpoint", async || checkpoint().is_ok()).await;
    assert_eq!(checkpoint().expect("is there"), "0 a.log\n", "nothing is on disk");
    engine.shutdown(Duration::from_secs(5)).await;
    assert_eq!(checkpoint().expect("is there"), format!("{length} a.log\n"));

    let taken = backend::serve(TcpListener::bind(backend).await.expect("is free"), 0);
    append(folder.path(), "a.log", LINES..LINES + 1, "");
    let engine = start(&config).await;
    let count = || taken.lock().expect("is not poisoned").len() as u32;
    until("all lines arrive", async || count() == LINES + 1).await;
    engine.shutdown(Duration::from_secs(5)).await;
    assert!(taken.lock().expect("is not poisoned").values().all(|times| *times == 1));
}
