//! Many files: a node agent watches log files of which few are written. Its memory, its CPU time
//! while nothing is written, and the time from a line to the backend.

use std::fs::{self, OpenOptions};
use std::io::Write as _;

use sluice_load::latency::{new_histogram, record};
use sluice_otlp::Signal;

use super::files::{arrive, receiver_config};
use super::*;

const TEN: &str = "10";
const TEN_THOUSAND: &str = "10000";
const READ_WITHIN: Duration = Duration::from_secs(120);
/// Time after which memory and CPU time are those of an agent at rest.
const REST: Duration = Duration::from_secs(3);
/// Lines whose way is timed, and the pause between two.
const LINES: u64 = 100;
const PAUSE: Duration = Duration::from_millis(30);
const ARRIVES_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(1);
const LIMIT_MIB: u64 = 256;
const MEMORY_BAR_MIB: f64 = 25.0;
const IDLE_BAR: f64 = 0.01;
const LATENCY_BAR_MS: f64 = 100.0;

pub(super) const SCENARIO: Scenario = Scenario {
    id: "many-files",
    title: "log files of which few are written",
    cases: &[TEN, TEN_THOUSAND],
    case_head: "Files",
    takes: |contestant, _| contestant.is_gateway(),
    measure: |turn| Box::pin(measure(turn)),
    compare: |_| {},
    columns: &[
        ("idle core", |series| series.percent("idle_core")),
        ("MiB", |series| series.mebibytes("rss_bytes", 1)),
        ("line p50 ms", |series| series.cell("line_p50_ms", 1)),
        ("p99", |series| series.cell("line_p99_ms", 1)),
    ],
    holds: |series| {
        series.each("rss_bytes", |bytes| bytes <= MEMORY_BAR_MIB * f64::from(1 << 20))
            && series.median("idle_core") <= IDLE_BAR
            && series.median("line_p99_ms") <= LATENCY_BAR_MS
    },
    notes: |options| {
        format!(
            "Files of one line each are read, then nothing is written for {} s and for {} s that \
             count: CPU time, then resident memory. Then {LINES} lines, each to another file, one \
             at a time: the time until the backend has it. Operator `container`.\nBar: at most \
             {MEMORY_BAR_MIB:.0} MiB, {:.0} % of a core, a line within {LATENCY_BAR_MS:.0} ms \
             (p99).",
            REST.as_secs(),
            options.window().as_secs(),
            IDLE_BAR * 100.0,
        )
    },
};

const LINE: &[u8] = b"2026-04-13T07:59:37.505201169Z stdout F a line of a container\n";

async fn measure(turn: Turn<'_>) -> Result<Figures> {
    let files: u64 = turn.case.parse()?;
    let folder = TempDir::with_prefix("sluice-bench-many-files-")?;
    let path = |number: u64| folder.path().join(format!("a_pod-{number}_0-0/main/0.log"));
    for number in 0..files {
        let path = path(number);
        fs::create_dir_all(path.parent().context("a path has a folder")?)?;
        // Lines differ: files with the same first bytes would be taken for one.
        fs::write(path, format!("2026-04-13T07:59:37Z stdout F line 0 of file {number}\n"))?;
    }
    let operators = json!([{ "type": "container" }]);
    let include = folder.path().join("*/*/*.log");
    let mut setting = Setting::of(turn, LIMIT_MIB, "")?.counting_lightly();
    setting.config.signal = Signal::Logs;
    setting.args = overlay(&folder, &receiver_config(&include, operators))?;
    let stage = setting.start().await?;
    let backend = &stage.backends[0];
    arrive(backend, files, READ_WITHIN, LOOK_EVERY * 20).await?;
    sleep(REST).await;
    let before = stage.processes()?;
    sleep(turn.options.window()).await;
    let after = stage.processes()?;
    let cpu_s = cpu_s_since(before.subject, after.subject).unwrap_or(f64::NAN);
    let mut latencies_us = new_histogram();
    for line in 0..LINES {
        let mut file = OpenOptions::new().append(true).open(path(line * files / LINES))?;
        let began = Instant::now();
        file.write_all(LINE)?;
        arrive(backend, files + line + 1, ARRIVES_WITHIN, LOOK_EVERY).await?;
        record(&mut latencies_us, began.elapsed(), 1);
        sleep(PAUSE).await;
    }
    let latency = Latency::of(&latencies_us);
    let idle_core = cpu_s / after.seconds_since(&before);
    Ok(json!({
        "idle_core": idle_core,
        "rss_bytes": after.subject.map(|usage| usage.rss_bytes),
        "line_p50_ms": milliseconds(latency.p50),
        "line_p99_ms": milliseconds(latency.p99),
        "subject_core": idle_core,
        "bench_core": cpu_s_since(before.bench, after.bench)
            .map(|cpu_s| cpu_s / after.seconds_since(&before)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::series;

    #[test]
    fn each_bar_is_one() {
        let holds = |name: &str, value: f64| {
            let mut turn = json!({ "idle_core": 0.005, "rss_bytes": 20 << 20, "line_p99_ms": 9.0 });
            turn[name] = json!(value);
            (SCENARIO.holds)(&series(TEN, &[turn]))
        };
        assert!(holds("idle_core", 0.009) && !holds("idle_core", 0.011));
        assert!(!holds("rss_bytes", 26e6 * 1.05) && !holds("line_p99_ms", 101.0));
        assert!(!(SCENARIO.holds)(&series(TEN, &[])), "not measured");
    }
}
