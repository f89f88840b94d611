//! Files without durable frames that could not be removed when the writer left them. A disk that
//! neither keeps nor removes what is written would be filled with them.

use std::collections::VecDeque;
use std::path::PathBuf;

use crate::disk::{Disk, remove_if_there};
use crate::error::{IoContext as _, Result};
use crate::log::Shared;

/// Above this many files, no segment is begun before one of them is removed.
const LEFT_MAX: usize = 4;

#[derive(Default)]
pub(super) struct LeftFiles {
    /// Oldest first. The maintenance may have removed them.
    files: VecDeque<PathBuf>,
}

impl LeftFiles {
    /// Leaves a file to the maintenance.
    pub(super) fn leave<T>(&mut self, path: PathBuf, shared: &Shared<T>) {
        self.files.push_back(path.clone());
        shared.with_store(|store| store.left_files.push(path));
    }

    /// Removes the oldest ones if there are many.
    pub(super) fn make_room<T>(&mut self, disk: &dyn Disk, shared: &Shared<T>) -> Result<()> {
        while self.files.len() > LEFT_MAX
            && let Some(path) = self.files.front()
        {
            // A new segment may have the name of one that was removed.
            if !shared.with_store(|store| store.segments.has_file(path)) {
                remove_if_there(disk, path).at(path, "cannot remove")?;
            }
            self.files.pop_front();
        }
        Ok(())
    }
}
