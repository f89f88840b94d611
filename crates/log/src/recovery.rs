//! Files that an earlier process left: how they are opened and what is found, for how long a disk
//! that refuses is asked again, which frames of an unfinished file count, and where it is cut. The
//! log and each store of dead letters open their files by this.
//!
//! Invariants
//! - A file that the disk refuses to read does not count as damaged: none of it is removed or cut.
//! - A segment that ends without a footer is never appended to.
//! - The clean-up can be repeated: a crash during recovery loses nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::companion::Companion;
use crate::disk::remove_if_there;
use crate::disk::{DirectoryLock, Disk, LockError, create_directories};
use crate::error::{FileError, IoContext as _, Result};
use crate::format::{BLOCK_LEN_BYTES, FrameHeader};
use crate::missing::Missing;
use crate::segment::{Damage, Located, SegmentScan, cut};
use crate::types::{MemoryUse, Offset, StoredRecord};

#[derive(Clone)]
pub struct OpenOptions {
    pub disk: Arc<dyn Disk>,
    /// Directory of this log alone, created if it is missing. The caller owns it
    /// ([`crate::disk::DirectoryLock`]).
    pub directory: PathBuf,
    /// Name of the log (its signal), for the headers of its files and the names of its threads.
    pub name: String,
    /// Length of a segment file. A frame that is larger gets one of its own.
    pub segment_bytes: u64,
    /// Counts the frames in memory. Logs that are given the same one share their memory.
    pub memory: Arc<MemoryUse>,
    /// Above this in `memory` (bytes of charge), frames that are on disk too are evicted.
    pub memory_limit_bytes: u64,
    /// Bytes of charge that are read from disk ahead of each reader.
    pub read_ahead_bytes: u64,
    /// A frame that is not resolved everywhere is written after this time, and at once while a
    /// reader lags by more or memory is short.
    pub flush_after: Duration,
    /// Interval of writing cursors and removing segments without a reader, while something is on
    /// disk. Frames that were resolved since are delivered again after a crash.
    pub keep_interval: Duration,
    /// Text that is written when cursors are.
    pub companion: Option<Arc<dyn Companion>>,
    /// The log goes on without a file or a block that the disk has refused for this long: at the
    /// start, and when a reader comes to bad blocks.
    pub read_patience: Duration,
}

impl OpenOptions {
    pub fn new(
        disk: Arc<dyn Disk>,
        directory: impl Into<PathBuf>,
        name: impl Into<String>,
    ) -> Self {
        OpenOptions {
            disk,
            directory: directory.into(),
            name: name.into(),
            segment_bytes: 64 << 20,
            memory: Arc::default(),
            memory_limit_bytes: 64 << 20,
            read_ahead_bytes: 4 << 20,
            flush_after: Duration::from_millis(20),
            // Half of the second that may be delivered again after a crash: writing takes time too.
            keep_interval: Duration::from_millis(500),
            companion: None,
            read_patience: READ_PATIENCE,
        }
    }
}

/// Files and damage that [`crate::Log::open`] found on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    pub segments: u64,
    pub disk_bytes: u64,
    /// Segments that the disk refused to read. They stay as they are until readers come to them.
    pub unread: Vec<PathBuf>,
    /// Newest segments of which the end is cut, and its bytes: a crash left it of a write, as far
    /// as readers' files tell.
    pub cut: Vec<(PathBuf, u64)>,
    /// Files that are set aside. Nothing in them is delivered.
    pub set_aside: Vec<PathBuf>,
    /// Segments that had the name of another one. They are set aside.
    pub misnamed: Vec<PathBuf>,
    /// Readers that have a cursor file.
    pub cursors: u64,
    /// Bytes of the segments whose frames were scanned, the newest ones.
    pub bytes_scanned: u64,
    /// Damaged frames in those. All damage is counted when readers come to it.
    pub frames_damaged: u64,
    /// Orphans that stand for cursor files of which nothing can be read, which are set aside, and
    /// for those that are gone. Everything that is on disk now is kept for them until they are
    /// forgotten.
    pub lost_cursors: Vec<String>,
    /// Frames that readers wait for and that no file has.
    pub missing: Missing,
    /// The list of cursor files is damaged and is written anew. Whether one is gone is not known.
    pub damaged_list: Option<PathBuf>,
    /// Cursor files of which the disk refused one slot. The other slot is used, and new offsets
    /// start far above it: the refused slot may be the newer one.
    pub cursors_refused: Vec<PathBuf>,
}

/// Creates the directory of a process's logs, and takes ownership of it. What the disk refuses is
/// tried again for ten seconds.
pub fn own_directory(disk: &dyn Disk, path: &Path) -> Result<DirectoryLock, LockError> {
    let patience = Patience::of(READ_PATIENCE);
    patience.ask(|| create_directories(disk, path).at(path, "cannot create"))?;
    let owned = patience.ask(|| match DirectoryLock::acquire(path) {
        Err(LockError::File(error)) => Err(error),
        owned => Ok(owned),
    });
    owned?
}

/// For how long a disk that refuses is asked again: at a start, and for the state of dead letters.
pub const READ_PATIENCE: Duration = Duration::from_secs(10);

