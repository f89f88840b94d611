//! The alert rules among the examples use metrics that the program exports, in a form that
//! Prometheus takes.

#[path = "../../load-test/tests/support/component.rs"]
mod component;
mod gateway;
mod prometheus;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use component::component;
use gateway::{Gateway, assert_all_accepted, eventually, fan_out, faulty_backend, get};
use prometheus::Prometheus;
use sluice_load_test::{Backend, Faults};
use sluice_otlp::Signal;
use tempfile::TempDir;

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

/// Guarantee: every metric of the rules is exported by a gateway or by a log agent: gauges under
/// that name, counters with `_total` or without.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_of_the_rules_is_exported() {
    let backend = Backend::healthy().await.expect("a backend");
    let gateway = Gateway::start(&fan_out(Signal::Traces, 128, &[("backend", &backend)])).await;
    let agent = fan_out(Signal::Logs, 128, &[("backend", &backend)]);
    let agent = agent.replace("receivers: [otlp]", "receivers: [file_log]");
    let receivers = "receivers: {file_log: {include: [/nonexistent/*.log]}}\n";
    let agent = Gateway::start(&format!("{receivers}{agent}")).await;
    let mut page = String::new();
    for process in [&gateway, &agent] {
        page += &get(process.metrics, "/metrics").await.expect("a page").1;
    }
    let rules = std::fs::read_to_string(rules()).expect("rules");
    let metrics = metrics_in(&rules);
    assert!(metrics.len() >= 31, "{metrics:?}");
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
    assert!(output.status.success() && said.contains("26 rules found"), "{said}");
}

/// Guarantee: each alert has a summary, says what to do, and is in docs/monitoring.md.
#[test]
fn each_alert_is_explained() {
    let rules = fs::read_to_string(rules()).expect("rules");
    let monitoring = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/monitoring.md");
    let monitoring = fs::read_to_string(monitoring).expect("the page");
    let alerts: Vec<_> = rules.split("- alert: ").skip(1).collect();
    assert_eq!(alerts.len(), 26);
    for alert in alerts {
        let name = alert.lines().next().expect("a name");
        assert!(alert.contains(" summary: ") && alert.contains(" description: "), "{name}");
        assert!(monitoring.contains(&format!("`{name}`")), "{name} is not in docs/monitoring.md");
    }
}

/// Guarantee: the rules fire when they should, and only then: in an outage with drops whose whole
/// budget lasts a minute, in a second one, after a restart; not for a burst. Each alert of lost or
/// kept data fires when its metric moves, and no other.
#[test]
fn the_rules_fire_when_they_should() {
    let Some(prometheus) = component("SLUICE_TEST_PROMETHEUS") else { return };
    let folder = TempDir::new().expect("a folder");
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/alerts/rules.test.yaml");
    fs::copy(rules(), folder.path().join("alerts.yaml")).expect("the rules");
    let copy = folder.path().join("rules.test.yaml");
    fs::copy(tests, &copy).expect("the tests");
    let promtool = prometheus.with_file_name("promtool");
    let output = Command::new(promtool).args(["test", "rules"]).arg(copy).output();
    let output = output.expect("promtool runs");
    let said = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    assert!(output.status.success(), "{}", said.concat());
}

/// The rules, in which a minute lasts a second.
fn fast_rules() -> String {
    let rules = fs::read_to_string(rules()).expect("rules");
    let fast = rules.lines().map(|line| match line.trim().strip_prefix("for: ") {
        Some(time) => format!("        for: {}s\n", time.trim_end_matches('m')),
        None => {
            let minutes = [("[15m]", "[15s]"), ("[5m]", "[5s]"), ("< 900", "< 15")];
            let fast = |line: String, (slow, fast)| line.replace(slow, fast);
            minutes.into_iter().fold(format!("{line}\n"), fast)
        }
    });
    fast.collect()
}

impl Prometheus {
    async fn fires(&self, alert: &str) -> bool {
        let Some((_, answer)) = get(self.addr, "/api/v1/alerts").await else { return false };
        let alerts = answer.split("\"labels\":").filter(|it| it.contains(alert));
        alerts.filter(|it| it.contains("\"state\":\"firing\"")).count() > 0
    }

    async fn assert_fires(&self, alert: &str) {
        let fires = eventually(Duration::from_secs(40), async || self.fires(alert).await).await;
        assert!(fires, "{alert}: {:?}", get(self.addr, "/api/v1/alerts").await);
    }

    async fn assert_ends(&self, alert: &str) {
        let ends = eventually(Duration::from_secs(60), async || !self.fires(alert).await).await;
        assert!(ends, "{alert}: {:?}", get(self.addr, "/api/v1/alerts").await);
    }
}

/// Scenario: a real Prometheus scrapes a gateway through an outage of a backend, with drops; the
/// backend takes everything; a second outage; the gateway is killed and starts again with its
/// backlog on disk. Guarantee: both alerts fire in each outage, and end after the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_prometheus_fires_in_each_outage_and_after_a_restart() {
    let Some(prometheus) = Prometheus::start(&fast_rules()) else { return };
    let directory = TempDir::new().expect("a folder");
    let healthy = Backend::healthy().await.expect("a backend");
    let weak = faulty_backend(Faults::dead()).await;
    let config = fan_out(Signal::Traces, 96, &[("healthy", &healthy), ("weak", &weak)]);
    let own = format!("  directory: {}\n  disk:\n    limit_mib: 64\n", directory.path().display());
    let config = config.replace("buffer:\n", &format!("buffer:\n{own}"));
    let start = async || {
        let gateway = Gateway::start(&config).await;
        prometheus.scrape(&[gateway.metrics]);
        gateway
    };
    // Until drops are certain, or a minute is over.
    let overload = async |gateway: &Gateway| {
        let dropped = async || gateway.metric("sluice_delivery_dropped_items", &[]).await;
        let before = dropped().await;
        for _ in 0..30 {
            let load = gateway.load(Signal::Traces).items(40_000).concurrency(2, 8);
            load.run().await.expect("a load");
            if dropped().await > before {
                return;
            }
        }
        panic!("nothing was dropped: {}", get(gateway.metrics, "/log").await.expect("a page").1);
    };
    let gateway = start().await;
    for outage in 0..2 {
        overload(&gateway).await;
        prometheus.assert_fires("SluiceBudgetSpent").await;
        prometheus.assert_fires("SluiceDataDropped").await;
        if outage == 0 {
            weak.faults().clear();
            prometheus.assert_ends("SluiceBudgetSpent").await;
            prometheus.assert_ends("SluiceDataDropped").await;
            weak.faults().set(Faults::dead());
        }
    }
    gateway.kill().await;
    let gateway = start().await;
    prometheus.assert_ends("SluiceDataDropped").await;
    overload(&gateway).await;
    prometheus.assert_fires("SluiceBudgetSpent").await;
    prometheus.assert_fires("SluiceDataDropped").await;
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
    assert_eq!(of_dead("sluice_delivery_budget_spent_in_seconds"), 0.0);
    // The count is that of a range that grows, the time that of its end.
    let (_, page) = get(gateway.metrics, "/log").await.expect("a page");
    assert!(page.contains(" items were dropped, the last "), "{page}");
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
    // A backlog ends at seven eighths of the pool.
    let left = gateway.metric("sluice_delivery_budget_bytes", &[]).await / 8.0 * 7.0 - held;
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
