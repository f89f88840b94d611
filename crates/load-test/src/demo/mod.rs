//! The demonstration: one gateway, three pipelines, one of their backends healthy, one refusing most requests, one dead.

mod report;
mod sampling;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use sluice_otlp::Signal;
use tokio::time::{Instant, sleep};

pub use report::{DemoReport, PipelineReport};
use sampling::Sampler;

use crate::backend::{Backend, BackendOptions, Faults};
use crate::generate::{Load, LoadReport, Retry, RunningLoad};
use crate::progress::ProgressView;

/// Share of the requests that the sick backend answers with UNAVAILABLE, as in the Kyma load test.
const REFUSED_SHARE: f64 = 0.7;
/// That load test's generators: 2 with 10 workers each, 512 spans a request.
const GENERATORS: usize = 2;
const WORKERS: usize = 10;
const SPANS_PER_REQUEST: u32 = 512;

/// The demonstration's backends, embedded in this process.
pub struct DemoBackends {
    pub healthy: Backend,
    pub refusing: Backend,
    pub dead: Backend,
}

impl DemoBackends {
    pub async fn start() -> std::io::Result<Self> {
        let with = |faults| Backend::start(BackendOptions::default().faults(faults));
        Ok(DemoBackends {
            healthy: with(Faults::none()).await?,
            refusing: with(Faults::unavailable(REFUSED_SHARE)).await?,
            dead: with(Faults::dead()).await?,
        })
    }

    /// Name of the pipeline's exporter, what is wrong with its backend, and the backend.
    fn pipelines(&self) -> [(&'static str, &'static str, &Backend); 3] {
        [
            ("otlp/healthy", "healthy", &self.healthy),
            ("otlp/refusing", "70 % answered 503", &self.refusing),
            ("otlp/dead", "dead", &self.dead),
        ]
    }

    /// The gateway's configuration, in the Collector's YAML: pipelines `traces/healthy`, `traces/refusing`, `traces/dead`.
    pub fn gateway_config(&self, listen: SocketAddr, metrics: SocketAddr) -> String {
        let mut exporters = String::new();
        let mut pipelines = String::new();
        for (exporter, _, backend) in self.pipelines() {
            let name = exporter.trim_start_matches("otlp/");
            let endpoint = backend.addr();
            exporters.push_str(&format!(
                "  {exporter}:\n    endpoint: {endpoint}\n    compression: none\n    tls:\n      insecure: true\n"
            ));
            pipelines
                .push_str(&format!("    traces/{name}:\n      receivers: [otlp]\n      exporters: [{exporter}]\n"));
        }
        format!(
            "receivers:\n  otlp:\n    protocols:\n      grpc:\n        endpoint: {listen}\n\
             exporters:\n{exporters}\
             service:\n  telemetry:\n    metrics:\n      readers:\n        - pull:\n            exporter:\n\
             \x20             prometheus:\n                host: {}\n                port: {}\n  pipelines:\n{pipelines}",
            metrics.ip(),
            metrics.port(),
        )
    }
}

/// What is sent to which gateway.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// The gateway's OTLP gRPC receiver.
    pub gateway: SocketAddr,
    /// Where the gateway serves its Prometheus metrics.
    pub metrics: SocketAddr,
    /// The gateway's process, for memory and CPU.
    pub pid: u32,
    pub spans_per_s: f64,
    pub duration: Duration,
    /// How long the healthy and the refusing backend may take to get the rest after the load has ended.
    pub drain_within: Duration,
}

impl DemoOptions {
    /// 20,000 spans a second for 30 seconds, 10 seconds to drain.
    pub fn new(gateway: SocketAddr, metrics: SocketAddr, pid: u32) -> Self {
        DemoOptions {
            gateway,
            metrics,
            pid,
            spans_per_s: 20_000.0,
            duration: Duration::from_secs(30),
            drain_within: Duration::from_secs(10),
        }
    }
}

