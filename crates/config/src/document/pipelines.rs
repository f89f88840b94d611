//! `service.pipelines` and `service.extensions`.

use super::buffer::{self, PipelineBuffer};
use crate::catalog::PipelineSignal;
use crate::component_id::ComponentId;
use crate::diagnostics::Diagnostic;
use crate::fields::Fields;
use crate::nearest::nearest;
use crate::source::Span;

/// One pipeline, in the order in which data passes its processors.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// As the file writes it: `metrics/2`.
    pub id: String,
    pub signal: PipelineSignal,
    /// Receivers, and connectors that feed this pipeline.
    pub receivers: Vec<Reference>,
    pub processors: Vec<Reference>,
    /// Exporters, and connectors that this pipeline feeds.
    pub exporters: Vec<Reference>,
    pub buffer: PipelineBuffer,
    /// Where its id stands.
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
        let span = fields.span();
        let signal = read_signal(id, fields);
        signal.zip(span).map(|(signal, span)| Pipeline {
            id: id.to_owned(),
            signal,
            receivers,
            processors,
            exporters,
            buffer,
            span,
        })
    });
    if pipelines.is_empty() && !fields.has_error_at("pipelines") {
        fields.error_missing("pipelines");
    }
    pipelines.into_iter().filter_map(|(_, pipeline)| pipeline).collect()
}

pub(super) fn read_extensions(fields: &mut Fields<'_>) -> Vec<Reference> {
    read_references(fields, "extensions", "Ids of the extensions to start.")
}

fn read_signal(id: &str, fields: &mut Fields<'_>) -> Option<PipelineSignal> {
    if fields.is_describing() {
        return None;
    }
    let parsed = match ComponentId::parse(id) {
        Ok(parsed) => parsed,
        Err(why) => {
            fields.error(&format!("cannot be the id of a pipeline: {why}"));
            return None;
        }
    };
    let signal = PipelineSignal::from_name(parsed.kind());
    if signal.is_none() {
        let message = match parsed.kind() {
            "profiles" => "carries profiles, which Sluice does not have yet",
            _ => "must be called `traces`, `metrics` or `logs`, with `/name` if there are several",
        };
        let meant = nearest(parsed.kind(), PipelineSignal::ALL.map(PipelineSignal::as_str));
        match meant {
            Some(name) => fields.error_with_hint(message, &format!("did you mean `{name}`?")),
            None => fields.error(message),
        }
    }
    signal
}

/// A list of component ids without duplicates. As in the Collector, a duplicate processor is an
/// error: it would have to run twice.
fn read_references(fields: &mut Fields<'_>, key: &str, doc: &str) -> Vec<Reference> {
    let path = format!("{}.{key}", fields.path());
    let Some(node) = fields.node(key, "list of ids", doc) else { return Vec::new() };
    let Some(items) = node.as_list() else {
        if !node.is_null() {
            fields.error_at_with_hint(
                key,
                &format!("must be a list of ids, not {}", node.kind()),
                "write `[a, b]`, or one `- a` a line",
            );
        }
        return Vec::new();
    };
    let mut references: Vec<Reference> = Vec::new();
    for item in items {
        let Some(text) = item.as_scalar().and_then(|scalar| scalar.as_string()) else {
            fields.push(Diagnostic::error(
                item.span,
                format!("`{path}` must be a list of ids; this is {}", item.kind()),
            ));
            continue;
        };
        match ComponentId::parse(text) {
            Err(why) => fields.push(Diagnostic::error(
                item.span,
                format!("`{path}`: `{text}` is not a component id: {why}"),
            )),
            Ok(id) => match references.iter().find(|reference| reference.id == id) {
                Some(first) => {
                    let twice = format!("`{path}` names `{id}` twice");
                    let diagnostic = match key {
                        "receivers" | "exporters" => {
                            Diagnostic::warning(item.span, format!("{twice}: it counts once"))
                        }
                        _ => Diagnostic::error(item.span, twice),
                    };
                    fields.push(diagnostic.with_related(first.span, "first here"));
                }
                None => references.push(Reference { id, span: item.span }),
            },
        }
    }
    references
}
