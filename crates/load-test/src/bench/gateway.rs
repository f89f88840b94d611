//! A contestant as the gateway of a scenario: configured alike whoever it is, and watched.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use sluice_otlp::Signal;
use tokio::time::{Instant, sleep};

use super::measure::Contestant;
use crate::backend::Backend;
use crate::generate::{Load, LoadReport, Protocol};
use crate::scrape::Scrape;
use crate::subject::{Limits, Subject, Usage, free_addr, usage_of_process};

/// One OTLP gRPC receiver, `memory_limiter`, and one pipeline of traces a backend: everything else is the subject's
/// own default.
pub(super) struct Setting<'a> {
    pub(super) contestant: &'a Contestant,
    pub(super) memory_limit_mib: u64,
    /// Pipeline `traces/0` exports to the first by `otlp/0`, and so on.
    pub(super) backends: Vec<SocketAddr>,
    /// Lines of YAML that only Sluice gets.
    pub(super) sluice_only: &'a str,
    pub(super) limits: Limits,
    pub(super) cpus: &'a [usize],
}

/// What an exporter waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    OwnDefault,
    Persistent,
}

/// For the Collector: lines before `exporters`, in `service`, and of each exporter.
const COLLECTOR_QUEUE: (&str, &str, &str) = (
    "extensions:\n  file_storage:\n    directory: {dir}/queue\n    create_directory: true\n",
    "  extensions: [file_storage]\n",
    "    sending_queue:\n      storage: file_storage\n      queue_size: 1000000\n    retry_on_failure:\n      \
     initial_interval: 1s\n      max_interval: 5s\n      max_elapsed_time: 0s\n",
);

impl Setting<'_> {
    fn to_yaml(&self, listen: SocketAddr, metrics: SocketAddr, queue: Queue, protocol: Protocol) -> String {
        let is_sluice = matches!(self.contestant, Contestant::Sluice { .. });
        let (extensions, in_service, of_exporter) =
            if queue == Queue::Persistent && !is_sluice { COLLECTOR_QUEUE } else { ("", "", "") };
        let (kind, scheme) = match protocol {
            Protocol::Grpc => ("otlp", ""),
            Protocol::Http => ("otlphttp", "http://"),
        };
        let mut exporters = String::new();
        let mut pipelines = String::new();
        for (index, backend) in self.backends.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(exporters, "  {kind}/{index}:\n    endpoint: {scheme}{backend}\n    compression: none");
            let _ = writeln!(exporters, "    tls:\n      insecure: true\n{of_exporter}");
            let _ = writeln!(pipelines, "    traces/{index}:\n      receivers: [otlp]");
            let _ = writeln!(pipelines, "      processors: [memory_limiter]\n      exporters: [{kind}/{index}]");
        }
        let (ip, port) = (metrics.ip(), metrics.port());
        let own = if is_sluice { self.sluice_only } else { "" };
        format!(
            "receivers:\n  otlp:\n    protocols:\n      grpc:\n        endpoint: {listen}\n\
             processors:\n  memory_limiter:\n    check_interval: 100ms\n    limit_mib: {}\n\
             {extensions}exporters:\n{exporters}{own}\
             service:\n{in_service}  telemetry:\n    logs:\n      level: error\n    metrics:\n      readers:\n        - pull:\n\
             \x20           exporter:\n              prometheus:\n                host: {ip}\n                port: {port}\n\
             \x20 pipelines:\n{pipelines}",
            self.memory_limit_mib,
        )
    }

    /// Starts it. An error where the contestant cannot be a gateway or a limit cannot be set.
    pub(super) async fn start(&self) -> anyhow::Result<Gateway> {
        self.start_with(Queue::OwnDefault, Protocol::Grpc).await
    }

    /// As [`Setting::start`], with exporters of this protocol: `otlphttp/0` and so on for HTTP.
    pub(super) async fn start_over(&self, protocol: Protocol) -> anyhow::Result<Gateway> {
        self.start_with(Queue::OwnDefault, protocol).await
    }

    /// As [`Setting::start`]; the Collector gets a persistent queue that holds whatever comes. What Sluice has on disk, `sluice_only` says.
    pub(super) async fn start_with_persistent_queue(&self) -> anyhow::Result<Gateway> {
        self.start_with(Queue::Persistent, Protocol::Grpc).await
    }

    async fn start_with(&self, queue: Queue, protocol: Protocol) -> anyhow::Result<Gateway> {
        let (listen, metrics) = (free_addr()?, free_addr()?);
        let config = self.to_yaml(listen, metrics, queue, protocol);
        let spec = self.contestant.gateway(config, listen).context("a relay is no gateway")?;
        let subject =
            Subject::start(crate::subject::SubjectSpec { cpus: self.cpus.to_vec(), limits: self.limits, ..spec });
        let subject = subject.await?;
        // Without its limits the numbers would mean something else.
        anyhow::ensure!(subject.warnings().is_empty(), "{}", subject.warnings().join("; "));
        Ok(Gateway { subject, listen, metrics, memory_limit_bytes: self.memory_limit_mib << 20 })
    }
}

