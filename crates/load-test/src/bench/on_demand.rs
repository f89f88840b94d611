//! Durable on demand: what a directory costs while all backends are well, turn by turn against the same without one.

use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::gateway::{Setting, Taken};
use super::measure::Contestant;
use super::scenario::{Scenario, ScenarioOptions, Section, markdown, median, milliseconds, told, yes_or_no};
use super::table::Spread;
use crate::backend::{Backend, BackendOptions, Counting};
use crate::generate::{Retry, Shape};
use crate::latency::Latency;
use crate::subject::Limits;

const MEMORY_LIMIT_MIB: u64 = 512;
const WARM_UP: Duration = Duration::from_secs(1);
const COUNTED_WINDOWS: u32 = 2;
/// As in the target: within 5 %.
const COST_BAR: f64 = 1.05;
const RATE_BAR: f64 = 0.95;

const DELIVERED: &str = "buffer:\n  ack: delivered\n  policy: backpressure\n";
const ON_DEMAND: &str = "buffer:\n  directory: {dir}/buffer\n  ack: delivered_or_durable\n  policy: backpressure\n";

#[derive(Clone, Debug, Default)]
struct Turn {
    cpu_s_per_million: f64,
    spans_per_s: f64,
    acknowledged: Latency,
    /// Written to segment files, by the subject's own count.
    written_bytes: f64,
    taken: Taken,
}

/// Without and with a directory.
type Pairs = Vec<(Turn, Turn)>;

pub(super) async fn run(options: &ScenarioOptions, progress: &mut dyn FnMut(&str)) -> Section {
    let mut pairs = Pairs::new();
    let sluice = options.sluice();
    if let Some(contestant) = sluice {
        for number in 1..=options.turns {
            let pair = measure_pair(contestant, options).await;
            pairs.extend(told(&format!("on-demand turn {number}"), pair, describe, progress));
        }
    }
    let turns = |of: fn(&(Turn, Turn)) -> &Turn| pairs.iter().map(|pair| turn_json(of(pair))).collect::<Vec<_>>();
    let json = json!({
        "holds": holds(&pairs),
        "delivered": turns(|pair| &pair.0),
        "delivered_or_durable": turns(|pair| &pair.1),
    });
    Section { scenario: Scenario::OnDemand, notes: notes(), table: table(&pairs), json }
}

async fn measure_pair(contestant: &Contestant, options: &ScenarioOptions) -> anyhow::Result<(Turn, Turn)> {
    let delivered = measure(contestant, DELIVERED, options).await.context("delivered")?;
    let on_demand = measure(contestant, ON_DEMAND, options).await.context("delivered_or_durable")?;
    Ok((delivered, on_demand))
}

async fn measure(
    contestant: &Contestant,
    sluice_only: &'static str,
    options: &ScenarioOptions,
) -> anyhow::Result<Turn> {
    let bytes_per_item = Shape::of(sluice_otlp::Signal::Traces).bytes_per_item();
    let counting = Counting::Light { bytes_per_item };
    let backend = Backend::start(BackendOptions { counting, ..BackendOptions::default() }).await?;
    let setting = Setting {
        contestant,
        memory_limit_mib: MEMORY_LIMIT_MIB,
        backends: vec![backend.addr()],
        sluice_only,
        limits: Limits::default(),
        cpus: &options.subject_cpus,
    };
    let gateway = setting.start().await?;
    let counted = options.window * COUNTED_WINDOWS;
    let mut load = gateway.load().duration(WARM_UP + counted).retry(Retry::SDK);
    load.grace = Duration::from_secs(2);
    let running = load.start()?;
    sleep(WARM_UP).await;
    let before = (gateway.reading()?, backend.items());
    sleep(counted).await;
    let after = (gateway.reading()?, backend.items());
    let written_bytes = gateway.metric("sluice_log_written_bytes", &[]).await.unwrap_or(0.0);
    let report = running.finish().await?;
    let taken = before.0.until(&after.0);
    let spans = (after.1 - before.1) as f64;
    ensure!(spans > 0.0, "nothing arrived at the backend: {:?}", report.messages);
    Ok(Turn {
        cpu_s_per_million: taken.subject_cpu_s / spans * 1e6,
        spans_per_s: spans / taken.elapsed_s,
        acknowledged: report.acknowledged_after,
        written_bytes,
        taken,
    })
}

