//! Decisions without I/O: which request is admitted, which batch goes next, what an answer means.

pub mod dispatch;
pub mod export;
pub mod frame;
pub mod hop;
pub mod idle;
pub mod overload;
pub mod source;
pub mod taken_share;

pub use export::{BoxFuture, Exporter, Outcome, PackError, Packed};
pub use frame::{Frame, Metadata, Payload};
pub use source::Refusal;
pub use taken_share::TakenShare;
