//! One connection: what comes within a moment is read, cut into messages, and submitted as one
//! request; then the next. Meanwhile nothing is read, so that the sender waits.
//!
//! Up to [`ROOM_BYTES`] are kept without being admitted: a connection's price covers them. More is
//! read only with memory for it, and for the records that are made of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluice_flow::Metadata;
use sluice_flow::source::Permit;
use sluice_net::server::{BodyTimeouts, Stream, StreamHandler, StreamRequest};
use sluice_tail::{Cut, End};
use tokio::time::{Instant, sleep, timeout_at};

use super::attributes::{Attributes, Names};
use super::config::TcpConfig;
use super::cutter::Cutter;
use super::decoding::{self, Decoding};
use super::intake::Intake;
use super::records::{Batch, Sender};
use super::refused::{Reason, Refused, by_engine};

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
/// The bytes of a message with which it makes progress: in the time of one request if others need
/// its memory, otherwise in that after which a connection is idle.
const PROGRESS_LEAST_BYTES: usize = 1 << 10;
/// In a long message that has not ended, a pattern is searched in at most so many bytes a
/// millisecond, but at least once in this time.
const SEARCH_BYTES_PER_MS: u64 = 1 << 10;
const SEARCH_INTERVAL_MAX: Duration = Duration::from_secs(5);
/// Bytes that are decoded at a time: with those that they become they fit into the room.
const DECODED_PART: usize = 1 + decoding::GROWTH;
/// Room that is needed to decode some more.
const DECODED_LEAST_BYTES: usize = 2 * decoding::REST_BYTES;
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
        let number = self.streams.fetch_add(1, Ordering::Relaxed);
        let cutter = &self.config.cutter;
        let mut connection = Connection {
            handler: self,
            stream,
            sender: Sender::new(number, attributes),
            metadata: Arc::new(metadata),
            number,
            cutter,
            limit_bytes: cutter.max_bytes(),
            decoding: self.config.decoded_from.and_then(Decoding::of),
            raw: Vec::new(),
            buffer: Vec::new(),
            is_within: false,
            permit: None,
            window_bytes: 2 * ROOM_BYTES,
            progress: (Instant::now(), 0),
            last_reads: None,
        };
        let ended = tokio::select! {
            biased;
            ended = connection.run() => ended,
            () = self.intake.closed.cancelled() => return,
        };
        if let Err(refused) = ended {
            // The rest is lost.
            let items = connection.take_left();
            connection.refuse(&Refused { items, ..refused });
        }
        connection.stream.shut_down().await;
    }
}

struct Connection<'h> {
    handler: &'h Handler,
    stream: Stream,
    sender: Sender,
    metadata: Arc<Metadata>,
    number: u64,
    cutter: &'h Cutter,
    /// Of a message: less than the options say if it does not fit into memory.
    limit_bytes: usize,
    /// Decodes what comes, and its bytes as they come.
    decoding: Option<Decoding>,
    raw: Vec<u8>,
    /// Bytes that are in no request yet.
    buffer: Vec<u8>,
    /// They begin within a message whose rest is left out.
    is_within: bool,
    /// Memory for them, if they are more than the connection's price covers.
    permit: Option<Permit>,
    window_bytes: usize,
    /// The last time that it made progress, and the bytes of the unfinished message then.
    progress: (Instant, usize),
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

/// Why no more messages are cut off.
enum Stopped {
    /// Their records take all memory that there is for now.
    Limit,
    /// No other one is whole.
    Searched,
    /// The rest cannot be cut.
    Failed(Refused),
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        let items = self.take_left();
        if items > 0 {
            let message = "records were cut off on their way";
            self.refuse(&Refused { items, ..Refused::new(Reason::CutOff, message) });
        }
    }
}

