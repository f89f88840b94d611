//! One HTTP/2 connection of a channel, and one request on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{Ping, PingPong};
use http::{HeaderMap, Request, StatusCode};
use tokio::sync::Notify;

use super::body::ChunkedBuf;
use super::connect::{Address, BoxIo};
use super::error::TransportError;

/// Flow-control windows of what we receive. Answers are small; the windows bound what a hostile
/// peer can make us hold.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
const HEADERS_LIMIT_BYTES: u32 = 32 * 1024;
/// Of an answer's body. Longer ones are not read.
pub(crate) const ANSWER_LIMIT_BYTES: usize = 4 << 20;

/// So many requests in a row without any sign of the peer make us ask whether the connection is
/// still alive.
const SILENT_REQUESTS_LIMIT: u32 = 3;
/// Time for the answer to that question.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// HTTP/2 pings that keep a connection open and notice a dead one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Between two pings.
    pub time: Duration,
    /// For an answer to a ping.
    pub timeout: Duration,
    /// Ping also while no request is under way.
    pub permit_without_stream: bool,
}

/// What the peer answered, whatever it means.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
}

/// What the driver of a connection and its requests know of each other.
#[derive(Default)]
struct Shared {
    in_flight: AtomicUsize,
    answers: AtomicU64,
    /// Requests given up (by their deadline) since the peer was last heard of.
    silent: AtomicU32,
    closed: AtomicBool,
    probe: Notify,
}

/// Which connection it is, and how it fared, without keeping it open.
#[derive(Clone)]
pub(crate) struct ConnectionId(Arc<Shared>);

impl ConnectionId {
    /// True once the peer has answered anything: such a connection was worth having.
    pub(crate) fn was_useful(&self) -> bool {
        self.0.answers.load(Ordering::Relaxed) > 0
    }
}

impl PartialEq for ConnectionId {
    fn eq(&self, other: &ConnectionId) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[derive(Clone)]
pub(crate) struct Connection {
    sender: SendRequest<ChunkedBuf>,
    pub(crate) address: Address,
    shared: Arc<Shared>,
}

/// Drives the connection's I/O; must be polled (in a task) until it ends.
pub(crate) struct Driver {
    connection: h2::client::Connection<BoxIo, ChunkedBuf>,
    pings: PingPong,
    keepalive: Option<Keepalive>,
    address: Address,
    shared: Arc<Shared>,
}

impl Connection {
    pub(crate) async fn establish(
        io: BoxIo,
        address: Address,
        keepalive: Option<Keepalive>,
    ) -> Result<(Connection, Driver), TransportError> {
        let (sender, mut connection) = h2::client::Builder::new()
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(HEADERS_LIMIT_BYTES)
            .handshake(io)
            .await
            .map_err(|error| TransportError::from_h2(&error, &address.to_string()))?;
        let shared = Arc::new(Shared::default());
        let pings = connection
            .ping_pong()
            .ok_or_else(|| TransportError::Lost { reason: "no ping handle".into() })?;
        let driver = Driver {
            connection,
            pings,
            keepalive,
            address: address.clone(),
            shared: shared.clone(),
        };
        Ok((Connection { sender, address, shared }, driver))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }

    pub(crate) fn id(&self) -> ConnectionId {
        ConnectionId(self.shared.clone())
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.shared.in_flight.load(Ordering::Relaxed)
    }

    /// Sends the request and reads the whole answer. Dropping the future resets the stream
    /// (CANCEL).
    pub(crate) async fn send(
        &self,
        request: Request<()>,
        body: ChunkedBuf,
    ) -> Result<Answer, TransportError> {
        let mut silence = SilenceGuard::new(&self.shared);
        let result = self.exchange(request, body).await;
        match &result {
            Err(error) if !error.spares_connection() => silence.ended(),
            _ => silence.heard(),
        }
        result
    }

