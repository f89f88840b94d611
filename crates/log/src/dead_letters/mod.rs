//! Requests refused for good, in one bounded store a delivery: `<log>/dead-letters/<delivery>/`.
//!
//! Letters are frames of segment files as in the log, numbered in the order of their refusal, with
//! the reason before their metadata. The file `state.cursor` says what was removed: its floor is
//! the first letter that is left, its counters are letters dropped to make room or as too large.

mod directory;
mod scan;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::cursors::{CursorFile, UNREAD_OFFSETS, escape, file_name};
use crate::disk::{Disk, remove_if_there};
use crate::error::{FileError, IoContext as _, Result};
use crate::format::{
    CursorState, DROPPED_RANGES_LIMIT, DroppedRange, FRAME_PREFIX_LEN_BYTES, FileKind, Footer,
    FrameRef, Refusal, SEGMENT_HEADER_LEN_BYTES, SegmentHeader, SegmentName,
};
use crate::segment::{
    ScanOptions, SegmentScan, SegmentWriter, cut, list_segments, list_set_aside, new_header,
    set_aside,
};
use crate::types::{Charge, Holding, RecordFacts};
pub use directory::GoneLetters;
use directory::{create_directory, open_state};
use scan::Walked;
pub(crate) use scan::is_letter;
pub use scan::{DeadLetterScan, FoundLetters, name_of_folder};

/// Folder of all dead letters within a log's directory.
pub(crate) const DEAD_LETTERS_DIRECTORY: &str = "dead-letters";

const STATE_NAME: &str = "state";
/// A full store has about this many segments. The oldest one is removed as a whole.
const SEGMENTS_WHEN_FULL: u64 = 8;
const SEGMENT_LEN_RANGE_BYTES: (u64, u64) = (64 << 10, 8 << 20);

/// A frame that was refused, or a part of one.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    pub refusal: Refusal,
    pub facts: RecordFacts,
    pub items: u64,
    /// Metadata of the frame, as in the log.
    pub metadata: Vec<u8>,
    pub payload: Bytes,
}

/// A segment that is not written to any more.
struct Stored {
    name: SegmentName,
    len_bytes: u64,
    /// Totals of its letters that can be read.
    totals: Footer,
    /// All its letters have lower numbers.
    end: u64,
    /// Something in it could not be read and is not counted. It is not removed with its letters,
    /// but set aside.
    has_more: bool,
    /// It made room, or all letters were dropped: it is removed whatever is in it.
    is_dropped: bool,
}

impl Stored {
    fn of(name: SegmentName, len_bytes: u64, totals: Footer) -> Self {
        Stored { name, len_bytes, totals, end: 0, has_more: false, is_dropped: false }
    }
}

/// The dead letters of one delivery, open for writing. Only the directory's owner may open them.
pub struct DeadLetters {
    disk: Arc<dyn Disk>,
    log_directory: PathBuf,
    directory: PathBuf,
    /// The file system of the log's directory.
    device: u64,
    limit_bytes: u64,
    stored: VecDeque<Stored>,
    writer: Option<SegmentWriter>,
    state_file: CursorFile,
    state: CursorState,
    /// Number of the next letter.
    head: u64,
    /// Segments that were dropped although something in them was not read and counted.
    uncounted: u64,
    /// Something was not where it was written: the next append makes the directory anew first.
    is_disturbed: bool,
    gone: GoneLetters,
    found: FoundLetters,
}

/// The directory of a delivery's dead letters.
pub fn directory_of(log_directory: &Path, delivery: &str) -> PathBuf {
    log_directory.join(DEAD_LETTERS_DIRECTORY).join(escape(delivery))
}

/// Path of the file that says what was removed.
pub(crate) fn state_path(directory: &Path) -> PathBuf {
    directory.join(file_name(STATE_NAME))
}

/// Letters at or above the floor of a file with these totals.
fn letters_left(totals: Footer, floor: u64) -> u64 {
    totals.frames.min((totals.last_offset + 1).saturating_sub(floor))
}

