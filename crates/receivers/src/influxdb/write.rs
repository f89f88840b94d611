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

mod admission;
mod submission;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::request::Parts;
use sluice_flow::Refusal;
use sluice_flow::source::{Ingress, IngressRoute, Permit};
use sluice_influx::{Builder, DATABASE, Faults, RETENTION_POLICY, Reader};
use sluice_net::compress::GunzipStream;
use sluice_net::server::BodyReader;
use sluice_otlp::Signal;
use tokio::task::yield_now;

use super::body::{Body, Next};
use super::chunk::{CHUNK_BYTES, Chunk, WHOLE_BYTES};
use super::config::InfluxConfig;
use super::counters::{Counters, add};
use super::dropped::Dropped;
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
const INFLATE_BUFFER_BYTES: usize = 32 << 10;
/// Buffers that are unpacked without letting others run.
const BUFFERS_AT_ONCE: usize = 16;

pub(super) struct Writer {
    /// The receiver's id.
    pub receiver: Arc<str>,
    pub ingress: Arc<dyn Ingress>,
    pub counters: Arc<Counters>,
    pub config: InfluxConfig,
    /// Writes that have no memory even to wait.
    pub without_base: AtomicUsize,
    /// Limits concurrent submission of large requests.
    pub large_work: LargeWork,
}

/// The result of a body that was read to its end.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Lines that were taken.
    pub lines: u64,
    pub faults: Faults,
    /// Its lines at fault cost all others.
    pub is_whole: bool,
    /// Requests that were refused for good, and why the first of them was.
    pub dropped: Dropped,
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
        is_gzip: bool,
    ) -> Result<Outcome, Refused> {
        self.route()?;
        let mut base_bytes = BASE_BYTES;
        if is_gzip {
            base_bytes += GunzipStream::MEMORY_BYTES + INFLATE_BUFFER_BYTES;
        }
        let mut body = Body::new(body, self.config.body_limit_bytes);
        body.check(body.announced_bytes().unwrap_or(0))?;
        let base = self.base(base_bytes, &mut body).await?;
        let announced = body.announced_bytes().map(|it| usize::try_from(it).unwrap_or(usize::MAX));
        let at_first = announced.map(|it| it.saturating_mul(LINE_FACTOR));
        let at_first = match target.is_whole {
            true if is_gzip => WHOLE_MOST_BYTES,
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
            lines_before: 0,
            outcome: Outcome::default(),
        };
        let result = writing.run(is_gzip).await;
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
    /// Lines before the request.
    lines_before: u64,
    outcome: Outcome,
}

impl Writing<'_> {
    async fn run(&mut self, is_gzip: bool) -> Result<(), Refused> {
        if is_gzip {
            let mut stream = GunzipStream::default();
            let mut buffer = vec![0; INFLATE_BUFFER_BYTES];
            while let Some(piece) = self.next_piece().await? {
                self.unpack(&mut stream, &piece, &mut buffer).await?;
            }
            stream.finish()?;
        } else {
            while let Some(piece) = self.next_piece().await? {
                self.take(&piece).await?;
            }
        }
        self.finish().await
    }

    /// The next piece as it was sent; `None` at the end. A body that comes slowly gives back its
    /// memory for others that wait: its request so far is submitted. If others have no memory even
    /// to wait, it is refused.
    async fn next_piece(&mut self) -> Result<Option<Bytes>, Refused> {
        loop {
            let piece = self.body.next().await?;
            let memory_bytes = self.permit.as_ref().map_or(0, Permit::bytes);
            let is_slow = self.body.is_slow(memory_bytes.max(self.base_bytes));
            if is_slow && self.writer.without_base.load(Ordering::Relaxed) > 0 {
                return Err(Refusal::overloaded("the body comes slowly, and others wait").into());
            }
            if is_slow && self.permit.as_ref().is_some_and(|permit| permit.asked_back().is_some()) {
                self.must_be_cut(|| Refusal::overloaded("the body comes slowly").into())?;
                self.submit_chunk().await?;
            }
            match piece {
                Next::Piece(piece) => return Ok(Some(piece)),
                Next::End => return Ok(None),
                Next::LookAgain => {}
            }
        }
    }

    async fn unpack(
        &mut self,
        stream: &mut GunzipStream,
        mut piece: &[u8],
        buffer: &mut [u8],
    ) -> Result<(), Refused> {
        for buffers in 1.. {
            let made = stream.unpack(&mut piece, buffer)?;
            if made == 0 {
                break;
            }
            self.body.note_plain(made)?;
            self.take(&buffer[..made]).await?;
            if buffers % BUFFERS_AT_ONCE == 0 {
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
        loop {
            // A line that is left out needs no memory.
            if !self.reader.is_between_lines() {
                self.ensure(0, growth).await?;
            }
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
}

/// The refusal of a body that is longer than one that can be taken as a whole.
fn too_long() -> Refused {
    let mib = WHOLE_BYTES >> 20;
    let text = format!("accept_partial=false: more than {mib} MiB as OTLP: send fewer lines");
    Refused::new(Reason::TooLarge, text)
}
