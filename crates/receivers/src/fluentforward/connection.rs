//! One connection: the handshake, then messages, which are read, admitted, submitted and
//! acknowledged one batch after the other.
//!
//! A message is admitted as soon as its length is known, which for packed events is at its first
//! bytes. Until it is admitted nothing more is read, so that the sender waits. Messages that have
//! arrived together are one request.
//!
//! The protocol has no refusal. A batch that is refused is not acknowledged, and the connection is
//! closed: the sender sends it again. A sender that asks for no acknowledgement has forgotten what
//! it sent; its messages are kept and tried again while the refusal is for the moment.

use std::mem::take;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sluice_flow::source::{ArrivedBody, Ingress, IngressRoute, Permit, Request};
use sluice_flow::{Metadata, Payload};
use sluice_net::forward::handshake::Server;
use sluice_net::forward::msgpack::Scanner;
use sluice_net::server::{BodyTimeouts, Stream, StreamHandler, StreamRequest};
use sluice_otlp::Signal;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout_at};

use super::config::{FluentForwardConfig, Security};
use super::counters::Counters;
use super::records::{Batch, Converted};
use super::refused::{Reason, Refused};

/// Read at a time, and without being admitted. A connection's price covers it.
const ROOM_BYTES: usize = 16 << 10;
/// A batch has at most this many messages.
const MESSAGES_MAX: usize = 4096;
/// Larger batches are converted beside the threads that serve connections.
const INLINE_BYTES: usize = 1 << 20;
/// The client's part of the handshake.
const PING_MAX_BYTES: usize = 8 << 10;
/// Interval of looks at a message's progress, the bytes of it in which a sender is not too slow,
/// and the part of an admitted message: all of it in ten seconds.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
const PROGRESS_LEAST_BYTES: usize = 1 << 10;
const PROGRESS_PART: usize = 20;

pub(super) struct Handler {
    /// The receiver's id.
    pub receiver: Arc<str>,
    pub ingress: Arc<dyn Ingress>,
    pub counters: Arc<Counters>,
    pub config: FluentForwardConfig,
    /// Bounds the batches that are converted at a time.
    pub turns: Arc<Semaphore>,
}

impl StreamHandler for Handler {
    async fn serve(&self, stream: Stream, peer: Option<SocketAddr>) {
        let metadata = Metadata { peer: peer.map(|peer| peer.to_string()), headers: Vec::new() };
        let metadata = Arc::new(metadata);
        let mut connection = Connection { handler: self, stream, metadata, buffer: Vec::new() };
        if let Err(refused) = connection.run().await {
            connection.count(&refused);
        }
        connection.stream.shut_down().await;
    }
}

struct Connection<'h> {
    handler: &'h Handler,
    stream: Stream,
    metadata: Arc<Metadata>,
    /// Bytes that are not submitted yet.
    buffer: Vec<u8>,
}

/// The messages at the beginning of the buffer.
#[derive(Default)]
struct Found {
    ends: Vec<usize>,
    /// Of the message that is not whole.
    scanner: Scanner,
}

impl Found {
    fn end(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    fn scan(&mut self, buffer: &[u8]) -> Result<(), Refused> {
        while self.ends.len() < MESSAGES_MAX
            && self.end() < buffer.len()
            && let Some(len) = self.scanner.scan(&buffer[self.end()..])?
        {
            self.ends.push(self.end() + len);
            self.scanner = Scanner::default();
        }
        Ok(())
    }
}

impl Connection<'_> {
    fn count(&self, refused: &Refused) {
        let Handler { counters, receiver, .. } = self.handler;
        counters.refuse(receiver, self.metadata.peer.as_deref(), refused);
    }

    async fn run(&mut self) -> Result<(), Refused> {
        if let Some(security) = &self.handler.config.security
            && !self.shake_hands(security).await?
        {
            return Ok(());
        }
        let mut closing = pin!(self.stream.closing());
        loop {
            if self.buffer.is_empty() {
                self.buffer.reserve_exact(ROOM_BYTES);
                let read = tokio::select! {
                    biased;
                    () = closing.as_mut() => return Ok(()),
                    read = self.stream.read(&mut self.buffer, ROOM_BYTES) => read,
                };
                if !matches!(read, Ok(1..)) {
                    return Ok(());
                }
            }
            let mut request = self.stream.begin();
            let result = self.serve_batch(&mut request).await;
            request.end(result.is_ok());
            result?;
        }
    }

