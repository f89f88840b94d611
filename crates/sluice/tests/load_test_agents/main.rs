//! `sluice load-test` of subjects that scrape and tail: the real Collector, and a mock that behaves
//! in a known way. Where a component is missing the test passes over it, unless
//! SLUICE_TEST_REQUIRE_COMPONENTS=1 (see tests/components/env).

#[path = "../command/mod.rs"]
mod command;
mod mock;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use command::{load_test, stderr};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Not a test: the subject of those below.
#[test]
#[ignore = "the process that other tests put under load"]
fn mock_agent_process() {
    mock::run();
}

fn record(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn kpis(record: &Value) -> &Value {
    &record["subjects"][0]["turns"][0]["kpis"]
}

fn has_collector() -> bool {
    let is_there =
        std::env::var_os("SLUICE_TEST_OTELCOL").is_some_and(|path| Path::new(&path).exists());
    let required =
        std::env::var_os("SLUICE_TEST_REQUIRE_COMPONENTS").is_some_and(|value| value == "1");
    assert!(
        is_there || !required,
        "SLUICE_TEST_OTELCOL names no file: run tests/components/install"
    );
    if !is_there {
        eprintln!("passed over: SLUICE_TEST_OTELCOL names no file");
    }
    is_there
}

/// The farm of these tests: 4 targets of 500 samples, each scraped twice a second.
const FARM: [&str; 8] =
    ["--farm-targets", "4", "--farm-metrics", "100", "--farm-series", "5", "-r", "4000"];
const LINES: [&str; 4] = ["--log-pods", "3", "-r", "2000"];
const SHORT: [&str; 4] = ["-d", "2", "--drain-within", "2"];

fn run_mock(mode: &str, target: &str, load: &[&str]) -> (Output, Value) {
    let folder = mock::folder(mode);
    let json = folder.path().join("out.json");
    let mut command = load_test(&["-t", target, "--fail-if", "lost>0"]);
    command.args(load).arg("--subject-dir").arg(folder.path()).arg("--json").arg(&json);
    let output = command.output().unwrap();
    assert!(json.exists(), "{}", stderr(&output));
    (output, record(&json))
}

#[test]
fn a_mock_agent_that_drops_every_tenth_line_is_reported_to_the_item() {
    let (output, record) = run_mock("drops", "logagent", &[&SHORT[..], &LINES].concat());
    let kpis = kpis(&record);
    let lines = kpis["accepted"].as_u64().unwrap();
    assert!(lines > 1_000, "{kpis}");
    assert_eq!(
        (kpis["lost"].as_u64(), kpis["doubled"].as_u64()),
        (Some(lines / 10), Some(0)),
        "{kpis}"
    );
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}

#[test]
fn a_mock_agent_that_drops_every_tenth_sample_is_reported_to_the_item() {
    let (output, record) = run_mock("drops", "metricagent", &[&SHORT[..], &FARM].concat());
    let kpis = kpis(&record);
    let samples = kpis["accepted"].as_u64().unwrap();
    assert!(samples >= 4 * 500 && samples.is_multiple_of(500), "{kpis}");
    assert_eq!(
        (kpis["lost"].as_u64(), kpis["doubled"].as_u64()),
        (Some(samples / 10), Some(0)),
        "{kpis}"
    );
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}

#[test]
fn a_mock_agent_that_doubles_every_tenth_line_loses_nothing_and_its_bytes_are_counted() {
    let (output, record) = run_mock("doubles", "logs-fluentbit", &[&SHORT[..], &LINES].concat());
    let kpis = kpis(&record);
    let lines = kpis["accepted"].as_u64().unwrap();
    assert_eq!(
        (kpis["lost"].as_u64(), kpis["doubled"].as_u64()),
        (Some(0), Some(lines / 10)),
        "{kpis}"
    );
    // 400 bytes of body and 40 before it; the mock has no metrics, so that its lines are counted.
    let (received, exported) = (
        kpis["received_bytes_per_s"].as_f64().unwrap(),
        kpis["exported_bytes_per_s"].as_f64().unwrap(),
    );
    assert!((400_000.0..1_500_000.0).contains(&received) && exported > received, "{kpis}");
    assert!(
        kpis["buffer_bytes"].is_number() && kpis["latency_p50_ms"].as_f64().unwrap() > 0.0,
        "{kpis}"
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// The mock's limit is a sixth above the second rate that is tried, and a quarter below the third.
#[test]
fn the_limit_of_a_mock_agent_that_keeps_time_lies_in_the_stated_interval() {
    let search = [
        "--find-limit",
        "--find-limit-precision",
        "0.6",
        "-d",
        "5",
        "--drain-within",
        "1",
        "-r",
        "2136",
    ];
    let (output, record) =
        run_mock("paced", "logagent", &[&search[..], &["--log-pods", "3"]].concat());
    let limit = &record["subjects"][0]["limit"];
    let rate =
        |name: &str| limit[name].as_f64().unwrap_or_else(|| panic!("{name} is not known: {limit}"));
    let known = f64::from(mock::PACED_ITEMS_PER_S);
    assert!(rate("held_always_per_s") <= known && known <= rate("failed_per_s"), "{limit}");
    assert!(limit["held"].as_u64() >= Some(3) && limit["ended_early"].is_null(), "{limit}");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn agents_of_both_kinds_lose_nothing_in_three_pipelines_of_which_one_refuses() {
    let is_here = |subject: &str| subject == "sluice" || has_collector();
    let (farm, lines) = (("metricagent", &FARM[..]), ("logagent", &LINES[..]));
    let of = |subject: &'static str| [farm, lines].map(|(target, load)| (subject, target, load));
    let all = ["otelcol", "sluice"].into_iter().filter(|subject| is_here(subject)).flat_map(of);
    for (subject, target, load) in all {
        let folder = TempDir::new().unwrap();
        let mut command = load_test(&[
            "-t",
            target,
            "--subject",
            subject,
            "-d",
            "3",
            "-m",
            "--fail-if",
            "lost>0",
        ]);
        command
            .args(load)
            .args(["--fault", "refuse,share=0.3,to=2", "--output"])
            .arg(folder.path());
        let output = command.output().unwrap();
        let record = record(&folder.path().join("run.json"));
        let kpis = kpis(&record);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{subject}, {target}: {} {kpis}",
            stderr(&output)
        );
        assert!(
            kpis["accepted"].as_u64().unwrap() > 1_000 && kpis["drain_s"].is_number(),
            "{subject}, {target}: {kpis}"
        );
        assert_eq!(
            (&kpis["lost"], kpis["pipelines"].as_array().unwrap().len()),
            (&json!(0), 3),
            "{subject}, {target}: {kpis}"
        );
        assert!(String::from_utf8_lossy(&output.stdout).contains("agent\n"), "a table of its own");
    }
}

/// One report with a table for each target. A subject that cannot do a target is named there with
/// the reason and fails nothing.
#[test]
fn all_targets_in_turn_with_a_reason_where_a_subject_cannot_do_one() {
    let (mock, folder) = (mock::folder("forwards"), TempDir::new().unwrap());
    let mut command =
        load_test(&["-t", "all", "-d", "1", "-r", "4000", "--subject", "sluice", "--subject-dir"]);
    command.arg(mock.path()).args(&FARM[..6]).args([
        "--fail-if",
        "lost>0",
        "--drain-within",
        "12",
        "--output",
    ]);
    let output = command.arg(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let markdown = String::from_utf8_lossy(&output.stdout).into_owned();
    for (target, title, sluice, mock) in [
        ("traces", "## Traces\n", true, false),
        ("metrics", "## Metrics\n", true, false),
        ("metricagent", "## Metric agent\n", true, true),
        ("logs-otel", "## Logs (OTLP)\n", true, false),
        ("logagent", "## Log agent\n", true, true),
        ("logs-fluentbit", "## Logs (Fluent Bit)\n", true, true),
    ] {
        assert!(markdown.contains(title), "{target}: {markdown}");
        let record = record(&folder.path().join(target).join("run.json"));
        let subjects = record["subjects"].as_array().unwrap();
        for (name, can) in [("sluice", sluice), ("forwards", mock)] {
            let subject = subjects.iter().find(|subject| subject["name"] == name).unwrap();
            assert_eq!(
                (subject["turns"].as_array().unwrap().len(), subject["cannot"].is_null()),
                (can.into(), can)
            );
        }
    }
    for report in ["report.md", "report.csv", "report.html"] {
        assert!(folder.path().join(report).exists(), "{report}");
    }
    let merged = load_test(&["report"]).arg(folder.path()).output().unwrap();
    assert!(merged.status.success(), "{}", stderr(&merged));
    assert_eq!(
        String::from_utf8(merged.stdout).unwrap(),
        markdown,
        "the same from what is on disk"
    );
}

/// Also when the load test is killed, so that it cannot clean up by itself.
#[test]
fn a_load_test_that_was_killed_leaves_no_log_files_behind() {
    let (mock, folder) = (mock::folder("forwards"), TempDir::new().unwrap());
    let mut command = load_test(&["-t", "logagent", "-d", "600"]);
    command.args(LINES).arg("--subject-dir").arg(mock.path()).env("TMPDIR", folder.path());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let folders = || std::fs::read_dir(folder.path()).unwrap().count();
    let is_written = |path: &PathBuf| {
        path.ends_with("0.log") && path.metadata().is_ok_and(|metadata| metadata.len() > 0)
    };
    wait_until("lines are written", || {
        mock::files_below(&folder.path().to_owned()).iter().any(is_written)
    });
    assert_eq!(folders(), 2, "the subject's and the log files'");
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("both folders are gone", || folders() == 0);
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "not so: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn options_without_effect_and_work_that_cannot_be_are_refused_in_a_sentence() {
    let cases: [(&[&str], &str); 6] = [
        (&["--farm-targets", "3"], "use them with -t metricagent"),
        (&["-t", "metrics", "--log-pods", "3"], "use them with -t logagent or -t logs-fluentbit"),
        (
            &["-t", "metricagent", "-s", "100"],
            "use it with -t logs-otel, logagent or logs-fluentbit",
        ),
        (&["-t", "logagent", "--batch-size", "3"], "-t logagent sends none"),
        (&["-t", "all", "--json", "x.json"], "use --output DIR"),
        (&["-t", "agent"], "possible values: traces"),
    ];
    for (args, expected) in cases {
        let output = load_test(args).output().unwrap();
        assert!(!output.status.success(), "{args:?}");
        assert!(stderr(&output).contains(expected), "{args:?}: {}", stderr(&output));
    }
    let mock = mock::folder("forwards");
    for (args, expected) in [
        (["-t", "logagent", "-s", "100"], "a line's body has"),
        (
            ["-t", "metricagent", "--farm-counters", "5000"],
            "5000 of 1000 metrics cannot be counters",
        ),
        (["-t", "logagent", "--log-rotate", "10000"], "set TMPDIR to another disk"),
    ] {
        let output = load_test(&args).arg("--subject-dir").arg(mock.path()).output().unwrap();
        assert!(
            !output.status.success() && stderr(&output).contains(expected),
            "{args:?}: {}",
            stderr(&output)
        );
    }
}
