//! Finds files, and follows them to other names.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::file::{File, Place};
use crate::glob::{Found, LINKED_PATHS_MAX};
use crate::gone::is_at;
use crate::identify::mark_at;
use crate::identity::{Head, Inode};
use crate::shown::Shown;
use crate::watch::Change;
use crate::{FileId, Tail, inflate, window};

/// Time between looks at all files while the kernel tells changes.
const SCAN_INTERVAL: Duration = Duration::from_secs(30);
/// Files that are followed. A file takes about half a KiB, its watched directories included.
const FILES_MAX: usize = 100_000;
/// A file is looked at again after this part of the time for which it had nothing new, and after
/// so many poll intervals at most.
const IDLE_SHARE: u32 = 30;
const IDLE_POLLS: u32 = 10;
/// A file that grows has its next turn after this time: its lines come in fewer batches.
const BATCH_TIME: Duration = Duration::from_millis(50);

impl Tail {
    /// Takes the changes that the kernel has told, and looks at all files if it is time to.
    pub fn look(&mut self, now: Instant) {
        let mut changes: Vec<Change> = Vec::new();
        self.watcher.drain(|change| {
            if changes.last() != Some(&change) {
                changes.push(change);
            }
        });
        for change in changes {
            match change {
                Change::Written(path) => {
                    if let Some(id) = self.by_path.get(&*path) {
                        self.wake(*id, now);
                    } else if self.options.exclude_older_than.is_some() {
                        // It is no longer too old.
                        self.renamed(&path, now);
                    }
                }
                Change::Named(path) if self.options.ordering.is_none() => self.renamed(&path, now),
                Change::Named(_) | Change::Unknown => self.scan_soon(now),
            }
        }
        if now >= self.next_scan {
            self.scan(now);
        }
        if self.count_vanished_at.is_some_and(|at| now >= at) {
            self.count_vanished_at = None;
            self.count_vanished();
        }
        self.listings.clear();
    }

    fn scan_soon(&mut self, now: Instant) {
        self.next_scan = self.next_scan.min(now + self.options.poll_interval);
    }

    /// A name appeared or went away, or names another file.
    fn renamed(&mut self, path: &Path, now: Instant) {
        let at = self.by_path.get(path).copied();
        if self.is_meant(path) {
            match fs::metadata(path) {
                Ok(metadata) => {
                    self.see(path, &metadata, now);
                    self.schedule_new();
                    // Its inode may be that of a file before.
                    if let Some(id) = self.by_path.get(path) {
                        self.wake(*id, now);
                    }
                }
                Err(_) => at.into_iter().for_each(|id| self.leave(id, now)),
            }
        } else if let Some(id) = at {
            // The target of a link.
            let file = &self.files[&id];
            if !is_at(&file.path, file.inode) {
                self.leave(id, now);
                self.scan_soon(now);
            }
        }
    }

    pub(crate) fn is_meant(&self, path: &Path) -> bool {
        self.options.include.iter().any(|glob| glob.matches(path))
            && !self.options.exclude.iter().any(|glob| glob.matches(path))
    }

