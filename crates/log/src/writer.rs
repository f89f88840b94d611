//! The writer thread: makes due frames durable, with all other unwritten frames in one sync (group
//! commit).
//!
//! Invariants
//! - A frame is written as soon as it is due ([`crate::OpenOptions::flush_after`]), with every
//!   unresolved frame that was appended before it. While readers resolve frames before they are
//!   due, nothing is written, and the thread wakes up only as often as frames come due.
//! - A frame is called durable after the sync of its segment, whose directory entry is durable, and
//!   after all its readers have durable cursor files, which the list on disk names: without one, a
//!   restart would not know that the frame is for a reader. The names that were found at the start
//!   may not be durable: a process may have ended before it synced the directory.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::cursors::CursorFiles;
use crate::disk::remove_if_there;
use crate::error::{FileError, Result};
use crate::format::FrameRef;
use crate::log::{Change, Ends, Home, Inner, Segment, Shared};
use crate::segment::SegmentWriter;
use crate::types::{Charge, CursorId, Offset, Record};

/// At most this many changes by other processes are told at a time.
const DISTURBANCES_LIMIT: usize = 16;
/// Waits before a disk that failed is tried again, doubled up to `RETRY_MAX`. While only space is
/// missing the wait stays at `RETRY_MIN`: space may be given up at any time.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// An unneeded segment is given up after this many maintenance intervals without a write.
const IDLE_INTERVALS: u32 = 10;
/// Charge of a batch: enough for full speed. More would make the frames that come next wait.
const BATCH_LIMIT_BYTES: u64 = 8 << 20;
/// While space is short, segments are made shorter, down to this. The rest is left for cursors and
/// dead letters: without them, no space would become free.
const SHORTEST_SEGMENT_BYTES: u64 = 1 << 20;
/// At most this many frames are looked at, or become durable, under one lock.
const FRAMES_AT_ONCE: usize = 256;

pub(crate) struct Writer<T> {
    shared: Arc<Shared<T>>,
    home: Home,
    files: Arc<Mutex<CursorFiles>>,
    /// All cursor files have durable names, and the list on disk has them.
    has_durable_names: bool,
    /// Not even the shortest segment had space.
    has_no_space: bool,
    segment: Option<SegmentWriter>,
    committed: Instant,
    retry_after: Duration,
}

enum Work {
    Commit,
    /// Nothing was written for a while and no reader needs the open segment.
    GiveUpSegment,
    /// Everything is written and the log closes.
    Close,
    End,
}

