//! `service.pipelines` and `service.extensions`.

use sluice_otlp::Signal;

use super::buffer::{self, PipelineBuffer};
use crate::component_id::ComponentId;
use crate::diagnostics::{Diagnostic, Severity};
use crate::fields::Fields;
use crate::nearest::did_you_mean;
use crate::source::Span;

/// One pipeline, in the order in which data passes its processors.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// As the file writes it: `metrics/2`.
    pub id: String,
    pub signal: Signal,
    /// Receivers, and connectors that feed this pipeline.
    pub receivers: Vec<Reference>,
    pub processors: Vec<Reference>,
    /// Exporters, and connectors that this pipeline feeds.
    pub exporters: Vec<Reference>,
    pub buffer: PipelineBuffer,
    /// The place of its id.
    pub span: Span,
}

/// The id of a component where it is used.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    pub id: ComponentId,
    pub span: Span,
}

pub(super) fn read(fields: &mut Fields<'_>) -> Vec<Pipeline> {
    let doc = "The pipelines, each under `traces`, `metrics` or `logs`, with `/name` if there are \
               several.";
    let pipelines = fields.named_sections("pipelines", doc, |id, fields| {
        let doc = "Ids of receivers, or of connectors to take data from. Required.";
        let receivers = read_references(fields, "receivers", doc);
        let doc = "Ids of processors, in the order in which they run.";
        let processors = read_references(fields, "processors", doc);
        let doc = "Ids of exporters, or of connectors to pass data to. Required.";
        let exporters = read_references(fields, "exporters", doc);
        let doc = "Settings of this pipeline that override the top-level `buffer`.";
        let buffer = fields.section_or_default("buffer", doc, buffer::read_for_pipeline);
        for (key, list) in [("receivers", &receivers), ("exporters", &exporters)] {
            if list.is_empty() && !fields.has_error_at(key) {
                fields.error(&format!("must have at least one of `{key}`"));
            }
        }
        let (id, signal, span) = (id.to_owned(), read_signal(id, fields)?, fields.span()?);
        Some(Pipeline { id, signal, receivers, processors, exporters, buffer, span })
    });
    if pipelines.is_empty() && !fields.has_error_at("pipelines") {
        fields.error_missing("pipelines");
    }
    pipelines.into_iter().flatten().collect()
}

fn read_signal(id: &str, fields: &mut Fields<'_>) -> Option<Signal> {
    if fields.is_describing() {
        return None;
    }
    let parsed = ComponentId::parse(id)
        .map_err(|why| fields.error(&format!("cannot be the id of a pipeline: {why}")))
        .ok()?;
    let signal = Signal::from_name(parsed.kind());
    if signal.is_none() {
        let message = match parsed.kind() {
            "profiles" => "carries profiles, which Sluice does not have yet",
            _ => "must be called `traces`, `metrics` or `logs`, with `/name` if there are several",
        };
        match did_you_mean(parsed.kind(), Signal::ALL.map(Signal::as_str)) {
            Some(hint) => fields.error_with_hint(message, &hint),
            None => fields.error(message),
        }
    }
    signal
}

/// A list of component ids without duplicates. As in the Collector, a duplicate processor is an
/// error: it would have to run twice.
pub(super) fn read_references(fields: &mut Fields<'_>, key: &str, doc: &str) -> Vec<Reference> {
    let path = fields.path_of(key);
    let Some(node) = fields.node(key, "list of ids", doc) else { return Vec::new() };
    if node.as_list().is_none() && !node.is_null() {
        let message = format!("must be a list of ids, not {}", node.kind());
        fields.error_at_with_hint(key, &message, "write `[a, b]`, or one `- a` a line");
    }
    let mut references: Vec<Reference> = Vec::new();
    for item in node.as_list().unwrap_or_default() {
        let span = item.span;
        let error = |message: String| Diagnostic::error(span, format!("`{path}`{message}"));
        let Some(text) = item.as_scalar().and_then(|scalar| scalar.as_string()) else {
            fields.push(error(format!(" must be a list of ids; this is {}", item.kind())));
            continue;
        };
        match ComponentId::parse(text) {
            Err(why) => fields.push(error(format!(": `{text}` is not a component id: {why}"))),
            Ok(id) => match references.iter().find(|reference| reference.id == id) {
                Some(first) => {
                    let diagnostic = match key {
                        "receivers" | "exporters" | "extensions" => Diagnostic {
                            severity: Severity::Warning,
                            ..error(format!(" names `{id}` twice: it counts once"))
                        },
                        _ => error(format!(" names `{id}` twice")),
                    };
                    fields.push(diagnostic.with_related(first.span, "first here"));
                }
                None => references.push(Reference { id, span }),
            },
        }
    }
    references
}
