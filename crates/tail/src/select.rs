//! Which of the paths that match are read.

use std::cmp;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use regex::bytes::Regex;
use std::os::unix::ffi::OsStrExt as _;

/// Only the first of the files in an order are read.
#[derive(Clone, Debug)]
pub struct Ordering {
    /// Its named groups are the keys. Paths that it does not match are not read.
    pub pattern: Option<Regex>,
    /// The first group of the path tells groups apart, each with an order of its own.
    pub group_by: Option<Regex>,
    /// Files a group. Zero: all.
    pub top: usize,
    pub sort_by: Vec<SortBy>,
}

#[derive(Clone, Debug)]
pub struct SortBy {
    /// The group of the pattern.
    pub key: String,
    pub kind: SortKind,
    pub ascending: bool,
}

/// A time in a name, as a number that rises with it.
pub type ParseTime = dyn Fn(&str) -> Option<i64> + Send + Sync;

#[derive(Clone)]
pub enum SortKind {
    Numeric,
    Alphabetical,
    Timestamp(Arc<ParseTime>),
    Modified,
}

impl fmt::Debug for SortKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            SortKind::Numeric => "Numeric",
            SortKind::Alphabetical => "Alphabetical",
            SortKind::Timestamp(_) => "Timestamp",
            SortKind::Modified => "Modified",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Number(i64),
    Text(Vec<u8>),
    Time(SystemTime),
}

impl Ordering {
    /// The paths to read. As in the Collector, the sorts apply one after the other, so that the
    /// last one decides and those before order what it leaves equal.
    pub(crate) fn select(&self, paths: Vec<PathBuf>) -> Vec<PathBuf> {
        let mut groups: BTreeMap<Vec<u8>, Vec<PathBuf>> = BTreeMap::new();
        for path in paths {
            let group = match &self.group_by {
                None => Some(Vec::new()),
                Some(by) => by
                    .captures(path.as_os_str().as_bytes())
                    .and_then(|found| Some(found.get(1)?.as_bytes().to_vec())),
            };
            if let Some(group) = group {
                groups.entry(group).or_default().push(path);
            }
        }
        groups.into_values().flat_map(|group| self.first_of(group)).collect()
    }

    fn first_of(&self, mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
        if let Some(pattern) = &self.pattern {
            paths.retain(|path| pattern.is_match(path.as_os_str().as_bytes()));
        }
        for sort in &self.sort_by {
            let keyed = paths.into_iter();
            let keyed = keyed.filter_map(|path| Some((self.key(sort, &path)?, path)));
            let mut keyed: Vec<(Key, PathBuf)> = keyed.collect();
            keyed.sort_by(|(first, _), (second, _)| {
                let order = first.cmp(second);
                if sort.ascending { order } else { order.reverse() }
            });
            paths = keyed.into_iter().map(|(_, path)| path).collect();
        }
        if self.top > 0 {
            paths.truncate(cmp::max(self.top, 1));
        }
        paths
    }

    fn key(&self, sort: &SortBy, path: &Path) -> Option<Key> {
        if let SortKind::Modified = sort.kind {
            return Some(Key::Time(fs::metadata(path).ok()?.modified().ok()?));
        }
        let captures = self.pattern.as_ref()?.captures(path.as_os_str().as_bytes())?;
        let bytes = captures.name(&sort.key)?.as_bytes();
        let text = str::from_utf8(bytes).ok()?;
        match &sort.kind {
            SortKind::Numeric => text.parse().ok().map(Key::Number),
            SortKind::Timestamp(parse) => parse(text).map(Key::Number),
            _ => Some(Key::Text(bytes.to_vec())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(ordering: &Ordering, paths: &[&str]) -> Vec<String> {
        let selected = ordering.select(paths.iter().map(PathBuf::from).collect());
        selected.iter().map(|path| path.display().to_string()).collect()
    }

    fn by(key: &str, kind: SortKind, ascending: bool) -> SortBy {
        SortBy { key: key.to_owned(), kind, ascending }
    }

    #[test]
    fn the_first_files_of_each_group_are_read() {
        let pattern = Regex::new(r"(?P<name>[a-z]+)-(?P<number>\d+)\.log").ok();
        let numeric = by("number", SortKind::Numeric, false);
        let ordering = Ordering { pattern, group_by: None, top: 2, sort_by: vec![numeric] };
        let paths = ["/a-9.log", "/a-10.log", "/b-11.log", "/other", "/b-8.log"];
        assert_eq!(select(&ordering, &paths), ["/b-11.log", "/a-10.log"]);
        let group_by = Regex::new("/([a-z])-").ok();
        let grouped = Ordering { group_by, top: 1, ..ordering.clone() };
        assert_eq!(select(&grouped, &paths), ["/a-10.log", "/b-11.log"]);
        let all = Ordering { top: 0, ..ordering.clone() };
        assert_eq!(select(&all, &paths).len(), 4);
        let alphabetical = by("name", SortKind::Alphabetical, true);
        let ascending = by("number", SortKind::Numeric, true);
        let both = Ordering { top: 0, sort_by: vec![ascending, alphabetical], ..ordering.clone() };
        assert_eq!(select(&both, &paths), ["/a-9.log", "/a-10.log", "/b-8.log", "/b-11.log"]);
        let parse: Arc<ParseTime> = Arc::new(|text| Some(-text.parse::<i64>().ok()?));
        let times = by("number", SortKind::Timestamp(parse), true);
        let times = Ordering { top: 1, sort_by: vec![times], ..ordering };
        assert_eq!(select(&times, &paths), ["/b-11.log"]);
    }

    #[test]
    fn files_are_ordered_by_their_times() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for (name, seconds) in [("a", 20), ("b", 30), ("c", 10)] {
            let file = fs::File::create(path(name)).expect("is made");
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            file.set_modified(time).expect("is set");
        }
        let sort_by = vec![by("", SortKind::Modified, false)];
        let ordering = Ordering { pattern: None, group_by: None, top: 2, sort_by };
        let selected = ordering.select(["a", "b", "c", "gone"].map(path).to_vec());
        assert_eq!(selected, ["b", "a"].map(path));
    }
}
