//! Frames that readers wait for and that no file has: segments were removed, emptied or cut while
//! no process had them open.
//!
//! A segment is removed only after the cursors that have its frames resolved are written. So if a
//! cursor counts more frames than all files can have for its reader, frames are missing. Sealed
//! files are not read: each may have for a reader all of its frames that are not resolved. So the
//! least that is missing is found; where most frames are for the same readers it is all of it.
//!
//! If the disk refused to write cursors up to the end of a process, frames that were resolved
//! meanwhile count as missing, as they count as lost when their reader comes to the end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cursors::{CursorFile, cursor_paths};
use crate::disk::Disk;
use crate::error::{FileError, Result};
use crate::format::{CursorState, Footer, SegmentName};
use crate::segment::{ScanOptions, SegmentScan, list_segments, list_set_aside};
use crate::types::{Offset, RangeSet};

/// Between two looks at what a process may be changing.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// A process that changes more is not waited for.
const LOOKS: u32 = 5;

/// A start looks at no more files, and reads no more bytes of those that were not sealed, so that
/// it does not take the longer the more is on disk.
pub(crate) const FILES_AT_START: usize = 32;
const UNSEALED_AT_START_BYTES: u64 = 128 << 20;

/// The least that is missing, by reader, and the files that explain it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Names of readers, and the frames that each of them waits for and that no file has.
    pub by_reader: Vec<(String, u64)>,
    /// Segments without content where these readers have unresolved offsets.
    pub empty_files: Vec<PathBuf>,
    /// There was too much to look at, or the disk refused: more may be missing.
    pub is_incomplete: bool,
}

impl Missing {
    pub fn is_none(&self) -> bool {
        self.by_reader.is_empty()
    }

    pub(crate) fn of(&self, reader: &str) -> u64 {
        self.by_reader.iter().find(|(name, _)| name == reader).map_or(0, |(_, frames)| *frames)
    }

    /// Frames, counted for each reader.
    pub fn frames(&self) -> u64 {
        self.by_reader.iter().map(|(_, frames)| frames).sum()
    }
}

/// A segment, open, closed or set aside.
struct File {
    path: PathBuf,
    len_bytes: u64,
    first: Offset,
    /// Frames from here on are of the next file.
    end: Offset,
    content: Content,
}

impl File {
    fn is_sealed(&self) -> bool {
        matches!(&self.content, Content::Sealed(footer) if footer.frames > 0)
    }
}

enum Content {
    /// It was never finished, or was emptied.
    Empty,
    Sealed(Footer),
    Unsealed,
    /// It cannot be read.
    Unknown,
}

/// A reader by its file.
struct Reader {
    state: CursorState,
    /// Its unresolved offsets, of which its count of frames is.
    waits: RangeSet,
}

/// Looks at a log's files at a start, when nothing changes them, unless there are many.
pub(crate) fn missing_at_start(disk: &dyn Disk, log_directory: &Path) -> Missing {
    let look = || {
        let readers = readers(disk, log_directory)?;
        let is_little = list_segments(disk, log_directory)?.len() <= FILES_AT_START;
        match is_little || readers.is_empty() {
            true => find(disk, log_directory, &readers, UNSEALED_AT_START_BYTES),
            false => Ok(Missing { is_incomplete: true, ..Missing::default() }),
        }
    };
    look().unwrap_or_else(|_: FileError| Missing { is_incomplete: true, ..Missing::default() })
}

/// Looks at a log's files. A process may be changing them: what is not the same before and after is
/// not said.
pub(crate) fn missing(disk: &dyn Disk, log_directory: &Path) -> Result<Missing> {
    let mut looks = 0;
    loop {
        looks += 1;
        let readers = readers(disk, log_directory)?;
        let mut missing = find(disk, log_directory, &readers, u64::MAX)?;
        if missing.is_none() {
            return Ok(missing);
        }
        let after = self::readers(disk, log_directory)?;
        let is_same = |name: &str| {
            let of_name = |readers: &[Reader]| {
                readers.iter().find(|it| it.state.name == name).map(|it| it.state.clone())
            };
            of_name(&readers) == of_name(&after)
        };
        let are_same = missing.by_reader.iter().all(|(name, _)| is_same(name));
        if !are_same && looks < LOOKS {
            std::thread::sleep(LOOK_AGAIN);
            continue;
        }
        missing.by_reader.retain(|(name, _)| is_same(name));
        if missing.is_none() {
            missing.empty_files.clear();
        }
        return Ok(missing);
    }
}

/// The readers whose files can be read and that wait for frames.
fn readers(disk: &dyn Disk, log_directory: &Path) -> Result<Vec<Reader>> {
    let states = cursor_paths(disk, log_directory)?.into_iter();
    let states = states.filter_map(|path| CursorFile::read(disk, &path).ok());
    Ok(states.filter(|state| state.held.frames > 0).map(Reader::new).collect())
}

impl Reader {
    fn new(state: CursorState) -> Self {
        let mut waits = RangeSet::default();
        if state.floor < state.head {
            waits.insert_run(state.floor, state.head);
        }
        // Frames that were written off may be counted again: their file may have come back.
        state.resolved.iter().for_each(|&(start, end)| waits.remove_run(start, end));
        Reader { state, waits }
    }

