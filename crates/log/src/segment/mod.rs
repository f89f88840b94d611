//! Segment files: written once from front to back, read from anywhere between frames.

mod buffer;
mod chain;
mod name;
mod reader;
mod writer;

use std::io;
use std::path::{Path, PathBuf};

pub use chain::SegmentChain;
pub(crate) use chain::open_if_there;
pub use name::SegmentName;
pub(crate) use name::segment_before;
pub use reader::{Damage, Located, ReaderOptions, SegmentReader};
pub use writer::SegmentWriter;

use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::aside::free_name;
use crate::disk::{DirectoryEntry, Disk, DiskFile, read_full_at};
use crate::error::{IoContext as _, Result};
use crate::format::{BLOCK_LEN_BYTES, SegmentHeader};

/// A number that cannot be guessed, for epochs and log ids.
pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    // The kernel always fills a buffer of this length.
    let filled = retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()));
    filled.expect("every kernel since Linux 3.17 gives random bytes");
    u64::from_le_bytes(bytes)
}

/// Cuts a file that was not sealed behind its last whole frame, durably; returns its length. The
/// rest of that frame's block stays: a block with durable frames is never written again. Only if
/// other bytes follow in the block, its frames were never acknowledged, and they are cut.
pub(crate) fn cut_unused(file: &dyn DiskFile, end: u64) -> io::Result<u64> {
    let mut rest = [0; BLOCK_LEN_BYTES as usize];
    let rest = &mut rest[..(end.next_multiple_of(BLOCK_LEN_BYTES) - end) as usize];
    let len = read_full_at(file, rest, end)?;
    let is_unused = rest[..len].iter().all(|&byte| byte == 0);
    let len_bytes = if is_unused { end + len as u64 } else { end };
    file.set_len(len_bytes)?;
    file.sync_data()?;
    Ok(len_bytes)
}

/// The entries of a directory, none if it is not there.
pub fn list_if_there(disk: &dyn Disk, path: &Path) -> Result<Vec<DirectoryEntry>> {
    match disk.list(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries.at(path, "cannot list"),
    }
}

/// The segments of a directory in order, with their lengths in bytes; empty if it is missing.
pub fn list_segments(disk: &dyn Disk, directory: &Path) -> Result<Vec<(SegmentName, u64)>> {
    let entries = list_if_there(disk, directory)?;
    let files = entries.into_iter().filter(|entry| !entry.is_directory);
    let mut segments = files
        .filter_map(|entry| Some((SegmentName::parse(&entry.name)?, entry.len_bytes)))
        .collect::<Vec<_>>();
    segments.sort();
    Ok(segments)
}

/// A file that was set aside: readers passed something in it, so that it is not removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// As it was before.
    pub name: SegmentName,
    pub path: PathBuf,
    pub len_bytes: u64,
}

/// The files of a directory that were set aside, in order; empty if it is missing.
pub fn list_set_aside(disk: &dyn Disk, directory: &Path) -> Result<Vec<SetAside>> {
    let entries = list_if_there(disk, directory)?;
    let mut files: Vec<_> = entries
        .into_iter()
        .filter(|entry| !entry.is_directory)
        .filter_map(|DirectoryEntry { name, len_bytes, .. }| {
            let path = directory.join(&name);
            segment_before(&name).map(|name| SetAside { name, path, len_bytes })
        })
        .collect();
    files.sort_by_key(|file| file.name);
    Ok(files)
}

/// Renames a file. None if it is not there any more. If the new name is lost in a power cut, the
/// next start reads the file again.
pub(crate) fn set_aside(disk: &dyn Disk, path: &Path) -> Result<Option<SetAside>> {
    let (Some(directory), Some(file_name)) = (path.parent(), path.file_name()) else {
        return Ok(None);
    };
    let entries = disk.list(directory).at(directory, "cannot list")?;
    let file_name = file_name.to_string_lossy();
    let entry = entries.iter().find(|entry| entry.name == file_name);
    let Some(len_bytes) = entry.map(|entry| entry.len_bytes) else { return Ok(None) };
    let Some(name) = SegmentName::parse(&file_name) else { return Ok(None) };
    let is_taken = |name: &str| entries.iter().any(|entry| entry.name == name);
    let aside = directory.join(free_name(&file_name, is_taken));
    disk.rename(path, &aside).at(path, "cannot set aside")?;
    let _ = disk.sync_directory(directory);
    Ok(Some(SetAside { name, path: aside, len_bytes }))
}

/// Facts of a segment that are known without reading its frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    pub header: SegmentHeader,
    /// None for a segment that was not sealed.
    pub footer: Option<crate::format::Footer>,
    pub len_bytes: u64,
}
