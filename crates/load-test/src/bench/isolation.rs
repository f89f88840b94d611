//! Isolation: three pipelines share a receiver, and the third one's backend is dead, refuses everything or never
//! answers. What the other two deliver, and how soon, against what they do when all three are well.

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
use crate::generate::Retry;
use crate::latency::Latency;
use crate::subject::Limits;

/// Small enough for the sick pipeline's share to be spent before counting begins.
const MEMORY_LIMIT_MIB: u64 = 512;
/// Windows before counting, and counted.
const WARM_UP_WINDOWS: u32 = 1;
const COUNTED_WINDOWS: u32 = 2;
/// At least so long before counting: 40 attributes at 20,000 spans/s fill a third of the memory in it.
const WARM_UP_MIN: Duration = Duration::from_secs(5);
const DRAIN_WITHIN: Duration = Duration::from_secs(10);

const SHARE_BAR: f64 = 0.95;
const P99_RATIO_BAR: f64 = 1.5;
const P99_ADDED_BAR_MS: f64 = 5.0;

/// What is wrong with the third backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Third {
    Healthy,
    Dead,
    Refusing,
    Stalled,
}

impl Third {
    const ALL: [Third; 4] = [Third::Healthy, Third::Dead, Third::Refusing, Third::Stalled];

    fn name(self) -> &'static str {
        match self {
            Third::Healthy => "healthy",
            Third::Dead => "dead",
            Third::Refusing => "refuses all",
            Third::Stalled => "never answers",
        }
    }

    fn faults(self) -> Faults {
        match self {
            Third::Healthy => Faults::none(),
            Third::Dead => Faults::dead(),
            Third::Refusing => Faults::unavailable(1.0),
            Third::Stalled => Faults::stalled(),
        }
    }
}

/// What the two healthy backends saw in one turn.
#[derive(Clone, Debug, Default)]
struct Turn {
    /// Of the slower one.
    spans_per_s: f64,
    /// Of the one with the higher p99.
    latency: Latency,
    /// Acknowledged and not at one of them.
    lost: u64,
    doubled: u64,
    offered: u64,
    accepted: u64,
    /// Spans that the generator could not send at their time, since all its streams waited.
    never_sent: u64,
    /// By the subject's own count, at the third pipeline.
    dropped: Option<f64>,
    memory: Memory,
    taken: Taken,
}

/// All turns of one contestant, by what is wrong.
struct Series {
    name: &'static str,
    /// In the order of [`Third::ALL`]; `None`: the turn failed.
    turns: [Vec<Option<Turn>>; 4],
}

pub(super) async fn run(options: &ScenarioOptions, progress: &mut dyn FnMut(&str)) -> Section {
    let new = |contestant: &Contestant| Series { name: contestant.name(), turns: Default::default() };
    let mut all: Vec<Series> = options.gateways().map(new).collect();
    for number in 1..=options.turns {
        for (index, third) in Third::ALL.into_iter().enumerate() {
            for (contestant, series) in options.gateways().zip(&mut all) {
                let label = format!("isolation, third {}, {} turn {number}", third.name(), series.name);
                let turn = measure(contestant, third, options).await;
                series.turns[index].push(told(&label, turn, describe, progress));
            }
        }
    }
    Section { scenario: Scenario::Isolation, notes: notes(options), table: table(&all), json: to_json(&all) }
}

async fn measure(contestant: &Contestant, third: Third, options: &ScenarioOptions) -> anyhow::Result<Turn> {
    let sick = Backend::start(BackendOptions::default().faults(third.faults())).await?;
    let healthy = [Backend::healthy().await?, Backend::healthy().await?];
    let setting = Setting {
        contestant,
        memory_limit_mib: MEMORY_LIMIT_MIB,
        backends: vec![healthy[0].addr(), healthy[1].addr(), sick.addr()],
        sluice_only: "",
        limits: Limits::default(),
        cpus: &options.subject_cpus,
    };
    let gateway = setting.start().await?;
    let warm_up = (options.window * WARM_UP_WINDOWS).max(WARM_UP_MIN);
    let counted = options.window * COUNTED_WINDOWS;
    let load = gateway.load().rate(options.spans_per_s).duration(warm_up + counted).retry(Retry::SDK);
    let running = load.start()?;
    sleep(warm_up).await;
    let before = (gateway.reading()?, healthy.each_ref().map(Backend::unique_items));
    healthy.iter().for_each(Backend::reset_latency);
    sleep(counted).await;
    let after = (gateway.reading()?, healthy.each_ref().map(Backend::unique_items));
    let latencies = healthy.each_ref().map(Backend::latency);
    let report = running.finish().await?;
    drained(&report, &healthy.each_ref(), DRAIN_WITHIN).await;
    let taken = before.0.until(&after.0);
    let delivered = before.1.iter().zip(after.1).map(|(before, after)| after - before).min().unwrap_or(0);
    Ok(Turn {
        spans_per_s: delivered as f64 / taken.elapsed_s,
        latency: latencies.into_iter().max_by_key(|latency| latency.p99).unwrap_or_default(),
        lost: healthy.iter().map(|backend| report.missing_at(backend)).sum(),
        doubled: healthy.iter().map(|backend| backend.counts().doubled).sum(),
        offered: report.offered,
        accepted: report.accepted,
        never_sent: report.never_sent,
        dropped: gateway.metric("sluice_delivery_dropped_items", &[("exporter", "otlp/2")]).await,
        memory: gateway.memory()?,
        taken,
    })
}

