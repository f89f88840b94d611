//! Watched directories and the watches that stand for them.
//!
//! There may be twice as many as files, as where each container has its own below that of its pod.
//! So each has its own name only, behind its parent, and all names are in one block.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

const NO_PARENT: u32 = u32::MAX;

/// In the order of watches. Links may lead to one directory, and so to one watch, by several paths.
#[derive(Default)]
pub(crate) struct Directories {
    all: Vec<Directory>,
    names: Vec<u8>,
    /// The one that was seen last: the next one is often below it.
    last: u32,
}

#[derive(Clone, Copy)]
struct Directory {
    watch: i32,
    /// Without a parent its name is its path.
    parent: u32,
    name_start: u32,
    name_len: u16,
    /// Since the last [`Directories::trim`].
    is_seen: bool,
    is_remote: bool,
}

impl Directories {
    /// Notes that the watch stands for the path. `is_remote` is asked if that is new. Returns
    /// whether it is new, and remote. `None`: there are too many.
    pub(crate) fn see(
        &mut self,
        watch: i32,
        path: &Path,
        is_remote: impl FnOnce() -> bool,
    ) -> Option<(bool, bool)> {
        let path = path.as_os_str().as_bytes();
        let same = self.of(watch);
        let at = same.clone().find(|at| self.is(*at as u32, path));
        if let Some(directory) = at.and_then(|at| self.all.get_mut(at)) {
            (directory.is_seen, self.last) = (true, at? as u32);
            return Some((false, directory.is_remote));
        }
        let (parent, name) = self.split(path);
        let name_start = u32::try_from(self.names.len()).ok()?;
        let name_len = u16::try_from(name.len()).ok()?;
        let at = u32::try_from(same.end).ok().filter(|at| *at < NO_PARENT)?;
        let is_remote = is_remote();
        self.names.extend_from_slice(name);
        let new = Directory { watch, parent, name_start, name_len, is_seen: true, is_remote };
        self.all.insert(same.end, new);
        // The kernel counts watches up, so that there are seldom some behind a new one.
        if same.end + 1 < self.all.len() {
            for directory in &mut self.all {
                let is_behind = directory.parent != NO_PARENT && directory.parent >= at;
                directory.parent += u32::from(is_behind);
            }
        }
        self.last = at;
        Some((true, is_remote))
    }

    /// Forgets those that were not seen since the last call. Tells the watches that stand for none
    /// any more.
    pub(crate) fn trim(&mut self, mut gone: impl FnMut(i32)) {
        if self.all.iter().any(|it| !it.is_seen) {
            let before = std::mem::take(self);
            let mut places = Vec::with_capacity(before.all.len());
            let mut count = 0;
            for directory in &before.all {
                places.push(if directory.is_seen { count } else { NO_PARENT });
                count += u32::from(directory.is_seen);
            }
            self.all.reserve_exact(count as usize);
            for (at, directory) in (0..).zip(&before.all) {
                if directory.is_seen {
                    self.keep(&before, at, &places);
                } else if !before.all[before.of(directory.watch)].iter().any(|it| it.is_seen) {
                    gone(directory.watch);
                }
            }
        }
        self.all.iter_mut().for_each(|it| it.is_seen = false);
        // Growth leaves up to half of a block unused.
        self.all.shrink_to_fit();
        self.names.shrink_to_fit();
    }

    /// Adds one of those before, whose indexes have new places.
    fn keep(&mut self, before: &Directories, at: u32, places: &[u32]) {
        let directory = before.all[at as usize];
        let parent = places.get(directory.parent as usize).copied().unwrap_or(NO_PARENT);
        let name_start = self.names.len() as u32;
        if parent == NO_PARENT {
            self.names.extend_from_slice(before.path(at).as_os_str().as_bytes());
        } else {
            self.names.extend_from_slice(before.name(directory));
        }
        let name_len = (self.names.len() - name_start as usize) as u16;
        self.all.push(Directory { parent, name_start, name_len, ..directory });
    }

    /// The paths for which a watch stands.
    pub(crate) fn paths_of(&self, watch: i32) -> impl Iterator<Item = PathBuf> {
        self.of(watch).map(|at| self.path(at as u32))
    }

    fn of(&self, watch: i32) -> Range<usize> {
        let first = self.all.partition_point(|it| it.watch < watch);
        first..first + self.all[first..].iter().take_while(|it| it.watch == watch).count()
    }

    fn name(&self, directory: Directory) -> &[u8] {
        let start = directory.name_start as usize;
        &self.names[start..start + usize::from(directory.name_len)]
    }

