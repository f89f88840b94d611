//! The alert rules among the examples use metrics that the program exports, in a form that
//! Prometheus takes.

#[path = "../../load-test/tests/support/component.rs"]
mod component;
mod gateway;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use component::component;
use gateway::{Gateway, assert_all_accepted, eventually, fan_out, faulty_backend, get};
use sluice_load_test::{Backend, Faults};
use sluice_otlp::Signal;

fn rules() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/prometheus/alerts.yaml"))
}

/// Names of metrics in a text, and whether each may end in `_total`.
fn metrics_in(text: &str) -> Vec<(&str, bool)> {
    let starts = text.match_indices("sluice_").map(|(start, _)| &text[start..]);
    let names = starts.map(|rest| {
        let end = rest
            .find(|character: char| !character.is_ascii_lowercase() && character != '_')
            .unwrap_or(rest.len());
        (&rest[..end], rest[end..].starts_with("(_total)?"))
    });
    names.collect()
}

/// Guarantee: every metric of the rules is exported by a gateway that has taken data: gauges under
/// that name, counters with `_total` or without.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_of_the_rules_is_exported() {
    let backend = Backend::healthy().await.expect("a backend");
    let gateway = Gateway::start(&fan_out(Signal::Traces, 128, &[("backend", &backend)])).await;
    let (_, page) = get(gateway.metrics, "/metrics").await.expect("a page");
    let rules = std::fs::read_to_string(rules()).expect("rules");
    let metrics = metrics_in(&rules);
    assert!(metrics.len() >= 9, "{metrics:?}");
    for (name, is_counter) in metrics {
        let line = if is_counter {
            format!("# TYPE {name}_total counter\n")
        } else {
            format!("# TYPE {name} gauge\n")
        };
        assert!(page.contains(&line), "no {line}{page}");
    }
}

/// Guarantee: Prometheus takes the rules.
#[test]
fn prometheus_takes_the_rules() {
    let Some(prometheus) = component("SLUICE_TEST_PROMETHEUS") else { return };
    let promtool = prometheus.with_file_name("promtool");
    let output = Command::new(promtool)
        .args(["check", "rules"])
        .arg(rules())
        .output()
        .expect("promtool runs");
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success() && said.contains("9 rules found"), "{said}");
}

/// Scenario: the budget of a dead backend is the pool, and is spent. Guarantee: the rule sees it,
/// although the pool stays below its limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spent_budget_that_is_the_pool_fires_the_rule() {
    let healthy = Backend::healthy().await.expect("a backend");
    let dead = faulty_backend(Faults::dead()).await;
    let backends = [("healthy", &healthy), ("dead", &dead)];
    let gateway = Gateway::start(&fan_out(Signal::Traces, 64, &backends)).await;
    let load = gateway
        .load(Signal::Traces)
        .rate(4_000.0)
        .duration(Duration::from_secs(6))
        .concurrency(2, 8);
    load.run().await.expect("a load");
    let scrape = gateway.scrape().await;
    let of_dead = |name| scrape.sum(name, &[("exporter", "otlp/dead")]).expect(name);
    assert!(of_dead("sluice_delivery_dropped_items") > 0.0, "the budget was to be spent");
    let rules = std::fs::read_to_string(rules()).expect("rules");
    let (_, share) = rules.split_once("sluice_delivery_backlog_bytes > ").expect("the rule");
    let share: f64 = share.split(' ').next().and_then(|it| it.parse().ok()).expect("a number");
    let ratio = of_dead("sluice_delivery_backlog_bytes") / of_dead("sluice_delivery_budget_bytes");
    assert!(ratio > share, "{ratio} of the budget is held, and the rule asks for {share}");
}

/// Scenario: a dead backend, and senders that go on; then the backend works again. Guarantee: the
/// time until the budget is spent is estimated at the rate of growth while the backlog grows, and
/// is infinite before and after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_that_grows_says_how_long_the_budget_lasts() {
    let backend = faulty_backend(Faults::dead()).await;
    let gateway = Gateway::start(&fan_out(Signal::Traces, 512, &[("backend", &backend)])).await;
    let spent_in = async || gateway.metric("sluice_delivery_budget_spent_in_seconds", &[]).await;
    assert_eq!(spent_in().await, f64::INFINITY);
    let load = gateway
        .load(Signal::Traces)
        .rate(2_000.0)
        .duration(Duration::from_secs(8))
        .concurrency(2, 8);
    let report = load.run().await.expect("a load");
    assert_all_accepted(&report);
    let held = gateway.metric("sluice_delivery_backlog_bytes", &[]).await;
    let left = gateway.metric("sluice_delivery_budget_bytes", &[]).await - held;
    // The load takes eight of the seconds that are measured; how many more there are depends on the
    // machine.
    let told = spent_in().await;
    assert!(
        told > left / held * 7.0 && told < left / held * 60.0,
        "{told} s, {held} held, {left} left"
    );
    backend.faults().clear();
    assert!(eventually(Duration::from_secs(30), async || spent_in().await == f64::INFINITY).await);
}
