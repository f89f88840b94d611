//! The network: HTTP/1.1, HTTP/2 and unary gRPC framing on both sides, TLS, compression,
//! authentication, limits.
//!
//! Nothing here knows what telemetry is beyond the three signal names; nothing here retries.
//!
//! In reading order:
//!
//! - `server`: listeners and connections, with a bound on all that a peer could make large or long.
//!   `server/scheduler` decides which connections are read from.
//! - `client`: connections to backends, for gRPC, HTTP and the forward protocol.
//! - `grpc`: framing, status and deadlines of unary gRPC, for both sides.
//! - `forward`: the forward protocol of Fluentd and Fluent Bit as bytes, for both sides.
//! - `dns`: records of name servers that the system's resolver does not give.
//! - `compress`: packing, and unpacking up to a limit.
//! - `tls`: the Collector's options for TLS, for both sides.
//! - `reload`: values that are built again when the files that they come from change.
//! - `auth`: the traits by which extensions authenticate clients and give credentials.
//! - `headers`: headers that may have only one value, and those that the configuration adds.
//! - `text`: texts of peers, before they land in errors, headers and logs.

pub mod auth;
pub mod client;
pub mod compress;
pub mod dns;
pub mod forward;
pub mod grpc;
pub mod headers;
pub mod reload;
pub mod server;
mod text;
pub mod tls;
