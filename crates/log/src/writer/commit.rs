//! From a batch to frames that are durable.

use super::Writer;
use super::batch::{Batch, BatchFrame};
use crate::cursor_file::{CursorFile, file_name};
use crate::error::{FileError, IoContext as _};
use crate::format::{FileKind, FrameRef, SegmentHeader, VERSION};
use crate::log::budget::unix_now_ns;
use crate::log::segments::{Segment, Shed};
use crate::log::{Inner, Shared};
use crate::maintenance::cursor_state;
use crate::record::Record;
use crate::segment::{NewSegment, SegmentWriter, random_u64};
use crate::types::{CursorId, Offset};

/// Frames that become durable while the lock is held once.
const PUBLISHED_AT_ONCE: usize = 256;

impl<T: Record> Writer<T> {
    /// Writes a batch. After an error those of its frames that are not durable are still unwritten.
    pub(super) fn commit(&mut self, batch: &Batch<T>) -> Result<(), FileError> {
        self.create_cursor_files(&batch.newcomers)?;
        let written = self.append_all(batch);
        if written.is_err() {
            self.give_up_segment();
        }
        written
    }

    fn append_all(&mut self, batch: &Batch<T>) -> Result<(), FileError> {
        let mut metadata = Vec::new();
        let mut first_unsynced = 0;
        for (index, frame) in batch.frames.iter().enumerate() {
            metadata.clear();
            frame.entry.encode_metadata(&mut metadata);
            let encoded = encode(frame, &metadata, batch.readers_of(frame));
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

    fn create_cursor_files(&mut self, newcomers: &[CursorId]) -> Result<(), FileError> {
        if newcomers.is_empty() {
            return Ok(());
        }
        let mut files = self.cursor_files.lock();
        files.remove_gone(&self.shared, &self.home);
        for &id in newcomers {
            let state = {
                let inner = self.shared.inner.lock();
                // A reader that has gone meanwhile needs none.
                match cursor_state(&inner, id, self.home.log_id) {
                    Some(state) => state,
                    None => continue,
                }
            };
            let file = CursorFile::create(&*self.home.disk, &self.home.cursors_directory, &state)?;
            files.insert(id, file);
            let mut inner = self.shared.inner.lock();
            let inner = &mut *inner;
            let Some(store) = &mut inner.store else { continue };
            store.stats.cursor_writes += 1;
            match inner.cursors[id.0].as_mut() {
                Some(cursor) => cursor.has_file = true,
                None => store.gone_readers.push((id, file_name(&state.name))),
            }
        }
        Ok(())
    }

    fn open_segment_for(
        &mut self,
        first: Offset,
        len_bytes: u64,
    ) -> Result<&mut SegmentWriter, FileError> {
        if self.segment.is_none() {
            let header = SegmentHeader {
                version: VERSION,
                kind: FileKind::Log,
                log_id: self.home.log_id,
                epoch: random_u64().at(&self.home.directory, "cannot get a random number")?,
                first_offset: first,
                created_unix_ns: unix_now_ns(),
                name: self.home.name.clone(),
            };
            let len_bytes = len_bytes.max(self.home.segment_bytes);
            let new = NewSegment { directory: &self.home.directory, header, len_bytes };
            self.segment = Some(SegmentWriter::create(&*self.home.disk, new)?);
        }
        match &mut self.segment {
            Some(segment) => Ok(segment),
            None => unreachable!("it was created above"),
        }
    }

    /// Makes sure that there is a segment that can be written.
    pub(super) fn open_segment(&mut self) -> Result<(), FileError> {
        // No frame below will be written any more.
        let first = self.shared.inner.lock().store.as_ref().map_or(0, |store| store.durable_below);
        self.open_segment_for(first, 0).map(|_| ())
    }

    /// Makes the given frames durable, the last that were appended to the segment.
    fn sync(&mut self, batch: &Batch<T>, frames: std::ops::Range<usize>) -> Result<(), FileError> {
        let Some(segment) = self.segment.as_mut().filter(|_| !frames.is_empty()) else {
            return Ok(());
        };
        let bytes_before = segment.durable_end();
        segment.sync()?;
        let frames = &batch.frames[frames];
        self.shared.note_commit(segment, frames, bytes_before);
        for chunk in frames.chunks(PUBLISHED_AT_ONCE) {
            self.shared.inner.lock().publish(chunk);
            for frame in chunk {
                frame.entry.durable();
            }
        }
        Ok(())
    }

    /// Seals the open segment, all of whose frames are durable, whether that works or not.
    pub(super) fn close_segment(&mut self) {
        let open = self.segment.as_mut().filter(|segment| segment.totals().frames > 0);
        if open.is_none_or(|segment| segment.seal().is_err()) {
            return self.give_up_segment();
        }
        let Some(segment) = self.segment.take() else { return };
        let mut inner = self.shared.inner.lock();
        let store = inner.store.as_mut();
        let first = segment.header().first_offset;
        if let Some(known) = store.and_then(|store| store.segments.get_mut(first)) {
            known.is_open = false;
            known.len_bytes = segment.len_bytes();
        }
    }

    /// Never touches the open segment again. What is durable in it stays.
    pub(super) fn give_up_segment(&mut self) {
        let Some(segment) = self.segment.take() else { return };
        let first = segment.header().first_offset;
        let (path, durable_end) = (segment.path().to_owned(), segment.durable_end());
        segment.abandon();
        let is_known = {
            let mut inner = self.shared.inner.lock();
            let known = inner.store.as_mut().and_then(|store| store.segments.get_mut(first));
            if let Some(known) = known {
                known.is_open = false;
                known.len_bytes = durable_end;
                true
            } else {
                false
            }
        };
        if !is_known {
            // Nothing in it was ever durable. Should it stay, a later attempt counts.
            let _ = self.home.disk.remove_file(&path);
        }
    }
}

fn encode<'a, T: Record>(
    frame: &'a BatchFrame<T>,
    metadata: &'a [u8],
    readers: &'a [u32],
) -> FrameRef<'a> {
    FrameRef {
        offset: frame.offset,
        facts: frame.entry.facts(),
        charge: frame.charge,
        is_taken: frame.is_taken,
        readers,
        metadata,
        payload: frame.entry.payload(),
    }
}

