//! Files that may be copies of others: before the original is truncated or removed, or compressed.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::file::{File, Place};
use crate::gone::is_at;
use crate::identify::has_lead;
use crate::identity::{Inode, LEAD_BYTES};
use crate::open::open_file;
use crate::read::AWAY_TIME;
use crate::{FileId, Tail, window};

/// A file that may be a copy of another one is not read for this long: the original is about to be
/// truncated or removed.
const COPY_PATIENCE: Duration = Duration::from_secs(10);
/// One that grows by so much between two looks is being copied: it is waited for longer.
const COPIED_BYTES: u64 = 64 << 10;
const COPIED_PATIENCE: Duration = Duration::from_secs(600);
/// A removed file that had something new within this time has a writer that goes on.
const QUIET: Duration = Duration::from_secs(1);
pub(crate) const COPY_INTERVAL: Duration = Duration::from_millis(200);

/// The relation of a file to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Likeness {
    /// Another file.
    None,
    /// It may be its copy.
    Copy,
    /// It has taken its place, or is about to: the other one was removed, or is its plain form.
    Successor,
}

impl Tail {
    /// Whether the file begins as another one does that is there and of whose name its own is made:
    /// it may be the copy of it before that is truncated, or its compressed form. One that has left
    /// and had nothing new for long is no longer followed if this file goes on with its content.
    pub(crate) fn is_copy(&mut self, id: FileId, head: &[u8], now: Instant) -> io::Result<bool> {
        let file = &self.files[&id];
        let Some(open) = &file.open else { return Ok(false) };
        let size = open.metadata()?.len();
        let names = derived_from(&file.path);
        let (mut originals, mut followed, mut succeeds) = (Vec::new(), None, false);
        for other in self.originals(&file.path, &names) {
            let original = &self.files[&other];
            let is_none = original.place == Place::Missing || original.is_deleted;
            if other == id || is_none || original.rare.held.is_some() {
                continue;
            }
            let likeness = likeness(open, file, size, original, head)?;
            if likeness == Likeness::None {
                continue;
            }
            let is_successor =
                likeness == Likeness::Successor && self.may_go_on(original, file, &names);
            if is_successor && is_at_rest(original, now) {
                followed = Some(other);
            }
            originals.push(other);
            // One that is still read, or quiet, is waited for until it is at rest.
            succeeds |= is_successor && (original.unread() > 0 || now >= original.active + QUIET);
        }
        if let Some(original) = followed {
            if let Some(file) = self.files.get_mut(&original) {
                file.is_over = true;
            }
            self.set_missing(original);
            return Ok(true);
        }
        if originals.is_empty() {
            return Ok(false);
        }
        // It may be truncated already.
        originals.into_iter().for_each(|original| self.schedule.soon(original));
        let Some(file) = self.files.get_mut(&id) else { return Ok(false) };
        let (since, mut until) = file.rare.held.unwrap_or((now, now + COPY_PATIENCE));
        if size >= file.size.saturating_add(COPIED_BYTES) {
            until = until.max((now + COPY_PATIENCE).min(since + COPIED_PATIENCE));
        }
        (file.size, file.rare.held) = (size, Some((since, until)));
        Ok(now < until || succeeds)
    }

    /// Contents of whose names this one is made, and those that have left this directory.
    fn originals(&self, path: &Path, names: &[PathBuf]) -> Vec<FileId> {
        let mut found: Vec<FileId> =
            names.iter().filter_map(|path| self.by_path.get(&**path).copied()).collect();
        found.extend(self.away.iter().filter(|id| {
            self.files.get(id).is_some_and(|file| file.path.parent() == path.parent())
        }));
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// `size`: that of the file. An original that cannot be read keeps no other file from being read.
fn likeness(
    open: &fs::File,
    file: &File,
    size: u64,
    original: &File,
    head: &[u8],
) -> io::Result<Likeness> {
    let has_name = has_name(original);
    let is_shorter = !file.is_gzip && size < original.mark.offset;
    // A copy is whole before its original is removed.
    if is_shorter && !has_name || !begins_as(original, head).unwrap_or(false) {
        return Ok(Likeness::None);
    }
    let is_like = if is_shorter {
        let length = size.min(LEAD_BYTES as u64);
        let end = window::peek(open, false, size - length, length as usize)?;
        has_bytes(original, size - length, &end).unwrap_or(false)
    } else {
        has_lead(open, file.is_gzip, original)?
    };
    let is_compressed = file.is_gzip && !original.is_gzip;
    Ok(match original.place {
        _ if !is_like => Likeness::None,
        // A plain file beside one that was renamed, and is there, is another one.
        Place::Away if is_compressed || !has_name => Likeness::Successor,
        _ => Likeness::Copy,
    })
}

/// The paths of which this one may be made: of `a.log.1.gz` those of `a.log.1` and `a.log`, of
/// `a-1.log` that of `a.log`.
pub(crate) fn derived_from(path: &Path) -> Vec<PathBuf> {
    let (Some(name), Some(directory)) = (path.file_name(), path.parent()) else {
        return Vec::new();
    };
    let Some(name) = name.to_str() else { return Vec::new() };
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    let cuts = name.match_indices(['.', '-', '_']).map(|(at, _)| at).filter(|at| *at > 0);
    let names = cuts.flat_map(|at| [name[..at].to_owned(), format!("{}.{ending}", &name[..at])]);
    names.map(|name| directory.join(name)).filter(|it| it != path).collect()
}

/// Whether a file has a name still.
fn has_name(file: &File) -> bool {
    let is_at_its_name = || file.rare.moved.as_ref().is_some_and(|path| is_at(path, file.inode));
    match file.open.as_ref().map(fs::File::metadata) {
        _ if file.place == Place::Listed => true,
        Some(Ok(metadata)) => metadata.nlink() > 0,
        Some(Err(_)) | None => is_at_its_name(),
    }
}

/// Whether a file has left and is read to its end, and nothing came for long.
fn is_at_rest(file: &File, now: Instant) -> bool {
    file.place == Place::Away
        && file.is_identified
        && file.rare.begun.is_empty()
        && file.rare.partial.is_none()
        && now >= file.active + AWAY_TIME
}

/// Whether a content begins, or began when it was read, as these bytes do.
fn begins_as(original: &File, head: &[u8]) -> io::Result<bool> {
    if original.head.len > 0 && original.head.begins(head) {
        return Ok(true);
    }
    let Some(opened) = reopened(original)? else { return Ok(false) };
    let theirs = window::peek(&opened, original.is_gzip, 0, head.len())?;
    let length = theirs.len().min(head.len());
    Ok(length > 0 && theirs[..length] == head[..length])
}

/// Whether a content has these bytes at an offset.
fn has_bytes(original: &File, offset: u64, bytes: &[u8]) -> io::Result<bool> {
    let Some(opened) = reopened(original)? else { return Ok(false) };
    Ok(window::peek(&opened, original.is_gzip, offset, bytes.len())? == bytes)
}

/// The file of a content, if that is still there.
fn reopened(original: &File) -> io::Result<Option<fs::File>> {
    let opened = match &original.open {
        Some(open) => open.try_clone(),
        None => open_file(original.rare.moved.as_deref().unwrap_or(&original.path)),
    };
    match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => {
            let opened = opened?;
            let is_same = Inode::of(&opened.metadata()?) == original.inode;
            Ok(is_same.then_some(opened))
        }
    }
}
