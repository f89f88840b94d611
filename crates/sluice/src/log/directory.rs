//! The directory, its logs, and their deliveries.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use sluice_log::FileError;
use sluice_log::cursors::{CURSOR_EXTENSION, CURSORS_DIRECTORY, CursorFile, file_name};
use sluice_log::dead_letters::{self, DeadLetterScan, DeadLetters, name_of_folder};
use sluice_log::disk::{DirectoryEntry, DirectoryLock, Disk, LockError, RealDisk};
use sluice_log::format::CursorState;
use sluice_log::inspect::{LogOverview, dead_letter_directories, is_log, lost_cursors, overview};
use sluice_log::segment::list_if_there;
use sluice_otlp::Signal;

pub(super) struct Directory {
    pub path: PathBuf,
}

#[derive(Clone, Debug)]
pub(super) struct LogFolder {
    pub signal: Signal,
    pub path: PathBuf,
}

/// A delivery, according to the files of its log.
#[derive(Debug)]
pub(super) struct StoredDelivery {
    pub log: LogFolder,
    pub name: String,
    /// `None`: its file is lost, and the backlog on disk is kept under the name for such files.
    /// Without a file it is the default: there is no backlog, only dead letters.
    pub cursor: Option<CursorState>,
    /// The folder of its dead letters, if it ever had any.
    pub dead_letters: Option<PathBuf>,
}

impl Directory {
    /// If there are no logs at `path`, the error says which directory to give instead.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        let entries = RealDisk.list(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => anyhow!(
                "{shown}: there is no such directory; give the one that the configuration names in \
                 `buffer.directory`"
            ),
            io::ErrorKind::PermissionDenied => {
                anyhow!("{shown}: {error}; run this as the user that sluice runs as, or as root")
            }
            _ => anyhow::Error::new(error).context(shown.to_string()),
        })?;
        if let Some(parent) = path.parent().filter(|_| is_log(&entries)) {
            let parent = if parent.as_os_str().is_empty() { Path::new("..") } else { parent };
            let parent = parent.display();
            bail!("{shown}: this is a part of a log; give the directory above it: {parent}");
        }
        Ok(Directory { path: path.to_owned() })
    }

    /// The logs of the requested signals: at least one.
    pub(super) fn logs(&self, wanted: Option<Signal>) -> Result<Vec<LogFolder>> {
        let entries = list_if_there(&RealDisk, &self.path)?;
        let is_there = |signal: &Signal| {
            entries.iter().any(|entry| entry.is_directory && entry.name == signal.as_str())
        };
        let signals =
            Signal::ALL.into_iter().filter(|signal| wanted.is_none_or(|one| one == *signal));
        let folder = |signal: Signal| LogFolder { signal, path: self.path.join(signal.as_str()) };
        let logs: Vec<_> = signals.filter(is_there).map(folder).collect();
        if logs.is_empty() {
            let of = wanted.map_or(String::new(), |signal| format!(" of {signal}"));
            bail!(
                "{}: it has no log{of}; give the directory that the configuration names in \
                 `buffer.directory`",
                self.path.display()
            );
        }
        Ok(logs)
    }

    /// Takes the directory's lock. The error names the process that has it, and the remedy.
    pub(super) fn lock(&self) -> Result<DirectoryLock> {
        match DirectoryLock::acquire(&self.path) {
            Err(error @ LockError::InUse { holder, .. }) => {
                let stop =
                    holder.map_or("stop it".to_owned(), |pid| format!("stop it (`kill {pid}`)"));
                bail!(
                    "{error}; {stop}, wait until it has ended and repeat the command; ls, show, \
                     dead-letters, verify and replay --to-file without --remove can be used while \
                     it runs"
                )
            }
            lock => Ok(lock?),
        }
    }

    pub(super) fn deliveries(&self, wanted: Option<Signal>) -> Result<Vec<StoredDelivery>> {
        let of_logs = self.logs(wanted)?.into_iter().map(|log| log.deliveries());
        Ok(of_logs.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// The delivery of this name, in which `->` may stand for `→`.
    pub(super) fn delivery(&self, signal: Option<Signal>, given: &str) -> Result<StoredDelivery> {
        let spellings = [given.to_owned(), canonical(given)];
        let is_it = |delivery: &StoredDelivery| spellings.contains(&delivery.name);
        let (mut found, others): (Vec<_>, Vec<_>) =
            self.deliveries(signal)?.into_iter().partition(is_it);
        if found.len() > 1 {
            let signals = found.iter().map(|delivery| delivery.log.signal.as_str());
            let signals = signals.collect::<Vec<_>>().join(" and ");
            bail!(
                "{given}: there are deliveries of this name for {signals}; choose one with --signal"
            );
        }
        found.pop().ok_or_else(|| {
            let mut known: Vec<_> = others.into_iter().map(|delivery| delivery.name).collect();
            known.sort();
            let known = match known.as_slice() {
                [] => "none".to_owned(),
                known => format!("'{}'", known.join("', '")),
            };
            let path = self.path.display();
            anyhow!("{given}: {path} has no delivery of this name; it has: {known}")
        })
    }

    /// The contents of the logs, from the headers of their files.
    pub(super) fn overview(&self) -> Result<Vec<LogOverview>> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        overview(&disk, &self.path).context("cannot read the directory")
    }
}

