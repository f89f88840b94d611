//! Segment files: written once from front to back, read from anywhere between frames. Here is what
//! is known of them without reading their frames: names, those of files that were set aside, header
//! and footer, and the files of a folder. The log keeps frames in them, and so do dead letters.

mod scan;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};
use scan::last_byte_set;

use crate::disk::{Access, BadBlocks, DirectoryEntry, Disk, DiskFile, Reads, read_full_at};
use crate::error::{FileError, IoContext as _, Result};
use crate::format::{
    BLOCK_LEN_BYTES, BlockError, FOOTER_LEN_BYTES, FRAME_ALIGNMENT_BYTES, FileKind, Footer,
    FrameHeader, HeaderParse, SEGMENT_HEADER_LEN_BYTES, SegmentHeader, SegmentName, VERSION,
    frame_epoch, parse_frame_header,
};
use crate::types::{Offset, StoredRecord, unix_now_ns};

pub use scan::{Damage, Located, ScanOptions, SegmentScan};
pub use writer::SegmentWriter;

/// Is appended to the name of a file that is set aside because it could not be read.
const ASIDE_EXTENSION: &str = ".damaged";

/// Names for setting a file aside, in the order in which they are tried: an older file of the same
/// name is never replaced.
fn names_aside(file_name: &str) -> impl Iterator<Item = String> + '_ {
    let further = (2..).map(move |number: u32| format!("{file_name}{ASIDE_EXTENSION}-{number}"));
    std::iter::once(format!("{file_name}{ASIDE_EXTENSION}")).chain(further)
}

/// The first of these names that is free.
pub(crate) fn free_name(file_name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut names = names_aside(file_name);
    names.find(|name| !is_taken(name)).expect("there are more names than files")
}

/// The name for setting aside a file of a directory with these entries.
pub(crate) fn free_name_among(entries: &[DirectoryEntry], file_name: &str) -> String {
    free_name(file_name, |name| entries.iter().any(|entry| entry.name == name))
}

/// The name that a file had before it was set aside. None if it was not.
pub(crate) fn name_before(file_name: &str) -> Option<&str> {
    let (before, number) = file_name.rsplit_once(ASIDE_EXTENSION)?;
    let is_number =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
    let is_ours = number.is_empty() || number.strip_prefix('-').is_some_and(is_number);
    (is_ours && !before.is_empty()).then_some(before)
}

/// The name that a segment had before it was set aside. None for the name of another kind of file.
pub(crate) fn segment_before(file_name: &str) -> Option<SegmentName> {
    name_before(file_name).and_then(SegmentName::parse)
}

/// The entries of a directory, none if it is not there.
pub fn list_if_there(disk: &dyn Disk, path: &Path) -> Result<Vec<DirectoryEntry>> {
    match disk.list(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries.at(path, "cannot list"),
    }
}

/// The files of a directory, none if it is not there.
pub(crate) fn list_files(
    disk: &dyn Disk,
    path: &Path,
) -> Result<impl Iterator<Item = DirectoryEntry> + use<>> {
    Ok(list_if_there(disk, path)?.into_iter().filter(|entry| !entry.is_directory))
}

/// The segments of a directory in order, with their lengths in bytes; empty if it is missing.
pub fn list_segments(disk: &dyn Disk, directory: &Path) -> Result<Vec<(SegmentName, u64)>> {
    let segment = |entry: DirectoryEntry| Some((SegmentName::parse(&entry.name)?, entry.len_bytes));
    let mut segments: Vec<_> = list_files(disk, directory)?.filter_map(segment).collect();
    segments.sort();
    Ok(segments)
}

/// A file that was set aside: readers passed something in it, so that it is not removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// As it was before, or as it should have been.
    pub name: SegmentName,
    pub path: PathBuf,
    pub len_bytes: u64,
}

/// A file that is not needed and that the disk refuses to remove or to set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unremoved {
    pub path: PathBuf,
    pub len_bytes: u64,
    pub why: String,
}

/// The files of a directory that were set aside, in order; empty if it is missing.
pub fn list_set_aside(disk: &dyn Disk, directory: &Path) -> Result<Vec<SetAside>> {
    let set_aside = |DirectoryEntry { name, len_bytes, .. }| {
        let path = directory.join(&name);
        segment_before(&name).map(|name| SetAside { name, path, len_bytes })
    };
    let mut files: Vec<_> = list_files(disk, directory)?.filter_map(set_aside).collect();
    files.sort_by_key(|file| file.name);
    Ok(files)
}

