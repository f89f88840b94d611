//! Decides what becomes of the files of a log that were set aside. Nothing else gives data up.
//!
//! A file goes back to its name when a reader waits for something in it that can be read. Another
//! one may be removed, and a segment that the disk refuses to read may be set aside, which only an
//! operator decides. The caller owns the directory ([`crate::lock`]).

use std::path::{Path, PathBuf};

use crate::aside;
use crate::cursor_file::CursorFile;
use crate::disk::Disk;
use crate::error::{FileError, IoContext as _, Result};
use crate::format::CursorState;
use crate::inspect::{cursor_paths, lost_cursors};
use crate::record::StoredRecord;
use crate::segment::{
    Damage, ReaderOptions, SegmentReader, list_if_there, list_segments, list_set_aside,
};
use crate::types::Holding;

/// A file that was set aside or that the disk refuses to read.
#[derive(Debug)]
pub struct Examined {
    pub path: PathBuf,
    pub len_bytes: u64,
    /// Whole frames that some reader waits for.
    pub waiting: Holding,
    /// None if the file cannot be read at all.
    pub damage: Option<Damage>,
    pub remedy: Remedy,
}

#[derive(Debug)]
pub enum Remedy {
    /// Give it this name, the one before: some reader gets more than without the file.
    PutBack(PathBuf),
    /// The same, but another file has this name.
    Blocked { by: PathBuf },
    /// Remove it: no reader waits for anything in it that can be read.
    GiveUp,
    /// Keep it: what lost cursors wait for is not known.
    KeepForLostCursor,
    /// Keep it: readers wait for this in it, which only a newer release can use.
    KeepForNewerRelease(Holding),
    /// Set it aside under this name: the disk refuses to read it, and readers wait for it.
    SetAside { to: PathBuf, refused: FileError },
}

/// Examines a log. `is_known` says whether this release can use a record.
pub fn examine(
    disk: &dyn Disk,
    log_directory: &Path,
    is_known: &dyn Fn(&StoredRecord) -> bool,
) -> Result<Vec<Examined>> {
    let entries = list_if_there(disk, log_directory)?;
    let cursors = cursor_paths(disk, log_directory)?.into_iter();
    let cursors = cursors.filter_map(|path| match CursorFile::read(disk, &path) {
        // It is one of the lost.
        Err(FileError::DamagedCursor { .. }) => None,
        state => Some(state),
    });
    let cursors = cursors.collect::<Result<Vec<_>>>()?;
    let has_lost = !lost_cursors(disk, log_directory)?.is_empty();
    let mut examined: Vec<Examined> = Vec::new();
    let mut taken: Vec<PathBuf> =
        entries.iter().map(|entry| log_directory.join(&entry.name)).collect();
    for file in list_set_aside(disk, log_directory)? {
        let before = log_directory.join(file.name.to_string());
        let found = match read(disk, &file.path, &cursors, is_known) {
            Err(error @ FileError::NewerVersion { .. }) => return Err(error),
            found => found.ok(),
        };
        let (waiting, newer) =
            found.as_ref().map(|found| (found.waiting, found.newer)).unwrap_or_default();
        let remedy = if waiting.frames > 0 && taken.contains(&before) {
            Remedy::Blocked { by: before }
        } else if waiting.frames > 0 {
            // Two files may have had the same name.
            taken.push(before.clone());
            Remedy::PutBack(before)
        } else if newer.frames > 0 {
            Remedy::KeepForNewerRelease(newer)
        } else if has_lost {
            Remedy::KeepForLostCursor
        } else {
            Remedy::GiveUp
        };
        let (path, len_bytes) = (file.path, file.len_bytes);
        let damage = found.map(|found| found.damage);
        examined.push(Examined { path, len_bytes, waiting, damage, remedy });
    }
    for (name, len_bytes) in list_segments(disk, log_directory)? {
        let path = log_directory.join(name.to_string());
        if let Err(refused @ FileError::Io { .. }) = read(disk, &path, &cursors, is_known) {
            let to = log_directory.join(aside::free_name(&name.to_string(), &entries));
            let (waiting, damage) = (Holding::default(), None);
            let remedy = Remedy::SetAside { to, refused };
            examined.push(Examined { path, len_bytes, waiting, damage, remedy });
        }
    }
    Ok(examined)
}

/// The content of a file.
struct Found {
    waiting: Holding,
    /// Frames that readers wait for and that this release cannot use.
    newer: Holding,
    damage: Damage,
}

fn read(
    disk: &dyn Disk,
    path: &Path,
    cursors: &[CursorState],
    is_known: &dyn Fn(&StoredRecord) -> bool,
) -> Result<Found> {
    let mut reader = SegmentReader::open_path(disk, path, ReaderOptions::default())?;
    let (mut waiting, mut newer) = (Holding::default(), Holding::default());
    while let Some(located) = reader.next_frame()? {
        let (offset, charge) = (located.header.offset, located.header.charge);
        if cursors.iter().any(|cursor| cursor.waits_for(reader.readers(), offset))
            && let Some(record) = reader.body()?
        {
            if is_known(&record) { waiting.add(charge) } else { newer.add(charge) }
        }
    }
    Ok(Found { waiting, newer, damage: reader.damage() })
}

/// Applies the remedy of a file, if there is one. Durable when this returns.
pub fn apply(disk: &dyn Disk, examined: &Examined) -> Result<()> {
    let path = &examined.path;
    match &examined.remedy {
        Remedy::PutBack(to) | Remedy::SetAside { to, .. } => {
            disk.rename(path, to).at(path, "cannot rename")?;
        }
        Remedy::GiveUp => disk.remove_file(path).at(path, "cannot remove")?,
        Remedy::Blocked { .. } | Remedy::KeepForLostCursor | Remedy::KeepForNewerRelease(_) => {
            return Ok(());
        }
    }
    let directory = path.parent().unwrap_or(Path::new("."));
    disk.sync_directory(directory).at(directory, "cannot sync the directory")
}
