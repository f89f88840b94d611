//! The validated configuration: which components there are and how pipelines connect them.

mod buffer;
mod components;
mod connections;
mod pipelines;
mod telemetry;

pub use buffer::{Acknowledge, Buffer, OverflowPolicy, PipelineBuffer, Placed};
pub use components::Component;
pub use pipelines::{Pipeline, Reference};
pub use telemetry::{
    LogProcessor, LogSampling, OwnLogs, OwnResource, PeriodicReader, PrometheusReader,
    PushProtocol, PushTarget, Telemetry, Temporality,
};

use crate::catalog::{Catalog, Class};
use crate::diagnostics::Diagnostics;
use crate::fields::{Fields, OptionDoc};
use crate::yaml::Node;
use components::Definitions;
use connections::Connections;

#[derive(Clone, Debug, Default)]
pub struct Document {
    pub receivers: Vec<Component>,
    pub processors: Vec<Component>,
    pub exporters: Vec<Component>,
    pub extensions: Vec<Component>,
    pub connectors: Vec<Component>,
    /// In the file's order.
    pub pipelines: Vec<Pipeline>,
    /// `service.extensions`: the extensions to start, in this order.
    pub started_extensions: Vec<Reference>,
    pub telemetry: Telemetry,
    pub buffer: Buffer,
}

impl Document {
    /// Reads and checks everything except the options of the components.
    pub fn read(root: &Node, catalog: &dyn Catalog, diagnostics: &mut Diagnostics) -> Document {
        let mut document = Fields::read("", root, root.span, diagnostics, read_all_but_components);
        let definitions = Definitions::read(root, catalog, diagnostics);
        let (pipelines, extensions) = (&document.pipelines, &document.started_extensions);
        Connections { pipelines, extensions, definitions: &definitions, diagnostics }.check();
        [
            document.receivers,
            document.processors,
            document.exporters,
            document.extensions,
            document.connectors,
        ] = definitions.into_components();
        document
    }

    /// The options that belong to no component: `buffer`, `service` and what is under them.
    pub fn describe() -> Vec<OptionDoc> {
        Fields::describe(read_all_but_components)
    }
}

fn read_all_but_components(fields: &mut Fields<'_>) -> Document {
    for class in Class::ALL {
        let doc = format!("The {}s, each under its id `type` or `type/name`.", class.name());
        fields.node(class.key(), "map of sections", &doc);
    }
    let mut document = Document::default();
    let doc = "Storage of telemetry until it is delivered.";
    document.buffer = fields.section_or_default("buffer", doc, buffer::read);
    let doc = "The pipelines that run, and Sluice's own telemetry.";
    fields.section_or_default("service", doc, |fields| {
        document.pipelines = pipelines::read(fields);
        let doc = "Ids of the extensions to start.";
        document.started_extensions = pipelines::read_references(fields, "extensions", doc);
        let doc = "Sluice's own metrics and logs.";
        document.telemetry = fields.section_or_default("telemetry", doc, telemetry::read);
    });
    document
}

#[cfg(test)]
mod tests;
