//! The description in a subject's folder, as it is written.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::error::DefinitionError;
use super::metrics::Metrics;
use crate::report::Target;

/// The description in a subject's folder.
pub const SUBJECT_FILE: &str = "subject.json";

/// What a subject can do where its description does not say.
const DEFAULT_TARGETS: [Target; 3] = [Target::Traces, Target::Metrics, Target::LogsOtel];

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Description {
    pub(super) name: String,
    pub(super) about: Option<String>,
    pub(super) tried: Option<Tried>,
    /// Where its program comes from, as the end of a sentence.
    pub(super) install: Option<String>,
    /// Program and arguments.
    pub(super) command: Vec<String>,
    /// Arguments that make it print its version.
    #[serde(default)]
    pub(super) version: Vec<String>,
    config: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    ready: Option<ReadyWhen>,
    #[serde(default = "default_ready_within_s")]
    pub(super) ready_within_s: u64,
    #[serde(default = "default_restart")]
    pub(super) restart: bool,
    #[serde(default = "default_restart_delay_ms")]
    pub(super) restart_delay_ms: u64,
    #[serde(default)]
    metrics: Metrics<String>,
    targets: Option<BTreeMap<Target, TargetDescription>>,
}

/// It was run for real.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tried {
    pub version: String,
    /// For instance `2026-11-21`.
    pub date: String,
}

/// What is different for one target.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TargetDescription {
    command: Option<Vec<String>>,
    config: Option<String>,
    env: BTreeMap<String, String>,
    ready: Option<ReadyWhen>,
    metrics: Option<Metrics<String>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ReadyWhen {
    /// Accepts a connection on this address.
    Connect(String),
    /// Answers GET with 200: address and path.
    Http(String),
    /// Has written this.
    Output(String),
}

impl ReadyWhen {
    /// An agent takes no load on a port of its own: it is up when its metrics are.
    fn default_for(target: Target) -> ReadyWhen {
        let addr = match target {
            Target::Traces | Target::Metrics | Target::LogsOtel => "@LISTEN@",
            Target::MetricAgent | Target::LogAgent | Target::LogsFluentBit => "@METRICS@",
        };
        ReadyWhen::Connect(addr.to_owned())
    }
}

/// Half a minute: a JVM or a cold disk may take that.
fn default_ready_within_s() -> u64 {
    30
}

fn default_restart() -> bool {
    true
}

/// A kubelet's.
fn default_restart_delay_ms() -> u64 {
    10_000
}

/// What holds for one target.
pub(super) struct Chosen<'a> {
    pub(super) command: &'a [String],
    pub(super) config: Option<&'a str>,
    pub(super) env: BTreeMap<&'a String, &'a String>,
    pub(super) ready: ReadyWhen,
    pub(super) metrics: &'a Metrics<String>,
}

impl Description {
    pub(super) fn parse(path: &Path, text: &str) -> Result<Description, DefinitionError> {
        let description: Description =
            serde_json::from_str(text).map_err(|source| DefinitionError::malformed(path, &source))?;
        let own = description.targets.iter().flat_map(BTreeMap::values).filter_map(|target| target.command.as_ref());
        if own.chain([&description.command]).any(Vec::is_empty) {
            return Err(DefinitionError::NoCommand { path: path.to_owned() });
        }
        Ok(description)
    }

    pub(super) fn targets(&self) -> Vec<Target> {
        self.targets.as_ref().map_or(DEFAULT_TARGETS.to_vec(), |targets| targets.keys().copied().collect())
    }

    pub(super) fn template_names(&self) -> Vec<&str> {
        let of_targets = self.targets.iter().flat_map(BTreeMap::values).filter_map(|target| target.config.as_deref());
        of_targets.chain(self.config.as_deref()).collect()
    }

    pub(super) fn chosen(&self, target: Target) -> Chosen<'_> {
        let own = self.targets.as_ref().and_then(|targets| targets.get(&target));
        Chosen {
            command: own.and_then(|own| own.command.as_ref()).unwrap_or(&self.command),
            config: own.and_then(|own| own.config.as_deref()).or(self.config.as_deref()),
            // The later of two with one name holds.
            env: self.env.iter().chain(own.iter().flat_map(|own| &own.env)).collect(),
            ready: own
                .and_then(|own| own.ready.as_ref())
                .or(self.ready.as_ref())
                .map_or_else(|| ReadyWhen::default_for(target), ReadyWhen::clone),
            metrics: own.and_then(|own| own.metrics.as_ref()).unwrap_or(&self.metrics),
        }
    }
}
