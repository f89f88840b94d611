//! The real binary as a gateway: started with a configuration on free ports, watched, reloaded, and
//! ended with the test.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::{self, Pid};
use sluice_load_test::backend::{Delay, Refuse};
use sluice_load_test::scrape::Scrape;
use sluice_load_test::subject::{Limits, Subject, SubjectSpec, Usage, free_addr};
use sluice_load_test::{Backend, BackendOptions, Code, Faults, Load, LoadReport};
use sluice_otlp::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Mutex, MutexGuard};

pub(crate) const MIB: u64 = 1 << 20;
/// Time limit for events that are immediate on an idle machine.
pub(crate) const SOON: Duration = Duration::from_secs(15);

/// Holds the machine for one load at a time: two at once would measure each other.
pub(crate) async fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::const_new(());
    MACHINE.lock().await
}

/// Options of a gateway's start beside its configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Arguments after `sluice run`.
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) limits: Limits,
    pub(crate) cpus: Vec<usize>,
    /// The hard and the soft limit on open files.
    pub(crate) open_files: Option<u64>,
    /// The address of OTLP over gRPC, for one that follows another.
    pub(crate) grpc: Option<SocketAddr>,
    /// Its start is not waited for.
    pub(crate) still_starts: bool,
}

/// A running gateway. Its receiver `otlp`, metrics and health check are configured here, all else
/// by the test.
pub(crate) struct Gateway {
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) metrics: SocketAddr,
    pub(crate) health: SocketAddr,
    subject: Subject,
}

impl Gateway {
    /// Starts it with this configuration, which is merged over the receiver's, and waits until it
    /// listens.
    pub(crate) async fn start(config: &str) -> Gateway {
        Gateway::start_with(config, Options::default()).await
    }

    pub(crate) async fn start_with(config: &str, options: Options) -> Gateway {
        let [grpc, http, metrics, health] = [(); 4].map(|()| free_addr().expect("a free port"));
        let grpc = options.grpc.unwrap_or(grpc);
        let base = base_config(grpc, http, metrics, health);
        let (mut binary, mut args) = (binary(), Vec::new());
        if let Some(limit) = options.open_files {
            let script = "ulimit -n \"$0\" && exec \"$@\"".to_owned();
            args.extend(["-c".to_owned(), script, limit.to_string(), binary.display().to_string()]);
            binary = PathBuf::from("/bin/sh");
        }
        args.extend(
            ["run", "--config", "env:GATEWAY_BASE", "--config", "{config}"].map(str::to_owned),
        );
        args.extend(options.args);
        let mut env = options.env;
        env.push(("GATEWAY_BASE".to_owned(), base));
        let subject = Subject::start(SubjectSpec {
            name: "sluice".to_owned(),
            binary,
            args,
            config: config.to_owned(),
            config_file: "gateway.yaml".to_owned(),
            env,
            cpus: options.cpus,
            limits: options.limits,
            ready: (!options.still_starts).then(|| health.into()),
            ..SubjectSpec::default()
        })
        .await
        .unwrap_or_else(|error| panic!("{error}"));
        Gateway { grpc, http, metrics, health, subject }
    }

    /// The file that the test's part of the configuration is read from.
    pub(crate) fn config_path(&self) -> PathBuf {
        self.subject.folder().join("gateway.yaml")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.subject.pid()
    }

    /// Everything that it wrote to standard output and standard error.
    pub(crate) fn output(&self) -> String {
        self.subject.output()
    }

    pub(crate) fn usage(&self) -> Usage {
        self.subject.usage().expect("the gateway runs")
    }

    /// Periods of 100 ms in which it wanted more CPU time than its quota; zero if the kernel does
    /// not say.
    pub(crate) fn throttled_periods(&self) -> u64 {
        let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", self.pid()));
        let throttled = |line: &str| -> Option<u64> {
            let (_, group) = line.split_once(':')?;
            let (controllers, path) = group.split_once(':')?;
            let stat = format!("/sys/fs/cgroup/{controllers}{path}/cpu.stat");
            let stat = std::fs::read_to_string(stat).ok()?;
            stat.lines().find_map(|line| line.strip_prefix("nr_throttled ")?.parse().ok())
        };
        groups.unwrap_or_default().lines().find_map(throttled).unwrap_or(0)
    }