fn metadata_of(letter: &DeadLetter) -> Vec<u8> {
    let mut metadata = Vec::new();
    letter.refusal.encode(&mut metadata);
    metadata.extend_from_slice(&letter.metadata);
    metadata
}

fn frame_of<'a>(letter: &'a DeadLetter, offset: u64, metadata: &'a [u8]) -> FrameRef<'a> {
    FrameRef {
        offset,
        facts: letter.facts,
        charge: Charge { bytes: letter.payload.len() as u64, items: letter.items },
        is_taken: false,
        readers: &[],
        metadata,
        payload: &letter.payload,
    }
}

impl DeadLetters {
    /// Opens the store of a delivery below a log's directory, or creates it. It takes at most
    /// `limit_bytes` of disk: the next append removes the oldest letters beyond that.
    pub fn open(
        disk: Arc<dyn Disk>,
        log_directory: &Path,
        delivery: &str,
        limit_bytes: u64,
    ) -> Result<Self> {
        use FileError::{Io, Misnamed, NoSegment};
        let directory = directory_of(log_directory, delivery);
        create_directory(&*disk, log_directory, &directory)?;
        let device = disk.device(log_directory).at(log_directory, "cannot examine")?;
        let segments = list_segments(&*disk, &directory)?;
        let (state_file, state, is_lost) = open_state(&*disk, &directory, delivery)?;
        let is_state_lost = is_lost && !segments.is_empty();
        let found = FoundLetters { is_state_lost, ..FoundLetters::default() };
        let mut letters = DeadLetters {
            head: state.head.max(state.floor),
            disk,
            log_directory: log_directory.to_owned(),
            directory,
            device,
            limit_bytes,
            stored: VecDeque::new(),
            writer: None,
            state_file,
            state,
            uncounted: 0,
            is_disturbed: false,
            gone: GoneLetters::default(),
            found,
        };
        let mut segments = segments.into_iter().peekable();
        while let Some((name, len_bytes)) = segments.next() {
            let most = len_bytes / FRAME_PREFIX_LEN_BYTES as u64;
            let next = segments.peek().map(|(next, _)| next.first_offset);
            let end = next.unwrap_or(name.first_offset + most);
            let stored = match letters.look_into(name, end) {
                // It stays until it is the oldest when room is needed.
                Err(error @ (Io { .. } | NoSegment { .. } | Misnamed { .. })) => {
                    letters.found.unreadable.push(error);
                    let unread = Stored::of(name, len_bytes, Footer::default());
                    Some(Stored { end, has_more: true, ..unread })
                }
                looked => looked?,
            };
            letters.head = letters.head.max(stored.as_ref().map_or(0, |stored| stored.end));
            letters.stored.extend(stored);
        }
        // If a segment cannot be removed, this is tried again when room is needed.
        let _ = letters.remove_resolved();
        Ok(letters)
    }

    /// For a disk that has refused a slot of the state for long: makes the other slot count.
    /// Removed letters may come back, and no number is given twice.
    pub fn mend_state(disk: &dyn Disk, log_directory: &Path, delivery: &str) -> Result<()> {
        let path = state_path(&directory_of(log_directory, delivery));
        let (mut file, mut state, refused) = CursorFile::open_in_part(disk, &path)?;
        state.head = state.head.max(state.floor).saturating_add(UNREAD_OFFSETS);
        if refused.is_some() { file.store(disk, &state) } else { Ok(()) }
    }