    fn is(&self, mut at: u32, mut path: &[u8]) -> bool {
        while let Some(directory) = self.all.get(at as usize) {
            let name = self.name(*directory);
            if directory.parent == NO_PARENT {
                return path == name;
            }
            let above = path.strip_suffix(name).and_then(|above| above.strip_suffix(b"/"));
            let Some(above) = above else { return false };
            (at, path) = (directory.parent, above);
        }
        false
    }

    /// The parent of a path, if it is the directory that was seen last or one above that, and the
    /// name behind it.
    fn split<'p>(&self, path: &'p [u8]) -> (u32, &'p [u8]) {
        let slash = path.iter().rposition(|byte| *byte == b'/');
        if let Some(slash) = slash {
            let mut above = self.last;
            while let Some(directory) = self.all.get(above as usize) {
                if self.is(above, &path[..slash]) {
                    return (above, &path[slash + 1..]);
                }
                above = directory.parent;
            }
        }
        (NO_PARENT, path)
    }

    fn path(&self, at: u32) -> PathBuf {
        let (mut names, mut above) = (Vec::new(), at);
        while let Some(directory) = self.all.get(above as usize) {
            names.push(self.name(*directory));
            above = directory.parent;
        }
        names.reverse();
        PathBuf::from(OsStr::from_bytes(&names.join(&b'/')))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn see(directories: &mut Directories, watch: i32, path: &str) -> bool {
        directories.see(watch, Path::new(path), || false).expect("has room").0
    }

    fn trim(directories: &mut Directories) -> Vec<i32> {
        let mut gone = Vec::new();
        directories.trim(|watch| gone.push(watch));
        gone
    }

    fn paths(directories: &Directories, watch: i32) -> Vec<PathBuf> {
        directories.paths_of(watch).collect()
    }

    #[test]
    fn a_directory_has_its_own_name_only() {
        let mut directories = Directories::default();
        for (watch, path) in [(1, "/pods"), (2, "/pods/a"), (3, "/pods/a/c"), (4, "/pods/b")] {
            assert!(see(&mut directories, watch, path));
        }
        assert_eq!(directories.names, b"/podsacb");
        assert_eq!(paths(&directories, 3), [Path::new("/pods/a/c")]);
    }

    #[test]
    fn the_root_and_the_place_of_the_process_are_directories_too() {
        let mut directories = Directories::default();
        for (watch, path) in [(1, "/"), (2, "/a"), (3, "."), (4, "b"), (5, "b/c")] {
            assert!(see(&mut directories, watch, path) && !see(&mut directories, watch, path));
            assert_eq!(paths(&directories, watch), [Path::new(path)]);
        }
    }

    #[test]
    fn a_file_system_is_asked_for_its_kind_once() {
        let mut directories = Directories::default();
        let mut asked = 0;
        for is_new in [true, false] {
            let seen = directories.see(1, Path::new("/a"), || {
                asked += 1;
                true
            });
            assert_eq!(seen, Some((is_new, true)));
        }
        assert_eq!(asked, 1);
    }

    proptest! {
        /// Scenario: looks that each see some directories, by one path or by two, below each other
        /// or not. Guarantee: a watch stands for the paths of the last look, and is told once if it
        /// stands for none any more.
        #[test]
        fn a_watch_stands_for_the_paths_by_which_it_was_seen_last(
            looks in vec(vec((0..6_i32, 0..3_usize), 0..20), 1..6),
        ) {
            let path = |watch: i32, link: usize| {
                let above = ["/r", "/s", "/r/0"][link];
                let below = (watch > 0).then(|| format!("{above}/{watch}"));
                PathBuf::from(below.unwrap_or_else(|| above.to_owned()))
            };
            let mut directories = Directories::default();
            let mut before = BTreeSet::new();
            for look in looks {
                let mut now = BTreeSet::new();
                for (watch, link) in look {
                    let path = path(watch, link);
                    let seen = directories.see(watch, &path, || false);
                    let it = (watch, path);
                    let is_new = !before.contains(&it) && !now.contains(&it);
                    prop_assert_eq!(seen, Some((is_new, false)));
                    now.insert(it);
                }
                let mut gone = trim(&mut directories);
                gone.dedup();
                let has = |set: &BTreeSet<(i32, PathBuf)>, watch: i32| {
                    set.iter().any(|(it, _)| *it == watch)
                };
                for watch in 0..6 {
                    let is_gone = has(&before, watch) && !has(&now, watch);
                    prop_assert_eq!(gone.contains(&watch), is_gone);
                    let mut found = paths(&directories, watch);
                    found.sort();
                    let of_watch = now.iter().filter(|(it, _)| *it == watch);
                    let expected: Vec<PathBuf> = of_watch.map(|(_, it)| it.clone()).collect();
                    prop_assert_eq!(found, expected);
                }
                before = now;
            }
        }
    }
}
