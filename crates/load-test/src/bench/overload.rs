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
/// Connections and streams of a few senders in closed loops: what the subject takes if hardly anything waits.
const FEW_SENDERS: [(usize, usize); 2] = [(4, 2), (4, 8)];
/// What the many senders offer, of what few senders got through. One of the levels is where most is delivered: the peak.
const LEVELS: [f64; 4] = [0.5, 0.65, 0.8, 1.0];
const FLOOD: f64 = 3.0;
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

/// The senders whose load grows until the subject is flooded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Senders {
    /// Clients with a connection each, as SDKs and agents are.
    Clients,
    /// A few gateways before this one: sixteen requests at a time on each connection, which arrive interleaved.
    Gateways,
    /// So many that what they have in flight is more than the subject takes within a second, for which it lets anybody wait.
    ManyGateways,
}

impl Senders {
    fn name(self) -> &'static str {
        match self {
            Senders::Clients => "256 × 1",
            Senders::Gateways => "16 × 16",
            Senders::ManyGateways => "64 × 32",
        }
    }

    /// Connections and streams of each.
    fn concurrency(self) -> (usize, usize) {
        match self {
            Senders::Clients => (256, 1),
            Senders::Gateways => (16, 16),
            Senders::ManyGateways => (64, 32),
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
    /// Delivered from many senders, in the order of [`LEVELS`].
    levels_per_s: [f64; LEVELS.len()],
    flood: Flood,
}

/// What came of [`FLOOD`].
#[derive(Clone, Debug, Default)]
struct Flood {
    /// What the senders were to send, and what of it they could.
    offered_per_s: f64,
    sent_per_s: f64,
    /// Delivered meanwhile.
    goodput_per_s: f64,
    /// Spans turned away with a status that lets the sender come back, and for good.
    refused: u64,
    failed: u64,
    /// No answer: connection lost or timed out.
    unanswered: u64,
    /// Refusals that did not say when to come back.
    without_delay: u64,
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
        for senders in [Senders::Clients, Senders::Gateways, Senders::ManyGateways] {
            let series = |&ack| (contestant, Series { name: contestant.name(), ack, senders, turns: Vec::new() });
            all.extend(acks.iter().map(series));
        }
    }
    for number in 1..=options.turns {
        for (contestant, series) in &mut all {
            let (ack, senders) = (series.ack, series.senders);
            let label =
                format!("overload, {} ack {} senders {} turn {number}", series.name, ack.name(), senders.name());
            let turn = measure(contestant, ack, senders, number, options).await;
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
    number: usize,
    options: &ScenarioOptions,
) -> anyhow::Result<Turn> {
    let mut turn = Turn::default();
    for (connections, streams) in FEW_SENDERS {
        let (gateway, backend) = start(contestant, ack, options).await?;
        // Who is turned away comes back a little later and does not spin.
        let retry = Retry::Backoff {
            initial: Duration::from_millis(50),
            max: Duration::from_millis(500),
            give_up_after: Duration::from_secs(10),
        };
        let load = gateway.load().concurrency(connections, streams).retry(retry);
        let delivered_per_s = under_load(&gateway, &backend, load, options).await?.delivered_per_s;
        turn.few_senders_per_s = turn.few_senders_per_s.max(delivered_per_s);
    }
    ensure!(turn.few_senders_per_s > 0.0, "nothing was delivered");
    // Each turn begins elsewhere, so that a machine that becomes slower or faster meanwhile favours none of them.
    for place in 0..=LEVELS.len() {
        match (place + number) % (LEVELS.len() + 1) {
            level if level < LEVELS.len() => {
                let (gateway, backend) = start(contestant, ack, options).await?;
                let load = senders.load(&gateway, LEVELS[level] * turn.few_senders_per_s);
                turn.levels_per_s[level] = under_load(&gateway, &backend, load, options).await?.delivered_per_s;
            }
            _ => turn.flood = flood(contestant, ack, senders, FLOOD * turn.few_senders_per_s, options).await?,
        }
    }
    Ok(turn)
}

async fn flood(
    contestant: &Contestant,
    ack: Ack,
    senders: Senders,
    spans_per_s: f64,
    options: &ScenarioOptions,
) -> anyhow::Result<Flood> {
    let (gateway, backend) = start(contestant, ack, options).await?;
    let flood = under_load(&gateway, &backend, senders.load(&gateway, spans_per_s), options).await?;
    let report = &flood.report;
    drained(report, &[&backend], DRAIN_WITHIN).await;
    let load_s = (options.window * (WARM_UP_WINDOWS + COUNTED_WINDOWS)).as_secs_f64();
    Ok(Flood {
        offered_per_s: report.offered as f64 / load_s,
        sent_per_s: (report.offered - report.never_sent) as f64 / load_s,
        goodput_per_s: flood.delivered_per_s,
        refused: report.refused,
        failed: report.failed,
        unanswered: report.unanswered,
        without_delay: report.refusals_without_delay,
        lost: report.missing_at(&backend),
        doubled: backend.counts().doubled,
        acknowledged_after: report.acknowledged_after,
        memory: gateway.memory()?,
        taken: flood.taken,
    })
}

impl Flood {
    /// Of those who were turned away: how many may come back. `NaN` where nobody was.
    fn retryable_share(&self) -> f64 {
        let turned_away = self.refused + self.failed + self.unanswered;
        self.refused as f64 / turned_away as f64
    }
}

fn describe(turn: &Turn) -> String {
    let flood = &turn.flood;
    format!(
        "few senders {:.0} spans/s, many {:.0?}, flooded with {:.0} (sent {:.0}), delivered {:.0}, refused {} failed {} unanswered {}, lost {}, {:.0} MiB, subject {:.0} % and bench {:.0} % of a core",
        turn.few_senders_per_s,
        turn.levels_per_s,
        flood.offered_per_s,
        flood.sent_per_s,
        flood.goodput_per_s,
        flood.refused,
        flood.failed,
        flood.unanswered,
        flood.lost,
        mebibytes(flood.memory.peak_bytes),
        100.0 * flood.taken.subject_core,
        100.0 * flood.taken.bench_core,
    )
}

impl Series {
    /// The index of the level at which most is delivered. By medians: the best of single measurements is the luckiest.
    fn peak_level(&self) -> usize {
        let median_at = |&level: &usize| {
            Spread::of(self.turns.iter().map(|turn| turn.levels_per_s[level])).map_or(0.0, |spread| spread.median)
        };
        (0..LEVELS.len()).max_by(|a, b| median_at(a).total_cmp(&median_at(b))).expect("there are levels")
    }

    fn peaks_per_s(&self) -> impl Iterator<Item = f64> {
        let level = self.peak_level();
        self.turns.iter().map(move |turn| turn.levels_per_s[level])
    }

    fn floods(&self) -> impl Iterator<Item = &Flood> {
        self.turns.iter().map(|turn| &turn.flood)
    }

    /// What was delivered of a flood, by what was delivered at the peak in the same turn.
    fn goodput_shares(&self) -> impl Iterator<Item = f64> {
        self.floods().zip(self.peaks_per_s()).map(|(flood, peak_per_s)| flood.goodput_per_s / peak_per_s)
    }

    fn holds(&self) -> bool {
        let goodput = Spread::of(self.goodput_shares()).map_or(f64::NAN, |share| share.median);
        let is_each =
            |flood: &Flood| flood.failed + flood.unanswered + flood.lost == 0 && flood.memory.share() <= MEMORY_BAR;
        goodput >= GOODPUT_BAR && self.floods().all(is_each)
    }

    fn json(&self) -> Value {
        json!({
            "subject": self.name,
            "ack": self.ack.name(),
            "senders": self.senders.name(),
            "peak_level": LEVELS[self.peak_level()],
            "goodput_shares": self.goodput_shares().collect::<Vec<_>>(),
            "holds": self.holds(),
            "turns": self.turns.iter().map(turn_json).collect::<Vec<_>>(),
        })
    }
}

fn notes() -> String {
    format!(
        "{CPU_CORES} cores by quota, memory limit {MEMORY_LIMIT_MIB} MiB, spans of 40 attributes. Few senders: the better of closed \
         loops of 8 and 32 requests in flight. Then many in open loop, clients with a connection each (256 × 1) or gateways with \
         many requests at a time on each (16 × 16, 64 × 32), offer {LEVELS:?} and {FLOOD} times that, each to a new subject, and do not come \
         back; what is offered while all their requests wait is not sent. The peak is the level at which most is delivered, by the medians of all turns.\nBar: of {FLOOD} times at least 95 % of \
         the peak in the same turn is delivered (median), every refusal retryable, nothing acknowledged lost, memory at most 110 % of the limit."
    )
}

fn table(all: &[Series]) -> String {
    const HEADER: [&str; 14] = [
        "Subject",
        "ack",
        "senders",
        "few senders spans/s",
        "peak spans/s",
        "offered of peak",
        "sent of peak",
        "goodput of peak",
        "retryable",
        "without delay",
        "lost",
        "doubled",
        "peak MiB (of limit)",
        "holds",
    ];
    let row = |series: &Series| {
        let floods = || series.floods();
        let peak = median(floods().map(|flood| mebibytes(flood.memory.peak_bytes)), 0);
        let of_peak = |rate: fn(&Flood) -> f64| {
            percent(floods().zip(series.peaks_per_s()).map(move |(flood, peak_per_s)| rate(flood) / peak_per_s))
        };
        vec![
            series.name.to_owned(),
            series.ack.name().to_owned(),
            series.senders.name().to_owned(),
            median(series.turns.iter().map(|turn| turn.few_senders_per_s), 0),
            median(series.peaks_per_s(), 0),
            of_peak(|flood| flood.offered_per_s),
            of_peak(|flood| flood.sent_per_s),
            percent(series.goodput_shares()),
            percent(floods().map(Flood::retryable_share)),
            worst(floods().map(|flood| flood.without_delay)),
            worst(floods().map(|flood| flood.lost)),
            worst(floods().map(|flood| flood.doubled)),
            format!("{peak} ({})", percent(floods().map(|flood| flood.memory.share()))),
            yes_or_no(series.holds()),
        ]
    };
    markdown(&HEADER, 3, all.iter().map(row).collect())
}

fn turn_json(turn: &Turn) -> Value {
    let flood = &turn.flood;
    json!({
        "few_senders_per_s": turn.few_senders_per_s,
        "levels_per_s": turn.levels_per_s,
        "offered_per_s": flood.offered_per_s,
        "sent_per_s": flood.sent_per_s,
        "goodput_per_s": flood.goodput_per_s,
        "refused": flood.refused,
        "failed": flood.failed,
        "unanswered": flood.unanswered,
        "refusals_without_delay": flood.without_delay,
        "lost": flood.lost,
        "doubled": flood.doubled,
        "acknowledged_p99_ms": milliseconds(flood.acknowledged_after.p99),
        "peak_rss_bytes": flood.memory.peak_bytes,
        "memory_limit_bytes": flood.memory.limit_bytes,
        "subject_core": flood.taken.subject_core,
        "bench_core": flood.taken.bench_core,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(levels_per_s: [f64; LEVELS.len()], goodput_per_s: f64) -> Turn {
        let memory = Memory { peak_bytes: 110, limit_bytes: 100 };
        let flood = Flood { goodput_per_s, refused: 5000, memory, ..Flood::default() };
        Turn { levels_per_s, flood, ..Turn::default() }
    }

    fn series(turns: Vec<Turn>) -> Series {
        Series { name: "sluice", ack: Ack::Memory, senders: Senders::Clients, turns }
    }

    fn holds(change: impl Fn(&mut Flood)) -> bool {
        let mut turn = turn([500.0, 650.0, 1000.0, 900.0], 950.0);
        change(&mut turn.flood);
        series(vec![turn]).holds()
    }

    #[test]
    fn each_bar_is_one() {
        assert!(holds(|_| {}));
        assert!(!holds(|flood| flood.goodput_per_s = 949.0));
        assert!(!holds(|flood| flood.failed = 1));
        assert!(!holds(|flood| flood.unanswered = 1));
        assert!(!holds(|flood| flood.lost = 1));
        assert!(!holds(|flood| flood.memory.peak_bytes = 111));
        assert!(!series(vec![]).holds(), "not measured");
    }

    #[test]
    fn the_peak_is_one_level_for_all_turns() {
        let all = series(vec![
            turn([500.0, 640.0, 800.0, 760.0], 780.0),
            turn([500.0, 650.0, 790.0, 950.0], 790.0),
            turn([500.0, 660.0, 810.0, 770.0], 729.0),
        ]);
        assert_eq!(LEVELS[all.peak_level()], 0.8, "950 was a lucky moment");
        let shares: Vec<f64> = all.goodput_shares().collect();
        assert_eq!(shares, [780.0 / 800.0, 1.0, 0.9]);
        assert!(all.holds(), "the median of them");
    }
}