    /// Adds letters and makes them durable with one sync; returns the number of the first. The
    /// oldest letters make room for them. A letter larger than the store counts as dropped. After
    /// an error none, some or all are stored, and the call can be repeated, with higher numbers.
    pub fn append(&mut self, new: &[DeadLetter]) -> Result<u64> {
        if self.is_disturbed {
            self.restore_directory()?;
        }
        let first = self.head;
        let mut too_large = Holding::default();
        let mut appended =
            new.iter().try_for_each(|letter| self.append_one(letter, &mut too_large));
        if appended.is_ok()
            && let Some(writer) = &mut self.writer
        {
            appended = writer.sync();
            // There is a store for each delivery, and most of them seldom write.
            writer.release_buffer();
        }
        if self.writer.as_ref().is_some_and(SegmentWriter::is_failed) {
            self.put_away();
        }
        if appended.is_ok() && too_large.frames > 0 {
            self.state.dropped.add(too_large);
            // The letters are stored. If this fails, the next stored state has the count.
            let _ = self.store_state();
        }
        self.is_disturbed = appended.as_ref().is_err_and(FileError::is_gone);
        appended.map(|()| first)
    }

    /// Removes all letters below a number. Durable when this returns. A file in which something
    /// cannot be read is set aside when it has no other letter.
    pub fn remove_below(&mut self, number: u64) -> Result<()> {
        self.state.floor = self.state.floor.max(number.min(self.head));
        self.store_state()?;
        let is_written = self.writer.as_ref().is_some_and(|writer| writer.totals().frames > 0);
        if is_written && self.state.floor == self.head {
            self.finish_segment()?;
        }
        self.remove_resolved()
    }

    /// Removes all letters and all that cannot be read, also what was set aside.
    pub fn drop_all(&mut self) -> Result<()> {
        self.finish_segment()?;
        self.stored.iter_mut().for_each(|segment| segment.is_dropped = true);
        self.remove_below(self.head)?;
        for file in list_set_aside(&*self.disk, &self.directory)? {
            remove_if_there(&*self.disk, &file.path).at(&file.path, "cannot remove")?;
        }
        Ok(())
    }

    pub fn set_limit(&mut self, limit_bytes: u64) {
        self.limit_bytes = limit_bytes;
    }

    /// Numbers of the first letter that is left and of the next letter.
    pub fn range(&self) -> (u64, u64) {
        (self.state.floor, self.head)
    }

    /// Number of letters that are left and can be read, as far as the start could read them.
    pub fn letters(&self) -> u64 {
        let floor = self.state.floor;
        let stored = self.stored.iter().map(|segment| letters_left(segment.totals, floor));
        let written = self.writer.as_ref().map(|writer| letters_left(writer.totals(), floor));
        let written = written.unwrap_or(0);
        stored.sum::<u64>() + written
    }

    /// Segments dropped since the last call of which something was not counted, because it could
    /// not be read.
    pub fn take_uncounted(&mut self) -> u64 {
        std::mem::take(&mut self.uncounted)
    }

    /// Files that are there and of which something is not counted, because it cannot be read.
    pub fn unreadable_files(&self) -> u64 {
        self.stored.iter().filter(|segment| segment.has_more).count() as u64
    }

    /// Problems of earlier runs' letters, as they were when the store was opened.
    pub fn found(&self) -> &FoundLetters {
        &self.found
    }

    /// Bytes that the store takes on disk.
    pub fn len_bytes(&self) -> u64 {
        let stored = self.stored.iter().map(|segment| segment.len_bytes).sum::<u64>();
        stored + self.writer.as_ref().map_or(0, SegmentWriter::len_bytes)
    }

    /// All letters that were ever dropped: to make room, or as larger than the store.
    pub fn dropped(&self) -> Holding {
        self.state.dropped
    }

    /// The limit from which on a store takes the letter.
    pub fn bytes_for(letter: &DeadLetter) -> u64 {
        SegmentWriter::len_for(&frame_of(letter, 0, &metadata_of(letter)))
    }

