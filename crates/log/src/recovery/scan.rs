//! Finds the readers and the segments on disk.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cursor::Cursor;
use crate::cursor_file::{CURSOR_EXTENSION, CursorFile, TEMPORARY_EXTENSION, UNREAD_OFFSETS};
use crate::cursor_list;
use crate::disk::Disk;
use crate::error::{FileError, IoContext as _, Result};
use crate::format::CursorState;
use crate::log::segments::{Passed, Pin, Segment, Segments};
use crate::maintenance::Leftovers;
use crate::options::Recovered;
use crate::record::Record;
use crate::segment::{
    ReaderOptions, SegmentReader, SetAside, list_if_there, list_segments, list_set_aside,
};
use crate::types::{Charge, CursorId, DiskTrouble, LogStats, Offset};

/// Wait before an operation that the disk refused is tried again.
const RETRY: Duration = Duration::from_millis(200);

pub(super) struct Recovery<'a, T> {
    disk: &'a dyn Disk,
    directory: &'a Path,
    /// Until this time, operations that the disk refused are tried again.
    patient_until: Instant,
    pub(super) log_id: Option<u128>,
    pub(super) cursors: Vec<(CursorFile, Cursor<T>)>,
    /// Readers' files of which nothing can be read, and the names that they get.
    damaged: Vec<(PathBuf, String)>,
    /// The list of the readers' files, if it is known.
    pub(super) listed: Option<BTreeSet<String>>,
    /// Names under which everything on disk is kept for lost readers.
    pub(super) lost: Vec<String>,
    pub(super) segments: Segments,
    pub(super) set_aside: Vec<SetAside>,
    pub(super) stats: LogStats,
    pub(super) leftovers: Leftovers,
    pub(super) found: Recovered,
    pub(super) cursor_trouble: Option<DiskTrouble>,
    pub(super) head: Offset,
    /// The readers' files count their backlog below this offset; above it, the scan counts.
    counted_from: Offset,
}

impl<'a, T: Record> Recovery<'a, T> {
    pub(super) fn new(disk: &'a dyn Disk, directory: &'a Path, patience: Duration) -> Self {
        Recovery {
            disk,
            directory,
            patient_until: Instant::now() + patience,
            log_id: None,
            cursors: Vec::new(),
            damaged: Vec::new(),
            listed: None,
            lost: Vec::new(),
            segments: Segments::default(),
            set_aside: Vec::new(),
            stats: LogStats::default(),
            leftovers: Leftovers::default(),
            found: Recovered::default(),
            cursor_trouble: None,
            head: 0,
            counted_from: Offset::MAX,
        }
    }

    pub(super) fn read_cursors(&mut self, directory: &Path) -> Result<()> {
        self.listed = match self.patiently(|| cursor_list::read(self.disk, self.directory)) {
            Err(FileError::DamagedList { path }) => {
                self.found.damaged_list = Some(path);
                None
            }
            listed => listed?,
        };
        let list = || self.disk.list(directory).at(directory, "cannot list");
        let mut entries = self.patiently(list)?;
        entries.retain(|entry| !entry.is_directory);
        let mut damaged = Vec::new();
        for entry in &entries {
            let path = directory.join(&entry.name);
            if entry.name.ends_with(TEMPORARY_EXTENSION) {
                self.leftovers.files.push(path);
            } else if entry.name.ends_with(CURSOR_EXTENSION) && self.read_cursor(&path)? {
                damaged.push(entry.name.clone());
            }
        }
        let segments = self.patiently(|| list_segments(self.disk, self.directory))?;
        let found = cursor_list::Found {
            entries: &entries,
            listed: self.listed.as_ref(),
            has_segments: !segments.is_empty(),
        };
        let (lost, damaged) = found.lost(damaged);
        self.damaged =
            damaged.into_iter().map(|(name, aside)| (directory.join(name), aside)).collect();
        self.lost = lost.into_iter().collect();
        self.found.cursors = self.cursors.len() as u64;
        self.found.lost_cursors = self.lost.clone();
        Ok(())
    }

    /// Files without a frame, which a failed write may leave, are of no reader.
    pub(super) fn forget_unknown_without_segments(&mut self) {
        if self.segments.by_first.is_empty() {
            self.lost.retain(|name| !cursor_list::is_unknown(name));
            self.found.lost_cursors = self.lost.clone();
        }
    }

    /// Renames the readers' files of which nothing can be read.
    pub(super) fn set_damaged_cursors_aside(&self) -> Result<()> {
        for (path, aside) in &self.damaged {
            self.patiently(|| match self.disk.rename(path, &path.with_file_name(aside)) {
                // An earlier try renamed it and was answered with an error.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                renamed => renamed.at(path, "cannot set aside"),
            })?;
        }
        Ok(())
    }

