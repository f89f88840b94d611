//! Clients of backends: `Channel` for gRPC (HTTP/2), `HttpClient` for OTLP over HTTP,
//! `ForwardClient` for the forward protocol.

mod body;
mod channel;
mod connect;
mod connection;
mod endpoint;
mod error;
mod forward;
mod http;
mod pool;
mod proxy;
mod resolve;
mod retry_after;
mod secrets;
mod slot;

pub use self::http::{HttpClient, HttpOptions};
pub use crate::headers::{client_headers, read_headers};
pub use body::ChunkedBuf;
pub use channel::{Balancer, Channel, ChannelOptions};
pub use connect::ConnectOptions;
pub use connection::{Answer, Keepalive, Room};
pub use endpoint::{Endpoint, EndpointError, Origin, Target, UrlError};
pub(crate) use error::peer_text;
pub use error::{Result, TransportError};
pub use forward::{ForwardClient, ForwardOptions, Progress};
pub use proxy::Proxy;
pub use resolve::{Resolve, ResolveFuture};
pub use retry_after::retry_after;
pub use secrets::Secrets;