    /// Totals of the letters of an earlier run's segment that can be read. Its unused space is cut
    /// off, which is zeros only. None if the segment does not count. If the disk refuses a part of
    /// it, `end` says where its numbers end.
    fn look_into(&mut self, name: SegmentName, end: u64) -> Result<Option<Stored>> {
        let disk = &*self.disk;
        let path = self.directory.join(name.to_string());
        let remove = || disk.remove_file(&path).at(&path, "cannot remove").map(|()| None);
        let mut segment = match SegmentScan::open_path(disk, &path, ScanOptions::default()) {
            Err(FileError::Unfinished { .. }) => return remove(),
            segment => segment?,
        };
        let (footer, mut len_bytes) = (segment.info().footer, segment.info().len_bytes);
        let mut walked = Walked::default();
        if let Err(error) = walked.walk(&mut segment, self.state.floor) {
            self.found.unreadable.push(error);
            let stored = Stored::of(name, len_bytes, walked.totals);
            return Ok(Some(Stored { end, has_more: true, ..stored }));
        }
        if footer.is_none() {
            if walked.end == SEGMENT_HEADER_LEN_BYTES {
                // A failed write may leave such a file.
                return remove();
            }
            len_bytes = cut(disk, &path, walked.end)?;
        }
        let missing = footer.map_or(0, |footer| footer.frames.saturating_sub(walked.seen));
        let mut damage = walked.damage;
        damage.regions += u64::from(damage.regions == 0 && missing > 0);
        let has_more = !damage.is_none();
        if has_more {
            self.found.damaged.push((path, damage));
        }
        let sealed_end = footer.filter(|footer| footer.frames > 0).map(|it| it.last_offset + 1);
        let end = sealed_end.unwrap_or(walked.next_number).max(name.first_offset);
        Ok(Some(Stored { end, has_more, ..Stored::of(name, len_bytes, walked.totals) }))
    }

    fn append_one(&mut self, letter: &DeadLetter, too_large: &mut Holding) -> Result<()> {
        let metadata = metadata_of(letter);
        let frame = frame_of(letter, self.head, &metadata);
        self.state.written_unix_ns = letter.refusal.refused_unix_ns;
        if SegmentWriter::len_for(&frame) > self.limit_bytes {
            too_large.add(frame.charge);
            return Ok(());
        }
        self.make_room(&frame)?;
        if let Some(writer) = &mut self.writer {
            let appended = writer.append(&frame);
            // After a failed write the letter may be on disk all the same.
            self.head += u64::from(appended.is_ok() || writer.is_failed());
            appended?;
        }
        Ok(())
    }

    /// Makes room for the frame in the open segment or a new one. The oldest segments go for that.
    fn make_room(&mut self, frame: &FrameRef<'_>) -> Result<()> {
        if self.writer.as_ref().is_some_and(|writer| writer.fits(frame)) {
            return Ok(());
        }
        let (shortest, longest) = SEGMENT_LEN_RANGE_BYTES;
        let usual =
            (self.limit_bytes / SEGMENTS_WHEN_FULL).clamp(shortest, longest).min(self.limit_bytes);
        let letter_bytes = SegmentWriter::len_for(frame);
        let len_bytes = usual.max(letter_bytes);
        self.finish_segment()?;
        // Segments below the floor that are still there may take as much again as the limit.
        let removed = self.remove_resolved();
        if self.len_bytes() - self.kept_bytes() > self.limit_bytes {
            removed?;
        }
        while self.kept_bytes() + len_bytes > self.limit_bytes && self.drop_oldest()? {}
        let header = SegmentHeader {
            created_unix_ns: frame.facts.received_unix_ns,
            ..new_header(FileKind::DeadLetters, self.state.log_id, self.head, &self.state.name)
        };
        let create = |len_bytes| {
            SegmentWriter::create(&*self.disk, &self.directory, header.clone(), len_bytes)
        };
        // A shorter segment may fit on a full disk; a letter not stored pins a segment of the log.
        let created = create(len_bytes).or_else(|error| match error.is_out_of_space() {
            true => create(letter_bytes.max(shortest.min(len_bytes))),
            false => Err(error),
        });
        self.writer = Some(created?);
        Ok(())
    }

