//! The forward protocol of Fluentd and Fluent Bit, version 1, as bytes: no I/O.
//!
//! Messages are MessagePack on a stream. Nothing here allocates by a peer's numbers; the caller
//! bounds a message's size, unpacks it, and bounds the nesting of records.

pub mod handshake;
pub mod message;
pub mod msgpack;
