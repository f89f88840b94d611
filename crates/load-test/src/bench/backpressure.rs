//! Backpressure: a backend answers 70 % of the requests with UNAVAILABLE, over HTTP with 503, at random. How much of what is
//! offered is accepted, how much of that gets through meanwhile, and how soon the rest does.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::gateway::{Memory, Setting, Taken, drained};
use super::measure::Contestant;
use super::scenario::{
    MEMORY_BAR, Scenario, ScenarioOptions, Section, markdown, mebibytes, median, milliseconds, percent, told, worst,
    yes_or_no,
};
use super::table::Spread;
use crate::backend::{Backend, BackendOptions, Faults};
use crate::generate::{Protocol, Retry};
use crate::latency::Latency;
use crate::subject::Limits;

const REFUSED_SHARE: f64 = 0.7;
const MEMORY_LIMIT_MIB: u64 = 512;
/// Windows of load: 30 s by default.
const WINDOWS: u32 = 6;
/// What waits for its next attempt is a constant amount, so that a short load has a larger share of it.
const LOAD_MIN: Duration = Duration::from_secs(20);
/// What has not come by then counts as not delivered.
const DRAIN_WITHIN: Duration = Duration::from_secs(15);

const ACCEPTED_BAR: f64 = 0.95;
const EXPORTED_BAR: f64 = 0.95;
const DRAINED_BAR: Duration = Duration::from_secs(10);

/// What became of one turn's spans.
#[derive(Clone, Debug, Default)]
struct Turn {
    offered: u64,
    accepted: u64,
    /// At the backend when the load ended.
    exported_in_time: u64,
    load_s: f64,
    /// From the end of the load until the backend had everything; `None`: it had not within [`DRAIN_WITHIN`].
    drained_after: Option<Duration>,
    /// Accepted and not at the backend at the end of the waiting.
    undelivered: u64,
    /// Of those: neither held by the subject any more, by its own count of its backlog. `None`: it does not count.
    lost: Option<u64>,
    doubled: u64,
    latency: Latency,
    memory: Memory,
    taken: Taken,
}

struct Series {
    name: &'static str,
    /// To the backend.
    protocol: Protocol,
    turns: Vec<Turn>,
}

pub(super) async fn run(options: &ScenarioOptions, progress: &mut dyn FnMut(&str)) -> Section {
    let series = |protocol| {
        let new = move |name| Series { name, protocol, turns: Vec::new() };
        options.gateways().map(move |contestant| (contestant, new(contestant.name())))
    };
    let mut all: Vec<(&Contestant, Series)> = [Protocol::Grpc, Protocol::Http].into_iter().flat_map(series).collect();
    for number in 1..=options.turns {
        for (contestant, series) in &mut all {
            let label = format!("backpressure, {} turn {number}", series.label());
            let turn = measure(contestant, series.protocol, options).await;
            series.turns.extend(told(&label, turn, describe, progress));
        }
    }
    let all: Vec<Series> = all.into_iter().map(|(_, series)| series).collect();
    let json = all.iter().map(|series| (series.label(), series.json())).collect::<serde_json::Map<_, _>>();
    Section { scenario: Scenario::Backpressure, notes: notes(options), table: table(&all), json: json.into() }
}

fn load_duration(options: &ScenarioOptions) -> Duration {
    (options.window * WINDOWS).max(LOAD_MIN)
}