    /// Whether the client goes on.
    async fn shake_hands(&mut self, security: &Security) -> Result<bool, Refused> {
        let failed = |error: std::io::Error| Refused::new(Reason::Failed, error.to_string());
        let server = Server::new(&security.secret, &security.users).map_err(failed)?;
        let deadline = Instant::now() + self.handler.config.server.handshake_timeout;
        if self.stream.write(&server.hello()).await.is_err() {
            return Ok(false);
        }
        let unauthenticated = |message: &str| Refused::new(Reason::Unauthenticated, message);
        let mut scanner = Scanner::default();
        let len = loop {
            if let Some(len) = scanner.scan(&self.buffer)? {
                break len;
            }
            let room = PING_MAX_BYTES.saturating_sub(self.buffer.len());
            if room == 0 || scanner.least_bytes() > PING_MAX_BYTES {
                return Err(unauthenticated("the client does not begin with a PING"));
            }
            self.buffer.reserve(room);
            match timeout_at(deadline, self.stream.read(&mut self.buffer, room)).await {
                Err(_) => {
                    return Err(unauthenticated("the client's part of the handshake is late"));
                }
                Ok(Ok(1..)) => {}
                // A heartbeat.
                Ok(_) if self.buffer.is_empty() => return Ok(false),
                Ok(_) => return Err(unauthenticated("the client gave the handshake up")),
            }
        };
        let rest = self.buffer.split_off(len);
        let ping = std::mem::replace(&mut self.buffer, rest);
        let answer = server.answer(&ping);
        let (pong, refused) = answer.map_err(|error| unauthenticated(&error.to_string()))?;
        if self.stream.write(&pong).await.is_err() && refused.is_none() {
            return Ok(false);
        }
        refused.map_or(Ok(true), |why| Err(unauthenticated(why)))
    }

    /// Serves the messages that have arrived: at least one, for whose end it waits.
    async fn serve_batch(&mut self, request: &mut StreamRequest) -> Result<(), Refused> {
        let Handler { ingress, counters, .. } = self.handler;
        let route = ingress.route(Signal::Logs).ok_or_else(|| {
            Refused::new(Reason::Unrouted, "no pipeline takes logs from this receiver")
        })?;
        let (found, permit) = self.read_message(&*route, request).await?;
        request.note_arrived();
        let len_bytes = found.end();
        let rest = self.buffer.split_off(len_bytes);
        let bytes = Bytes::from(std::mem::replace(&mut self.buffer, rest));
        let permit = match permit {
            Some(mut permit) => permit.grow_to(len_bytes).map(|()| permit)?,
            None => self.admit(&*route, request, len_bytes, true).await?,
        };
        let batch = Arc::new(Batch::new(bytes, found.ends)?);
        let is_kept = batch.is_kept_by_sender;
        let (converted, permit) = self.convert(&*route, request, batch, permit).await?;
        let items = converted.items;
        if items > 0 {
            let admitted = (permit, len_bytes);
            let submitted = self.submit(&route, request, &converted, admitted, is_kept).await;
            match submitted.map_err(|refused| Refused { items, ..refused }) {
                Ok(()) => {}
                // To close the connection would only cost its sender what comes next.
                Err(refused) if !is_kept => {
                    self.count(&refused);
                    return Ok(());
                }
                Err(refused) => return Err(refused),
            }
        }
        counters.count_accepted(&converted, len_bytes);
        if converted.chunks > 0 {
            let written = self.stream.write(&converted.acks).await;
            // Without an answer, the sender sends the chunks again.
            if written.is_err() {
                return Err(Refused::new(Reason::BrokenOff, "it takes no acknowledgement"));
            }
            counters.count_acknowledged(converted.chunks);
        }
        Ok(())
    }

