//! Reads files in turns, at the pace that the door sets.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sluice_flow::Payload;
use sluice_flow::source::{
    ArrivedBody, Ingress, IngressRoute, Permit, Position, Receipt, Refusal, Request,
};
use sluice_operators::Counts;
use sluice_otlp::Signal;
use sluice_tail::{FileId, Tail, Turn, WINDOW_BYTES};
use tokio::io::unix::AsyncFd;
use tokio_util::sync::CancellationToken;

use super::attributes::{Attributes, FileAttributes};
use super::lines::{Lines, REQUEST_BYTES};
use super::metrics::Counters;
use super::operators::FLUSH_INTERVAL;
use super::progress::Progress;
use crate::receiver::Streams;

/// Requests of one file before the next file has its turn.
const TURN_REQUESTS: usize = 4;
/// Files are looked for this often while deliveries want nothing: rotated ones have to be opened.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Pause if no pipeline takes logs, or a refusal is no question of time.
const PAUSE: Duration = Duration::from_secs(1);
/// Attributes of files that are kept.
const CACHED_ATTRIBUTES: usize = 1024;

pub(super) struct Reader {
    tail: Tail,
    progress: Progress,
    lines: Lines,
    files: FileAttributes,
    attributes: HashMap<FileId, (u64, Attributes)>,
    /// Ranges that are refused for good: read in smaller requests, then left out.
    poison: HashMap<FileId, Poison>,
    ingress: Arc<dyn Ingress>,
    counters: Arc<Counters>,
    stop: CancellationToken,
    /// The longest window that was admitted, if one was refused for good.
    window_limit: Option<usize>,
    /// When records that operators hold are looked at.
    next_flush: Instant,
    holds: bool,
    /// Of the operators, as counted last.
    counts: Counts,
}

/// Reads carefully from `start` on.
struct Poison {
    start: u64,
    /// The most records of a request.
    most: u32,
    /// The record that begins here is left out.
    skips: bool,
}

impl Reader {
    pub(super) fn new(
        tail: Tail,
        progress: Progress,
        lines: Lines,
        files: FileAttributes,
        ingress: Arc<dyn Ingress>,
        counters: Arc<Counters>,
        stop: CancellationToken,
    ) -> Reader {
        let (attributes, poison, window_limit) = (HashMap::new(), HashMap::new(), None);
        let (next_flush, holds, counts) = (Instant::now(), false, Counts::default());
        Reader {
            tail,
            progress,
            lines,
            files,
            attributes,
            poison,
            ingress,
            counters,
            stop,
            window_limit,
            next_flush,
            holds,
            counts,
        }
    }

    pub(super) async fn run(mut self) -> Streams {
        let changes = self.tail.changes().and_then(|fd| fd.try_clone_to_owned().ok());
        #[expect(deprecated, reason = "its alternative is unsafe; this fd is owned and stays open")]
        let changes = changes.and_then(|fd| AsyncFd::new(fd).ok());
        while !self.stop.is_cancelled() {
            self.look();
            if Instant::now() >= self.next_flush {
                self.flush().await;
            }
            match self.tail.next(Instant::now()) {
                Some(id) => self.turn(id).await,
                None => self.wait(changes.as_ref()).await,
            }
        }
        self.flush_at_end();
        self.progress.end(&mut self.tail, &self.counters).await
    }

    fn look(&mut self) {
        let now = Instant::now();
        self.tail.look(now);
        self.progress.look(&mut self.tail, &self.counters, now);
        let (counts, counters) = (std::mem::take(&mut self.tail.counts), &self.counters);
        for (counter, amount) in [
            (&counters.lost_files, counts.lost_files),
            (&counters.lost_bytes, counts.lost_bytes),
            (&counters.truncated_files, counts.truncated),
            (&counters.rotated_files, counts.rotated),
            (&counters.failed_reads, counts.failed),
        ] {
            Counters::add(counter, amount);
        }
        counters.open_files.store(self.tail.open_files() as u64, Ordering::Relaxed);
        counters.files.store(self.tail.present_files() as u64, Ordering::Relaxed);
    }

