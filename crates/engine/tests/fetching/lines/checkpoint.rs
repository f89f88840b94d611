//! Offsets by file, in a file that is replaced as a whole.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(crate) struct Checkpoint {
    path: PathBuf,
    offsets: BTreeMap<String, u64>,
}

impl Checkpoint {
    pub(crate) fn load(path: &Path) -> io::Result<Checkpoint> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let offset = |line: &str| {
            let (offset, name) = line.split_once(' ')?;
            Some((name.to_owned(), offset.parse().ok()?))
        };
        Ok(Checkpoint { path: path.to_owned(), offsets: text.lines().filter_map(offset).collect() })
    }

    pub(crate) fn of(&self, name: &str) -> u64 {
        self.offsets.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn set(&mut self, offsets: BTreeMap<String, u64>) -> io::Result<()> {
        if offsets != self.offsets {
            let text: String =
                offsets.iter().map(|(name, offset)| format!("{offset} {name}\n")).collect();
            let new = self.path.with_extension("new");
            std::fs::write(&new, text)?;
            std::fs::rename(new, &self.path)?;
            self.offsets = offsets;
        }
        Ok(())
    }
}