fn describe(turn: &Turn) -> String {
    format!(
        "{:.0} spans/s, p50 {:.2} and p99 {:.2} ms, lost {}, doubled {}, {:.0} MiB, subject {:.0} % and bench {:.0} % of a core",
        turn.spans_per_s,
        milliseconds(turn.latency.p50),
        milliseconds(turn.latency.p99),
        turn.lost,
        turn.doubled,
        mebibytes(turn.memory.peak_bytes),
        100.0 * turn.taken.subject_core,
        100.0 * turn.taken.bench_core,
    )
}

impl Series {
    fn turns(&self, third: Third) -> impl Iterator<Item = &Turn> {
        self.turns[third as usize].iter().flatten()
    }

    /// Something of each turn against the same round's turn with three healthy backends.
    fn against_healthy(&self, third: Third, compare: impl Fn(&Turn, &Turn) -> f64) -> Vec<f64> {
        let pairs = self.turns[third as usize].iter().zip(&self.turns[Third::Healthy as usize]);
        pairs.filter_map(|(own, healthy)| Some(compare(own.as_ref()?, healthy.as_ref()?))).collect()
    }

    fn share(&self, third: Third) -> Vec<f64> {
        self.against_healthy(third, |own, healthy| own.spans_per_s / healthy.spans_per_s)
    }

    fn p99_ratio(&self, third: Third) -> Vec<f64> {
        self.against_healthy(third, |own, healthy| own.latency.p99.as_secs_f64() / healthy.latency.p99.as_secs_f64())
    }

    fn p99_added_ms(&self, third: Third) -> Vec<f64> {
        self.against_healthy(third, |own, healthy| milliseconds(own.latency.p99) - milliseconds(healthy.latency.p99))
    }

    fn holds(&self, third: Third) -> bool {
        let median_of = |values: Vec<f64>| Spread::of(values).map_or(f64::NAN, |spread| spread.median);
        let is_soon = median_of(self.p99_ratio(third)) <= P99_RATIO_BAR
            || median_of(self.p99_added_ms(third)) <= P99_ADDED_BAR_MS;
        let is_whole = self.turns(third).all(|turn| turn.lost + turn.doubled == 0);
        let is_bounded = self.turns(third).all(|turn| turn.memory.share() <= MEMORY_BAR);
        median_of(self.share(third)) >= SHARE_BAR && is_soon && is_whole && is_bounded
    }
}

fn notes(options: &ScenarioOptions) -> String {
    format!(
        "{:.0} spans/s of 40 attributes offered to three pipelines, memory limit {MEMORY_LIMIT_MIB} MiB. What the two healthy \
         pipelines deliver, the slower of them; p99 from sending to arrival.\nBar: at least 95 % of the rate with three \
         healthy backends, p99 at most 1.5 × or 5 ms more, nothing lost or doubled, memory at most 110 % of the limit.",
        options.spans_per_s
    )
}

