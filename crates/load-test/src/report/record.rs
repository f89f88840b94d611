//! What one call of the load test measured, as it is kept on disk. Every report is made of these,
//! so that a report can be made again, or of several runs at once, without measuring again.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The only format that this version writes and reads. It passes over unknown fields.
pub const FORMAT: u32 = 1;

pub(super) const RECORD_FILE: &str = "run.json";

/// One call of the load test: one scenario, one or several subjects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// Of the load test itself.
    pub tool_version: String,
    pub machine: Machine,
    /// Milliseconds since the epoch.
    pub started_unix_ms: u64,
    /// Of the whole call, seconds.
    pub duration_s: f64,
    /// Ended before its time; what it has is in here.
    pub interrupted: bool,
    pub scenario: Scenario,
    pub subjects: Vec<SubjectRecord>,
    #[serde(default)]
    pub warnings: Vec<Warning>,
    #[serde(default)]
    pub verdicts: Vec<Verdict>,
}

/// Where it ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub cpu_model: Option<String>,
    /// That this process may use.
    pub cores: u32,
    pub memory_bytes: Option<u64>,
}

/// What is under load, by the names of `-t`.
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
}

/// By the name that `-t` has for it.
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
    /// `-n`: a version, or whatever the row shall be called.
    pub name: String,
    /// `-m`: several pipelines.
    pub multi: bool,
    /// `-b`: backends that refuse.
    pub backpressure: bool,
    /// In plain words, for instance `70 % of requests answered 503`. `None` without faults.
    pub faults: Option<String>,
    /// How long each turn's load lasts, seconds.
    pub load_s: f64,
    /// Items offered a second; `None` in a closed loop, or where rates were searched.
    pub rate_per_s: Option<f64>,
    /// The highest rate that is held was searched; `load_s` is then the length of a try.
    #[serde(default)]
    pub find_limit: bool,
    /// Of a log record's body.
    pub body_bytes: Option<u64>,
    pub items_per_request: Option<u64>,
    pub pipelines: u32,
    /// Protocol, compression, connections and streams in plain words.
    pub carried: Option<String>,
    /// The call, so that it can be made again.
    pub command: Option<String>,
}

/// A pipeline engine under test, with each of its turns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SubjectRecord {
    /// For instance `sluice` or `otelcol`.
    pub name: String,
    pub version: Option<String>,
    pub limits: SubjectLimits,
    /// One a time that it ran, in order. Empty where it could not run: the warnings say why.
    pub turns: Vec<Turn>,
    /// Where rates were searched; the turns are then those at the rate that was found.
    pub limit: Option<FoundLimit>,
    /// It cannot be tested in this way: why. It has no turns then, and has not failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cannot: Option<String>,
    /// These figures were published by others and not measured in this run: where they are from.
    pub measured_elsewhere: Option<String>,
}

/// The highest rate that a subject held, and how sure that is. Rates are items a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FoundLimit {
    /// `None`: no rate was held.
    pub rate_per_s: Option<f64>,
    /// In so many of `tries_at_rate` tries. A rate fails only if it fails twice.
    pub held: u32,
    pub tries_at_rate: u32,
    /// How long a try lasted, seconds.
    pub try_s: f64,
    /// The limit lies between the highest rate that was held in all its tries ...
    pub held_always_per_s: Option<f64>,
    /// ... and the lowest that failed; `None`: none did.
    pub failed_per_s: Option<f64>,
    /// The bench was near its cores at the lowest rate that failed: the subject may hold more.
    pub bench_was_limit: bool,
    /// Why the search ended before it was done, for instance its time.
    pub ended_early: Option<String>,
    /// In the order in which they were made.
    pub tries: Vec<LimitTry>,
}

/// One try of a search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitTry {
    pub rate_per_s: f64,
    pub held: bool,
    /// Why it was not.
    pub reason: Option<String>,
    #[serde(default)]
    pub bench_was_busy: bool,
}

/// What a subject was allowed; `None` is no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SubjectLimits {
    /// A quota, for instance 0.5 of a core.
    pub cpu_cores: Option<f64>,
    pub memory_bytes: Option<u64>,
    /// The cores to which it was pinned.
    #[serde(default)]
    pub pinned_cores: Vec<u32>,
}

