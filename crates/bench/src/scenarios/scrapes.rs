//! Scrapes: a metric agent scrapes targets and sends their samples on. Compares the CPU time of a
//! sample and the memory with the Collector's `prometheus` receiver and with vmagent.

use sluice_load::generate::{Farm, OpenFarm};
use sluice_otlp::Signal;

use super::*;
use crate::sink::Sink;

const LARGE: &str = "20 of 10000";
const MANY: &str = "1000 of 1000";
/// The Collector refuses samples below this.
const LIMIT_MIB: u64 = 2_000;
/// The Collector discovers its targets some seconds after its start.
const FIRST_SCRAPE_WITHIN: Duration = Duration::from_secs(60);
/// Rounds of all targets, before counting and while counting.
const ROUNDS_BEFORE: u32 = 2;
const ROUNDS: u32 = 3;
/// Highest multiple of the Collector's CPU time, and of vmagent's.
const COLLECTOR_BAR: f64 = 1.0 / 6.0;
const VMAGENT_BAR: f64 = 1.0;
const MEMORY_BAR_MIB: f64 = 100.0;
/// Of the samples that are scraped while it is counted: some are still on their way at its end.
const SENT_ON_LEAST: f64 = 0.9;

pub(super) const SCENARIO: Scenario = Scenario {
    id: "scrapes",
    title: "targets of Prometheus, scraped",
    cases: &[LARGE, MANY],
    case_head: "Targets",
    takes: |contestant, _| contestant.is_gateway() || contestant.is_vmagent(),
    measure: |turn| Box::pin(measure(turn)),
    compare: |all| {
        compare_with(all, "otelcol", "of_collector", "cpu_s_per_million");
        compare_with(all, "vmagent", "of_vmagent", "cpu_s_per_million");
    },
    columns: &[
        ("CPU-s/M samples", |series| series.cell("cpu_s_per_million", 2)),
        ("× otelcol", |series| series.cell("of_collector", 3)),
        ("× vmagent", |series| series.cell("of_vmagent", 2)),
        ("samples/s", |series| series.cell("samples_per_s", 0)),
        ("peak MiB", |series| series.mebibytes("peak_rss_bytes", 0)),
        ("left out", |series| series.worst("left_out")),
    ],
    holds: |series| {
        let fits = |bytes| bytes <= MEMORY_BAR_MIB * f64::from(1 << 20);
        series.median("of_collector") <= COLLECTOR_BAR
            && series.median("of_vmagent") <= VMAGENT_BAR
            && (series.case != LARGE || series.each("peak_rss_bytes", fits))
            && series.none(&["left_out"])
    },
    notes: |_| {
        format!(
            "Targets with pages as avalanche shows them, 10 labels of each series beside two of \
             its own (490 bytes a sample), in two settings: 20 targets of 10,000 series every 5 s, \
             and 1,000 of 1,000 every 15 s. Values change from scrape to scrape, series do not. \
             Sluice and the Collector send OTLP over gRPC, uncompressed, to a backend; the \
             Collector has `batch`; vmagent writes remotely to a server that takes everything. \
             {ROUNDS_BEFORE} scrapes of each target before counting, then {ROUNDS}.\nBar: CPU time \
             of a sample at most 1/6 of the Collector's and not above vmagent's; at most \
             {MEMORY_BAR_MIB:.0} MiB with 20 targets; no scrape left out."
        )
    },
};

fn farm(case: &str) -> Farm {
    let (targets, metrics, seconds) = if case == LARGE { (20, 1_000, 5) } else { (1_000, 100, 15) };
    let scrape_every = Duration::from_secs(seconds);
    Farm { targets, metrics, series: 10, churn_every: None, scrape_every, ..Farm::default() }
}

/// As Prometheus has it.
fn scrape_config(farm: &OpenFarm) -> serde_json::Value {
    json!({ "scrape_configs": [{
        "job_name": "farm",
        "scrape_interval": format!("{}s", farm.scrape_interval().as_secs()),
        "static_configs": [{ "targets": farm.addrs }],
    }] })
}

