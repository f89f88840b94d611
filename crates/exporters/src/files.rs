use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

/// The files that exporters of a process write. Exporters with one path, be it that one succeeds
/// the other at a reload, write to one file in turns, and only the first write of all begins it
/// anew.
#[derive(Default)]
pub struct Files(Mutex<HashMap<PathBuf, Arc<Mutex<Current>>>>);

#[derive(Default)]
pub(crate) struct Current {
    pub(crate) file: Option<File>,
    /// This process has written to it.
    pub(crate) begun: bool,
}

impl Files {
    /// The file at a path, whatever links lead to it. It should exist.
    pub(crate) fn at(&self, path: &Path) -> Arc<Mutex<Current>> {
        // A file without a path of its own, as a pipe behind /dev/stdout, is known by the name that
        // it was given.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        self.0.lock().entry(path).or_default().clone()
    }
}
