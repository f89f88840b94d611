//! The description in a subject's folder, with the names of its metrics.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::ensure;
use serde::Deserialize;

use super::error::malformed;
use crate::report::Target;
use crate::scrape::{Scrape, parse_labels};
use crate::subject::Ready;

pub(super) const SUBJECT_FILE: &str = "subject.json";

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Description {
    pub(super) name: String,
    pub(super) about: Option<String>,
    pub(super) tried: Option<Tried>,
    /// How to get its program, as the end of a sentence.
    pub(super) install: Option<String>,
    /// Program and arguments.
    pub(super) command: Vec<String>,
    /// Arguments that make it print its version.
    #[serde(default)]
    pub(super) version: Vec<String>,
    pub(super) config: Option<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    pub(super) ready: Option<Ready>,
    /// `None`: half a minute, which a JVM or a cold disk may take.
    pub(super) ready_within_s: Option<u64>,
    /// `None`: it is started again when it ends.
    pub(super) restart: Option<bool>,
    /// `None`: 10 s, as a kubelet has it.
    pub(super) restart_delay_ms: Option<u64>,
    #[serde(default)]
    pub(super) metrics: Metrics,
    /// Filled in from the target `k6`.
    #[serde(skip)]
    pub(super) k6: K6Form,
    targets: Option<BTreeMap<Target, TargetDescription>>,
}

/// The version and date with which the description was tried.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tried {
    pub version: String,
    /// For instance `2026-11-21`.
    pub date: String,
}

/// Values that are different for one target.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TargetDescription {
    command: Option<Vec<String>>,
    config: Option<String>,
    env: BTreeMap<String, String>,
    ready: Option<Ready>,
    metrics: Option<Metrics>,
    /// Of the target `k6` alone.
    k6: Option<K6Form>,
}

/// The output of k6 that a subject takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum K6Form {
    /// Line protocol, at `@LISTEN@`.
    #[default]
    Lines,
    /// The file of its JSON output, `@K6_FILE@`.
    Json,
    /// That of its CSV output.
    Csv,
}

impl Description {
    pub(super) fn parse(path: &Path, text: &str) -> anyhow::Result<Description> {
        let description: Description =
            serde_json::from_str(text).map_err(|error| malformed(path, &error))?;
        let of_targets = || description.targets.iter().flatten();
        let commands = of_targets().filter_map(|(_, target)| target.command.as_ref());
        // A program may be left out where samples can go to the backend directly.
        let is_for_k6 = description.targets() == [Target::K6];
        let own = Some(&description.command).filter(|_| !is_for_k6);
        let has_commands = !commands.chain(own).any(Vec::is_empty);
        let path = path.display();
        ensure!(has_commands, "{path}: `command` is empty: give the program and its arguments");
        let mut others = of_targets().filter(|(target, _)| **target != Target::K6);
        ensure!(
            others.all(|(_, own)| own.k6.is_none()),
            "{path}: `k6` says how samples of k6 are taken: it belongs to the target `k6`"
        );
        Ok(description)
    }

    /// The targets that it can do. Without a list: those that send requests.
    pub(super) fn targets(&self) -> Vec<Target> {
        let own = self.targets.as_ref().map(|targets| targets.keys().copied().collect());
        own.unwrap_or_else(|| vec![Target::Traces, Target::Metrics, Target::LogsOtel])
    }

    pub(super) fn template_names(&self) -> impl Iterator<Item = &String> {
        let of_targets = self.targets.iter().flat_map(BTreeMap::values);
        of_targets.filter_map(|target| target.config.as_ref()).chain(&self.config)
    }

    /// The description with the values for one target.
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
            ready: ready.or_else(|| Some(Ready::Connect(addr.to_owned()))),
            metrics: own.metrics.unwrap_or(chosen.metrics),
            k6: own.k6.unwrap_or_default(),
            ..chosen
        }
    }
}

