//! Durable on demand: what a directory costs while all backends are well, turn by turn against the same without one.

use std::time::Duration;

use serde_json::json;

use crate::bench::figures::{Figures, Series, compare};
use crate::bench::options::Options;
use crate::bench::scenario::{CORES, Scenario, Turn, sluice_only};
use crate::bench::stage::Setting;
use crate::generate::{Load, Retry};

const MEMORY_LIMIT_MIB: u64 = 512;
const WARM_UP: Duration = Duration::from_secs(1);
const COUNTED_WINDOWS: u32 = 2;
/// As in the target: within 5 %.
const COST_BAR: f64 = 1.05;
const RATE_BAR: f64 = 0.95;

const DELIVERED: &str = "delivered";

pub(super) const SCENARIO: Scenario = Scenario {
    id: "on-demand",
    title: "what a directory costs while all backends are well",
    cases: &[DELIVERED, "delivered_or_durable"],
    takes: sluice_only,
    measure: |turn| Box::pin(measure(turn)),
    compare: |all| {
        compare(all, DELIVERED, "cost_ratio", "cpu_s_per_million", |own, delivered| own / delivered);
        compare(all, DELIVERED, "rate_ratio", "spans_per_s", |own, delivered| own / delivered);
    },
    columns: &[
        ("Acknowledged", |series| series.case.clone()),
        ("CPU-s/M", |series| series.cell("cpu_s_per_million", 2)),
        ("×", |series| series.cell("cost_ratio", 3)),
        ("spans/s", |series| series.cell("spans_per_s", 0)),
        ("×", |series| series.cell("rate_ratio", 3)),
        ("p50 ms", |series| series.cell("acknowledged_p50_ms", 2)),
        ("p99 ms", |series| series.cell("acknowledged_p99_ms", 2)),
        ("MB written", |series| series.millions("written_bytes", 1)),
        CORES[0],
        CORES[1],
    ],
    holds,
    notes,
};

async fn measure(turn: Turn<'_>) -> anyhow::Result<Figures> {
    let directory = if turn.case == DELIVERED { "" } else { "  directory: {dir}/buffer\n" };
    let buffer = format!("buffer:\n{directory}  ack: {}\n  policy: backpressure\n", turn.case);
    let stage = Setting::of(turn, MEMORY_LIMIT_MIB, &buffer)?.counting_lightly().start(turn.contestant).await?;
    let counted = turn.options.window * COUNTED_WINDOWS;
    let load = Load { grace: Duration::from_secs(2), ..stage.load() };
    let observed = stage.under_load(load.duration(WARM_UP + counted).retry(Retry::SDK), WARM_UP, counted).await?;
    let written_bytes = stage.metric("sluice_log_written_bytes", &[]).await.unwrap_or(0.0);
    Ok(stage.figures(&observed)?.with(json!({ "written_bytes": written_bytes })))
}

fn holds(series: &Series) -> bool {
    series.median("cost_ratio") <= COST_BAR && series.median("rate_ratio") >= RATE_BAR
}

fn notes(_: &Options) -> String {
    format!(
        "One healthy backend, spans of 40 attributes as fast as they go, `ack: delivered` without a directory and \
         `delivered_or_durable` with one, in turn.\nBar: a span costs at most {COST_BAR} × as much CPU, and at least \
         {RATE_BAR} × as \
         many go through."
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::bench::figures::tests::series;

    #[test]
    fn both_cost_and_rate_have_to_hold() {
        let holds = |turns: &[(f64, f64)]| {
            let turn = |&(cost, rate): &(f64, f64)| json!({ "cpu_s_per_million": cost, "spans_per_s": rate });
            let turns: Vec<Value> = turns.iter().map(turn).collect();
            let mut all = [series(DELIVERED, &[turn(&(2.0, 100.0))]), series("delivered_or_durable", &turns)];
            (SCENARIO.compare)(&mut all);
            holds(&all[1])
        };
        assert!(holds(&[(2.1, 96.0)]));
        assert!(!holds(&[(2.2, 100.0)]), "costs more");
        assert!(!holds(&[(2.0, 90.0)]), "takes less");
        assert!(!holds(&[]), "what was not measured does not hold");
    }
}