/// Wait before an operation that the disk refused is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// Until when operations that the disk refuses are tried again.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    until: Instant,
}

impl Patience {
    /// No operation is tried again.
    pub(crate) fn none() -> Self {
        Patience::of(Duration::ZERO)
    }

    pub(crate) fn of(all: Duration) -> Self {
        Patience { until: Instant::now() + all }
    }

    /// Repeats an operation that the disk refuses, for a bounded time in all.
    pub(crate) fn ask<A>(self, mut ask: impl FnMut() -> Result<A>) -> Result<A> {
        use io::ErrorKind::{NotADirectory, PermissionDenied, ReadOnlyFilesystem};
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            match ask() {
                // A mistake of the operator does not pass: it is reported at once.
                Err(FileError::Io { error, .. })
                    if !left.is_zero()
                        && ![NotADirectory, PermissionDenied, ReadOnlyFilesystem]
                            .contains(&error.kind()) =>
                {
                    std::thread::sleep(left.min(RETRY));
                }
                asked => return asked,
            }
        }
    }
}

/// Facts of a segment that are known before it is scanned.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    /// Frames behind this offset are of the next file.
    pub(crate) last: Option<Offset>,
    /// Frames below were durable. Behind them, the last one of a segment that was not sealed may be
    /// torn: its body is read.
    pub(crate) durable_below: Offset,
    /// The bodies of all frames are read.
    pub(crate) reads_bodies: bool,
}

/// The body of a frame that a scan has come to.
pub(crate) enum Body {
    Unread,
    Damaged,
    Whole(StoredRecord),
}

/// Result of a scan.
pub(crate) struct Scanned {
    /// Highest offset of a frame that is not damaged.
    pub(crate) last: Option<Offset>,
    /// End of the last frame that is not damaged.
    pub(crate) end: u64,
    /// The last frame that is known to have been durable, whole or not, and its end.
    pub(crate) durable_last: Option<Offset>,
    pub(crate) durable_end: u64,
}

/// Scans a segment; `visit` gets the readers, the header and the body of each frame.
pub(crate) fn scan(
    segment: &mut SegmentScan,
    patience: Patience,
    known: Known,
    mut visit: impl FnMut(&[u32], &FrameHeader, Body),
) -> Result<Scanned> {
    // Every frame of a sealed segment was synced.
    let reads_bodies = known.reads_bodies || segment.info().footer.is_none();
    let (end, durable_end) = (segment.position(), segment.position());
    let mut scanned = Scanned { last: None, end, durable_last: None, durable_end };
    // The frame before, if it is whole, and the damage up to its end.
    let mut before: Option<(Located, Damage)> = None;
    while let Some(located) = patience.ask(|| segment.next_frame())? {
        let offset = located.header.offset;
        // Zeros up to the end of a block are padding: a sync ended there, before this was written.
        if let Some((whole, damage)) = before.take()
            && !whole.end().is_multiple_of(BLOCK_LEN_BYTES)
            && located.position == whole.end().next_multiple_of(BLOCK_LEN_BYTES)
            && segment.damage() == damage
        {
            scanned.durable_last = scanned.durable_last.max(Some(whole.header.offset));
            scanned.durable_end = scanned.durable_end.max(whole.end());
        }
        if known.last.is_some_and(|last| offset > last) {
            break;
        }
        if offset < known.durable_below {
            scanned.durable_last = scanned.durable_last.max(Some(offset));
            scanned.durable_end = located.end();
        }
        let body = match reads_bodies {
            true => patience.ask(|| segment.body())?.map_or(Body::Damaged, Body::Whole),
            false => Body::Unread,
        };
        if !matches!(body, Body::Damaged) {
            before = Some((located, segment.damage()));
            scanned.last = scanned.last.max(Some(offset));
            scanned.end = located.end();
        }
        visit(segment.readers(), &located.header, body);
    }
    // Nothing before a footer is what a crash left of a write.
    if let Some((position, footer)) = segment.footer_within()
        && footer.frames > 0
    {
        scanned.durable_last = scanned.durable_last.max(Some(footer.last_offset));
        scanned.durable_end = scanned.durable_end.max(position);
    }
    Ok(scanned)
}

/// Clean-up that recovery leaves to the maintenance thread.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    /// Files to be removed: they are empty, or all their frames are elsewhere.
    pub(crate) files: Vec<PathBuf>,
    /// Segments to be cut: first offset, path and end of the last frame.
    pub(crate) tails: Vec<(Offset, PathBuf, u64)>,
}

impl Leftovers {
    /// Best effort: the next start does it again. Returns the first offsets of the segments that
    /// were cut, and their lengths; and the files that could not be removed.
    pub(crate) fn clean_up(self, disk: &dyn Disk) -> (Vec<(Offset, u64)>, Vec<PathBuf>) {
        let stays = |path: &PathBuf| remove_if_there(disk, path).is_err();
        let stayed = self.files.into_iter().filter(stays).collect();
        let tails = self.tails.into_iter();
        let cut = |(first, path, end): (_, PathBuf, _)| Some((first, cut(disk, &path, end).ok()?));
        (tails.filter_map(cut).collect(), stayed)
    }
}
