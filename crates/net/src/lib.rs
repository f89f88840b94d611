//! The network: HTTP/1.1, HTTP/2 and unary gRPC framing on both sides, TLS, compression,
//! authentication, limits.
//!
//! Nothing here knows what telemetry is beyond the three signal names; nothing here retries.

pub mod auth;
pub mod client;
pub mod compress;
pub mod forward;
pub mod grpc;
pub mod headers;
pub mod reload;
pub mod server;
mod text;
pub mod tls;
