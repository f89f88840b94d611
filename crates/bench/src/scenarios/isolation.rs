//! Isolation: three pipelines share a receiver, and the third one's backend is sick. Compares rate
//! and latency of the other two with those when all three are well.

use super::*;

/// At 20,000 spans/s the sick pipeline's budget is spent before counting begins.
const WARM_UP_MIN: Duration = Duration::from_secs(5);
const DRAIN_WITHIN: Duration = Duration::from_secs(10);

const HEALTHY: &str = "healthy";

pub(super) const SCENARIO: Scenario = Scenario {
    id: "isolation",
    title: "three pipelines, one backend sick: rate and latency of the other two",
    cases: &[HEALTHY, "dead", "refuses all", "never answers"],
    case_head: "Third backend",
    takes: |contestant, _| contestant.is_gateway(),
    measure: |turn| Box::pin(measure(turn)),
    compare: |all| {
        compare(all, HEALTHY, "share_of_healthy", "spans_per_s", Div::div);
        compare(all, HEALTHY, "p99_ratio", "p99_ms", Div::div);
        compare(all, HEALTHY, "p99_added_ms", "p99_ms", Sub::sub);
    },
    columns: &[
        ("spans/s", |series| series.cell("spans_per_s", 0)),
        ("of healthy", |series| series.percent("share_of_healthy")),
        ("p50 ms", |series| series.cell("p50_ms", 2)),
        ("p99 ms", |series| series.cell("p99_ms", 2)),
        ("p99 ×", |series| series.cell("p99_ratio", 2)),
        ("p99 + ms", |series| series.cell("p99_added_ms", 2)),
        ("lost", |series| series.worst("lost")),
        ("doubled", |series| series.worst("doubled")),
        ("peak MiB (of limit)", Series::peak_of_limit),
    ],
    holds: |series| {
        series.median("share_of_healthy") >= 0.95
            && (series.median("p99_ratio") <= 1.5 || series.median("p99_added_ms") <= 5.0)
            && series.none(&["lost", "doubled"])
            && series.keeps_to_memory()
    },
    notes: |options| {
        format!(
            "{:.0} spans/s of 40 attributes offered to three pipelines, memory limit \
             {MEMORY_LIMIT_MIB} MiB. What the two healthy pipelines deliver, the slower of them; \
             p99 from sending to arrival.\nBar: at least 95 % of the rate with three healthy \
             backends, p99 at most 1.5 × or 5 ms more, nothing lost or doubled, memory at most \
             110 % of the limit.",
            options.rate
        )
    },
};

async fn measure(turn: Turn<'_>) -> Result<Figures> {
    let third = match turn.case {
        "dead" => Faults::dead(),
        "refuses all" => Faults::unavailable(1.0),
        "never answers" => Faults::stalled(),
        _ => Faults::default(),
    };
    let setting = Setting::of(turn, MEMORY_LIMIT_MIB, "")?;
    let stage = setting.with_backends(vec![Faults::default(); 2], vec![third]).start().await?;
    let load = stage.load().rate(turn.options.rate).retry(Retry::SDK);
    let warm_up = turn.options.window().max(WARM_UP_MIN);
    let observed = stage.under_load(load, warm_up, turn.counted()).await?;
    stage.drained(&observed.report, DRAIN_WITHIN).await;
    let dropped = stage.metric("sluice_delivery_dropped_items", &[("exporter", "otlp/2")]).await;
    stage.figures(&observed, json!({ "third_pipeline_dropped": dropped }))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::figures::tests::series;

    fn turn(spans_per_s: f64, p99_ms: f64) -> Value {
        json!({
            "spans_per_s": spans_per_s, "p99_ms": p99_ms, "lost": 0, "doubled": 0,
            "memory_share": 0.2,
        })
    }

    fn compared(dead: &[Value]) -> [Series; 3] {
        let healthy = [turn(1000.0, 10.0), turn(2000.0, 10.0), turn(1000.0, 10.0)];
        let mut all =
            [series(HEALTHY, &healthy), series("dead", dead), series("never answers", &[])];
        (SCENARIO.compare)(&mut all);
        all
    }

    #[test]
    fn ratios_are_taken_round_by_round_and_a_failed_turn_leaves_a_gap() {
        let all = compared(&[turn(990.0, 12.0), Value::Null, turn(960.0, 16.0)]);
        assert_eq!(
            all[1].values("share_of_healthy").collect::<Vec<_>>(),
            [0.99, 0.96],
            "the failed turn shifts nothing"
        );
        assert!((SCENARIO.holds)(&all[1]), "a p99 of 1.4 × the healthy one");
        assert!(!(SCENARIO.holds)(&all[2]), "what was not measured does not hold");
    }

    #[test]
    fn each_bar_is_one() {
        let with = |name: &str, value: f64| {
            let mut turn = turn(1000.0, 10.0);
            turn[name] = json!(value);
            (SCENARIO.holds)(&compared(&[turn])[1])
        };
        assert!(with("lost", 0.0));
        assert!(with("p99_ms", 15.0), "1.5 ×, or 5 ms more");
        assert!(!with("p99_ms", 16.0));
        assert!(!with("spans_per_s", 949.0));
        assert!(!with("lost", 1.0));
        assert!(!with("doubled", 1.0));
        assert!(!with("memory_share", 570.0 / 512.0));
    }
}