    async fn exchange(
        &self,
        request: Request<()>,
        body: ChunkedBuf,
    ) -> Result<Answer, TransportError> {
        let failed = |error: h2::Error| TransportError::from_h2(&error, &self.address.to_string());
        // A connection that is going away says so here, before anything was sent: the request is
        // unprocessed.
        let unsent = |error: h2::Error| match failed(error) {
            error if error.is_configuration() => error,
            error => TransportError::GoingAway { reason: error.to_string() },
        };
        let mut sender = self.sender.clone().ready().await.map_err(unsent)?;
        let (response, mut stream) = sender.send_request(request, false).map_err(unsent)?;
        drop(sender);
        // The chunks are shared and in memory already, so h2 may queue them all: flow control paces
        // the writing.
        stream.send_data(body, true).map_err(failed)?;
        let answer = read_answer(response).await;
        drop(stream);
        answer.map_err(|error| match error {
            ReadError::H2(error) => failed(error),
            ReadError::TooLarge => {
                TransportError::AnswerTooLarge { limit_bytes: ANSWER_LIMIT_BYTES }
            }
        })
    }
}

enum ReadError {
    H2(h2::Error),
    TooLarge,
}

impl From<h2::Error> for ReadError {
    fn from(error: h2::Error) -> ReadError {
        ReadError::H2(error)
    }
}

async fn read_answer(response: ResponseFuture) -> Result<Answer, ReadError> {
    let (head, mut stream) = response.await?.into_parts();
    let mut body = Bytes::new();
    let mut joined: Option<BytesMut> = None;
    while let Some(chunk) = stream.data().await {
        let chunk = chunk?;
        let held = joined.as_ref().map_or(body.len(), BytesMut::len);
        if held + chunk.len() > ANSWER_LIMIT_BYTES {
            return Err(ReadError::TooLarge);
        }
        stream.flow_control().release_capacity(chunk.len())?;
        // Nearly every answer is one small chunk: only a second one makes us copy.
        match (&mut joined, body.is_empty()) {
            (Some(joined), _) => joined.extend_from_slice(&chunk),
            (None, true) => body = chunk,
            (None, false) => joined = Some(BytesMut::from_iter(body.iter().chain(&chunk))),
        }
    }
    let trailers = stream.trailers().await?;
    let body = joined.map_or(body, BytesMut::freeze);
    Ok(Answer { status: head.status, headers: head.headers, body, trailers })
}

/// Counts a request as in flight, and as silent if it is dropped before the peer was heard of.
struct SilenceGuard<'a> {
    shared: &'a Shared,
    given_up: bool,
}

impl<'a> SilenceGuard<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.in_flight.fetch_add(1, Ordering::Relaxed);
        SilenceGuard { shared, given_up: true }
    }

    fn heard(&mut self) {
        self.given_up = false;
        self.shared.silent.store(0, Ordering::Relaxed);
        self.shared.answers.fetch_add(1, Ordering::Relaxed);
    }

    fn ended(&mut self) {
        self.given_up = false;
    }
}

impl Drop for SilenceGuard<'_> {
    fn drop(&mut self) {
        self.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
        if self.given_up
            && self.shared.silent.fetch_add(1, Ordering::Relaxed) + 1 >= SILENT_REQUESTS_LIMIT
        {
            self.shared.probe.notify_one();
        }
    }
}

impl Driver {
    /// Until the connection has ended: why it did.
    pub(crate) async fn run(self) -> String {
        let Driver { connection, pings, keepalive, address, shared } = self;
        let reason = tokio::select! {
            result = connection => match result {
                Ok(()) => "the peer closed the connection".to_owned(),
                Err(error) => TransportError::from_h2(&error, &address.to_string()).to_string(),
            },
            reason = watch(pings, keepalive, &shared) => reason,
        };
        shared.closed.store(true, Ordering::Release);
        reason
    }
}

/// Pings as configured, and whenever requests go unanswered. Ends when the peer does not answer a
/// ping.
async fn watch(mut pings: PingPong, keepalive: Option<Keepalive>, shared: &Shared) -> String {
    let time = keepalive.map_or(Duration::MAX, |keepalive| keepalive.time);
    loop {
        let timeout = tokio::select! {
            () = shared.probe.notified() => PROBE_TIMEOUT,
            () = sleep(time) => match keepalive {
                Some(keepalive)
                    if keepalive.permit_without_stream
                        || shared.in_flight.load(Ordering::Relaxed) > 0 =>
                {
                    keepalive.timeout
                }
                _ => continue,
            },
        };
        match tokio::time::timeout(timeout, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => shared.silent.store(0, Ordering::Relaxed),
            Ok(Err(error)) => return format!("the connection failed: {error}"),
            Err(_) => return format!("no answer to a ping within {timeout:?}"),
        }
    }
}

async fn sleep(time: Duration) {
    if time == Duration::MAX {
        std::future::pending().await
    } else {
        tokio::time::sleep(time).await
    }
}
