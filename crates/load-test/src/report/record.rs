//! The measurements of one call of the load test, as kept on disk. Every report is made from
//! records. So it can be made again, or of several runs together, without measuring again.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::k6::K6Figures;

/// The only format that this version writes and reads. It passes over unknown fields.
pub const FORMAT: u32 = 1;

pub(super) const RECORD_FILE: &str = "run.json";

/// One call of the load test: one scenario, one or several subjects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    pub format: u32,
    /// Version of the load test itself.
    pub tool_version: String,
    pub machine: Machine,
    pub started_unix_ms: u64,
    /// Seconds that the whole call took.
    pub duration_s: f64,
    /// The run was ended early. The record has the measurements until then.
    pub interrupted: bool,
    pub scenario: Scenario,
    pub subjects: Vec<SubjectRecord>,
    #[serde(default)]
    pub warnings: Vec<Warning>,
    #[serde(default)]
    pub verdicts: Vec<Verdict>,
}

/// The machine that the load test ran on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Instruction set, for instance `x86_64`.
    pub architecture: Option<String>,
    /// Cores that this process may use.
    pub cores: u32,
    pub memory_bytes: Option<u64>,
}

/// The kind of work under load, by the names that `-t` takes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub enum Target {
    /// spans over OTLP
    #[default]
    Traces,
    /// metric points over OTLP
    Metrics,
    /// Prometheus targets that the subject scrapes
    MetricAgent,
    /// log records over OTLP
    #[serde(rename = "logs-otel")]
    #[value(name = "logs-otel")]
    LogsOtel,
    /// log files that the subject tails
    LogAgent,
    /// the same, counted in bytes as Fluent Bit does
    #[serde(rename = "logs-fluentbit")]
    #[value(name = "logs-fluentbit")]
    LogsFluentBit,
    /// samples of k6, on their way to InfluxDB
    K6,
}

/// The name that `-t` takes for it.
impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.to_possible_value();
        formatter.write_str(name.as_ref().map_or("", PossibleValue::get_name))
    }
}

/// The work, the same for every subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    pub target: Target,
    /// `-n`: the name of the row, for instance a version.
    pub name: String,
    /// `-m`: several pipelines.
    pub multi: bool,
    /// `-b`: backends that refuse.
    pub backpressure: bool,
    /// Faults in plain words, for instance `70 % of requests answered 503`. `None` without faults.
    pub faults: Option<String>,
    /// Duration of each turn's load, seconds.
    pub load_s: f64,
    /// Items offered a second; `None` in a closed loop, or where rates were searched.
    pub rate_per_s: Option<f64>,
    /// The run searched for the highest rate that is held. `load_s` is then the length of a try.
    #[serde(default)]
    pub find_limit: bool,
    /// Size of a log record's body.
    pub body_bytes: Option<u64>,
    pub items_per_request: Option<u64>,
    pub pipelines: u32,
    /// Protocol, compression, connections and streams in plain words.
    pub carried: Option<String>,
    /// The command line, to repeat the run.
    pub command: Option<String>,
}

/// A pipeline engine under test, with each of its turns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SubjectRecord {
    /// For instance `sluice` or `otelcol`.
    pub name: String,
    pub version: Option<String>,
    pub limits: SubjectLimits,
    /// In order. Empty if the subject could not run: the warnings have the reason.
    pub turns: Vec<Turn>,
    /// The result of a search. The turns are then those at the rate that was found.
    pub limit: Option<FoundLimit>,
    /// The reason if the subject cannot do this target. It then has no turns and has not failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cannot: Option<String>,
    /// The source of figures that were published elsewhere and not measured in this run.
    pub measured_elsewhere: Option<String>,
}

