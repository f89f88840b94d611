//! What a subject's own metrics are called.

use serde::Deserialize;

use crate::scrape::{Scrape, parse_labels};

/// Its Prometheus metrics, served at the address METRICS. What has none is not known.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Metrics {
    #[serde(default = "default_path")]
    pub(crate) path: String,
    /// Counter of items taken from senders.
    pub(crate) received: Option<Selector>,
    /// Gauge, in whatever unit.
    pub(crate) queue: Option<Selector>,
    /// Gauge of the items that wait for delivery: what it holds is not lost.
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
    pub(crate) pipeline: PipelineMetrics,
    /// One a pipeline, made of `pipeline` for one turn.
    #[serde(skip)]
    pub(crate) pipelines: Vec<PipelineMetrics>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PipelineMetrics {
    pub(crate) received: Option<Selector>,
    pub(crate) exported: Option<Selector>,
    pub(crate) queue: Option<Selector>,
    pub(crate) held: Option<Selector>,
    /// Counter of items that it gave up as its configuration says.
    pub(crate) dropped: Option<Selector>,
}

fn default_path() -> String {
    "/metrics".to_owned()
}

/// Samples of one name that have these labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Selector {
    /// As it is written, with variables.
    pub(crate) text: String,
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
}

impl TryFrom<String> for Selector {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Selector::parse(&text)
    }
}

impl Selector {
    /// Reads `name` or `name{label="value",…}`.
    pub(super) fn parse(text: &str) -> Result<Selector, String> {
        // Variables are filled in before a turn.
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_:.@".contains(c);
        let is_name = |name: &str| !name.is_empty() && name.chars().all(is_part);
        let (name, inside) = text.split_once('{').unwrap_or((text, "}"));
        let name = name.trim();
        match parse_labels(inside) {
            Some((labels, ""))
                if is_name(name) && labels.iter().all(|(label, _)| is_name(label)) =>
            {
                Ok(Selector { text: text.to_owned(), name: name.to_owned(), labels })
            }
            _ => Err(format!("`{text}` is no metric: write `name` or `name{{label=\"value\"}}`")),
        }
    }

    /// The sum of what it selects; `None`: there is nothing.
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

    /// The subject has nothing that is read from its own endpoint.
    pub(crate) fn is_empty(&self) -> bool {
        let items = [&self.received, &self.queue, &self.held];
        let bytes = [&self.received_bytes, &self.exported_bytes, &self.buffer_bytes];
        let pipelines = self.pipelines.iter().flat_map(|one| [&one.queue, &one.held, &one.dropped]);
        items.into_iter().chain(bytes).chain(pipelines).all(Option::is_none)
    }
}

impl PipelineMetrics {
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Selector> {
        let flow = [&mut self.received, &mut self.exported];
        let rest = [&mut self.queue, &mut self.held, &mut self.dropped];
        flow.into_iter().chain(rest).flatten()
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
        let read = |text: &str| Selector::parse(text).unwrap().read(&scrape);
        assert_eq!((read("q"), read("q{exporter=\"otlp/1\"}")), (Some(7.0), Some(4.0)));
        assert_eq!(
            (read("q{type=\"a\", exporter=\"otlp/0\"}"), read("q{type=\"b\"}")),
            (Some(3.0), None)
        );
    }

    #[test]
    fn what_is_no_selector_is_said() {
        for text in ["", "q{", "q{a}", "q{a=\"b\"", "q{a=\"b\"c=\"d\"}", "q r", "{a=\"b\"}"] {
            assert!(Selector::parse(text).unwrap_err().contains("is no metric"), "{text}");
        }
    }
}
