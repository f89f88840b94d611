//! The maintenance thread: writes the cursors, removes segments that no reader needs and rewrites
//! those that few frames pin. A file that stays is tried again, and its bytes count as used until
//! it is gone.
//!
//! While something is on disk it runs at each interval ([`crate::OpenOptions::keep_interval`]) and
//! soon after segments were given up. The text of the log's user is stored at each interval, if it
//! has changed. Safety does not need it: a cursor that was not written costs repeated deliveries
//! after a crash, a segment that was not removed costs space.
//!
//! Invariants
//! - Cursors are written, and those of removed readers are gone, before segments are removed:
//!   every frame that a stored cursor still needs is on disk.
//! - Only a segment in which no reader passed anything is removed. Any other is set aside.
//! - A rewritten segment has every frame of the old ones that some reader has not resolved. It
//!   replaces the first of them by a rename, when it is durable; the other old ones are removed
//!   after that, in order.

mod rewrite;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::companion;
use crate::cursors::CursorFiles;
use crate::disk::remove_if_there;
use crate::error::{FileError, IoContext as _, Result};
use crate::format::SegmentName;
use crate::log::{Ends, Home, Segment, Shared};
use crate::recovery::Leftovers;
use crate::segment::{Unremoved, list_files, set_aside};
use crate::types::{Offset, Record};

/// Segments that were given up for their space are removed after this time, all at once.
const REMOVED_AFTER: Duration = Duration::from_millis(50);
/// A file that could not be removed or set aside is tried again after this time.
const TRY_AGAIN: Duration = Duration::from_secs(5);

pub(crate) struct Maintenance<T> {
    shared: Arc<Shared<T>>,
    home: Home,
    files: Arc<Mutex<CursorFiles>>,
    leftovers: Leftovers,
    unremoved: Vec<Run>,
    /// Files that are to be set aside.
    to_set_aside: Vec<Run>,
    /// No segment is rewritten before this time: a new file could not be created.
    rewrite_at: Instant,
    /// First offsets of segments that could not be rewritten. They are left out meanwhile.
    passed_by: HashSet<Offset>,
    /// `passed_by` is cleared at this time.
    retry_at: Instant,
}

impl<T: Record> Maintenance<T> {
    pub(crate) fn new(
        shared: Arc<Shared<T>>,
        home: Home,
        files: Arc<Mutex<CursorFiles>>,
        leftovers: Leftovers,
    ) -> Self {
        Maintenance {
            shared,
            home,
            files,
            leftovers,
            unremoved: Vec::new(),
            to_set_aside: Vec::new(),
            rewrite_at: Instant::now(),
            passed_by: HashSet::new(),
            retry_at: Instant::now(),
        }
    }

    pub(crate) fn run(mut self) {
        self.clean_up();
        while self.wait() {
            self.maintain(false);
        }
        if self.shared.with_store(|store| store.ends) == Ends::Closing {
            self.maintain(true);
        }
        self.shared.with_store(|store| store.ends = Ends::Now);
        self.shared.maintenance_wake.notify_all();
    }

    fn maintain(&mut self, at_the_end: bool) {
        if at_the_end {
            self.prove_names();
        }
        let unpinned = self.take_unpinned(at_the_end);
        self.files.lock().store(&self.shared, &self.home, at_the_end);
        self.store_companion();
        let has_gone = !unpinned.is_empty();
        self.unremoved.extend(unpinned.into_iter().map(Run::of));
        self.remove_unneeded(at_the_end);
        if has_gone {
            // It closes them.
            self.shared.read_ahead_wake.notify_one();
        }
        // On a full disk there was no room for the list before.
        self.files.lock().remove_gone(&self.shared, &self.home);
        if !at_the_end {
            // Behind the cursors, which do not wait for a disk that refuses to read.
            self.prove_names();
        }
        if !at_the_end && Instant::now() >= self.rewrite_at {
            self.rewrite();
        }
    }

    fn store_companion(&self) {
        let Home { options, .. } = &self.home;
        if let Some(kept) = options.companion.as_ref().filter(|it| it.is_changed()) {
            let stored = companion::store(&*options.disk, &options.directory, &kept.text());
            kept.stored(stored);
        }
    }

