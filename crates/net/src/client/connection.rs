//! One HTTP/2 connection of a channel, and one request on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::future::BoxFuture;
use h2::client::SendRequest;
use h2::{Ping, PingPong};
use http::{HeaderMap, Request, StatusCode, Version};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::body::ChunkedBuf;
use super::connect::{BoxIo, PeerAddress};
use super::error::{Result, TransportError};

/// Flow-control windows: they bound the memory that a hostile peer can take. Answers are small.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
const HEADERS_LIMIT_BYTES: u32 = 32 * 1024;
/// The limit on an answer's body if the caller gives none. Longer ones are not read.
pub(crate) const ANSWER_LIMIT_BYTES: usize = 4 << 20;

/// After this many requests without a sign of the peer, ask whether the connection is alive.
const SILENT_REQUESTS_LIMIT: u32 = 3;
/// Time for the answer to that question.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// HTTP/2 pings that keep a connection open and notice a dead one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// From one ping to the next.
    pub time: Duration,
    /// The time for the answer to a ping.
    pub timeout: Duration,
    /// Ping also while no request is under way.
    pub permit_without_stream: bool,
}

/// Room for the body of an answer, asked for while it is read. An error ends the request.
pub trait Room: Send {
    /// The head of the answer is there: its body is read when the future ends, if there is one.
    fn open<'a>(
        &'a mut self,
        _status: StatusCode,
        _headers: &'a HeaderMap,
    ) -> Option<BoxFuture<'a, Result<()>>> {
        None
    }

    /// Before the body has this many bytes.
    fn grow(&mut self, bytes: usize) -> Result<()>;
}

/// A limit on the body's bytes.
impl Room for usize {
    fn grow(&mut self, bytes: usize) -> Result<()> {
        let limit_bytes = *self;
        if bytes > limit_bytes {
            return Err(TransportError::AnswerTooLarge { limit_bytes });
        }
        Ok(())
    }
}

/// The peer's answer, whatever it means.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
}

/// State that the driver of a connection shares with its requests. It identifies the connection and
/// its success, without keeping it open.
#[derive(Default)]
pub(crate) struct ConnectionState {
    in_flight: AtomicUsize,
    answers: AtomicU64,
    /// Requests given up (by their deadline) since the peer was last heard of.
    silent: AtomicU32,
    closed: AtomicBool,
    probe: Notify,
}

impl ConnectionState {
    /// True once the peer has answered anything: such a connection was worth having.
    pub(crate) fn was_useful(&self) -> bool {
        self.answers.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Pings as configured, and when requests go unanswered. Ends if the peer does not answer one.
    async fn watch(&self, mut pings: PingPong, keepalive: Option<Keepalive>) -> String {
        let is_busy = || self.in_flight.load(Ordering::Relaxed) > 0;
        let time = keepalive.map_or(Duration::MAX, |keepalive| keepalive.time);
        loop {
            let limit = tokio::select! {
                () = self.probe.notified() => PROBE_TIMEOUT,
                () = sleep(time) => match keepalive {
                    Some(keepalive) if keepalive.permit_without_stream || is_busy() => {
                        keepalive.timeout
                    }
                    _ => continue,
                },
            };
            match timeout(limit, pings.ping(Ping::opaque())).await {
                Ok(Ok(_)) => self.silent.store(0, Ordering::Relaxed),
                Ok(Err(error)) => return format!("the connection failed: {error}"),
                Err(_) => return format!("no answer to a ping within {limit:?}"),
            }
        }
    }
}

#[derive(Clone)]
pub(crate) struct Connection {
    sender: SendRequest<ChunkedBuf>,
    pub(crate) address: PeerAddress,
    pub(crate) state: Arc<ConnectionState>,
}

/// Drives a connection; must be polled (in a task) until it has ended, and then says why.
pub(crate) type Driver = BoxFuture<'static, String>;

impl Connection {
    pub(crate) async fn establish(
        io: BoxIo,
        address: PeerAddress,
        keepalive: Option<Keepalive>,
    ) -> Result<(Connection, Driver)> {
        let (sender, mut connection) = h2::client::Builder::new()
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(HEADERS_LIMIT_BYTES)
            .handshake(io)
            .await
            .map_err(|error| TransportError::from_h2(&error, &address))?;
        let pings = connection
            .ping_pong()
            .ok_or_else(|| TransportError::Lost { reason: "no ping handle".into() })?;
        let state = Arc::new(ConnectionState::default());
        let own = Connection { sender, address: address.clone(), state: state.clone() };
        let driver = async move {
            let reason = tokio::select! {
                result = connection => match result {
                    Ok(()) => "the peer closed the connection".to_owned(),
                    Err(error) => TransportError::from_h2(&error, &address).to_string(),
                },
                reason = state.watch(pings, keepalive) => reason,
            };
            state.closed.store(true, Ordering::Release);
            reason
        };
        Ok((own, Box::pin(driver)))
    }

