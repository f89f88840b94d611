//! The logs of a directory, with their segments, readers and dead letters.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::CURSORS_DIRECTORY;
use crate::cursor_file::{CURSOR_EXTENSION, CursorFile};
use crate::cursor_list;
use crate::dead_letters::{DEAD_LETTERS_DIRECTORY, DeadLetterReader};
use crate::disk::{DirectoryEntry, Disk};
use crate::error::{FileError, IoContext as _, Result};
use crate::format::CursorState;
use crate::segment::{
    Damage, Located, ReaderOptions, SegmentChain, SegmentInfo, SegmentName, SegmentReader,
    SetAside, list_if_there, list_segments, list_set_aside, segment_before,
};
use crate::types::Holding;

/// Between two looks at what a process may be changing.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub struct LogOverview {
    /// Name of its folder, which is its signal.
    pub name: String,
    pub directory: PathBuf,
    pub segments: Vec<SegmentOverview>,
    /// Files that are kept because a delivery passed something in them.
    pub set_aside: Vec<SetAside>,
    pub cursors: Vec<CursorOverview>,
    /// See [`lost_cursors`].
    pub lost_cursors: Vec<String>,
    pub dead_letters: Vec<DeadLetterOverview>,
}

#[derive(Debug)]
pub struct SegmentOverview {
    pub path: PathBuf,
    pub len_bytes: u64,
    /// Header and footer, or why they cannot be read.
    pub info: Result<SegmentInfo>,
}

#[derive(Debug)]
pub struct CursorOverview {
    pub path: PathBuf,
    /// The state that was stored last, or why it cannot be read.
    pub state: Result<CursorState>,
    /// Frames that wait for the reader: those that the state counts and those written since.
    pub held: Holding,
}

/// The dead letters of one delivery.
#[derive(Debug)]
pub struct DeadLetterOverview {
    pub directory: PathBuf,
    /// Name of the delivery; the folder's name if it is not known.
    pub delivery: String,
    /// The letters that are left and can be read, with the bytes of their payloads.
    pub held: Holding,
    /// All letters that were ever dropped: to make room, or as larger than the store.
    pub dropped: Holding,
    /// Which letters were removed, and how many were dropped, is not known.
    pub is_state_lost: bool,
    /// Files that are kept because something in them could not be read when their letters were
    /// removed.
    pub set_aside: Vec<SetAside>,
    /// Segments that cannot be read, or not to their end: letters in them are not counted. And the
    /// state, if the disk refuses it.
    pub unreadable: Vec<FileError>,
    /// Letters and places in other segments that cannot be read and are not counted.
    pub damage: Damage,
}

/// Every log below `directory`. Reads headers of segments, headers of frames if necessary, and all
/// dead letters.
pub fn overview(disk: &Arc<dyn Disk>, directory: &Path) -> Result<Vec<LogOverview>> {
    let logs = log_directories(&**disk, directory)?.into_iter();
    let overview = |(name, directory): (String, PathBuf)| {
        Ok(LogOverview {
            name,
            segments: segments(&**disk, &directory)?,
            set_aside: list_set_aside(&**disk, &directory)?,
            cursors: cursors(disk, &directory)?,
            lost_cursors: lost_cursors(&**disk, &directory)?,
            dead_letters: dead_letters(disk, &directory)?,
            directory,
        })
    };
    logs.map(overview).collect()
}

/// Names and paths of the folders below `directory` that are logs.
pub(super) fn log_directories(disk: &dyn Disk, directory: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut logs = Vec::new();
    for entry in disk.list(directory).at(directory, "cannot list")? {
        let path = directory.join(&entry.name);
        if entry.is_directory && is_log(&list_if_there(disk, &path)?) {
            logs.push((entry.name, path));
        }
    }
    Ok(logs)
}

/// Whether a folder with these entries is a log.
pub fn is_log(entries: &[DirectoryEntry]) -> bool {
    entries.iter().any(|entry| {
        let is_folder = entry.name == CURSORS_DIRECTORY || entry.name == DEAD_LETTERS_DIRECTORY;
        let is_file = || SegmentName::parse(&entry.name).or_else(|| segment_before(&entry.name));
        if entry.is_directory { is_folder } else { is_file().is_some() }
    })
}

fn segments(disk: &dyn Disk, directory: &Path) -> Result<Vec<SegmentOverview>> {
    let mut segments = Vec::new();
    for (name, len_bytes) in list_segments(disk, directory)? {
        let path = directory.join(name.to_string());
        let info = SegmentReader::open_path(disk, &path, ReaderOptions::default())
            .map(|reader| reader.info().clone());
        // It was removed since it was listed.
        if info.as_ref().is_err_and(FileError::is_not_found) {
            continue;
        }
        segments.push(SegmentOverview { path, len_bytes, info });
    }
    Ok(segments)
}

fn cursors(disk: &Arc<dyn Disk>, directory: &Path) -> Result<Vec<CursorOverview>> {
    let mut cursors = Vec::new();
    for path in cursor_paths(&**disk, directory)? {
        let state = CursorFile::read(&**disk, &path);
        if state.as_ref().is_err_and(FileError::is_not_found) {
            continue;
        }
        let held = state.as_ref().map_or(Holding::default(), |state| state.held);
        cursors.push(CursorOverview { path, state, held });
    }
    add_written_since(disk, directory, &mut cursors)?;
    Ok(cursors)
}

