//! Files: a node agent reads log files from their beginning and sends them on. Compares the CPU
//! time of a line with the Collector's `filelog` receiver, with the same operators.

use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use sluice_otlp::Signal;

use super::*;

const WITHOUT: &str = "no operators";
const CONTAINER: &str = "container";
const JSON: &str = "container and json";
const REGEX: &str = "regex";
/// The Collector takes longer for its lines.
const SLUICE_LINES: u64 = 1_000_000;
const COLLECTOR_LINES: u64 = 200_000;
/// Length of a line, with its end, where the case does not say what is in it.
const LINE_BYTES: usize = 512;
const READ_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(5);
const LIMIT_MIB: u64 = 256;
/// Least bytes a CPU second without operators.
const BYTES_BAR: f64 = 1e9;

const CRI: &str = "2026-04-13T07:59:37.505201169Z stdout F ";
/// Ten fields.
const JSON_BODY: &str = concat!(
    r#"{"ts":"2026-04-13T07:59:37.505Z","level":"info","logger":"http.access","#,
    r#""msg":"request handled","method":"GET","path":"/api/v1/orders/12345","status":200,"#,
    r#""duration_ms":12.75,"user_agent":"Mozilla/5.0 (X11; Linux x86_64)","#,
    r#""trace_id":"4bf92f3577b34da6a3ce929d0e0e4736"}"#,
);
const ACCESS: &str = concat!(
    r#"10.1.2.3 - alice [13/Apr/2026:07:59:37 +0000] "GET /api/v1/orders/12345 HTTP/1.1" "#,
    r#"200 5316 "https://example.com/start" "Mozilla/5.0 (X11; Linux x86_64)""#,
);
const ACCESS_REGEX: &str = concat!(
    r#"^(?P<host>[^ ]*) [^ ]* (?P<user>[^ ]*) \[(?P<at>[^\]]*)\] "(?P<method>\S+) "#,
    r#"(?P<path>[^ ]*) \S*" (?P<code>\d+) (?P<size>\d+) "(?P<from>[^"]*)" "(?P<agent>[^"]*)"$"#,
);
/// The kubelet's path of a container's log, from which the container operator takes names.
const POD: &str = "shop_checkout-7d9f_0a1b2c3d-0000-4111-8222-333344445555";

pub(super) const SCENARIO: Scenario = Scenario {
    id: "files",
    title: "log files, read from their beginning",
    cases: &[WITHOUT, CONTAINER, JSON, REGEX],
    case_head: "Operators",
    takes: |contestant, _| contestant.is_gateway(),
    measure: |turn| Box::pin(measure(turn)),
    compare: |all| compare_with(all, "otelcol", "of_collector", "cpu_s_per_million"),
    columns: &[
        ("CPU-s/M lines", |series| series.cell("cpu_s_per_million", 2)),
        ("× otelcol", |series| series.cell("of_collector", 3)),
        ("MB a CPU-s", |series| series.millions("bytes_per_cpu_s", 0)),
        ("lines/s", |series| series.cell("lines_per_s", 0)),
        ("peak MiB", |series| series.mebibytes("peak_rss_bytes", 0)),
        ("lost", |series| series.worst("lost")),
        ("doubled", |series| series.worst("doubled")),
    ],
    holds: |series| {
        let is_cheap = match bar(&series.case) {
            Some(bar) => series.median("of_collector") <= bar,
            None => series.median("bytes_per_cpu_s") >= BYTES_BAR,
        };
        is_cheap && series.none(&["lost", "doubled"])
    },
    notes: |_| {
        format!(
            "One file of {SLUICE_LINES} lines ({COLLECTOR_LINES} for the Collector) is moved to \
             where the subject looks for files, and goes to one backend in OTLP over gRPC, \
             uncompressed. Lines have {LINE_BYTES} bytes, those of `json` a body of ten fields, \
             those of `regex` are of an access log with nine groups. Both subjects have \
             `memory_limiter`, the Collector `batch` as well. CPU time from the moment at which \
             the file is there until its last line has arrived.\nBar: CPU time of a line at most \
             1/20 of the Collector's with `container`, 1/15 with `container` and `json_parser`, \
             1/8 with `regex_parser`; without operators {:.0} MB for each CPU second; no line \
             lost or sent twice.",
            BYTES_BAR / 1e6,
        )
    },
};

/// Highest multiple of the Collector's CPU time.
fn bar(case: &str) -> Option<f64> {
    match case {
        CONTAINER => Some(1.0 / 20.0),
        JSON => Some(1.0 / 15.0),
        REGEX => Some(1.0 / 8.0),
        _ => None,
    }
}

/// A line without its end.
fn line(case: &str) -> String {
    let fill = |prefix: &str| format!("{prefix:a<width$}", width = LINE_BYTES - 1);
    match case {
        CONTAINER => fill(CRI),
        JSON => format!("{CRI}{JSON_BODY}"),
        REGEX => ACCESS.to_owned(),
        _ => fill(""),
    }
}

fn operators(case: &str) -> serde_json::Value {
    match case {
        CONTAINER => json!([{ "type": "container" }]),
        JSON => json!([{ "type": "container" }, { "type": "json_parser" }]),
        REGEX => json!([{ "type": "regex_parser", "regex": ACCESS_REGEX }]),
        _ => json!([]),
    }
}

