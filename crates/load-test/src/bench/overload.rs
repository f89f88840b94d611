//! Overload: a subject with a fraction of a core is offered three times what it can take. How much of its peak it still
//! delivers, what it says to those it turns away, and whether its memory stays within its limit.

use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::gateway::{Gateway, Memory, Setting, Taken, drained};
use super::measure::Contestant;
use super::scenario::{
    MEMORY_BAR, Scenario, ScenarioOptions, Section, markdown, mebibytes, median, milliseconds, percent, told, worst,
    yes_or_no,
};
use super::table::Spread;
use crate::backend::Backend;
use crate::generate::{Load, LoadReport, Pace, Retry};
use crate::latency::Latency;
use crate::subject::Limits;

const MEMORY_LIMIT_MIB: u64 = 128;
/// So little that generator and backend could take several times as much.
const CPU_CORES: f64 = 0.1;
const TIMES_THE_PEAK: f64 = 3.0;
/// Connections and streams of a few senders in closed loops: what the subject takes if hardly anything waits.
const FEW_SENDERS: [(usize, usize); 2] = [(4, 2), (4, 8)];
/// What the many senders offer in the search for their peak, of what few senders got through.
const PEAK_SEARCH: [f64; 4] = [0.5, 0.65, 0.8, 1.0];
/// Windows before counting, and counted.
const WARM_UP_WINDOWS: u32 = 1;
const COUNTED_WINDOWS: u32 = 2;
const DRAIN_WITHIN: Duration = Duration::from_secs(30);

const GOODPUT_BAR: f64 = 0.95;

/// How the sender is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ack {
    /// The default.
    Memory,
    /// `buffer.ack: delivered`, which the Collector does not have.
    Delivered,
}

impl Ack {
    fn name(self) -> &'static str {
        match self {
            Ack::Memory => "memory",
            Ack::Delivered => "delivered",
        }
    }

    fn yaml(self) -> &'static str {
        match self {
            Ack::Memory => "",
            Ack::Delivered => "buffer:\n  ack: delivered\n",
        }
    }
}

/// The 256 senders whose load grows until the subject is flooded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Senders {
    /// Clients with a connection each, as SDKs and agents are.
    Clients,
    /// A few gateways before this one: sixteen requests at a time on each connection, which arrive interleaved.
    Gateways,
}

impl Senders {
    fn name(self) -> &'static str {
        match self {
            Senders::Clients => "256 × 1",
            Senders::Gateways => "16 × 16",
        }
    }

    /// Connections and streams of each.
    fn concurrency(self) -> (usize, usize) {
        match self {
            Senders::Clients => (256, 1),
            Senders::Gateways => (16, 16),
        }
    }

    fn load(self, gateway: &Gateway, spans_per_s: f64) -> Load {
        let (connections, streams) = self.concurrency();
        let mut load = gateway.load().concurrency(connections, streams);
        load.pace = Pace::Open { items_per_s: spans_per_s };
        load
    }
}

#[derive(Clone, Debug, Default)]
struct Turn {
    /// The most that closed loops of few senders got through.
    few_senders_per_s: f64,
    /// Delivered from many senders, in the order of [`PEAK_SEARCH`].
    search_per_s: [f64; PEAK_SEARCH.len()],
    /// The highest of these.
    peak_per_s: f64,
    /// What the generator sent, first attempts only.
    offered_per_s: f64,
    /// Delivered meanwhile.
    goodput_per_s: f64,
    /// Spans turned away with a status that lets the sender come back, and for good.
    refused: u64,
    failed: u64,
    /// No answer: connection lost or timed out.
    unanswered: u64,
    /// Refusals that did not say when to come back.
    without_delay: u64,
    /// Spans that the generator could not send, since all its streams waited.
    never_sent: u64,
    /// Acknowledged and never delivered.
    lost: u64,
    doubled: u64,
    acknowledged_after: Latency,
    memory: Memory,
    taken: Taken,
}

struct Series {
    name: &'static str,
    ack: Ack,
    senders: Senders,
    turns: Vec<Turn>,
}

pub(super) async fn run(options: &ScenarioOptions, progress: &mut dyn FnMut(&str)) -> Section {
    let mut all: Vec<(&Contestant, Series)> = Vec::new();
    for contestant in options.gateways() {
        let acks: &[Ack] = match contestant {
            Contestant::Sluice { .. } => &[Ack::Memory, Ack::Delivered],
            _ => &[Ack::Memory],
        };
        for senders in [Senders::Clients, Senders::Gateways] {
            let series = |&ack| (contestant, Series { name: contestant.name(), ack, senders, turns: Vec::new() });
            all.extend(acks.iter().map(series));
        }
    }
    for number in 1..=options.turns {
        for (contestant, series) in &mut all {
            let (ack, senders) = (series.ack, series.senders);
            let label =
                format!("overload, {} ack {} senders {} turn {number}", series.name, ack.name(), senders.name());
            let turn = measure(contestant, ack, senders, options).await;
            series.turns.extend(told(&label, turn, describe, progress));
        }
    }
    let all: Vec<Series> = all.into_iter().map(|(_, series)| series).collect();
    let json = all.iter().map(Series::json).collect();
    Section { scenario: Scenario::Overload, notes: notes(), table: table(&all), json }
}

