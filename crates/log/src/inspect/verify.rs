//! Checks every checksum of a directory.

use std::io;
use std::path::{Path, PathBuf};

use super::overview::{cursor_paths, dead_letter_directories, log_directories, missing_cursors};
use crate::cursor_file::damaged_slots;
use crate::cursor_list;
use crate::dead_letters::{is_letter, state_path};
use crate::disk::{Access, Disk};
use crate::error::{FileError, Result};
use crate::segment::{Damage, SetAside, list_segments, list_set_aside, open_if_there};

/// `progress` is called about this often.
const PROGRESS_EVERY_BYTES: u64 = 4 << 20;

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

/// Reads everything below `directory`: logs, dead letters and readers' files. Calls `progress` with
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
        if let Err(error) = cursor_list::read(disk, &log_directory) {
            verification.findings.push(Finding::Unreadable(error));
        }
        let lost = missing_cursors(disk, &log_directory)?.into_iter();
        let lost = lost.map(|name| (log_directory.clone(), name));
        verification
            .findings
            .extend(lost.map(|(log_directory, name)| Finding::LostCursor { log_directory, name }));
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
    let Some(mut reader) = open_if_there(disk, path)? else { return Ok(()) };
    verification.segments += 1;
    let mut frames = 0;
    let mut told_at = 0;
    let (mut strange, mut first_strange) = (Damage::default(), None);
    while let Some(located) = reader.next_frame()? {
        if let Some(stored) = reader.body()? {
            if are_letters && !is_letter(&stored) {
                let bytes = located.header.frame_len_bytes();
                strange.add(Damage { frames: 1, regions: 0, bytes });
                first_strange.get_or_insert(located.position);
            } else {
                frames += 1;
                verification.items += located.header.charge.items;
            }
        }
        if reader.position() >= told_at + PROGRESS_EVERY_BYTES {
            told_at = reader.position();
            progress(told_at);
        }
    }
    verification.frames += frames;
    let mut damage = reader.damage();
    damage.add(strange);
    let position = reader.first_damage().into_iter().chain(first_strange).min();
    let footer = reader.info().footer;
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
