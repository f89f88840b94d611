//! Generators that are cheaper than what they test: a request is encoded once, then stamped in place and sent.

mod answer;
mod grpc;
mod http;
mod load;
mod packed;
mod report;
mod retry;
pub(crate) mod template;
mod worker;

pub use answer::Ending;
pub use load::{Load, LoadError, Pace, Protocol, RunningLoad};
pub use report::{LoadReport, Progress};
pub use retry::Retry;
pub use template::Shape;
