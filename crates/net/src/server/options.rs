use std::time::Duration;

use super::open::EVICTED_AFTER_IDLE;

/// The protocols of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocols {
    /// HTTP/2 alone, with prior knowledge or ALPN: gRPC.
    Http2,
    Http1,
    /// HTTP/1.1 and HTTP/2, told apart by ALPN or by the first bytes.
    Http1AndHttp2,
    /// Another one, which a [`super::StreamHandler`] speaks.
    Other,
}

impl Protocols {
    /// For the TLS handshake.
    pub const fn alpn(self) -> &'static [&'static [u8]] {
        match self {
            Protocols::Http2 => &[b"h2"],
            Protocols::Http1 => &[b"http/1.1"],
            Protocols::Http1AndHttp2 => &[b"h2", b"http/1.1"],
            Protocols::Other => &[],
        }
    }
}

/// The bounds of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    pub protocols: Protocols,
    /// Applies beside the bound on their memory. One more takes the place of the longest idle one,
    /// or is closed as soon as it is accepted.
    pub max_connections: usize,
    /// A connection makes room only if no request was accepted for this long, and may take as long
    /// again to close.
    pub evicted_after: Duration,
    /// The advice in a warning that connections had to make room.
    pub if_crowded: &'static str,
    /// Of one connection. Fewer, down to 16, if many connections share the budget.
    pub max_concurrent_streams: u32,
    /// For the TLS handshake and again for the HTTP/2 preface.
    pub handshake_timeout: Duration,
    /// HTTP/1: from the first byte of a request to the end of its headers.
    pub read_header_timeout: Duration,
    /// A connection whose peer takes no byte of its answers for this long is closed.
    pub write_timeout: Duration,
    /// A ping after this long without a frame from the peer.
    pub keepalive_time: Duration,
    /// The connection is closed if the ping is not answered within this time.
    pub keepalive_timeout: Duration,
    /// A connection is asked to go (GOAWAY) at this age ± 10 %, so that clients behind a load
    /// balancer spread.
    pub max_connection_age: Option<Duration>,
    /// A connection is cut off this long after it was asked to go. `None`: never.
    pub max_connection_age_grace: Option<Duration>,
    /// A connection without a request for this long is asked to go.
    pub max_connection_idle: Option<Duration>,
    /// At shutdown, requests in flight may take this long.
    pub drain_timeout: Duration,
}

impl ServerOptions {
    pub fn new(protocols: Protocols) -> Self {
        ServerOptions {
            protocols,
            max_connections: usize::MAX,
            evicted_after: EVICTED_AFTER_IDLE,
            if_crowded: "raise the memory limit, or `max_connections` if it is set",
            max_concurrent_streams: 256,
            handshake_timeout: Duration::from_secs(10),
            read_header_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(30),
            keepalive_time: Duration::from_secs(60),
            keepalive_timeout: Duration::from_secs(20),
            max_connection_age: None,
            max_connection_age_grace: None,
            max_connection_idle: None,
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// Time limits on a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyTimeouts {
    /// The longest pause between two pieces of it.
    pub gap: Duration,
    /// The longest time from the first look at it to its end.
    pub total: Duration,
}

impl Default for BodyTimeouts {
    fn default() -> Self {
        BodyTimeouts { gap: Duration::from_secs(15), total: Duration::from_secs(60) }
    }
}
