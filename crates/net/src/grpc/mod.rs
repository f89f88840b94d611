//! Unary gRPC over HTTP/2: message framing, status and deadlines, as the protocol's specification
//! has them (grpc/grpc, doc/PROTOCOL-HTTP2.md).

pub mod client;
pub mod frame;
pub mod status;
pub mod timeout;

pub use frame::{FrameError, MessageReader};
pub use status::{Code, Status};