    /// Sends the request and reads the whole answer. Dropping the future resets the stream
    /// (CANCEL).
    pub(crate) async fn send(
        &self,
        request: Request<ChunkedBuf>,
        room: &mut dyn Room,
    ) -> Result<Answer> {
        self.state.in_flight.fetch_add(1, Ordering::Relaxed);
        let mut guard = SilenceGuard { state: &self.state, given_up: true };
        let result = self.exchange(request, room).await;
        guard.given_up = false;
        if result.as_ref().err().is_none_or(TransportError::spares_connection) {
            self.state.silent.store(0, Ordering::Relaxed);
            self.state.answers.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    async fn exchange(&self, request: Request<ChunkedBuf>, room: &mut dyn Room) -> Result<Answer> {
        let (mut head, body) = request.into_parts();
        head.version = Version::HTTP_2;
        let (request, has_body) = (Request::from_parts(head, ()), body.has_remaining());

        let failed = |error: h2::Error| TransportError::from_h2(&error, &self.address);
        // A connection that goes away says so before anything is sent: the request is unprocessed.
        let unsent = |error: h2::Error| match failed(error) {
            error if error.is_configuration() => error,
            error => TransportError::GoingAway { reason: error.to_string() },
        };
        let mut sender = self.sender.clone().ready().await.map_err(unsent)?;
        let (response, mut stream) = sender.send_request(request, !has_body).map_err(unsent)?;
        drop(sender);
        // The chunks are shared and in memory already, so h2 may queue them all: flow control paces
        // the writing.
        if has_body {
            stream.send_data(body, true).map_err(failed)?;
        }

        let (head, mut incoming) = response.await.map_err(failed)?.into_parts();
        if let Some(opened) = room.open(head.status, &head.headers) {
            opened.await?;
        }
        let mut body = Bytes::new();
        while let Some(chunk) = incoming.data().await {
            let chunk = chunk.map_err(failed)?;
            incoming.flow_control().release_capacity(chunk.len()).map_err(failed)?;
            append(&mut body, chunk, room)?;
        }
        let trailers = incoming.trailers().await.map_err(failed)?;
        Ok(Answer { status: head.status, headers: head.headers, body, trailers })
    }
}

/// Adds a chunk to an answer's body. Nearly every answer is one small chunk: only a second one
/// makes us copy.
pub(crate) fn append(body: &mut Bytes, chunk: Bytes, room: &mut dyn Room) -> Result<()> {
    room.grow(body.len() + chunk.len())?;
    if body.is_empty() {
        *body = chunk;
    } else {
        // No copy of the bytes joined before: that buffer is only ours.
        let mut joined = BytesMut::from(std::mem::take(body));
        joined.extend_from_slice(&chunk);
        *body = joined.freeze();
    }
    Ok(())
}

/// A request in flight. It counts as silent if it is dropped before the peer was heard of.
struct SilenceGuard<'a> {
    state: &'a ConnectionState,
    given_up: bool,
}

impl Drop for SilenceGuard<'_> {
    fn drop(&mut self) {
        self.state.in_flight.fetch_sub(1, Ordering::Relaxed);
        if self.given_up
            && self.state.silent.fetch_add(1, Ordering::Relaxed) + 1 >= SILENT_REQUESTS_LIMIT
        {
            self.state.probe.notify_one();
        }
    }
}
