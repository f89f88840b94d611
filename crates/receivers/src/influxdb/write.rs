//! A body of any length, taken while it arrives.
//!
//! Pieces of the body are unpacked and read as lines; lines become a request, which is submitted
//! when it is large enough; the next one begins when that one is accepted. So a body needs the
//! memory of one request, whatever its length.
//!
//! That memory is admitted before a request begins, with as much as its encoding takes. While a
//! body waits for it, it holds a line that was cut and the state of the unpacker, in the memory for
//! requests that wait: bodies that wait never keep out those that are read. Nothing is read
//! meanwhile, so that the sender waits, without a limit on the time.
//!
//! A body that was refused or broke off leaves in the log what was accepted by then. InfluxDB
//! stores the same point once, so senders may send it again.
//!
//! A body that is to be taken as a whole or not at all stays in one request, for which it has all
//! memory from its beginning: nothing is submitted before its last line is judged.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::request::Parts;
use sluice_flow::source::{ArrivedBody, Ingress, IngressRoute, Permit, Request};
use sluice_flow::{Payload, Refusal};
use sluice_influx::{Builder, DATABASE, Faults, RETENTION_POLICY, Reader};
use sluice_net::compress::GunzipStream;
use sluice_net::server::BodyReader;
use sluice_otlp::Signal;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::body::Body;
use super::chunk::{CHUNK_BYTES, Chunk, WHOLE_BYTES};
use super::config::InfluxConfig;
use super::counters::{Counted, Counters, add};
use super::refused::{Reason, Refused};
use super::request::Target;
use crate::large_work::LargeWork;
use crate::otlp::senders::Sender;

/// Memory of a request for each of its bytes: buffers that have grown, and the encoded request.
const FACTOR: usize = 3;
/// The most that is asked for a request without need.
const CHUNK_MOST_BYTES: usize = (FACTOR + 1) * CHUNK_BYTES;
/// The most for a body that is taken as a whole or not at all.
const WHOLE_MOST_BYTES: usize = (FACTOR + 1) * WHOLE_BYTES;
/// The least that is asked for a body of unknown length.
const CHUNK_LEAST_BYTES: usize = 64 << 10;
/// Memory of lines for each of their bytes, about: as OTLP they are twice as long.
const LINE_FACTOR: usize = 2 * FACTOR + 2;

/// Memory of a body beside its request: the reader, and what the builder remembers.
const BASE_BYTES: usize = 32 << 10;
/// A line that was cut is in the base up to here.
const BASE_CUT_BYTES: usize = 8 << 10;
/// The buffer into which bodies are unpacked.
const ROOM_BYTES: usize = 32 << 10;
/// Rooms that are unpacked without letting others run.
const ROOMS_AT_ONCE: usize = 16;
/// A body that finds no memory even to wait asks again after this time.
const WAIT: Duration = Duration::from_millis(200);

pub(super) struct Writer {
    /// The receiver's id.
    pub receiver: Arc<str>,
    pub ingress: Arc<dyn Ingress>,
    pub counters: Arc<Counters>,
    pub config: InfluxConfig,
    /// To submit large requests.
    pub large_work: LargeWork,
    /// Cancelled when the receiver ends.
    pub ending: CancellationToken,
}

/// The result of a body that was read to its end.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Lines that were taken.
    pub lines: u64,
    pub faults: Faults,
    /// Its lines at fault cost all others.
    pub is_whole: bool,
    /// Points of requests that were refused for good, and why the first of them was.
    pub dropped: u64,
    pub refused: Option<Refused>,
}

