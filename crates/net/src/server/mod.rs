//! Serves HTTP/1.1 and HTTP/2, and other protocols on a stream, with a bound on everything that a
//! peer could make large or long.
//!
//! A [`Handler`] answers requests; everything about connections lives here: their number, how long
//! they live and idle, how fast headers and bodies must come, keepalive, TLS, and how they end.
//! hyper and h2 do the protocols. The bound on each of these:
//!
//! - many connections: [`ConnectionBudget`] for all ports, `max_connections` a port if it is set;
//!   the one whose last accepted request is longest ago makes room
//! - bursts of new connections: 8 for each core in a millisecond
//! - TLS or HTTP/2 handshake that never ends: `handshake_timeout`
//! - slow headers: `read_header_timeout` (HTTP/1), keepalive pings (HTTP/2: no ping is answered
//!   amid a header block)
//! - large or endless headers: 16 KiB; h2 bounds CONTINUATION frames by it; the memory for decoding
//!   an unfinished block is charged
//! - frames that never end: 16 KiB, up to 64 KiB while there are few connections
//! - slow bodies: [`BodyReader`]: a bound on each gap and on the whole; while memory is short, less
//!   than 1 KiB in 500 ms is too slow
//! - many streams: `max_concurrent_streams`, and less if there are many connections;
//!   [`ConnectionBudget`] is charged with their headers, and [`Handler::refuse_for_memory`] answers
//!   those for which it has no room
//! - trailers: 64 fields
//! - headers that are small until they are decoded: a byte of headers counts 64 times, and after
//!   256 KiB the bytes read are charged
//! - refusals whose bodies still come: unread bodies are drained beside the answer, 16 MiB and 5 s
//!   at most; the stream is charged meanwhile
//! - answers that are not read, or for which flow control has no room: `write_timeout`
//! - rapid reset: h2: 64 streams, then GOAWAY ENHANCE_YOUR_CALM
//! - unread data: stream and connection windows. Handlers leave none unread: each frame of it would
//!   keep the whole buffer that it came in
//! - more than the CPU can bear: [`ReadScheduler`]: connections are read from when earlier requests
//!   are done
//! - requests before the answers to earlier ones (HTTP/1): others have a turn before each of them
//! - peers that vanished: keepalive, of HTTP/2 or TCP

mod accept_pace;
mod activity;
mod answers;
mod body;
mod budget;
mod charges;
pub mod config;
mod connection;
mod cors;
mod counters;
mod datagrams;
mod header_blocks;
mod header_timer;
#[cfg(test)]
mod late_body_tests;
mod listener;
mod open;
mod options;
#[cfg(test)]
mod pipelined_tests;
mod scheduler;
mod serve;
mod shared_page;
mod stream;
mod transport;
mod windows;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response};
use tokio_util::sync::CancellationToken;

use crate::tls::ServerTls;

pub use answers::Answers;
pub use body::{BodyError, BodyReader, ReplyBody, RequestBody, reply};
pub use budget::{ConnectionBudget, FilesShare};
pub use cors::Cors;
pub use counters::ServerCounters;
pub use listener::{Address, BindError, Family, Listener, Listening};
pub use open::OpenConnections;
pub use options::{BodyTimeouts, Protocols, ServerOptions};
pub use scheduler::{ReadScheduler, Rule};
pub use serve::{serve, serve_streams};
pub use shared_page::{PACKED_FROM_BYTES, SharedPage, VERSIONS_MAX, reply_with_page, takes_gzip};
pub use stream::{Stream, StreamHandler, StreamRequest};

/// Resources that all ports of a process share.
#[derive(Clone)]
pub struct ServerResources {
    pub connections: Arc<OpenConnections>,
    pub scheduler: Arc<ReadScheduler>,
}

impl ServerResources {
    /// No bound but the ports' own.
    pub fn unlimited() -> Self {
        ServerResources {
            connections: OpenConnections::new(ConnectionBudget::unlimited()),
            scheduler: ReadScheduler::off(),
        }
    }
}

/// Settings and resources of a port.
pub struct Serving {
    pub options: ServerOptions,
    pub tls: Option<ServerTls>,
    pub counters: Arc<ServerCounters>,
    /// Shared with other ports.
    pub resources: ServerResources,
    /// Asks connections to go.
    pub shutdown: CancellationToken,
}

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// A handler's state for one connection, made once and passed to each of its requests.
    type Connection: Send + Sync + 'static;

    /// `peer`: its address, `None` over a Unix socket.
    fn connected(&self, peer: Option<SocketAddr>) -> Self::Connection;

    /// Answers one request. Dropped if the client goes away before the answer.
    fn handle(
        &self,
        connection: &Self::Connection,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response<ReplyBody>> + Send;

    /// Refuses a request for whose headers connections have no memory left. The answer asks the
    /// client to come back later.
    fn refuse_for_memory(&self, request: Request<RequestBody>) -> Response<ReplyBody>;
}