    /// Limits of the operating system that could not be set.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.subject.warnings
    }

    /// Asserts that resident memory never exceeded this limit by more than a tenth.
    pub(crate) fn assert_memory_within(&self, limit_mib: u64) {
        let peak = self.usage().peak_rss_bytes;
        assert!(
            peak <= limit_mib * MIB * 11 / 10,
            "{} MiB resident of {limit_mib} MiB",
            peak / MIB
        );
    }

    pub(crate) fn terminate(&self) {
        self.signal(process::Signal::TERM);
    }

    pub(crate) fn signal(&self, signal: process::Signal) {
        send_signal(&self.subject, signal);
    }

    /// Kills it with SIGKILL.
    pub(crate) async fn kill(mut self) {
        self.signal(process::Signal::KILL);
        self.ended_within(SOON).await;
    }

    /// Waits for the end.
    pub(crate) async fn ended_within(&mut self, patience: Duration) -> ExitStatus {
        ended_within(&self.subject, patience).await
    }

    pub(crate) async fn scrape(&self) -> Scrape {
        Scrape::fetch(self.metrics, "/metrics").await.expect("metrics")
    }

    /// The sum of a metric with these labels; zero where there is none.
    pub(crate) async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.scrape().await.sum(name, labels).unwrap_or(0.0)
    }

    /// Writes another configuration in the place of the first, and asks for a reload.
    pub(crate) fn reconfigure(&self, config: &str) {
        std::fs::write(self.config_path(), config).expect("the configuration can be written");
        self.signal(process::Signal::HUP);
    }

    /// [`Gateway::reconfigure`], and waits until it is in force.
    pub(crate) async fn reload(&self, config: &str) {
        let before = self.count_in_output("reloaded");
        self.reconfigure(config);
        self.wait_for_output("reloaded", before + 1).await;
        assert!(!self.output().contains("not reloaded"), "{}", self.output());
    }

    pub(crate) fn count_in_output(&self, text: &str) -> usize {
        self.output().matches(text).count()
    }

    /// Waits until it has written a text this many times.
    pub(crate) async fn wait_for_output(&self, text: &str, times: usize) {
        let came = eventually(SOON, async || self.count_in_output(text) >= times).await;
        assert!(came, "no `{text}` in:\n{}", self.output());
    }

    /// Status and body of the health check.
    pub(crate) async fn health(&self) -> Option<(u16, String)> {
        get(self.health, "/").await
    }

    pub(crate) async fn dead_letters(&self) -> String {
        get(self.metrics, "/dead-letters").await.expect("an answer").1
    }

    /// Sends this many spans, which are all accepted.
    pub(crate) async fn accepts(&self, items: u64) -> LoadReport {
        let report = self.load(Signal::Traces).items(items).run().await.expect("a load");
        assert_eq!(report.accepted, items, "{:?}", report.messages);
        report
    }

    /// Waits until there is a backlog of this many items for an exporter.
    pub(crate) async fn holds(&self, exporter: &str, items: u64) {
        let backlog =
            async || self.metric("sluice_delivery_backlog_items", &[("exporter", exporter)]).await;
        let has = async || backlog().await == items as f64;
        assert!(eventually(SOON, has).await, "{} items are held, not {items}", backlog().await);
    }

    /// A load of this signal, in the form of the Kyma telemetry load test.
    pub(crate) fn load(&self, signal: Signal) -> Load {
        Load::new(signal, self.grpc)
    }
}

/// The binary under test. Comparisons of latencies want the one that users run.
fn binary() -> PathBuf {
    let given = std::env::var_os("SLUICE_TEST_BINARY");
    given.map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_sluice")), PathBuf::from)
}

/// Sends a signal to a subject's process group.
pub(crate) fn send_signal(subject: &Subject, signal: process::Signal) {
    let group = Pid::from_raw(subject.pid().cast_signed()).expect("a process");
    // An error means that it has ended.
    let _ = process::kill_process_group(group, signal);
}

/// Waits for a subject's end.
pub(crate) async fn ended_within(subject: &Subject, patience: Duration) -> ExitStatus {
    let ended = eventually(patience, async || subject.lives().is_down).await;
    assert!(ended, "still running after {patience:?}:\n{}", subject.output_tail());
    subject.lives().last_end.expect("a status")
}

