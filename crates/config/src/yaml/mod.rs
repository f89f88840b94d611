//! YAML text → spanned nodes, with the scalar rules of Go's yaml.v3, which is what the Collector reads with.

mod build;
mod node;
mod scalar;

pub use build::{Limits, parse};
pub use node::{Entry, Node, Scalar, ScalarValue, Value};
pub use scalar::resolve_plain;
