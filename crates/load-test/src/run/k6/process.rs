//! k6 itself as the source: its script asks a small server of the bench. Its summary has the sums
//! of its counters, its log the times of its writes.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::source::Flushes;
use crate::backend::page::Page;
use crate::generate::k6::{Form, Output};
use crate::run::definition::ask_version;
use crate::run::machine::Cores;
use crate::run::plan::Plan;
use crate::run::runtime::OwnRuntime;
use crate::subject::{Subject, SubjectSpec, Usage};

/// At most 15 bytes.
const SERVER_THREADS: &str = "k6-page";
/// Virtual users where no rate is given, and those that it begins with.
const USERS: u32 = 50;
/// Most virtual users that a rate may need.
const USERS_MAX: u32 = 500;

pub(super) struct K6 {
    process: Option<Subject>,
    version: Option<String>,
    report: Report,
    _server: (Page, OwnRuntime),
}

/// The figures that k6 gives at its end.
#[derive(Clone, Debug, Default, PartialEq)]
struct Report {
    counters: Vec<(String, f64)>,
    samples: Option<u64>,
    flushes: Flushes,
}

impl K6 {
    /// Begins the test.
    pub(super) async fn start(
        plan: &Plan,
        binary: &Path,
        cores: &Cores,
        output: Output,
    ) -> Result<K6> {
        let runtime = OwnRuntime::start(cores.of_bench(), SERVER_THREADS)?;
        let page = runtime.spawn(Page::serve()).await??;
        let out = match output {
            Output::Influx(server) => format!("influxdb=http://{server}/k6"),
            Output::File(Form::Json, path) => format!("json={}", path.display()),
            Output::File(_, path) => format!("csv={}", path.display()),
        };
        // The debug level has the time of each write.
        let words = ["run", "--verbose", "--no-usage-report", "--address", "localhost:0"];
        let last = ["--out", &out, "--summary-export", "{dir}/summary.json", "{config}"];
        let spec = SubjectSpec {
            name: "k6".to_owned(),
            binary: binary.to_owned(),
            args: words.iter().chain(&last).map(|word| (*word).to_owned()).collect(),
            config: script(plan, &format!("http://{}/", page.addr())),
            config_file: "script.js".to_owned(),
            env: vec![("HOME".to_owned(), "{dir}".to_owned())],
            cpus: cores.bench.clone(),
            ..SubjectSpec::default()
        };
        let version = ask_version(binary, &["version".to_owned()]);
        Ok(K6 {
            process: Some(Subject::start(spec).await?),
            version,
            report: Report::default(),
            _server: (page, runtime),
        })
    }

    pub(super) fn name(&self) -> String {
        self.version.as_ref().map_or("k6".to_owned(), |version| format!("k6 {version}"))
    }

    pub(super) fn usage(&self) -> Option<Usage> {
        self.process.as_ref()?.usage()
    }

    /// Ends it now: it has no summary then.
    pub(super) fn abandon(&mut self) {
        self.process = None;
    }

    pub(super) fn is_over(&self) -> bool {
        self.process.as_ref().is_none_or(|process| process.lives().is_down)
    }

    /// Reads what it left. Fails if it did not come to its end.
    pub(super) fn outcome(&mut self) -> Result<()> {
        let Some(process) = &self.process else { return Ok(()) };
        match process.lives().last_end {
            Some(status) if status.success() => {}
            Some(status) => bail!("k6 ended ({status}): {}", process.output_tail()),
            None => bail!("k6 still runs"),
        }
        let summary = std::fs::read(process.folder().join("summary.json"));
        let summary = summary.context("k6 has written no summary")?;
        let summary = serde_json::from_slice(&summary).context("k6's summary")?;
        self.report = Report::read(&summary, &process.output());
        Ok(())
    }

    pub(super) fn counters(&self) -> &[(String, f64)] {
        &self.report.counters
    }

    pub(super) fn samples(&self) -> Option<u64> {
        self.report.samples
    }

    pub(super) fn flushes(&self) -> Flushes {
        self.report.flushes.clone()
    }
}

/// One request an iteration: at a rate, or as many as virtual users make.
fn script(plan: &Plan, url: &str) -> String {
    let seconds = plan.duration.as_secs_f64().ceil();
    let scenario = match plan.rate_per_s() {
        Some(rate) => format!(
            "executor: 'constant-arrival-rate', rate: {:.0}, timeUnit: '1s', duration: \
             '{seconds}s', preAllocatedVUs: {USERS}, maxVUs: {USERS_MAX}",
            rate.max(1.0)
        ),
        None => format!("executor: 'constant-vus', vus: {USERS}, duration: '{seconds}s'"),
    };
    format!(
        "import http from 'k6/http';\n\
         export const options = {{\n  discardResponseBodies: true,\n  \
         scenarios: {{default: {{{scenario}}}}},\n}};\n\
         export default function () {{ http.get('{url}'); }}\n"
    )
}

