//! `sluice load-test --prometheus` with a real Prometheus that scrapes the subject. Where it is
//! missing the tests pass over it, unless SLUICE_TEST_REQUIRE_COMPONENTS=1 (see
//! tests/components/env).

mod command;
#[path = "../../load-test/tests/support/component.rs"]
mod component;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use command::stderr;
use component::component;
use serde_json::Value;
use sluice_load_test::subject::free_addr;
use tempfile::TempDir;

/// A Prometheus that scrapes these targets twice a second; it ends when dropped.
struct Prometheus {
    child: Child,
    addr: SocketAddr,
    _folder: TempDir,
}

impl Prometheus {
    fn start(targets: &[SocketAddr]) -> Option<Prometheus> {
        let binary = component("SLUICE_TEST_PROMETHEUS")?;
        let (folder, addr) = (TempDir::new().unwrap(), free_addr().unwrap());
        let targets: Vec<String> = targets.iter().map(|target| format!("'{target}'")).collect();
        let config = format!(
            "global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}\n\
             scrape_configs:\n  - job_name: load-test\n    static_configs: [{{targets: [{}]}}]\n",
            targets.join(", ")
        );
        let file = folder.path().join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        let child = Command::new(binary)
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={addr}"))
            .args(["--log.level=error"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let prometheus = Prometheus { child, addr, _folder: folder };
        let began = Instant::now();
        while TcpStream::connect(addr).is_err() {
            assert!(began.elapsed() < Duration::from_secs(30), "Prometheus does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(prometheus)
    }

    /// Prometheus begins to scrape some seconds after its start, one target after the other.
    fn wait_until_it_knows(&self, targets: usize) {
        let began = Instant::now();
        loop {
            let mut connection = TcpStream::connect(self.addr).unwrap();
            write!(
                connection,
                "GET /api/v1/query?query=count(up) HTTP/1.0\r\nHost: {}\r\n\r\n",
                self.addr
            )
            .unwrap();
            let mut answer = String::new();
            connection.read_to_string(&mut answer).unwrap();
            if answer.contains(&format!(",\"{targets}\"]")) {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "{answer}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn url(&self) -> String {
        format!("http://{}", self.addr)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn load_test(arguments: &[&str]) -> Output {
    command::load_test(&["-t", "logs-otel", "-s", "200", "--quiet"])
        .args(arguments)
        .output()
        .unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("a number: {value}"))
}

/// Asserts that a value is within this many percent of the expected one.
fn assert_close(what: &str, found: f64, expected: f64, percent: f64) {
    let difference = (found - expected).abs();
    assert!(
        difference <= expected.abs() * percent / 100.0,
        "{what}: {found} is not {expected} ± {percent} %"
    );
}

/// Guarantee: Prometheus' figures of a load agree with the subject's own metrics, the kernel and
/// the backends.
fn values_agree(subject: &[&str]) {
    let metrics = free_addr().unwrap();
    let Some(prometheus) = Prometheus::start(&[metrics]) else { return };
    let (folder, metrics) = (TempDir::new().unwrap(), metrics.to_string());
    let (json, url) = (folder.path().join("run.json"), prometheus.url());
    let mut arguments =
        vec!["-r", "4000", "-d", "9", "--prometheus", &url, "--metrics-listen", &metrics, "--json"];
    let json_text = json.display().to_string();
    arguments.push(&json_text);
    arguments.extend(subject);
    let output = load_test(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let record: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let turn = &record["subjects"][0]["turns"][0];
    let kpis = &turn["kpis"];
    let samples = turn["samples"].as_array().unwrap();
    // Taken from the subject's own endpoint and from /proc once a second.
    let mean = |name: &str| {
        let values: Vec<f64> = samples.iter().filter_map(|sample| sample[name].as_f64()).collect();
        values.iter().sum::<f64>() / values.len() as f64
    };
    assert_close("received/s", number(&kpis["received_per_s"]), mean("received_per_s"), 25.0);
    assert_close("received/s", number(&kpis["received_per_s"]), 4000.0, 25.0);
    assert_close("exported/s", number(&kpis["exported_per_s"]), mean("exported_per_s"), 25.0);
    assert_close("memory", number(&kpis["memory_bytes"]), mean("memory_bytes"), 40.0);
    let cpu = (number(&kpis["cpu_cores"]) - mean("cpu_cores")).abs();
    assert!(
        cpu < 0.1 + 0.5 * mean("cpu_cores"),
        "CPU: {} and {}",
        kpis["cpu_cores"],
        mean("cpu_cores")
    );
    assert!(number(&kpis["queue"]) >= 0.0 && kpis["restarts"] == 0, "{kpis}");
    let asked = &turn["prometheus"];
    assert_eq!(asked["window_s"], 9.0, "the rate window is as long as the load: {asked}");
    assert!(asked["scrapes"].as_u64().unwrap() >= 10, "{asked}");
    let received = &asked["queries"][0];
    assert_eq!(received["value"], kpis["received_per_s"], "{asked}");
    let promql = received["promql"].as_str().unwrap();
    assert!(
        promql.starts_with("sum(rate({__name__=~\"otelcol_receiver_accepted_log_records")
            && promql.contains("[9s]")
    );
    let markdown = String::from_utf8(output.stdout).unwrap();
    assert!(markdown.contains(&format!("PromQL at {url}")), "{markdown}");
}

#[test]
fn what_prometheus_says_of_sluice_agrees_with_what_sluice_says() {
    values_agree(&[]);
}

#[test]
fn what_prometheus_says_of_the_collector_agrees_with_what_the_collector_says() {
    if component("SLUICE_TEST_OTELCOL").is_some() {
        values_agree(&["--subject", "otelcol"]);
    }
}

/// Guarantee: a series that is not there is a dash in its column, with a warning, and the row
/// stays.
#[test]
fn a_figure_that_prometheus_does_not_know_is_a_dash_in_a_row_that_stays() {
    let metrics = free_addr().unwrap();
    let Some(prometheus) = Prometheus::start(&[metrics]) else { return };
    let (url, metrics) = (prometheus.url(), metrics.to_string());
    // Leaves out series with an exporter.
    let arguments = ["-d", "2", "--prometheus", &url, "--metrics-listen", &metrics];
    let output = load_test(
        &[&arguments[..], &["--prometheus-selector", "job=\"load-test\",exporter=\"\""]].concat(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("has no series for exported/s, queue"), "{}", stderr(&output));
    let markdown = String::from_utf8(output.stdout).unwrap();
    let row = markdown
        .lines()
        .find(|line| line.contains(&format!(" {} |", env!("CARGO_PKG_VERSION"))))
        .unwrap();
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    assert!(cells[2].parse::<u64>().unwrap() > 0 && cells[3..5] == ["–", "–"], "{row}");
}

/// Guarantee: each possible mistake is reported in one sentence with the remedy, before a load
/// begins.
#[test]
fn what_is_wrong_with_prometheus_is_said_with_what_helps() {
    let (unused, metrics, other) =
        (free_addr().unwrap(), free_addr().unwrap(), free_addr().unwrap());
    let url = format!("http://{unused}");
    let output = load_test(&["--prometheus", &url, "-d", "1"]);
    assert!(!output.status.success());
    assert!(
        stderr(&output).contains(&format!("no Prometheus answers at {url}")),
        "{}",
        stderr(&output)
    );
    let output = load_test(&["--prometheus", "prometheus:9090", "-d", "1"]);
    assert!(stderr(&output).contains("for instance http://127.0.0.1:9090"), "{}", stderr(&output));

    let Some(prometheus) = Prometheus::start(&[metrics, other]) else { return };
    prometheus.wait_until_it_knows(2);
    let (url, metrics, elsewhere) =
        (prometheus.url(), metrics.to_string(), free_addr().unwrap().to_string());
    let run = |more: &[&str]| {
        let output = load_test(
            &[&["--prometheus", &url, "-d", "1", "--prometheus-within", "3"], more].concat(),
        );
        assert!(!output.status.success(), "{more:?}");
        stderr(&output)
    };
    let error = run(&["--metrics-listen", &elsewhere]);
    assert!(error.contains(&format!("add `targets: ['{elsewhere}']`")), "{error}");
    let error = run(&["--metrics-listen", &metrics, "--prometheus-selector", "job=\"load-test\""]);
    assert!(error.contains("has 2 targets") && error.contains(&metrics), "{error}");
    let error = run(&["--metrics-listen", &metrics, "--prometheus-selector", "job=load"]);
    assert!(error.contains("refuses the query") && error.contains("job=load"), "{error}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = run(&["--metrics-listen", &taken.local_addr().unwrap().to_string()]);
    assert!(error.contains("choose another address with --metrics-listen"), "{error}");
}