impl LogFolder {
    /// All deliveries that have a cursor or dead letters, by name.
    fn deliveries(&self) -> Result<Vec<StoredDelivery>> {
        let mut deliveries = Vec::new();
        for (name, cursor) in self.cursor_files()? {
            let dead_letters = dead_letters::directory_of(&self.path, &name);
            let dead_letters = dead_letters.is_dir().then_some(dead_letters);
            deliveries.push(StoredDelivery { log: self.clone(), name, cursor, dead_letters });
        }
        for (folder, path) in dead_letter_directories(&RealDisk, &self.path)? {
            if deliveries.iter().any(|delivery| delivery.dead_letters.as_ref() == Some(&path)) {
                continue;
            }
            let name = match DeadLetterScan::open(Arc::new(RealDisk), &path, 0) {
                // One state that the disk refuses is no matter of the other deliveries.
                Err(FileError::Io { .. }) => name_of_folder(&folder),
                letters => letters?.delivery(&folder),
            };
            let (log, cursor) = (self.clone(), Some(CursorState::default()));
            deliveries.push(StoredDelivery { log, name, cursor, dead_letters: Some(path) });
        }
        deliveries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(deliveries)
    }

    /// Cursors by delivery; a lost one has the name under which its backlog is kept.
    pub(super) fn cursor_files(&self) -> Result<Vec<(String, Option<CursorState>)>> {
        let folder = self.path.join(CURSORS_DIRECTORY);
        let lost = lost_cursors(&RealDisk, &self.path)?;
        let mut cursors: Vec<_> = lost.into_iter().map(|name| (name, None)).collect();
        let entries = list_if_there(&RealDisk, &folder)?.into_iter();
        let is_cursor =
            |entry: &DirectoryEntry| !entry.is_directory && entry.name.ends_with(CURSOR_EXTENSION);
        for entry in entries.filter(is_cursor) {
            match CursorFile::read(&RealDisk, &folder.join(&entry.name)) {
                Ok(state) => cursors.push((state.name.clone(), Some(state))),
                // It is one of the lost.
                Err(FileError::DamagedCursor { .. }) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(cursors)
    }
}

impl StoredDelivery {
    /// Its dead letters from a number on, if it ever had any.
    pub(super) fn letters(&self, from: u64) -> Result<Option<DeadLetterScan>> {
        let open = |path| DeadLetterScan::open(Arc::new(RealDisk), path, from);
        Ok(self.dead_letters.as_deref().map(open).transpose()?)
    }

    pub(super) fn remove_letters(&self, below: u64) -> Result<()> {
        Ok(self.letters_to_change()?.remove_below(below)?)
    }

    pub(super) fn drop_letters(&self) -> Result<()> {
        Ok(self.letters_to_change()?.drop_all()?)
    }

    fn letters_to_change(&self) -> Result<DeadLetters> {
        let disk = Arc::new(RealDisk);
        Ok(DeadLetters::open(disk, &self.log.path, &self.name, u64::MAX)?)
    }

    /// The path of its cursor file after the log was opened.
    pub(super) fn cursor_path(&self) -> PathBuf {
        let file_name = match self.cursor {
            None => self.name.clone(),
            Some(_) => file_name(&self.name),
        };
        self.log.path.join(CURSORS_DIRECTORY).join(file_name)
    }
}

fn canonical(name: &str) -> String {
    match name.split_once("->") {
        Some((pipeline, exporter)) => format!("{} → {}", pipeline.trim(), exporter.trim()),
        None => name.to_owned(),
    }
}
