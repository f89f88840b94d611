//! `sluice migrate telegraf`: each translation of `telegraf/*.conf` is one that Sluice takes, and
//! stores in a real InfluxDB what Telegraf would have stored. Where a program is missing the test
//! passes over it, unless SLUICE_TEST_REQUIRE_COMPONENTS=1.

#[path = "../../load-test/tests/support/component.rs"]
mod component;
mod gateway;
mod influx;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gateway::{Gateway, Options, eventually};
use influx::InfluxDb;
use serde_json::{Value, json};
use tempfile::TempDir;

const ARRIVES_WITHIN: Duration = Duration::from_secs(60);
const SECOND: u64 = 1_000_000_000;

/// All variables that the files name.
const VARIABLES: [(&str, &str); 14] = [
    ("POLL_INTERVAL", "1s"),
    ("K6_OUTPUT", "/var/k6/out.json"),
    ("INFLUX_HOST", "influxdb:8086"),
    ("INFLUX_DATABASE", "k6"),
    ("INFLUX_USERNAME", "writer"),
    ("INFLUX_PASSWORD", "secret"),
    ("BATCH_SIZE", "1000"),
    ("RUNNER", "runner-1"),
    ("LISTENER_PASSWORD", "one"),
    ("LISTENER_TOKEN", "two"),
    ("SCRAPE_PASSWORD", "three"),
    ("INFLUX_TOKEN", "four"),
    ("PAGE_PASSWORD", "five"),
    ("OTLP_KEY", "six"),
];

fn sluice(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(args)
        .envs(VARIABLES)
        .stdin(Stdio::null())
        .output()
        .expect("runs")
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/telegraf").join(name)
}