impl Connection<'_> {
    fn refuse(&self, refused: &Refused) {
        self.handler.intake.refuse(self.metadata.peer.as_deref(), refused);
    }

    /// Drops the bytes that are in no request, and counts their records.
    fn take_left(&mut self) -> u32 {
        let bytes = std::mem::take(&mut self.buffer);
        self.cutter.count(&bytes, self.is_within, self.limit_bytes)
    }

    async fn run(&mut self) -> Result<(), Refused> {
        let mut before = 0;
        while let Some(until) = self.wait().await? {
            let mut gathered = self.gather(until).await;
            let mut request = self.stream.begin();
            if gathered == Gathered::Full && self.permit.is_none() {
                let least = (2 * self.buffer.len()).min(self.most_bytes());
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
                Gathered::Ended => End::Last,
            };
            let has_cut = self.submit(end, &mut request).await?;
            match gathered {
                Gathered::Full if !has_cut => self.widen().await?,
                Gathered::Due if !has_cut => self.check_progress(before).await?,
                _ => {}
            }
            self.note_progress(has_cut);
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
        self.decode(true);
        self.submit(End::Last, &mut request).await?;
        request.end(true);
        Ok(())
    }

    /// A whole message is progress, or some bytes of one.
    fn note_progress(&mut self, has_cut: bool) {
        let len = self.buffer.len();
        if has_cut || len >= self.progress.1 + PROGRESS_LEAST_BYTES {
            self.progress = (Instant::now(), len);
        }
    }

    /// Bytes that the buffer may have with the memory that there is.
    fn room_bytes(&self) -> usize {
        let least = self.least_room_bytes();
        self.permit.as_ref().map_or(least, |permit| (permit.bytes() / GROWTH).max(least))
    }

    /// The same without a permit. The rest is for what is decoded.
    fn least_room_bytes(&self) -> usize {
        if self.decoding.is_none() { ROOM_BYTES } else { ROOM_BYTES - ROOM_BYTES / DECODED_PART }
    }

    /// With so many bytes, a part can be cut off.
    fn most_bytes(&self) -> usize {
        self.cutter.window_bytes() + DECODED_LEAST_BYTES
    }

    /// Bytes for which there is room, maybe none.
    fn free_bytes(&self) -> usize {
        let free = self.room_bytes().saturating_sub(self.buffer.len());
        let is_enough = self.decoding.is_none() || free >= DECODED_LEAST_BYTES;
        if is_enough { free } else { 0 }
    }

    /// Waits until something comes, and says until when more of it is waited for. `None`: nothing
    /// more will come.
    async fn wait(&mut self) -> Result<Option<Instant>, Refused> {
        let began = Instant::now();
        let idle_end = self.handler.config.idle_timeout.map(|timeout| self.progress.0 + timeout);
        let gap_end = began + BodyTimeouts::default().gap;
        let mut closing = Box::pin(self.stream.closing());
        while self.free_bytes() > 0 {
            let look_at = self.permit.as_ref().map(|_| Instant::now() + LOOK_INTERVAL);
            let until = [idle_end, look_at].into_iter().flatten().min();
            let until = until.unwrap_or_else(|| began + LONG);
            let most = self.free_bytes().min(ROOM_BYTES);
            let came = tokio::select! {
                biased;
                () = closing.as_mut() => break,
                came = self.read(most, until) => came,
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
        Ok(Some(Instant::now() + self.linger()))
    }

    /// The time in which messages come that become one request. A search in vain for the end of a
    /// long one costs as much as all of it: it is worth more bytes.
    fn linger(&self) -> Duration {
        if !self.cutter.has_pattern() {
            return LINGER;
        }
        let searched = Duration::from_millis(self.buffer.len() as u64 / SEARCH_BYTES_PER_MS);
        searched.clamp(LINGER, SEARCH_INTERVAL_MAX)
    }

    /// Reads what comes until then, as far as there is room.
    async fn gather(&mut self, until: Instant) -> Gathered {
        loop {
            let room = self.free_bytes();
            if room == 0 {
                return Gathered::Full;
            }
            if self.last_reads.is_none() && self.stream.is_closing() {
                self.last_reads = Some(Instant::now() + LAST_READS);
            }
            let now = Instant::now();
            let look_at = match self.last_reads {
                Some(end) if end <= now => return Gathered::Ended,
                Some(end) => end.min(now + LAST_GAP),
                None => until.min(now + LINGER),
            };
            match self.read(room, look_at).await {
                Some(1..) => {}
                None if self.last_reads.is_none() && look_at < until => {}
                None if self.last_reads.is_none() => return Gathered::Due,
                _ => {
                    self.decode(true);
                    return Gathered::Ended;
                }
            }
        }
    }

    /// Appends what comes until then, and becomes at most so many bytes. Zero: nothing more will
    /// come.
    async fn read(&mut self, most: usize, until: Instant) -> Option<usize> {
        let (into, most) = match &self.decoding {
            None => (&mut self.buffer, most),
            Some(_) => (&mut self.raw, (most - decoding::REST_BYTES) / DECODED_PART),
        };
        into.reserve_exact(most);
        let came = timeout_at(until, self.stream.read(into, most)).await;
        let came = came.ok().map(Result::unwrap_or_default);
        self.decode(false);
        came
    }

    /// Decodes the bytes that have come, if that is needed.
    fn decode(&mut self, is_end: bool) {
        let Some(decoding) = &mut self.decoding else { return };
        decoding.decode(&self.raw, is_end, &mut self.buffer);
        self.raw.clear();
        self.raw.shrink_to(ROOM_BYTES / DECODED_PART);
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

    fn next(&self, bytes: &[u8], end: End) -> Result<Option<Cut>, Refused> {
        self.cutter.next(bytes, end, self.is_within, self.limit_bytes)
    }

    /// Submits the messages that are there. Returns whether there was anything to cut off.
    async fn submit(&mut self, end: End, request: &mut StreamRequest) -> Result<bool, Refused> {
        let Handler { intake, .. } = self.handler;
        let mut has_cut = false;
        loop {
            let first = self.next(&self.buffer, end);
            if let Ok(None) = first {
                return Ok(has_cut);
            }
            has_cut = true;
            let permit = match self.permit.take() {
                Some(permit) => permit,
                None => {
                    let bytes = GROWTH * self.buffer.len() + LEAST_BYTES;
                    self.admit(bytes, true, request).await?
                }
            };
            let mut batch = Batch::new(self.number);
            let (consumed, stopped) = self.cut(first, end, permit.bytes(), &mut batch);
            self.buffer.drain(..consumed);
            let kept = self.least_room_bytes();
            if self.buffer.capacity() > self.buffer.len().max(kept) {
                self.buffer.shrink_to(kept);
            }
            // More than the connection's price covers.
            let rest = self.buffer.len();
            let _rest =
                (rest > ROOM_BYTES).then(|| Permit::take(intake.ingress.waiting(true), rest));
            let made = intake.records.make(batch);
            intake.submit(made, Some(permit), &self.metadata, consumed).await;
            match stopped {
                Stopped::Limit => {}
                Stopped::Searched => return Ok(true),
                Stopped::Failed(refused) => return Err(refused),
            }
        }
    }

    /// Cuts messages off, until their records take that much memory. Returns the bytes that they
    /// were, and why there are no more of them.
    fn cut(
        &mut self,
        first: Result<Option<Cut>, Refused>,
        end: End,
        limit_bytes: usize,
        batch: &mut Batch,
    ) -> (usize, Stopped) {
        let Intake { records, counters, .. } = &*self.handler.intake;
        let (mut consumed, mut next) = (0, first);
        loop {
            let bytes = &self.buffer[consumed..];
            match next {
                Ok(Some(cut)) => {
                    if let Some((start, stop)) = cut.text
                        && start < stop
                    {
                        records.push(batch, &bytes[start..stop], &self.sender);
                        let is_cut = self.cutter.is_cut(stop - start, self.limit_bytes);
                        counters.cut_records.fetch_add(u64::from(is_cut), Ordering::Relaxed);
                    }
                    self.is_within = cut.is_within;
                    consumed += cut.consumed;
                }
                Ok(None) => return (consumed, Stopped::Searched),
                // It is the last message.
                Err(refused) => {
                    records.push(batch, bytes, &self.sender);
                    return (self.buffer.len(), Stopped::Failed(refused));
                }
            }
            if batch.bytes >= limit_bytes || batch.items() >= RECORDS_MAX {
                return (consumed, Stopped::Limit);
            }
            next = self.next(&self.buffer[consumed..], end);
        }
    }

    /// Asks for more memory for a message that is longer than the window.
    async fn widen(&mut self) -> Result<(), Refused> {
        let most = self.most_bytes();
        let window_bytes = (2 * self.buffer.len()).min(most);
        let until = Instant::now() + WIDEN_TIMEOUT;
        while let Some(permit) = &mut self.permit {
            match permit.grow_to(GROWTH * window_bytes).map_err(by_engine) {
                Ok(()) => break,
                Err(Refused { delay: None, .. }) if self.cutter.may_cut_short() => {
                    self.limit_bytes = self.limit_bytes.min(self.buffer.len());
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
        self.note_progress(true);
        self.permit = None;
        request.end(true);
        match self.cutter.may_cut_short() {
            true => Ok(()),
            false => Err(Refused::new(Reason::TooSlow, why)),
        }
    }
}