/// Sends the load, waits for the drain, and reports. Shows its progress on standard error.
pub async fn run(options: &DemoOptions, backends: &DemoBackends) -> anyhow::Result<DemoReport> {
    let mut sampler = Sampler::new(options.metrics, options.pid);
    sampler.sample().await.context("the gateway does not answer for its metrics")?;
    let loads: Vec<RunningLoad> = (0..GENERATORS).map(|_| load(options).start()).collect::<Result<_, _>>()?;
    let began = Instant::now();
    let progress = ProgressView::new(options.duration);
    while began.elapsed() < options.duration {
        sleep(Duration::from_secs(1).min(options.duration.saturating_sub(began.elapsed()))).await;
        sampler.sample().await?;
        progress.show(began.elapsed(), &describe(&loads, backends, &sampler));
    }
    progress.done();
    let exported_in_time = backends.pipelines().map(|(_, _, backend)| backend.unique_items());
    let load_took = began.elapsed();
    let mut reports = Vec::new();
    for load in loads {
        reports.push(load.finish().await?);
    }
    let drain = Instant::now();
    wait_for_drain(&reports, backends, options.drain_within).await;
    let drained_after = drain.elapsed();
    let at_end_of_load = sampler.last().clone();
    sampler.sample_after_load().await?;
    let pipelines = backends.pipelines().into_iter().zip(exported_in_time);
    let pipelines = pipelines.map(|((exporter, condition, backend), exported_in_time)| {
        let missing = reports.iter().map(|report| report.missing_at(backend)).sum();
        PipelineReport {
            exporter: exporter.to_owned(),
            condition: condition.to_owned(),
            exported: backend.unique_items(),
            exported_per_s: exported_in_time as f64 / load_took.as_secs_f64(),
            doubled: backend.counts().doubled,
            missing,
            queue_size: at_end_of_load.scrape.sum("otelcol_exporter_queue_size", &[("exporter", exporter)]),
            backlog: sampler.last().scrape.sum("sluice_delivery_backlog_items", &[("exporter", exporter)]),
            dropped: sampler.last().scrape.sum("sluice_delivery_dropped_items", &[("exporter", exporter)]),
            latency: backend.latency(),
        }
    });
    Ok(DemoReport {
        pipelines: pipelines.collect(),
        offered: reports.iter().map(|report| report.offered).sum(),
        accepted: reports.iter().map(|report| report.accepted).sum(),
        load_took,
        drained_after,
        memory_max_bytes: sampler.memory_max_bytes(),
        cpu_cores: sampler.cpu_cores(),
    })
}

fn load(options: &DemoOptions) -> Load {
    let load = Load::new(Signal::Traces, options.gateway)
        .rate(options.spans_per_s / GENERATORS as f64)
        .duration(options.duration)
        .retry(Retry::SDK)
        .concurrency(1, WORKERS);
    load.items_per_request(SPANS_PER_REQUEST)
}

/// Waits until the two backends that live have everything that was accepted, or for `limit`.
async fn wait_for_drain(reports: &[LoadReport], backends: &DemoBackends, limit: Duration) {
    let missing = || {
        reports.iter().any(|report| report.missing_at(&backends.healthy) + report.missing_at(&backends.refusing) > 0)
    };
    let began = Instant::now();
    while missing() && began.elapsed() < limit {
        sleep(Duration::from_millis(50)).await;
    }
}

fn describe(loads: &[RunningLoad], backends: &DemoBackends, sampler: &Sampler) -> String {
    let accepted: u64 = loads.iter().map(|load| load.progress().accepted()).sum();
    let [healthy, refusing, _] = backends.pipelines().map(|(_, _, backend)| backend.unique_items());
    let memory = sampler.last().usage.rss_bytes >> 20;
    format!("accepted {accepted}, healthy backend {healthy}, refusing backend {refusing}, gateway {memory} MiB")
}