/// The code, the translation, and what was said about it.
fn translated(name: &str) -> (Option<i32>, String, String) {
    let path = file(name);
    let output = sluice(&["migrate", "telegraf", path.to_str().expect("UTF-8")]);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Scenario: each file is translated. Guarantee: `sluice validate` takes all of them, and has no
/// option without an effect to warn of; all that is left out is named at its head and on the
/// standard error, with its line, and the code says whether there is something.
#[test]
fn translations_are_valid() {
    let folder = TempDir::new().expect("a folder");
    for (name, code, lines) in [
        ("json.conf", 0, &[][..]),
        ("csv.conf", 1, &[8, 22][..]),
        ("servers.conf", 1, &[19, 24][..]),
        ("others.conf", 1, &[2, 5, 10, 12, 19, 20, 22, 26, 30, 33, 35][..]),
    ] {
        let (status, text, said) = translated(name);
        assert_eq!(status, Some(code), "{name}: {said}");
        let left: Vec<&str> = said.lines().filter(|it| it.contains(": not translated: ")).collect();
        let of_line = |line: &str| -> Option<usize> {
            line.split_once(".conf:")?.1.split_once(':')?.0.parse().ok()
        };
        let mut found: Vec<usize> = left.iter().filter_map(|line| of_line(line)).collect();
        found.dedup();
        assert_eq!(found, lines, "{name}: {said}");
        for line in lines {
            assert!(text.contains(&format!("#   line {line}, ")), "{name}: {text}");
        }
        let path = folder.path().join(name);
        std::fs::write(&path, &text).expect("is written");
        let output = sluice(&["validate", path.to_str().expect("UTF-8")]);
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{name}: {complaints}\n{text}");
        assert!(!complaints.contains("has no effect"), "{name}: {complaints}\n{text}");
    }
}

/// Guarantee: the translation of the usual file is what a person would write, in every byte.
#[test]
fn the_usual_file_is_translated_as_expected() {
    let (_, text, _) = translated("json.conf");
    let path = file("json.yaml");
    if std::env::var_os("UPDATE_TRANSLATIONS").is_some() {
        std::fs::write(&path, &text).expect("is written");
    }
    let expected = std::fs::read_to_string(&path).expect("is there");
    assert_eq!(text, expected, "UPDATE_TRANSLATIONS=1 writes it anew");
}

/// Guarantee: the exporter creates a database that is missing, as Telegraf does, unless the file
/// has `skip_database_creation`; one of InfluxDB 2.x is never created.
#[test]
fn databases_are_created_as_by_telegraf() {
    for (name, exporters) in [("json.conf", 0), ("csv.conf", 1), ("servers.conf", 1)] {
        let (_, text, said) = translated(name);
        assert_eq!(text.matches("create_database: true").count(), exporters, "{name}: {text}");
        assert!(!said.contains("skip_database_creation"), "{name}: {said}");
    }
}

/// Guarantee: a file that is missing or no TOML, and an output that cannot be written, are 2, and
/// the message says where; `--output` writes the same as the standard output.
#[test]
fn files_that_cannot_be_read_are_told_apart() {
    let folder = TempDir::new().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    std::fs::write(path("wrong.conf"), "[agent]\ninterval == 1\n").expect("is written");
    for (name, said) in [("absent.conf", "cannot read"), ("wrong.conf", "line 2")] {
        let output = sluice(&["migrate", "telegraf", &path(name)]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(error.contains(said), "{name}: {error}");
    }
    let json = file("json.conf");
    let json = json.to_str().expect("UTF-8");
    let output = sluice(&["migrate", "telegraf", json, "--output", &path("no/such.yaml")]);
    assert_eq!(output.status.code(), Some(2));
    let output = sluice(&["migrate", "telegraf", json, "--output", &path("out.yaml")]);
    assert!(output.status.success() && output.stdout.is_empty());
    let written = std::fs::read_to_string(path("out.yaml")).expect("is there");
    assert_eq!(written, translated("json.conf").1);
}

/// Samples of k6 over two seconds, an hour ago: requests by two methods in turns, with the values
/// 0 to 39.
struct Samples {
    /// Nanoseconds since 1970, at the beginning of a second.
    start: u64,
}

impl Samples {
    const NUMBER: u64 = 40;

    fn new() -> Samples {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time");
        Samples { start: (now.as_secs() - 3600) * SECOND }
    }

    fn method(at: u64) -> &'static str {
        if at.is_multiple_of(2) { "GET" } else { "POST" }
    }

    fn json(&self) -> String {
        let metric = |name: &str, kind: &str| {
            format!(
                "{{\"type\":\"Metric\",\"data\":{{\"name\":\"{name}\",\"type\":\"{kind}\",\
                 \"contains\":\"default\",\"thresholds\":[],\"submetrics\":null}},\
                 \"metric\":\"{name}\"}}\n"
            )
        };
        let mut text = metric("http_reqs", "counter") + &metric("http_req_duration", "trend");
        for at in 0..Self::NUMBER {
            let nanos = self.start + at * SECOND / 20;
            let time = rfc3339(nanos);
            let tags = format!(
                "{{\"error\":\"\",\"method\":\"{}\",\"name\":\"n{at}\",\"status\":\"200\",\
                 \"url\":\"http://shop/{at}\",\"vu\":\"{at}\"}}",
                Self::method(at)
            );
            for (name, value) in [("http_reqs", 1), ("http_req_duration", at)] {
                let _ = writeln!(
                    text,
                    "{{\"metric\":\"{name}\",\"type\":\"Point\",\"data\":{{\"time\":\"{time}\",\
                     \"value\":{value},\"tags\":{tags}}}}}"
                );
            }
        }
        text
    }

    fn csv(&self) -> String {
        let mut text = "metric_name,timestamp,metric_value,check,error,error_code,\
                        expected_response,group,method,name,proto,scenario,service,status,subproto,\
                        tls_version,url,extra_tags,metadata\n"
            .to_owned();
        for at in 0..Self::NUMBER {
            let (seconds, method) = ((self.start + at * SECOND / 20) / SECOND, Self::method(at));
            let tags = format!(",,,true,,{method},n{at},,,,200,,,http://shop/{at},,");
            for (name, value) in [("http_reqs", 1), ("http_req_duration", at), ("vus", 5)] {
                let _ = writeln!(text, "{name},{seconds},{value}.000000,{tags}");
            }
        }
        text
    }
}

/// Nanoseconds since 1970, as k6 writes them.
fn rfc3339(nanos: u64) -> String {
    let time = sluice_otlp::civil_time((nanos / SECOND).cast_signed());
    format!("{time}.{:09}Z", nanos % SECOND)
}

/// An InfluxDB and a gateway that a file is translated for. The database `k6` is there only where
/// the translation is not to create it.
async fn start(name: &str, samples: &str) -> Option<(InfluxDb, Gateway, TempDir)> {
    let influxdb = InfluxDb::start().await?;
    if std::fs::read_to_string(file(name)).is_ok_and(|it| it.contains("skip_database_creation")) {
        influxdb.query("", "CREATE DATABASE k6").await;
    }
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("out.txt");
    std::fs::write(&path, samples).expect("is written");
    let (_, config, said) = translated(name);
    let mut env: Vec<(String, String)> =
        VARIABLES.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let mut set = |key: &str, value: String| {
        env.retain(|(name, _)| name != key);
        env.push((key.to_owned(), value));
    };
    set("K6_OUTPUT", path.display().to_string());
    set("INFLUX_HOST", influxdb.address.to_string());
    let gateway = Gateway::start_with(&config, Options { env, ..Options::default() }).await;
    assert!(!gateway.output().contains("ERROR"), "{said}{}", gateway.output());
    Some((influxdb, gateway, folder))
}

/// Everything about a measurement: its series with their tags, columns and rows.
async fn series(influxdb: &InfluxDb, measurement: &str) -> Value {
    let query = format!("SELECT * FROM {measurement} GROUP BY *");
    let found = influxdb.query("k6", &query).await;
    found.pointer("/0/series").cloned().unwrap_or_default()
}

/// The statistics that Telegraf's aggregators have of one second of one method's durations: count,
/// max, mean, min, sum and median.
fn statistics(second: u64, method: u64) -> [f64; 6] {
    let values: Vec<f64> = (0..10).map(|at| (second * 20 + method + 2 * at) as f64).collect();
    let sum: f64 = values.iter().sum();
    [10.0, values[9], sum / 10.0, values[0], sum, values[4]]
}

/// Scenario: k6's JSON goes through the translation into a real InfluxDB. Guarantee: measurements,
/// tags, names and types of fields, and values are those of Telegraf's `basicstats` and `quantile`,
/// a point a second and series.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_is_stored_as_by_telegraf() {
    let samples = Samples::new();
    let Some((influxdb, gateway, _folder)) = start("json.conf", &samples.json()).await else {
        return;
    };
    let fields = ["050", "count", "max", "mean", "min", "sum"];
    let columns: Vec<String> = std::iter::once("time".to_owned())
        .chain(fields.iter().map(|field| format!("data_value_{field}")))
        .collect();
    let tags = |method: &str| {
        let status = "200";
        json!({"data_tags_method": method, "data_tags_status": status, "test": "load"})
    };
    let one = |name: &str, at: u64, row: fn(u64, u64) -> [f64; 6]| {
        let rows = [0, 1].map(|second| {
            let [count, max, mean, min, sum, median] = row(second, at);
            json!([samples.start + (second + 1) * SECOND, median, count, max, mean, min, sum])
        });
        let method = if at == 0 { "GET" } else { "POST" };
        json!({"name": name, "tags": tags(method), "columns": columns, "values": rows})
    };
    for (name, row) in [
        ("http_req_duration", statistics as fn(u64, u64) -> [f64; 6]),
        ("http_reqs", |_, _| [10.0, 1.0, 1.0, 1.0, 10.0, 1.0]),
    ] {
        let expected = json!([one(name, 0, row), one(name, 1, row)]);
        let is_same = async || same(&at_ends(series(&influxdb, name).await), &expected);
        let found = eventually(ARRIVES_WITHIN, is_same).await;
        let has = series(&influxdb, name).await;
        assert!(found, "{name}: {has}, not {expected}: {}", gateway.output());
    }
    let types = influxdb.query("k6", "SHOW FIELD KEYS FROM http_reqs").await;
    let types = types.pointer("/0/series/0/values").cloned().unwrap_or_default();
    let are_floats = types.as_array().is_some_and(|it| it.iter().all(|it| it[1] == "float"));
    assert!(are_floats, "{types}");
}