/// The highest rate that a subject held, and how sure that is. Rates are items a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FoundLimit {
    /// `None`: no rate was held.
    pub rate_per_s: Option<f64>,
    /// Tries at this rate that held it, of `tries_at_rate`. A rate fails only if it fails twice.
    pub held: u32,
    pub tries_at_rate: u32,
    pub try_s: f64,
    /// The highest rate that was held in all its tries: the limit is not below it.
    pub held_always_per_s: Option<f64>,
    /// The lowest rate that failed: the limit is below it. `None`: no rate failed.
    pub failed_per_s: Option<f64>,
    /// The bench was short of CPU at the lowest rate that failed: the subject may hold more.
    pub bench_was_limit: bool,
    /// The reason if the search ended early, for instance its time limit.
    pub ended_early: Option<String>,
    /// In the order in which they were made.
    pub tries: Vec<LimitTry>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitTry {
    pub rate_per_s: f64,
    pub held: bool,
    /// The reason if the rate was not held.
    pub reason: Option<String>,
    #[serde(default)]
    pub bench_was_busy: bool,
}

/// Limits of a subject. `None`: no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SubjectLimits {
    /// A quota, for instance 0.5 of a core.
    pub cpu_cores: Option<f64>,
    pub memory_bytes: Option<u64>,
    /// The cores to which it was pinned.
    #[serde(default)]
    pub pinned_cores: Vec<u32>,
}

/// One run of one subject under the scenario's load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// From 1. Turns of the same number ran side by side. 0: the record does not say.
    #[serde(default)]
    pub number: usize,
    pub kpis: Kpis,
    #[serde(default)]
    pub samples: Vec<Sample>,
    #[serde(default)]
    pub fault_windows: Vec<FaultWindow>,
    #[serde(default)]
    pub bench: BenchCost,
    /// Source of rates, queue, memory, CPU and restarts, if not the subject itself and /proc.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<PrometheusReading>,
    /// Figures that only samples of k6 have. The items of its other figures are HTTP requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k6: Option<K6Figures>,
}

/// Queries to a Prometheus, and their results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PrometheusReading {
    pub url: String,
    /// Window of rates and means, as long as the load.
    pub window_s: f64,
    /// Scrapes of the subject within the window.
    pub scrapes: u64,
    pub queries: Vec<Query>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Query {
    /// For instance `received/s`.
    pub figure: String,
    pub promql: String,
    /// `None`: no series.
    pub value: Option<f64>,
}

/// A turn's figures. An unknown figure is `None`, never zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kpis {
    /// Items that the subject took for each second of the load.
    pub received_per_s: Option<f64>,
    /// Items that reached the backends for each second of the load, all pipelines together.
    pub exported_per_s: Option<f64>,
    /// The subject's queue, in its own unit, at the end of the load.
    pub queue: Option<f64>,
    pub queue_max: Option<f64>,
    /// Mean while the load ran.
    pub memory_bytes: Option<f64>,
    pub memory_max_bytes: Option<f64>,
    /// Mean while the load ran, in cores.
    pub cpu_cores: Option<f64>,
    pub restarts: Option<u64>,
    pub offered: Option<u64>,
    /// Items that the subject answered with success.
    pub accepted: Option<u64>,
    /// Items that the subject turned away.
    pub refused: Option<u64>,
    /// Items that were sent and never answered: the subject may have them.
    pub unanswered: Option<u64>,
    /// Items of an open loop that were due and not sent, because all senders waited for answers.
    pub never_sent: Option<u64>,
    /// Accepted items that a backend lacks and the subject does not hold after the drain.
    pub lost: Option<u64>,
    /// Items that reached a backend more than once, by identity.
    pub doubled: Option<u64>,
    /// From the item's own time to its arrival.
    pub latency_p50_ms: Option<f64>,
    pub latency_p99_ms: Option<f64>,
    pub latency_p999_ms: Option<f64>,
    pub cpu_s_per_million: Option<f64>,
    /// Bytes sent to the subject, and from it to the backends.
    pub wire_in_bytes: Option<u64>,
    pub wire_out_bytes: Option<u64>,
    /// Fluent Bit counts bytes in place of items.
    pub received_bytes_per_s: Option<f64>,
    pub exported_bytes_per_s: Option<f64>,
    pub buffer_bytes: Option<f64>,
    /// From the end of the load to the arrival of the last item.
    pub drain_s: Option<f64>,
    pub pipelines: Vec<PipelineKpis>,
}

