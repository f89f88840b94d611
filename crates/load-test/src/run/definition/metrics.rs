//! What a subject's own metrics are called.

use serde::Deserialize;

use super::error::Problem;
use crate::scrape::Scrape;

/// Its Prometheus metrics, served at the address METRICS: as the description names them, or as they are read in one
/// turn. What has none is not known.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, bound(deserialize = "T: Deserialize<'de> + Default"))]
pub(crate) struct Metrics<T> {
    #[serde(default = "default_path")]
    pub(crate) path: String,
    /// Counter of items taken from senders.
    pub(crate) received: Option<T>,
    /// Gauge, in whatever unit.
    pub(crate) queue: Option<T>,
    /// Gauge of the items that wait for delivery: what it holds is not lost.
    pub(crate) held: Option<T>,
    /// Counter of items handed on, of all pipelines together.
    pub(crate) exported: Option<T>,
    /// What Fluent Bit counts in place of items.
    pub(crate) received_bytes: Option<T>,
    pub(crate) exported_bytes: Option<T>,
    pub(crate) buffer_bytes: Option<T>,
    /// Of its process, by its own word: read through a Prometheus only.
    pub(crate) memory_bytes: Option<T>,
    pub(crate) cpu_seconds: Option<T>,
    /// Begins again at 0 with every start.
    pub(crate) uptime_s: Option<T>,
    pub(crate) pipeline: PipelineMetrics<T>,
    /// One a pipeline, made of `pipeline`.
    #[serde(skip)]
    pub(crate) pipelines: Vec<PipelineMetrics<T>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, bound(deserialize = "T: Deserialize<'de> + Default"))]
pub(crate) struct PipelineMetrics<T> {
    pub(crate) received: Option<T>,
    pub(crate) exported: Option<T>,
    pub(crate) queue: Option<T>,
    pub(crate) held: Option<T>,
    /// Counter of items that it gave up as its configuration says.
    pub(crate) dropped: Option<T>,
}

pub(crate) type Selectors = Metrics<Selector>;

fn default_path() -> String {
    "/metrics".to_owned()
}

/// Samples of one name that have these labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
}

impl Metrics<String> {
    /// `select` makes a selector of a text, for one pipeline where an index is given; `path` fills in the variables
    /// of a path.
    pub(super) fn select<E>(
        &self,
        pipelines: usize,
        path: impl Fn(&str) -> Result<String, E>,
        select: impl Fn(&str, Option<usize>) -> Result<Selector, E>,
    ) -> Result<Selectors, E> {
        let one = |text: &Option<String>| text.as_ref().map(|text| select(text, None)).transpose();
        let of_pipeline = |index: usize| {
            let one = |text: &Option<String>| text.as_ref().map(|text| select(text, Some(index))).transpose();
            Ok(PipelineMetrics {
                received: one(&self.pipeline.received)?,
                exported: one(&self.pipeline.exported)?,
                queue: one(&self.pipeline.queue)?,
                held: one(&self.pipeline.held)?,
                dropped: one(&self.pipeline.dropped)?,
            })
        };
        Ok(Metrics {
            path: path(&self.path)?,
            received: one(&self.received)?,
            queue: one(&self.queue)?,
            held: one(&self.held)?,
            exported: one(&self.exported)?,
            received_bytes: one(&self.received_bytes)?,
            exported_bytes: one(&self.exported_bytes)?,
            buffer_bytes: one(&self.buffer_bytes)?,
            memory_bytes: one(&self.memory_bytes)?,
            cpu_seconds: one(&self.cpu_seconds)?,
            uptime_s: one(&self.uptime_s)?,
            pipeline: PipelineMetrics::default(),
            pipelines: (0..pipelines).map(of_pipeline).collect::<Result<_, E>>()?,
        })
    }
}

impl Selector {
    /// Reads `name` or `name{label="value",…}`.
    pub(super) fn parse(text: &str) -> Result<Selector, Problem> {
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
        let of_pipelines = self.pipelines.iter().flat_map(|one| [&one.queue, &one.held, &one.dropped]);
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