    /// Unresolved offsets between two.
    fn waits_between(&self, start: Offset, end: Offset) -> u64 {
        let parts = self.waits.iter().map(|(from, until)| (from.max(start), until.min(end)));
        parts.map(|(from, until)| until.saturating_sub(from)).sum()
    }
}

fn find(
    disk: &dyn Disk,
    log_directory: &Path,
    readers: &[Reader],
    unsealed_limit_bytes: u64,
) -> Result<Missing> {
    if readers.is_empty() {
        return Ok(Missing::default());
    }
    let files = files(disk, log_directory)?;
    // Those of files that were not sealed, by reader; they are read if they matter.
    let mut unsealed = None;
    let mut missing = Missing::default();
    for (index, reader) in readers.iter().enumerate() {
        // A count that is too high is no proof.
        let waiting = reader.state.held.frames.min(reader.waits_between(0, Offset::MAX));
        let Some(sealed) = sealed_frames(reader, &files) else { continue };
        if sealed >= waiting {
            continue;
        }
        let unsealed = unsealed.get_or_insert_with(|| {
            let of_files = files.iter().filter(|it| matches!(it.content, Content::Unsealed));
            let bytes: u64 = of_files.map(|file| file.len_bytes).sum();
            let is_little = bytes <= unsealed_limit_bytes;
            missing.is_incomplete |= !is_little;
            is_little.then(|| unsealed_frames(disk, &files, readers)).flatten()
        });
        let Some(unsealed) = unsealed else { continue };
        let there = sealed + unsealed[index];
        if there < waiting {
            missing.by_reader.push((reader.state.name.clone(), waiting - there));
            for file in &files {
                let is_empty = matches!(file.content, Content::Empty);
                let is_new = !missing.empty_files.contains(&file.path);
                if is_empty && is_new && reader.waits_between(file.first, file.end) > 0 {
                    missing.empty_files.push(file.path.clone());
                }
            }
        }
    }
    Ok(missing)
}

fn files(disk: &dyn Disk, log_directory: &Path) -> Result<Vec<File>> {
    let mut files: Vec<File> = Vec::new();
    let mut next = None;
    for (name, _) in list_segments(disk, log_directory)?.into_iter().rev() {
        if next == Some(name.first_offset) {
            // Of several attempts the last one counts, unless only an earlier one was sealed.
            let last = files.last_mut().filter(|last| !last.is_sealed());
            let earlier = file(disk, log_directory.join(name.to_string()), name);
            if let (Some(last), Some(earlier)) = (last, earlier.filter(File::is_sealed)) {
                *last = File { end: last.end, ..earlier };
            }
            continue;
        }
        let Some(file) = file(disk, log_directory.join(name.to_string()), name) else { continue };
        let end = match file.first == name.first_offset {
            true => next.replace(file.first).unwrap_or(Offset::MAX),
            // It was renamed, and ends no other file.
            false => Offset::MAX,
        };
        files.push(File { end, ..file });
    }
    for aside in list_set_aside(disk, log_directory)? {
        files.extend(file(disk, aside.path, aside.name));
    }
    files.sort_by_key(|file| file.first);
    Ok(files)
}

/// None if the file was removed since it was listed.
fn file(disk: &dyn Disk, path: PathBuf, name: SegmentName) -> Option<File> {
    let (mut name, mut len_bytes) = (name, 0);
    let content = match SegmentScan::open_misnamed(disk, &path, ScanOptions::default()) {
        Ok(scan) => {
            name = scan.name_if_misnamed().unwrap_or(name);
            len_bytes = scan.info().len_bytes;
            scan.info().footer.map_or(Content::Unsealed, Content::Sealed)
        }
        Err(FileError::Unfinished { .. }) => Content::Empty,
        Err(error) if error.is_not_found() => return None,
        Err(_) => Content::Unknown,
    };
    Some(File { path, len_bytes, first: name.first_offset, end: Offset::MAX, content })
}

/// The frames that sealed files can have at most for a reader. None if that is not known.
fn sealed_frames(reader: &Reader, files: &[File]) -> Option<u64> {
    let mut frames = 0;
    for file in files {
        match &file.content {
            Content::Sealed(footer) if footer.frames > 0 => {
                let end = footer.last_offset.saturating_add(1).min(file.end);
                frames += footer.frames.min(reader.waits_between(footer.first_offset, end));
            }
            Content::Unknown if reader.waits_between(file.first, file.end) > 0 => return None,
            _ => {}
        }
    }
    Some(frames)
}

/// The frames in files that were not sealed for each reader. None if damage hides some.
fn unsealed_frames(disk: &dyn Disk, files: &[File], readers: &[Reader]) -> Option<Vec<u64>> {
    let mut frames = vec![0; readers.len()];
    for file in files.iter().filter(|file| matches!(file.content, Content::Unsealed)) {
        let scan = SegmentScan::open_misnamed(disk, &file.path, ScanOptions::default());
        let mut scan = scan.ok()?;
        let mut next = file.first;
        while let Some(located) = scan.next_frame().ok()? {
            let offset = located.header.offset;
            // A frame that was written twice counts once.
            if offset < next || offset >= file.end {
                continue;
            }
            next = offset + 1;
            for (frames, reader) in frames.iter_mut().zip(readers) {
                let is_reader = scan.readers().contains(&reader.state.id);
                *frames += u64::from(is_reader && reader.waits.contains(offset));
            }
        }
        if scan.damage().regions > 0 {
            return None;
        }
    }
    Some(frames)
}
