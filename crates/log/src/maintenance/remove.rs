//! Removing and setting aside the files that no reader needs. One that stays is tried again, and
//! its bytes count as used until it is gone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Maintenance;
use crate::disk::remove_if_there;
use crate::error::{FileError, IoContext as _, Result};
use crate::log::Store;
use crate::segment::{SegmentName, Unremoved, list_files, set_aside};
use crate::types::Record;

/// A file that could not be removed is tried again after this time.
const REMOVE_AGAIN: Duration = Duration::from_secs(5);

/// Unneeded files that are removed in order. A file that stays keeps those behind it: recovery
/// would look in it for their frames.
pub(super) struct Run {
    files: Vec<PathBuf>,
    /// Why the first one could not be removed.
    refused: Option<String>,
    again_at: Instant,
}

impl Run {
    pub(super) fn of(file: PathBuf) -> Self {
        Run::from(vec![file])
    }
}

impl From<Vec<PathBuf>> for Run {
    fn from(files: Vec<PathBuf>) -> Self {
        Run { files, refused: None, again_at: Instant::now() }
    }
}

impl<T: Record> Maintenance<T> {
    /// Whether a path is that of a segment of the log.
    pub(super) fn is_segment(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| SegmentName::parse(name.to_str()?));
        name.is_some() && path.parent() == Some(&*self.home.options.directory)
    }

    /// Renames the files in which readers passed something, so that a start does not read them.
    pub(super) fn set_aside(&mut self) {
        let disk = &*self.home.options.disk;
        let failed = |path: &PathBuf| match set_aside(disk, path) {
            Ok(aside) => {
                self.shared.with_store(|store| store.set_aside.extend(aside));
                false
            }
            Err(_) => true,
        };
        let left: Vec<_> =
            std::mem::take(&mut self.to_set_aside).into_iter().filter(failed).collect();
        self.shared.with_store(|store| store.stats.failures += left.len() as u64);
        self.to_set_aside = left;
    }

    /// Removes unneeded files, and from time to time those that could not be removed before.
    pub(super) fn remove_unneeded(&mut self, at_once: bool) {
        let left = self.shared.with_store(|store| std::mem::take(&mut store.left_files));
        self.unremoved.extend(left.into_iter().map(Run::of));
        let mut unremoved = std::mem::take(&mut self.unremoved);
        let now = Instant::now();
        let mut is_changed = !self.to_set_aside.is_empty();
        for run in unremoved.iter_mut().filter(|run| at_once || run.again_at <= now) {
            is_changed = true;
            run.refused = None;
            let stays = |path: &PathBuf| match self.remove(path) {
                Ok(()) => false,
                Err(error) => {
                    run.refused = Some(error.to_string());
                    true
                }
            };
            let removed = run.files.iter().position(stays).unwrap_or(run.files.len());
            run.files.drain(..removed);
            run.again_at = now + REMOVE_AGAIN;
        }
        unremoved.retain(|run| !run.files.is_empty());
        self.unremoved = unremoved;
        if is_changed {
            let failures = self.unremoved.iter().filter(|run| run.again_at > now).count() as u64;
            self.shared.with_store(|store| store.stats.failures += failures);
            self.note_unremoved();
        }
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let is_in_use = |store: &mut Store| {
            store.segments.by_first.values().any(|segment| segment.path == path)
        };
        // The file was removed by hand, and a new one has its name.
        if self.shared.with_store(is_in_use) {
            return Ok(());
        }
        let disk = &*self.home.options.disk;
        let was_there = remove_if_there(disk, path).at(path, "cannot remove")?;
        if !was_there && !self.home.is_there() {
            return Err(FileError::OtherFileSystem { path: self.home.options.directory.clone() });
        }
        Ok(())
    }

    /// Makes the files that stay count as used.
    pub(super) fn note_unremoved(&self) {
        let of_runs = self.unremoved.iter().flat_map(|run| {
            run.files.iter().map(|path| (path, run.refused.as_deref().unwrap_or_default()))
        });
        let of_aside = self.to_set_aside.iter().map(|path| (path, "it cannot be set aside"));
        let mut stay: BTreeMap<_, _> = of_runs.chain(of_aside).collect();
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
