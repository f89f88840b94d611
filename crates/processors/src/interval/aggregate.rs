//! The aggregator: points and a time in, points out. No clock, no I/O.
//!
//! A point belongs to the bucket of its own time. A request's points are staged until it is known
//! that the request is kept, and only then change anything: what is taken back was never in. A
//! bucket that is due is sealed, so that later points begin a further part of it, and is then
//! written in pieces, each of which can be taken back as well.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use sluice_flow::Tally;
use sluice_influx::K6_METRICS;

use super::cell::{CELL_BYTES, Cell, Group, Sample, State, heap_of_new};
use super::options::Options;
use super::parts::Parts;
use super::write::{self, Made};
use crate::processor::Aggregated;

/// Memory of a bucket without series.
const BUCKET_BYTES: usize = 512;

/// Times of a bucket, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub start: u64,
    pub end: u64,
    /// Parts of the bucket that were written before.
    pub part: u32,
    /// Written before its time: more may follow.
    pub is_cut: bool,
}

struct Bucket {
    span: Span,
    /// The watermark had passed its end when it was opened.
    is_late: bool,
    /// It is written at this time of the clock at the latest.
    written_at: u64,
    index: HashMap<Arc<[u8]>, u32>,
    cells: Vec<Cell>,
}

struct Staged {
    start: u64,
    cell: u32,
    time: u64,
    sample: Sample,
}

/// A bucket that takes no more points.
struct Sealed {
    span: Span,
    cells: Vec<Cell>,
}

/// Since the aggregator began. Only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Points of buckets whose end the watermark had passed.
    pub late: u64,
    /// Points that passed because there was no memory.
    pub refused: u64,
    /// Points that passed because they fit no bucket or are no numbers.
    pub passed: u64,
    /// Series whose quantiles were written as estimates.
    pub estimated: u64,
}

pub(super) struct Aggregator {
    options: Arc<Options>,
    groups: HashMap<Box<[u8]>, Arc<Group>>,
    next_group: u64,
    open: BTreeMap<u64, Bucket>,
    sealed: VecDeque<Sealed>,
    /// Of the request in turn.
    staged: Vec<Staged>,
    /// Of the oldest sealed bucket, by the writing in turn.
    taken: Vec<Cell>,
    /// Points that the writing in turn makes of it.
    made: Made,
    parts: Parts,
    /// Time of the newest point, at most that of the clock.
    newest: u64,
    now: u64,
    bytes: usize,
    cells: usize,
    /// Points pass as they come: what is here is written, and nothing may follow.
    pub is_ending: bool,
    pub counts: Counts,
    pub aggregated: Arc<Aggregated>,
}

impl Aggregator {
    /// `now`: nanoseconds since 1970, as everywhere.
    pub(super) fn new(options: Arc<Options>, now: u64) -> Self {
        let parts = Parts::new(now, options.lateness);
        Aggregator {
            options,
            groups: HashMap::new(),
            next_group: 0,
            open: BTreeMap::new(),
            sealed: VecDeque::new(),
            staged: Vec::new(),
            taken: Vec::new(),
            made: Made::new(),
            parts,
            newest: 0,
            now,
            bytes: 0,
            cells: 0,
            is_ending: false,
            counts: Counts::default(),
            aggregated: Arc::new(Aggregated::new()),
        }
    }

