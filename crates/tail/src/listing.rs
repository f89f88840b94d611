//! Files that have left their paths are looked for in their directories, by inode. A directory of
//! which many files have left is listed once in a look, as long as it does not change.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// File systems note changes this late.
const NOTED_WITHIN: Duration = Duration::from_millis(20);

/// Directories that were asked for in this look. The first time none is kept.
#[derive(Default)]
pub(crate) struct Listings {
    asked: HashMap<PathBuf, Option<Listing>>,
}

struct Listing {
    /// Seconds and nanoseconds of the directory's last change.
    changed: (i64, i64),
    names: HashMap<u64, Vec<OsString>>,
}

impl Listings {
    /// The paths in a directory whose inode has this number.
    pub(crate) fn paths(&mut self, directory: &Path, number: u64) -> io::Result<Vec<PathBuf>> {
        let metadata = fs::metadata(directory)?;
        let changed = (metadata.mtime(), metadata.mtime_nsec());
        if let Some(Some(listing)) = self.asked.get(directory)
            && listing.changed == changed
        {
            let names = listing.names.get(&number);
            return Ok(names.into_iter().flatten().map(|name| directory.join(name)).collect());
        }
        let entries = fs::read_dir(directory)?.flatten();
        let is_settled = metadata
            .modified()
            .and_then(|at| SystemTime::now().duration_since(at).map_err(io::Error::other))
            .is_ok_and(|since| since > NOTED_WITHIN);
        if !self.asked.contains_key(directory) || !is_settled {
            self.asked.insert(directory.to_owned(), None);
            let same = entries.filter(|entry| entry.ino() == number);
            return Ok(same.map(|entry| entry.path()).collect());
        }
        let mut names: HashMap<u64, Vec<OsString>> = HashMap::new();
        entries.for_each(|entry| names.entry(entry.ino()).or_default().push(entry.file_name()));
        let same = names.get(&number).cloned().unwrap_or_default();
        self.asked.insert(directory.to_owned(), Some(Listing { changed, names }));
        Ok(same.into_iter().map(|name| directory.join(name)).collect())
    }

    /// Ends the look.
    pub(crate) fn clear(&mut self) {
        self.asked = HashMap::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: files are looked for in a directory, again and again, while it changes. Guarantee:
    /// each is found under its name of now, and a directory that rests is kept.
    #[test]
    fn files_are_found_under_their_names_of_now() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a"), "").expect("is written");
        fs::hard_link(at("a"), at("b")).expect("is linked");
        let number = fs::metadata(at("a")).expect("is there").ino();
        let mut listings = Listings::default();
        let find = |listings: &mut Listings, number| {
            let mut paths = listings.paths(folder.path(), number).expect("is listed");
            paths.sort();
            paths
        };
        let is_kept = |listings: &Listings| matches!(listings.asked.values().next(), Some(Some(_)));
        for _ in 0..2 {
            assert_eq!(find(&mut listings, number), [at("a"), at("b")]);
            assert!(!is_kept(&listings), "it has just changed");
        }
        std::thread::sleep(2 * NOTED_WITHIN);
        for _ in 0..2 {
            assert_eq!(find(&mut listings, number), [at("a"), at("b")]);
            assert!(is_kept(&listings));
            assert_eq!(find(&mut listings, number + 1_000_000), [] as [PathBuf; 0]);
        }
        fs::rename(at("a"), at("c")).expect("is renamed");
        assert_eq!(find(&mut listings, number), [at("b"), at("c")]);
        listings.clear();
        assert!(listings.paths(&at("none"), number).is_err());
    }
}