/// One subject, once under the scenario's load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// From 1: subjects' turns of the same number ran side by side. 0 in records that do not say.
    #[serde(default)]
    pub number: usize,
    pub kpis: Kpis,
    #[serde(default)]
    pub samples: Vec<Sample>,
    #[serde(default)]
    pub fault_windows: Vec<FaultWindow>,
    #[serde(default)]
    pub bench: BenchCost,
    /// Where its rates, queue, memory, CPU and restarts are not from the subject itself and /proc.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<PrometheusReading>,
}

/// What a Prometheus was asked, and what it said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PrometheusReading {
    pub url: String,
    /// Of rates and means, as long as the load.
    pub window_s: f64,
    /// Of the subject, within the window.
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

/// A turn's figures. `None` is what is not known: never zero in its place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kpis {
    /// Items that the subject took, a second of the load.
    pub received_per_s: Option<f64>,
    /// Items that reached the backends while the load ran, a second, all pipelines together.
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
    /// Items offered to the subject.
    pub offered: Option<u64>,
    /// Items that the subject answered with success.
    pub accepted: Option<u64>,
    /// Items that the subject turned away.
    pub refused: Option<u64>,
    /// Items that were sent and never answered: the subject may have them.
    pub unanswered: Option<u64>,
    /// Items of an open loop that were due and not sent, because all senders waited for answers.
    pub never_sent: Option<u64>,
    /// Accepted items that did not reach every backend, told by identity, after the drain.
    pub lost: Option<u64>,
    /// Items that reached a backend more than once, told by identity.
    pub doubled: Option<u64>,
    /// From the item's own time to its arrival.
    pub latency_p50_ms: Option<f64>,
    pub latency_p99_ms: Option<f64>,
    pub latency_p999_ms: Option<f64>,
    pub cpu_s_per_million: Option<f64>,
    /// Sent to the subject, and by it to the backends.
    pub wire_in_bytes: Option<u64>,
    pub wire_out_bytes: Option<u64>,
    /// What Fluent Bit counts in place of items.
    pub received_bytes_per_s: Option<f64>,
    pub exported_bytes_per_s: Option<f64>,
    pub buffer_bytes: Option<f64>,
    /// From the load's end until the last item arrived.
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
    /// Different items at its backend after the drain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exported: Option<u64>,
    /// Items that the subject held for it and had dropped after the drain, by its own count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<f64>,
    /// What its backend was sent, and what of that its faults answered with a refusal or broke off.
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
    /// Of what arrived since the sample before.
    pub latency_p99_ms: Option<f64>,
}

/// When a backend was sick, in seconds since the load began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FaultWindow {
    pub from_s: f64,
    /// `None`: to the end.
    pub to_s: Option<f64>,
    /// For instance `70 % 503`.
    pub label: String,
}

/// What generator and backends themselves took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BenchCost {
    pub generator_cpu_cores: Option<f64>,
    pub backend_cpu_cores: Option<f64>,
    pub memory_max_bytes: Option<f64>,
    /// Requests that were sent later than planned.
    pub late_requests: Option<u64>,
}

/// Something that makes the figures doubtful, and what helps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Warning {
    /// `None`: it concerns all.
    pub subject: Option<String>,
    pub message: String,
    pub remedy: Option<String>,
}

impl Warning {
    /// Of all subjects.
    pub(crate) fn new(message: impl Into<String>, remedy: &str) -> Warning {
        let remedy = Some(remedy.to_owned()).filter(|remedy| !remedy.is_empty());
        Warning { subject: None, message: message.into(), remedy }
    }

    pub(crate) fn of(self, subject: &str) -> Warning {
        Warning { subject: Some(subject.to_owned()), ..self }
    }
}

/// A threshold and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub subject: String,
    /// As given, for instance `lost>0`.
    pub fail_if: String,
    /// The figure that was held against it; `None` where it is not known, which fails.
    pub value: Option<f64>,
    pub failed: bool,
}

impl SubjectRecord {
    /// Its figures are of this run, if it has any.
    pub(super) fn was_to_run(&self) -> bool {
        self.measured_elsewhere.is_none() && self.cannot.is_none()
    }
}

impl RunRecord {
    /// A subject ran, or should have: the report has circumstances to show.
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

    /// Pretty-printed.
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