async fn measure(turn: Turn<'_>) -> Result<Figures> {
    let folder = TempDir::with_prefix("sluice-bench-scrapes-")?;
    let farm = farm(turn.case).open()?;
    let every = farm.scrape_interval();
    let mut setting = Setting::of(turn, LIMIT_MIB, "")?.counting_lightly();
    setting.config.signal = Signal::Metrics;
    let sink = Sink::start().await?;
    setting.args = if turn.contestant.is_vmagent() {
        let path = folder.path().join("scrape.yaml");
        std::fs::write(&path, scrape_config(&farm).to_string())?;
        vec![
            format!("-promscrape.config={}", path.display()),
            format!("-remoteWrite.url=http://{}/api/v1/write", sink.addr),
        ]
    } else {
        if !turn.contestant.is_sluice() {
            setting.config.processors.push("batch");
        }
        let config = json!({
            "receivers": { "prometheus": { "config": scrape_config(&farm) } },
            "service": { "pipelines": { "metrics/0": { "receivers": ["otlp", "prometheus"] } } },
        });
        overlay(&folder, &config)?
    };
    let stage = setting.start().await?;
    ensure!(farm.wait_for_scraper(FIRST_SCRAPE_WITHIN).await, "no target was scraped");
    let mut load = farm.start();
    sleep(every * ROUNDS_BEFORE).await;
    let backend = &stage.backends[0];
    let counted = || (load.report().accepted, backend.items(), sink.bytes());
    let (before, counted_before) = (stage.processes()?, counted());
    sleep(every * ROUNDS).await;
    let after = stage.processes()?;
    let counted_after = counted();
    let samples = counted_after.0 - counted_before.0;
    let arrived = counted_after.1 - counted_before.1;
    if turn.contestant.is_vmagent() {
        ensure!(counted_after.2 > counted_before.2, "samples are scraped and not written");
    } else {
        let is_sent_on = arrived as f64 >= SENT_ON_LEAST * samples as f64;
        ensure!(is_sent_on, "of {samples} scraped samples {arrived} arrived");
    }
    let figures = stage.memory()?;
    load.stop();
    let report = load.finish().await?;
    let elapsed_s = after.seconds_since(&before);
    let cpu_s = cpu_s_since(before.subject, after.subject).unwrap_or(f64::NAN);
    Ok(with(
        figures,
        json!({
            "cpu_s_per_million": cpu_s / samples as f64 * 1e6,
            "samples_per_s": samples as f64 / elapsed_s,
            "left_out": report.never_sent,
            "subject_core": cpu_s / elapsed_s,
            "bench_core": cpu_s_since(before.bench, after.bench).map(|cpu_s| cpu_s / elapsed_s),
        }),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::series;

    #[test]
    fn both_contestants_and_the_memory_count() {
        let turn = |cpu_s: f64, peak_mib: u64, left_out: u64| {
            json!({
                "cpu_s_per_million": cpu_s, "peak_rss_bytes": peak_mib << 20, "left_out": left_out,
            })
        };
        let holds = |case: &str, own| {
            let other = |subject, cpu_s| Series { subject, ..series(case, &[turn(cpu_s, 700, 0)]) };
            let mut all = [series(case, &[own]), other("otelcol", 12.0), other("vmagent", 1.5)];
            (SCENARIO.compare)(&mut all);
            (SCENARIO.holds)(&all[0])
        };
        assert!(holds(LARGE, turn(1.4, 99, 0)));
        assert!(!holds(LARGE, turn(1.6, 99, 0)), "more than vmagent");
        assert!(!holds(LARGE, turn(1.4, 101, 0)), "memory");
        assert!(holds(MANY, turn(1.4, 101, 0)), "the bar is that of few targets");
        assert!(!holds(LARGE, turn(1.4, 99, 10_000)), "a scrape is missing");
    }
}
