//! Batches: frames that are written with one sync, and how they become durable.

use std::ops::Range;
use std::sync::Arc;

use super::Writer;
use crate::cursor_file::{CursorFile, file_name};
use crate::disk::sync_above;
use crate::error::{FileError, IoContext as _, Result};
use crate::format::FrameRef;
use crate::log::segments::{Change, Segment};
use crate::log::{Inner, Shared};
use crate::maintenance::{cursor_state, remove_gone};
use crate::record::Record;
use crate::segment::SegmentWriter;
use crate::types::{Charge, CursorId, Offset};

/// Charge of a batch: enough for full speed. More would make the frames that come next wait.
const BATCH_LIMIT_BYTES: u64 = 8 << 20;
/// While space is short, segments are made shorter, down to this. The rest is left for cursors and
/// dead letters: without them, no space would become free.
const SHORTEST_SEGMENT_BYTES: u64 = 1 << 20;
/// At most this many frames are looked at, or become durable, under one lock.
const FRAMES_AT_ONCE: usize = 256;

struct BatchFrame<T> {
    offset: Offset,
    entry: Arc<T>,
    charge: Charge,
    is_taken: bool,
    /// Index range of its readers in [`Batch::readers`].
    readers: Range<usize>,
}

/// Unresolved frames that are not durable, in order of offsets.
pub(super) struct Batch<T> {
    frames: Vec<BatchFrame<T>>,
    /// Persistent ids of the readers of all frames.
    readers: Vec<u32>,
    /// Readers that have no file yet.
    newcomers: Vec<CursorId>,
}

impl<T> Batch<T> {
    /// All frames that may be written now, up to the limit. None if there are none.
    pub(super) fn collect(shared: &Shared<T>) -> Option<Self> {
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

impl<T: Record> Writer<T> {
    /// Writes a batch. After an error, the frames that are not durable can be collected again.
    pub(super) fn commit(&mut self, batch: &Batch<T>) -> Result<()> {
        if !batch.newcomers.is_empty() || !self.has_durable_names {
            self.has_durable_names = false;
            self.create_cursor_files(&batch.newcomers)?;
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

    /// Creates the files of new readers. Then the names of all cursor files are durable, and the
    /// list on disk has them.
    fn create_cursor_files(&mut self, newcomers: &[CursorId]) -> Result<()> {
        let (disk, options) = (&*self.home.options.disk, &self.home.options);
        let mut files = self.home.cursor_files.lock();
        remove_gone(&mut files, &self.shared, &self.home);
        if !files.lost.is_empty() {
            // A new file must not pass for a lost one of its name.
            files.list_all(disk, &options.directory)?;
        }
        for &id in newcomers {
            let state = cursor_state(&self.shared.inner.lock(), id, self.home.log_id);
            // A reader that has been removed meanwhile needs no file.
            let Some(state) = state else { continue };
            let file_name = file_name(&state.name);
            let path = self.home.cursors_directory.join(&file_name);
            let file = CursorFile::create(disk, &path, &state)?;
            files.by_reader.insert(id, file);
            let mut inner = self.shared.inner.lock();
            inner.on_disk().stats.cursor_writes += 1;
            match inner.cursors[id.0].as_mut() {
                Some(cursor) => cursor.has_file = true,
                None => inner.on_disk().gone_readers.push((id, file_name)),
            }
        }
        if self.has_unsynced_names {
            let directory = &options.directory;
            for own in [&self.home.cursors_directory, directory] {
                disk.sync_directory(own).at(own, "cannot sync the directory")?;
            }
            sync_above(disk, directory).at(directory, "cannot sync the directories above")?;
            self.has_unsynced_names = false;
        }
        files.list_all(disk, &options.directory)
    }

    pub(super) fn open_segment_for(
        &mut self,
        first: Offset,
        len_bytes: u64,
    ) -> Result<&mut SegmentWriter> {
        if self.segment.is_none() {
            self.segment = Some(self.create_segment(first, len_bytes)?);
        }
        Ok(self.segment.as_mut().expect("it was created above"))
    }

    /// Creates a segment of the usual length, or of at least `needed_bytes` where the disk has not
    /// so much left.
    fn create_segment(&mut self, first: Offset, needed_bytes: u64) -> Result<SegmentWriter> {
        let (usual_bytes, directory) =
            (self.home.options.segment_bytes, &self.home.options.directory);
        let least_bytes = needed_bytes.max(usual_bytes.min(SHORTEST_SEGMENT_BYTES));
        let mut len_bytes = needed_bytes.max(usual_bytes);
        if self.has_no_space {
            // The longer ones have been tried.
            len_bytes = least_bytes;
        }
        loop {
            match self.home.create_segment(directory, first, len_bytes) {
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
    pub(super) fn close_segment(&mut self) {
        let open = self.segment.as_mut().filter(|segment| segment.totals().frames > 0);
        if open.is_none_or(|segment| segment.seal().is_err()) {
            return self.give_up_segment();
        }
        let Some(segment) = self.segment.take() else { return };
        self.shared.close_known(segment.header().first_offset, segment.len_bytes());
    }

    /// Never touches the open segment again. Its durable frames stay.
    pub(super) fn give_up_segment(&mut self) {
        let Some(segment) = self.segment.take() else { return };
        let first = segment.header().first_offset;
        let (path, durable_end) = (segment.path().to_owned(), segment.durable_end());
        segment.abandon();
        if !self.shared.close_known(first, durable_end) {
            // Nothing in it was ever durable. If the file stays, a later attempt counts.
            let _ = self.home.options.disk.remove_file(&path);
        }
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
