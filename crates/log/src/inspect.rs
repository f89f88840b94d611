//! Inspects a directory of logs without owning or changing it. A process may be running on it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::cursors::{
    CURSORS_DIRECTORY, CursorFile, FoundCursors, cursor_paths, damaged_slots, read_list,
};
use crate::dead_letters::{DEAD_LETTERS_DIRECTORY, DeadLetterScan, is_letter, state_path};
use crate::disk::{Access, DirectoryEntry, Disk};
use crate::error::{FileError, IoContext as _, Result};
use crate::format::{CursorState, SegmentName};
use crate::missing::{Missing, missing};
use crate::segment::{
    Damage, Located, ScanOptions, SegmentChain, SegmentInfo, SegmentScan, SetAside, list_if_there,
    list_segments, list_set_aside, open_if_there, segment_before,
};
use crate::types::Holding;

/// `progress` is called about this often.
const PROGRESS_EVERY_BYTES: u64 = 4 << 20;

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
    /// Why the list of cursor files cannot be read.
    pub damaged_list: Option<FileError>,
    pub missing: Missing,
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
    /// Segments with letters and places that cannot be read and are not counted.
    pub damaged: Vec<(PathBuf, Damage)>,
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
            damaged_list: read_list(&**disk, &directory).err(),
            missing: missing(&**disk, &directory)?,
            dead_letters: dead_letters(disk, &directory)?,
            directory,
        })
    };
    logs.map(overview).collect()
}

