//! Drain: a backend is dead until a backlog lies on disk, then it takes everything. How much of a core's work a megabyte of it is,
//! beside the Collector's persistent queue (`file_storage`).

use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::gateway::{Memory, Setting, Taken};
use super::measure::Contestant;
use super::scenario::{Scenario, ScenarioOptions, Section, markdown, mebibytes, median, told, yes_or_no};
use super::table::Spread;
use crate::backend::{Backend, BackendOptions, Counting, Faults};
use crate::generate::{Retry, Shape};
use crate::subject::Limits;

const MEMORY_LIMIT_MIB: u64 = 512;
/// Several times the memory limit, so that nearly all of it has to come from disk.
const SLUICE_BACKLOG_BYTES: f64 = 2e9;
/// It takes longer over it.
const COLLECTOR_BACKLOG_BYTES: f64 = 256e6;
const FILLED_WITHIN: Duration = Duration::from_secs(180);
/// Until the subject tries again after a long outage.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);
const DRAINED_WITHIN: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(5);
const ON_DISK: &str =
    "buffer:\n  directory: {dir}/buffer\n  ack: durable\n  policy: backpressure\n  disk:\n    limit_mib: 8192\n";

/// Of a core's work.
const BYTES_PER_CPU_S_BAR: f64 = 500e6;

#[derive(Clone, Debug, Default)]
struct Turn {
    backlog_bytes: f64,
    /// Drained in the counted time.
    bytes: f64,
    /// Acknowledged and never seen at the backend.
    lost: u64,
    memory: Memory,
    taken: Taken,
}

struct Series {
    name: &'static str,
    turns: Vec<Turn>,
}

pub(super) async fn run(options: &ScenarioOptions, progress: &mut dyn FnMut(&str)) -> Section {
    let new = |contestant: &Contestant| Series { name: contestant.name(), turns: Vec::new() };
    let mut all: Vec<Series> = options.gateways().map(new).collect();
    for number in 1..=options.turns {
        for (contestant, series) in options.gateways().zip(&mut all) {
            let label = format!("drain, {} turn {number}", series.name);
            let turn = measure(contestant, options).await;
            series.turns.extend(told(&label, turn, describe, progress));
        }
    }
    let json = all.iter().map(|series| (series.name.to_owned(), series.json())).collect::<serde_json::Map<_, _>>();
    Section { scenario: Scenario::Drain, notes: notes(), table: table(&all), json: json.into() }
}

async fn measure(contestant: &Contestant, options: &ScenarioOptions) -> anyhow::Result<Turn> {
    let bytes_per_item = Shape::of(sluice_otlp::Signal::Traces).bytes_per_item();
    let counting = Counting::Light { bytes_per_item };
    let backend =
        Backend::start(BackendOptions { counting, faults: Faults::dead(), ..BackendOptions::default() }).await?;
    let setting = Setting {
        contestant,
        memory_limit_mib: MEMORY_LIMIT_MIB,
        backends: vec![backend.addr()],
        sluice_only: ON_DISK,
        limits: Limits::default(),
        cpus: &options.subject_cpus,
    };
    let gateway = setting.start_with_persistent_queue().await?;
    let is_sluice = matches!(contestant, Contestant::Sluice { .. });
    let backlog_bytes = if is_sluice { SLUICE_BACKLOG_BYTES } else { COLLECTOR_BACKLOG_BYTES };
    let items = (backlog_bytes / bytes_per_item) as u64;
    let load = gateway.load().items(items).retry(Retry::SDK).run();
    let report =
        tokio::time::timeout(FILLED_WITHIN, load).await.context("the backlog could not be filled in time")??;
    ensure!(report.accepted == report.offered, "{} of {items} accepted: {:?}", report.accepted, report.messages);

    backend.faults().clear();
    wait_for(&backend, 1, BEGINS_WITHIN).await.context("nothing came after the outage")?;
    let before = (gateway.reading()?, backend.items());
    let drained = wait_for(&backend, report.accepted, DRAINED_WITHIN).await;
    let after = (gateway.reading()?, backend.items());
    if is_sluice {
        drained?;
    }
    Ok(Turn {
        backlog_bytes: report.accepted as f64 * bytes_per_item,
        bytes: (after.1 - before.1) as f64 * bytes_per_item,
        lost: report.accepted.saturating_sub(after.1),
        memory: gateway.memory()?,
        taken: before.0.until(&after.0),
    })
}

