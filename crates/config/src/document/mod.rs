//! The validated configuration.

use crate::catalog::PipelineSignal;
use crate::component_id::ComponentId;
use crate::source::Span;
use crate::yaml::Node;

/// A component that the file defines.
#[derive(Clone, Debug)]
pub struct Component {
    pub id: ComponentId,
    /// The canonical name of its kind: `otlp_http` where the file says `otlphttp`.
    pub kind: &'static str,
    /// Its options, to be read with [`crate::read_component`].
    pub node: Node,
    /// Where its id stands.
    pub span: Span,
    /// Its name in messages: `exporters.otlp/2`.
    pub path: String,
}

#[derive(Clone, Debug)]
pub struct Pipeline {
    /// As the file writes it: `metrics/2`.
    pub id: String,
    pub signal: PipelineSignal,
    pub receivers: Vec<ComponentId>,
    pub processors: Vec<ComponentId>,
    pub exporters: Vec<ComponentId>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct Document {
    pub pipelines: Vec<Pipeline>,
}
