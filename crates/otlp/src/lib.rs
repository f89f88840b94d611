//! OTLP on its wire form: what can be known and changed of an encoded export request without decoding it into objects.

mod encoding;
mod scan;
mod schema;
mod signal;
mod split;
mod wire;

pub use encoding::Encoding;
pub use scan::{NESTING_LIMIT, Summary, scan};
pub use signal::Signal;
pub use split::{Part, SplitLimits, split};
pub use wire::Malformed;