impl<T: Record> Writer<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>, home: Home, files: Arc<Mutex<CursorFiles>>) -> Self {
        Writer {
            shared,
            home,
            files,
            has_durable_names: false,
            has_no_space: false,
            segment: None,
            committed: Instant::now(),
            retry_after: RETRY_MIN,
        }
    }

    pub(crate) fn run(mut self) {
        loop {
            match self.wait_for_work() {
                Work::Commit => self.write(),
                Work::GiveUpSegment => self.give_up_segment(),
                Work::Close => break self.close_segment(),
                Work::End => break,
            }
        }
        self.shared.with_store(|store| store.writer_has_ended = true);
        self.shared.maintenance_wake.notify_all();
    }

    fn wait_for_work(&mut self) -> Work {
        let shared = self.shared.clone();
        let mut inner = shared.inner.lock();
        loop {
            self.let_go(&mut inner);
            let now = Instant::now();
            inner.pass_resolved();
            inner.note_lags(now);
            let due_at = inner.due_at();
            let idle_at = self.committed + self.home.options.keep_interval * IDLE_INTERVALS;
            let idle_at = self.segment.is_some().then_some(idle_at);
            let Inner { store: Some(store), slots, .. } = &mut *inner else { return Work::End };
            match store.ends {
                Ends::Now => return Work::End,
                Ends::Closing if store.durable_below == slots.head() => return Work::Close,
                Ends::Closing => return Work::Commit,
                Ends::No => {}
            }
            if due_at.is_some_and(|at| at <= now) || store.trouble.is_some() {
                return Work::Commit;
            }
            if idle_at.is_some_and(|at| at <= now) {
                self.committed = now;
                if self.open_segment_is_unpinned(&mut inner) {
                    return Work::GiveUpSegment;
                }
                continue;
            }
            store.writer_is_idle = due_at.is_none();
            match due_at.into_iter().chain(idle_at).min() {
                Some(at) => {
                    shared.writer_wake.wait_until(&mut inner, at);
                }
                None => shared.writer_wake.wait(&mut inner),
            }
            inner.on_disk().writer_is_idle = false;
        }
    }

    /// Evicts frames from memory that need not be there, and frees them without the lock.
    fn let_go(&self, inner: &mut MutexGuard<'_, Inner<T>>) {
        loop {
            let evicted = inner.evict();
            if evicted.is_empty() {
                return;
            }
            MutexGuard::unlocked(inner, || drop(evicted));
        }
    }

    fn open_segment_is_unpinned(&self, inner: &mut Inner<T>) -> bool {
        inner.update_pins();
        let open = inner.on_disk().segments.by_first.values().find(|segment| segment.is_open);
        open.is_none_or(|segment| !segment.is_pinned())
    }

    fn write(&mut self) {
        let is_lost = self.shared.with_store(|store| store.directory_is_lost);
        let restored = match is_lost {
            true => self.files.lock().restore_directory(&self.shared, &self.home),
            false => Ok(()),
        };
        let result = restored.and_then(|()| match Batch::collect(&self.shared) {
            Some(batch) => self.commit(&batch),
            None => self.probe(),
        });
        match result {
            Ok(()) => {
                self.committed = Instant::now();
                self.retry_after = RETRY_MIN;
                self.shared.with_store(|store| store.trouble = None);
            }
            Err(error) => {
                if error.is_gone() {
                    self.shared.with_store(|store| store.directory_is_lost = true);
                }
                if error.is_disturbance() {
                    self.shared.with_store(|store| {
                        store.stats.disturbed_files += 1;
                        if store.disturbances.len() < DISTURBANCES_LIMIT {
                            store.disturbances.push(error.to_string());
                        }
                    });
                }
                self.wait_to_try_again(&error);
            }
        }
    }

    /// After trouble, when no frame is left to write: a new segment shows whether the disk works.
    fn probe(&mut self) -> Result<()> {
        // No frame below this offset will be written any more.
        let (has_trouble, first) =
            self.shared.with_store(|store| (store.trouble.is_some(), store.durable_below));
        if has_trouble { self.open_segment_for(first, 0).map(drop) } else { Ok(()) }
    }

    fn wait_to_try_again(&mut self, error: &FileError) {
        let until = Instant::now() + self.retry_after;
        let longest = if error.is_out_of_space() { RETRY_MIN } else { RETRY_MAX };
        self.retry_after = (self.retry_after * 2).min(longest);
        let mut inner = self.shared.inner.lock();
        let store = inner.on_disk();
        store.trouble = Some(error.trouble(true));
        store.stats.failures += 1;
        let goes_on = |inner: &mut Inner<T>| inner.on_disk().ends != Ends::Now;
        self.shared.writer_wake.wait_while_until(&mut inner, goes_on, until);
    }

    /// Writes a batch. After an error, the frames that are not durable can be collected again.
    fn commit(&mut self, batch: &Batch<T>) -> Result<()> {
        if !batch.newcomers.is_empty() || !self.has_durable_names {
            self.has_durable_names = false;
            self.files.lock().create(&batch.newcomers, &self.shared, &self.home)?;
            self.has_durable_names = true;
        }
        let written = self.append_all(batch);
        if written.is_err() {
            self.give_up_segment();
        }
        written
    }

    fn append_all(&mut self, batch: &Batch<T>) -> Result<()> {
        let mut metadata = Vec::new();
        let mut first_unsynced = 0;
        for (index, frame) in batch.frames.iter().enumerate() {
            metadata.clear();
            frame.entry.encode_metadata(&mut metadata);
            let encoded = FrameRef {
                offset: frame.offset,
                facts: frame.entry.facts(),
                charge: frame.charge,
                is_taken: frame.is_taken,
                readers: &batch.readers[frame.readers.clone()],
                metadata: &metadata,
                payload: frame.entry.payload(),
            };
            if self.segment.as_ref().is_some_and(|segment| !segment.fits(&encoded)) {
                self.sync(batch, first_unsynced..index)?;
                first_unsynced = index;
                self.close_segment();
            }
            let len_bytes = SegmentWriter::len_for(&encoded);
            self.open_segment_for(frame.offset, len_bytes)?.append(&encoded)?;
        }
        self.sync(batch, first_unsynced..batch.frames.len())
    }

    fn open_segment_for(&mut self, first: Offset, len_bytes: u64) -> Result<&mut SegmentWriter> {
        if self.segment.is_none() {
            self.shared.with_store(|store| store.refuse_to_fill_up())?;
            self.segment = Some(self.create_segment(first, len_bytes)?);
        }
        Ok(self.segment.as_mut().expect("it was created above"))
    }

    /// Creates a segment of the usual length, or of at least `needed_bytes` where the disk has not
    /// so much left.
    fn create_segment(&mut self, first: Offset, needed_bytes: u64) -> Result<SegmentWriter> {
        let usual_bytes = self.home.options.segment_bytes;
        let least_bytes = needed_bytes.max(usual_bytes.min(SHORTEST_SEGMENT_BYTES));
        let mut len_bytes = needed_bytes.max(usual_bytes);
        if self.has_no_space {
            // The longer ones have been tried.
            len_bytes = least_bytes;
        }
        loop {
            let mut left = Vec::new();
            let directory = &self.home.options.directory;
            let created = self.home.create_segment(directory, first, len_bytes, &mut left);
            self.shared.with_store(|store| left.into_iter().for_each(|path| store.leave(path)));
            match created {
                Err(error) if error.is_out_of_space() && len_bytes > least_bytes => {
                    len_bytes = (len_bytes / 2).max(least_bytes);
                }
                Err(error) => {
                    self.has_no_space = error.is_out_of_space();
                    return Err(error);
                }
                Ok(segment) => {
                    self.has_no_space = false;
                    return Ok(segment);
                }
            }
        }
    }

    /// Makes frames durable: the last ones that were appended to the segment.
    fn sync(&mut self, batch: &Batch<T>, frames: Range<usize>) -> Result<()> {
        let Some(segment) = self.segment.as_mut().filter(|_| !frames.is_empty()) else {
            return Ok(());
        };
        let bytes_before = segment.durable_end();
        segment.sync()?;
        if self.shared.with_store(|store| store.directory_is_lost) {
            // It may be in the new directory, where the files of its readers are missing.
            return Err(FileError::Removed { path: segment.path().to_owned() });
        }
        let frames = &batch.frames[frames];
        self.shared.note_commit(segment, frames, bytes_before);
        for chunk in frames.chunks(FRAMES_AT_ONCE) {
            self.shared.inner.lock().publish(chunk);
            for frame in chunk {
                frame.entry.durable();
            }
        }
        Ok(())
    }

    /// Seals the open segment, all of whose frames are durable. If that fails, it is given up.
    fn close_segment(&mut self) {
        let open = self.segment.as_mut().filter(|segment| segment.totals().frames > 0);
        if open.is_none_or(|segment| segment.seal().is_err()) {
            return self.give_up_segment();
        }
        let Some(segment) = self.segment.take() else { return };
        self.shared.close_known(segment.header().first_offset, segment.len_bytes());
    }

    /// Never touches the open segment again. Its durable frames stay.
    fn give_up_segment(&mut self) {
        let Some(segment) = self.segment.take() else { return };
        let first = segment.header().first_offset;
        let (path, durable_end) = (segment.path().to_owned(), segment.durable_end());
        segment.abandon();
        if !self.shared.close_known(first, durable_end) {
            // Nothing in it was ever durable. If the file stays, a later attempt counts.
            if remove_if_there(&*self.home.options.disk, &path).is_err() {
                self.shared.with_store(|store| store.leave(path));
            }
        }
    }
}

