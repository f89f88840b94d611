//! What a directory holds before anything runs: for `sluice plan`. Reads only, also while a process
//! runs on it.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use sluice_log::disk::{Disk, RealDisk};
use sluice_log::inspect::{self, LogOverview};

use super::Plan;

impl Plan {
    /// What is there of an earlier run, for whom, and whether it can be read.
    pub(super) fn describe_found(&self, text: &mut String) {
        let Some(disk) = &self.disk else { return };
        if !disk.directory.exists() {
            return;
        }
        let real: Arc<dyn Disk> = Arc::new(RealDisk);
        match inspect::overview(&real, &disk.directory) {
            Ok(logs) => logs.iter().for_each(|log| self.describe_log(text, log)),
            Err(error) => {
                let _ = writeln!(text, "  It cannot be read: {error}");
            }
        }
        describe_access(text, &disk.directory);
    }

    fn describe_log(&self, text: &mut String, log: &LogOverview) {
        for segment in &log.segments {
            if let Err(error) = &segment.info {
                let _ = writeln!(text, "  {}: {error}", segment.path.display());
            }
        }
        for cursor in &log.cursors {
            let items = cursor.held.items;
            let _ = match &cursor.state {
                Err(error) => writeln!(text, "  {}: {error}", cursor.path.display()),
                Ok(_) if cursor.held.frames == 0 => Ok(()),
                Ok(state) if self.deliveries.iter().any(|it| it.id.to_string() == state.name) => {
                    writeln!(text, "  Holds {items} items for {}.", state.name)
                }
                Ok(state) => writeln!(
                    text,
                    "  Holds {items} items for {}, which this configuration does not have.",
                    state.name
                ),
            };
        }
    }
}

/// A directory that cannot be written to is better known before the start.
fn describe_access(text: &mut String, directory: &Path) {
    use rustix::fs::{Access, access};
    if let Err(error) = access(directory, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
        let _ = writeln!(text, "  It cannot be used by this user: {error}");
    }
}