/// A new subject with a new backend.
async fn start(contestant: &Contestant, ack: Ack, options: &ScenarioOptions) -> anyhow::Result<(Gateway, Backend)> {
    let backend = Backend::healthy().await?;
    let setting = Setting {
        contestant,
        memory_limit_mib: MEMORY_LIMIT_MIB,
        backends: vec![backend.addr()],
        sluice_only: ack.yaml(),
        limits: Limits { cpu_cores: Some(CPU_CORES), memory_bytes: None },
        cpus: &options.subject_cpus,
    };
    Ok((setting.start().await?, backend))
}

struct UnderLoad {
    delivered_per_s: f64,
    taken: Taken,
    report: LoadReport,
}

async fn under_load(
    gateway: &Gateway,
    backend: &Backend,
    load: Load,
    options: &ScenarioOptions,
) -> anyhow::Result<UnderLoad> {
    let (warm_up, counted) = (options.window * WARM_UP_WINDOWS, options.window * COUNTED_WINDOWS);
    let grace = Duration::from_secs(30);
    let load = Load { duration: Some(warm_up + counted), timeout: grace, grace, ..load };
    let running = load.start()?;
    sleep(warm_up).await;
    let before = (gateway.reading()?, backend.unique_items());
    sleep(counted).await;
    let after = (gateway.reading()?, backend.unique_items());
    let report = running.finish().await?;
    let taken = before.0.until(&after.0);
    Ok(UnderLoad { delivered_per_s: (after.1 - before.1) as f64 / taken.elapsed_s, taken, report })
}

async fn measure(
    contestant: &Contestant,
    ack: Ack,
    senders: Senders,
    options: &ScenarioOptions,
) -> anyhow::Result<Turn> {
    let mut few_senders_per_s = 0.0_f64;
    for (connections, streams) in FEW_SENDERS {
        let (gateway, backend) = start(contestant, ack, options).await?;
        // Who is turned away comes back a little later and does not spin.
        let retry = Retry::Backoff {
            initial: Duration::from_millis(50),
            max: Duration::from_millis(500),
            give_up_after: Duration::from_secs(10),
        };
        let load = gateway.load().concurrency(connections, streams).retry(retry);
        few_senders_per_s = few_senders_per_s.max(under_load(&gateway, &backend, load, options).await?.delivered_per_s);
    }
    ensure!(few_senders_per_s > 0.0, "nothing was delivered");
    let mut search_per_s = [0.0; PEAK_SEARCH.len()];
    for (share, delivered_per_s) in PEAK_SEARCH.into_iter().zip(&mut search_per_s) {
        let (gateway, backend) = start(contestant, ack, options).await?;
        let load = senders.load(&gateway, share * few_senders_per_s);
        *delivered_per_s = under_load(&gateway, &backend, load, options).await?.delivered_per_s;
    }
    let peak_per_s = search_per_s.into_iter().fold(0.0, f64::max);
    ensure!(peak_per_s > 0.0, "nothing was delivered");
    let (gateway, backend) = start(contestant, ack, options).await?;
    let load = senders.load(&gateway, TIMES_THE_PEAK * peak_per_s.max(few_senders_per_s));
    let flood = under_load(&gateway, &backend, load, options).await?;
    let report = &flood.report;
    drained(report, &[&backend], DRAIN_WITHIN).await;
    let load_s = (options.window * (WARM_UP_WINDOWS + COUNTED_WINDOWS)).as_secs_f64();
    Ok(Turn {
        few_senders_per_s,
        search_per_s,
        peak_per_s,
        offered_per_s: (report.offered - report.never_sent) as f64 / load_s,
        goodput_per_s: flood.delivered_per_s,
        refused: report.refused,
        failed: report.failed,
        unanswered: report.unanswered,
        without_delay: report.refusals_without_delay,
        never_sent: report.never_sent,
        lost: report.missing_at(&backend),
        doubled: backend.counts().doubled,
        acknowledged_after: report.acknowledged_after,
        memory: gateway.memory()?,
        taken: flood.taken,
    })
}

impl Turn {
    fn goodput_share(&self) -> f64 {
        self.goodput_per_s / self.peak_per_s
    }

    /// Of those who were turned away: how many may come back. `NaN` where nobody was.
    fn retryable_share(&self) -> f64 {
        let turned_away = self.refused + self.failed + self.unanswered;
        self.refused as f64 / turned_away as f64
    }
}

fn describe(turn: &Turn) -> String {
    format!(
        "few senders {:.0} spans/s, many {:.0?}, flooded with {:.0}, delivered {:.0} ({:.1} %), refused {} failed {} unanswered {}, lost {}, {:.0} MiB, subject {:.0} % and bench {:.0} % of a core",
        turn.few_senders_per_s,
        turn.search_per_s,
        turn.offered_per_s,
        turn.goodput_per_s,
        100.0 * turn.goodput_share(),
        turn.refused,
        turn.failed,
        turn.unanswered,
        turn.lost,
        mebibytes(turn.memory.peak_bytes),
        100.0 * turn.taken.subject_core,
        100.0 * turn.taken.bench_core,
    )
}

