//! Remote write: metrics come in OTLP and go to a Prometheus. Compares the CPU time of a point with
//! the Collector's exporter `prometheusremotewrite`.

use sluice_load::generate::Pace;
use sluice_otlp::Signal;

use super::*;
use crate::sink::Sink;

const POINTS_PER_S: f64 = 20_000.0;
const WARM_UP_LONGER: Duration = Duration::from_secs(3);
const BAR: f64 = 0.25;

pub(super) const SCENARIO: Scenario = Scenario {
    id: "remote-write",
    title: "metrics to Prometheus",
    cases: &["1.0"],
    case_head: "Version",
    takes: |contestant, _| contestant.is_gateway(),
    measure: |turn| Box::pin(measure(turn)),
    compare: |all| compare_with(all, "otelcol", "of_collector", "cpu_s_per_million"),
    columns: &[
        ("CPU-s/M points", |series| series.cell("cpu_s_per_million", 2)),
        ("× otelcol", |series| series.cell("of_collector", 3)),
        ("points/s", |series| series.cell("points_per_s", 0)),
        ("bytes a point", |series| series.cell("bytes_per_point", 1)),
        ("peak MiB", |series| series.mebibytes("peak_rss_bytes", 0)),
    ],
    holds: |series| series.median("of_collector") <= BAR,
    notes: |_| {
        format!(
            "{POINTS_PER_S:.0} points/s come in OTLP over gRPC, uncompressed, and go to a server \
             that takes everything. The Collector has `batch`.\nBar: CPU time of a point, with its \
             reception, at most {BAR} × the Collector's."
        )
    },
};

async fn measure(turn: Turn<'_>) -> Result<Figures> {
    let (folder, sink) =
        (TempDir::with_prefix("sluice-bench-remote-write-")?, Sink::start().await?);
    let mut setting = Setting::of(turn, MEMORY_LIMIT_MIB, "")?.counting_lightly();
    setting.config.signal = Signal::Metrics;
    if !turn.contestant.is_sluice() {
        setting.config.processors.push("batch");
    }
    let endpoint = format!("http://{}/api/v1/write", sink.addr);
    let config = json!({
        "exporters": { "prometheusremotewrite": { "endpoint": endpoint } },
        "service": { "pipelines": { "metrics/0": { "exporters": ["prometheusremotewrite"] } } },
    });
    setting.args = overlay(&folder, &config)?;
    let stage = setting.start().await?;
    let pace = Pace::Open { items_per_s: POINTS_PER_S };
    let mut load = Load { pace, duration: Some(ENDLESS), ..stage.load() }.start()?;
    sleep(WARM_UP_LONGER).await;
    let (before, points_before, bytes_before) =
        (stage.processes()?, load.report().accepted, sink.bytes());
    sleep(turn.counted()).await;
    let after = stage.processes()?;
    let points = (load.report().accepted - points_before) as f64;
    let bytes = (sink.bytes() - bytes_before) as f64;
    ensure!(bytes > 0.0, "points are accepted and not sent on");
    load.stop();
    load.finish().await?;
    let elapsed_s = after.seconds_since(&before);
    let cpu_s = cpu_s_since(before.subject, after.subject).unwrap_or(f64::NAN);
    let figures = json!({
        "cpu_s_per_million": cpu_s / points * 1e6,
        "points_per_s": points / elapsed_s,
        "bytes_per_point": bytes / points,
        "subject_core": cpu_s / elapsed_s,
        "bench_core": cpu_s_since(before.bench, after.bench).map(|cpu_s| cpu_s / elapsed_s),
    });
    Ok(with(stage.memory()?, figures))
}