    /// Reads until one message is whole. With a permit if it is longer than [`ROOM_BYTES`].
    async fn read_message(
        &mut self,
        route: &dyn IngressRoute,
        request: &mut StreamRequest,
    ) -> Result<(Found, Option<Permit>), Refused> {
        let limit_bytes = self.handler.config.limit_bytes;
        let (mut found, mut permit) = (Found::default(), None);
        let mut pace = Pace::new();
        loop {
            found.scan(&self.buffer)?;
            if !found.ends.is_empty() {
                return Ok((found, permit));
            }
            let needed = found.scanner.least_bytes();
            if needed > limit_bytes {
                return Err(Refused::too_large(limit_bytes));
            }
            match &mut permit {
                None if needed <= ROOM_BYTES && self.buffer.len() < ROOM_BYTES => {}
                None => {
                    permit = Some(self.admit(route, request, needed, false).await?);
                    pace = Pace::new();
                }
                Some(permit) if needed > permit.bytes() => {
                    let twice = needed.max(2 * permit.bytes()).min(limit_bytes);
                    permit.grow_to(twice).or_else(|_| permit.grow_to(needed))?;
                }
                Some(_) => {}
            }
            let missing = needed.saturating_sub(self.buffer.len()).max(1);
            let most = match permit {
                // At its end a connection reads no part of another message.
                _ if self.stream.is_closing() => missing,
                None => ROOM_BYTES - self.buffer.len(),
                Some(_) => missing.max(ROOM_BYTES),
            };
            self.buffer.reserve_exact(most);
            let came = self.read_in_time(most, &mut pace, permit.as_ref(), request).await?;
            request.note_came(came);
        }
    }

    /// At least one byte. A sender that is too slow is given up.
    async fn read_in_time(
        &mut self,
        most: usize,
        pace: &mut Pace,
        permit: Option<&Permit>,
        request: &mut StreamRequest,
    ) -> Result<usize, Refused> {
        loop {
            let until = pace.look_at.min(pace.gap_end).min(pace.deadline);
            match timeout_at(until, self.stream.read(&mut self.buffer, most)).await {
                Ok(Ok(came @ 1..)) => {
                    pace.came(came);
                    return Ok(came);
                }
                Ok(_) => {
                    return Err(Refused::new(Reason::BrokenOff, "the connection ended"));
                }
                Err(_) => pace.look(permit, request)?,
            }
        }
    }

    /// Memory for a message, once there is some. `is_whole`: all of it is in the buffer.
    async fn admit(
        &self,
        route: &dyn IngressRoute,
        request: &mut StreamRequest,
        bytes: usize,
        is_whole: bool,
    ) -> Result<Permit, Refused> {
        request.set_waiting(true);
        let permit = loop {
            let arrived = ArrivedBody::default();
            if is_whole && let Ok(permit) = Permit::take(self.handler.ingress.waiting(true), bytes)
            {
                arrived.set(permit);
            }
            match route.admit(bytes, &arrived).await.map_err(Refused::from) {
                Ok(permit) => break permit,
                Err(refused) => self.wait_after(refused).await?,
            }
        };
        request.set_waiting(false);
        Ok(permit)
    }

    /// Waits if the refusal is for the moment.
    async fn wait_after(&self, refused: Refused) -> Result<(), Refused> {
        let Some(delay) = refused.delay else { return Err(refused) };
        self.count(&refused);
        sleep(delay).await;
        Ok(())
    }

    /// Waits with a message that its sender does not keep. Refused if there is no memory for it.
    async fn wait_with(
        &self,
        request: &mut StreamRequest,
        bytes: usize,
        refused: Refused,
    ) -> Result<(), Refused> {
        let Ok(_kept) = Permit::take(self.handler.ingress.waiting(true), bytes) else {
            return Err(refused);
        };
        request.set_waiting(true);
        self.wait_after(refused).await
    }