    /// Returns true when the interval is over, false when the log closes and the writer has ended.
    fn wait(&self) -> bool {
        let mut next = Instant::now() + self.home.options.keep_interval;
        let mut inner = self.shared.inner.lock();
        loop {
            let store = inner.on_disk();
            if store.ends == Ends::Now || (store.ends == Ends::Closing && store.writer_has_ended) {
                return false;
            }
            if std::mem::take(&mut store.has_shed) {
                next = next.min(Instant::now() + REMOVED_AFTER);
            }
            if !self.shared.maintenance_wake.wait_until(&mut inner, next).timed_out() {
                continue;
            }
            let store = inner.on_disk();
            let has_work = !store.segments.by_first.is_empty()
                || !store.gone_readers.is_empty()
                || store.cursor_trouble.is_some()
                || !store.left_files.is_empty()
                || !self.unremoved.is_empty()
                || !self.to_set_aside.is_empty();
            if has_work && store.ends == Ends::No {
                return true;
            }
            // Nothing else is to be done: cursors are not worth a sync.
            MutexGuard::unlocked(&mut inner, || self.store_companion());
            next = Instant::now() + self.home.options.keep_interval;
        }
    }

    /// Does the clean-up that recovery left. Files that are cut are synced before any cursor is
    /// stored: later starts do not scan them.
    fn clean_up(&mut self) {
        let disk = &*self.home.options.disk;
        let (cut, stayed) = std::mem::take(&mut self.leftovers).clean_up(disk);
        let segments = stayed.into_iter().filter(|path| self.is_segment(path)).map(Run::of);
        self.unremoved = segments.collect();
        self.note_unremoved();
        for (first, len_bytes) in cut {
            self.shared.with_store(|store| {
                let segment = store.segments.by_first.get_mut(&first);
                segment.map(|segment| segment.len_bytes = len_bytes)
            });
        }
    }

    /// Looks at the names behind the files that no reader needs.
    fn prove_names(&self) {
        let unpinned: Vec<Segment> = {
            let inner = &mut *self.shared.inner.lock();
            inner.update_pins();
            let segments = &inner.on_disk().segments;
            let is_asked = |it: &&Segment| {
                !it.is_open && !it.is_pinned() && segments.next_unproven(it.first).is_some()
            };
            segments.by_first.values().filter(is_asked).cloned().collect()
        };
        for segment in unpinned {
            self.shared.has_nothing_more(&*self.home.options.disk, &segment);
        }
    }

    /// Takes the segments that no reader needs any more from those of the log. Returns the paths of
    /// those that are to be removed.
    fn take_unpinned(&mut self, at_the_end: bool) -> Vec<PathBuf> {
        let inner = &mut *self.shared.inner.lock();
        inner.update_pins();
        let store = inner.on_disk();
        let segments = &store.segments;
        let goes = |segment: &&Segment| {
            let is_needed = segment.is_open || segment.is_pinned();
            !is_needed && segments.next_unproven(segment.first).is_none()
        };
        let unpinned: Vec<_> = segments.by_first.values().filter(goes).cloned().collect();
        for segment in &unpinned {
            store.segments.by_first.remove(&segment.first);
        }
        // A file that was set aside may be put back.
        let aside = store.set_aside.iter().map(|file| file.name.first_offset);
        let goes_aside = unpinned.iter().filter(|it| it.may_have_more()).map(|it| it.first);
        let waits_for_that = self.to_set_aside.iter().filter_map(Run::first_offset);
        let lowest = store.segments.by_first.keys().next().copied();
        let first = lowest.into_iter().chain(aside).chain(goes_aside).chain(waits_for_that).min();
        let first = first.unwrap_or(store.durable_below);
        let cursors = inner.cursors.iter_mut().flatten();
        cursors.for_each(|cursor| {
            cursor.untaken.forget_ended(first);
            cursor.written_off.forget_ended(first);
        });
        // At the end all have left, and may come back at the next start.
        if !at_the_end {
            inner.forget_unneeded();
        }
        let (kept, removed): (Vec<_>, Vec<_>) =
            unpinned.into_iter().partition(Segment::may_have_more);
        self.to_set_aside.extend(kept.into_iter().map(|segment| Run::of(segment.path)));
        removed.into_iter().map(|segment| segment.path).collect()
    }
}

/// Unneeded files that are removed or set aside in order. A file that stays keeps those behind it:
/// recovery would look in it for their frames.
struct Run {
    files: Vec<PathBuf>,
    /// Why the first one could not go.
    refused: Option<String>,
    again_at: Instant,
}

impl Run {
    fn of(file: PathBuf) -> Self {
        Run::from(vec![file])
    }
}