/// Points at the ends of their seconds. Those of a second before the start of the process have
/// another place in it, which parts of an earlier process may not have.
fn at_ends(mut series: Value) -> Value {
    for one in series.as_array_mut().into_iter().flatten() {
        for row in one["values"].as_array_mut().into_iter().flatten() {
            let time = row[0].as_u64().expect("a time");
            row[0] = json!(time.div_ceil(SECOND) * SECOND);
        }
    }
    series
}

/// Numbers are the same however they are written: InfluxDB writes 10 for 10.0.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_f64() == other.as_f64()
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, one)| other.get(key).is_some_and(|it| same(one, it)))
        }
        (one, other) => one == other,
    }
}

/// Scenario: k6's CSV goes through the translation, with aggregates and with the rows themselves.
/// Guarantee: both are stored, with the host and the file as tags; a metric that the aggregator
/// does not take comes as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn csv_is_stored_with_statistics_and_samples() {
    let samples = Samples::new();
    let Some((influxdb, gateway, folder)) = start("csv.conf", &samples.csv()).await else {
        return;
    };
    let path = folder.path().join("out.txt").display().to_string();
    let tagged = format!("host = 'runner-1' AND path = '{path}'");
    for (query, expected) in [
        ("SELECT sum(metric_value_sum) FROM http_reqs", 40.0),
        ("SELECT count(metric_value_sum) FROM http_reqs", 4.0),
        ("SELECT sum(value) FROM http_reqs", 40.0),
        ("SELECT sum(metric_value_sum) FROM http_req_duration", 780.0),
        ("SELECT max(value) FROM http_req_duration", 39.0),
        ("SELECT max(value) FROM vus", 5.0),
    ] {
        let query = format!("{query} WHERE {tagged}");
        let is_so = async || influxdb.number("k6", &query).await == expected;
        let found = eventually(ARRIVES_WITHIN, is_so).await;
        let has = influxdb.number("k6", &query).await;
        assert!(found, "{query}: {has}, not {expected}: {}", gateway.output());
    }
    let keys = influxdb.query("k6", "SHOW FIELD KEYS FROM vus").await.to_string();
    assert!(!keys.contains("metric_value"), "no aggregator takes it: {keys}");
}
