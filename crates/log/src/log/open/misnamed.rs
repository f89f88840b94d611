//! Segments that have the name of another one: they were renamed or copied by hand. Their names say
//! nothing of their place in the log, so that they are set aside under their own.

use super::Recovery;
use crate::error::{FileError, Result};
use crate::format::SegmentName;
use crate::missing::FILES_AT_START;
use crate::segment::{ScanOptions, SegmentScan, SetAside, free_name};
use crate::types::Record;

impl<T: Record> Recovery<'_, T> {
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
}
