//! The validated configuration: which components there are and how pipelines connect them.

mod buffer;
mod components;
mod connections;
mod pipelines;
mod telemetry;

pub use buffer::{Acknowledge, Buffer, DeadLetters, DiskBounds, OverflowPolicy, PipelineBuffer, Placed};
pub use components::Component;
pub use pipelines::{Pipeline, Reference};
pub use telemetry::{
    LogEncoding, LogLevel, LogSampling, MetricsLevel, OwnLogs, OwnMetrics, PrometheusReader, Telemetry,
};

use crate::catalog::{Catalog, Class};
use crate::component_id::ComponentId;
use crate::diagnostics::Diagnostics;
use crate::fields::{Fields, OptionDoc};
use crate::yaml::Node;
use components::Definitions;

/// A whole configuration.
#[derive(Clone, Debug)]
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
        let top = Fields::read("", root, root.span, diagnostics, TopLevel::read);
        let definitions = Definitions::read(root, catalog, diagnostics);
        connections::check_references(&top.pipelines, &top.started_extensions, &definitions, diagnostics);
        connections::check_connectors(&top.pipelines, &definitions, diagnostics);
        connections::warn_of_unused(&top.pipelines, &top.started_extensions, &definitions, diagnostics);
        let TopLevel { pipelines, started_extensions, telemetry, buffer } = top;
        let [receivers, processors, exporters, extensions, connectors] = definitions.into_components();
        Document {
            receivers,
            processors,
            exporters,
            extensions,
            connectors,
            pipelines,
            started_extensions,
            telemetry,
            buffer,
        }
    }

    /// All components of a class, in the file's order.
    pub fn components(&self, class: Class) -> &[Component] {
        match class {
            Class::Receiver => &self.receivers,
            Class::Processor => &self.processors,
            Class::Exporter => &self.exporters,
            Class::Extension => &self.extensions,
            Class::Connector => &self.connectors,
        }
    }

    /// The component with an id.
    pub fn component(&self, class: Class, id: &ComponentId) -> Option<&Component> {
        self.components(class).iter().find(|component| component.id == *id)
    }

    /// The options that belong to no component: `buffer`, `service` and what is under them.
    pub fn describe() -> Vec<OptionDoc> {
        Fields::describe(|fields| {
            TopLevel::read(fields);
        })
    }
}

/// The top level without the components.
struct TopLevel {
    pipelines: Vec<Pipeline>,
    started_extensions: Vec<Reference>,
    telemetry: Telemetry,
    buffer: Buffer,
}

impl TopLevel {
    fn read(fields: &mut Fields<'_>) -> TopLevel {
        for class in Class::ALL {
            let doc = format!("The {}s, each under its id `type` or `type/name`.", class.name());
            fields.node(class.key(), "map of sections", &doc);
        }
        let buffer =
            fields.section_or_default("buffer", "How telemetry is stored until it is delivered.", buffer::read);
        let mut top =
            fields.section_or_default("service", "The pipelines that run, and Sluice's own telemetry.", |fields| {
                TopLevel {
                    pipelines: pipelines::read(fields),
                    started_extensions: pipelines::read_extensions(fields),
                    telemetry: fields.section_or_default(
                        "telemetry",
                        "Sluice's own metrics and logs.",
                        telemetry::read,
                    ),
                    buffer: Buffer::default(),
                }
            });
        top.buffer = buffer;
        top
    }
}

#[cfg(test)]
mod tests;
