//! OTLP on its wire form: what can be known and changed of an encoded export request without decoding it into objects.

mod encoding;
mod signal;

pub use encoding::Encoding;
pub use signal::Signal;