fn base_config(
    grpc: SocketAddr,
    http: SocketAddr,
    metrics: SocketAddr,
    health: SocketAddr,
) -> String {
    format!(
        "receivers:\n  otlp:\n    protocols:\n      grpc:\n        endpoint: {grpc}\n      http:\n        endpoint: {http}\n\
         extensions:\n  health_check:\n    endpoint: {health}\n\
         service:\n  extensions: [health_check]\n  telemetry:\n    metrics:\n      \
         readers:\n        - pull:\n            \
         exporter:\n              prometheus:\n                host: {}\n                \
         port: {}\n                without_type_suffix: false\n                \
         without_units: false\n",
        metrics.ip(),
        metrics.port(),
    )
}

/// An exporter `otlp/NAME` to this backend, as lines of the section `exporters`.
pub(crate) fn exporter(name: &str, backend: &Backend) -> String {
    format!(
        "  otlp/{name}:\n    endpoint: {}\n    compression: none\n    tls:\n      insecure: true\n",
        backend.addr()
    )
}

/// A configuration of one pipeline a backend, `SIGNAL/NAME` with the exporter `otlp/NAME`.
pub(crate) fn fan_out(signal: Signal, limit_mib: u64, backends: &[(&str, &Backend)]) -> String {
    let exporters: String =
        backends.iter().map(|(name, backend)| exporter(name, backend)).collect();
    let pipelines = backends.iter().map(|(name, _)| {
        format!("    {signal}/{name}:\n      receivers: [otlp]\n      exporters: [otlp/{name}]\n")
    });
    let pipelines: String = pipelines.collect();
    format!(
        "exporters:\n{exporters}buffer:\n  memory:\n    limit_mib: {limit_mib}\nservice:\n  pipelines:\n{pipelines}"
    )
}

/// Sends an HTTP request. `None`: there is no answer.
pub(crate) async fn get(addr: SocketAddr, path: &str) -> Option<(u16, String)> {
    request(addr, &format!("GET {path} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n\r\n"))
        .await
}

/// Sends a request as it stands and reads the answer to its end: the status, and everything.
pub(crate) async fn request(addr: SocketAddr, text: &str) -> Option<(u16, String)> {
    let mut stream = tokio::net::TcpStream::connect(addr).await.ok()?;
    stream.write_all(text.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    Some((status, answer))
}

/// A backend with these faults.
pub(crate) async fn faulty_backend(faults: Faults) -> Backend {
    let options = BackendOptions { faults, ..BackendOptions::default() };
    Backend::start(options).await.expect("a backend")
}

/// A backend that keeps this many of the last requests.
pub(crate) async fn keeping_backend(keep_requests: usize) -> Backend {
    let options = BackendOptions { keep_requests, ..BackendOptions::default() };
    Backend::start(options).await.expect("a backend")
}

/// Answers a share of the requests with this code.
pub(crate) fn refusing(share: f64, code: Code) -> Faults {
    Faults { refuse: Some(Refuse { share, code, retry_delay: None }), ..Faults::default() }
}

/// Answers all requests only after this time.
pub(crate) fn delaying(by: Duration) -> Faults {
    Faults { delay: Some(Delay { share: 1.0, by }), ..Faults::default() }
}

/// Waits until something holds; false if it does not within this time.
pub(crate) async fn eventually(limit: Duration, holds: impl AsyncFn() -> bool) -> bool {
    let began = Instant::now();
    loop {
        if holds().await {
            return true;
        }
        if began.elapsed() >= limit {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until this many different items have come; false if they have not by then.
pub(crate) async fn items_arrive(backend: &Backend, items: u64, limit: Duration) -> bool {
    eventually(limit, async || backend.unique_items() >= items).await
}

/// Asserts that everything that was acknowledged arrives at a backend within this time, exactly
/// once.
pub(crate) async fn assert_arrives_once(report: &LoadReport, backend: &Backend, limit: Duration) {
    let arrived = eventually(limit, async || report.missing_at(backend) == 0).await;
    let missing = report.missing_at(backend);
    assert!(
        arrived,
        "{missing} of {} acknowledged items are missing after {limit:?}",
        report.accepted
    );
    let counts = backend.counts();
    assert_eq!((counts.doubled, counts.unidentified), (0, 0), "sent twice, of unknown origin");
}

/// Asserts that an open-loop load was taken as it was offered.
pub(crate) fn assert_all_accepted(report: &LoadReport) {
    let ended = (report.never_sent, report.refused, report.failed, report.unanswered);
    assert_eq!(
        ended,
        (0, 0, 0, 0),
        "never sent, refused, failed, unanswered; {:?}",
        report.messages
    );
    assert_eq!(report.accepted, report.offered);
}
