//! Authentication as its users see it: a server asks who may send, a client asks for credentials.
//! Extensions implement both sides; receivers and exporters know only these traits.

pub mod client;
pub mod server;