    /// True if nothing in the file can be read, although the disk does not refuse to.
    fn read_cursor(&mut self, path: &Path) -> Result<bool> {
        let opened = self.patiently(|| CursorFile::open(self.disk, path));
        let opened = match opened {
            Err(FileError::Io { .. }) => CursorFile::open_in_part(self.disk, path),
            opened => opened.map(|(file, state)| (file, state, None)),
        };
        let (file, state, refused) = match opened {
            Err(FileError::DamagedCursor { .. }) => return Ok(true),
            opened => opened?,
        };
        self.check_log_id(path, state.log_id)?;
        let last_end = state.resolved.last().map_or(0, |&(_, end)| end);
        let mut head = last_end.max(state.floor).max(state.head);
        let mut cursor = Cursor::from_state(state);
        if let Some(refused) = refused {
            self.cursor_trouble = Some(refused.trouble(false));
            self.found.cursors_refused.push(path.to_owned());
            head = head.saturating_add(UNREAD_OFFSETS);
            // The next write replaces the file, and with it the refused slot.
            cursor.is_changed = true;
        }
        self.head = self.head.max(head);
        self.cursors.push((file, cursor));
        Ok(false)
    }

    fn check_log_id(&mut self, path: &Path, log_id: u128) -> Result<()> {
        // Zero stands for an unknown log.
        if log_id != 0 && *self.log_id.get_or_insert(log_id) != log_id {
            return Err(FileError::Foreign { path: path.to_owned() });
        }
        Ok(())
    }

    pub(super) fn read_segments(&mut self) -> Result<()> {
        let heads = self.cursors.iter().map(|(_, cursor)| cursor.stored_below);
        self.counted_from = heads.min().unwrap_or(Offset::MAX);
        self.set_aside = self.patiently(|| list_set_aside(self.disk, self.directory))?;
        self.found.set_aside = self.set_aside.iter().map(|file| file.path.clone()).collect();
        let aside: BTreeSet<Offset> =
            self.set_aside.iter().map(|file| file.name.first_offset).collect();
        let mut next_first = None;
        let files = self.patiently(|| list_segments(self.disk, self.directory))?;
        for (name, len_bytes) in files.into_iter().rev() {
            let (first, path) = (name.first_offset, self.directory.join(name.to_string()));
            if next_first == Some(first) {
                // The latest attempt counts: no frame in the earlier ones was ever durable.
                self.leftovers.files.push(path);
                continue;
            }
            // A file that was set aside ends the one before it as well.
            let next_aside = aside.range(first + 1..).next().copied();
            let next = next_first.replace(first).into_iter().chain(next_aside).min();
            let last = next.map(|next: Offset| next - 1);
            let segment = Segment { path, first, len_bytes, ..Segment::default() };
            match last.filter(|&last| last < self.counted_from) {
                Some(last) => self.add_segment(segment, last),
                None => self.read_segment(segment, last)?,
            }
        }
        (self.found.segments, self.found.disk_bytes) = self.segments.size();
        let segments = self.segments.by_first.values();
        let places: Vec<_> = segments.map(|it| (it.path.clone(), it.first, it.last)).collect();
        for (path, first, last) in places {
            // Readers find out what is wrong with the file.
            let _ = self.count_put_back(&path, first, last);
        }
        self.go_on_behind_set_aside();
        Ok(())
    }

    /// The offsets in the newest file that was set aside are not given again: readers may know of
    /// none of them. Without readers, the files stay files of this log.
    fn go_on_behind_set_aside(&mut self) {
        let newest = self.set_aside.last().map(|file| file.name.first_offset);
        let Some(newest) = newest else { return };
        if self.segments.by_first.keys().next_back().is_none_or(|&first| first <= newest) {
            self.head = self.head.max(newest.saturating_add(UNREAD_OFFSETS));
        }
        for file in self.set_aside.iter().filter(|_| self.cursors.is_empty()) {
            let opened = SegmentReader::open_path(self.disk, &file.path, ReaderOptions::default());
            let log_id = opened.ok().map(|reader| reader.info().header.log_id);
            self.log_id = self.log_id.or(log_id.filter(|id| *id != 0));
        }
    }

    /// Between a file that was set aside and the next one, readers pass what they have not
    /// resolved, as they did when they came to it. Only a file that was put back is read again.
    pub(super) fn pass_what_is_set_aside(&mut self) {
        let aside: BTreeSet<Offset> =
            self.set_aside.iter().map(|file| file.name.first_offset).collect();
        let mut firsts: BTreeSet<Offset> = self.segments.by_first.keys().copied().collect();
        firsts.extend(&aside);
        for first in aside.into_iter().filter(|first| !self.segments.by_first.contains_key(first)) {
            let until = firsts.range(first + 1..).next().copied().unwrap_or(self.head);
            self.cursors.iter_mut().for_each(|(_, cursor)| cursor.pass_unresolved(first, until));
        }
    }

