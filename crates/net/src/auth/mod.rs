//! Authentication: who may send to us, and how we present ourselves to backends.

pub mod client;
pub mod oauth2;
pub mod server;
