//! What a subject's own metrics are called.

use serde::Deserialize;

use super::error::{DefinitionError, Place, Problem};
use crate::scrape::Scrape;

/// Selectors of its Prometheus metrics, served at the address METRICS. What has none is not known.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct MetricNames {
    path: String,
    /// Counter of items taken from senders.
    received: Option<String>,
    /// Gauge, in whatever unit.
    queue: Option<String>,
    /// Gauge of the items that wait for delivery: what it holds is not lost.
    held: Option<String>,
    /// Counter of items handed on, of all pipelines together.
    exported: Option<String>,
    received_bytes: Option<String>,
    exported_bytes: Option<String>,
    buffer_bytes: Option<String>,
    memory_bytes: Option<String>,
    cpu_seconds: Option<String>,
    uptime_s: Option<String>,
    pipeline: PipelineMetricNames,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PipelineMetricNames {
    received: Option<String>,
    exported: Option<String>,
    queue: Option<String>,
    held: Option<String>,
}

impl Default for MetricNames {
    fn default() -> Self {
        MetricNames {
            path: "/metrics".to_owned(),
            received: None,
            queue: None,
            held: None,
            exported: None,
            received_bytes: None,
            exported_bytes: None,
            buffer_bytes: None,
            memory_bytes: None,
            cpu_seconds: None,
            uptime_s: None,
            pipeline: PipelineMetricNames::default(),
        }
    }
}

/// Samples of one name that have these labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
}

/// What is read in one turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selectors {
    pub(crate) path: String,
    pub(crate) received: Option<Selector>,
    pub(crate) queue: Option<Selector>,
    pub(crate) held: Option<Selector>,
    /// Counter of items handed on, of all pipelines together.
    pub(crate) exported: Option<Selector>,
    /// What Fluent Bit counts in place of items.
    pub(crate) received_bytes: Option<Selector>,
    pub(crate) exported_bytes: Option<Selector>,
    pub(crate) buffer_bytes: Option<Selector>,
    /// Of its process, by its own word: read through a Prometheus only.
    pub(crate) memory_bytes: Option<Selector>,
    pub(crate) cpu_seconds: Option<Selector>,
    /// Begins again at 0 with every start.
    pub(crate) uptime_s: Option<Selector>,
    /// One a pipeline.
    pub(crate) pipelines: Vec<PipelineSelectors>,
}

#[derive(Clone, Debug, Default)]
#[allow(dead_code, reason = "some are for reading through a Prometheus alone")]
pub(crate) struct PipelineSelectors {
    pub(crate) received: Option<Selector>,
    pub(crate) exported: Option<Selector>,
    pub(crate) queue: Option<Selector>,
    pub(crate) held: Option<Selector>,
}

impl MetricNames {
    /// `fill` replaces variables, for one pipeline where an index is given.
    pub(super) fn select(
        &self,
        pipelines: usize,
        fill: impl Fn(&str, Option<usize>) -> Result<String, DefinitionError>,
        place: impl Fn(&str) -> Place,
    ) -> Result<Selectors, DefinitionError> {
        let one = |text: &Option<String>, index: Option<usize>| {
            let read = |text: &String| Selector::parse(&fill(text, index)?).map_err(|problem| problem.at(place(text)));
            text.as_ref().map(read).transpose()
        };
        let of_pipeline = |index: usize| {
            Ok(PipelineSelectors {
                received: one(&self.pipeline.received, Some(index))?,
                exported: one(&self.pipeline.exported, Some(index))?,
                queue: one(&self.pipeline.queue, Some(index))?,
                held: one(&self.pipeline.held, Some(index))?,
            })
        };
        Ok(Selectors {
            path: fill(&self.path, None)?,
            received: one(&self.received, None)?,
            queue: one(&self.queue, None)?,
            held: one(&self.held, None)?,
            exported: one(&self.exported, None)?,
            received_bytes: one(&self.received_bytes, None)?,
            exported_bytes: one(&self.exported_bytes, None)?,
            buffer_bytes: one(&self.buffer_bytes, None)?,
            memory_bytes: one(&self.memory_bytes, None)?,
            cpu_seconds: one(&self.cpu_seconds, None)?,
            uptime_s: one(&self.uptime_s, None)?,
            pipelines: (0..pipelines).map(of_pipeline).collect::<Result<_, DefinitionError>>()?,
        })
    }
}

impl Selector {
    /// Reads `name` or `name{label="value",…}`.
    fn parse(text: &str) -> Result<Selector, Problem> {
        let problem = || Problem::Metric(text.to_owned());
        let is_name = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.'))
        };
        let (name, rest) = text.split_once('{').unwrap_or((text, "}"));
        let mut rest = rest.strip_suffix('}').ok_or_else(problem)?;
        let mut labels = Vec::new();
        while !rest.is_empty() {
            let (label, after) = rest.split_once("=\"").ok_or_else(problem)?;
            let (value, after) = after.split_once('"').ok_or_else(problem)?;
            let label = label.trim_start_matches(',').trim();
            if !is_name(label) || !(after.is_empty() || after.starts_with(',')) {
                return Err(problem());
            }
            labels.push((label.to_owned(), value.to_owned()));
            rest = after;
        }
        if !is_name(name.trim()) {
            return Err(problem());
        }
        Ok(Selector { name: name.trim().to_owned(), labels })
    }

    /// The sum of what it selects; `None`: there is nothing.
    pub(crate) fn read(&self, scrape: &Scrape) -> Option<f64> {
        let labels: Vec<(&str, &str)> =
            self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        scrape.sum(&self.name, &labels)
    }
}

impl Selectors {
    /// The subject has nothing that is read from its own endpoint.
    pub(crate) fn is_empty(&self) -> bool {
        let own =
            [&self.received, &self.queue, &self.held, &self.received_bytes, &self.exported_bytes, &self.buffer_bytes];
        let of_pipelines = self.pipelines.iter().flat_map(|one| [&one.received, &one.exported, &one.queue, &one.held]);
        own.into_iter().chain(of_pipelines).all(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_sums_what_has_its_name_and_labels() {
        let scrape = Scrape::parse("q{exporter=\"otlp/0\",type=\"a\"} 3\nq{exporter=\"otlp/1\",type=\"a\"} 4\n");
        let read = |text: &str| Selector::parse(text).unwrap().read(&scrape);
        assert_eq!((read("q"), read("q{exporter=\"otlp/1\"}")), (Some(7.0), Some(4.0)));
        assert_eq!((read("q{type=\"a\", exporter=\"otlp/0\"}"), read("q{type=\"b\"}")), (Some(3.0), None));
    }

    #[test]
    fn what_is_no_selector_is_said() {
        for text in ["", "q{", "q{a}", "q{a=\"b\"", "q{a=\"b\"c=\"d\"}", "q r", "{a=\"b\"}"] {
            assert!(matches!(Selector::parse(text), Err(Problem::Metric(_))), "{text}");
        }
    }
}
