//! Writing past the kernel's page cache (`O_DIRECT`). Frames are written once, and read again only
//! after a backend was away, so that a page for them is wasted: the copy costs more CPU time than
//! all other work of writing, checksums included, and pages that wait for the disk count as memory
//! of the container.
//!
//! A file system may not support it, for any file or for some lengths: then the file is written the
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

/// The second descriptor of a file, opened at the first aligned write.
pub(super) struct Direct {
    path: PathBuf,
    /// None: it cannot be opened.
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
            // Whatever the cause, the usual way may work.
            self.is_refused.store(true, Ordering::Relaxed);
            return None;
        }
        Some(written)
    }
}

/// A second handle of the file, if the path still leads to it and the file system allows it.
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