    /// Finds segments that an earlier process had not finished rewriting. Best effort.
    pub(super) fn find_unfinished(&mut self, directory: &Path) {
        let left = list_if_there(self.disk, directory).unwrap_or_default();
        self.leftovers.files.extend(left.into_iter().map(|left| directory.join(left.name)));
    }

    /// Scans the frames of a segment. `last` is known for all segments but the newest.
    fn read_segment(&mut self, mut segment: Segment, last: Option<Offset>) -> Result<()> {
        let (first, path) = (segment.first, &segment.path);
        // Whatever is in it, no new segment may take its name.
        self.head = self.head.max(first);
        let open = || SegmentReader::open_path(self.disk, path, ReaderOptions::default());
        let opened = match self.patiently(open) {
            Err(FileError::Io { .. }) => {
                self.keep_unread(segment, last);
                return Ok(());
            }
            Err(FileError::Unfinished { .. }) => {
                self.leftovers.files.push(segment.path);
                return Ok(());
            }
            reader => reader.and_then(|reader| reader.check_name(first).map(|()| reader)),
        };
        let mut reader = match opened {
            // Nothing in it can be read, and nothing is thrown away: the file is set aside.
            Err(FileError::NoSegment { .. } | FileError::Misnamed { .. }) => {
                self.found.frames_damaged += 1;
                segment.note_passed(&[(0, Passed::DAMAGED)], &mut self.stats);
                let last = last.unwrap_or(self.head.saturating_add(UNREAD_OFFSETS));
                self.add_segment(segment, last);
                return Ok(());
            }
            opened => opened?,
        };
        self.check_log_id(path, reader.info().header.log_id)?;
        let footer = reader.info().footer;
        let sealed_last =
            footer.filter(|footer| footer.frames > 0).map(|footer| footer.last_offset);
        if let Some(sealed_last) = sealed_last.filter(|&last| last < self.counted_from) {
            self.add_segment(segment, last.unwrap_or(sealed_last));
            return Ok(());
        }
        let scanned = match self.scan(&mut reader, last) {
            Err(FileError::Io { .. }) => {
                self.keep_unread(segment, last.or(sealed_last));
                return Ok(());
            }
            scanned => scanned?,
        };
        self.found.bytes_scanned += segment.len_bytes;
        // Frames that were durable, by a cursor or a footer, were damaged since.
        let damaged_at = reader.take_damaged_at().into_iter().filter(|at| *at < scanned.end);
        self.found.frames_damaged += damaged_at.clone().count() as u64;
        let left_by_crash = damaged_at
            .filter(|at| footer.is_none() && *at >= scanned.durable_end)
            .map(|at| (at, Passed::LeftByCrash));
        segment.note_passed(&left_by_crash.collect::<Vec<_>>(), &mut self.stats);
        // The footer of a sealed file says what was in it. Its readers pass the damage.
        let damaged_last = sealed_last.filter(|_| !reader.damage().is_none());
        if scanned.last.is_none() && damaged_last.is_some() {
            self.found.frames_damaged += footer.map_or(0, |footer| footer.frames);
        }
        let Some(last_offset) = scanned.last.max(damaged_last).max(scanned.durable_last) else {
            // Only reserved space, or frames that were never acknowledged.
            self.leftovers.files.push(segment.path);
            return Ok(());
        };
        self.head = self.head.max(last_offset + 1);
        if footer.is_none() {
            // It ends with its last frame. The rest is what a crash left of a write.
            let end = scanned.end.max(scanned.durable_end).min(segment.len_bytes);
            self.leftovers.tails.push((first, segment.path.clone(), end));
            segment.end = Some(end);
        }
        self.add_segment(segment, last.unwrap_or(last_offset));
        Ok(())
    }