impl<T> Shared<T> {
    /// Takes note of what a sync made durable in a segment, before its frames are published.
    fn note_commit(&self, segment: &SegmentWriter, frames: &[BatchFrame<T>], bytes_before: u64) {
        let Some(last) = frames.last().map(|frame| frame.offset) else { return };
        let header = segment.header();
        let mut inner = self.inner.lock();
        let Some(store) = &mut inner.store else { return };
        store.stats.commits += 1;
        store.stats.frames_written += frames.len() as u64;
        store.stats.bytes_written += segment.durable_end() - bytes_before;
        let known = match store.segments.get_mut(header.first_offset) {
            Some(known) => known,
            None => {
                let generation = store.segments.next_generation();
                store.segments.insert(Segment {
                    path: segment.path().to_owned(),
                    first: header.first_offset,
                    last,
                    epoch: Some(header.epoch),
                    len_bytes: segment.len_bytes(),
                    end: None,
                    is_open: true,
                    shed: Shed::No,
                    generation,
                    pins: Vec::new(),
                    unknown: Vec::new(),
                });
                self.maintenance_wake.notify_all();
                store.segments.get_mut(header.first_offset).expect("it was just inserted")
            }
        };
        known.last = last;
        known.end = Some(segment.durable_end());
    }
}

impl<T> Inner<T> {
    /// Frames became durable.
    fn publish(&mut self, frames: &[BatchFrame<T>]) {
        let Some(store) = &mut self.store else { return };
        for frame in frames {
            store.durable_below = frame.offset + 1;
            // One that is gone was resolved everywhere meanwhile.
            let Some(slot) = self.slots.get_mut(frame.offset) else { continue };
            slot.is_durable = true;
            store.unwritten_bytes -= frame.charge.bytes;
            self.memory.remove_unwritten(frame.charge.bytes);
            for &id in slot.readers.iter() {
                let Some(cursor) = self.cursors[id.0].as_mut() else { continue };
                if !cursor.is_resolved(frame.offset) {
                    cursor.unwritten.remove_charge(frame.charge);
                    cursor.publish();
                    store.segments.written(id, frame.offset, frame.charge);
                }
            }
        }
    }
}
