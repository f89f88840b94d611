//! Removing and setting aside the files that no reader needs. One that stays is tried again, and
//! its bytes count as used until it is gone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Maintenance;
use crate::disk::remove_if_there;
use crate::error::{FileError, IoContext as _, Result};
use crate::format::SegmentName;
use crate::segment::{Unremoved, list_files, set_aside};
use crate::types::{Offset, Record};

/// A file that could not be removed or set aside is tried again after this time.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// Unneeded files that are removed or set aside in order. A file that stays keeps those behind it:
/// recovery would look in it for their frames.
pub(super) struct Run {
    files: Vec<PathBuf>,
    /// Why the first one could not go.
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

impl Run {
    /// By the name of its first file.
    pub(super) fn first_offset(&self) -> Option<Offset> {
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
    pub(super) fn is_segment(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| SegmentName::parse(name.to_str()?));
        name.is_some() && path.parent() == Some(&*self.home.options.directory)
    }

    /// Renames the files in which readers passed something, so that a start does not read them, and
    /// removes those that are unneeded; from time to time also those that stayed before.
    pub(super) fn remove_unneeded(&mut self, at_once: bool) {
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
    pub(super) fn note_unremoved(&self) {
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
