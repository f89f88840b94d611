//! Durable on demand: the cost of a directory while all backends are well, against none.

use super::*;

/// As in the target: within 5 %.
const COST_BAR: f64 = 1.05;
const RATE_BAR: f64 = 0.95;

const DELIVERED: &str = "delivered";

pub(super) const SCENARIO: Scenario = Scenario {
    id: "on-demand",
    title: "what a directory costs while all backends are well",
    cases: &[DELIVERED, "delivered_or_durable"],
    case_head: "Acknowledged",
    takes: |contestant, _| contestant.is_sluice(),
    measure: |turn| Box::pin(measure(turn)),
    compare: |all| {
        compare(all, DELIVERED, "cost_ratio", "cpu_s_per_million", Div::div);
        compare(all, DELIVERED, "rate_ratio", "spans_per_s", Div::div);
    },
    columns: &[
        ("CPU-s/M", |series| series.cell("cpu_s_per_million", 2)),
        ("×", |series| series.cell("cost_ratio", 3)),
        ("spans/s", |series| series.cell("spans_per_s", 0)),
        ("×", |series| series.cell("rate_ratio", 3)),
        ("p50 ms", |series| series.cell("acknowledged_p50_ms", 2)),
        ("p99 ms", |series| series.cell("acknowledged_p99_ms", 2)),
        ("MB written", |series| series.millions("written_bytes", 1)),
    ],
    holds: |series| {
        series.median("cost_ratio") <= COST_BAR && series.median("rate_ratio") >= RATE_BAR
    },
    notes: |_| {
        format!(
            "One healthy backend, spans of 40 attributes as fast as they go, `ack: delivered` \
             without a directory and `delivered_or_durable` with one, in turn.\nBar: a span costs \
             at most {COST_BAR} × as much CPU, and at least {RATE_BAR} × as many go through."
        )
    },
};

async fn measure(turn: Turn<'_>) -> Result<Figures> {
    let directory = if turn.case == DELIVERED { "" } else { "  directory: {dir}/buffer\n" };
    let buffer = format!("buffer:\n{directory}  ack: {}\n  policy: backpressure\n", turn.case);
    let stage = Setting::of(turn, MEMORY_LIMIT_MIB, &buffer)?.counting_lightly().start().await?;
    let load = Load { grace: Duration::from_secs(2), ..stage.load() }.retry(Retry::SDK);
    let observed = stage.under_load(load, WARM_UP, turn.counted()).await?;
    let written_bytes = stage.metric("sluice_log_written_bytes", &[]).await.unwrap_or(0.0);
    stage.figures(&observed, json!({ "written_bytes": written_bytes }))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::figures::tests::series;

    #[test]
    fn both_cost_and_rate_have_to_hold() {
        let holds = |turns: &[(f64, f64)]| {
            let turn = |of: &(f64, f64)| json!({ "cpu_s_per_million": of.0, "spans_per_s": of.1 });
            let turns: Vec<Value> = turns.iter().map(turn).collect();
            let mut all =
                [series(DELIVERED, &[turn(&(2.0, 100.0))]), series("delivered_or_durable", &turns)];
            (SCENARIO.compare)(&mut all);
            (SCENARIO.holds)(&all[1])
        };
        assert!(holds(&[(2.1, 96.0)]));
        assert!(!holds(&[(2.2, 100.0)]), "costs more");
        assert!(!holds(&[(2.0, 90.0)]), "takes less");
        assert!(!holds(&[]), "what was not measured does not hold");
    }
}
