//! One connection: what comes within a moment is read, cut into messages, and submitted as one
//! request; then the next. Meanwhile nothing is read, so that the sender waits.
//!
//! Up to [`ROOM_BYTES`] are read without being admitted: a connection's price covers them. More is
//! read only with memory for it, and for the records that are made of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluice_flow::Metadata;
use sluice_flow::source::Permit;
use sluice_net::server::{BodyTimeouts, Stream, StreamHandler, StreamRequest};
use sluice_tail::End;
use tokio::time::{Instant, sleep, timeout_at};

use super::attributes::{Attributes, Names};
use super::config::TcpConfig;
use super::cutter::Cutter;
use super::intake::Intake;
use super::records::Batch;
use super::refused::{Reason, Refused};

/// Read at a time, and without being admitted.
const ROOM_BYTES: usize = 16 << 10;
/// The most that is read for one request, unless a message is longer.
const WINDOW_MAX_BYTES: usize = 256 << 10;
/// Memory of a window, of the records in it and of their request, by the bytes of the window.
const GROWTH: usize = 3;
/// Memory for a few records beside that.
const LEAST_BYTES: usize = 8 << 10;
/// Records of a request.
const RECORDS_MAX: usize = 8192;
/// Messages that come within this time are one request.
const LINGER: Duration = Duration::from_millis(100);
/// A wait without end.
const LONG: Duration = Duration::from_secs(30 * 24 * 3600);
/// Interval of looks at the memory that is kept for the rest of a message.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// In the time of one request, the bytes of a message with which it makes progress.
const PROGRESS_LEAST_BYTES: usize = 1 << 10;
/// Memory for a longer message is tried for, at most and at intervals.
const WIDEN_TIMEOUT: Duration = Duration::from_secs(5);
const WIDEN_PAUSE: Duration = Duration::from_millis(50);
/// While a connection ends, it is read from until nothing comes for the first of these, and no
/// longer than the second.
const LAST_GAP: Duration = Duration::from_millis(20);
const LAST_READS: Duration = Duration::from_millis(700);

pub(super) struct Handler {
    pub intake: Arc<Intake>,
    pub config: TcpConfig,
    /// Of all records.
    pub attributes: Attributes,
    pub names: Arc<Names>,
    /// Numbers the connections.
    pub streams: AtomicU64,
}

impl StreamHandler for Handler {
    async fn serve(&self, stream: Stream, peer: Option<SocketAddr>) {
        let mut attributes = self.attributes.clone();
        if self.config.adds_attributes {
            self.names.set(&mut attributes, "IP.TCP", peer, stream.local_address());
        }
        let metadata = Metadata { peer: peer.map(|peer| peer.to_string()), headers: Vec::new() };
        let mut connection = Connection {
            handler: self,
            stream,
            attributes,
            metadata: Arc::new(metadata),
            number: self.streams.fetch_add(1, Ordering::Relaxed),
            cutter: self.config.cutter.clone(),
            buffer: Vec::new(),
            is_within: false,
            permit: None,
            window_bytes: 2 * ROOM_BYTES,
            last_reads: None,
        };
        if let Err(refused) = connection.run().await {
            // The rest cannot be cut, and is lost.
            let items = u32::from(!connection.buffer.is_empty());
            connection.buffer.clear();
            connection.refuse(&Refused { items, ..refused });
        }
        connection.stream.shut_down().await;
    }
}

struct Connection<'h> {
    handler: &'h Handler,
    stream: Stream,
    attributes: Attributes,
    metadata: Arc<Metadata>,
    number: u64,
    cutter: Cutter,
    /// Bytes that are in no request yet.
    buffer: Vec<u8>,
    /// They begin within a message whose rest is left out.
    is_within: bool,
    /// Memory for them, if they are more than the connection's price covers.
    permit: Option<Permit>,
    window_bytes: usize,
    /// Until when it is read from, while it ends.
    last_reads: Option<Instant>,
}

/// Why nothing more is read for now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gathered {
    /// The time for one request is over.
    Due,
    /// There is no room without more memory.
    Full,
    /// Nothing more will come.
    Ended,
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        if !self.buffer.is_empty() {
            let message = format!("{} bytes were cut off on their way", self.buffer.len());
            self.refuse(&Refused { items: 1, ..Refused::new(Reason::CutOff, message) });
        }
    }
}

