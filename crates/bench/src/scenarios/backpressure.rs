//! Backpressure: a backend answers 70 % of the requests with UNAVAILABLE or 503, at random.
//! Measures the shares that are accepted and exported meanwhile, and the time of the drain.

use super::*;

/// A constant amount waits for its next attempt, which is a larger share of a short load.
const LOAD_MIN: Duration = Duration::from_secs(20);
/// Items that arrive later count as not delivered.
const DRAIN_WITHIN: Duration = Duration::from_secs(15);

const OVER_HTTP: &str = "otlphttp";

pub(super) const SCENARIO: Scenario = Scenario {
    id: "backpressure",
    title: "a backend that refuses 70 % of the requests",
    cases: &["otlp", OVER_HTTP],
    case_head: "exporter",
    takes: |contestant, _| contestant.is_gateway(),
    measure: |turn| Box::pin(measure(turn)),
    compare: |_| {},
    columns: &[
        ("accepted of offered", |series| series.percent("accepted_share")),
        ("exported of accepted", |series| series.percent("exported_share")),
        ("exported spans/s", |series| series.cell("spans_per_s", 0)),
        ("p99 ms", |series| series.cell("p99_ms", 0)),
        // A dash where it never drained in some turn: it has no such time.
        ("drained after s", |series| match series.each("drained_after_s", |_| true) {
            true => series.cell("drained_after_s", 2),
            false => DASH.to_owned(),
        }),
        ("undelivered", |series| series.worst("undelivered")),
        ("lost", |series| series.worst("lost")),
        ("doubled", |series| series.worst("doubled")),
        ("peak MiB (of limit)", Series::peak_of_limit),
    ],
    holds: |series| {
        series.median("accepted_share") >= 0.95
            && series.median("exported_share") >= 0.95
            && series.none(&["undelivered"])
            && series.each("drained_after_s", |after_s| after_s <= 10.0)
            && series.keeps_to_memory()
    },
    notes: |options| {
        format!(
            "{:.0} spans/s of 40 attributes offered for {} s, exported over gRPC and over HTTP, \
             retry settings left at their defaults, memory limit {MEMORY_LIMIT_MIB} MiB. A backlog \
             is waited for {} s after the load.\nBar: at least 95 % of what is offered accepted, \
             at least 95 % of that exported while the load lasts, the rest within 10 s, \
             nothing lost, memory at most 110 % of the limit.",
            options.rate,
            load_duration(options).as_secs(),
            DRAIN_WITHIN.as_secs(),
        )
    },
};

/// By default 30 s.
fn load_duration(options: &Options) -> Duration {
    (options.window() * 6).max(LOAD_MIN)
}

async fn measure(turn: Turn<'_>) -> Result<Figures> {
    let sick = vec![Faults::unavailable(0.7)];
    let mut setting = Setting::of(turn, MEMORY_LIMIT_MIB, "")?.with_backends(sick, vec![]);
    setting.config.protocol = if turn.case == OVER_HTTP { Protocol::Http } else { Protocol::Grpc };
    let stage = setting.start().await?;
    let load = stage.load().rate(turn.options.rate).retry(Retry::SDK);
    let observed = stage.under_load(load, Duration::ZERO, load_duration(turn.options)).await?;
    let (report, exported_in_time) = (&observed.report, observed.arrived[0]);
    let drained_after = stage.drained(report, DRAIN_WITHIN).await;
    let undelivered = report.missing_at(&stage.backends[0]);
    // Neither at the backend nor held by the subject, by its own count of its backlog.
    let held = stage.metric("sluice_delivery_backlog_items", &[]).await;
    let lost = match undelivered {
        0 => Some(0),
        _ => held.map(|held| undelivered.saturating_sub(held as u64)),
    };
    let latency = stage.backends[0].latency();
    let others = json!({
        "exported_in_time": exported_in_time,
        "accepted_share": report.accepted as f64 / report.offered as f64,
        "exported_share": exported_in_time as f64 / report.accepted as f64,
        "drained_after_s": drained_after.map(|after| after.as_secs_f64()),
        "undelivered": undelivered,
        "lost": lost,
        "p50_ms": milliseconds(latency.p50),
        "p99_ms": milliseconds(latency.p99),
    });
    stage.figures(&observed, others)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::figures::tests::series;

    fn holds_with(name: &str, value: Value) -> bool {
        let mut turn = json!({
            "accepted_share": 0.96, "exported_share": 0.96, "drained_after_s": 1.0,
            "undelivered": 0, "memory_share": 1.0,
        });
        turn[name] = value;
        (SCENARIO.holds)(&series(OVER_HTTP, &[turn]))
    }

    #[test]
    fn each_bar_is_one() {
        assert!(holds_with("lost", json!(0)));
        assert!(!holds_with("accepted_share", json!(0.94)));
        assert!(!holds_with("exported_share", json!(0.94)));
        assert!(!holds_with("drained_after_s", Value::Null));
        assert!(!holds_with("drained_after_s", json!(11.0)));
        assert!(!holds_with("undelivered", json!(1)));
        assert!(!holds_with("memory_share", json!(1.11)));
        assert!(!(SCENARIO.holds)(&series(OVER_HTTP, &[])), "what was not measured does not hold");
    }

    #[test]
    fn a_turn_that_did_not_drain_takes_the_time_from_the_table() {
        let series = series(
            "otlp",
            &[json!({ "drained_after_s": null }), json!({ "drained_after_s": 1.0 })],
        );
        assert!(!SCENARIO.table(&[series]).to_string().contains("1.00"));
    }
}
