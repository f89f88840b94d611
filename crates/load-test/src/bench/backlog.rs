//! Backlog: a second pipeline's dead backend pins a hundred thousand requests in memory. What a span costs on its way to
//! the healthy backend, against the same with nothing pinned.

use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::gateway::{Gateway, Memory, Setting, Taken, drained};
use super::measure::Contestant;
use super::scenario::{
    Scenario, ScenarioOptions, Section, markdown, mebibytes, median, milliseconds, told, worst, yes_or_no,
};
use super::table::Spread;
use crate::backend::{Backend, BackendOptions, Faults};
use crate::generate::{Retry, Shape};
use crate::latency::Latency;
use crate::subject::Limits;

/// Requests that are pinned before counting begins, of one small span each.
const PINNED_REQUESTS: u64 = 100_000;
const PINNED_WITHIN: Duration = Duration::from_secs(60);
/// Enough for the backlog and what the counted load adds to it, several times over: nothing is dropped.
const MEMORY_LIMIT_MIB: u64 = 4096;
const WARM_UP: Duration = Duration::from_secs(1);
const COUNTED_WINDOWS: u32 = 2;
const DRAIN_WITHIN: Duration = Duration::from_secs(10);

/// A cost that does not depend on the backlog is within the noise of 1.
const RATIO_BAR: f64 = 1.10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backlog {
    Empty,
    Long,
}

#[derive(Clone, Debug, Default)]
struct Turn {
    cpu_s_per_million: f64,
    spans_per_s: f64,
    latency: Latency,
    lost: u64,
    doubled: u64,
    /// By the subject's own count before counting began, in spans.
    pinned: f64,
    memory: Memory,
    taken: Taken,
}

/// Turns with an empty and with a long backlog, in pairs.
type Pairs = Vec<(Turn, Turn)>;

pub(super) async fn run(options: &ScenarioOptions, progress: &mut dyn FnMut(&str)) -> Section {
    let mut pairs = Pairs::new();
    // The Collector's queue holds a hundredth of that.
    let sluice = options.sluice();
    if let Some(contestant) = sluice {
        for number in 1..=options.turns {
            let pair = measure_pair(contestant, options).await;
            pairs.extend(told(&format!("backlog turn {number}"), pair, describe, progress));
        }
    }
    let turns = |of: fn(&(Turn, Turn)) -> &Turn| pairs.iter().map(|pair| turn_json(of(pair))).collect::<Vec<_>>();
    let json = json!({
        "ratio": pairs.iter().map(ratio).collect::<Vec<_>>(),
        "holds": holds(&pairs),
        "empty": turns(|pair| &pair.0),
        "long": turns(|pair| &pair.1),
    });
    Section { scenario: Scenario::Backlog, notes: notes(options), table: table(&pairs), json }
}

async fn measure_pair(contestant: &Contestant, options: &ScenarioOptions) -> anyhow::Result<(Turn, Turn)> {
    let empty = measure(contestant, Backlog::Empty, options).await.context("empty backlog")?;
    let long = measure(contestant, Backlog::Long, options).await.context("long backlog")?;
    Ok((empty, long))
}

async fn measure(contestant: &Contestant, backlog: Backlog, options: &ScenarioOptions) -> anyhow::Result<Turn> {
    let dead = Backend::start(BackendOptions::default().faults(Faults::dead())).await?;
    let healthy = Backend::healthy().await?;
    let setting = Setting {
        contestant,
        memory_limit_mib: MEMORY_LIMIT_MIB,
        backends: vec![healthy.addr(), dead.addr()],
        sluice_only: "buffer:\n  policy: drop_oldest\n",
        limits: Limits::default(),
        cpus: &options.subject_cpus,
    };
    let gateway = setting.start().await?;
    let pinned = match backlog {
        Backlog::Empty => 0.0,
        Backlog::Long => pin(&gateway, &healthy).await?,
    };
    let counted = options.window * COUNTED_WINDOWS;
    let load = gateway.load().rate(options.spans_per_s).duration(WARM_UP + counted).retry(Retry::SDK);
    let running = load.start()?;
    sleep(WARM_UP).await;
    let before = (gateway.reading()?, healthy.unique_items());
    healthy.reset_latency();
    sleep(counted).await;
    let after = (gateway.reading()?, healthy.unique_items());
    let latency = healthy.latency();
    let report = running.finish().await?;
    drained(&report, &[&healthy], DRAIN_WITHIN).await;
    let dropped = gateway.metric("sluice_delivery_dropped_items", &[]).await;
    ensure!(dropped == Some(0.0), "the backlog did not stay: {dropped:?} spans dropped");
    let taken = before.0.until(&after.0);
    let spans = (after.1 - before.1) as f64;
    ensure!(spans > 0.0, "nothing arrived at the healthy backend: {:?}", report.messages);
    Ok(Turn {
        cpu_s_per_million: taken.subject_cpu_s / spans * 1e6,
        spans_per_s: spans / taken.elapsed_s,
        latency,
        lost: report.missing_at(&healthy),
        doubled: healthy.counts().doubled,
        pinned,
        memory: gateway.memory()?,
        taken,
    })
}