/// A running contestant.
pub(super) struct Gateway {
    subject: Subject,
    listen: SocketAddr,
    metrics: SocketAddr,
    memory_limit_bytes: u64,
}

impl Gateway {
    /// Spans of 40 attributes, 100 a request.
    pub(super) fn load(&self) -> Load {
        Load::new(Signal::Traces, self.listen)
    }

    /// Its own count of something, summed over the samples with these labels. `None`: it does not say.
    pub(super) async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        Scrape::fetch(self.metrics).await.ok()?.sum(name, labels)
    }

    fn ended(&self) -> String {
        format!("{} has ended; the end of its output:\n{}", self.subject.name(), self.subject.output_tail())
    }

    pub(super) fn memory(&self) -> anyhow::Result<Memory> {
        let usage = usage_of_process(self.subject.pid()).with_context(|| self.ended())?;
        Ok(Memory { peak_bytes: usage.peak_rss_bytes, limit_bytes: self.memory_limit_bytes })
    }

    pub(super) fn reading(&self) -> anyhow::Result<Reading> {
        Ok(Reading {
            at: Instant::now(),
            subject: usage_of_process(self.subject.pid()).with_context(|| self.ended())?,
            bench: usage_of_process(std::process::id()).context("/proc is not readable")?,
        })
    }
}

/// Highest resident memory since the start, and what the configuration allows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    pub(super) peak_bytes: u64,
    pub(super) limit_bytes: u64,
}

impl Memory {
    /// 1.0: as much as is allowed.
    pub(super) fn share(&self) -> f64 {
        self.peak_bytes as f64 / self.limit_bytes as f64
    }
}

/// CPU time of subject and bench at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    at: Instant,
    subject: Usage,
    bench: Usage,
}

impl Reading {
    pub(super) fn until(&self, later: &Reading) -> Taken {
        let elapsed_s = (later.at - self.at).as_secs_f64();
        let subject_cpu_s = (later.subject.cpu - self.subject.cpu).as_secs_f64();
        let bench_cpu_s = (later.bench.cpu - self.bench.cpu).as_secs_f64();
        Taken { elapsed_s, subject_cpu_s, subject_core: subject_cpu_s / elapsed_s, bench_core: bench_cpu_s / elapsed_s }
    }
}

/// What was taken between two readings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    pub(super) elapsed_s: f64,
    pub(super) subject_cpu_s: f64,
    /// Share of a core.
    pub(super) subject_core: f64,
    /// Of generator and backends. Close to 1.0 the bench is the limit, not the subject.
    pub(super) bench_core: f64,
}

/// Waits until these backends have everything that was acknowledged, or for `limit`. How long that took; `None`: they
/// have not.
pub(super) async fn drained(report: &LoadReport, backends: &[&Backend], limit: Duration) -> Option<Duration> {
    let began = Instant::now();
    loop {
        if backends.iter().all(|backend| report.missing_at(backend) == 0) {
            return Some(began.elapsed());
        }
        if began.elapsed() >= limit {
            return None;
        }
        sleep(Duration::from_millis(20)).await;
    }
}
