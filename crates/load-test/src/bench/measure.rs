//! One measurement: a subject on its core does one row's work for a while.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::time::{Instant, sleep};

use super::rows::{Kind, Row};
use crate::backend::{Backend, BackendOptions, Counting};
use crate::generate::{Load, Pace, Retry};
use crate::latency::Latency;
use crate::subject::{Dialect, GatewayConfig, Subject, SubjectSpec, Usage, free_addr, nginx_relay, usage_of_process};

/// Before counting begins: connections are made, allocators and windows have grown.
const WARM_UP: Duration = Duration::from_millis(1000);
/// A subject that gathers items before it sends any (or has hardly a share of its core) has so long to show the first.
const FIRST_ITEMS_WITHIN: Duration = Duration::from_secs(30);
/// At rest a process is looked at after this time.
const REST: Duration = Duration::from_secs(3);
/// How often memory is looked at.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// Who is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contestant {
    Nginx { binary: PathBuf, keepalive: bool },
    Sluice { binary: PathBuf, batch: bool },
    Collector { binary: PathBuf },
}

impl Contestant {
    pub fn name(&self) -> &'static str {
        match self {
            Contestant::Nginx { .. } => "nginx",
            Contestant::Sluice { .. } => "sluice",
            Contestant::Collector { .. } => "otelcol",
        }
    }

    /// Whether it can do the row's work.
    pub fn takes(&self, row: &Row) -> bool {
        row.relay || !matches!(self, Contestant::Nginx { .. })
    }

    fn spec(&self, row: &Row, listen: SocketAddr, backends: &[SocketAddr]) -> anyhow::Result<SubjectSpec> {
        let gateway = |dialect, batch| -> anyhow::Result<String> {
            let config = GatewayConfig {
                dialect,
                signal: row.signal,
                listen,
                metrics: free_addr()?,
                backends: backends.to_vec(),
                gzip_out: row.gzip_out,
                resource_insert: row.resource_insert,
                attributes_upsert: row.attributes_upsert,
                batch,
            };
            Ok(config.to_yaml())
        };
        let (args, config): (&[&str], _) = match self {
            Contestant::Nginx { keepalive, .. } => (
                &["-e", "{dir}/error.log", "-p", "{dir}", "-c", "{config}"],
                nginx_relay(listen, backends[0], *keepalive),
            ),
            Contestant::Sluice { batch, .. } => (Self::SLUICE_ARGS, gateway(Dialect::SluiceDelivered, *batch)?),
            Contestant::Collector { .. } => (Self::COLLECTOR_ARGS, gateway(Dialect::Collector, true)?),
        };
        Ok(self.start_with(args, config, listen))
    }

    /// As a gateway with this configuration in the Collector's YAML; `None` for a mere relay.
    pub(super) fn gateway(&self, config: String, listen: SocketAddr) -> Option<SubjectSpec> {
        let args = match self {
            Contestant::Nginx { .. } => return None,
            Contestant::Sluice { .. } => Self::SLUICE_ARGS,
            Contestant::Collector { .. } => Self::COLLECTOR_ARGS,
        };
        Some(self.start_with(args, config, listen))
    }

    const SLUICE_ARGS: &[&str] = &["run", "--config", "{config}"];
    const COLLECTOR_ARGS: &[&str] = &["--config", "{config}"];

    fn start_with(&self, args: &[&str], config: String, listen: SocketAddr) -> SubjectSpec {
        let (binary, env) = match self {
            Contestant::Nginx { binary, .. } | Contestant::Sluice { binary, .. } => (binary, vec![]),
            // It has one core, and by itself would count the machine's.
            Contestant::Collector { binary } => (binary, vec![("GOMAXPROCS".to_owned(), "1".to_owned())]),
        };
        SubjectSpec {
            name: self.name().to_owned(),
            binary: binary.clone(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            config,
            config_file: "config.yaml".to_owned(),
            env,
            ready: Some(listen.into()),
            ..SubjectSpec::default()
        }
    }
}

/// What came of one turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measurement {
    /// CPU seconds of the subject a million items that reached a backend. Zero where nothing was sent.
    pub cpu_s_per_million: f64,
    /// Delivered to each backend, on average.
    pub items_per_s: f64,
    /// Highest resident memory that was seen in the window.
    pub rss_bytes: u64,
    /// Share of a core that the subject took.
    pub subject_core: f64,
    /// Share of a core that generator and backends took.
    pub bench_core: f64,
    /// From sending to acknowledgement.
    pub latency: Latency,
    /// Requests that did not get OK at the first attempt.
    pub turned_away: u64,
}

