//! Reads files in turns, at the pace that the door sets.

mod held;
mod parts;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sluice_flow::idle;
use sluice_flow::source::{ArrivedBody, Ingress, IngressRoute, Permit, Receipt, Refusal, Request};
use sluice_operators::Counts;
use sluice_tail::{FileId, Shown, Tail, Turn, WINDOW_BYTES};
use tokio::io::unix::AsyncFd;
use tokio_util::sync::CancellationToken;

use self::held::HeldFrom;
use self::parts::Named;
use super::attributes::{Attributes, FileAttributes};
use super::clock::Clock;
use super::counters::Counters;
use super::header::{CACHED_HEADERS, Headers};
use super::operators::Left;
use super::progress::Progress;
use super::records::{REQUEST_BYTES, Records};
use crate::receiver::Streams;

/// Requests of one file before the next file has its turn.
const TURN_REQUESTS: usize = 4;
/// Files are looked for, and opened, this often while deliveries want nothing: they may be removed.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Unread bytes are summed up at most this often.
const SUM_INTERVAL: Duration = Duration::from_secs(1);
/// Pause if no pipeline takes logs, or a refusal is no question of time.
const PAUSE: Duration = Duration::from_secs(1);
/// Memory that is freed is given back this long after reading, or looking for files, began.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(2);
/// Attributes of files that are kept.
const CACHED_ATTRIBUTES: usize = 1024;

pub(super) struct Reader {
    tail: Tail,
    progress: Progress,
    records: Box<dyn Records>,
    files: FileAttributes,
    pub(super) headers: Option<Headers>,
    /// Changes with all that decides what is made of lines.
    pub(super) seed: u64,
    attributes: HashMap<FileId, (u64, Attributes)>,
    ingress: Arc<dyn Ingress>,
    counters: Arc<Counters>,
    stop: CancellationToken,
    pub(super) clock: Clock,
    /// The longest window that was admitted, if one was refused for good.
    window_limit: Option<usize>,
    /// When files that wait for their turn are opened.
    next_open: Instant,
    /// When unread bytes are summed up, if something was read since.
    next_sum: Option<Instant>,
    /// When freed memory is given back, if there may be some.
    next_give_back: Option<Instant>,
    /// Looks at all files before.
    looks: u64,
    /// When records that operators hold are looked at.
    next_flush: Instant,
    holds: bool,
    /// Of the operators, as counted last.
    counts: Counts,
}

impl Reader {
    pub(super) fn new(
        tail: Tail,
        progress: Progress,
        records: Box<dyn Records>,
        files: FileAttributes,
        ingress: Arc<dyn Ingress>,
        counters: Arc<Counters>,
        stop: CancellationToken,
    ) -> Reader {
        let (attributes, window_limit) = (HashMap::new(), None);
        let clock = Clock::new(1);
        let (next_flush, holds, counts) = (clock.now(), false, Counts::default());
        let (next_open, next_sum, next_give_back, looks) = (next_flush, None, None, 0);
        Reader {
            tail,
            progress,
            records,
            files,
            headers: None,
            seed: 0,
            attributes,
            ingress,
            counters,
            stop,
            clock,
            window_limit,
            next_open,
            next_sum,
            next_give_back,
            looks,
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
            if self.clock.now() >= self.next_flush {
                self.flush().await;
            }
            match self.tail.next(self.clock.now()) {
                Some(id) => self.turn(id).await,
                None => self.wait(changes.as_ref()).await,
            }
        }
        self.flush_at_end();
        self.tail.note_sizes();
        let streams = self.progress.end(&mut self.tail, &self.counters, self.clock.now()).await;
        count(&mut self.tail, &self.counters);
        streams
    }

    fn look(&mut self) {
        let now = self.clock.now();
        self.tail.look(now);
        if now >= self.next_open {
            self.next_open = now + LOOK_INTERVAL;
            self.tail.open_waiting(now);
        }
        if self.next_sum.is_some_and(|at| now >= at) {
            self.next_sum = None;
            self.counters.unread_bytes.store(self.tail.unread_bytes(), Ordering::Relaxed);
        }
        if self.tail.looks() != self.looks {
            self.looks = self.tail.looks();
            self.next_give_back.get_or_insert(now + GIVE_BACK_AFTER);
        }
        if self.next_give_back.is_some_and(|at| now >= at) {
            self.next_give_back = None;
            if self.progress.next_look().is_none() {
                self.attributes = HashMap::new();
            }
            idle::give_back();
        }
        self.progress.look(&mut self.tail, &self.counters, now);
        count(&mut self.tail, &self.counters);
        let counters = &self.counters;
        counters.open_files.store(self.tail.open_files() as u64, Ordering::Relaxed);
        counters.files.store(self.tail.present_files() as u64, Ordering::Relaxed);
    }