impl Writer {
    /// Takes a body. Waits while there is no memory for it or deliveries are behind.
    ///
    /// # Errors
    /// The body broke off or is no gzip, no pipeline takes metrics, or the process ends.
    pub(super) async fn write(
        &self,
        target: &Target,
        (sender, head): (&Sender, &Parts),
        body: BodyReader,
        is_packed: bool,
    ) -> Result<Outcome, Refused> {
        self.route()?;
        let mut base_bytes = BASE_BYTES;
        if is_packed {
            base_bytes += GunzipStream::MEMORY_BYTES + ROOM_BYTES;
        }
        let mut body = Body::new(body, self.config.body_limit_bytes);
        body.check(body.announced_bytes().unwrap_or(0))?;
        let base = self.base(base_bytes, &mut body).await?;
        let announced = body.announced_bytes().map(|it| usize::try_from(it).unwrap_or(usize::MAX));
        let at_first = announced.map(|it| it.saturating_mul(LINE_FACTOR));
        let at_first = match target.is_whole {
            true if is_packed => WHOLE_MOST_BYTES,
            true => at_first.unwrap_or(WHOLE_MOST_BYTES).min(WHOLE_MOST_BYTES),
            false => at_first.unwrap_or(CHUNK_LEAST_BYTES).min(CHUNK_MOST_BYTES),
        };
        let mut resource = vec![(DATABASE, target.database.as_str())];
        if !target.retention_policy.is_empty() {
            resource.push((RETENTION_POLICY, target.retention_policy.as_str()));
        }
        let named = target.database.len() + target.retention_policy.len();
        let mut writing = Writing {
            writer: self,
            sender,
            head,
            body,
            reader: Reader::new(target.precision, self.config.limits),
            chunk: Chunk::new(
                Builder::new(&self.config.settings),
                target.precision,
                target.is_whole,
            ),
            is_whole: target.is_whole,
            fixed_bytes: 1024 + 2 * named,
            resource,
            base,
            base_bytes,
            cut: None,
            permit: None,
            ask_bytes: at_first,
            outcome: Outcome::default(),
        };
        let result = writing.run(is_packed).await;
        let Writing { body, outcome, chunk, reader, .. } = writing;
        add(&self.counters.lines, chunk.lines);
        let faults = reader.faults().clone();
        if let Some(first) = faults.first.first() {
            let text = first.to_string();
            self.counters.count_faults(&self.receiver, sender.peer(), faults.count, &text);
        }
        result?;
        add(&self.counters.accepted_bytes, body.sent_bytes);
        Ok(Outcome { lines: chunk.lines, faults, is_whole: target.is_whole, ..outcome })
    }

    fn route(&self) -> Result<Arc<dyn IngressRoute>, Refused> {
        let signal = Signal::Metrics;
        self.ingress.route(signal).ok_or_else(|| Refused::unrouted(signal))
    }

    /// Memory for a body that may have to wait. It holds nothing until it has that.
    async fn base(&self, bytes: usize, body: &mut Body) -> Result<Permit, Refused> {
        let mut since = None;
        loop {
            match Permit::take(self.ingress.waiting(true), bytes) {
                Ok(permit) => {
                    since.into_iter().for_each(|since| body.note_unread(since));
                    return Ok(permit);
                }
                Err(_) => {
                    since.get_or_insert_with(Instant::now);
                    self.pause(WAIT).await?;
                }
            }
        }
    }

    async fn pause(&self, delay: Duration) -> Result<(), Refused> {
        tokio::select! {
            () = sleep(delay) => Ok(()),
            () = self.ending.cancelled() => Err(Refusal::overloaded("shutting down").into()),
            () = self.ingress.closed() => Err(Refusal::overloaded("shutting down").into()),
        }
    }
}

/// One body.
struct Writing<'a> {
    writer: &'a Writer,
    sender: &'a Sender,
    head: &'a Parts,
    body: Body,
    reader: Reader,
    chunk: Chunk,
    /// It is taken as a whole or not at all.
    is_whole: bool,
    /// Memory of a request beside its lines.
    fixed_bytes: usize,
    resource: Vec<(&'static str, &'a str)>,
    /// Held from the beginning to the end, in memory for requests that wait.
    base: Permit,
    base_bytes: usize,
    /// For a line that is cut, while there is no request.
    cut: Option<Permit>,
    /// For the request. `None`: it has not begun.
    permit: Option<Permit>,
    /// Memory to ask for the next request.
    ask_bytes: usize,
    outcome: Outcome,
}

