use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::fs::OFlags;

/// The files that exporters of a process write. Those with one path, also after a reload, write to
/// one file in turns; only the first write of all begins it anew. It is closed when the last ends.
#[derive(Default)]
pub struct Files(Mutex<HashMap<PathBuf, Known>>);

#[derive(Default)]
struct Known {
    turn: Weak<Turn>,
    begun: Arc<AtomicBool>,
}

/// The lock for writing to the file. Waiting for it blocks no thread.
pub(crate) type Turn = tokio::sync::Mutex<Current>;

pub(crate) struct Current {
    pub(crate) file: Option<File>,
    /// This process has written to it.
    pub(crate) begun: Arc<AtomicBool>,
}

impl Files {
    /// The file at a path, whatever links lead to it. It should exist.
    pub(crate) fn at(&self, path: &Path) -> Arc<Turn> {
        // A file without a path, as a pipe behind /dev/stdout, is known by the name it was given.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut all = self.0.lock();
        let Known { turn, begun } = all.entry(path).or_default();
        turn.upgrade().unwrap_or_else(|| {
            let new = Arc::new(Turn::new(Current { file: None, begun: begun.clone() }));
            *turn = Arc::downgrade(&new);
            new
        })
    }
}

/// Whether a file is still the one at its path. After a rename, readers of the path miss new data.
pub(crate) fn is_at(path: &Path, file: &File) -> io::Result<bool> {
    let there = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        there => there?,
    };
    let own = file.metadata()?;
    Ok((own.dev(), own.ino()) == (there.dev(), there.ino()))
}

/// Opens a file to append to it, or creates it with this mode, less what the umask takes. A pipe
/// that no process reads is an error, not a wait.
pub(crate) fn open(path: &Path, mode: u32) -> io::Result<File> {
    let without_waiting = OFlags::NONBLOCK.bits().cast_signed();
    // With O_APPEND, the write after a failed one that was cut off lands behind the last request.
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(mode).custom_flags(without_waiting);
    let file = options.open(path)?;
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file)
}