/// The subject's Prometheus metrics, served at `@METRICS@`. A figure without a metric is unknown.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Metrics {
    #[serde(default = "default_path")]
    pub(crate) path: String,
    /// Counter of items taken from senders.
    pub(crate) received: Option<Selector>,
    /// Gauge of the queue, in the subject's own unit.
    pub(crate) queue: Option<Selector>,
    /// Gauge of the items that wait for delivery: they do not count as lost.
    pub(crate) held: Option<Selector>,
    /// Counter of items handed on, of all pipelines together.
    pub(crate) exported: Option<Selector>,
    /// Fluent Bit counts bytes in place of items.
    pub(crate) received_bytes: Option<Selector>,
    pub(crate) exported_bytes: Option<Selector>,
    pub(crate) buffer_bytes: Option<Selector>,
    /// Memory and CPU as the process itself reports them. Read through a Prometheus only.
    pub(crate) memory_bytes: Option<Selector>,
    pub(crate) cpu_seconds: Option<Selector>,
    /// Begins again at 0 with every start.
    pub(crate) uptime_s: Option<Selector>,
    pub(crate) pipeline: PipelineMetrics,
    /// One for each pipeline, filled in from `pipeline` for one turn.
    #[serde(skip)]
    pub(crate) pipelines: Vec<PipelineMetrics>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PipelineMetrics {
    pub(crate) queue: Option<Selector>,
    pub(crate) held: Option<Selector>,
    /// Counter of items that it dropped as its configuration says.
    pub(crate) dropped: Option<Selector>,
}

fn default_path() -> String {
    "/metrics".to_owned()
}

/// Samples of one name that have these labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Selector {
    /// The selector as it is written, with variables.
    pub(crate) text: String,
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
}

/// Reads `name` or `name{label="value",…}`.
impl TryFrom<String> for Selector {
    type Error = String;

    fn try_from(text: String) -> Result<Selector, String> {
        // Variables are filled in before a turn.
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_:.@".contains(c);
        let is_name = |name: &str| !name.is_empty() && name.chars().all(is_part);
        let (name, inside) = text.split_once('{').unwrap_or((text.as_str(), "}"));
        let name = name.trim().to_owned();
        match parse_labels(inside) {
            Some((labels, ""))
                if is_name(&name) && labels.iter().all(|(label, _)| is_name(label)) =>
            {
                Ok(Selector { text, name, labels })
            }
            _ => Err(format!("`{text}` is no metric: write `name` or `name{{label=\"value\"}}`")),
        }
    }
}

impl Selector {
    /// The sum of the selected samples; `None`: there are none.
    pub(crate) fn read(&self, scrape: &Scrape) -> Option<f64> {
        let labels: Vec<_> =
            self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        scrape.sum(&self.name, &labels)
    }
}

impl Metrics {
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Selector> {
        let items = [&mut self.received, &mut self.queue, &mut self.held, &mut self.exported];
        let bytes = [&mut self.received_bytes, &mut self.exported_bytes, &mut self.buffer_bytes];
        let process = [&mut self.memory_bytes, &mut self.cpu_seconds, &mut self.uptime_s];
        items.into_iter().chain(bytes).chain(process).flatten()
    }
}

impl PipelineMetrics {
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Selector> {
        [&mut self.queue, &mut self.held, &mut self.dropped].into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_sums_what_has_its_name_and_labels() {
        let scrape = Scrape::parse(
            "q{exporter=\"otlp/0\",type=\"a\"} 3\nq{exporter=\"otlp/1\",type=\"a\"} 4\n",
        );
        let read = |text: &str| Selector::try_from(text.to_owned()).unwrap().read(&scrape);
        assert_eq!((read("q"), read("q{exporter=\"otlp/1\"}")), (Some(7.0), Some(4.0)));
        assert_eq!(
            (read("q{type=\"a\", exporter=\"otlp/0\"}"), read("q{type=\"b\"}")),
            (Some(3.0), None)
        );
    }

    #[test]
    fn what_is_no_selector_is_said() {
        for text in ["", "q{", "q{a}", "q{a=\"b\"", "q{a=\"b\"c=\"d\"}", "q r", "{a=\"b\"}"] {
            let error = Selector::try_from(text.to_owned()).unwrap_err();
            assert!(error.contains("is no metric"), "{text}");
        }
    }
}