    fn scan(&mut self, reader: &mut SegmentReader, last: Option<Offset>) -> Result<Scanned> {
        let is_sealed = reader.info().footer.is_some();
        let (end, durable_end) = (reader.position(), reader.position());
        let mut scanned = Scanned { last: None, end, durable_last: None, durable_end };
        let mut next = 0;
        let heads = self.cursors.iter().map(|(_, cursor)| cursor.stored_below);
        let durable_below = heads.max().unwrap_or(0);
        while let Some(located) = self.patiently(|| reader.next_frame())? {
            let offset = located.header.offset;
            if last.is_some_and(|last| offset > last) {
                break;
            }
            if offset < durable_below {
                (scanned.durable_last, scanned.durable_end) = (Some(offset), located.end());
            }
            // Every frame of a sealed segment was synced; the last one of another may be torn.
            if !is_sealed && self.patiently(|| reader.body())?.is_none() {
                continue;
            }
            scanned.last = Some(scanned.last.unwrap_or(offset).max(offset));
            scanned.end = located.end();
            if offset < next {
                continue;
            }
            next = offset + 1;
            self.count(reader.readers(), offset, located.header.charge);
        }
        // Nothing before a footer is what a crash left of a write.
        if let Some((position, footer)) = reader.footer_within()
            && footer.frames > 0
        {
            scanned.durable_last = scanned.durable_last.max(Some(footer.last_offset));
            scanned.durable_end = scanned.durable_end.max(position);
        }
        Ok(scanned)
    }

    /// Counts the frames of a file that was put back as unread: those that can be read and that
    /// count as lost by the files of their readers.
    fn count_put_back(&mut self, path: &Path, first: Offset, last: Offset) -> Result<()> {
        let end = last.saturating_add(1);
        if !self.cursors.iter().any(|(_, cursor)| cursor.written_off.overlaps(first, end)) {
            return Ok(());
        }
        let open = || SegmentReader::open_path(self.disk, path, ReaderOptions::default());
        let mut reader = self.patiently(open)?;
        reader.check_name(first)?;
        while let Some(located) = self.patiently(|| reader.next_frame())? {
            let (offset, charge) = (located.header.offset, located.header.charge);
            let readers = reader.readers().to_vec();
            let waits = |cursor: &Cursor<T>| {
                let is_reader = readers.contains(&cursor.persistent_id);
                offset <= last && is_reader && cursor.written_off.contains(offset)
            };
            if !self.cursors.iter().any(|(_, cursor)| waits(cursor)) {
                continue;
            }
            let record = self.patiently(|| reader.body())?;
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

    /// Repeats an operation that the disk refuses, for a bounded time in all.
    pub(super) fn patiently<A>(&self, mut ask: impl FnMut() -> Result<A>) -> Result<A> {
        use io::ErrorKind::{NotADirectory, PermissionDenied, ReadOnlyFilesystem};
        loop {
            let left = self.patient_until.saturating_duration_since(Instant::now());
            match ask() {
                // A mistake of the operator does not pass: it is reported at once.
                Err(FileError::Io { error, .. })
                    if !left.is_zero()
                        && ![NotADirectory, PermissionDenied, ReadOnlyFilesystem]
                            .contains(&error.kind()) =>
                {
                    std::thread::sleep(left.min(RETRY));
                }
                asked => return asked,
            }
        }
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
        let readers = self.cursors.len() + self.lost.len();
        let pin = Pin { may_be_more: true, ..Pin::default() };
        let pins = (0..readers).filter(needs).map(|index| (CursorId(index), pin)).collect();
        self.segments.insert(Segment { last, pins, ..segment });
    }
}

/// Result of a scan.
struct Scanned {
    last: Option<Offset>,
    /// End of the last whole frame.
    end: u64,
    /// The last frame that a cursor says was durable, whole or not, and its end.
    durable_last: Option<Offset>,
    durable_end: u64,
}

impl<T> Cursor<T> {
    /// Passes all of `start..end` that is not resolved.
    fn pass_unresolved(&mut self, start: Offset, end: Offset) {
        let was_changed = self.is_changed;
        let mut from = start.max(self.floor);
        while from < end {
            if let Some(resolved_until) = self.resolved.end_of_run_at(from) {
                from = resolved_until;
                continue;
            }
            let next = self.resolved.iter().map(|(start, _)| start).find(|&start| start > from);
            let until = next.unwrap_or(end).min(end);
            self.note_passed(from, until);
            from = until;
        }
        self.resolve_run(start.max(self.floor), end);
        self.next = self.floor;
        self.is_changed = was_changed;
    }

    /// A cursor with the state of its file. Published after the frames that it did not count.
    fn from_state(state: CursorState) -> Self {
        let written_off = state.written_off();
        let mut cursor = Cursor::at(state.floor, state.name, state.id);
        cursor.written_off = written_off;
        state.resolved.iter().for_each(|&(start, end)| cursor.resolve_run(start, end));
        cursor.next = cursor.floor;
        cursor.unread = state.held;
        cursor.dropped = state.dropped;
        state.untaken.iter().for_each(|&(start, end)| cursor.note_untaken(start, end));
        // Until a subscriber says whether it is best effort, frames that this reader took do not
        // count as taken.
        cursor.is_best_effort = true;
        cursor.dropped_ranges = state.dropped_ranges.into();
        cursor.is_changed = false;
        cursor.has_file = true;
        cursor.stored_below = state.head;
        cursor
    }
}