struct BatchFrame<T> {
    offset: Offset,
    entry: Arc<T>,
    charge: Charge,
    is_taken: bool,
    /// Index range of its readers in [`Batch::readers`].
    readers: Range<usize>,
}

/// Unresolved frames that are not durable, in order of offsets.
struct Batch<T> {
    frames: Vec<BatchFrame<T>>,
    /// Persistent ids of the readers of all frames.
    readers: Vec<u32>,
    /// Readers that have no file yet.
    newcomers: Vec<CursorId>,
}

impl<T> Batch<T> {
    /// All frames that may be written now, up to the limit. None if there are none.
    fn collect(shared: &Shared<T>) -> Option<Self> {
        let mut batch = Batch { frames: Vec::new(), readers: Vec::new(), newcomers: Vec::new() };
        let mut bytes = 0;
        let (mut offset, until) = {
            let mut inner = shared.inner.lock();
            let head = inner.slots.head();
            let store = inner.on_disk();
            store.due_below = head;
            (store.durable_below, head)
        };
        while offset < until && bytes < BATCH_LIMIT_BYTES {
            let inner = shared.inner.lock();
            for _ in 0..FRAMES_AT_ONCE {
                offset = inner.slots.next_live(offset);
                if offset >= until || bytes >= BATCH_LIMIT_BYTES {
                    break;
                }
                bytes += batch.add(&inner, offset);
                offset += 1;
            }
        }
        (!batch.frames.is_empty()).then_some(batch)
    }

