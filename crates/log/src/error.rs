//! Errors of the files of a log.

use std::io;
use std::path::{Path, PathBuf};

use crate::format::{SegmentName, Version};
use crate::types::DiskTrouble;

pub type Result<A, E = FileError> = std::result::Result<A, E>;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The message has the cause: it is no source, which would be shown again.
    #[error("{}: {action}: {error}", path.display())]
    Io { path: PathBuf, action: &'static str, error: io::Error },
    #[error(
        "{}: format version {found}; this release reads up to {}; nothing was changed",
        path.display(),
        crate::format::VERSION
    )]
    NewerVersion { path: PathBuf, found: Version },
    #[error("{}: belongs to another log; nothing was changed", path.display())]
    Foreign { path: PathBuf },
    /// It has no frame: the process or the power failed while the file was being created.
    #[error("{}: the segment was never finished and holds no frame", path.display())]
    Unfinished { path: PathBuf },
    #[error("{}: no segment, or one whose header cannot be read", path.display())]
    NoSegment { path: PathBuf },
    #[error("{}: was renamed or copied: it is the segment {name}", path.display())]
    Misnamed { path: PathBuf, name: SegmentName, log_id: u128 },
    #[error("{}: neither of the two slots can be read", path.display())]
    DamagedCursor { path: PathBuf },
    #[error(
        "{}: the list of cursor files is damaged; the next start writes it anew, and it is not \
         known whether one of the files is gone",
        path.display()
    )]
    DamagedList { path: PathBuf },
    #[error("a frame of {body_bytes} bytes for {readers} readers exceeds what the format can hold")]
    FrameTooLarge { body_bytes: usize, readers: usize },
    #[error("{}: the file was removed or moved away while it was in use", path.display())]
    Removed { path: PathBuf },
    #[error("{}: the file was cut while it was in use", path.display())]
    Cut { path: PathBuf },
    /// A mount is missing, or there is another one.
    #[error("{}: it is on another file system than at the start", path.display())]
    OtherFileSystem { path: PathBuf },
    /// An earlier write or sync failed. Frames that were not durable go to another segment.
    #[error("{}: an earlier write failed", path.display())]
    Failed { path: PathBuf },
}

impl FileError {
    /// True if the file is not there (any more).
    pub fn is_not_found(&self) -> bool {
        matches!(self, FileError::Io { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }

    /// True if a segment has to be passed as a whole: reading goes on with the next one.
    pub fn is_of_whole_segment(&self) -> bool {
        use FileError::{Misnamed, NewerVersion, NoSegment};
        matches!(self, NoSegment { .. } | NewerVersion { .. } | Misnamed { .. })
    }

    /// True if a file or its directory was removed or moved away while it was in use.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_not_found() || matches!(self, FileError::Removed { .. })
    }

    /// True if another process changed a file that was in use.
    pub(crate) fn is_disturbance(&self) -> bool {
        matches!(self, FileError::Removed { .. } | FileError::Cut { .. })
    }

    /// True if only space is missing: disk full, quota exceeded, no inodes left, a limit of the
    /// process (`RLIMIT_FSIZE`).
    pub fn is_out_of_space(&self) -> bool {
        matches!(self, FileError::Io { error, .. }
        if matches!(
            error.kind(),
            io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::FileTooLarge
        ))
    }

    pub(crate) fn trouble(&self, stops_writing: bool) -> DiskTrouble {
        let (reason, out_of_space) = (self.to_string(), self.is_out_of_space());
        DiskTrouble { reason, out_of_space, stops_writing, ..DiskTrouble::default() }
    }
}

/// Adds to an I/O error the path and the action that failed.
pub(crate) trait IoContext<A> {
    fn at(self, path: &Path, action: &'static str) -> Result<A>;
}

impl<A> IoContext<A> for io::Result<A> {
    fn at(self, path: &Path, action: &'static str) -> Result<A> {
        self.map_err(|error| FileError::Io { path: path.to_owned(), action, error })
    }
}
