//! Many pipelines: two hundred share a receiver and a memory limit that is small for so many.
//! Senders go as fast as they are answered; all backends are well, or one of them is dead. Measures
//! the losses of the healthy pipelines, and the memory.

use super::*;

const PIPELINES: usize = 200;
/// Every span goes to two hundred backends: a second's backlog takes the bench some time.
const DRAIN_WITHIN: Duration = Duration::from_secs(60);

const ONE_DEAD: &str = "one dead";

pub(super) const SCENARIO: Scenario = Scenario {
    id: "many-pipelines",
    title: "two hundred pipelines in little memory, senders in a closed loop",
    cases: &["all healthy", ONE_DEAD],
    case_head: "backends",
    takes: |contestant, _| contestant.is_sluice(),
    measure: |turn| Box::pin(measure(turn)),
    compare: |_| {},
    columns: &[
        ("accepted", |series| series.cell("accepted", 0)),
        ("spans/s a pipeline", |series| series.cell("spans_per_s", 0)),
        ("ack p99 ms", |series| series.cell("acknowledged_p99_ms", 0)),
        ("lost by healthy ones", |series| series.worst("lost")),
        ("doubled", |series| series.worst("doubled")),
        ("dropped", |series| series.cell("dropped_items", 0)),
        ("peak MiB (of limit)", Series::peak_of_limit),
    ],
    holds: |series| {
        series.median("accepted") > 0.0 && series.none(&["lost"]) && series.keeps_to_memory()
    },
    notes: |_| {
        format!(
            "{PIPELINES} pipelines with a backend each at a memory limit of {MEMORY_LIMIT_MIB} \
             MiB, spans of 40 attributes as fast as they are answered.\nBar: the pipelines whose \
             backends are well lose nothing, memory at most 110 % of the limit."
        )
    },
};

async fn measure(turn: Turn<'_>) -> Result<Figures> {
    let dead = usize::from(turn.case == ONE_DEAD);
    let (healthy, dead) = (vec![Faults::default(); PIPELINES - dead], vec![Faults::dead(); dead]);
    let setting = Setting::of(turn, MEMORY_LIMIT_MIB, "")?.with_backends(healthy, dead);
    let stage = setting.start().await?;
    let load = Load { timeout: DRAIN_WITHIN, grace: DRAIN_WITHIN, ..stage.load() };
    let (load, warm_up) = (load.retry(Retry::SDK), turn.options.window());
    let observed = stage.under_load(load, warm_up, turn.counted()).await?;
    stage.drained(&observed.report, DRAIN_WITHIN).await;
    let dropped = stage.metric("sluice_delivery_dropped_items", &[]).await;
    stage.figures(&observed, json!({ "dropped_items": dropped }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::series;

    #[test]
    fn a_loss_or_too_much_memory_does_not_hold() {
        let of = |lost: u64, memory_share: f64| {
            (SCENARIO.holds)(&series(
                ONE_DEAD,
                &[json!({ "accepted": 100, "lost": lost, "memory_share": memory_share })],
            ))
        };
        assert!(of(0, 1.1));
        assert!(!of(1, 1.1), "lost");
        assert!(!of(0, 1.11), "too much memory");
        assert!(!(SCENARIO.holds)(&series(ONE_DEAD, &[])), "what was not measured does not hold");
    }
}