/// The lost cursors of a log (set aside, gone, or found damaged by the next start), by the names
/// under which everything on disk is kept for them.
pub fn lost_cursors(disk: &dyn Disk, log_directory: &Path) -> Result<Vec<String>> {
    let mut damaged = Vec::new();
    for path in cursor_paths(disk, log_directory)? {
        if let Err(FileError::DamagedCursor { .. }) = CursorFile::read(disk, &path) {
            damaged.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    with_found(disk, log_directory, |found| found.lost(damaged.clone()).0.into_iter().collect())
}

/// The lost cursors of a log whose files were set aside or are gone.
pub(super) fn missing_cursors(disk: &dyn Disk, log_directory: &Path) -> Result<Vec<String>> {
    with_found(disk, log_directory, |found| found.missing().into_iter().collect())
}

/// Asks twice, until both are the same: a process may be adding and removing cursors.
fn with_found(
    disk: &dyn Disk,
    log_directory: &Path,
    ask: impl Fn(&cursor_list::Found<'_>) -> Vec<String>,
) -> Result<Vec<String>> {
    let mut before = None;
    loop {
        let listed = match cursor_list::read(disk, log_directory) {
            Err(FileError::DamagedList { .. }) => None,
            listed => listed?,
        };
        let entries = list_if_there(disk, &log_directory.join(CURSORS_DIRECTORY))?;
        let has_segments = has_frames(disk, log_directory)?;
        let found = cursor_list::Found { entries: &entries, listed: listed.as_ref(), has_segments };
        let answer = ask(&found);
        if answer.is_empty() || before.as_ref() == Some(&answer) {
            return Ok(answer);
        }
        before = Some(answer);
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn has_frames(disk: &dyn Disk, log_directory: &Path) -> Result<bool> {
    for (name, _) in list_segments(disk, log_directory)? {
        let path = log_directory.join(name.to_string());
        let first = SegmentReader::open_path(disk, &path, ReaderOptions::default())
            .and_then(|mut reader| reader.next_frame());
        if !matches!(first, Ok(None) | Err(FileError::Unfinished { .. })) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Adds the frames that stand in the log at or above each reader's head, and those that count as
/// lost and can be read.
fn add_written_since(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    cursors: &mut [CursorOverview],
) -> Result<()> {
    let written_off = |cursor: &CursorOverview| {
        cursor.state.as_ref().map_or(crate::RangeSet::default(), CursorState::written_off)
    };
    let written_off: Vec<_> = cursors.iter().map(written_off).collect();
    let starts = written_off.iter().filter_map(|ranges| ranges.iter().next()).map(|(from, _)| from);
    let states = cursors.iter().filter_map(|cursor| cursor.state.as_ref().ok());
    let heads = states.map(|state| state.head);
    let Some(lowest) = heads.chain(starts).min() else { return Ok(()) };
    let mut chain = SegmentChain::open(disk.clone(), directory, lowest)?;
    // The same frame may stand in two segments after a failed write.
    let mut seen = crate::RangeSet::default();
    while let Some(Located { header, .. }) = chain.next_readable()? {
        if !seen.insert(header.offset) {
            continue;
        }
        let readers = chain.readers().to_vec();
        let mut is_whole = None;
        for (cursor, written_off) in cursors.iter_mut().zip(&written_off) {
            let Ok(state) = &cursor.state else { continue };
            if !readers.contains(&state.id) {
                continue;
            }
            // A file that was put back has it.
            let is_back = written_off.contains(header.offset)
                && *is_whole.get_or_insert_with(|| matches!(chain.body(), Ok(Some(_))));
            if header.offset >= state.head || is_back {
                cursor.held.add(header.charge);
            }
        }
    }
    Ok(())
}

fn dead_letters(disk: &Arc<dyn Disk>, directory: &Path) -> Result<Vec<DeadLetterOverview>> {
    let mut overviews = Vec::new();
    for (name, directory) in dead_letter_directories(&**disk, directory)? {
        let (mut held, mut unreadable) = (Holding::default(), Vec::new());
        let mut reader = DeadLetterReader::open_in_part(disk.clone(), &directory, &mut unreadable)?;
        while let Some(letter) = reader.next_readable(&mut unreadable)? {
            held.add(letter.charge);
        }
        overviews.push(DeadLetterOverview {
            set_aside: list_set_aside(&**disk, &directory)?,
            directory,
            delivery: reader.delivery(&name),
            held,
            dropped: reader.state().dropped,
            is_state_lost: reader.is_state_lost && (held.frames > 0 || !unreadable.is_empty()),
            unreadable,
            damage: reader.damage(),
        });
    }
    Ok(overviews)
}

/// Names and paths of the folders of a log's dead letters.
pub fn dead_letter_directories(
    disk: &dyn Disk,
    log_directory: &Path,
) -> Result<Vec<(String, PathBuf)>> {
    let directory = log_directory.join(DEAD_LETTERS_DIRECTORY);
    let folders = list_if_there(disk, &directory)?.into_iter().filter(|entry| entry.is_directory);
    Ok(folders.map(|entry| (entry.name.clone(), directory.join(entry.name))).collect())
}

/// Paths of the readers' files of a log.
pub(crate) fn cursor_paths(disk: &dyn Disk, log_directory: &Path) -> Result<Vec<PathBuf>> {
    let directory = log_directory.join(CURSORS_DIRECTORY);
    let mut entries = list_if_there(disk, &directory)?;
    entries.retain(|entry| !entry.is_directory && entry.name.ends_with(CURSOR_EXTENSION));
    Ok(entries.into_iter().map(|entry| directory.join(entry.name)).collect())
}