/// One pipeline's share of a turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PipelineKpis {
    pub name: String,
    pub exported_per_s: Option<f64>,
    pub queue: Option<f64>,
    pub lost: Option<u64>,
    pub doubled: Option<u64>,
    pub latency_p99_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_p50_ms: Option<f64>,
    /// Distinct items at its backend after the drain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exported: Option<u64>,
    /// Items that wait for this pipeline after the drain, and items dropped, as the subject counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<f64>,
    /// Requests to its backend, and how many of these its faults refused or broke off.
    pub backend_requests: Option<u64>,
    pub backend_refused: Option<u64>,
    pub backend_resets: Option<u64>,
}

/// One moment of a turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Seconds since the load began.
    pub t_s: f64,
    pub received_per_s: Option<f64>,
    pub exported_per_s: Option<f64>,
    pub queue: Option<f64>,
    /// Items on their way: sent, and not at every backend.
    pub backlog_items: Option<f64>,
    pub memory_bytes: Option<f64>,
    pub cpu_cores: Option<f64>,
    /// Over the items that arrived since the previous sample.
    pub latency_p99_ms: Option<f64>,
}

/// Period in which a backend had a fault, in seconds since the load began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FaultWindow {
    pub from_s: f64,
    /// `None`: to the end.
    pub to_s: Option<f64>,
    /// For instance `70 % 503`.
    pub label: String,
}

/// Resources that the generator and the backends used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BenchCost {
    pub generator_cpu_cores: Option<f64>,
    pub backend_cpu_cores: Option<f64>,
    pub memory_max_bytes: Option<f64>,
    pub late_requests: Option<u64>,
}

/// Something that makes the figures doubtful, and its remedy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Warning {
    /// `None`: it concerns all subjects.
    pub subject: Option<String>,
    pub message: String,
    pub remedy: Option<String>,
}

impl Warning {
    /// A warning about all subjects.
    pub(crate) fn new(message: impl Into<String>, remedy: &str) -> Warning {
        let remedy = Some(remedy.to_owned()).filter(|remedy| !remedy.is_empty());
        Warning { subject: None, message: message.into(), remedy }
    }

    pub(crate) fn of(self, subject: &str) -> Warning {
        Warning { subject: Some(subject.to_owned()), ..self }
    }
}

/// A condition of `--fail-if` and its result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub subject: String,
    /// As given, for instance `lost>0`.
    pub fail_if: String,
    /// The figure that was compared. `None`: not known, which fails.
    pub value: Option<f64>,
    pub failed: bool,
}

impl SubjectRecord {
    /// Whether the figures, if there are any, were measured in this run.
    pub(super) fn was_to_run(&self) -> bool {
        self.measured_elsewhere.is_none() && self.cannot.is_none()
    }
}

impl RunRecord {
    /// Whether a subject ran, or should have: the report then shows the circumstances.
    pub(super) fn is_of_a_run(&self) -> bool {
        self.subjects.iter().any(SubjectRecord::was_to_run)
    }

    /// Reads a record that [`RunRecord::write`] wrote.
    pub fn read(path: &Path) -> Result<RunRecord> {
        let name = path.display();
        let text = fs::read_to_string(path).with_context(|| name.to_string())?;
        let malformed = || format!("{name}: not a record of a load test");
        let record: Value = serde_json::from_str(&text).with_context(malformed)?;
        let format = record["format"].as_u64().with_context(malformed)?;
        ensure!(
            format == u64::from(FORMAT),
            "{name}: has format {format}, this version reads format {FORMAT}; use the version of \
             sluice that made it"
        );
        serde_json::from_str(&text).with_context(malformed)
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data with string keys") + "\n"
    }

    /// Writes `run.json` into a folder that exists.
    pub fn write(&self, folder: &Path) -> Result<()> {
        write(folder, RECORD_FILE, &self.to_json())
    }
}

pub(super) fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| path.display().to_string())
}
