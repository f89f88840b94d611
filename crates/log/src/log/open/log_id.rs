//! The id of a log, which its files have in common: no file of another log is taken for one of it.
//! Zero stands for an unknown log.

use std::path::{Path, PathBuf};

use super::Recovery;
use crate::error::{FileError, Result};
use crate::segment::{ScanOptions, SegmentScan, random_u64};
use crate::types::Record;

/// A file tells the id, unless the disk refuses it: a few are enough.
const FILES_ASKED: usize = 8;

impl<T: Record> Recovery<'_, T> {
    pub(super) fn check_log_id(&mut self, path: &Path, log_id: u128) -> Result<()> {
        // Zero stands for an unknown log.
        if log_id != 0 && *self.log_id.get_or_insert(log_id) != log_id {
            return Err(FileError::Foreign { path: path.to_owned() });
        }
        Ok(())
    }

    /// Without readers, no file may have told the id so far.
    pub(super) fn find_log_id(&mut self) {
        let segments = self.store.segments.by_first.values().map(|segment| &segment.path);
        let paths = segments.chain(self.store.set_aside.iter().map(|file| &file.path));
        let id_of = |path: &PathBuf| {
            let opened = SegmentScan::open_misnamed(self.disk, path, ScanOptions::default());
            opened.ok().map(|scan| scan.info().header.log_id).filter(|id| *id != 0)
        };
        if self.log_id.is_none() {
            self.log_id = paths.take(FILES_ASKED).find_map(id_of);
        }
    }

    /// The id of the log if no file tells it. Files of another log would end the next start: if the
    /// disk refuses those that are there, the new ones are of an unknown log, which is zero.
    pub(super) fn id_without_a_known_one(&self) -> u128 {
        match self.store.segments.by_first.is_empty() && self.store.set_aside.is_empty() {
            true => (u128::from(random_u64()) << 64 | u128::from(random_u64())).max(1),
            false => 0,
        }
    }
}