/// Runs one turn. `cpus`: where the subject runs.
pub async fn measure(
    contestant: &Contestant,
    row: &Row,
    window: Duration,
    cpus: &[usize],
) -> anyhow::Result<Measurement> {
    let bytes_per_item = row.shape().bytes_per_item();
    let mut backends = Vec::new();
    for _ in 0..row.pipelines {
        let counting = Counting::Light { bytes_per_item };
        backends.push(Backend::start(BackendOptions { counting, ..BackendOptions::default() }).await?);
    }
    let addrs: Vec<_> = backends.iter().map(Backend::addr).collect();
    let listen = free_addr()?;
    let mut spec = contestant.spec(row, listen, &addrs)?;
    spec.cpus = cpus.to_vec();
    let subject = Subject::start(spec).await?;
    match row.kind {
        Kind::MemoryAtRest => {
            sleep(REST).await;
            let usage = subject.usage().context("the subject has ended")?;
            Ok(Measurement { rss_bytes: usage.rss_bytes, ..Measurement::default() })
        }
        Kind::Cost => under_load(&subject, &backends, load(row, listen, Pace::Closed), window).await,
        Kind::MemoryAtRate { items_per_s } => {
            under_load(&subject, &backends, load(row, listen, Pace::Open { items_per_s }), window).await
        }
    }
}

fn load(row: &Row, target: SocketAddr, pace: Pace) -> Load {
    Load {
        shape: row.shape(),
        encoding: row.encoding,
        pace,
        // Those who are turned away come back a little later, as clients do; they must not spin.
        retry: Retry::Backoff {
            initial: Duration::from_millis(50),
            max: Duration::from_millis(500),
            give_up_after: Duration::from_secs(10),
        },
        duration: Some(Duration::from_secs(3600)),
        grace: Duration::from_secs(1),
        ..Load::new(row.signal, target)
    }
}

/// Subject, bench and delivered items at one moment.
struct Reading {
    at: Instant,
    subject: Usage,
    bench: Usage,
    items: f64,
}

impl Reading {
    fn take(subject: &Subject, backends: &[Backend]) -> anyhow::Result<Reading> {
        let ended = || format!("{} has ended; the end of its output:\n{}", subject.name(), subject.output_tail());
        Ok(Reading {
            at: Instant::now(),
            subject: subject.usage().with_context(ended)?,
            bench: usage_of_process(std::process::id()).context("/proc is not readable")?,
            items: delivered(backends),
        })
    }
}

/// Items to each backend, on average.
fn delivered(backends: &[Backend]) -> f64 {
    backends.iter().map(Backend::items).sum::<u64>() as f64 / backends.len() as f64
}

async fn under_load(
    subject: &Subject,
    backends: &[Backend],
    load: Load,
    window: Duration,
) -> anyhow::Result<Measurement> {
    let running = load.start()?;
    sleep(WARM_UP).await;
    let before = Reading::take(subject, backends)?;
    let mut rss_bytes = before.subject.rss_bytes;
    let nothing_came = || delivered(backends) <= before.items;
    while before.at.elapsed() < window || (nothing_came() && before.at.elapsed() < FIRST_ITEMS_WITHIN) {
        sleep(SAMPLE_EVERY).await;
        // One that has ended shows in the reading after the window.
        rss_bytes = rss_bytes.max(usage_of_process(subject.pid()).map_or(0, |usage| usage.rss_bytes));
    }
    let after = Reading::take(subject, backends)?;
    running.stop();
    let report = running.finish().await?;
    let elapsed_s = (after.at - before.at).as_secs_f64();
    let items = after.items - before.items;
    ensure!(items > 0.0, "{}: nothing arrived at the backend: {:?}", subject.name(), report.messages);
    let cpu_s = (after.subject.cpu - before.subject.cpu).as_secs_f64();
    let turned_away = report.endings.iter().filter(|(ending, _)| !ending.is_ok()).map(|(_, count)| count).sum();
    Ok(Measurement {
        cpu_s_per_million: cpu_s / items * 1e6,
        items_per_s: items / elapsed_s,
        rss_bytes,
        subject_core: cpu_s / elapsed_s,
        bench_core: (after.bench.cpu - before.bench.cpu).as_secs_f64() / elapsed_s,
        latency: report.acknowledged_after,
        turned_away,
    })
}