async fn measure(contestant: &Contestant, protocol: Protocol, options: &ScenarioOptions) -> anyhow::Result<Turn> {
    let faults = Faults::unavailable(REFUSED_SHARE);
    let backend = Backend::start(BackendOptions { protocol, ..BackendOptions::default() }.faults(faults)).await?;
    let setting = Setting {
        contestant,
        memory_limit_mib: MEMORY_LIMIT_MIB,
        backends: vec![backend.addr()],
        sluice_only: "",
        limits: Limits::default(),
        cpus: &options.subject_cpus,
    };
    let gateway = setting.start_over(protocol).await?;
    let duration = load_duration(options);
    let load = gateway.load().rate(options.spans_per_s).duration(duration).retry(Retry::SDK);
    let before = gateway.reading()?;
    let running = load.start()?;
    sleep(duration).await;
    let exported_in_time = backend.unique_items();
    let taken = before.until(&gateway.reading()?);
    // Senders that wait for their next attempt may yet be answered within the load's grace.
    let report = running.finish().await?;
    let drained_after = drained(&report, &[&backend], DRAIN_WITHIN).await;
    let undelivered = report.missing_at(&backend);
    let held = gateway.metric("sluice_delivery_backlog_items", &[]).await;
    let lost = if undelivered == 0 { Some(0) } else { held.map(|held| undelivered.saturating_sub(held as u64)) };
    Ok(Turn {
        offered: report.offered,
        accepted: report.accepted,
        exported_in_time,
        load_s: taken.elapsed_s,
        drained_after,
        undelivered,
        lost,
        doubled: backend.counts().doubled,
        latency: backend.latency(),
        memory: gateway.memory()?,
        taken,
    })
}

impl Turn {
    fn accepted_share(&self) -> f64 {
        self.accepted as f64 / self.offered as f64
    }

    fn exported_share(&self) -> f64 {
        self.exported_in_time as f64 / self.accepted as f64
    }
}

fn describe(turn: &Turn) -> String {
    let drained = turn.drained_after.map_or_else(
        || format!("{} not delivered {} s later", turn.undelivered, DRAIN_WITHIN.as_secs()),
        |after| format!("drained {:.1} s later", after.as_secs_f64()),
    );
    format!(
        "accepted {:.1} % of {} spans, exported {:.1} % of those in time, {drained}, {:.0} MiB, subject {:.0} % and bench {:.0} % of a core",
        100.0 * turn.accepted_share(),
        turn.offered,
        100.0 * turn.exported_share(),
        mebibytes(turn.memory.peak_bytes),
        100.0 * turn.taken.subject_core,
        100.0 * turn.taken.bench_core,
    )
}

impl Series {
    fn median(&self, of: impl Fn(&Turn) -> f64) -> f64 {
        Spread::of(self.turns.iter().map(of)).map_or(f64::NAN, |spread| spread.median)
    }

    fn holds(&self) -> bool {
        let is_each = |turn: &Turn| {
            turn.undelivered == 0
                && turn.drained_after.is_some_and(|after| after <= DRAINED_BAR)
                && turn.memory.share() <= MEMORY_BAR
        };
        self.median(Turn::accepted_share) >= ACCEPTED_BAR
            && self.median(Turn::exported_share) >= EXPORTED_BAR
            && self.turns.iter().all(is_each)
    }

    fn exporter(&self) -> &'static str {
        match self.protocol {
            Protocol::Grpc => "otlp",
            Protocol::Http => "otlphttp",
        }
    }

    fn label(&self) -> String {
        format!("{} {}", self.name, self.exporter())
    }

    fn json(&self) -> Value {
        json!({ "holds": self.holds(), "turns": self.turns.iter().map(turn_json).collect::<Vec<_>>() })
    }
}

fn notes(options: &ScenarioOptions) -> String {
    format!(
        "{:.0} spans/s of 40 attributes offered for {} s, exported over gRPC and over HTTP, retry settings left at their \
         defaults, memory limit {MEMORY_LIMIT_MIB} MiB. A backlog is waited for {} s after the load.\nBar: at least 95 % of what is offered accepted, \
         at least 95 % of that exported while the load lasts, the rest within {} s, nothing lost, memory at most 110 % of \
         the limit.",
        options.spans_per_s,
        load_duration(options).as_secs(),
        DRAIN_WITHIN.as_secs(),
        DRAINED_BAR.as_secs(),
    )
}

