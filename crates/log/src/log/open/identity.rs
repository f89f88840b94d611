//! Whether a file is what it seems to be: of this log, at its place, and the one that counts.
//!
//! - Files of a log have its id in common: no file of another log is taken for one of it. Zero
//!   stands for an unknown log.
//! - A segment that has the name of another one was renamed or copied by hand. Its name says
//!   nothing of its place in the log, so that it is set aside under its own.
//! - Several files that begin at the same offset are attempts at writing the same frames. The
//!   latest one counts, since no frame in the earlier ones was ever durable. Only a file that was
//!   copied by hand can be an attempt that was not sealed behind one that was: it is set aside.

use std::path::{Path, PathBuf};

use super::Recovery;
use crate::error::{FileError, Result};
use crate::format::SegmentName;
use crate::missing::FILES_AT_START;
use crate::segment::{ScanOptions, SegmentScan, SetAside, free_name, random_u64};
use crate::types::Record;

/// A file tells the id, unless the disk refuses it: a few are enough.
const FILES_ASKED: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Sealed,
    Unsealed,
    /// Nothing was written to it.
    Empty,
    Refused,
}

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

    /// Takes misnamed files from the newest segments of the log: they count as set aside. Readers
    /// find out about older ones.
    pub(super) fn take_misnamed(&mut self, files: &mut Vec<(SegmentName, u64)>) -> Result<()> {
        let mut misnamed = Vec::new();
        for &(name, len_bytes) in files.iter().rev().take(FILES_AT_START) {
            let path = self.directory.join(name.to_string());
            let open = || SegmentScan::open_path(self.disk, &path, ScanOptions::default());
            // Other errors are found again when the file is read.
            let Err(FileError::Misnamed { name: own, log_id, .. }) = self.patience.ask(open) else {
                continue;
            };
            self.check_log_id(&path, log_id)?;
            misnamed.push(name);
            self.take_aside((name, len_bytes), own);
            self.found.misnamed.push(path);
        }
        files.retain(|(name, _)| !misnamed.contains(name));
        Ok(())
    }

    /// Makes a file count as set aside under a segment's name. It is renamed when the start has
    /// found all.
    pub(super) fn take_aside(&mut self, (name, len_bytes): (SegmentName, u64), own: SegmentName) {
        let aside = self.store.set_aside.iter();
        let taken: Vec<_> = aside.filter_map(|file| file.path.file_name()?.to_str()).collect();
        let to = free_name(&own.to_string(), |name| taken.contains(&name));
        let path = self.directory.join(&to);
        self.renames.push((self.directory.join(name.to_string()), to));
        self.store.set_aside.push(SetAside { name: own, path, len_bytes });
        self.store.set_aside.sort_by_key(|file| file.name);
    }

    /// Leaves one file for each offset.
    pub(super) fn take_attempts(&mut self, files: &mut Vec<(SegmentName, u64)>) {
        let mut left = Vec::with_capacity(files.len());
        for attempts in files.chunk_by(|(a, _), (b, _)| a.first_offset == b.first_offset) {
            let [others @ .., latest] = attempts else { continue };
            if others.is_empty() {
                left.push(*latest);
                continue;
            }
            let kinds: Vec<_> = attempts.iter().map(|(name, _)| self.attempt(*name)).collect();
            let sealed = kinds.iter().rposition(|kind| *kind == Attempt::Sealed);
            let counts = sealed.unwrap_or(others.len());
            left.push(attempts[counts]);
            for (index, (&file, kind)) in attempts.iter().zip(kinds).enumerate() {
                match kind {
                    _ if index == counts => {}
                    // It is looked at again by the next start.
                    Attempt::Refused => {}
                    Attempt::Unsealed if index > counts => self.take_aside(file, file.0),
                    _ => self.leftovers.files.push(self.directory.join(file.0.to_string())),
                }
            }
        }
        *files = left;
    }

    fn attempt(&self, name: SegmentName) -> Attempt {
        let path = self.directory.join(name.to_string());
        let open = || SegmentScan::open_path(self.disk, &path, ScanOptions::default());
        match self.patience.ask(open) {
            Ok(scan) if scan.info().footer.is_some_and(|it| it.frames > 0) => Attempt::Sealed,
            Err(FileError::Unfinished { .. }) => Attempt::Empty,
            Err(FileError::Io { .. }) => Attempt::Refused,
            Ok(_) | Err(_) => Attempt::Unsealed,
        }
    }
}
