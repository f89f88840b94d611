//! YAML text to nodes with positions, with the scalar rules of Go's yaml.v3, as in the Collector.

mod build;
mod node;
mod scalar;

pub use build::parse;
pub(crate) use build::{DEPTH_LIMIT, Step, TEXT_LIMIT_BYTES};
pub use node::{EmptiedBy, Entry, Node, Scalar, ScalarValue, Value};
pub use scalar::resolve_plain;
