use std::time::Duration;

/// What a port speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocols {
    /// HTTP/2 alone, with prior knowledge or ALPN: gRPC.
    Http2,
    /// HTTP/1.1 and HTTP/2, told apart by ALPN or by the first bytes.
    Http1AndHttp2,
}

impl Protocols {
    /// For the TLS handshake.
    pub const fn alpn(self) -> &'static [&'static [u8]] {
        match self {
            Protocols::Http2 => &[b"h2"],
            Protocols::Http1AndHttp2 => &[b"h2", b"http/1.1"],
        }
    }
}

/// The bounds of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    pub protocols: Protocols,
    /// Beside the bound on their memory. One more takes the place of the longest idle one, or is
    /// closed as soon as it is accepted.
    pub max_connections: usize,
    /// Of one connection.
    pub max_concurrent_streams: u32,
    /// Of one request: names, values and, in HTTP/2, 32 bytes a header.
    pub max_header_bytes: u32,
    /// For the TLS handshake and again for the HTTP/2 preface.
    pub handshake_timeout: Duration,
    /// HTTP/1: from the first byte of a request to the end of its headers.
    pub read_header_timeout: Duration,
    /// A connection whose peer takes no byte of its answers for so long is closed.
    pub write_timeout: Duration,
    /// What a peer may send of one body unread. Less, down to 64 KiB, if many connections share the
    /// budget.
    pub initial_stream_window_bytes: u32,
    /// What a peer may send of all its bodies together unread.
    pub initial_connection_window_bytes: u32,
    /// 16 KiB to 16 MiB.
    pub max_frame_bytes: u32,
    /// A ping after this long without a frame from the peer.
    pub keepalive_time: Duration,
    /// The connection is closed if the ping is not answered within this time.
    pub keepalive_timeout: Duration,
    /// A connection is asked to go (GOAWAY) at this age ± 10 %, so that clients behind a load
    /// balancer spread.
    pub max_connection_age: Option<Duration>,
    /// After it was asked to go, a connection is cut off. `None`: never.
    pub max_connection_age_grace: Option<Duration>,
    /// A connection without a request for this long is asked to go.
    pub max_connection_idle: Option<Duration>,
    /// Streams that a peer may have reset before they were looked at.
    pub max_pending_reset_streams: usize,
    /// At shutdown, what is in flight may take this long.
    pub drain_timeout: Duration,
}

impl ServerOptions {
    pub fn new(protocols: Protocols) -> Self {
        ServerOptions {
            protocols,
            max_connections: usize::MAX,
            max_concurrent_streams: 256,
            max_header_bytes: 16 << 10,
            handshake_timeout: Duration::from_secs(10),
            read_header_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(30),
            initial_stream_window_bytes: 512 << 10,
            initial_connection_window_bytes: 2 << 20,
            max_frame_bytes: 64 << 10,
            keepalive_time: Duration::from_secs(60),
            keepalive_timeout: Duration::from_secs(20),
            max_connection_age: None,
            max_connection_age_grace: None,
            max_connection_idle: None,
            max_pending_reset_streams: 64,
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// How slowly a body may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyTimeouts {
    /// Between two pieces of it.
    pub gap: Duration,
    /// From the first look at it to its end.
    pub total: Duration,
}

impl Default for BodyTimeouts {
    fn default() -> Self {
        BodyTimeouts { gap: Duration::from_secs(15), total: Duration::from_secs(60) }
    }
}