/// The receiver, which the gateway's configuration lacks.
pub(super) fn receiver_config(include: &Path, operators: serde_json::Value) -> serde_json::Value {
    let receiver = json!({
        "include": [include],
        "include_file_path": true,
        "start_at": "beginning",
        "operators": operators,
    });
    let pipelines = json!({ "logs/0": { "receivers": ["otlp", "filelog"] } });
    json!({
        "receivers": { "filelog": receiver },
        "service": { "pipelines": pipelines },
    })
}

/// Writes a file of lines, where no subject looks for it. Returns the pod's folder.
fn write_lines(folder: &Path, case: &str, lines: u64) -> Result<PathBuf> {
    let pod = folder.join("written").join(POD);
    fs::create_dir_all(pod.join("main"))?;
    let mut file = BufWriter::new(fs::File::create(pod.join("main/0.log"))?);
    let line = line(case) + "\n";
    for _ in 0..lines {
        file.write_all(line.as_bytes())?;
    }
    file.flush()?;
    Ok(pod)
}

async fn measure(turn: Turn<'_>) -> Result<Figures> {
    let is_sluice = turn.contestant.is_sluice();
    let lines = if is_sluice { SLUICE_LINES } else { COLLECTOR_LINES };
    let folder = TempDir::with_prefix("sluice-bench-files-")?;
    let read = folder.path().join("read");
    fs::create_dir(&read)?;
    let pod = write_lines(folder.path(), turn.case, lines)?;
    let mut setting = Setting::of(turn, LIMIT_MIB, "")?.counting_lightly();
    setting.config.signal = Signal::Logs;
    if !is_sluice {
        setting.config.processors.push("batch");
    }
    let config = receiver_config(&read.join("*/*/*.log"), operators(turn.case));
    setting.args = overlay(&folder, &config)?;
    let stage = setting.start().await?;
    let backend = &stage.backends[0];
    let before = stage.processes()?;
    fs::rename(&pod, read.join(POD))?;
    arrive(backend, lines, READ_WITHIN, LOOK_EVERY).await?;
    let after = stage.processes()?;
    // A line that is sent twice comes at once, or after a retry.
    sleep(Duration::from_secs(1)).await;
    let cpu_s = cpu_s_since(before.subject, after.subject).unwrap_or(f64::NAN);
    let elapsed_s = after.seconds_since(&before);
    let bytes = (lines * (line(turn.case).len() as u64 + 1)) as f64;
    let figures = json!({
        "cpu_s_per_million": cpu_s / lines as f64 * 1e6,
        "bytes_per_cpu_s": bytes / cpu_s,
        "lines_per_s": lines as f64 / elapsed_s,
        "lost": lines.saturating_sub(backend.items()),
        "doubled": backend.items().saturating_sub(lines),
        "subject_core": cpu_s / elapsed_s,
        "bench_core": cpu_s_since(before.bench, after.bench).map(|cpu_s| cpu_s / elapsed_s),
    });
    Ok(with(stage.memory()?, figures))
}

/// Waits until the backend has that many lines.
pub(super) async fn arrive(
    backend: &Backend,
    lines: u64,
    limit: Duration,
    look_every: Duration,
) -> Result<()> {
    let began = Instant::now();
    while backend.items() < lines {
        ensure!(began.elapsed() < limit, "{} of {lines} lines arrived", backend.items());
        sleep(look_every).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::series;

    #[test]
    fn a_line_is_compared_with_the_collectors_line_of_the_same_case() {
        let turn = |cpu_s: f64, lost: u64| {
            json!({
                "cpu_s_per_million": cpu_s, "bytes_per_cpu_s": 5e8, "lost": lost, "doubled": 0,
            })
        };
        let holds = |case: &str, cpu_s: f64, lost: u64| {
            let collector = Series { subject: "otelcol", ..series(case, &[turn(40.0, 0)]) };
            let mut all = [series(case, &[turn(cpu_s, lost)]), collector];
            (SCENARIO.compare)(&mut all);
            (SCENARIO.holds)(&all[0])
        };
        assert!(holds(CONTAINER, 1.9, 0) && !holds(CONTAINER, 2.1, 0));
        assert!(holds(JSON, 2.6, 0) && !holds(JSON, 2.7, 0));
        assert!(holds(REGEX, 4.9, 0) && !holds(REGEX, 5.1, 0));
        assert!(!holds(REGEX, 1.0, 1), "a lost line");
        assert!(!holds(WITHOUT, 0.1, 0), "half a gigabyte a CPU second");
    }

    #[test]
    fn lines_have_the_length_that_is_said_and_are_what_the_operators_expect() {
        assert!([WITHOUT, CONTAINER].iter().all(|case| line(case).len() == LINE_BYTES - 1));
        let body: serde_json::Value = serde_json::from_str(JSON_BODY).expect("JSON");
        assert_eq!(body.as_object().expect("an object").len(), 10);
        assert_eq!(ACCESS_REGEX.matches("(?P<").count(), 9);
    }
}
