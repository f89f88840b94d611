//! `sluice load-test -t k6`, from outside: subjects between the generator, or the real k6, and a
//! real InfluxDB or the sink. Where a program is missing the test passes over it, unless
//! SLUICE_TEST_REQUIRE_COMPONENTS=1.

mod command;
#[path = "../../load-test/tests/support/component.rs"]
mod component;

use std::path::Path;
use std::process::Output;

use command::{load_test, stderr};
use component::component;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Runs it, and reads its record.
fn run(args: &[&str]) -> (Output, Value) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("run.json");
    let mut command = load_test(&["-t", "k6", "--quiet"]);
    let output = command.args(args).arg("--json").arg(&path).output().expect("runs");
    let record = std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    (output, serde_json::from_str(&record).expect("a record"))
}

fn turn<'a>(record: &'a Value, subject: &str) -> &'a Value {
    let subjects = record["subjects"].as_array().expect("subjects");
    let found = subjects.iter().find(|one| one["name"] == subject);
    found.map(|one| &one["turns"][0]).unwrap_or_else(|| panic!("{subject}: {record}"))
}

/// Every counter of k6 is in the database, to the unit.
fn nothing_is_missing(record: &Value, subject: &str) {
    let turn = turn(record, subject);
    let (kpis, counters) = (&turn["kpis"], turn["k6"]["counters"].as_array().expect("counters"));
    assert!(counters.len() >= 4, "{subject}: {turn}");
    for counter in counters {
        assert!(counter["generated"].as_f64() > Some(0.0), "{subject}: {counter}");
        assert_eq!(counter["generated"], counter["stored"], "{subject}: {counter}");
    }
    assert_eq!((&kpis["lost"], &kpis["doubled"]), (&json!(0), &json!(0)), "{subject}: {kpis}");
    assert!(kpis["drain_s"].is_number(), "{subject}: {kpis}");
}

fn path(binary: &Path) -> String {
    binary.display().to_string()
}