impl Writing<'_> {
    async fn run(&mut self, is_packed: bool) -> Result<(), Refused> {
        if is_packed {
            let (mut stream, mut room) = (GunzipStream::default(), vec![0; ROOM_BYTES]);
            while let Some(piece) = self.next_piece().await? {
                self.unpack(&mut stream, &piece, &mut room).await?;
            }
            stream.finish()?;
        } else {
            while let Some(piece) = self.next_piece().await? {
                self.take(&piece).await?;
            }
        }
        self.finish().await
    }

    /// The next piece as it was sent. A body that comes slowly gives back its memory for others
    /// that wait: its request so far is submitted.
    async fn next_piece(&mut self) -> Result<Option<Bytes>, Refused> {
        loop {
            let piece = self.body.next().await?;
            let memory_bytes = self.permit.as_ref().map_or(0, Permit::bytes);
            if self.body.is_slow(memory_bytes)
                && self.permit.as_ref().is_some_and(|permit| permit.asked_back().is_some())
            {
                self.must_be_cut(|| Refusal::overloaded("the body comes slowly").into())?;
                self.submit_chunk().await?;
            }
            if let Some(piece) = piece {
                return Ok(piece);
            }
        }
    }

    async fn unpack(
        &mut self,
        stream: &mut GunzipStream,
        mut piece: &[u8],
        room: &mut [u8],
    ) -> Result<(), Refused> {
        for rooms in 1.. {
            let made = stream.unpack(&mut piece, room)?;
            if made == 0 {
                break;
            }
            self.body.note_plain(made)?;
            self.take(&room[..made]).await?;
            if rooms % ROOMS_AT_ONCE == 0 {
                yield_now().await;
            }
        }
        Ok(())
    }

    /// Takes the lines of a piece.
    async fn take(&mut self, mut piece: &[u8]) -> Result<(), Refused> {
        let mut growth = 0;
        loop {
            self.ensure(piece.len(), growth).await?;
            let Writing { reader, chunk, .. } = self;
            match reader.read_until(piece, |line| chunk.offer(line)) {
                None => break,
                Some(done) => piece = &piece[done..],
            }
            growth = self.make_room().await?;
        }
        self.reader.trim();
        Ok(())
    }

    /// The body has ended.
    async fn finish(&mut self) -> Result<(), Refused> {
        let mut growth = 0;
        while !self.reader.is_between_lines() {
            self.ensure(0, growth).await?;
            let Writing { reader, chunk, .. } = self;
            if reader.finish_until(|line| chunk.offer(line)) {
                break;
            }
            growth = self.make_room().await?;
        }
        if self.is_whole && self.reader.faults().count > 0 {
            self.chunk.give_up();
            self.permit = None;
            self.outcome.refused = Some(Refused::invalid("a line is at fault"));
            return Ok(());
        }
        self.submit_chunk().await
    }

    /// The request has to be submitted before the body's end: refuses one that is to be taken as a
    /// whole.
    fn must_be_cut(&mut self, why: impl FnOnce() -> Refused) -> Result<(), Refused> {
        if !self.is_whole || self.chunk.builder.points() == 0 {
            return Ok(());
        }
        self.chunk.give_up();
        self.permit = None;
        Err(why())
    }

    /// A line was not taken: answers the memory that it wants, or zero if the request was full.
    async fn make_room(&mut self) -> Result<usize, Refused> {
        let growth = std::mem::take(&mut self.chunk.wanted_bytes);
        if growth == 0 {
            self.must_be_cut(too_long)?;
            self.submit_chunk().await?;
            self.ask_bytes = CHUNK_MOST_BYTES;
            // A body that is there as a whole must not keep others from running.
            yield_now().await;
        }
        Ok(growth)
    }

    /// Memory for a piece of this length, and for a line that makes the request grow so much.
    fn least_bytes(&self, piece: usize, growth: usize) -> usize {
        let request = FACTOR * (self.chunk.builder.held_bytes() + growth);
        self.fixed_bytes + self.reader.most_held_bytes(piece) + request
    }

    /// Sees to it that there is a request with so much memory: this one, or the next.
    async fn ensure(&mut self, piece: usize, growth: usize) -> Result<(), Refused> {
        let least = self.least_bytes(piece, growth);
        let grown = match &mut self.permit {
            None => Err(None),
            Some(permit) if permit.bytes() >= least => Ok(()),
            Some(permit) => {
                let most = if self.is_whole { WHOLE_MOST_BYTES } else { CHUNK_MOST_BYTES };
                let more = least.max((2 * permit.bytes()).min(most));
                let grown = permit.grow_to(more).or_else(|_| permit.grow_to(least));
                let route = self.writer.route()?;
                grown.and_then(|()| route.judge_again(permit)).map_err(Some)
            }
        };
        if let Err(refusal) = grown {
            if let Some(refusal) = refusal {
                self.must_be_cut(|| refusal.into())?;
            }
            self.submit_chunk().await?;
            self.chunk.begin();
            let least = self.least_bytes(piece, growth);
            let admitted = self.admitted(least, least.max(self.ask_bytes), piece).await?;
            (self.permit, self.cut) = (Some(admitted), None);
        }
        let held = self.fixed_bytes + self.reader.most_held_bytes(piece);
        let memory = self.permit.as_ref().map_or(0, Permit::bytes);
        self.chunk.spent_at = memory.saturating_sub(held) / FACTOR;
        Ok(())
    }

    /// Waits for memory for a request, without an end.
    async fn admitted(
        &mut self,
        least: usize,
        wanted: usize,
        piece: usize,
    ) -> Result<Permit, Refused> {
        let (arrived, mut wanted, mut since) = (ArrivedBody::default(), wanted, None);
        let permit = loop {
            let route = self.writer.route()?;
            let mut wait = route.admit(wanted, &arrived);
            let admitted = match wait.as_mut().now_or_never() {
                Some(admitted) => admitted,
                None => {
                    since.get_or_insert_with(|| self.begin_to_wait(piece));
                    wait.await
                }
            };
            match admitted {
                Ok(permit) => break permit,
                Err(Refusal::TooLarge { .. }) if wanted > least => wanted = least.max(wanted / 2),
                Err(refusal) => {
                    let refused = Refused::from(refusal);
                    let Some(delay) = refused.delay else { return Err(refused) };
                    since.get_or_insert_with(|| self.begin_to_wait(piece));
                    self.writer.pause(delay).await?;
                }
            }
        };
        if let Some(since) = since {
            self.base.shrink_to(self.base_bytes);
            self.body.set_waiting(false);
            self.body.note_unread(since);
        }
        Ok(permit)
    }

    /// Holds as little as can be, in the memory for requests that wait.
    fn begin_to_wait(&mut self, piece: usize) -> Instant {
        add(&self.writer.counters.waits, 1);
        self.chunk.builder.forget();
        self.chunk.begin();
        let cut = self.reader.held_bytes().saturating_sub(BASE_CUT_BYTES);
        if self.base.grow_to(self.base_bytes + cut + piece).is_ok() {
            self.cut = None;
        }
        self.body.set_waiting(true);
        Instant::now()
    }

    /// Submits the request, if there is one, and waits until it is accepted.
    async fn submit_chunk(&mut self) -> Result<(), Refused> {
        let Some(mut permit) = self.permit.take() else { return Ok(()) };
        let points = self.chunk.builder.points();
        let counted = self.chunk.builder.counts();
        let payload = Bytes::from(self.chunk.builder.take(&self.resource));
        self.chunk.begin();
        let cut = self.reader.held_bytes().saturating_sub(BASE_CUT_BYTES);
        self.cut = (cut > 0).then(|| permit.split_off(cut));
        if points == 0 {
            return Ok(());
        }
        permit.shrink_to(payload.len());
        match self.submit(&payload, (points, &counted), permit).await {
            Ok(()) => {
                add(&self.writer.counters.accepted_items, u64::from(points));
                Ok(())
            }
            // The other lines of the body may be better.
            Err(refused) if is_for_good(&refused) => {
                self.outcome.dropped += u64::from(points);
                let first = self.outcome.refused.get_or_insert(refused);
                first.items = first.items.saturating_add(points);
                Ok(())
            }
            Err(refused) => Err(Refused { items: points, ..refused }),
        }
    }

    async fn submit(
        &mut self,
        payload: &Bytes,
        (points, counted): (u32, &[Counted]),
        mut permit: Permit,
    ) -> Result<(), Refused> {
        loop {
            let route = self.writer.route()?;
            let keys = match self.writer.config.shared.include_metadata {
                true => route.metadata_keys(),
                false => &[],
            };
            let metadata = self.sender.metadata(self.head, keys, &mut permit);
            let payload_of = || Payload::identity(payload.clone());
            let accepted = match metadata {
                Ok(metadata) => {
                    let request = Request { metadata, ..Request::new(payload_of(), points) };
                    let large_work = &self.writer.large_work;
                    let turn = large_work.to_submit(payload.len(), points as usize).await;
                    let submitted = Arc::clone(&route).submit(request, permit);
                    drop(turn);
                    match submitted {
                        Ok(receipt) => {
                            // Whatever its answer will be: it is in the log.
                            self.writer.counters.note_received(counted);
                            receipt.accepted().await
                        }
                        Err(refusal) => Err(refusal),
                    }
                }
                Err(refusal) => Err(refusal),
            };
            let delay = match accepted {
                Ok(()) => return Ok(()),
                // The engine has nothing of it.
                Err(Refusal::Retry { delay, .. }) => delay,
                Err(refusal) => return Err(refusal.into()),
            };
            let _kept = Permit::take(self.writer.ingress.waiting(true), payload.len())?;
            self.writer.pause(delay).await?;
            let cut = self.cut.take();
            permit = self.admitted(payload.len(), payload.len(), 0).await?;
            self.cut = cut;
        }
    }
}

/// The refusal of a body that is longer than one that can be taken as a whole.
fn too_long() -> Refused {
    let mib = WHOLE_BYTES >> 20;
    let text = format!("accept_partial=false: more than {mib} MiB as OTLP: send fewer lines");
    Refused::new(Reason::TooLarge, text)
}

/// The engine would refuse it again.
fn is_for_good(refused: &Refused) -> bool {
    use Reason::*;
    matches!(refused.reason, Invalid | Rejected | Failed | NeverFits) && refused.delay.is_none()
}
