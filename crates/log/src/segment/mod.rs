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
pub use reader::{Body, Damage, Located, ReaderOptions, SegmentReader};
pub use writer::{NewSegment, SegmentWriter};

use crate::disk::Disk;
use crate::format::{SegmentHeader, Version};

/// A number that nobody outside can guess, for epochs and log ids.
pub fn random_u64() -> io::Result<u64> {
    let mut bytes = [0; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(read) => filled += read,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(u64::from_le_bytes(bytes))
}

/// What a segment's files can refuse.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    #[error("{}: {action}: {source}", path.display())]
    Io { path: PathBuf, action: &'static str, source: io::Error },
    #[error("{}: format version {found}; this release reads up to {}; the file was left as it is", path.display(), crate::format::VERSION)]
    NewerVersion { path: PathBuf, found: Version },
    /// Nothing can be in it: the process or the power went while the file was being created.
    #[error("{}: the segment was never finished and holds no frame", path.display())]
    Unfinished { path: PathBuf },
    #[error("{}: no segment, or one whose header cannot be read", path.display())]
    NoSegment { path: PathBuf },
    #[error("a frame of {body_bytes} bytes for {readers} readers exceeds what the format can hold")]
    FrameTooLarge { body_bytes: usize, readers: usize },
    /// An earlier write or sync failed. What was not durable has to be written to another segment.
    #[error("{}: an earlier write failed", path.display())]
    Failed { path: PathBuf },
}

impl SegmentError {
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| SegmentError::Io { path, action, source }
    }

    /// True if the file is not there (any more).
    pub fn is_not_found(&self) -> bool {
        matches!(self, SegmentError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// True if nothing but space is missing: disk full, quota exceeded, no inodes left.
    pub fn is_out_of_space(&self) -> bool {
        matches!(self, SegmentError::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }
}

/// The segments of a directory in order of their offsets, with their lengths; none if the directory does not exist.
pub fn list_segments(disk: &dyn Disk, directory: &Path) -> Result<Vec<(SegmentName, u64)>, SegmentError> {
    let entries = match disk.list(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        result => result.map_err(SegmentError::io(directory, "cannot list"))?,
    };
    let files = entries.into_iter().filter(|entry| !entry.is_directory);
    let mut segments =
        files.filter_map(|entry| Some((SegmentName::parse(&entry.name)?, entry.len_bytes))).collect::<Vec<_>>();
    segments.sort();
    Ok(segments)
}

/// What is known of a segment without reading its frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    pub header: SegmentHeader,
    /// None for a segment that was not sealed.
    pub footer: Option<crate::format::Footer>,
    pub len_bytes: u64,
}