    /// Looks at everything that the patterns mean. There may be many paths, so they are collected
    /// only where they have to be compared.
    fn scan(&mut self, now: Instant) {
        self.looks += 1;
        let mut failed: Vec<(PathBuf, String)> = Vec::new();
        let mut to_order = self.options.ordering.is_some().then(BTreeSet::new);
        let include = std::mem::take(&mut self.options.include);
        for glob in &include {
            let (mut is_empty, mut skipped) = (true, None);
            let mut visit = |found: Found<'_>| {
                match found {
                    Found::Directory(path) => self.watcher.see(path),
                    Found::Skipped(path) => {
                        skipped.get_or_insert_with(|| path.to_owned());
                    }
                    Found::File(path) => {
                        is_empty = false;
                        if self.options.exclude.iter().any(|glob| glob.matches(path)) {
                            return false;
                        }
                        match &mut to_order {
                            Some(paths) => drop(paths.insert(path.to_owned())),
                            None => self.look_at(path, now),
                        }
                    }
                }
                true
            };
            glob.walk_for(&mut visit, &mut |path, error| {
                failed.push((path.to_owned(), error.to_string()));
            });
            if is_empty && self.is_news(format!("pattern {}", glob.text())) {
                tracing::warn!(pattern = glob.text(), "no file matches this pattern yet");
            }
            if let Some(path) = skipped
                && self.is_news(format!("links {}", glob.text()))
            {
                tracing::warn!(pattern = glob.text(), path = %Shown(path.as_ref()),
                    limit = LINKED_PATHS_MAX,
                    "links lead `**` to one directory by more paths than the limit, or by eight \
                     times as many on which all files are excluded: this path is not followed. If \
                     it matters, write a pattern that names the directories");
            }
        }
        self.options.include = include;
        for (path, error) in &failed {
            if self.is_news(format!("directory {}", path.display())) {
                tracing::error!(path = %Shown(path), error,
                    "cannot look into this directory: files there are not read");
            }
        }
        if let (Some(paths), Some(ordering)) = (to_order, &self.options.ordering) {
            let paths = ordering.select(paths.into_iter().collect());
            paths.iter().for_each(|path| self.look_at(path, now));
        }
        self.schedule_new();
        self.begins_at_end = false;
        let is_unseen = |file: &File| {
            file.place == Place::Listed
                && file.seen_at != self.looks
                && !failed.iter().any(|(directory, _)| file.path.starts_with(directory))
        };
        let unseen: Vec<FileId> =
            self.files.iter().filter(|(_, file)| is_unseen(file)).map(|(id, _)| *id).collect();
        unseen.into_iter().for_each(|id| self.leave(id, now));
        self.trim_missing();
        self.files.values_mut().for_each(|file| file.rare.release());
        let files = &self.files;
        self.window.release(|id| files.get(&id).is_some_and(|file| file.open.is_some()));
        let targets = self.files.values().filter_map(|file| file.rare.target.as_ref()?.parent());
        targets.for_each(|directory| self.watcher.see(directory));
        let has_new = self.watcher.end_look();
        self.next_scan = match (self.watcher.is_complete(), has_new) {
            (true, false) => now + SCAN_INTERVAL,
            _ => now + self.options.poll_interval,
        };
    }

    /// Looks at the file at a path that is meant.
    fn look_at(&mut self, path: &Path, now: Instant) {
        if !self.is_passed(path, now)
            && let Ok(metadata) = fs::metadata(path)
        {
            self.see(path, &metadata, now);
        }
    }

    /// Whether the file at this path is not looked at now: it had nothing new for long.
    fn is_passed(&mut self, path: &Path, now: Instant) -> bool {
        let id = self.by_path.get(path);
        let Some(file) = id.and_then(|id| self.files.get_mut(id)) else { return false };
        let is_passed = file.is_verified
            && file.place == Place::Listed
            && *file.path == *path
            && now < file.look_at;
        if is_passed {
            file.seen_at = self.looks;
        }
        is_passed
    }

    /// When a file is looked at again while the kernel does not tell its changes: the later, the
    /// longer it had nothing new.
    fn next_look_at(&self, active: Instant, now: Instant) -> Instant {
        if self.watcher.is_complete() {
            return now;
        }
        let idle = now.saturating_duration_since(active);
        now + (idle / IDLE_SHARE).min(self.options.poll_interval * IDLE_POLLS)
    }

    /// A file is at a path that is meant.
    fn see(&mut self, path: &Path, metadata: &fs::Metadata, now: Instant) {
        let inode = Inode::of(metadata);
        let before = self.by_path.get(path).copied();
        if let Some(id) = before.filter(|id| {
            let file = &self.files[id];
            *file.path == *path && (file.inode != inode || !metadata.is_file())
        }) {
            self.leave(id, now);
        }
        if !metadata.is_file() {
            return;
        }
        let Some(id) = self.by_inode.get(&inode).copied() else {
            self.see_new(path, inode, metadata, now);
            return;
        };
        let file = &self.files[&id];
        if !may_be_at(file, path, metadata) {
            self.by_inode.remove(&inode);
            self.see_new(path, inode, metadata, now);
            return;
        }
        if file.place == Place::Listed && *file.path != *path {
            if is_at(&file.path, inode) {
                // Another name of the same file.
                return;
            }
            self.counts.rotated += 1;
        }
        if file.place == Place::Missing {
            let path = file.path.clone();
            self.set_present(id);
            if let Some(file) = self.files.get_mut(&id) {
                file.rare.known_path = Some(path);
            }
        }
        if *self.files[&id].path != *path || before != Some(id) {
            self.set_path(id, path, now);
        }
        let (looks, look_at) = (self.looks, self.next_look_at(self.files[&id].active, now));
        let Some(file) = self.files.get_mut(&id) else { return };
        (file.seen_at, file.look_at) = (looks, look_at);
        file.place = Place::Listed;
        if !file.is_verified {
            // At once: what it held before may be in a file that is told next.
            if !file.is_identified || self.verify(id, now) {
                self.schedule.soon(id);
            }
        } else if file.version != version(metadata) {
            (file.size, file.look_at) = (metadata.len(), now);
            self.wake(id, now);
        }
    }

    fn see_new(&mut self, path: &Path, inode: Inode, metadata: &fs::Metadata, now: Instant) {
        let age = metadata.modified().ok().and_then(|time| time.elapsed().ok());
        let is_old =
            self.options.exclude_older_than.is_some_and(|most| age.is_some_and(|age| age > most));
        if is_old {
            return;
        }
        if self.present_files() >= FILES_MAX {
            if self.is_news("too many files".to_owned()) {
                tracing::error!(limit = FILES_MAX, path = %Shown(path),
                    "the patterns mean more files than can be followed: the rest is not read");
            }
            return;
        }
        let id = self.new_id();
        let mut file = File::new(path.into(), inode, now);
        file.seen_at = self.looks;
        file.size = metadata.len();
        self.files.insert(id, Box::new(file));
        self.by_inode.insert(inode, id);
        self.set_path(id, path, now);
        if self.begins_at_end && metadata.len() > 0 {
            self.begin_at_end(id, now);
        } else {
            self.new_files.push(id);
        }
    }

    /// New files have their turn after those that may turn out to hold another content than before:
    /// it may be in one of the new ones.
    fn schedule_new(&mut self) {
        for id in std::mem::take(&mut self.new_files) {
            self.schedule.soon(id);
        }
    }

    /// Reads what comes from now on, also if the file cannot be opened or read yet.
    fn begin_at_end(&mut self, id: FileId, now: Instant) {
        if self.open(id, now) {
            match self.begin_behind(id) {
                Ok(()) => return self.schedule.soon(id),
                Err(error) => self.failed(id, &error, now),
            }
        }
        if let Some(file) = self.files.get_mut(&id) {
            file.rare.old_bytes = file.size;
        }
    }

    fn begin_behind(&mut self, id: FileId) -> io::Result<()> {
        let Some(file) = self.files.get_mut(&id) else { return Ok(()) };
        let Some(open) = &file.open else { return Ok(()) };
        let size = open.metadata()?.len();
        let head = window::peek(open, file.is_gzip, 0, self.options.head_bytes)?;
        file.mark = if file.is_gzip { inflate::end(open)? } else { mark_at(open, false, size)? };
        file.head = Head::of(&head[..head.len().min(file.mark.offset as usize)]);
        file.is_identified = true;
        Ok(())
    }

    fn set_path(&mut self, id: FileId, path: &Path, now: Instant) {
        self.unset_path(id);
        let Some(file) = self.files.get_mut(&id) else { return };
        file.path = path.into();
        (file.rare.target, file.rare.moved) = (None, None);
        if fs::symlink_metadata(path).is_ok_and(|it| it.is_symlink()) {
            file.rare.target = fs::canonicalize(path).ok().map(Arc::from);
        }
        let (shared, target) = (file.path.clone(), file.rare.target.clone());
        self.by_path.insert(shared, id);
        if let Some(target) = target {
            self.by_path.entry(target).or_insert(id);
            // The target's directory has to be watched too.
            self.scan_soon(now);
        }
    }

    pub(crate) fn unset_path(&mut self, id: FileId) {
        let Some(file) = self.files.get(&id) else { return };
        for path in [Some(&file.path), file.rare.target.as_ref()].into_iter().flatten() {
            if self.by_path.get(path) == Some(&id) {
                self.by_path.remove(path);
            }
        }
    }

    /// Wakes a file that may have something to read.
    pub(crate) fn wake(&mut self, id: FileId, now: Instant) {
        let Some(file) = self.files.get(&id) else { return };
        if file.rare.held.is_none() {
            let due = file.active + BATCH_TIME;
            if due <= now { self.schedule.soon(id) } else { self.schedule.at(id, due) }
        }
    }
}

/// Whether a content of an inode may be in the file that has that now. One that was not identified
/// before a restart has nothing else that tells.
fn may_be_at(content: &File, path: &Path, metadata: &fs::Metadata) -> bool {
    content.place != Place::Missing
        || content.is_identified
        || (metadata.len() >= content.size
            && (content.rare.old_bytes == 0 || *content.path == *path))
}

/// Changes when a file is written to.
pub(crate) fn version(metadata: &fs::Metadata) -> u64 {
    let mut hasher = DefaultHasher::new();
    (metadata.len(), metadata.mtime(), metadata.mtime_nsec()).hash(&mut hasher);
    hasher.finish()
}