    /// Waits for a change, or for the time at which something is due.
    async fn wait(&self, changes: Option<&AsyncFd<std::os::fd::OwnedFd>>) {
        let due = self.tail.next_due();
        let due = self.progress.next_look().map_or(due, |look| due.min(look));
        let due = if self.holds { due.min(self.next_flush) } else { due };
        let changed = async {
            match changes {
                Some(changes) => {
                    if let Ok(mut guard) = changes.readable().await {
                        guard.clear_ready();
                    }
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = changed => {}
            () = tokio::time::sleep_until(due.into()) => {}
        }
    }

    /// Waits while files are looked for.
    async fn pause(&mut self, pause: impl Future<Output = ()>) {
        let mut pause = std::pin::pin!(pause);
        loop {
            let stop = self.stop.clone();
            tokio::select! {
                biased;
                () = &mut pause => return,
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_INTERVAL) => self.look(),
            }
        }
    }

    async fn turn(&mut self, id: FileId) {
        if self.ingress.route(Signal::Logs).is_none() {
            self.tail.again(id, Instant::now(), PAUSE);
            return;
        }
        let Some(id) = self.tail.turn(id, Instant::now()) else { return };
        if self.progress.is_interrupted(id)
            && let Some(operators) = self.lines.operators()
        {
            operators.forget(id);
        }
        self.progress.resume(&mut self.tail, id);
        let is_over = match self.read(id).await {
            Ok(is_over) => is_over,
            Err(refusal) => {
                Counters::add(&self.counters.refused_requests, 1);
                self.tail.end_turn(id, false);
                let delay = if let Refusal::Retry { delay, .. } = refusal { delay } else { PAUSE };
                self.pause(tokio::time::sleep(delay)).await;
                return;
            }
        };
        self.tail.end_turn(id, is_over);
    }

    /// Reads and submits a few requests. Returns whether nothing is left for now.
    async fn read(&mut self, id: FileId) -> Result<bool, Refusal> {
        let mut window_bytes = WINDOW_BYTES;
        let mut requests = 0;
        while requests < TURN_REQUESTS {
            let Some(route) = self.ingress.route(Signal::Logs) else { return Ok(false) };
            let mut permit = self.admit(&*route, &mut window_bytes).await?;
            if self.stop.is_cancelled() {
                return Ok(false);
            }
            let now = Instant::now();
            if self.tail.fill(id, window_bytes, now) == Turn::Over {
                return Ok(true);
            }
            let (range, outcome) = self.collect(id, window_bytes, now);
            if !range.is_empty() {
                requests += 1;
                self.tail.progressed(id, now);
                let items = self.lines.items();
                let position = self.progress.begin(id, range.clone());
                let position = self.settled(id, range.clone(), position);
                if items == 0 {
                    position.iter().for_each(Position::resolve);
                } else {
                    let payload = Payload::identity(self.lines.finish());
                    permit.grow_to(payload.bytes.len())?;
                    permit.shrink_to(payload.bytes.len());
                    let metadata = Arc::default();
                    let request = Request { payload, items, metadata, position, ranges: None };
                    let receipt = match route.submit(request, permit) {
                        Ok(receipt) => receipt,
                        Err(refusal) => return Err(self.refused(id, range.start, items, refusal)),
                    };
                    if self.accepted(id, range, items, receipt).await {
                        // The file may have changed while deliveries wanted nothing.
                        return Ok(false);
                    }
                }
            }
            match outcome {
                Turn::Over => return Ok(true),
                Turn::Wider(bytes) => window_bytes = bytes,
                Turn::Lines => {}
            }
        }
        Ok(false)
    }

    /// The position of the request that is made now, at the end of a range.
    fn settled(
        &mut self,
        id: FileId,
        range: std::ops::Range<u64>,
        position: Position,
    ) -> Option<Position> {
        let Some(operators) = self.lines.operators() else { return Some(position) };
        let mut positions = operators.end_range(id, range, &position);
        positions.push(position);
        operators.tell_failure(Instant::now());
        self.holds = operators.held_bytes() > 0;
        let counts = operators.counts();
        for (counter, now, before) in [
            (&self.counters.operator_errors, counts.errors, self.counts.errors),
            (&self.counters.dropped_records, counts.dropped, self.counts.dropped),
            (&self.counters.filtered_records, counts.filtered, self.counts.filtered),
            (&self.counters.let_go_records, counts.let_go, self.counts.let_go),
        ] {
            Counters::add(counter, now - before);
        }
        self.counts = counts;
        Position::of_all(positions)
    }

    /// Submits records that operators have held for their time.
    async fn flush(&mut self) {
        self.next_flush = Instant::now() + FLUSH_INTERVAL;
        let Some(operators) = self.lines.operators() else { return };
        let bytes = operators.held_bytes();
        let Some(route) = self.ingress.route(Signal::Logs).filter(|_| bytes > 0) else { return };
        let arrived = ArrivedBody::default();
        let admitted = tokio::select! {
            admitted = route.admit(bytes + REQUEST_BYTES, &arrived) => admitted,
            () = self.stop.cancelled() => return,
        };
        match admitted {
            Ok(permit) => {
                if let Some(receipt) = self.submit_held(route, permit, false) {
                    let mut receipt = receipt;
                    self.pause(receipt.paced()).await;
                }
            }
            Err(Refusal::Retry { delay, .. }) => self.pause(tokio::time::sleep(delay)).await,
            Err(_) => self.pause(tokio::time::sleep(PAUSE)).await,
        }
    }

    /// Lets go all that operators hold, if there is room for it at once; otherwise it is read again
    /// by the receiver that goes on here.
    fn flush_at_end(&mut self) {
        let Some(operators) = self.lines.operators() else { return };
        let bytes = operators.held_bytes();
        let Some(route) = self.ingress.route(Signal::Logs).filter(|_| bytes > 0) else { return };
        if let Ok(permit) = route.admit_at_once(bytes + REQUEST_BYTES) {
            drop(self.submit_held(route, permit, true));
        }
    }

    fn submit_held(
        &mut self,
        route: Arc<dyn IngressRoute>,
        mut permit: Permit,
        is_end: bool,
    ) -> Option<Receipt> {
        let operators = self.lines.operators()?;
        operators.flush(is_end);
        self.holds = operators.held_bytes() > 0;
        let items = operators.items();
        let position = Position::of_all(operators.end_flush());
        if items == 0 {
            position.iter().for_each(Position::resolve);
            return None;
        }
        let payload = Payload::identity(operators.finish());
        // Refused records are read again, as their positions end unresolved.
        permit.grow_to(payload.bytes.len()).ok()?;
        permit.shrink_to(payload.bytes.len());
        let metadata = Arc::default();
        let request = Request { payload, items, metadata, position, ranges: None };
        match route.submit(request, permit) {
            Ok(receipt) => {
                Counters::add(&self.counters.accepted_records, u64::from(items));
                Some(receipt)
            }
            Err(refusal) => {
                Counters::add(&self.counters.refused_requests, 1);
                tracing::warn!(?refusal, "records that operators held are refused: read again");
                None
            }
        }
    }

    /// Waits until deliveries want more. Returns whether that took time.
    async fn accepted(
        &mut self,
        id: FileId,
        range: std::ops::Range<u64>,
        items: u32,
        mut receipt: Receipt,
    ) -> bool {
        Counters::add(&self.counters.accepted_records, u64::from(items));
        Counters::add(&self.counters.read_bytes, range.end - range.start);
        if self.poison.get(&id).is_some_and(|poison| poison.start < range.end) {
            self.poison.remove(&id);
        }
        let waits = receipt.pace.is_some();
        self.pause(receipt.paced()).await;
        waits
    }

    /// Memory for a window and for a request.
    async fn admit(
        &mut self,
        route: &dyn IngressRoute,
        window_bytes: &mut usize,
    ) -> Result<Permit, Refusal> {
        if let Some(limit) = self.window_limit {
            *window_bytes = (*window_bytes).min(limit);
        }
        let bytes = *window_bytes + REQUEST_BYTES;
        let arrived = ArrivedBody::default();
        let admitted = tokio::select! {
            admitted = route.admit(bytes, &arrived) => admitted,
            () = self.stop.cancelled() => {
                let reason = "the receiver ends".to_owned();
                Err(Refusal::Retry { delay: Duration::ZERO, reason })
            }
        };
        if let Err(Refusal::TooLarge { reason }) = &admitted
            && *window_bytes > WINDOW_BYTES
        {
            let limit = (*window_bytes / 2).max(WINDOW_BYTES);
            tracing::warn!(
                limit_bytes = limit,
                reason,
                "a log entry is longer than the memory for receiving allows: entries are cut at \
                 this length. Raise buffer.memory.limit_mib or lower max_log_size"
            );
            self.window_limit = Some(limit);
            self.tail.limit_records(limit);
            *window_bytes = limit;
        }
        admitted
    }

    /// Makes one request of records that are there, reading on as far as needed.
    fn collect(
        &mut self,
        id: FileId,
        window_bytes: usize,
        now: Instant,
    ) -> (std::ops::Range<u64>, Turn) {
        let start = self.tail.begin_range(id);
        let attributes = attributes_of(&self.tail, id, &self.files, &mut self.attributes);
        self.lines.begin(id, attributes);
        let (mut most, mut skips) = (u32::MAX, false);
        if let Some(poison) = self.poison.get(&id) {
            (most, skips) = (poison.most, poison.skips && poison.start == start);
        }
        let outcome = loop {
            if self.lines.is_full() || self.lines.items() >= most {
                break Turn::Lines;
            }
            match self.tail.line(id) {
                Some(_) if skips => {
                    Counters::add(&self.counters.skipped_records, 1);
                    self.poison.remove(&id);
                    break Turn::Lines;
                }
                Some(line) => self.lines.push(line),
                None => match self.tail.fill(id, window_bytes, now) {
                    Turn::Lines => {}
                    outcome => break outcome,
                },
            }
        };
        (start..self.tail.end_range(id), outcome)
    }

    /// A refusal that time does not change is for the data: it is read again in smaller requests,
    /// until the record at fault is alone.
    fn refused(&mut self, id: FileId, start: u64, items: u32, refusal: Refusal) -> Refusal {
        let (Refusal::TooLarge { reason }
        | Refusal::Invalid { reason }
        | Refusal::Rejected { reason }
        | Refusal::Failed { reason }) = &refusal
        else {
            return refusal;
        };
        let path = self.tail.path(id).map(|path| path.display().to_string()).unwrap_or_default();
        let skips = items <= 1;
        if skips {
            tracing::error!(
                path,
                offset = start,
                reason,
                "a log entry is refused for good: it is left out"
            );
        }
        self.poison.insert(id, Poison { start, most: (items / 2).max(1), skips });
        Refusal::Retry { delay: Duration::ZERO, reason: reason.clone() }
    }
}

/// The attributes of a file, made anew when it has another path.
fn attributes_of<'c>(
    tail: &Tail,
    id: FileId,
    wanted: &FileAttributes,
    cached: &'c mut HashMap<FileId, (u64, Attributes)>,
) -> &'c Attributes {
    let path = tail.path(id).unwrap_or(std::path::Path::new(""));
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    let hash = hasher.finish();
    if cached.len() >= CACHED_ATTRIBUTES && !cached.contains_key(&id) {
        cached.clear();
    }
    let make = || (hash, wanted.of(path, tail.metadata(id).as_ref()));
    let entry = cached.entry(id).or_insert_with(make);
    if entry.0 != hash {
        *entry = make();
    }
    &entry.1
}
