//! The description in a subject's folder, as it is written.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::ensure;
use serde::Deserialize;

use super::error::malformed;
use super::metrics::Metrics;
use crate::report::Target;

/// The description in a subject's folder.
pub(super) const SUBJECT_FILE: &str = "subject.json";

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
    pub(super) config: Option<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    pub(super) ready: Option<ReadyWhen>,
    /// `None`: half a minute, which a JVM or a cold disk may take.
    pub(super) ready_within_s: Option<u64>,
    /// `None`: it is started again when it ends.
    pub(super) restart: Option<bool>,
    /// `None`: 10 s, as a kubelet has it.
    pub(super) restart_delay_ms: Option<u64>,
    #[serde(default)]
    pub(super) metrics: Metrics,
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
    metrics: Option<Metrics>,
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

impl Description {
    pub(super) fn parse(path: &Path, text: &str) -> anyhow::Result<Description> {
        let description: Description =
            serde_json::from_str(text).map_err(|error| malformed(path, &error))?;
        let of_targets = description.targets.iter().flat_map(BTreeMap::values);
        let commands = of_targets.filter_map(|target| target.command.as_ref());
        let has_commands = !commands.chain([&description.command]).any(Vec::is_empty);
        let path = path.display();
        ensure!(has_commands, "{path}: `command` is empty: give the program and its arguments");
        Ok(description)
    }

    pub(super) fn targets(&self) -> Vec<Target> {
        let own = self.targets.as_ref().map(|targets| targets.keys().copied().collect());
        own.unwrap_or_else(|| DEFAULT_TARGETS.to_vec())
    }

    pub(super) fn template_names(&self) -> impl Iterator<Item = &String> {
        let of_targets = self.targets.iter().flat_map(BTreeMap::values);
        of_targets.filter_map(|target| target.config.as_ref()).chain(&self.config)
    }

    /// What holds for one target.
    pub(super) fn chosen(&self, target: Target) -> Description {
        let mut chosen = self.clone();
        let own = chosen.targets.as_mut().and_then(|targets| targets.remove(&target));
        let own = own.unwrap_or_default();
        chosen.env.extend(own.env);
        // An agent takes no load on a port of its own: it is up when its metrics are.
        let addr = if target.takes_requests() { "@LISTEN@" } else { "@METRICS@" };
        let ready = own.ready.or(chosen.ready);
        Description {
            command: own.command.unwrap_or(chosen.command),
            config: own.config.or(chosen.config),
            ready: ready.or_else(|| Some(ReadyWhen::Connect(addr.to_owned()))),
            metrics: own.metrics.unwrap_or(chosen.metrics),
            ..chosen
        }
    }
}