fn table(all: &[Series]) -> String {
    const HEADER: [&str; 12] = [
        "Subject",
        "exporter",
        "accepted of offered",
        "exported of accepted",
        "exported spans/s",
        "p99 ms",
        "drained after s",
        "undelivered",
        "lost",
        "doubled",
        "peak MiB (of limit)",
        "holds",
    ];
    let row = |series: &Series| {
        let turns = || series.turns.iter();
        let peak = median(turns().map(|turn| mebibytes(turn.memory.peak_bytes)), 0);
        // One that never drained in some turn has no such time.
        let drained: Option<Vec<f64>> = turns().map(|turn| Some(turn.drained_after?.as_secs_f64())).collect();
        let lost: Option<Vec<u64>> = turns().map(|turn| turn.lost).collect();
        vec![
            series.name.to_owned(),
            series.exporter().to_owned(),
            percent(turns().map(Turn::accepted_share)),
            percent(turns().map(Turn::exported_share)),
            median(turns().map(|turn| turn.exported_in_time as f64 / turn.load_s), 0),
            median(turns().map(|turn| milliseconds(turn.latency.p99)), 0),
            median(drained.unwrap_or_default(), 2),
            worst(turns().map(|turn| turn.undelivered)),
            worst(lost.unwrap_or_default()),
            worst(turns().map(|turn| turn.doubled)),
            format!("{peak} ({})", percent(turns().map(|turn| turn.memory.share()))),
            yes_or_no(series.holds()),
        ]
    };
    markdown(&HEADER, 2, all.iter().map(row).collect())
}

fn turn_json(turn: &Turn) -> Value {
    json!({
        "offered": turn.offered,
        "accepted": turn.accepted,
        "exported_in_time": turn.exported_in_time,
        "accepted_share": turn.accepted_share(),
        "exported_share": turn.exported_share(),
        "drained_after_s": turn.drained_after.map(|after| after.as_secs_f64()),
        "undelivered": turn.undelivered,
        "lost": turn.lost,
        "doubled": turn.doubled,
        "p50_ms": milliseconds(turn.latency.p50),
        "p99_ms": milliseconds(turn.latency.p99),
        "peak_rss_bytes": turn.memory.peak_bytes,
        "memory_limit_bytes": turn.memory.limit_bytes,
        "subject_core": turn.taken.subject_core,
        "bench_core": turn.taken.bench_core,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(turns: Vec<Turn>) -> Series {
        Series { name: "sluice", protocol: Protocol::Http, turns }
    }

    fn holds(change: impl Fn(&mut Turn)) -> bool {
        let mut turn = Turn {
            offered: 1000,
            accepted: 960,
            exported_in_time: 920,
            drained_after: Some(Duration::from_secs(1)),
            lost: Some(0),
            memory: Memory { peak_bytes: 100, limit_bytes: 100 },
            ..Turn::default()
        };
        change(&mut turn);
        series(vec![turn]).holds()
    }

    #[test]
    fn each_bar_is_one() {
        assert!(holds(|_| {}));
        assert!(!holds(|turn| turn.accepted = 940));
        assert!(!holds(|turn| turn.exported_in_time = 910));
        assert!(!holds(|turn| turn.drained_after = None));
        assert!(!holds(|turn| turn.drained_after = Some(Duration::from_secs(11))));
        assert!(!holds(|turn| turn.undelivered = 1));
        assert!(!holds(|turn| turn.memory.peak_bytes = 111));
        assert!(!series(vec![]).holds(), "what was not measured does not hold");
    }

    #[test]
    fn a_turn_that_did_not_drain_takes_the_time_from_the_table() {
        let turn = |drained_after| Turn { drained_after, ..Turn::default() };
        let series = series(vec![turn(None), turn(Some(Duration::from_secs(1)))]);
        assert!(!table(&[series]).contains("1.00"));
    }
}
