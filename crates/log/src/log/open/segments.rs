//! Reading the segments that a start finds: the newest, whose frames the cursor files do not count.

use std::collections::BTreeSet;
use std::path::Path;

use super::super::{Passed, Pin, Segment};
use super::Recovery;
use crate::cursors::{Cursor, UNREAD_OFFSETS};
use crate::error::{FileError, Result};
use crate::recovery::{Body, Known, Scanned, scan};
use crate::segment::{ScanOptions, SegmentScan, list_segments, list_set_aside};
use crate::types::{Charge, CursorId, Offset, Record};

impl<T: Record> Recovery<'_, T> {
    pub(super) fn read_segments(&mut self) -> Result<()> {
        let heads = self.cursors.iter().map(|(_, cursor)| cursor.stored_below);
        self.counted_from = heads.min().unwrap_or(Offset::MAX);
        self.store.set_aside = self.patience.ask(|| list_set_aside(self.disk, self.directory))?;
        let mut files = self.patience.ask(|| list_segments(self.disk, self.directory))?;
        self.take_misnamed(&mut files)?;
        self.take_attempts(&mut files);
        self.found.set_aside = self.store.set_aside.iter().map(|file| file.path.clone()).collect();
        let aside: BTreeSet<Offset> =
            self.store.set_aside.iter().map(|file| file.name.first_offset).collect();
        let mut next_first = None;
        for (name, len_bytes) in files.into_iter().rev() {
            let (first, path) = (name.first_offset, self.directory.join(name.to_string()));
            // A file that was set aside ends the one before it as well.
            let next_aside = aside.range(first + 1..).next().copied();
            let next = next_first.replace(first).into_iter().chain(next_aside).min();
            let last = next.map(|next: Offset| next - 1);
            let segment = Segment { path, first, len_bytes, ..Segment::default() };
            let segment = Segment { has_unproven_name: true, ..segment };
            match last.filter(|&last| last < self.counted_from) {
                Some(last) => self.add_segment(segment, last),
                None => self.read_segment(segment, last)?,
            }
        }
        (self.found.segments, self.found.disk_bytes) = self.store.segments.size();
        let segments = self.store.segments.by_first.values();
        let places: Vec<_> = segments.map(|it| (it.path.clone(), it.first, it.last)).collect();
        for (path, first, last) in places {
            // Readers find out what is wrong with the file.
            let _ = self.count_put_back(&path, first, last);
        }
        self.go_on_behind_set_aside();
        self.find_log_id();
        Ok(())
    }

    /// Reads a segment, unless it ends before what the cursor files count. `last` is known for all
    /// but the newest.
    fn read_segment(&mut self, segment: Segment, last: Option<Offset>) -> Result<()> {
        // Whatever is in it, no new segment may take its name.
        self.head = self.head.max(segment.first);
        let Some((mut segment, mut scan)) = self.open_segment(segment, last)? else {
            return Ok(());
        };
        self.check_log_id(&segment.path, scan.info().header.log_id)?;
        let sealed_last = sealed_last(&scan);
        segment.has_unproven_name = false;
        if let Some(sealed_last) = sealed_last.filter(|&last| last < self.counted_from) {
            self.add_segment(segment, last.unwrap_or(sealed_last));
            return Ok(());
        }
        match self.scan(&mut scan, last) {
            Err(FileError::Io { .. }) => self.keep_unread(segment, last.or(sealed_last)),
            scanned => self.take_scanned(segment, last, scan, scanned?),
        }
        Ok(())
    }

    /// None if nothing in the segment can be read: what this means is noted.
    fn open_segment(
        &mut self,
        mut segment: Segment,
        last: Option<Offset>,
    ) -> Result<Option<(Segment, SegmentScan)>> {
        let open = || SegmentScan::open_path(self.disk, &segment.path, ScanOptions::default());
        match self.patience.ask(open) {
            Err(FileError::Io { .. }) => self.keep_unread(segment, last),
            Err(FileError::Unfinished { .. }) => self.leftovers.files.push(segment.path),
            // Nothing is thrown away: the file is set aside.
            Err(FileError::NoSegment { .. } | FileError::Misnamed { .. }) => {
                self.found.frames_damaged += 1;
                segment.note_passed(&[(0, Passed::DAMAGED)], &mut self.store.stats);
                let last = last.unwrap_or(self.head.saturating_add(UNREAD_OFFSETS));
                self.add_segment(segment, last);
            }
            opened => return Ok(Some((segment, opened?))),
        }
        Ok(None)
    }

    /// Adds a segment with what its scan found, or leaves it to the clean-up.
    fn take_scanned(
        &mut self,
        mut segment: Segment,
        last: Option<Offset>,
        mut scan: SegmentScan,
        scanned: Scanned,
    ) {
        let (footer, sealed_last) = (scan.info().footer, sealed_last(&scan));
        self.found.bytes_scanned += segment.len_bytes;
        // Frames that were durable, by a cursor or a footer, were damaged since.
        let damaged_at = scan.take_damaged_at().into_iter().filter(|at| *at < scanned.end);
        self.found.frames_damaged += damaged_at.clone().count() as u64;
        let left_by_crash = damaged_at
            .filter(|at| footer.is_none() && *at >= scanned.durable_end)
            .map(|at| (at, Passed::LeftByCrash));
        segment.note_passed(&left_by_crash.collect::<Vec<_>>(), &mut self.store.stats);
        // The footer of a sealed file says what was in it. Its readers pass the damage.
        let damaged_last = sealed_last.filter(|_| !scan.damage().is_none());
        if scanned.last.is_none() && damaged_last.is_some() {
            self.found.frames_damaged += footer.map_or(0, |footer| footer.frames);
        }
        let read_last = scanned.last.max(damaged_last).max(scanned.durable_last);
        let end = scanned.end.max(scanned.durable_end).min(segment.len_bytes);
        let tail_bytes = if footer.is_none() { scan.damage_end().saturating_sub(end) } else { 0 };
        // Cursors tell of durable frames behind those that can be read: the tail was in use.
        let durable_last =
            self.durable_below().checked_sub(1).filter(|last| *last >= segment.first);
        let damaged_tail = durable_last.filter(|_| last.is_none() && tail_bytes > 0);
        if let Some(damaged_tail) = damaged_tail.filter(|last| read_last < Some(*last)) {
            self.found.frames_damaged += 1;
            let tail = (segment.first, segment.path.clone(), scan.damage_end());
            self.leftovers.tails.push(tail);
            return self.add_segment(segment, damaged_tail);
        }
        if tail_bytes > 0 {
            self.found.cut.push((segment.path.clone(), tail_bytes));
        }
        let Some(last_offset) = read_last else {
            // Only reserved space, or frames that were never acknowledged.
            return self.leftovers.files.push(segment.path);
        };
        self.head = self.head.max(last_offset + 1);
        if footer.is_none() {
            // It ends with its last frame. The rest is what a crash left of a write.
            self.leftovers.tails.push((segment.first, segment.path.clone(), end));
            segment.end = Some(end);
        }
        self.add_segment(segment, last.unwrap_or(last_offset));
    }

    /// Scans a segment, and counts its frames as unread for their readers.
    fn scan(&mut self, segment: &mut SegmentScan, last: Option<Offset>) -> Result<Scanned> {
        let known = Known { last, durable_below: self.durable_below(), reads_bodies: false };
        let mut next = 0;
        scan(segment, self.patience, known, |readers, header, body| {
            // A frame that was written twice counts once.
            if !matches!(body, Body::Damaged) && header.offset >= next {
                next = header.offset + 1;
                self.count(readers, header.offset, header.charge);
            }
        })
    }

    /// Counts the frames of a file that was put back as unread: those that can be read and that
    /// count as lost by the files of their readers.
    fn count_put_back(&mut self, path: &Path, first: Offset, last: Offset) -> Result<()> {
        let end = last.saturating_add(1);
        if !self.cursors.iter().any(|(_, cursor)| cursor.written_off.overlaps(first, end)) {
            return Ok(());
        }
        let open = || SegmentScan::open_path(self.disk, path, ScanOptions::default());
        let mut scan = self.patience.ask(open)?;
        while let Some(located) = self.patience.ask(|| scan.next_frame())? {
            let (offset, charge) = (located.header.offset, located.header.charge);
            let readers = scan.readers().to_vec();
            let waits = |cursor: &Cursor<T>| {
                let is_reader = readers.contains(&cursor.persistent_id);
                offset <= last && is_reader && cursor.written_off.contains(offset)
            };
            if !self.cursors.iter().any(|(_, cursor)| waits(cursor)) {
                continue;
            }
            let record = self.patience.ask(|| scan.body())?;
            if record.is_none_or(|record| T::decode(record).is_err()) {
                continue;
            }
            for (_, cursor) in self.cursors.iter_mut().filter(|(_, cursor)| waits(cursor)) {
                cursor.unread.add(charge);
                cursor.written_off.remove_run(offset, offset + 1);
            }
        }
        Ok(())
    }

    /// Adds a segment that could not be read: its readers wait for the disk there. Its frames are
    /// missing in their counts, as after a crash.
    fn keep_unread(&mut self, segment: Segment, last: Option<Offset>) {
        let last = last.unwrap_or(self.head.saturating_add(UNREAD_OFFSETS));
        self.found.unread.push(segment.path.clone());
        self.add_segment(segment, last);
    }

    /// Counts a frame as unread for its readers, unless their files have it resolved or counted.
    fn count(&mut self, readers: &[u32], offset: Offset, charge: Charge) {
        for (_, cursor) in &mut self.cursors {
            let is_counted = offset < cursor.stored_below;
            let is_reader = readers.contains(&cursor.persistent_id);
            if is_reader && !is_counted && !cursor.is_resolved(offset) {
                cursor.unread.add(charge);
            }
        }
    }

    fn add_segment(&mut self, segment: Segment, last: Offset) {
        self.head = self.head.max(last.saturating_add(1));
        // The needs of a lost reader are not known: it pins every segment.
        let needs = |index: &usize| {
            self.cursors.get(*index).is_none_or(|(_, cursor)| {
                let from = cursor.floor.max(segment.first);
                from <= last && cursor.resolved.end_of_run_at(from).is_none_or(|end| end <= last)
            })
        };
        let readers = self.cursors.len() + self.found.lost_cursors.len();
        let pin = Pin { may_be_more: true, ..Pin::default() };
        let pins = (0..readers).filter(needs).map(|index| (CursorId(index), pin)).collect();
        self.store.segments.insert(Segment { last, pins, ..segment });
    }
}

/// The last frame of a sealed segment.
fn sealed_last(scan: &SegmentScan) -> Option<Offset> {
    let footer = scan.info().footer.filter(|footer| footer.frames > 0);
    footer.map(|footer| footer.last_offset)
}