fn table(all: &[Series]) -> String {
    const HEADER: [&str; 12] = [
        "Third backend",
        "Subject",
        "spans/s",
        "of healthy",
        "p50 ms",
        "p99 ms",
        "p99 ×",
        "p99 + ms",
        "lost",
        "doubled",
        "peak MiB (of limit)",
        "holds",
    ];
    let mut rows = Vec::new();
    for third in Third::ALL {
        for series in all {
            let turns = || series.turns(third);
            let peak = median(turns().map(|turn| mebibytes(turn.memory.peak_bytes)), 0);
            rows.push(vec![
                third.name().to_owned(),
                series.name.to_owned(),
                median(turns().map(|turn| turn.spans_per_s), 0),
                percent(series.share(third)),
                median(turns().map(|turn| milliseconds(turn.latency.p50)), 2),
                median(turns().map(|turn| milliseconds(turn.latency.p99)), 2),
                median(series.p99_ratio(third), 2),
                median(series.p99_added_ms(third), 2),
                worst(turns().map(|turn| turn.lost)),
                worst(turns().map(|turn| turn.doubled)),
                format!("{peak} ({})", percent(turns().map(|turn| turn.memory.share()))),
                yes_or_no(series.holds(third)),
            ]);
        }
    }
    markdown(&HEADER, 2, rows)
}

fn to_json(all: &[Series]) -> Value {
    let cases = Third::ALL.into_iter().map(|third| {
        let subjects: serde_json::Map<String, Value> = all
            .iter()
            .map(|series| {
                let one = json!({
                    "share_of_healthy": series.share(third),
                    "p99_ratio": series.p99_ratio(third),
                    "p99_added_ms": series.p99_added_ms(third),
                    "holds": series.holds(third),
                    "turns": series.turns(third).map(turn_json).collect::<Vec<_>>(),
                });
                (series.name.to_owned(), one)
            })
            .collect();
        json!({ "third_backend": third.name(), "subjects": subjects })
    });
    cases.collect()
}

fn turn_json(turn: &Turn) -> Value {
    json!({
        "spans_per_s": turn.spans_per_s,
        "p50_ms": milliseconds(turn.latency.p50),
        "p99_ms": milliseconds(turn.latency.p99),
        "p999_ms": milliseconds(turn.latency.p999),
        "max_ms": milliseconds(turn.latency.max),
        "lost": turn.lost,
        "doubled": turn.doubled,
        "offered": turn.offered,
        "accepted": turn.accepted,
        "never_sent": turn.never_sent,
        "third_pipeline_dropped": turn.dropped,
        "peak_rss_bytes": turn.memory.peak_bytes,
        "memory_limit_bytes": turn.memory.limit_bytes,
        "subject_core": turn.taken.subject_core,
        "bench_core": turn.taken.bench_core,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(spans_per_s: f64, p99_ms: u64, peak_mib: u64) -> Option<Turn> {
        Some(Turn {
            spans_per_s,
            latency: Latency { count: 1, p99: Duration::from_millis(p99_ms), ..Latency::default() },
            memory: Memory { peak_bytes: peak_mib << 20, limit_bytes: MEMORY_LIMIT_MIB << 20 },
            ..Turn::default()
        })
    }

    fn series(dead: Vec<Option<Turn>>) -> Series {
        let healthy = vec![turn(1000.0, 10, 100), turn(2000.0, 10, 100), turn(1000.0, 10, 100)];
        Series { name: "sluice", turns: [healthy, dead, vec![], vec![]] }
    }

    #[test]
    fn ratios_are_taken_round_by_round_and_a_failed_turn_leaves_a_gap() {
        let series = series(vec![turn(990.0, 12, 100), None, turn(960.0, 16, 100)]);
        assert_eq!(series.share(Third::Dead), [0.99, 0.96], "the failed turn shifts nothing");
        assert!(series.holds(Third::Dead), "a p99 of 1.4 × the healthy one");
        assert!(!series.holds(Third::Stalled), "what was not measured does not hold");
        assert_eq!(table(&[series]).lines().count(), 2 + 4);
    }

    #[test]
    fn each_bar_is_one() {
        let with = |change: fn(&mut Turn)| {
            let mut turn = turn(1000.0, 10, 100).unwrap();
            change(&mut turn);
            series(vec![Some(turn)]).holds(Third::Dead)
        };
        assert!(with(|_| {}));
        assert!(with(|turn| turn.latency.p99 = Duration::from_millis(15)), "1.5 ×, or 5 ms more");
        assert!(!with(|turn| turn.latency.p99 = Duration::from_millis(16)));
        assert!(!with(|turn| turn.spans_per_s = 949.0));
        assert!(!with(|turn| turn.lost = 1));
        assert!(!with(|turn| turn.doubled = 1));
        assert!(!with(|turn| turn.memory.peak_bytes = 570 << 20));
    }
}