    /// Waits for a change, or for the time at which something is due.
    async fn wait(&self, changes: Option<&AsyncFd<std::os::fd::OwnedFd>>) {
        let due = self.tail.next_due();
        let due = self.progress.next_look().map_or(due, |look| due.min(look));
        let due = if self.holds { due.min(self.next_flush) } else { due };
        let due = self.next_sum.map_or(due, |sum| due.min(sum));
        let due = self.next_give_back.map_or(due, |at| due.min(at));
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
            () = self.clock.sleep_until(due) => {}
        }
    }

    /// Waits while files are looked for. `None`: the receiver ends.
    async fn pause<T>(&mut self, pause: impl Future<Output = T>) -> Option<T> {
        let mut pause = std::pin::pin!(pause);
        loop {
            let (stop, clock) = (self.stop.clone(), self.clock);
            tokio::select! {
                biased;
                result = &mut pause => return Some(result),
                () = stop.cancelled() => return None,
                () = clock.sleep(LOOK_INTERVAL) => self.look(),
            }
        }
    }

    async fn turn(&mut self, id: FileId) {
        let now = self.clock.now();
        self.next_sum.get_or_insert(now + SUM_INTERVAL);
        self.next_give_back.get_or_insert(now + GIVE_BACK_AFTER);
        if self.ingress.route(self.records.signal()).is_none() {
            self.tail.again(id, now, PAUSE);
            return;
        }
        let Some(id) = self.tail.turn(id, now) else { return };
        if self.progress.is_interrupted(id)
            && let Some(operators) = self.records.operators()
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
                self.pause(self.clock.sleep(delay)).await;
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
            let Some(route) = self.ingress.route(self.records.signal()) else { return Ok(false) };
            let permit = self.admit(&*route, &mut window_bytes).await?;
            // The file may have been closed to make room while memory was waited for.
            if self.stop.is_cancelled() || !self.tail.is_open(id) {
                return Ok(false);
            }
            let now = self.clock.now();
            if self.tail.fill(id, window_bytes, now) == Turn::Over {
                return Ok(true);
            }
            let names = route.names_ranges() && self.progress.names();
            let (range, cut, outcome) = self.collect(id, window_bytes, now, names);
            if !range.is_empty() {
                requests += 1;
                self.tail.progressed(id, now);
                let waits = if self.records.operators().is_some() {
                    self.submit_left(id, range, cut, &route, permit).await?
                } else {
                    self.submit_lines(id, range, &route, permit).await?
                };
                if waits {
                    // The file may have changed while deliveries wanted nothing.
                    return Ok(false);
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

    /// Submits lines as they are. Returns whether deliveries made it wait.
    async fn submit_lines(
        &mut self,
        id: FileId,
        range: Range<u64>,
        route: &Arc<dyn IngressRoute>,
        permit: Permit,
    ) -> Result<bool, Refusal> {
        let positions = vec![self.progress.begin(id, range.clone())];
        let (items, bytes) = (self.records.items(), self.records.finish());
        let left = Left { bytes, items, origins: Vec::new() };
        let named = Some(Named { id, range: range.clone(), made: items });
        let (waits, accepted) = self.submit_in_parts(route, permit, left, positions, named).await?;
        if accepted > 0 {
            Counters::add(&self.counters.read_bytes, range.end - range.start);
        }
        Ok(waits)
    }

    /// Waits until deliveries want more. Returns whether that took time.
    async fn paced(&mut self, mut receipt: Receipt) -> bool {
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
        let admitted = self.admitted(route, *window_bytes + REQUEST_BYTES).await;
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

    /// Memory of so many bytes. Files are looked for meanwhile.
    async fn admitted(
        &mut self,
        route: &dyn IngressRoute,
        bytes: usize,
    ) -> Result<Permit, Refusal> {
        let arrived = ArrivedBody::default();
        let admitted = self.pause(route.admit(bytes, &arrived)).await;
        admitted.unwrap_or_else(|| {
            let reason = "the receiver ends".to_owned();
            Err(Refusal::Retry { delay: Duration::ZERO, reason })
        })
    }

    /// Makes one request of records that are there, reading on as far as needed. Returns the range,
    /// and the place in it from which on records are held by operators. `names`: it may get a name.
    fn collect(
        &mut self,
        id: FileId,
        window_bytes: usize,
        now: Instant,
        names: bool,
    ) -> (Range<u64>, Option<u64>, Turn) {
        let start = self.tail.begin_range(id);
        if names {
            self.tail.sum_range(id, self.seed);
        }
        let headers = self.headers.as_mut();
        let of_header = headers.map(|it| it.pass(&mut self.tail, id, window_bytes, now));
        let of_header = match of_header.transpose() {
            Ok(attributes) => attributes,
            Err(outcome) => {
                self.records.begin(id, &Attributes::new());
                return (start..self.tail.end_range(id), None, outcome);
            }
        };
        let cached = &mut self.attributes;
        let attributes = attributes_of(&self.tail, id, &self.files, of_header, cached);
        self.records.begin(id, attributes);
        let mut held = HeldFrom::default();
        let outcome = loop {
            if self.records.is_full() || self.tail.is_at_stop(id) {
                break Turn::Lines;
            }
            match self.tail.line(id) {
                Some(line) => {
                    let place = (line.offset, line.number);
                    self.records.push(line);
                    held.note(place, &mut *self.records);
                }
                None => {
                    held.find(id, &mut *self.records, &self.tail);
                    match self.tail.fill(id, window_bytes, now) {
                        Turn::Lines => {}
                        outcome => break outcome,
                    }
                }
            }
        };
        held.find(id, &mut *self.records, &self.tail);
        let cut = held.found.filter(|at| self.tail.cut_range(id, *at)).map(|at| at.offset);
        (start..self.tail.end_range(id), cut, outcome)
    }

    /// Counts what operators did.
    fn count_operators(&mut self) {
        let Some(operators) = self.records.operators() else { return };
        operators.tell_failure(self.clock.now());
        self.holds = operators.held_bytes() > 0;
        let counts = operators.counts();
        for (counter, amount) in [
            (&self.counters.operator_errors, counts.errors - self.counts.errors),
            (&self.counters.dropped_records, counts.dropped - self.counts.dropped),
            (&self.counters.filtered_records, counts.filtered - self.counts.filtered),
            (&self.counters.let_go_records, counts.let_go - self.counts.let_go),
        ] {
            Counters::add(counter, amount);
        }
        self.counts = counts;
    }

    /// `place`: the file of the record and the offset of its line, if they are known.
    fn tell_left_out(&self, place: Option<(FileId, u64)>, reason: &str) {
        let path = place.and_then(|(id, _)| self.tail.path(id));
        let (path, offset) = (path.map(|it| Shown(it).to_string()), place.map(|it| it.1));
        tracing::error!(path, offset, reason, "a log entry is refused for good: it is left out");
    }
}

/// Adds what happened to files since the last time.
fn count(tail: &mut Tail, counters: &Counters) {
    let counts = std::mem::take(&mut tail.counts);
    for (counter, amount) in [
        (&counters.lost_files, counts.lost_files),
        (&counters.lost_bytes, counts.lost_bytes),
        (&counters.truncated_files, counts.truncated),
        (&counters.rotated_files, counts.rotated),
        (&counters.failed_reads, counts.failed),
        (&counters.closed_files, counts.closed),
        (&counters.forgotten_files, counts.forgotten),
        (&counters.shortened_files, counts.shortened),
    ] {
        Counters::add(counter, amount);
    }
}

/// Asks for the memory that is still missing, and submits.
fn submit(
    route: Arc<dyn IngressRoute>,
    request: Request,
    permit: Result<Permit, Refusal>,
) -> Result<Receipt, Refusal> {
    let (mut permit, bytes) = (permit?, request.payload.bytes.len());
    permit.grow_to(bytes)?;
    permit.shrink_to(bytes);
    route.submit(request, permit)
}

/// The reason of a refusal that time does not change.
fn final_reason(refusal: &Refusal) -> Option<&str> {
    match refusal {
        Refusal::TooLarge { reason }
        | Refusal::Invalid { reason }
        | Refusal::Rejected { reason }
        | Refusal::Failed { reason } => Some(reason),
        Refusal::Retry { .. } | Refusal::Unconfirmed { .. } | Refusal::Overlaps => None,
    }
}

/// The attributes of a file, made anew when it has another path.
fn attributes_of<'c>(
    tail: &Tail,
    id: FileId,
    wanted: &FileAttributes,
    of_header: Option<Attributes>,
    cached: &'c mut HashMap<FileId, (u64, Attributes)>,
) -> &'c Attributes {
    let path = tail.path(id).unwrap_or(std::path::Path::new(""));
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    let hash = hasher.finish();
    let most = if of_header.is_some() { CACHED_HEADERS } else { CACHED_ATTRIBUTES };
    if cached.len() >= most && !cached.contains_key(&id) {
        cached.clear();
    }
    let make = || {
        let mut attributes = wanted.of(path, tail.metadata(id).as_ref());
        let of_header = of_header.unwrap_or_default();
        attributes.retain(|(key, _)| of_header.iter().all(|(other, _)| other != key));
        attributes.extend(of_header);
        (hash, attributes)
    };
    if cached.get(&id).is_none_or(|entry| entry.0 != hash) {
        cached.insert(id, make());
    }
    &cached[&id].1
}
