//! The log files of one container: the one that is written, and those that were rotated away.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::civil::Moment;
use super::{KEPT_FILES, LogFilesError};

const CURRENT: &str = "0.log";
const NAMESPACE: &str = "log-load-test";
const CONTAINER: &str = "flog";
const SECOND_NS: u64 = 1_000_000_000;

/// `<root>/<namespace>_<pod>_<uid>/<container>/0.log`.
pub(super) struct PodLog {
    folder: PathBuf,
    file: File,
    written_bytes: u64,
    rotation: Rotation,
    /// Oldest first.
    rotated: VecDeque<PathBuf>,
    next_check: Instant,
    /// The seconds are part of rotated files' names.
    last_rotation_s: u64,
}

/// When a file is renamed and a new one begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rotation {
    /// One that has reached this, when it is looked at.
    pub(super) size_bytes: u64,
    pub(super) check_every: Duration,
    /// One that would grow beyond this, at once: what bounds the disk.
    pub(super) limit_bytes: u64,
}

impl PodLog {
    pub(super) fn create(
        root: &Path,
        pod: usize,
        rotation: Rotation,
    ) -> Result<PodLog, LogFilesError> {
        let uid = format!("{pod:08x}-0000-4000-8000-{pod:012x}");
        let folder =
            root.join(format!("{NAMESPACE}_log-load-generator-{pod}_{uid}")).join(CONTAINER);
        let failed = |source| LogFilesError::Io { path: folder.clone(), source };
        fs::create_dir_all(&folder).map_err(failed)?;
        let file = File::create(folder.join(CURRENT)).map_err(failed)?;
        Ok(PodLog {
            folder,
            file,
            written_bytes: 0,
            rotation,
            rotated: VecDeque::new(),
            next_check: Instant::now() + rotation.check_every,
            last_rotation_s: 0,
        })
    }

    /// Appends whole lines to one file.
    pub(super) fn write(&mut self, lines: &[u8], now_unix_ns: u64) -> Result<(), LogFilesError> {
        self.append(lines, now_unix_ns)
            .map_err(|source| LogFilesError::Io { path: self.folder.clone(), source })
    }

    /// How much can still be appended before a rotation.
    pub(super) fn room_bytes(&self) -> u64 {
        self.rotation.limit_bytes.saturating_sub(self.written_bytes)
    }

    fn append(&mut self, lines: &[u8], now_unix_ns: u64) -> io::Result<()> {
        if self.is_to_be_rotated(lines.len() as u64) {
            self.rotate(now_unix_ns)?;
        }
        self.file.write_all(lines)?;
        self.written_bytes += lines.len() as u64;
        Ok(())
    }

    fn is_to_be_rotated(&mut self, more_bytes: u64) -> bool {
        let mut is_full = self.written_bytes > 0 && more_bytes > self.room_bytes();
        let now = Instant::now();
        if now >= self.next_check {
            self.next_check = now + self.rotation.check_every;
            is_full |= self.written_bytes >= self.rotation.size_bytes;
        }
        is_full
    }

    /// As the kubelet does it, which compresses all rotated files but the newest as well.
    fn rotate(&mut self, now_unix_ns: u64) -> io::Result<()> {
        self.last_rotation_s = (now_unix_ns / SECOND_NS).max(self.last_rotation_s + 1);
        let suffix = Moment::of(self.last_rotation_s * SECOND_NS).rotation_suffix();
        let current = self.folder.join(CURRENT);
        let rotated = self.folder.join(format!("{CURRENT}.{suffix}"));
        fs::rename(&current, &rotated)?;
        self.file = File::create(&current)?;
        self.written_bytes = 0;
        self.rotated.push_back(rotated);
        while self.rotated.len() >= KEPT_FILES {
            if let Some(oldest) = self.rotated.pop_front() {
                fs::remove_file(oldest)?;
            }
        }
        Ok(())
    }
}
