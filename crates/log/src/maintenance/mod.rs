//! The maintenance thread: writes the cursors, removes segments that
//! no reader needs and writes anew those that few frames pin.
//!
//! It looks at each interval ([`crate::OpenOptions::keep_interval`]), and only while something is
//! on disk. Nothing that it does has to be done for safety: cursors that were not written mean that
//! frames are delivered again after a crash, segments that were not removed mean space.
//!
//! Invariants
//! - Cursors are written before segments are removed.
//! - A segment that is written anew holds every frame of the old ones that some reader has not
//!   resolved; it takes the place of the first of them by a rename, when it is durable, and the
//!   others are removed after that, in order. Recovery takes a segment for what is in it up to the
//!   next file's first frame; so nothing is written anew across a file that is not among the old
//!   ones.

mod cursors;
mod retention;
mod rewrite;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

pub(crate) use cursors::{CursorFiles, cursor_state};

use crate::home::Home;
use crate::log::Shared;
use crate::log::store::Ends;
use crate::record::Record;

/// What recovery leaves to be done.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    /// Files in which nothing is.
    pub(crate) files: Vec<PathBuf>,
    /// Segments to be cut: first offset, path and end of the last frame.
    pub(crate) tails: Vec<(u64, PathBuf, u64)>,
}

pub(crate) struct Maintenance<T> {
    shared: Arc<Shared<T>>,
    home: Home,
    cursor_files: Arc<Mutex<CursorFiles>>,
    leftovers: Leftovers,
    /// No segment is written anew before: after one that failed.
    rewrite_at: Instant,
}

impl<T: Record> Maintenance<T> {
    pub(crate) fn new(
        shared: Arc<Shared<T>>,
        home: Home,
        cursor_files: Arc<Mutex<CursorFiles>>,
        leftovers: Leftovers,
    ) -> Self {
        Maintenance { shared, home, cursor_files, leftovers, rewrite_at: Instant::now() }
    }

    pub(crate) fn run(mut self) {
        self.clean_up();
        while self.wait() {
            self.keep(false);
        }
        let ends = self.shared.inner.lock().store.as_ref().map_or(Ends::Now, |store| store.ends);
        if ends == Ends::Closing {
            self.keep(true);
        }
        let mut inner = self.shared.inner.lock();
        if let Some(store) = &mut inner.store {
            store.maintenance_has_ended = true;
        }
        self.shared.maintenance_wake.notify_all();
    }

    fn keep(&mut self, at_the_end: bool) {
        self.cursor_files.lock().remove_gone(&self.shared, &self.home);
        self.shared.inner.lock().settle_segments();
        self.store_cursors(at_the_end);
        self.remove_unpinned();
        if !at_the_end && Instant::now() >= self.rewrite_at {
            self.rewrite();
        }
    }

    /// True when it is time to look again, false at the end, which is after the writer.
    fn wait(&mut self) -> bool {
        let mut next = Instant::now() + self.home.keep_interval;
        let shared = self.shared.clone();
        let mut inner = shared.inner.lock();
        loop {
            let Some(store) = &mut inner.store else { return false };
            match store.ends {
                Ends::Now => return false,
                Ends::Closing if store.writer_has_ended => return false,
                Ends::Closing => next = Instant::now() + self.home.keep_interval,
                Ends::No => {}
            }
            let has_work = !store.segments.is_empty() || !store.gone_readers.is_empty();
            let timed_out = if has_work || store.ends == Ends::Closing {
                shared.maintenance_wake.wait_until(&mut inner, next).timed_out()
            } else {
                shared.maintenance_wake.wait(&mut inner);
                next = Instant::now() + self.home.keep_interval;
                false
            };
            if timed_out && inner.store.as_ref().is_some_and(|store| store.ends == Ends::No) {
                return true;
            }
        }
    }

    /// Does what recovery left: all best effort, the next start does it again.
    fn clean_up(&mut self) {
        let leftovers = std::mem::take(&mut self.leftovers);
        for path in leftovers.files {
            let _ = self.home.disk.remove_file(&path);
        }
        for (first, path, end) in leftovers.tails {
            let file = self.home.disk.open(&path, crate::disk::Access::ReadWrite);
            // Synced before any cursor is stored: later starts do not look into this file.
            if file.and_then(|file| file.set_len(end).and_then(|()| file.sync_data())).is_ok() {
                let mut inner = self.shared.inner.lock();
                let segment = inner.store.as_mut().and_then(|store| store.segments.get_mut(first));
                if let Some(segment) = segment {
                    segment.len_bytes = end;
                }
            }
        }
    }
}