impl Report {
    fn read(summary: &Value, log: &str) -> Report {
        // Counters have a `count`; rates have `passes`, trends an `avg`, gauges a `value`.
        let metrics = summary["metrics"].as_object().into_iter().flatten();
        let counters = metrics
            .filter_map(|(name, metric)| Some((name.clone(), metric["count"].as_f64()?)))
            .collect();
        let (mut samples, mut times, mut failure, mut failed) = (None, Vec::new(), None, 0);
        for line in log.lines() {
            // `points` of a request, `count` of an append to a file of JSON.
            if let Some(written) = field(line, "points").or_else(|| field(line, "count"))
                && let Ok(written) = written.parse::<u64>()
            {
                *samples.get_or_insert(0) += written;
            }
            if line.contains("Batch written!") || line.contains("Wrote metrics to JSON") {
                times.extend(field(line, "t").and_then(go_duration));
            }
            if line.contains("Couldn't write stats") {
                failed += 1;
                failure.get_or_insert_with(|| field(line, "error").unwrap_or(line).to_owned());
            }
        }
        let sum: Duration = times.iter().sum();
        let number = times.len() as u64 + failed;
        let is_told = number > 0;
        Report {
            counters,
            samples,
            flushes: Flushes {
                number: is_told.then_some(number),
                failed: is_told.then_some(failed),
                mean: sum.checked_div(times.len() as u32),
                max: times.into_iter().max(),
                failure,
            },
        }
    }
}

/// The value of `name=value` or `name="value"` in a line of k6's log.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = line.split_once(&format!(" {name}="))?;
    match value.strip_prefix('"') {
        Some(quoted) => quoted.split_once("\" ").map_or(quoted.strip_suffix('"'), |it| Some(it.0)),
        None => value.split(' ').next(),
    }
}

/// A duration as Go writes it: `1m2.5s`, `191.989µs`.
fn go_duration(text: &str) -> Option<Duration> {
    let (mut sum_s, mut rest) = (0.0, text);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = rest.split_at(end);
        let number: f64 = number.parse().ok()?;
        let units =
            [("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9), ("h", 3600.0), ("m", 60.0), ("s", 1.0)];
        let (after, unit_s) =
            units.iter().find_map(|(name, unit_s)| Some((unit.strip_prefix(name)?, unit_s)))?;
        (sum_s, rest) = (sum_s + number * unit_s, after);
    }
    Duration::try_from_secs_f64(sum_s).ok().filter(|_| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The end of the log of k6 1.8.1 with `--verbose`.
    const LOG: &str = concat!(
        "time=\"2026-11-29T14:28:09Z\" level=debug msg=\"Wrote metrics to JSON\" count=90 ",
        "filename=k6.json output=json t=\"191.989µs\"\n",
        "time=\"2026-11-29T14:28:09Z\" level=debug msg=Writing... output=InfluxDBv1 samples=30\n",
        "time=\"2026-11-29T14:28:09Z\" level=debug msg=Writing... output=InfluxDBv1 points=110\n",
        "time=\"2026-11-29T14:28:09Z\" level=debug msg=\"Batch written!\" output=InfluxDBv1 ",
        "t=1.098232ms\n",
        "time=\"2026-11-29T14:28:10Z\" level=error msg=\"Couldn't write stats\" ",
        "error=\"Request Entity Too Large\\n\" output=InfluxDBv1\n",
    );

    /// Guarantee: counters of the summary are told from other metrics, and each write of the log is
    /// counted once, with its time.
    #[test]
    fn a_summary_and_a_log_are_read() {
        let summary = json!({"metrics": {
            "http_reqs": {"count": 6, "rate": 90.1},
            "http_req_duration": {"avg": 1.0, "max": 2.0},
            "http_req_failed": {"passes": 0, "fails": 6, "value": 0},
            "vus": {"value": 3, "min": 3, "max": 3},
        }});
        let report = Report::read(&summary, LOG);
        assert_eq!(report.counters, [("http_reqs".to_owned(), 6.0)]);
        assert_eq!(report.samples, Some(200));
        let Flushes { number, failed, max, failure, .. } = report.flushes;
        assert_eq!((number, failed), (Some(3), Some(1)));
        assert_eq!(max, Some(Duration::from_nanos(1_098_232)));
        assert_eq!(failure.as_deref(), Some("Request Entity Too Large\\n"));
        let silent = Report::read(&summary, "");
        assert_eq!((silent.samples, silent.flushes), (None, Flushes::default()));
    }

    /// Guarantee: no duration of Go is read as another one.
    #[test]
    fn durations_of_go_are_read() {
        for (text, ns) in [
            ("191.989µs", 191_989),
            ("1.098232ms", 1_098_232),
            ("2.5s", 2_500_000_000),
            ("1m2s", 62_000_000_000),
            ("7ns", 7),
        ] {
            assert_eq!(go_duration(text), Some(Duration::from_nanos(ns)), "{text}");
        }
        assert_eq!((go_duration(""), go_duration("5"), go_duration("5x")), (None, None, None));
    }
}