impl Connection<'_> {
    fn refuse(&self, refused: &Refused) {
        self.handler.intake.refuse(self.metadata.peer.as_deref(), refused);
    }

    async fn run(&mut self) -> Result<(), Refused> {
        let mut before = 0;
        while let Some(until) = self.wait().await? {
            let mut gathered = self.gather(until).await;
            let mut request = self.stream.begin();
            if gathered == Gathered::Full && self.permit.is_none() {
                let least = (2 * self.buffer.len()).min(self.cutter.window_bytes());
                let window_bytes = self.window_bytes.max(least);
                let has_rest = self.buffer.len() > ROOM_BYTES;
                self.permit =
                    Some(self.admit(GROWTH * window_bytes, has_rest, &mut request).await?);
                gathered = self.gather(until).await;
            }
            request.note_came(self.buffer.len());
            request.note_arrived();
            let end = match gathered {
                Gathered::Full => End::Open,
                Gathered::Due => self.cutter.at_pause(),
                Gathered::Ended => End::Flush,
            };
            let has_cut = self.submit(end, &mut request).await?;
            match gathered {
                Gathered::Full if !has_cut => self.widen().await?,
                Gathered::Due if !has_cut => self.check_progress(before).await?,
                _ => {}
            }
            before = self.buffer.len();
            self.window_bytes = match gathered {
                Gathered::Full => (2 * self.window_bytes).min(WINDOW_MAX_BYTES),
                _ => 2 * ROOM_BYTES,
            };
            request.end(has_cut);
            if gathered == Gathered::Ended {
                return Ok(());
            }
        }
        let mut request = self.stream.begin();
        self.submit(End::Flush, &mut request).await?;
        request.end(true);
        Ok(())
    }

    /// Bytes that the buffer may have with the memory that there is.
    fn room_bytes(&self) -> usize {
        self.permit.as_ref().map_or(ROOM_BYTES, |permit| (permit.bytes() / GROWTH).max(ROOM_BYTES))
    }

    /// Waits until something comes, and says until when more of it is waited for. `None`: nothing
    /// more will come.
    async fn wait(&mut self) -> Result<Option<Instant>, Refused> {
        let began = Instant::now();
        let idle_end = self.handler.config.idle_timeout.map(|timeout| began + timeout);
        let gap_end = began + BodyTimeouts::default().gap;
        let mut closing = Box::pin(self.stream.closing());
        while self.buffer.len() < self.room_bytes() {
            let look_at = self.permit.as_ref().map(|_| Instant::now() + LOOK_INTERVAL);
            let until = [idle_end, look_at].into_iter().flatten().min();
            let until = until.unwrap_or_else(|| began + LONG);
            let came = tokio::select! {
                biased;
                () = closing.as_mut() => break,
                came = read(&mut self.stream, &mut self.buffer, ROOM_BYTES, until) => came,
            };
            match came {
                Some(0) => return Ok(None),
                Some(_) => break,
                None if idle_end.is_some_and(|end| Instant::now() >= end) => {
                    let counters = &self.handler.intake.counters.connections;
                    counters.idled.fetch_add(1, Ordering::Relaxed);
                    return Ok(None);
                }
                None => {}
            }
            if let Some(permit) = &self.permit
                && (permit.asked_back().is_some() || Instant::now() >= gap_end)
            {
                self.cut_short("the rest of a message did not come").await?;
            }
        }
        Ok(Some(Instant::now() + LINGER))
    }

    /// Reads what comes until then, as far as there is room.
    async fn gather(&mut self, until: Instant) -> Gathered {
        loop {
            let room = self.room_bytes().saturating_sub(self.buffer.len());
            if room == 0 {
                return Gathered::Full;
            }
            if self.last_reads.is_none() && self.stream.is_closing() {
                self.last_reads = Some(Instant::now() + LAST_READS);
            }
            let until = match self.last_reads {
                Some(end) if end <= Instant::now() => return Gathered::Ended,
                Some(end) => end.min(Instant::now() + LAST_GAP),
                None => until,
            };
            match read(&mut self.stream, &mut self.buffer, room, until).await {
                Some(1..) => {}
                None if self.last_reads.is_none() => return Gathered::Due,
                _ => return Gathered::Ended,
            }
        }
    }

    async fn admit(
        &self,
        bytes: usize,
        is_there: bool,
        request: &mut StreamRequest,
    ) -> Result<Permit, Refused> {
        request.set_waiting(true);
        let peer = self.metadata.peer.as_deref();
        let (_, permit) = self.handler.intake.admit(bytes, is_there, peer).await?;
        request.set_waiting(false);
        Ok(permit)
    }

    /// Submits the messages that are there. Returns whether there was anything to cut off.
    async fn submit(&mut self, end: End, request: &mut StreamRequest) -> Result<bool, Refused> {
        let Handler { intake, .. } = self.handler;
        let mut has_cut = false;
        // A wrong length is found again below.
        while !matches!(self.cutter.next(&self.buffer, end, self.is_within), Ok(None)) {
            has_cut = true;
            let permit = match self.permit.take() {
                Some(permit) => permit,
                None => {
                    let bytes = GROWTH * self.buffer.len() + LEAST_BYTES;
                    self.admit(bytes, true, request).await?
                }
            };
            let mut batch = Batch::new(self.number);
            let (consumed, failed) = self.cut(end, permit.bytes(), &mut batch);
            self.buffer.drain(..consumed);
            if self.buffer.capacity() > self.buffer.len().max(ROOM_BYTES) {
                self.buffer.shrink_to(ROOM_BYTES);
            }
            // More than the connection's price covers.
            let rest = self.buffer.len();
            let _rest =
                (rest > ROOM_BYTES).then(|| Permit::take(intake.ingress.waiting(true), rest));
            let made = intake.records.make(batch);
            intake.submit(made, Some(permit), &self.metadata, consumed).await;
            if let Some(refused) = failed {
                return Err(refused);
            }
        }
        Ok(has_cut)
    }

    /// Cuts messages off, until their records take that much memory. Returns the bytes that they
    /// were, and why the rest cannot be cut: then it is the last message.
    fn cut(&mut self, end: End, limit_bytes: usize, batch: &mut Batch) -> (usize, Option<Refused>) {
        let Intake { records, counters, .. } = &*self.handler.intake;
        let mut consumed = 0;
        while batch.bytes < limit_bytes && batch.items() < RECORDS_MAX {
            let bytes = &self.buffer[consumed..];
            match self.cutter.next(bytes, end, self.is_within) {
                Ok(Some(cut)) => {
                    if let Some((start, stop)) = cut.text
                        && start < stop
                    {
                        records.push(batch, &bytes[start..stop], &self.attributes);
                        let is_cut = self.cutter.is_cut(stop - start);
                        counters.cut_records.fetch_add(u64::from(is_cut), Ordering::Relaxed);
                    }
                    self.is_within = cut.is_within;
                    consumed += cut.consumed;
                }
                Ok(None) => break,
                Err(refused) => {
                    records.push(batch, bytes, &self.attributes);
                    return (self.buffer.len(), Some(refused));
                }
            }
        }
        (consumed, None)
    }

    /// Asks for more memory for a message that is longer than the window.
    async fn widen(&mut self) -> Result<(), Refused> {
        let most = self.cutter.window_bytes();
        let window_bytes = (2 * self.buffer.len()).min(most);
        let until = Instant::now() + WIDEN_TIMEOUT;
        while let Some(permit) = &mut self.permit {
            match permit.grow_to(GROWTH * window_bytes).map_err(Refused::from) {
                Ok(()) => break,
                Err(Refused { delay: None, .. }) if self.cutter.may_cut_short() => {
                    self.cutter.limit(self.buffer.len());
                    break;
                }
                Err(refused) if refused.delay.is_none() => return Err(refused),
                Err(refused) => {
                    if permit.asked_back().is_some() || Instant::now() >= until {
                        self.cut_short(&refused.message).await?;
                        break;
                    }
                    sleep(WIDEN_PAUSE).await;
                }
            }
        }
        Ok(())
    }

    /// A message that makes no progress has to go if others need its memory. `before`: the bytes of
    /// it that were there.
    async fn check_progress(&mut self, before: usize) -> Result<(), Refused> {
        let is_slow = self.buffer.len().saturating_sub(before) < PROGRESS_LEAST_BYTES;
        let is_wanted = self.permit.as_ref().is_some_and(|it| it.asked_back().is_some());
        if is_slow && is_wanted {
            self.cut_short("a message came too slowly").await
        } else {
            Ok(())
        }
    }

    /// The part of a message that is there becomes a record, so that its memory is free. It is an
    /// error if the rest of it could not be told from the next message.
    async fn cut_short(&mut self, why: &str) -> Result<(), Refused> {
        let counters = &self.handler.intake.counters;
        counters.cut_records.fetch_add(1, Ordering::Relaxed);
        let mut request = self.stream.begin();
        self.submit(End::Flush, &mut request).await?;
        self.permit = None;
        request.end(true);
        match self.cutter.may_cut_short() {
            true => Ok(()),
            false => Err(Refused::new(Reason::TooSlow, why)),
        }
    }
}

/// Appends what comes until then. Zero: nothing more will come.
async fn read(
    stream: &mut Stream,
    buffer: &mut Vec<u8>,
    most: usize,
    until: Instant,
) -> Option<usize> {
    buffer.reserve_exact(most);
    timeout_at(until, stream.read(buffer, most)).await.ok().map(Result::unwrap_or_default)
}
