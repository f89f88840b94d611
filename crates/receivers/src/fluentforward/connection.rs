//! One connection: the handshake, then messages, which are read, admitted, submitted and
//! acknowledged one batch after the other.
//!
//! A message is admitted as soon as its length is known, which for packed events is at its first
//! bytes. Until it is admitted nothing more is read, so that the sender waits. Messages that have
//! arrived together are one request, or several if they are large.
//!
//! The protocol has no refusal. A message that is refused is not acknowledged, and the connection
//! is closed once those beside it are served: the sender sends it again. A sender that asks for no
//! acknowledgement has forgotten what it sent; its messages are kept and tried again while the
//! refusal is for the moment, in the memory for requests that wait.

use std::mem::replace;
use std::net::SocketAddr;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use sluice_flow::source::{ArrivedBody, Ingress, IngressRoute, Permit, Request};
use sluice_flow::{Metadata, Payload, Refusal};
use sluice_net::forward::handshake::Server;
use sluice_net::forward::msgpack::Scanner;
use sluice_net::server::{Stream, StreamHandler, StreamRequest};
use sluice_otlp::Signal;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout_at};

use super::batch::{Batch, Piece};
use super::config::{FluentForwardConfig, Security};
use super::counters::Counters;
use super::reading::ROOM_BYTES;
use super::refused::{Reason, Refused};
use crate::large_work::LargeWork;

/// Larger batches are converted beside the threads that serve connections.
const INLINE_BYTES: usize = 1 << 20;
/// The client's part of the handshake.
const PING_MAX_BYTES: usize = 8 << 10;
pub(super) struct Handler {
    /// The receiver's id.
    pub receiver: Arc<str>,
    pub ingress: Arc<dyn Ingress>,
    pub counters: Arc<Counters>,
    pub config: FluentForwardConfig,
    /// To convert large messages, and to submit large requests.
    pub large_work: LargeWork,
}

impl Handler {
    fn count(&self, metadata: &Metadata, refused: &Refused) {
        self.counters.refuse(&self.receiver, metadata.peer.as_deref(), refused);
    }
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

pub(super) struct Connection<'h> {
    pub handler: &'h Handler,
    pub stream: Stream,
    metadata: Arc<Metadata>,
    /// Bytes that are not submitted yet.
    pub buffer: Vec<u8>,
}

