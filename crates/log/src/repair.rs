//! Decides what becomes of the files of a log that were set aside. Nothing else gives data up.
//!
//! A file goes back to its name when a reader waits for something in it that can be read, also one
//! that was renamed by hand. Another one may be removed, and a segment that the disk refuses to
//! read may be set aside, which only an operator decides. The caller owns the directory
//! ([`crate::disk::DirectoryLock`]).

use std::path::{Path, PathBuf};

use crate::cursors::{CursorFile, cursor_paths, read_list};
use crate::disk::Disk;
use crate::error::{FileError, IoContext as _, Result};
use crate::format::{CursorState, SegmentName};
use crate::inspect::lost_cursors;
use crate::segment::{
    Damage, ScanOptions, SegmentScan, free_name_among, list_if_there, list_segments, list_set_aside,
};
use crate::types::{Holding, StoredRecord};

/// A file that was set aside, that has a wrong name, or that the disk refuses to read.
#[derive(Debug)]
pub struct Examined {
    pub path: PathBuf,
    pub len_bytes: u64,
    /// Whole frames that some reader waits for.
    pub waiting: Holding,
    /// Damage of the file; the default if nothing in it can be read.
    pub damage: Damage,
    pub remedy: Remedy,
}

#[derive(Debug)]
pub enum Remedy {
    /// Give it this name, its own: some reader gets more than without the file.
    PutBack(PathBuf),
    /// The same, but another file has this name.
    Blocked { by: PathBuf },
    /// Remove it: no reader waits for anything in it that can be read.
    GiveUp,
    /// Keep it: what lost cursors wait for is not known.
    KeepForLostCursor,
    /// Keep it: readers wait for this in it, which only a newer release can use.
    KeepForNewerRelease(Holding),
    /// Keep it: the disk refuses to read it, or a part of it.
    KeepUnread(FileError),
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
    // Without the list it is not known whether a cursor is gone.
    let list = read_list(disk, log_directory);
    let has_lost = matches!(list, Err(FileError::DamagedList { .. }))
        || !lost_cursors(disk, log_directory)?.is_empty();
    let mut examined: Vec<Examined> = Vec::new();
    let mut taken: Vec<PathBuf> =
        entries.iter().map(|entry| log_directory.join(&entry.name)).collect();
    for file in list_set_aside(disk, log_directory)? {
        let (found, refused) = read(disk, &file.path, &cursors, is_known)?;
        let found = found.unwrap_or_default();
        let before = log_directory.join(found.name.unwrap_or(file.name).to_string());
        let remedy = if found.waiting.frames > 0 && taken.contains(&before) {
            Remedy::Blocked { by: before }
        } else if found.waiting.frames > 0 {
            // Two files may have had the same name.
            taken.push(before.clone());
            Remedy::PutBack(before)
        } else if let Some(refused) = refused {
            Remedy::KeepUnread(refused)
        } else if found.newer.frames > 0 {
            Remedy::KeepForNewerRelease(found.newer)
        } else if has_lost {
            Remedy::KeepForLostCursor
        } else {
            Remedy::GiveUp
        };
        let (path, len_bytes) = (file.path, file.len_bytes);
        let (waiting, damage) = (found.waiting, found.damage);
        examined.push(Examined { path, len_bytes, waiting, damage, remedy });
    }
    for (name, len_bytes) in list_segments(disk, log_directory)? {
        let path = log_directory.join(name.to_string());
        let (found, refused) = read(disk, &path, &cursors, is_known)?;
        let own_name = found.as_ref().and_then(|found| found.name);
        let is_read = found.is_some();
        let Found { waiting, damage, .. } = found.unwrap_or_default();
        let remedy = match (own_name, refused) {
            // Without anything that is waited for, the next start sets it aside.
            (Some(own), _) if waiting.frames > 0 => {
                let to = log_directory.join(own.to_string());
                let is_taken = taken.contains(&to);
                taken.push(to.clone());
                if is_taken { Remedy::Blocked { by: to } } else { Remedy::PutBack(to) }
            }
            // A start passes bad blocks among readable ones.
            (_, Some(refused)) if !is_read => {
                let to = log_directory.join(free_name_among(&entries, &name.to_string()));
                Remedy::SetAside { to, refused }
            }
            _ => continue,
        };
        examined.push(Examined { path, len_bytes, waiting, damage, remedy });
    }
    Ok(examined)
}

/// The content of a file.
#[derive(Default)]
struct Found {
    /// Its own name, if it has that of another segment.
    name: Option<SegmentName>,
    waiting: Holding,
    /// Frames that readers wait for and that this release cannot use.
    newer: Holding,
    damage: Damage,
}

/// The content, as far as it can be read, and the first error of the disk.
fn read(
    disk: &dyn Disk,
    path: &Path,
    cursors: &[CursorState],
    is_known: &dyn Fn(&StoredRecord) -> bool,
) -> Result<(Option<Found>, Option<FileError>)> {
    let with = |pass_unreadable| {
        let options = ScanOptions { pass_unreadable, ..ScanOptions::default() };
        read_with(options, disk, path, cursors, is_known)
    };
    match with(false) {
        Ok(found) => Ok((Some(found), None)),
        Err(refused @ FileError::Io { .. }) => Ok((with(true).ok(), Some(refused))),
        Err(error @ FileError::NewerVersion { .. }) => Err(error),
        // There is no frame in it.
        Err(_) => Ok((None, None)),
    }
}

fn read_with(
    options: ScanOptions,
    disk: &dyn Disk,
    path: &Path,
    cursors: &[CursorState],
    is_known: &dyn Fn(&StoredRecord) -> bool,
) -> Result<Found> {
    let mut scan = SegmentScan::open_misnamed(disk, path, options)?;
    let mut found = Found { name: scan.name_if_misnamed(), ..Found::default() };
    while let Some(located) = scan.next_frame()? {
        let (offset, charge) = (located.header.offset, located.header.charge);
        if cursors.iter().any(|cursor| cursor.waits_for(scan.readers(), offset))
            && let Some(record) = scan.body()?
        {
            if is_known(&record) { found.waiting.add(charge) } else { found.newer.add(charge) }
        }
    }
    found.damage = scan.damage();
    Ok(found)
}

/// Applies the remedy of a file, if there is one. Durable when this returns.
pub fn apply(disk: &dyn Disk, examined: &Examined) -> Result<()> {
    let path = &examined.path;
    match &examined.remedy {
        Remedy::PutBack(to) | Remedy::SetAside { to, .. } => {
            disk.rename(path, to).at(path, "cannot rename")?;
        }
        Remedy::GiveUp => disk.remove_file(path).at(path, "cannot remove")?,
        Remedy::Blocked { .. }
        | Remedy::KeepForLostCursor
        | Remedy::KeepForNewerRelease(_)
        | Remedy::KeepUnread(_) => return Ok(()),
    }
    let directory = path.parent().unwrap_or(Path::new("."));
    disk.sync_directory(directory).at(directory, "cannot sync the directory")
}