impl Series {
    fn holds(&self) -> bool {
        let goodput = Spread::of(self.turns.iter().map(Turn::goodput_share)).map_or(f64::NAN, |share| share.median);
        let is_each = |turn: &Turn| turn.failed + turn.unanswered + turn.lost == 0 && turn.memory.share() <= MEMORY_BAR;
        goodput >= GOODPUT_BAR && self.turns.iter().all(is_each)
    }

    fn json(&self) -> Value {
        json!({
            "subject": self.name,
            "ack": self.ack.name(),
            "senders": self.senders.name(),
            "holds": self.holds(),
            "turns": self.turns.iter().map(turn_json).collect::<Vec<_>>(),
        })
    }
}

fn notes() -> String {
    format!(
        "{CPU_CORES} cores by quota, memory limit {MEMORY_LIMIT_MIB} MiB, spans of 40 attributes. Few senders: the better of closed \
         loops of 8 and 32 requests in flight. The peak: the most that is delivered while 256 senders offer {PEAK_SEARCH:?} times that, \
         in open loop: clients with a connection each (256 × 1), or gateways with sixteen requests at a time on each (16 × 16). Then the same senders offer {TIMES_THE_PEAK} × the higher of both, and do not come back.\nBar: goodput at least \
         95 % of the peak, every refusal retryable, nothing acknowledged lost, memory at most 110 % of the limit."
    )
}

fn table(all: &[Series]) -> String {
    const HEADER: [&str; 13] = [
        "Subject",
        "ack",
        "senders",
        "few senders spans/s",
        "peak spans/s",
        "offered of peak",
        "goodput of peak",
        "retryable",
        "without delay",
        "lost",
        "doubled",
        "peak MiB (of limit)",
        "holds",
    ];
    let row = |series: &Series| {
        let turns = || series.turns.iter();
        let peak = median(turns().map(|turn| mebibytes(turn.memory.peak_bytes)), 0);
        vec![
            series.name.to_owned(),
            series.ack.name().to_owned(),
            series.senders.name().to_owned(),
            median(turns().map(|turn| turn.few_senders_per_s), 0),
            median(turns().map(|turn| turn.peak_per_s), 0),
            percent(turns().map(|turn| turn.offered_per_s / turn.peak_per_s)),
            percent(turns().map(Turn::goodput_share)),
            percent(turns().map(Turn::retryable_share)),
            worst(turns().map(|turn| turn.without_delay)),
            worst(turns().map(|turn| turn.lost)),
            worst(turns().map(|turn| turn.doubled)),
            format!("{peak} ({})", percent(turns().map(|turn| turn.memory.share()))),
            yes_or_no(series.holds()),
        ]
    };
    markdown(&HEADER, 3, all.iter().map(row).collect())
}

fn turn_json(turn: &Turn) -> Value {
    json!({
        "few_senders_per_s": turn.few_senders_per_s,
        "search_per_s": turn.search_per_s,
        "peak_per_s": turn.peak_per_s,
        "offered_per_s": turn.offered_per_s,
        "goodput_per_s": turn.goodput_per_s,
        "goodput_share": turn.goodput_share(),
        "refused": turn.refused,
        "failed": turn.failed,
        "unanswered": turn.unanswered,
        "refusals_without_delay": turn.without_delay,
        "never_sent": turn.never_sent,
        "lost": turn.lost,
        "doubled": turn.doubled,
        "acknowledged_p99_ms": milliseconds(turn.acknowledged_after.p99),
        "peak_rss_bytes": turn.memory.peak_bytes,
        "memory_limit_bytes": turn.memory.limit_bytes,
        "subject_core": turn.taken.subject_core,
        "bench_core": turn.taken.bench_core,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(change: impl Fn(&mut Turn)) -> bool {
        let mut turn = Turn {
            peak_per_s: 1000.0,
            goodput_per_s: 950.0,
            refused: 5000,
            memory: Memory { peak_bytes: 110, limit_bytes: 100 },
            ..Turn::default()
        };
        change(&mut turn);
        Series { name: "sluice", ack: Ack::Memory, senders: Senders::Clients, turns: vec![turn] }.holds()
    }

    #[test]
    fn each_bar_is_one() {
        assert!(holds(|_| {}));
        assert!(!holds(|turn| turn.goodput_per_s = 949.0));
        assert!(!holds(|turn| turn.failed = 1));
        assert!(!holds(|turn| turn.unanswered = 1));
        assert!(!holds(|turn| turn.lost = 1));
        assert!(!holds(|turn| turn.memory.peak_bytes = 111));
        let none = Series { name: "sluice", ack: Ack::Memory, senders: Senders::Clients, turns: vec![] };
        assert!(!none.holds(), "not measured");
    }
}