    fn finish_segment(&mut self) -> Result<()> {
        let sealed = self.writer.as_mut().map_or(Ok(()), SegmentWriter::seal);
        self.put_away();
        sealed
    }

    /// Stops writing to the open segment. If it failed, only its durable letters stay. The numbers
    /// of the others are not given again: a power cut may bring these back.
    fn put_away(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        let (name, totals, path) =
            (writer.name(), writer.durable_totals(), writer.path().to_owned());
        let mut len_bytes = writer.len_bytes();
        if writer.is_failed() {
            len_bytes = writer.durable_end();
            // Best effort: the other letters may stay, with numbers of their own.
            writer.abandon();
        }
        if totals.frames > 0 || self.disk.remove_file(&path).is_err() {
            let end = self.head;
            self.stored.push_back(Stored { end, ..Stored::of(name, len_bytes, totals) });
        }
    }

    /// Drops the oldest segment of letters. False if there is none.
    fn drop_oldest(&mut self) -> Result<bool> {
        let floor = self.state.floor;
        let Some(index) = self.stored.iter().position(|segment| segment.end > floor) else {
            return Ok(false);
        };
        self.stored[index].is_dropped = true;
        let oldest = &self.stored[index];
        let end = oldest.end;
        // A segment that cannot be counted goes all the same: newer letters would wait for it.
        let (dropped, has_more) = self.left_in(oldest).unwrap_or((Holding::default(), true));
        self.uncounted += u64::from(has_more);
        if dropped.frames > 0 {
            let (start, dropped_unix_ns) = (self.state.floor, self.state.written_unix_ns);
            let ranges = &mut self.state.dropped_ranges;
            ranges.push(DroppedRange { start, end, dropped, dropped_unix_ns });
            ranges.drain(..ranges.len().saturating_sub(DROPPED_RANGES_LIMIT));
            self.state.dropped.add(dropped);
        }
        self.state.floor = end;
        self.store_state()?;
        // If a segment cannot be removed, this is tried again when room is needed.
        let _ = self.remove_resolved();
        Ok(true)
    }

    /// Bytes of the segments in which letters are left.
    fn kept_bytes(&self) -> u64 {
        let kept = self.stored.iter().filter(|segment| segment.end > self.state.floor);
        kept.map(|segment| segment.len_bytes).sum()
    }

    /// Letters of a segment at or above the floor, and whether something in it cannot be read.
    fn left_in(&self, segment: &Stored) -> Result<(Holding, bool)> {
        let holding = |totals: Footer| {
            let Footer { frames, items, charged_bytes: bytes, .. } = totals;
            Holding { frames, items, bytes }
        };
        let totals = segment.totals;
        if totals.frames > 0 && totals.first_offset >= self.state.floor {
            return Ok((holding(totals), segment.has_more));
        }
        let path = self.directory.join(segment.name.to_string());
        let mut scan = SegmentScan::open_path(&*self.disk, &path, ScanOptions::default())?;
        let mut walked = Walked::default();
        walked.walk(&mut scan, self.state.floor)?;
        Ok((holding(walked.totals), !walked.damage.is_none()))
    }

    fn store_state(&mut self) -> Result<()> {
        self.state.head = self.head;
        self.state_file.store(&*self.disk, &self.state)
    }

    /// Removes the segments that are wholly below the floor, or sets them aside. If that fails they
    /// stay, and the last error is returned.
    fn remove_resolved(&mut self) -> Result<()> {
        let mut result = Ok(());
        self.stored.retain(|segment| {
            if segment.end > self.state.floor {
                return true;
            }
            let path = self.directory.join(segment.name.to_string());
            let removed = match segment.has_more && !segment.is_dropped {
                true => set_aside(&*self.disk, &path).map(drop),
                false => remove_if_there(&*self.disk, &path).at(&path, "cannot remove").map(drop),
            };
            if let Err(error) = removed {
                result = Err(error);
                return true;
            }
            false
        });
        result
    }
}