impl Connection<'_> {
    fn count(&self, refused: &Refused) {
        self.handler.count(&self.metadata, refused);
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
            request.end(matches!(result, Ok(true)));
            if !result? {
                return Ok(());
            }
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

    /// Serves the messages that have arrived: at least one, for whose end it waits. Whether the
    /// connection goes on.
    async fn serve_batch(&mut self, request: &mut StreamRequest) -> Result<bool, Refused> {
        let mut route = self.route()?;
        let (mut found, mut permit) = self.read_message(&mut route, request).await?;
        request.note_arrived();
        if let Some(permit) = &mut permit
            && permit.grow_to(found.end()).is_err()
        {
            // Those behind it wait if there is no memory for them beside it.
            found.ends.truncate(1);
            permit.grow_to(found.end())?;
        }
        let rest = self.buffer.split_off(found.end());
        let bytes = Bytes::from(replace(&mut self.buffer, rest));
        let batch = Batch::new(bytes, found.ends);
        let items = (!batch.is_kept_by_sender).then_some(0);
        let (handler, metadata) = (self.handler, self.metadata.clone());
        let mut unserved = Unserved { handler, metadata, items };
        let permit = match permit {
            Some(permit) => Ok(permit),
            None => self.admit(&mut route, request, batch.bytes.len(), true).await,
        };
        let served = match permit {
            Ok(permit) => self.serve_messages(route, request, batch, permit, &mut unserved).await,
            Err(refused) => Err(refused),
        };
        // A refusal is counted as such.
        unserved.items = None;
        served
    }

    /// As the pipelines are now: a reload may have removed those of before.
    fn route(&self) -> Result<Arc<dyn IngressRoute>, Refused> {
        let signal = Signal::Logs;
        self.handler.ingress.route(signal).ok_or_else(|| Refused::unrouted(signal))
    }

    /// Serves the messages piece by piece. The permit covers the batch.
    async fn serve_messages(
        &mut self,
        mut route: Arc<dyn IngressRoute>,
        request: &mut StreamRequest,
        batch: Batch,
        mut permit: Permit,
        unserved: &mut Unserved<'_>,
    ) -> Result<bool, Refused> {
        let (len, is_kept) = (batch.len(), batch.is_kept_by_sender);
        let (mut from, mut most, mut goes_on) = (0, len, true);
        let mut batch = Some(Arc::new(batch));
        while let Some(current) = batch.take().filter(|_| from < len) {
            let messages = from..len.min(from + most);
            let converted = self.convert(&mut route, request, &current, messages, permit).await?;
            let piece = converted.0;
            unserved.items = unserved.items.map(|_| piece.items);
            permit = converted.1;
            let own = permit.split_off(piece.payload.len() + piece.acks.len());
            let next = from + piece.len();
            if next < len || piece.messages > 1 {
                batch = Some(current);
            } else {
                // It will not be converted again.
                drop(current);
                permit.shrink_to(0);
            }
            let submitted = self.submit(&mut route, request, &piece, own, is_kept).await;
            unserved.items = unserved.items.map(|_| 0);
            match submitted {
                Ok(()) => self.acknowledge(&piece).await?,
                // One of them is at fault.
                Err(refused) if refused.delay.is_none() && piece.messages > 1 => {
                    most = piece.messages / 2;
                    continue;
                }
                Err(refused) => {
                    // To close the connection of others would only cost them what comes next.
                    goes_on &= piece.chunks == 0;
                    let is_for_the_moment = refused.delay.is_some();
                    self.count(&Refused { items: piece.items, ..refused });
                    if is_for_the_moment && is_kept {
                        return Ok(false);
                    }
                }
            }
            if let Some(refused) = &piece.refused {
                self.count(&refused.why);
                goes_on &= !refused.is_kept;
            }
            (from, most) = (next, most.saturating_mul(2).min(len));
        }
        Ok(goes_on)
    }

    async fn acknowledge(&mut self, piece: &Piece) -> Result<(), Refused> {
        let Handler { counters, .. } = self.handler;
        if piece.messages > 0 {
            counters.count_accepted(piece);
        }
        if piece.chunks > 0 {
            // Without an answer, the sender sends the chunks again.
            if self.stream.write(&piece.acks).await.is_err() {
                return Err(Refused::new(Reason::BrokenOff, "it takes no acknowledgement"));
            }
            counters.count_acknowledged(piece.chunks);
        }
        Ok(())
    }

    /// Memory for a message, once there is some. `is_whole`: all of it is in the buffer.
    pub(super) async fn admit(
        &self,
        route: &mut Arc<dyn IngressRoute>,
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
                Err(refused) => {
                    self.wait_after(refused).await?;
                    *route = self.route()?;
                }
            }
        };
        request.set_waiting(false);
        Ok(permit)
    }

    /// Waits if the refusal is for the moment, and the engine may still take something.
    async fn wait_after(&self, refused: Refused) -> Result<(), Refused> {
        let Some(delay) = refused.delay else { return Err(refused) };
        self.count(&refused);
        tokio::select! {
            () = sleep(delay) => Ok(()),
            () = self.handler.ingress.closed() => Err(cut_off()),
        }
    }

    /// Asks again for messages that their sender does not keep, once the refusal may be over. All
    /// the time they are in memory for requests that wait. Refused if there is none.
    async fn admit_again(
        &self,
        route: &mut Arc<dyn IngressRoute>,
        request: &mut StreamRequest,
        bytes: usize,
        refused: Refused,
    ) -> Result<Permit, Refused> {
        request.set_waiting(true);
        let admitted = self.admit_kept(route, bytes, refused).await;
        request.set_waiting(false);
        admitted
    }

    async fn admit_kept(
        &self,
        route: &mut Arc<dyn IngressRoute>,
        bytes: usize,
        mut refused: Refused,
    ) -> Result<Permit, Refused> {
        let arrived = ArrivedBody::default();
        loop {
            if !arrived.is_set() {
                match Permit::take(self.handler.ingress.waiting(true), bytes) {
                    Ok(kept) => arrived.set(kept),
                    Err(_) => return Err(refused),
                }
            }
            self.wait_after(refused).await?;
            *route = self.route()?;
            match route.admit(bytes, &arrived).await {
                Ok(permit) => return Ok(permit),
                Err(refusal) => refused = refusal.into(),
            }
        }
    }

    /// The next piece. The permit that comes back covers the batch, too.
    async fn convert(
        &self,
        route: &mut Arc<dyn IngressRoute>,
        request: &mut StreamRequest,
        batch: &Arc<Batch>,
        messages: Range<usize>,
        mut permit: Permit,
    ) -> Result<(Piece, Permit), Refused> {
        let limit_bytes = self.handler.config.limit_bytes;
        loop {
            let (batch, messages) = (Arc::clone(batch), messages.clone());
            let (is_kept, bytes) = (batch.is_kept_by_sender, batch.bytes.len());
            let is_large = batch.is_large(INLINE_BYTES);
            let convert = move || -> Result<(Piece, Permit), Refused> {
                let piece = batch.convert(messages, &mut permit, limit_bytes)?;
                Ok((piece, permit))
            };
            let converted = if is_large {
                let turn = self.handler.large_work.turn().await;
                let converting = spawn_blocking(move || {
                    let _turn = turn;
                    convert()
                });
                let broken = |_| Refused::new(Reason::Failed, "the message was not converted");
                converting.await.map_err(broken)?
            } else {
                convert()
            };
            match converted {
                Err(refused) if refused.delay.is_some() && !is_kept => {
                    permit = self.admit_again(route, request, bytes, refused).await?;
                }
                converted => return converted,
            }
        }
    }

    /// Returns once the request is accepted.
    async fn submit(
        &self,
        route: &mut Arc<dyn IngressRoute>,
        request: &mut StreamRequest,
        piece: &Piece,
        mut permit: Permit,
        is_kept: bool,
    ) -> Result<(), Refused> {
        if piece.items == 0 {
            return Ok(());
        }
        let (len_bytes, mut admitted_bytes) = (piece.payload.len(), piece.len_bytes);
        loop {
            let payload = Payload::identity(piece.payload.clone());
            let submitted = Request {
                metadata: Arc::clone(&self.metadata),
                ..Request::new(payload, piece.items)
            };
            let turn = self.handler.large_work.to_submit(len_bytes, piece.items as usize).await;
            // It was admitted as it came: the backlogs may have no room for what it became.
            let has_grown = len_bytes > admitted_bytes;
            let room = if has_grown { route.judge_again(&permit) } else { Ok(()) };
            let submitted = room.and_then(|()| Arc::clone(&*route).submit(submitted, permit));
            drop(turn);
            let accepted = match submitted {
                Ok(receipt) => receipt.accepted().await,
                Err(refusal) => Err(refusal),
            };
            // It is in the log or counted as dropped: only its sender may send it again.
            let is_unconfirmed = matches!(accepted, Err(Refusal::Unconfirmed { .. }));
            if is_unconfirmed && piece.chunks == 0 {
                return Ok(());
            }
            let may_repeat = !is_kept && !is_unconfirmed;
            match accepted.map_err(Refused::from) {
                Ok(()) => return Ok(()),
                Err(refused) if refused.delay.is_some() && may_repeat => {
                    admitted_bytes = len_bytes;
                    permit = self.admit_again(route, request, len_bytes, refused).await?;
                }
                Err(refused) => return Err(refused),
            }
        }
    }
}

/// Messages that their sender does not keep. If their connection ends before they got in, that is
/// counted.
struct Unserved<'h> {
    handler: &'h Handler,
    metadata: Arc<Metadata>,
    /// Of the piece that is on its way. None: nothing is lost.
    items: Option<u32>,
}

impl Drop for Unserved<'_> {
    fn drop(&mut self) {
        if let Some(items) = self.items {
            self.handler.count(&self.metadata, &Refused { items, ..cut_off() });
        }
    }
}

fn cut_off() -> Refused {
    Refused::new(Reason::CutOff, "messages were cut off while they waited")
}
