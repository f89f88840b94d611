//! The files of a configuration. Contents are compared, so that an exchanged symbolic link (as in
//! Kubernetes) is a change and a touched file is not.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::path::{Path, PathBuf};

use sluice_config::Sources;

/// Each file with a hash of its content. None: unreadable; becoming readable is a change.
#[derive(Clone)]
pub(crate) struct Watched(BTreeMap<PathBuf, Option<u64>>);

impl Watched {
    pub(crate) fn new(sources: &Sources) -> Self {
        let hashed = |(path, text): (&Path, Option<&str>)| (path.to_owned(), text.map(hash));
        Watched(sources.files().map(hashed).collect())
    }

    pub(crate) fn has_changed(&self) -> bool {
        self.0.iter().any(|(path, read)| std::fs::read(path).ok().map(hash) != *read)
    }
}

fn hash(content: impl AsRef<[u8]>) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(content.as_ref())
}
