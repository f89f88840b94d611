//! The common part of the tests of wire operations: arbitrary OTLP requests in every legal wire
//! form, and judges that know only the official generated types and the table of OTLP's fields.
//!
//! - [`generate::any_request`]: a signal and a request of it in an arbitrary wire form, the usual
//!   start of a property.
//! - [`generate::request`]: only forms that the generated types write; [`rewrite::rewrite`]:
//!   another wire form of it.
//! - [`decoded::assert_equivalent`] and [`decoded::unknown_fields`]: whether two encoded requests
//!   mean the same.

// Every test binary compiles this module for itself and uses a part of it.
#![allow(dead_code, unreachable_pub)]

pub mod collector;
pub mod decoded;
pub mod generate;
pub mod logs;
pub mod metrics;
pub mod rewrite;
/// The table that the code under test follows, too: `tests/schema.rs` checks it against the
/// official types.
#[allow(unused_imports)]
#[path = "../../src/schema/mod.rs"]
pub mod schema;
pub mod traces;
pub mod wire;

use schema::{Field, Message};
use sluice_otlp::Signal;

/// The export request of a signal.
pub fn request(signal: Signal) -> &'static Message {
    match signal {
        Signal::Traces => &schema::TRACES_REQUEST,
        Signal::Metrics => &schema::METRICS_REQUEST,
        Signal::Logs => &schema::LOGS_REQUEST,
    }
}

pub fn field(message: &Message, number: u32) -> Option<&'static Field> {
    message.numbered(number).map(|index| &message.fields[index])
}
