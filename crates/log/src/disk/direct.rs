//! Writing past the kernel's page cache (`O_DIRECT`). What is written once, and read again only by
//! a backend that was away, is worth no page of it: the copy costs more CPU time than all else that
//! writing takes, checksums among it, and pages that wait for the disk count as the memory of the
//! container.
//!
//! A file system may not be able to do it, for any file or for some lengths: then it is written the
//! usual way from there on.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::aligned::is_aligned;

/// The second descriptor of a file, opened when something aligned is written for the first time.
pub(super) struct Direct {
    path: PathBuf,
    /// None: it cannot be had.
    file: OnceLock<Option<File>>,
    is_refused: AtomicBool,
}

impl Direct {
    pub(super) fn new(path: &Path) -> Self {
        Direct { path: path.to_owned(), file: OnceLock::new(), is_refused: AtomicBool::new(false) }
    }

    /// One system call. None: these bytes are to be written the usual way.
    pub(super) fn write_at(
        &self,
        file: &File,
        bytes: &[u8],
        position: u64,
    ) -> Option<io::Result<usize>> {
        if !is_aligned(bytes, position) || self.is_refused.load(Ordering::Relaxed) {
            return None;
        }
        let direct = self.file.get_or_init(|| open(&self.path, file)).as_ref()?;
        let written = direct.write_at(bytes, position);
        let refusal = written.as_ref().err().and_then(Errno::from_io_error);
        if matches!(refusal, Some(Errno::INVAL | Errno::OPNOTSUPP)) {
            // Whatever is wrong with it, another way may do.
            self.is_refused.store(true, Ordering::Relaxed);
            return None;
        }
        Some(written)
    }
}

/// The same file once more, if it is still there and the file system is willing.
fn open(path: &Path, file: &File) -> Option<File> {
    let direct = OpenOptions::new()
        .write(true)
        .custom_flags(OFlags::DIRECT.bits().cast_signed())
        .open(path)
        .ok()?;
    let identity =
        |file: &File| file.metadata().map(|attributes| (attributes.dev(), attributes.ino())).ok();
    (identity(&direct)? == identity(file)?).then_some(direct)
}
