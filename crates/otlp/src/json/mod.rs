//! OTLP/JSON ↔ protobuf, directly from one encoding to the other.
//!
//! OTLP/JSON is protobuf's JSON mapping with two deviations (opentelemetry-proto,
//! docs/specification.md, "JSON Protobuf Encoding"): trace and span ids are hexadecimal, enums are
//! integers. One table (`crate::schema`) drives both directions.
//!
//! Reading is as lenient as the Collector, since senders rely on it: original field names
//! (`trace_id`) besides lowerCamelCase, enum names, 64-bit integers as strings or numbers, unknown
//! fields ignored; `null` is absent; a member that occurs twice is read as two occurrences on the
//! wire are: the last scalar counts, messages and arrays add up. Writing leaves out default values,
//! as the Collector does; unlike the Collector it also leaves out absent messages (`"status":{}`),
//! so that absent stays absent. Fields that the schema does not know have no names and are dropped.
//!
//! Text that is not valid Unicode (bytes in JSON, surrogates in escapes, `string` fields on the
//! wire) is replaced by U+FFFD: JSON cannot express it, and protobuf must not.

mod binary;
mod error;
mod escape;
mod lexer;
mod number;
mod read;
mod write;

pub use error::{JsonError, JsonReason, ToJsonError};
pub use escape::unescape;
pub use read::from_json;
pub use write::to_json;
