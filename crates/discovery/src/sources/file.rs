//! `file_sd_configs`: groups in files, which are looked at for changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_net::reload::read_bounded;
use sluice_tail::Found;

use super::outlet::Outlet;
use crate::group::{Group, from_json, from_yaml, numbered};
use crate::labels::Text;
use crate::scrape_config::FileSd;

/// Changes of files are seen after this time, or after the interval if that is shorter.
const POLL: Duration = Duration::from_secs(5);
const SHORTEST_POLL: Duration = Duration::from_millis(10);
/// Files of one source.
const FILES_LIMIT: usize = 10_000;

const LABEL: &str = "__meta_filepath";

struct Source {
    config: FileSd,
    outlet: Outlet,
    files: BTreeMap<PathBuf, File>,
    /// Files are read again then, whether or not they have changed.
    next_reading: Option<Instant>,
}

#[derive(Default)]
struct File {
    /// As it was when it was read last.
    mark: Option<Mark>,
    groups: Vec<Arc<Group>>,
}

/// Differs when a file was written or replaced.
type Mark = (u64, u64, u64, i64, i64);

pub(super) async fn run(config: FileSd, outlet: Outlet) {
    let pause = config.refresh_interval.min(POLL).max(SHORTEST_POLL);
    let mut source = Source { config, outlet, files: BTreeMap::new(), next_reading: None };
    loop {
        // Disks may be slow: no thread of the runtime waits for them.
        let look = tokio::task::spawn_blocking(move || {
            source.look(Instant::now());
            source
        });
        let Ok(back) = look.await else { return };
        source = back;
        tokio::time::sleep(pause).await;
    }
}

impl Source {
    fn look(&mut self, now: Instant) {
        let must_read = self.next_reading.is_none_or(|at| at <= now);
        if must_read {
            self.next_reading = now.checked_add(self.config.refresh_interval);
        }
        let is_first = self.files.is_empty();
        let (mut paths, is_whole) = self.paths();
        if !is_whole {
            // Files that cannot be seen are not gone.
            paths.extend(self.files.keys().cloned());
        }
        let known = self.files.len();
        self.files.retain(|path, _| paths.contains(path));
        let mut is_changed = is_first || self.files.len() < known;
        for path in paths {
            is_changed |= self.read(&path, must_read);
        }
        let own = [self.config.text(), self.config.walk()];
        self.outlet.forget(|what| {
            own.iter().any(|own| own == what) || self.files.contains_key(Path::new(what))
        });
        if is_changed {
            let groups = self.files.values().flat_map(|file| file.groups.iter().cloned());
            let groups = groups.collect();
            self.outlet.found(&self.config.text(), groups);
        }
    }

    /// The files that the patterns mean, and whether all could be seen.
    fn paths(&mut self) -> (BTreeSet<PathBuf>, bool) {
        let mut paths = BTreeSet::new();
        let mut failure = None;
        for glob in &self.config.files {
            let mut visit = |found: Found<'_>| {
                if let Found::File(path) = found
                    && paths.len() <= FILES_LIMIT
                {
                    paths.insert(path.to_owned());
                }
            };
            glob.walk(&mut visit, &mut |path, error| {
                failure.get_or_insert_with(|| format!("cannot read {}: {error}", path.display()));
            });
        }
        if paths.len() > FILES_LIMIT {
            paths.pop_last();
            let reason = format!("there are more than {FILES_LIMIT} files: the rest is not read");
            failure.get_or_insert(reason);
        }
        let is_whole = failure.is_none();
        match failure {
            Some(reason) => self.outlet.failed(&self.config.walk(), reason),
            None => self.outlet.works(&self.config.walk()),
        }
        (paths, is_whole)
    }

    /// Reads a file if it has changed. True if its groups have.
    fn read(&mut self, path: &Path, must_read: bool) -> bool {
        let file = self.files.entry(path.to_owned()).or_default();
        let mark = std::fs::metadata(path).ok().map(|found| mark_of(&found));
        if mark.is_some() && mark == file.mark && !must_read {
            return false;
        }
        file.mark = mark;
        let shown = path.to_string_lossy();
        match groups_in(path, &shown) {
            Ok(groups) => {
                let is_changed = !groups.iter().eq(file.groups.iter().map(|group| &**group));
                if is_changed {
                    file.groups = groups.into_iter().map(Arc::new).collect();
                }
                self.outlet.works(&shown);
                is_changed
            }
            Err(reason) => {
                self.outlet.failed(&shown, reason);
                false
            }
        }
    }
}

impl FileSd {
    /// The source in messages.
    fn text(&self) -> String {
        let texts: Vec<&str> = self.files.iter().map(|glob| glob.text()).collect();
        texts.join(", ")
    }

    /// The same of looking for its files.
    fn walk(&self) -> String {
        format!("the paths {}", self.text())
    }
}

fn mark_of(found: &Metadata) -> Mark {
    (found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec())
}

fn groups_in(path: &Path, shown: &str) -> Result<Vec<Group>, String> {
    let text = read_bounded(path).map_err(|error| format!("it cannot be read: {error}"))?;
    let (name, value) = (Text::from(LABEL), Text::from(shown));
    let (key, label) = (numbered(shown), Some((&name, &value)));
    let is_json = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json"));
    if is_json {
        return from_json(&text, key, label);
    }
    let text = str::from_utf8(&text).map_err(|_| "it is not UTF-8 text".to_owned())?;
    from_yaml(text, key, label)
}

#[cfg(test)]
mod tests;