async fn wait_for(backend: &Backend, items: u64, limit: Duration) -> anyhow::Result<()> {
    let began = Instant::now();
    while backend.items() < items {
        ensure!(began.elapsed() < limit, "{} of {items} items after {limit:?}", backend.items());
        sleep(LOOK_EVERY).await;
    }
    Ok(())
}

impl Turn {
    fn bytes_per_cpu_s(&self) -> f64 {
        self.bytes / self.taken.subject_cpu_s
    }

    fn bytes_per_s(&self) -> f64 {
        self.bytes / self.taken.elapsed_s
    }
}

impl Series {
    fn holds(&self) -> bool {
        Spread::of(self.turns.iter().map(Turn::bytes_per_cpu_s))
            .is_some_and(|spread| spread.median >= BYTES_PER_CPU_S_BAR)
            && self.turns.iter().all(|turn| turn.lost == 0)
    }

    fn json(&self) -> Value {
        json!({ "holds": self.holds(), "turns": self.turns.iter().map(turn_json).collect::<Vec<_>>() })
    }
}

fn describe(turn: &Turn) -> String {
    format!(
        "{:.0} MB at {:.0} MB/s, {:.0} MB a CPU second (subject {:.0} % and bench {:.0} % of a core), {:.0} MiB resident, {} lost",
        turn.backlog_bytes / 1e6,
        turn.bytes_per_s() / 1e6,
        turn.bytes_per_cpu_s() / 1e6,
        100.0 * turn.taken.subject_core,
        100.0 * turn.taken.bench_core,
        mebibytes(turn.memory.peak_bytes),
        turn.lost,
    )
}

fn notes() -> String {
    format!(
        "A backend is dead until {:.0} MB of spans ({:.0} MB for the Collector) are acknowledged and on disk, uncompressed; then it \
         takes what comes. Counted from the first span that arrives. The Collector holds them in `sending_queue.storage: \
         file_storage`, without fsync.\nBar: at least {:.0} MB of a backlog for each CPU second of the subject, nothing lost.",
        SLUICE_BACKLOG_BYTES / 1e6,
        COLLECTOR_BACKLOG_BYTES / 1e6,
        BYTES_PER_CPU_S_BAR / 1e6,
    )
}

fn table(all: &[Series]) -> String {
    const HEADER: [&str; 8] =
        ["Subject", "backlog MB", "MB/s", "MB a CPU-s", "subject core", "peak MiB", "lost", "holds"];
    let row = |series: &Series| {
        let turns = || series.turns.iter();
        vec![
            series.name.to_owned(),
            median(turns().map(|turn| turn.backlog_bytes / 1e6), 0),
            median(turns().map(|turn| turn.bytes_per_s() / 1e6), 1),
            median(turns().map(|turn| turn.bytes_per_cpu_s() / 1e6), 1),
            median(turns().map(|turn| turn.taken.subject_core), 2),
            median(turns().map(|turn| mebibytes(turn.memory.peak_bytes)), 0),
            median(turns().map(|turn| turn.lost as f64), 0),
            yes_or_no(series.holds()),
        ]
    };
    markdown(&HEADER, 1, all.iter().map(row).collect())
}

fn turn_json(turn: &Turn) -> Value {
    json!({
        "backlog_bytes": turn.backlog_bytes,
        "bytes_per_s": turn.bytes_per_s(),
        "bytes_per_cpu_s": turn.bytes_per_cpu_s(),
        "lost": turn.lost,
        "peak_rss_bytes": turn.memory.peak_bytes,
        "subject_core": turn.taken.subject_core,
        "bench_core": turn.taken.bench_core,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(bytes: f64, subject_cpu_s: f64, lost: u64) -> Series {
        let taken = Taken { elapsed_s: 100.0, subject_cpu_s, ..Taken::default() };
        Series { name: "sluice", turns: vec![Turn { bytes, lost, taken, ..Turn::default() }] }
    }

    #[test]
    fn what_counts_is_the_work_of_a_core_and_that_nothing_is_lost() {
        assert!(series(1e9, 1.9, 0).holds());
        assert!(!series(1e9, 2.1, 0).holds(), "too much work");
        assert!(!series(1e9, 1.0, 1).holds(), "lost");
        assert!(!Series { name: "sluice", turns: vec![] }.holds(), "what was not measured does not hold");
    }
}
