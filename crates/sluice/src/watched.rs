//! The files of a configuration. Contents are compared, so that an exchanged symbolic link (as in
//! Kubernetes) is a change and a touched file is not.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use sluice_config::Sources;

/// Each file with a hash of its content; none if it could not be read. Becoming readable is a
/// change.
pub(crate) struct Watched(BTreeMap<PathBuf, Option<u64>>);

impl Watched {
    pub(crate) fn new(sources: &Sources) -> Self {
        let files = sources.files();
        Watched(
            files
                .map(|(path, text)| (path.to_owned(), text.map(|text| hash(text.as_bytes()))))
                .collect(),
        )
    }

    pub(crate) fn has_changed(&self) -> bool {
        self.0
            .iter()
            .any(|(path, read)| std::fs::read(path).ok().map(|content| hash(&content)) != *read)
    }
}

fn hash(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}