    async fn convert(
        &self,
        route: &dyn IngressRoute,
        request: &mut StreamRequest,
        batch: Arc<Batch>,
        mut permit: Permit,
    ) -> Result<(Converted, Permit), Refused> {
        let limit_bytes = self.handler.config.limit_bytes;
        loop {
            let result = if batch.is_large(INLINE_BYTES) {
                let broken = |_| Refused::new(Reason::Failed, "the message was not converted");
                let turn = Arc::clone(&self.handler.turns).acquire_owned().await;
                let (_turn, batch) = (turn.ok(), Arc::clone(&batch));
                let converting = spawn_blocking(move || {
                    let _turn = _turn;
                    batch.convert(&mut permit, limit_bytes).map(|converted| (converted, permit))
                });
                converting.await.map_err(broken)?
            } else {
                batch.convert(&mut permit, limit_bytes).map(|converted| (converted, permit))
            };
            match result {
                Err(refused) if refused.delay.is_some() && !batch.is_kept_by_sender => {
                    self.wait_with(request, batch.bytes.len(), refused).await?;
                    permit = self.admit(route, request, batch.bytes.len(), true).await?;
                }
                result => return result,
            }
        }
    }

    /// Returns once the request is accepted.
    async fn submit(
        &self,
        route: &Arc<dyn IngressRoute>,
        request: &mut StreamRequest,
        converted: &Converted,
        (mut permit, mut admitted_bytes): (Permit, usize),
        is_kept: bool,
    ) -> Result<(), Refused> {
        loop {
            let payload = Payload::identity(converted.payload.clone());
            let submitted = Request {
                metadata: Arc::clone(&self.metadata),
                ..Request::new(payload, converted.items)
            };
            let has_grown = converted.payload.len() > admitted_bytes;
            // It was admitted as it came: the backlogs may have no room for what it became.
            let room = if has_grown { route.judge_again(&permit) } else { Ok(()) };
            let accepted = match room.and_then(|()| Arc::clone(route).submit(submitted, permit)) {
                Ok(receipt) => receipt.accepted().await,
                Err(refusal) => Err(refusal),
            };
            match accepted.map_err(Refused::from) {
                Ok(()) => return Ok(()),
                Err(refused) if refused.delay.is_some() && !is_kept => {
                    admitted_bytes = converted.payload.len();
                    self.wait_with(request, admitted_bytes, refused).await?;
                    permit = self.admit(&**route, request, admitted_bytes, true).await?;
                }
                Err(refused) => return Err(refused),
            }
        }
    }
}

/// The time that a message takes.
struct Pace {
    gap_end: Instant,
    deadline: Instant,
    look_at: Instant,
    /// Bytes that came since the last look, and since it last made progress.
    came_bytes: usize,
    since_progress_bytes: usize,
}

impl Pace {
    fn new() -> Self {
        let (now, timeouts) = (Instant::now(), BodyTimeouts::default());
        Pace {
            gap_end: now + timeouts.gap,
            deadline: now + timeouts.total,
            look_at: now + LOOK_INTERVAL,
            came_bytes: 0,
            since_progress_bytes: 0,
        }
    }

    fn came(&mut self, bytes: usize) {
        self.came_bytes += bytes;
        self.since_progress_bytes += bytes;
        self.gap_end = Instant::now() + BodyTimeouts::default().gap;
    }

    /// Nothing came for some time. A message that makes no progress has to go if others need its
    /// memory: to announce a length costs a sender nothing.
    fn look(
        &mut self,
        permit: Option<&Permit>,
        request: &mut StreamRequest,
    ) -> Result<(), Refused> {
        let now = Instant::now();
        if now >= self.gap_end || now >= self.deadline {
            return Err(Refused::new(Reason::TooSlow, "the rest of a message came too slowly"));
        }
        if now < self.look_at {
            return Ok(());
        }
        self.look_at = now + LOOK_INTERVAL;
        if let Some(permit) = permit {
            if self.since_progress_bytes > permit.bytes() / PROGRESS_PART {
                self.since_progress_bytes = 0;
            } else if let Some(refusal) = permit.asked_back() {
                return Err(refusal.into());
            }
        }
        let is_stalled = take(&mut self.came_bytes) < PROGRESS_LEAST_BYTES;
        if !request.set_stalled(is_stalled) {
            return Err(Refused::new(Reason::TooSlow, "the memory for connections is spent"));
        }
        Ok(())
    }
}