    /// To be called before the points of a request. With other options than before, all buckets
    /// are sealed: what follows begins further parts.
    pub(super) fn begin(&mut self, options: &Arc<Options>, now: u64) {
        self.now = now;
        if Arc::ptr_eq(&self.options, options) {
            return;
        }
        if self.options.fingerprint("") != options.fingerprint("") {
            self.seal_all();
            let freed: usize = self.groups.drain().map(|(_, group)| group.bytes()).sum();
            self.bytes = self.bytes.saturating_sub(freed);
        }
        self.options = options.clone();
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// Series in buckets, and their memory.
    pub(super) fn usage(&self) -> (usize, usize) {
        (self.cells, self.bytes)
    }

    /// Buckets that points still go to.
    pub(super) fn open_buckets(&self) -> usize {
        self.open.len()
    }

    /// The metric with this key, which `make` makes with its number. Nothing without memory for it.
    pub(super) fn group(
        &mut self,
        key: &[u8],
        make: impl FnOnce(&Options, u64) -> Group,
    ) -> Option<Arc<Group>> {
        if let Some(group) = self.groups.get(key) {
            return Some(group.clone());
        }
        let group = make(&self.options, self.next_group);
        if group.bytes() > self.room() {
            // It may be for those that no series has any more.
            self.forget_groups();
            if group.bytes() > self.room() {
                return None;
            }
        }
        self.next_group += 1;
        self.bytes += group.bytes();
        let group = Arc::new(group);
        self.groups.insert(key.into(), group.clone());
        Some(group)
    }

    fn room(&self) -> usize {
        self.options.bounds.bytes.saturating_sub(self.bytes)
    }

    /// False if the point has to pass as it is.
    pub(super) fn stage(
        &mut self,
        group: &Arc<Group>,
        key: &[u8],
        time: u64,
        sample: Sample,
    ) -> bool {
        let Options { interval, lateness, .. } = *self.options;
        let ahead = self.now.saturating_add(interval).saturating_add(lateness);
        if self.is_ending || time == 0 || time > ahead {
            self.counts.passed += 1;
            return false;
        }
        let start = time - time % interval;
        match self.cell(group, key, start, &sample) {
            Some(cell) => {
                self.staged.push(Staged { start, cell, time, sample });
                true
            }
            None => {
                self.counts.refused += 1;
                false
            }
        }
    }

    fn cell(&mut self, group: &Arc<Group>, key: &[u8], start: u64, sample: &Sample) -> Option<u32> {
        let point_bytes = match sample {
            Sample::Whole(point) => point.len(),
            Sample::Number(_) => 0,
        };
        let room = self.room();
        if let Some(bucket) = self.open.get_mut(&start)
            && let Some(index) = bucket.index.get(key)
        {
            let cell = &mut bucket.cells[*index as usize];
            let more = point_bytes.saturating_sub(cell.point_bytes);
            if more > room {
                return None;
            }
            cell.point_bytes += more;
            self.bytes += more;
            return Some(*index);
        }
        let heap = heap_of_new(&group.fate);
        let bucket_bytes = if self.open.contains_key(&start) { 0 } else { BUCKET_BYTES };
        let needed = CELL_BYTES + key.len() + point_bytes + heap + bucket_bytes;
        if needed > room || self.cells >= self.options.bounds.series {
            return None;
        }
        let (group, key) = (group.clone(), Arc::<[u8]>::from(key));
        let cell = Cell { group, key: key.clone(), state: State::Empty, point_bytes, points: 0 };
        self.bytes += cell.bytes() + bucket_bytes;
        self.cells += 1;
        let bucket = self.bucket(start);
        let index = bucket.cells.len() as u32;
        bucket.cells.push(cell);
        bucket.index.insert(key, index);
        Some(index)
    }

    fn watermark(&self) -> u64 {
        self.newest.saturating_sub(self.options.lateness)
    }

    fn bucket(&mut self, start: u64) -> &mut Bucket {
        let Options { interval, lateness, .. } = *self.options;
        let (now, watermark) = (self.now, self.watermark());
        let end = start.saturating_add(interval);
        let parts = &self.parts;
        self.open.entry(start).or_insert_with(|| Bucket {
            span: Span { start, end, part: parts.next(end, now), is_cut: false },
            is_late: watermark >= end,
            written_at: now.max(start).saturating_add(interval).saturating_add(lateness),
            index: HashMap::new(),
            cells: Vec::new(),
        })
    }

    /// Where [`Self::undo_to`] leads back to.
    pub(super) fn mark(&self) -> usize {
        self.staged.len()
    }

    /// Forgets what was staged since a mark, and puts back what was taken.
    pub(super) fn undo_to(&mut self, mark: usize) {
        self.staged.truncate(mark);
        self.made.clear();
        if !self.taken.is_empty()
            && let Some(sealed) = self.sealed.front_mut()
        {
            sealed.cells.append(&mut self.taken);
        }
    }

    /// Adds what was staged, and gives up what was taken. True if the watermark has passed the end
    /// of a bucket by it.
    pub(super) fn keep(&mut self) -> bool {
        let most = self.options.quantile_values;
        let mut room = self.room();
        let watermark = self.watermark();
        // Points of a metric follow each other.
        let mut run: Option<(Arc<Group>, u64)> = None;
        for Staged { start, cell, time, sample } in std::mem::take(&mut self.staged) {
            let Some(bucket) = self.open.get_mut(&start) else { continue };
            let cell = &mut bucket.cells[cell as usize];
            let before = cell.bytes();
            cell.add(time, &sample, most, room);
            match &mut run {
                Some((group, points)) if Arc::ptr_eq(group, &cell.group) => *points += 1,
                run => {
                    let before = run.replace((cell.group.clone(), 1));
                    before.iter().for_each(|run| self.aggregated.note_taken(run));
                }
            }
            let after = cell.bytes();
            self.bytes = (self.bytes + after).saturating_sub(before);
            room = (room + before).saturating_sub(after);
            self.counts.late += u64::from(bucket.is_late);
            self.newest = self.newest.max(time.min(self.now));
        }
        run.iter().for_each(|run| self.aggregated.note_taken(run));
        drop(run);
        for (measurement, points) in std::mem::take(&mut self.made) {
            self.aggregated.made.add(&measurement, points);
        }
        for cell in std::mem::take(&mut self.taken) {
            if !cell.group.keeps_points() {
                self.aggregated.replaced.add(&cell.group.measurement, cell.points);
            }
            self.forget(&cell);
        }
        while self.sealed.front().is_some_and(|sealed| sealed.cells.is_empty()) {
            self.sealed.pop_front();
            self.bytes = self.bytes.saturating_sub(BUCKET_BYTES);
            self.forget_groups();
        }
        let passed = watermark..self.watermark();
        self.open.values().any(|it| !it.is_late && passed.contains(&(it.span.end - 1)))
    }

    fn forget(&mut self, cell: &Cell) {
        self.bytes = self.bytes.saturating_sub(cell.bytes());
        self.cells -= 1;
        if let State::Numbers(numbers) = &cell.state {
            let is_estimate = numbers.quantiles.as_ref().is_some_and(|it| !it.is_exact());
            self.counts.estimated += u64::from(is_estimate);
        }
    }

    /// Forgets the metrics that no series of a bucket has any more.
    fn forget_groups(&mut self) {
        let mut freed = 0;
        self.groups.retain(|_, group| {
            let is_used = Arc::strong_count(group) > 1;
            freed += if is_used { 0 } else { group.bytes() };
            is_used
        });
        self.bytes = self.bytes.saturating_sub(freed);
    }

    /// Whether there is something to write.
    pub(super) fn is_due(&self, now: u64) -> bool {
        let watermark = self.watermark();
        !self.sealed.is_empty() || self.open.values().any(|it| it.is_due(watermark, now))
    }

    /// Seals the buckets that are due. What is staged goes to open buckets: not in its turn.
    pub(super) fn seal(&mut self, now: u64) {
        self.now = now;
        let watermark = self.watermark();
        let due = |bucket: &Bucket| bucket.is_due(watermark, now);
        let starts: Vec<u64> =
            self.open.iter().filter(|(_, bucket)| due(bucket)).map(|(start, _)| *start).collect();
        for start in starts {
            self.seal_one(start, false);
        }
    }

    /// Seals all buckets, before their time.
    pub(super) fn seal_all(&mut self) {
        let starts: Vec<u64> = self.open.keys().copied().collect();
        for start in starts {
            self.seal_one(start, true);
        }
    }

    fn seal_one(&mut self, start: u64, is_cut: bool) {
        let Some(bucket) = self.open.remove(&start) else { return };
        let Bucket { mut span, cells, .. } = bucket;
        let is_empty = |cell: &Cell| matches!(cell.state, State::Empty);
        let (empty, cells): (Vec<_>, Vec<_>) = cells.into_iter().partition(is_empty);
        empty.iter().for_each(|cell| self.forget(cell));
        drop(empty);
        if cells.is_empty() {
            self.bytes = self.bytes.saturating_sub(BUCKET_BYTES);
            self.forget_groups();
            return;
        }
        span.is_cut = is_cut;
        self.parts.note(&span);
        self.sealed.push_back(Sealed { span, cells });
    }

    /// A request with points of the oldest sealed bucket, of about as many bytes at most, and how
    /// many points it has. They are gone with [`Self::keep`].
    pub(super) fn take(&mut self, limit_bytes: usize) -> Option<(Bytes, u32)> {
        let Sealed { span, cells } = self.sealed.front_mut()?;
        let mut bytes = 0;
        while let Some(cell) = cells.last() {
            bytes += write::estimate(cell);
            if bytes > limit_bytes && !self.taken.is_empty() {
                break;
            }
            self.taken.extend(cells.pop());
        }
        let (bytes, points, made) = write::request(*span, &self.taken);
        self.made = made;
        Some((bytes, points))
    }
}

impl Aggregated {
    /// The metrics of k6 have rows of their own.
    fn new() -> Aggregated {
        let [taken, replaced, made] = std::array::from_fn(|_| Tally::new(&K6_METRICS));
        Aggregated { taken, replaced, made }
    }

    /// Points that stay in their requests are counted where those end up.
    fn note_taken(&self, (group, points): &(Arc<Group>, u64)) {
        if !group.keeps_points() {
            self.taken.add(&group.measurement, *points);
        }
    }
}

impl Bucket {
    fn is_due(&self, watermark: u64, now: u64) -> bool {
        !self.is_late && watermark >= self.span.end || now >= self.written_at
    }
}
