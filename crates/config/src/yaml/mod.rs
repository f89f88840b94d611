//! YAML text to nodes with positions, with the scalar rules of Go's yaml.v3, which the Collector
//! uses.

mod build;
mod node;
mod scalar;

pub use build::{Limits, parse};
pub use node::{Entry, Node, Scalar, ScalarValue, Value};
pub use scalar::resolve_plain;
