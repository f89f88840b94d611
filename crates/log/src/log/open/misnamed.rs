//! Segments that have the name of another one: they were renamed or copied by hand. Their names say
//! nothing of their place in the log, so that they are set aside under their own.

use super::Recovery;
use crate::error::{FileError, Result};
use crate::format::SegmentName;
use crate::missing::FILES_AT_START;
use crate::segment::{ScanOptions, SegmentScan, SetAside, free_name, list_if_there};
use crate::types::Record;

impl<T: Record> Recovery<'_, T> {
    /// Takes misnamed files from the newest segments of the log: they count as set aside. Readers
    /// find out about older ones.
    pub(super) fn take_misnamed(&mut self, files: &mut Vec<(SegmentName, u64)>) -> Result<()> {
        let entries = self.patience.ask(|| list_if_there(self.disk, self.directory))?;
        let (mut taken, mut misnamed) = (Vec::new(), Vec::new());
        for &(name, len_bytes) in files.iter().rev().take(FILES_AT_START) {
            let path = self.directory.join(name.to_string());
            let open = || SegmentScan::open_path(self.disk, &path, ScanOptions::default());
            // Other errors are found again when the file is read.
            let Err(FileError::Misnamed { name: own, log_id, .. }) = self.patience.ask(open) else {
                continue;
            };
            self.check_log_id(&path, log_id)?;
            let is_taken = |name: &str| {
                entries.iter().any(|entry| entry.name == name) || taken.iter().any(|it| it == name)
            };
            let aside = free_name(&own.to_string(), is_taken);
            taken.push(aside.clone());
            misnamed.push(name);
            let to = self.directory.join(&aside);
            self.store.set_aside.push(SetAside { name: own, path: to, len_bytes });
            self.found.misnamed.push(path.clone());
            self.renames.push((path, aside));
        }
        self.store.set_aside.sort_by_key(|file| file.name);
        files.retain(|(name, _)| !misnamed.contains(name));
        Ok(())
    }
}
