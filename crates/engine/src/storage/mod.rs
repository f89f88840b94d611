//! The logs of an engine: in memory, or on disk below one directory that this process owns.

mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sluice_flow::hop::Limits;
use sluice_log::disk::{DirectoryLock, Disk, LockError, RealDisk};
use sluice_log::{DiskTrouble, Holding, Log, MemoryUse, OpenOptions, Recovered, own_directory};
use sluice_otlp::Signal;
pub(crate) use watch::{LogWatch, watch};

use crate::delivery::{DeadLetters, DeliveryId, OnDisk};
use crate::entry::Entry;
use crate::error::{Result, StartError};
use crate::hop::Known;
use crate::plan::{DiskPlan, Plan};

/// Opening is worth a line of the log after this time.
const OPENS_WITHIN: Duration = Duration::from_secs(2);

/// State that all logs share.
pub(crate) struct Storage {
    pub logs: [Arc<Log<Entry>>; 3],
    /// The ranges of other Sluices that each log has had.
    pub known: [Arc<Known>; 3],
    pub watches: [Arc<LogWatch>; 3],
    /// Memory of all logs.
    pub memory: Arc<MemoryUse>,
    /// None: in memory.
    directory: Option<OwnedDirectory>,
}

struct OwnedDirectory {
    path: PathBuf,
    segment_bytes: u64,
    _lock: DirectoryLock,
}

impl Storage {
    pub(crate) async fn open(plan: &Plan) -> Result<Storage> {
        let limits = Limits::within(plan.memory.window_bytes);
        let Some(disk) = plan.disk.clone() else {
            let memory = Arc::<MemoryUse>::default();
            let logs = Signal::ALL.map(|_| Arc::new(Log::in_memory(memory.clone())));
            let known = Signal::ALL.map(|signal| Arc::new(Known::in_memory(signal, limits)));
            let (watches, directory) = Default::default();
            return Ok(Storage { logs, known, watches, memory, directory });
        };
        let path = disk.directory.clone();
        opening(&path, move || open_directory(&disk, limits)).await?
    }

    pub(crate) fn log(&self, signal: Signal) -> &Arc<Log<Entry>> {
        &self.logs[signal as usize]
    }

    pub(crate) fn directory(&self) -> Option<&Path> {
        self.directory.as_ref().map(|directory| directory.path.as_path())
    }

    /// Free bytes of the directory's file system, if it reports them. May wait for the disk.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        RealDisk.available_bytes(self.directory()?).ok()
    }

    /// Checks that a plan needs no restart, before any part of it is applied.
    pub(crate) fn check_reload(&self, plan: &Plan) -> Result<()> {
        match (&self.directory, &plan.disk) {
            (None, Some(disk)) => Err(StartError(format!(
                "the configuration now has a directory, {}: that needs a restart",
                disk.directory.display()
            ))),
            (Some(running), None) => Err(StartError(format!(
                "the configuration no longer has a directory, telemetry is stored in {}: \
                 that needs a restart",
                running.path.display()
            ))),
            (Some(running), Some(disk)) => {
                if running.path != disk.directory {
                    tracing::warn!(
                        directory = %running.path.display(),
                        configured = %disk.directory.display(),
                        "another directory needs a restart: the old one stays in use"
                    );
                }
                if running.segment_bytes != disk.segment_bytes {
                    tracing::warn!(
                        "segments of another length need a restart: the old length stays in use"
                    );
                }
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    /// Says which deliveries have a backlog and are not in the configuration.
    pub(crate) fn tell_orphans(&self) {
        for signal in Signal::ALL {
            // A start has told of those that are lost.
            for orphan in self.log(signal).orphans().into_iter().filter(|it| !it.is_lost) {
                let Holding { items, bytes, .. } = orphan.held;
                tracing::warn!(
                    %signal, delivery = orphan.name, items, bytes,
                    "the configuration does not have this delivery: its backlog stays on disk \
                     until a delivery of this name takes it up, or until it is dropped by hand"
                );
            }
        }
    }

    /// Budgets and policies of a plan.
    pub(crate) fn apply(&self, plan: &Plan) {
        let Some(disk) = &plan.disk else { return };
        for log in &self.logs {
            log.set_disk_limits(disk.flush_after, disk.tail_bytes, disk.read_ahead_bytes);
        }
    }

    pub(crate) async fn dead_letters(
        &self,
        plan: &Plan,
        id: &DeliveryId,
        signal: Signal,
    ) -> Result<DeadLetters> {
        let (Some(directory), Some(disk)) = (&self.directory, &plan.disk) else {
            return Ok(DeadLetters::in_memory(plan.memory.dead_letters_bytes));
        };
        let (path, limit_bytes) = (directory.path.join(signal.as_str()), disk.dead_letters_bytes);
        let name = id.to_string();
        let of_log = path.clone();
        let open = move || OnDisk::open(Arc::new(RealDisk), path, name, limit_bytes);
        Ok(DeadLetters::OnDisk(Box::new(opening(&of_log, open).await?)))
    }

    /// Writes unresolved frames, and ends. Returns those that could not be written, by signal.
    pub(crate) async fn close(&self, timeout: Duration) -> Vec<(Signal, Holding)> {
        if self.directory.is_none() {
            return Vec::new();
        }
        let closing = Signal::ALL.map(|signal| {
            let log = self.log(signal).clone();
            tokio::task::spawn_blocking(move || {
                let unwritten = log.close(timeout);
                if let Some(DiskTrouble { reason, .. }) = log.trouble() {
                    tracing::error!(%signal, reason, "the disk was in trouble when the log ended");
                }
                (signal, unwritten)
            })
        });
        let closed = futures_util::future::join_all(closing).await;
        closed.into_iter().flatten().filter(|(_, unwritten)| unwritten.frames > 0).collect()
    }
}

/// Opens files on a thread that may wait for the disk.
/// Opens on a thread that may wait for the disk, and says so while that lasts.
async fn opening<T: Send + 'static>(
    path: &Path,
    open: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let mut opening = tokio::task::spawn_blocking(open);
    let opened = match tokio::time::timeout(OPENS_WITHIN, &mut opening).await {
        Ok(opened) => opened,
        Err(_) => {
            let directory = path.display();
            tracing::warn!(
                %directory,
                "still opening the log: it is large, or the disk is slow or hangs"
            );
            opening.await
        }
    };
    opened
        .map_err(|error| StartError(format!("the thread that opens the directory ended: {error}")))
}

fn open_directory(plan: &DiskPlan, limits: Limits) -> Result<Storage> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let path = &plan.directory;
    let lock = own_directory(&*disk, path).map_err(|error| {
        let remedy = match &error {
            LockError::InUse { .. } => "; give each process a directory of its own",
            LockError::File(_) if path.exists() && !path.is_dir() => "; it has to be a directory",
            LockError::File(_) => "",
        };
        StartError(format!("buffer.directory: {error}{remedy}"))
    })?;
    let memory = Arc::<MemoryUse>::default();
    let (mut logs, mut windows) = (Vec::new(), Vec::new());
    for signal in Signal::ALL {
        let directory = path.join(signal.as_str());
        let known = Known::open(&*disk, &directory, signal, limits);
        let options = OpenOptions {
            segment_bytes: plan.segment_bytes,
            memory: memory.clone(),
            memory_limit_bytes: plan.tail_bytes,
            read_ahead_bytes: plan.read_ahead_bytes,
            flush_after: plan.flush_after,
            companion: Some(known.clone()),
            ..OpenOptions::new(disk.clone(), &directory, signal.as_str())
        };
        let failed = |error| StartError(format!("the log of {signal} cannot be opened: {error}"));
        let (log, recovered) = Log::open(options).map_err(failed)?;
        tell(signal, &recovered);
        logs.push(Arc::new(log));
        windows.push(known);
    }
    let logs = logs.try_into().unwrap_or_else(|_| unreachable!("there is a log a signal"));
    let known = windows.try_into().unwrap_or_else(|_| unreachable!("and a window"));
    let directory =
        OwnedDirectory { path: path.clone(), segment_bytes: plan.segment_bytes, _lock: lock };
    let (watches, directory) = (Default::default(), Some(directory));
    Ok(Storage { logs, known, watches, memory, directory })
}