/// Names and paths of the folders below `directory` that are logs.
fn log_directories(disk: &dyn Disk, directory: &Path) -> Result<Vec<(String, PathBuf)>> {
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
        let info = SegmentScan::open_path(disk, &path, ScanOptions::default())
            .map(|scan| scan.info().clone());
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
fn missing_cursors(disk: &dyn Disk, log_directory: &Path) -> Result<Vec<String>> {
    with_found(disk, log_directory, |found| found.missing().into_iter().collect())
}

/// Asks twice, until both are the same: a process may be adding and removing cursors.
fn with_found(
    disk: &dyn Disk,
    log_directory: &Path,
    ask: impl Fn(&FoundCursors<'_>) -> Vec<String>,
) -> Result<Vec<String>> {
    let mut before = None;
    loop {
        let listed = match read_list(disk, log_directory) {
            Err(FileError::DamagedList { .. }) => None,
            listed => listed?,
        };
        let entries = list_if_there(disk, &log_directory.join(CURSORS_DIRECTORY))?;
        let has_segments = has_frames(disk, log_directory)?;
        let found = FoundCursors { entries: &entries, listed: listed.as_ref(), has_segments };
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
        let first = SegmentScan::open_path(disk, &path, ScanOptions::default())
            .and_then(|mut scan| scan.next_frame());
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
        let mut letters = DeadLetterScan::open_in_part(disk.clone(), &directory, &mut unreadable)?;
        while let Some((letter, _)) = letters.next_readable(&mut unreadable)? {
            held.add(letter.charge);
        }
        overviews.push(DeadLetterOverview {
            set_aside: list_set_aside(&**disk, &directory)?,
            directory,
            delivery: letters.delivery(&name),
            held,
            dropped: letters.state().dropped,
            is_state_lost: letters.is_state_lost && (held.frames > 0 || !unreadable.is_empty()),
            unreadable,
            damaged: letters.damaged(),
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

#[derive(Debug)]
pub enum Finding {
    /// Frames or regions that cannot be read. In a segment that was not sealed, this may be what a
    /// crash left of a write that was never acknowledged.
    DamagedSegment {
        path: PathBuf,
        /// Position of the first damage in the file.
        position: u64,
        damage: Damage,
        is_sealed: bool,
    },
    /// A sealed segment from which this many frames are missing.
    MissingFrames { path: PathBuf, frames: u64 },
    /// One damaged slot: an interrupted write. Both: the reader's position is lost.
    DamagedCursor { path: PathBuf, slots: usize },
    /// A cursor file that was set aside or is gone: what its delivery had resolved is not known.
    /// Everything on disk is kept for it under this name.
    LostCursor { log_directory: PathBuf, name: String },
    /// Frames that a reader waits for and that no file has.
    MissingBacklog { log_directory: PathBuf, reader: String, frames: u64 },
    /// A segment that has no content, and had some by the files of its readers.
    EmptiedSegment { path: PathBuf },
    /// The state of a delivery's dead letters is gone: which of them were removed is not known.
    LostState { path: PathBuf },
    /// A file that is kept because a delivery passed something in it.
    SetAside { path: PathBuf },
    /// A file of dead letters that is kept because something in it could not be read when its
    /// letters were removed.
    LettersSetAside { path: PathBuf },
    /// A file that cannot be read at all.
    Unreadable(FileError),
}

impl Finding {
    /// False for damage that can only come from an interrupted write.
    pub fn is_loss(&self) -> bool {
        match self {
            Finding::DamagedSegment { is_sealed, damage, .. } => *is_sealed || damage.frames > 0,
            Finding::DamagedCursor { slots, .. } => *slots > 1,
            Finding::MissingFrames { .. }
            | Finding::LostCursor { .. }
            | Finding::MissingBacklog { .. }
            | Finding::EmptiedSegment { .. }
            | Finding::LostState { .. }
            | Finding::SetAside { .. }
            | Finding::LettersSetAside { .. }
            | Finding::Unreadable(_) => true,
        }
    }
}

#[derive(Debug, Default)]
pub struct Verification {
    pub segments: u64,
    pub cursors: u64,
    /// Number of whole frames.
    pub frames: u64,
    pub items: u64,
    /// Bytes of all segment files.
    pub bytes: u64,
    pub findings: Vec<Finding>,
}

/// Reads everything below `directory`: logs, dead letters and cursor files. Calls `progress` with
/// the bytes that are done and the bytes of all segments.
pub fn verify(
    disk: &dyn Disk,
    directory: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Verification> {
    let mut segments = Vec::new();
    let (mut cursors, mut verification) = (Vec::new(), Verification::default());
    for (_, log_directory) in log_directories(disk, directory)? {
        let set_aside = list_set_aside(disk, &log_directory)?.into_iter();
        verification.findings.extend(set_aside.map(|file| Finding::SetAside { path: file.path }));
        cursors.extend(cursor_paths(disk, &log_directory)?);
        if let Err(error) = read_list(disk, &log_directory) {
            verification.findings.push(Finding::Unreadable(error));
        }
        let lost = missing_cursors(disk, &log_directory)?.into_iter();
        let lost = lost.map(|name| (log_directory.clone(), name));
        verification
            .findings
            .extend(lost.map(|(log_directory, name)| Finding::LostCursor { log_directory, name }));
        let Missing { by_reader, empty_files, .. } = missing(disk, &log_directory)?;
        verification.findings.extend(by_reader.into_iter().map(|(reader, frames)| {
            Finding::MissingBacklog { log_directory: log_directory.clone(), reader, frames }
        }));
        let empty = empty_files.into_iter().map(|path| Finding::EmptiedSegment { path });
        verification.findings.extend(empty);
        let dead_letters = dead_letter_directories(disk, &log_directory)?;
        let mut directories: Vec<_> = dead_letters.into_iter().map(|(_, path)| path).collect();
        for directory in &directories {
            let set_aside = list_set_aside(disk, directory)?.into_iter();
            let finding = |file: SetAside| Finding::LettersSetAside { path: file.path };
            verification.findings.extend(set_aside.map(finding));
            let path = state_path(directory);
            // A process creates the state before the first letter.
            let has_letters = !list_segments(disk, directory)?.is_empty();
            match disk.open(&path, Access::Read) {
                Err(error) if has_letters && error.kind() == io::ErrorKind::NotFound => {
                    verification.findings.push(Finding::LostState { path });
                }
                _ => cursors.push(path),
            }
        }
        directories.insert(0, log_directory);
        for (index, directory) in directories.into_iter().enumerate() {
            for (name, len_bytes) in list_segments(disk, &directory)? {
                segments.push((directory.join(name.to_string()), len_bytes, index > 0));
            }
        }
    }
    let total_bytes = segments.iter().map(|(_, len_bytes, _)| len_bytes).sum();
    for (path, len_bytes, are_letters) in segments {
        let done_bytes = verification.bytes;
        let mut of_segment = |position: u64| {
            progress(done_bytes + position.min(len_bytes), total_bytes);
        };
        let verified = verify_segment(disk, &path, are_letters, &mut verification, &mut of_segment);
        if let Err(error) = verified {
            verification.findings.push(Finding::Unreadable(error));
        }
        verification.bytes += len_bytes;
        progress(verification.bytes, total_bytes);
    }
    for path in cursors {
        verify_cursor(disk, path, &mut verification);
    }
    Ok(verification)
}

fn verify_segment(
    disk: &dyn Disk,
    path: &Path,
    are_letters: bool,
    verification: &mut Verification,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let Some(mut scan) = open_if_there(disk, path)? else { return Ok(()) };
    verification.segments += 1;
    let mut frames = 0;
    let mut told_at = 0;
    let (mut strange, mut first_strange) = (Damage::default(), None);
    while let Some(located) = scan.next_frame()? {
        if let Some(stored) = scan.body()? {
            if are_letters && !is_letter(&stored) {
                let bytes = located.header.frame_len_bytes();
                strange.add(Damage { frames: 1, regions: 0, bytes });
                first_strange.get_or_insert(located.position);
            } else {
                frames += 1;
                verification.items += located.header.charge.items;
            }
        }
        if scan.position() >= told_at + PROGRESS_EVERY_BYTES {
            told_at = scan.position();
            progress(told_at);
        }
    }
    verification.frames += frames;
    let mut damage = scan.damage();
    damage.add(strange);
    let position = scan.first_damage().into_iter().chain(first_strange).min();
    let footer = scan.info().footer;
    if !damage.is_none() {
        verification.findings.push(Finding::DamagedSegment {
            path: path.to_owned(),
            position: position.unwrap_or_default(),
            damage,
            is_sealed: footer.is_some(),
        });
    } else if let Some(footer) = footer.filter(|footer| footer.frames > frames) {
        let (path, frames) = (path.to_owned(), footer.frames - frames);
        verification.findings.push(Finding::MissingFrames { path, frames });
    }
    Ok(())
}

fn verify_cursor(disk: &dyn Disk, path: PathBuf, verification: &mut Verification) {
    match damaged_slots(disk, &path) {
        Ok(0) => {}
        Ok(slots) => verification.findings.push(Finding::DamagedCursor { path, slots }),
        // It was removed meanwhile.
        Err(error) if error.is_not_found() => return,
        Err(error) => verification.findings.push(Finding::Unreadable(error)),
    }
    verification.cursors += 1;
}