impl From<Vec<PathBuf>> for Run {
    fn from(files: Vec<PathBuf>) -> Self {
        Run { files, refused: None, again_at: Instant::now() }
    }
}

impl Run {
    /// By the name of its first file.
    fn first_offset(&self) -> Option<Offset> {
        let name = self.files.first()?.file_name()?.to_str()?;
        SegmentName::parse(name).map(|name| name.first_offset)
    }

    /// Lets the files go, as far as they do. True if one stays.
    fn go(&mut self, go: impl Fn(&Path) -> Result<()>) -> bool {
        self.refused = None;
        let stays = |path: &PathBuf| match go(path) {
            Ok(()) => false,
            Err(error) => {
                self.refused = Some(error.to_string());
                true
            }
        };
        let gone = self.files.iter().position(stays).unwrap_or(self.files.len());
        self.files.drain(..gone);
        self.again_at = Instant::now() + TRY_AGAIN;
        self.refused.is_some()
    }
}

impl<T: Record> Maintenance<T> {
    /// Whether a path is that of a segment of the log.
    fn is_segment(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| SegmentName::parse(name.to_str()?));
        name.is_some() && path.parent() == Some(&*self.home.options.directory)
    }

    /// Renames the files in which readers passed something, so that a start does not read them, and
    /// removes those that are unneeded; from time to time also those that stayed before.
    fn remove_unneeded(&mut self, at_once: bool) {
        let left = self.shared.with_store(|store| std::mem::take(&mut store.left_files));
        self.unremoved.extend(left.into_iter().map(Run::of));
        let mut to_set_aside = std::mem::take(&mut self.to_set_aside);
        let set_aside = self.try_due(&mut to_set_aside, at_once, |path| self.set_aside(path));
        self.to_set_aside = to_set_aside;
        let mut unremoved = std::mem::take(&mut self.unremoved);
        let removed = self.try_due(&mut unremoved, at_once, |path| self.remove(path));
        self.unremoved = unremoved;
        if set_aside || removed {
            self.note_unremoved();
        }
    }

    /// Lets the files go whose time has come, and counts refusals. True if there was one to try.
    fn try_due(
        &self,
        runs: &mut Vec<Run>,
        at_once: bool,
        go: impl Fn(&Path) -> Result<()>,
    ) -> bool {
        let (now, mut tried, mut failures) = (Instant::now(), 0, 0);
        for run in runs.iter_mut().filter(|run| at_once || run.again_at <= now) {
            tried += 1;
            failures += u64::from(run.go(&go));
        }
        runs.retain(|run| !run.files.is_empty());
        self.shared.with_store(|store| store.stats.failures += failures);
        tried > 0
    }

    fn set_aside(&self, path: &Path) -> Result<()> {
        let aside = set_aside(&*self.home.options.disk, path)?;
        self.shared.with_store(|store| store.set_aside.extend(aside));
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        // The file was removed by hand, and a new one has its name.
        if self.shared.with_store(|store| store.segments.has_file(path)) {
            return Ok(());
        }
        let disk = &*self.home.options.disk;
        let was_there = remove_if_there(disk, path).at(path, "cannot remove")?;
        if !was_there && !self.home.is_there() {
            return Err(FileError::OtherFileSystem { path: self.home.options.directory.clone() });
        }
        self.shared.with_store(|store| store.left_there.remove(path));
        Ok(())
    }

    /// Makes the files that stay count as used.
    fn note_unremoved(&self) {
        let runs = self.unremoved.iter().chain(&self.to_set_aside);
        let stay = runs.flat_map(|run| {
            run.files.iter().map(|path| (path, run.refused.as_deref().unwrap_or_default()))
        });
        let mut stay: BTreeMap<_, _> = stay.collect();
        let directory = &self.home.options.directory;
        let there = match stay.is_empty() {
            true => Vec::new(),
            false => match list_files(&*self.home.options.disk, directory) {
                Ok(files) => files.collect(),
                // The figures of the last look stay.
                Err(_) => return,
            },
        };
        let unremoved = there.into_iter().filter_map(|file| {
            let path = directory.join(&file.name);
            let why = stay.remove(&path)?.to_owned();
            Some(Unremoved { path, len_bytes: file.len_bytes, why })
        });
        let unremoved = unremoved.collect();
        self.shared.with_store(|store| store.unremoved = unremoved);
    }
}