/// Scenario: k6's samples of three seconds go to InfluxDB directly, and by each way through Sluice.
/// Guarantee: no counter lacks anything by any way, and each part has its CPU time and memory.
#[test]
fn nothing_is_missing_by_any_way_through_sluice() {
    let Some(influxdb) = component("SLUICE_TEST_INFLUXDB") else { return };
    let ours = ["sluice", "sluice-interval", "sluice-json", "sluice-csv"];
    let influxdb = path(&influxdb);
    let mut args = vec!["--influxdb", &influxdb, "-r", "500", "-d", "3", "--fail-if", "lost>0"];
    for subject in ["direct"].iter().chain(&ours) {
        args.extend(["--subject", subject]);
    }
    let (output, record) = run(&args);
    for subject in ours {
        nothing_is_missing(&record, subject);
        let turn = turn(&record, subject);
        assert!(turn["kpis"]["offered"].as_u64() >= Some(1_400), "{subject}: {turn}");
        assert!(turn["kpis"]["memory_max_bytes"].as_f64() > Some(1e6), "{subject}: {turn}");
        let k6 = &turn["k6"];
        assert_eq!(k6["source"], "generator", "{subject}");
        assert!(k6["database"].as_str().expect("a name").starts_with("InfluxDB"), "{k6}");
        for figure in ["requests_per_s", "samples_per_s", "flush_mean_ms", "flush_max_ms"] {
            assert!(k6[figure].as_f64() > Some(0.0), "{subject}: {figure}: {k6}");
        }
        for figure in ["source_cpu_cores", "database_cpu_cores", "database_memory_max_bytes"] {
            assert!(k6[figure].is_number(), "{subject}: {figure}: {k6}");
        }
    }
    // No subject: its cells are not known, and its row is there.
    let direct = turn(&record, "direct");
    assert_eq!(direct["kpis"]["memory_max_bytes"], Value::Null, "{direct}");
    nothing_is_missing(&record, "direct");
    let markdown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(markdown.contains("From k6 to InfluxDB"), "{markdown}");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// Scenario: no InfluxDB, but the sink. Guarantee: the sums are exact as well, and the report names
/// the sink for what it is.
#[test]
fn the_sink_stands_in_for_influxdb() {
    let (output, record) =
        run(&["--influxdb", "sink", "-r", "300", "-d", "2", "--subject", "direct"]);
    nothing_is_missing(&record, "direct");
    assert_eq!(turn(&record, "direct")["k6"]["database"], "sink");
    let markdown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(markdown.contains("the database is a sink"), "{markdown}");
}

/// A subject that takes samples and keeps them: each write is answered with success.
const SWALLOWS: &str = "\
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_POST(self):
        self.rfile.read(int(self.headers.get('content-length') or 0))
        self.send_response(204)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
";

/// Scenario: a subject answers, and hands nothing on. Guarantee: all requests are lost, which a
/// condition finds; the command fails.
#[test]
fn a_subject_that_swallows_samples_is_found_out() {
    if !Path::new("/usr/bin/python3").exists() {
        component::pass_over("no /usr/bin/python3");
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let description = json!({
        "name": "swallows",
        "command": ["/usr/bin/python3", "@CONFIG@", "@LISTEN_PORT@"],
        "config": "server.py",
        "targets": {"k6": {"ready": {"connect": "@LISTEN@"}}},
    });
    std::fs::write(folder.path().join("subject.json"), description.to_string()).expect("written");
    std::fs::write(folder.path().join("server.py"), SWALLOWS).expect("written");
    let folder = path(folder.path());
    let (output, record) = run(&[
        "--influxdb",
        "sink",
        "-r",
        "200",
        "-d",
        "2",
        "--drain-within",
        "1",
        "--fail-if",
        "lost>0",
        "--subject-dir",
        &folder,
    ]);
    let kpis = &turn(&record, "swallows")["kpis"];
    assert_eq!(kpis["lost"], kpis["offered"], "{kpis}");
    assert!(kpis["lost"].as_u64() >= Some(390) && kpis["refused"] == 0, "{kpis}");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}

/// Scenario: k6 itself makes the load. Guarantee: its own counters, as its summary has them, are in
/// InfluxDB through Sluice; its writes and their times are known.
#[test]
fn k6_itself_can_be_the_source() {
    let Some(k6) = component("SLUICE_TEST_K6") else { return };
    let Some(influxdb) = component("SLUICE_TEST_INFLUXDB") else { return };
    let (k6, influxdb) = (path(&k6), path(&influxdb));
    let (output, record) = run(&["--k6", &k6, "--influxdb", &influxdb, "-r", "200", "-d", "3"]);
    nothing_is_missing(&record, "sluice");
    let turn = turn(&record, "sluice");
    assert!(turn["k6"]["source"].as_str().expect("a name").starts_with("k6 1."), "{turn}");
    for figure in ["samples_per_s", "flush_max_ms", "source_memory_max_bytes"] {
        assert!(turn["k6"][figure].as_f64() > Some(0.0), "{figure}: {turn}");
    }
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// Guarantee: what has no effect on k6's samples, or on other targets, is refused with the reason.
#[test]
fn what_cannot_be_had_is_refused() {
    let cases: [(&[&str], &str); 10] = [
        (&["-t", "traces", "--k6"], "--k6 names an end of the way of k6's samples"),
        (&["-t", "traces", "--influxdb", "sink"], "use it with -t k6"),
        (&["-t", "k6", "-m"], "there is one way"),
        (&["-t", "k6", "-b"], "the database is InfluxDB itself"),
        (&["-t", "k6", "--find-limit"], "give rates with -r"),
        (&["-t", "k6", "-s", "100"], "-s sets the size of log bodies"),
        (&["-t", "k6", "--batch-size", "100"], "--batch-size is about OTLP requests"),
        (&["-t", "k6", "--k6", "/nonexistent/k6"], "--k6: no program at /nonexistent/k6"),
        (&["-t", "k6", "--influxdb", "/nonexistent"], "--influxdb: no program at"),
        (&["-t", "k6", "-r", "1e7"], "give a rate above 0, up to 1000000"),
    ];
    for (args, expected) in cases {
        let output = load_test(args).output().expect("runs");
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{args:?}: {}", stderr(&output));
    }
    let output = load_test(&["-t", "metrics", "--subject", "direct"]).output().expect("runs");
    assert!(stderr(&output).contains("direct cannot be tested with -t metrics"));
}