    /// Adds a frame for the readers that have not resolved it. Returns its charge in bytes.
    fn add(&mut self, inner: &Inner<T>, offset: Offset) -> u64 {
        let Some(slot) = inner.slots.get(offset).filter(|slot| !slot.is_durable) else { return 0 };
        let start = self.readers.len();
        for &id in slot.readers.iter() {
            let cursor = inner.cursors[id.0].as_ref();
            let Some(cursor) = cursor.filter(|it| !it.is_resolved(offset)) else { continue };
            self.readers.push(cursor.persistent_id);
            if !cursor.has_file && !self.newcomers.contains(&id) {
                self.newcomers.push(id);
            }
        }
        let readers = start..self.readers.len();
        self.frames.push(BatchFrame {
            offset,
            entry: slot.entry.clone(),
            charge: slot.charge,
            is_taken: slot.is_taken,
            readers,
        });
        slot.charge.bytes
    }
}

impl<T> Shared<T> {
    /// Marks a segment as closed. False if nothing in it ever became durable.
    fn close_known(&self, first: Offset, len_bytes: u64) -> bool {
        self.with_store(|store| {
            let known = store.segments.by_first.get_mut(&first);
            known.map(|known| (known.is_open, known.len_bytes) = (false, len_bytes)).is_some()
        })
    }

    /// Records what a sync made durable in a segment, before its frames are published.
    fn note_commit(&self, segment: &SegmentWriter, frames: &[BatchFrame<T>], bytes_before: u64) {
        let Some(last) = frames.last().map(|frame| frame.offset) else { return };
        let header = segment.header();
        let mut inner = self.inner.lock();
        let store = inner.on_disk();
        store.stats.commits += 1;
        store.stats.frames_written += frames.len() as u64;
        store.stats.bytes_written += segment.durable_end() - bytes_before;
        let (first, end) = (header.first_offset, Some(segment.durable_end()));
        let committed_bytes = frames.iter().map(|frame| frame.charge.bytes).sum();
        if let Some(known) = store.segments.by_first.get_mut(&first) {
            (known.last, known.end) = (last, end);
            known.committed_bytes += committed_bytes;
            return;
        }
        let (path, len_bytes) = (segment.path().to_owned(), segment.len_bytes());
        let (epoch, is_open) = (Some(header.epoch), true);
        store.segments.insert(Segment {
            path,
            first,
            last,
            epoch,
            len_bytes,
            committed_bytes,
            end,
            is_open,
            ..Segment::default()
        });
    }
}

impl<T> Inner<T> {
    /// Raises `durable_below` over frames that are durable or resolved everywhere.
    fn pass_resolved(&mut self) {
        let Some(store) = &mut self.store else { return };
        let mut live = self.slots.live_from(store.durable_below);
        let unwritten = live.find(|(_, slot)| !slot.is_durable);
        store.durable_below = unwritten.map_or(self.slots.head(), |(offset, _)| offset);
    }

    /// Time at which something has to be written. Call [`Inner::pass_resolved`] before.
    fn due_at(&self) -> Option<Instant> {
        let store = self.store.as_ref()?;
        let oldest = self.slots.get(store.durable_below)?;
        let is_due = store.durable_below < store.due_below
            || self.memory.stored_bytes.get() > store.memory_limit_bytes;
        Some(if is_due { oldest.appended } else { oldest.appended + store.flush_after })
    }

    /// Marks the readers that have left a frame unread for longer than a frame may wait for them.
    fn note_lags(&mut self, now: Instant) {
        let Some(after) = self.store.as_ref().map(|store| store.flush_after) else { return };
        for id in (0..self.cursors.len()).map(CursorId) {
            let Some(cursor) = &self.cursors[id.0] else { continue };
            let lags = cursor.unread.frames > 0 && self.has_unread_for(id, now, after);
            self.cursor_mut(id).lags = lags;
        }
    }

    fn has_unread_for(&mut self, id: CursorId, now: Instant, age: Duration) -> bool {
        if self.cursor(id).next < self.evicted_below() {
            return true;
        }
        let slot = self.first_unread_offset(id).and_then(|offset| self.slots.get(offset));
        slot.is_some_and(|slot| slot.appended + age <= now)
    }

    fn publish(&mut self, frames: &[BatchFrame<T>]) {
        let Some(store) = &mut self.store else { return };
        for frame in frames {
            store.durable_below = frame.offset + 1;
            // Its slot is gone: every reader resolved it meanwhile.
            let Some(slot) = self.slots.get_mut(frame.offset) else { continue };
            slot.is_durable = true;
            store.unwritten_bytes -= frame.charge.bytes;
            self.memory.unwritten_bytes.remove(frame.charge.bytes);
            for &id in slot.readers.iter() {
                let Some(cursor) = self.cursors[id.0].as_mut() else { continue };
                if !cursor.is_resolved(frame.offset) {
                    cursor.unwritten.remove(frame.charge);
                    cursor.publish();
                    store.segments.note(Change::Written, id, frame.offset, frame.charge);
                }
            }
        }
    }
}