/// Fills the dead pipeline's backlog, and waits until the healthy one has nothing of it left to do.
async fn pin(gateway: &Gateway, healthy: &Backend) -> anyhow::Result<f64> {
    let mut load = gateway.load().items(PINNED_REQUESTS).retry(Retry::SDK);
    load.shape = Shape { items_per_request: 1, attributes: 1, ..load.shape };
    let report = load.run().await?;
    ensure!(report.accepted == PINNED_REQUESTS, "{} requests accepted: {:?}", report.accepted, report.messages);
    drained(&report, &[healthy], PINNED_WITHIN).await.context("the healthy pipeline did not keep up")?;
    let began = Instant::now();
    loop {
        let of = async |exporter| gateway.metric("sluice_delivery_backlog_items", &[("exporter", exporter)]).await;
        let (left, pinned) = (of("otlp/0").await, of("otlp/1").await.unwrap_or(0.0));
        if left == Some(0.0) && pinned >= PINNED_REQUESTS as f64 {
            return Ok(pinned);
        }
        ensure!(began.elapsed() < DRAIN_WITHIN, "the backlog is {pinned} spans, the healthy pipeline's {left:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

fn ratio(pair: &(Turn, Turn)) -> f64 {
    pair.1.cpu_s_per_million / pair.0.cpu_s_per_million
}

fn holds(pairs: &Pairs) -> bool {
    let is_whole = |turn: &Turn| turn.lost + turn.doubled == 0;
    Spread::of(pairs.iter().map(ratio)).is_some_and(|ratio| ratio.median <= RATIO_BAR)
        && pairs.iter().all(|(empty, long)| is_whole(empty) && is_whole(long))
}

fn describe(pair: &(Turn, Turn)) -> String {
    format!(
        "{:.2} CPU-s/M with nothing pinned, {:.2} with {:.0} requests pinned: {:.2} ×; p99 {:.2} and {:.2} ms",
        pair.0.cpu_s_per_million,
        pair.1.cpu_s_per_million,
        pair.1.pinned,
        ratio(pair),
        milliseconds(pair.0.latency.p99),
        milliseconds(pair.1.latency.p99),
    )
}

fn notes(options: &ScenarioOptions) -> String {
    format!(
        "Two pipelines, the second one's backend dead, {:.0} spans/s of 40 attributes; with nothing in the second one's \
         backlog at first, and with {PINNED_REQUESTS} requests of one small span.\nBar: a span costs at most {RATIO_BAR} × as \
         much CPU, nothing lost or doubled at the healthy backend.",
        options.spans_per_s
    )
}

fn table(pairs: &Pairs) -> String {
    const HEADER: [&str; 9] =
        ["Backlog", "CPU-s/M", "×", "spans/s", "p50 ms", "p99 ms", "lost and doubled", "peak MiB", "holds"];
    let row = |name: &str, of: fn(&(Turn, Turn)) -> &Turn, ratio: String, holds: String| {
        let turns = || pairs.iter().map(of);
        vec![
            name.to_owned(),
            median(turns().map(|turn| turn.cpu_s_per_million), 2),
            ratio,
            median(turns().map(|turn| turn.spans_per_s), 0),
            median(turns().map(|turn| milliseconds(turn.latency.p50)), 2),
            median(turns().map(|turn| milliseconds(turn.latency.p99)), 2),
            worst(turns().map(|turn| turn.lost + turn.doubled)),
            median(turns().map(|turn| mebibytes(turn.memory.peak_bytes)), 0),
            holds,
        ]
    };
    let empty = row("empty", |pair| &pair.0, String::new(), String::new());
    let long = row("long", |pair| &pair.1, median(pairs.iter().map(ratio), 2), yes_or_no(holds(pairs)));
    markdown(&HEADER, 1, vec![empty, long])
}

fn turn_json(turn: &Turn) -> Value {
    json!({
        "cpu_s_per_million": turn.cpu_s_per_million,
        "spans_per_s": turn.spans_per_s,
        "pinned_spans": turn.pinned,
        "p50_ms": milliseconds(turn.latency.p50),
        "p99_ms": milliseconds(turn.latency.p99),
        "lost": turn.lost,
        "doubled": turn.doubled,
        "peak_rss_bytes": turn.memory.peak_bytes,
        "subject_core": turn.taken.subject_core,
        "bench_core": turn.taken.bench_core,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_that_grows_with_the_backlog_does_not_hold() {
        let turn = |cpu_s_per_million| Turn { cpu_s_per_million, ..Turn::default() };
        assert!(holds(&vec![(turn(2.0), turn(2.1)), (turn(2.0), turn(5.0)), (turn(2.0), turn(2.0))]), "the median");
        assert!(!holds(&vec![(turn(2.0), turn(2.3))]));
        assert!(!holds(&vec![(turn(2.0), Turn { lost: 1, ..turn(2.0) })]));
        assert!(!holds(&vec![]), "what was not measured does not hold");
    }
}
