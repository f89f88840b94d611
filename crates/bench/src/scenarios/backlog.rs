//! Backlog: a second pipeline's dead backend pins a hundred thousand requests in memory. Compares
//! the cost of a span to the healthy backend with the cost while nothing is pinned.

use super::*;

/// Requests that are pinned before counting begins, of one small span each.
const PINNED_REQUESTS: u64 = 100_000;
const PINNED_WITHIN: Duration = Duration::from_secs(60);
/// Several times the memory of the backlog and the counted load: nothing is dropped.
const MEMORY_LIMIT_MIB: u64 = 4096;
const DRAIN_WITHIN: Duration = Duration::from_secs(10);
/// A cost that does not depend on the backlog is within the noise of 1.
const RATIO_BAR: f64 = 1.10;

const EMPTY: &str = "empty";

pub(super) const SCENARIO: Scenario = Scenario {
    id: "backlog",
    title: "CPU an item with a long backlog against none",
    cases: &[EMPTY, "long"],
    case_head: "Backlog",
    // The Collector's queue holds a hundredth of that.
    takes: |contestant, _| contestant.is_sluice(),
    measure: |turn| Box::pin(measure(turn)),
    compare: |all| compare(all, EMPTY, "ratio", "cpu_s_per_million", Div::div),
    columns: &[
        ("CPU-s/M", |series| series.cell("cpu_s_per_million", 2)),
        ("×", |series| series.cell("ratio", 2)),
        ("spans/s", |series| series.cell("spans_per_s", 0)),
        ("p50 ms", |series| series.cell("p50_ms", 2)),
        ("p99 ms", |series| series.cell("p99_ms", 2)),
        ("lost", |series| series.worst("lost")),
        ("doubled", |series| series.worst("doubled")),
        ("peak MiB", |series| series.mebibytes("peak_rss_bytes", 0)),
    ],
    holds: |series| series.median("ratio") <= RATIO_BAR && series.none(&["lost", "doubled"]),
    notes: |options| {
        format!(
            "Two pipelines, the second one's backend dead, {:.0} spans/s of 40 attributes; with \
             nothing in the second one's backlog at first, and with {PINNED_REQUESTS} requests of \
             one small span.\nBar: a span costs at most {RATIO_BAR} × as much CPU, nothing lost or \
             doubled at the healthy backend.",
            options.rate
        )
    },
};

async fn measure(turn: Turn<'_>) -> Result<Figures> {
    let setting = Setting::of(turn, MEMORY_LIMIT_MIB, "buffer:\n  policy: drop_oldest\n")?;
    let stage =
        setting.with_backends(vec![Faults::default()], vec![Faults::dead()]).start().await?;
    let pinned = if turn.case == EMPTY { 0.0 } else { pin(&stage).await? };
    let load = stage.load().rate(turn.options.rate).retry(Retry::SDK);
    let observed = stage.under_load(load, WARM_UP, turn.counted()).await?;
    stage.drained(&observed.report, DRAIN_WITHIN).await;
    let dropped = stage.metric("sluice_delivery_dropped_items", &[]).await;
    ensure!(dropped == Some(0.0), "the backlog did not stay: {dropped:?} spans dropped");
    stage.figures(&observed, json!({ "pinned_spans": pinned }))
}

/// Fills the dead pipeline's backlog, and waits until the healthy pipeline's is empty.
async fn pin(stage: &Stage) -> Result<f64> {
    let load = stage.load().items(PINNED_REQUESTS).retry(Retry::SDK);
    let load = Load { shape: Shape { items_per_request: 1, attributes: 1, ..load.shape }, ..load };
    let report = load.run().await?;
    let accepted = report.accepted;
    ensure!(accepted == PINNED_REQUESTS, "{accepted} requests accepted: {:?}", report.messages);
    stage.drained(&report, PINNED_WITHIN).await.context("the healthy pipeline did not keep up")?;
    let began = Instant::now();
    loop {
        let of = async |exporter| {
            stage.metric("sluice_delivery_backlog_items", &[("exporter", exporter)]).await
        };
        let (left, pinned) = (of("otlp/0").await, of("otlp/1").await.unwrap_or(0.0));
        if left == Some(0.0) && pinned >= PINNED_REQUESTS as f64 {
            return Ok(pinned);
        }
        ensure!(
            began.elapsed() < DRAIN_WITHIN,
            "the backlog is {pinned} spans, the healthy pipeline's {left:?}"
        );
        sleep(Duration::from_millis(50)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::series;

    #[test]
    fn a_cost_that_grows_with_the_backlog_does_not_hold() {
        let long = |costs: &[f64], lost: u64| {
            let turns = |costs: &[f64]| {
                costs
                    .iter()
                    .map(|cost| json!({ "cpu_s_per_million": cost, "lost": lost, "doubled": 0 }))
                    .collect::<Vec<_>>()
            };
            let mut all =
                [series(EMPTY, &turns(&vec![2.0; costs.len()])), series("long", &turns(costs))];
            (SCENARIO.compare)(&mut all);
            (SCENARIO.holds)(&all[1])
        };
        assert!(long(&[2.1, 5.0, 2.0], 0), "the median");
        assert!(!long(&[2.3], 0));
        assert!(!long(&[2.0], 1));
        assert!(!long(&[], 0), "what was not measured does not hold");
    }
}
