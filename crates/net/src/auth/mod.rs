//! Authentication as its users see it: a server checks who may send, a client gets credentials.
//! Extensions implement both sides; receivers and exporters know only these traits.

pub mod client;
pub mod server;