/// Renames a segment, also one that has the name of another. None if it is not there any more. If
/// the new name is lost in a power cut, the next start reads the file again.
pub(crate) fn set_aside(disk: &dyn Disk, path: &Path) -> Result<Option<SetAside>> {
    let (Some(directory), Some(file_name)) = (path.parent(), path.file_name()) else {
        return Ok(None);
    };
    let entries = disk.list(directory).at(directory, "cannot list")?;
    let file_name = file_name.to_string_lossy();
    let entry = entries.iter().find(|entry| entry.name == file_name);
    let Some(len_bytes) = entry.map(|entry| entry.len_bytes) else { return Ok(None) };
    let Some(name) = SegmentName::parse(&file_name) else { return Ok(None) };
    let opened = SegmentScan::open_misnamed(disk, path, ScanOptions::default());
    let name = opened.ok().and_then(|scan| scan.name_if_misnamed()).unwrap_or(name);
    let aside = directory.join(free_name_among(&entries, &name.to_string()));
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

/// Header and footer of a segment.
pub(super) fn read_info(
    file: &Arc<dyn DiskFile>,
    path: &Path,
    bad: &Arc<BadBlocks>,
) -> Result<SegmentInfo> {
    let len_bytes = file.len_bytes().at(path, "cannot read")?;
    // The first block, and the first frame for the case that both header copies are damaged.
    let mut block = vec![0; (SEGMENT_HEADER_LEN_BYTES as usize) * 2];
    let mut reads = Reads::new(file.clone(), bad.clone());
    let len = reads.read(&mut block, 0).at(path, "cannot read")?;
    let (header_block, behind) = block[..len].split_at(len.min(SEGMENT_HEADER_LEN_BYTES as usize));
    let header = match SegmentHeader::decode(header_block) {
        Ok(header) => header,
        Err(BlockError::NewerVersion { found }) => {
            return Err(FileError::NewerVersion { path: path.to_owned(), found });
        }
        Err(error) => {
            // Shorter, or all zeros: frames are written only after the header.
            let is_empty = match error {
                BlockError::Empty => is_zero(&mut reads, len_bytes).at(path, "cannot read")?,
                _ => len_bytes <= SEGMENT_HEADER_LEN_BYTES,
            };
            let header = if is_empty { None } else { find_header(behind, &mut reads, path)? };
            match (header, reads.last_error.take()) {
                (Some(header), _) => header,
                // Bytes that could not be read prove nothing.
                (None, Some(error)) => return Err(error).at(path, "cannot read"),
                (None, None) => {
                    let path = path.to_owned();
                    return Err(match is_empty {
                        true => FileError::Unfinished { path },
                        false => FileError::NoSegment { path },
                    });
                }
            }
        }
    };
    let mut footer = None;
    if len_bytes >= SEGMENT_HEADER_LEN_BYTES + FOOTER_LEN_BYTES {
        let position = len_bytes - FOOTER_LEN_BYTES;
        let mut block = [0; FOOTER_LEN_BYTES as usize];
        let mut reads = Reads::new(file.clone(), bad.clone());
        let len = reads.read(&mut block, position).at(path, "cannot read")?;
        footer = Footer::decode(&block[..len], header.epoch, position);
    }
    Ok(SegmentInfo { header, footer, len_bytes })
}

/// A header by the first whole frame that can be read: each frame has its file's epoch. `behind` is
/// what follows the header's block.
fn find_header(behind: &[u8], reads: &mut Reads, path: &Path) -> Result<Option<SegmentHeader>> {
    if let Some(header) = header_in_frame(behind, SEGMENT_HEADER_LEN_BYTES) {
        return Ok(Some(header));
    }
    let mut bytes = vec![0; ScanOptions::default().read_ahead_bytes];
    // A header that begins in a window ends in it.
    let step = bytes.len() as u64 - BLOCK_LEN_BYTES * 5;
    let mut position = SEGMENT_HEADER_LEN_BYTES;
    loop {
        let len = reads.read(&mut bytes, position).at(path, "cannot read")?;
        let places = (0..len as u64).step_by(FRAME_ALIGNMENT_BYTES as usize);
        let header = |at: u64| header_in_frame(&bytes[at as usize..len], position + at);
        if let Some(header) = places.filter_map(header).next() {
            return Ok(Some(header));
        }
        if len < bytes.len() {
            return Ok(None);
        }
        position += step;
    }
}

/// The header of a file, as far as a frame at this position tells it.
fn header_in_frame(bytes: &[u8], position: u64) -> Option<SegmentHeader> {
    let epoch = frame_epoch(bytes)?;
    match parse_frame_header(bytes, epoch, position) {
        HeaderParse::Frame(frame) => Some(SegmentHeader {
            version: VERSION,
            kind: FileKind::Log,
            log_id: 0,
            epoch,
            first_offset: frame.offset,
            created_unix_ns: 0,
            name: String::new(),
        }),
        HeaderParse::Needs(_) | HeaderParse::NoFrame => None,
    }
}

/// Whether all of a file is zeros. Bytes that the disk refuses count as other ones.
fn is_zero(reads: &mut Reads, len_bytes: u64) -> io::Result<bool> {
    let mut bytes = vec![0; ScanOptions::default().read_ahead_bytes];
    let mut position = 0;
    while position < len_bytes {
        let read = reads.read(&mut bytes, position)?;
        if read == 0 {
            break;
        }
        if last_byte_set(&bytes[..read]).is_some() {
            return Ok(false);
        }
        position += read as u64;
    }
    Ok(true)
}

/// Cuts a file that was not sealed behind its last whole frame, durably; returns its length. The
/// rest of that frame's block stays: a block with durable frames is never written again. Only if
/// other bytes follow in the block, its frames were never acknowledged, and they are cut.
pub(crate) fn cut(disk: &dyn Disk, path: &Path, end: u64) -> Result<u64> {
    let file = disk.open(path, Access::ReadWrite).at(path, "cannot open")?;
    let mut rest = [0; BLOCK_LEN_BYTES as usize];
    let rest = &mut rest[..(end.next_multiple_of(BLOCK_LEN_BYTES) - end) as usize];
    let mut cut = || {
        let len = read_full_at(&*file, rest, end)?;
        let is_unused = rest[..len].iter().all(|&byte| byte == 0);
        let len_bytes = if is_unused { end + len as u64 } else { end };
        file.set_len(len_bytes)?;
        file.sync_data()?;
        Ok(len_bytes)
    };
    cut().at(path, "cannot truncate")
}

/// A position in a directory's segments, for inspection.
pub struct SegmentChain {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    from_offset: u64,
    left: VecDeque<SegmentName>,
    current: Option<SegmentScan>,
    /// Frames of the current segment that are whole and of no use.
    strange: Damage,
    /// Of the segments before.
    damaged: Vec<(PathBuf, Damage)>,
}

impl SegmentChain {
    /// Frames below `from_offset` are passed over.
    pub fn open(disk: Arc<dyn Disk>, directory: &Path, from_offset: u64) -> Result<Self> {
        let left = list_segments(&*disk, directory)?.into_iter().map(|(name, _)| name).collect();
        Ok(SegmentChain {
            disk,
            directory: directory.to_owned(),
            from_offset,
            left,
            current: None,
            strange: Damage::default(),
            damaged: Vec::new(),
        })
    }

    /// The next whole header, None after the last one.
    pub fn next_frame(&mut self) -> Result<Option<Located>> {
        loop {
            let Some(scan) = &mut self.current else {
                let Some(name) = self.left.pop_front() else { return Ok(None) };
                let path = self.directory.join(name.to_string());
                self.current = open_if_there(&*self.disk, &path)?.filter(|scan| {
                    let footer = scan.info().footer;
                    footer.is_none_or(|footer| footer.last_offset >= self.from_offset)
                });
                continue;
            };
            match scan.next_frame()? {
                Some(located) if located.header.offset >= self.from_offset => {
                    return Ok(Some(located));
                }
                Some(_) => {}
                None => self.skip_segment(),
            }
        }
    }

    /// Goes on with the next segment.
    pub(crate) fn skip_segment(&mut self) {
        self.damaged.extend(self.damage_here());
        (self.current, self.strange) = (None, Damage::default());
    }

    /// Counts the frame that `next_frame` returned last as damaged.
    pub(crate) fn count_strange(&mut self, frame: &FrameHeader) {
        self.strange.add(Damage { frames: 1, regions: 0, bytes: frame.frame_len_bytes() });
    }

    /// As [`SegmentChain::next_frame`], but skips unreadable segments, which `verify` reports, and
    /// the rest of one that the disk refuses to read.
    pub(crate) fn next_readable(&mut self) -> Result<Option<Located>> {
        loop {
            match self.next_frame() {
                Err(error) if error.is_of_whole_segment() => {}
                Err(FileError::Io { .. }) => self.skip_segment(),
                result => return result,
            }
        }
    }

    /// The reader ids of the frame that `next_frame` returned last.
    pub fn readers(&self) -> &[u32] {
        self.current.as_ref().map_or(&[], SegmentScan::readers)
    }

    /// The frame that `next_frame` returned last; call it once for each. None if it is damaged.
    pub fn body(&mut self) -> Result<Option<StoredRecord>> {
        self.current.as_mut().map_or(Ok(None), SegmentScan::body)
    }

    /// The files in which damage was found so far.
    pub fn damaged(&self) -> Vec<(PathBuf, Damage)> {
        self.damaged.iter().cloned().chain(self.damage_here()).collect()
    }

    fn damage_here(&self) -> Option<(PathBuf, Damage)> {
        let scan = self.current.as_ref()?;
        let mut damage = scan.damage();
        damage.add(self.strange);
        (!damage.is_none()).then(|| (scan.path().to_owned(), damage))
    }
}

/// None for a segment that its owner has removed meanwhile, or is just creating.
pub(crate) fn open_if_there(disk: &dyn Disk, path: &Path) -> Result<Option<SegmentScan>> {
    match SegmentScan::open_path(disk, path, ScanOptions::default()) {
        Ok(scan) => Ok(Some(scan)),
        Err(FileError::Unfinished { .. }) => Ok(None),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The header of a segment that begins now.
pub(crate) fn new_header(
    kind: FileKind,
    log_id: u128,
    first_offset: Offset,
    name: &str,
) -> SegmentHeader {
    SegmentHeader {
        version: VERSION,
        kind,
        log_id,
        epoch: random_u64(),
        first_offset,
        created_unix_ns: unix_now_ns(),
        name: name.to_owned(),
    }
}

/// A number that cannot be guessed, for epochs and log ids.
pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    // The kernel always fills a buffer of this length.
    let filled = retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()));
    filled.expect("every kernel since Linux 3.17 gives random bytes");
    u64::from_le_bytes(bytes)
}