fn cost(pair: &(Turn, Turn)) -> f64 {
    pair.1.cpu_s_per_million / pair.0.cpu_s_per_million
}

fn rate(pair: &(Turn, Turn)) -> f64 {
    pair.1.spans_per_s / pair.0.spans_per_s
}

fn holds(pairs: &Pairs) -> bool {
    Spread::of(pairs.iter().map(cost)).is_some_and(|cost| cost.median <= COST_BAR)
        && Spread::of(pairs.iter().map(rate)).is_some_and(|rate| rate.median >= RATE_BAR)
}

fn describe(pair: &(Turn, Turn)) -> String {
    format!(
        "{:.2} CPU-s/M and {:.0} spans/s without a directory, {:.2} and {:.0} with one: {:.3} × and {:.3} ×; {:.1} MB written",
        pair.0.cpu_s_per_million,
        pair.0.spans_per_s,
        pair.1.cpu_s_per_million,
        pair.1.spans_per_s,
        cost(pair),
        rate(pair),
        pair.1.written_bytes / 1e6,
    )
}

fn notes() -> String {
    format!(
        "One healthy backend, spans of 40 attributes as fast as they go, `ack: delivered` without a directory and \
         `delivered_or_durable` with one, in turn.\nBar: a span costs at most {COST_BAR} × as much CPU, and at least {RATE_BAR} × as \
         many go through."
    )
}

fn table(pairs: &Pairs) -> String {
    const HEADER: [&str; 9] =
        ["Acknowledged", "CPU-s/M", "×", "spans/s", "×", "p50 ms", "p99 ms", "MB written", "holds"];
    let row = |name: &str, of: fn(&(Turn, Turn)) -> &Turn, ratios: [String; 2], holds: String| {
        let turns = || pairs.iter().map(of);
        let [cost, rate] = ratios;
        vec![
            name.to_owned(),
            median(turns().map(|turn| turn.cpu_s_per_million), 2),
            cost,
            median(turns().map(|turn| turn.spans_per_s), 0),
            rate,
            median(turns().map(|turn| milliseconds(turn.acknowledged.p50)), 2),
            median(turns().map(|turn| milliseconds(turn.acknowledged.p99)), 2),
            median(turns().map(|turn| turn.written_bytes / 1e6), 1),
            holds,
        ]
    };
    let ratios = [median(pairs.iter().map(cost), 3), median(pairs.iter().map(rate), 3)];
    let delivered = row("delivered", |pair| &pair.0, Default::default(), String::new());
    let on_demand = row("delivered_or_durable", |pair| &pair.1, ratios, yes_or_no(holds(pairs)));
    markdown(&HEADER, 1, vec![delivered, on_demand])
}

fn turn_json(turn: &Turn) -> Value {
    json!({
        "cpu_s_per_million": turn.cpu_s_per_million,
        "spans_per_s": turn.spans_per_s,
        "acknowledged_p50_ms": milliseconds(turn.acknowledged.p50),
        "acknowledged_p99_ms": milliseconds(turn.acknowledged.p99),
        "written_bytes": turn.written_bytes,
        "subject_core": turn.taken.subject_core,
        "bench_core": turn.taken.bench_core,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_cost_and_rate_have_to_hold() {
        let turn = |cpu_s_per_million, spans_per_s| Turn { cpu_s_per_million, spans_per_s, ..Turn::default() };
        assert!(holds(&vec![(turn(2.0, 100.0), turn(2.1, 96.0))]));
        assert!(!holds(&vec![(turn(2.0, 100.0), turn(2.2, 100.0))]), "costs more");
        assert!(!holds(&vec![(turn(2.0, 100.0), turn(2.0, 90.0))]), "takes less");
        assert!(!holds(&vec![]), "what was not measured does not hold");
    }
}