fn tell(signal: Signal, found: &Recovered) {
    if found.segments > 0 {
        tracing::info!(
            %signal, segments = found.segments, bytes = found.disk_bytes,
            scanned_bytes = found.bytes_scanned, "found telemetry of an earlier run on disk"
        );
    }
    if !found.unread.is_empty() {
        tracing::error!(
            %signal, files = ?found.unread,
            "the disk refuses to read these files: they stay, and deliveries that need them wait \
             until it does; docs/log.md says what to do if it never does"
        );
    }
    if !found.misnamed.is_empty() {
        tracing::error!(
            %signal, files = ?found.misnamed,
            "these segments were renamed or copied: they are set aside, and deliveries go on \
             without them; `sluice log repair` puts back what deliveries wait for"
        );
    }
    if !found.cut.is_empty() {
        let (files, bytes): (Vec<_>, Vec<_>) = found.cut.iter().cloned().unzip();
        tracing::warn!(
            %signal, ?files, ?bytes,
            "the end of the newest file is what a crash left of a write that was never \
             acknowledged, as far as is known: it is cut"
        );
    }
    if !found.cursors_refused.is_empty() {
        tracing::error!(
            %signal, files = ?found.cursors_refused,
            "the disk refuses to read a part of these cursor files: what deliveries did last is \
             not known, and is done again; what is received now is safe"
        );
    }
    if !found.lost_cursors.is_empty() {
        tracing::error!(
            %signal, kept_as = ?found.lost_cursors,
            "cursor files are gone or cannot be read, so that it is not known what their \
             deliveries had delivered: everything on disk is kept for them; `sluice log ls` shows \
             how to continue"
        );
    }
    if !found.missing.is_none() {
        tracing::error!(
            %signal, frames = found.missing.frames(), waiting = ?found.missing.by_reader,
            empty_files = ?found.missing.empty_files,
            "telemetry that deliveries wait for is in no file on disk: segments were removed, \
             emptied or cut; the rest is delivered"
        );
    }
    if found.missing.is_incomplete {
        tracing::info!(
            %signal,
            "it is not known whether telemetry that deliveries wait for is missing: there is too \
             much on disk for a start to look, or the disk refuses; `sluice log ls` looks, also \
             while Sluice runs, and deliveries count what they do not find as lost"
        );
    }
    if let Some(path) = &found.damaged_list {
        tracing::error!(
            %signal, path = %path.display(),
            "the list of cursor files is damaged and is written anew: it is not known whether \
             one of them is gone"
        );
    }
    if found.frames_damaged > 0 {
        tracing::error!(
            %signal, frames = found.frames_damaged,
            "some of what is on disk is damaged: it is passed over, the rest is delivered"
        );
    }
}
