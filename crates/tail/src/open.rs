//! Opens files, and closes some if too many are open.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Instant;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::file::Place;
use crate::identify::{FAILED_PAUSE, is_gzip};
use crate::identity::Inode;
use crate::{FileId, Tail};

/// Opens a file without waiting: another may be there by now, as a pipe without a writer, or one
/// that its owner has a lease on.
pub(crate) fn open_file(path: &Path) -> io::Result<fs::File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    fs::File::options().read(true).custom_flags(flags.bits() as i32).open(path)
}

/// The most files that may be open of those that are wanted. Half of what the process may have open
/// is left to everything else.
pub(crate) fn most_open(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let most = wanted.min(limit / 2);
    if most < wanted {
        tracing::warn!(
            limit,
            max_concurrent_files = most,
            "the limit on open files is low: fewer files are open at a time; raise the hard limit \
             (`ulimit -Hn`, LimitNOFILE)"
        );
    }
    most.max(2)
}

impl Tail {
    /// Opens the file, if it is not open.
    pub(crate) fn open(&mut self, id: FileId, now: Instant) -> bool {
        let Some(file) = self.files.get_mut(&id) else { return false };
        if file.open.is_some() {
            return true;
        }
        let opened = open_file(file.rare.moved.as_deref().unwrap_or(&file.path));
        let compression = self.options.compression;
        let opened = opened.and_then(|open| {
            let is_gzip = is_gzip(compression, &open)?;
            Ok((open.metadata()?, is_gzip, open))
        });
        match opened {
            Ok((metadata, is_gzip, open)) if Inode::of(&metadata) == file.inode => {
                // One that is too short to tell is not identified yet, and decided then.
                file.is_gzip = is_gzip.unwrap_or(false);
                file.open = Some(open);
                if file.rare.held.is_none() {
                    file.size = metadata.len();
                }
                self.open_count += 1;
                self.note_open(id);
                self.bound_open(id);
                true
            }
            // Another file is there by now.
            Ok(_) if file.place == Place::Listed => {
                self.next_scan = now;
                false
            }
            Ok(_) => {
                self.leave(id, now);
                false
            }
            Err(error) => {
                if error.kind() == io::ErrorKind::NotFound {
                    self.leave(id, now);
                } else {
                    let errno = error.raw_os_error();
                    if errno == Some(Errno::MFILE.raw_os_error()) {
                        self.leave_room(id);
                    }
                    self.failed(id, &error, now);
                }
                false
            }
        }
    }

    /// The process may open no more files: a quarter of those that are open here is closed, and
    /// left to others.
    fn leave_room(&mut self, keeps: FileId) {
        let most = (self.open_count - self.open_count / 4).max(2);
        if most < self.options.max_open {
            self.options.max_open = most;
            tracing::warn!(
                max_concurrent_files = most,
                "too many files are open in this process: fewer are open at a time from now on; \
                 raise the hard limit (`ulimit -Hn`, LimitNOFILE)"
            );
        }
        self.bound_open(keeps);
    }

    /// Opens files that wait for their turn, as far as there is room: one that is removed before
    /// that is read all the same. Files that are read to their end make room.
    pub fn open_waiting(&mut self, now: Instant) {
        let is_closed = |id: &FileId| {
            let file = self.files.get(id);
            file.is_some_and(|file| file.open.is_none() && file.place != Place::Missing)
        };
        let waiting = self.schedule.ready(now).filter(is_closed).take(self.options.max_open);
        let waiting: Vec<FileId> = waiting.collect();
        for id in waiting {
            if self.open_count >= self.options.max_open && !self.close_idle(id) {
                return;
            }
            let failed = self.counts.failed;
            if !self.open(id, now) && self.counts.failed > failed {
                // Its turn would fail in the same way.
                self.schedule.forget(id);
                self.schedule.at(id, now + FAILED_PAUSE);
            }
        }
    }

    /// Closes a file at its path that is read to its end. Returns whether there is one.
    fn close_idle(&mut self, keeps: FileId) -> bool {
        let is_idle = |id: &FileId| {
            *id != keeps
                && !self.schedule.has(*id)
                && self.files.get(id).is_some_and(|file| {
                    file.open.is_some()
                        && file.place == Place::Listed
                        && file.is_identified
                        && file.rare.begun.is_empty()
                        && file.rare.partial.is_none()
                        && file.unread() == 0
                })
        };
        let idle = self.open.iter().copied().find(is_idle);
        idle.into_iter().for_each(|id| self.close(id));
        idle.is_some()
    }

    /// Closes files at their paths: those that are read to their end, then the first opened first.
    /// Each is opened again for its turn.
    fn bound_open(&mut self, keeps: FileId) {
        while self.open_count > self.options.max_open {
            if self.close_idle(keeps) {
                continue;
            }
            let Some(id) = self.open.pop_front() else { return };
            if id == keeps {
                self.open.push_back(id);
                if self.open.len() == 1 {
                    return;
                }
            } else if let Some(file) = self.files.get(&id)
                && (file.place == Place::Listed || file.rare.moved.is_some())
            {
                self.close(id);
            }
        }
    }

    pub(crate) fn close(&mut self, id: FileId) {
        if let Some(file) = self.files.get_mut(&id)
            && file.open.take().is_some()
        {
            self.open_count -= 1;
        }
    }

    /// Notes that the file is open, the last of all.
    pub(crate) fn note_open(&mut self, id: FileId) {
        const SLACK: usize = 64;
        self.open.push_back(id);
        // Files are closed elsewhere too, and may be opened again.
        if self.open.len() > 2 * self.open_count + SLACK {
            let mut seen = HashSet::new();
            let files = &self.files;
            let is_open = |id: &FileId| files.get(id).is_some_and(|file| file.open.is_some());
            let mut last_first: Vec<FileId> = self.open.iter().rev().copied().collect();
            last_first.retain(|id| is_open(id) && seen.insert(*id));
            self.open = last_first.into_iter().rev().collect();
        }
    }
}
