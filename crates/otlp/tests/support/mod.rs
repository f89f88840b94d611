//! What the tests of the wire operations share: arbitrary OTLP requests in every legal wire form, and judges that know
//! only the official generated types and the schema.
//!
//! - [`generate::any_request`]: a signal and a request of it in an arbitrary wire form, the usual start of a property.
//! - [`generate::request`]: only what the generated types write; [`rewrite::rewrite`]: another wire form of it.
//! - [`decoded::assert_equivalent`] and [`decoded::unknown_fields`]: whether two encoded requests say the same.

// Every test binary compiles this module for itself and uses a part of it.
#![allow(dead_code, unreachable_pub)]

pub mod collector;
pub mod decoded;
pub mod generate;
pub mod logs;
pub mod metrics;
pub mod rewrite;
pub mod schema;
pub mod traces;
pub mod wire;
