//! The log files of one container: the one that is written, and those that were rotated away.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

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
    rotate_bytes: u64,
    /// Oldest first.
    rotated: VecDeque<PathBuf>,
    /// The seconds are part of rotated files' names.
    last_rotation_s: u64,
}

impl PodLog {
    pub(super) fn create(root: &Path, pod: usize, rotate_bytes: u64) -> Result<PodLog, LogFilesError> {
        let uid = format!("{pod:08x}-0000-4000-8000-{pod:012x}");
        let folder = root.join(format!("{NAMESPACE}_log-load-generator-{pod}_{uid}")).join(CONTAINER);
        let failed = |source| LogFilesError::Io { path: folder.clone(), source };
        fs::create_dir_all(&folder).map_err(failed)?;
        let file = File::create(folder.join(CURRENT)).map_err(failed)?;
        Ok(PodLog { folder, file, written_bytes: 0, rotate_bytes, rotated: VecDeque::new(), last_rotation_s: 0 })
    }

    /// Appends whole lines to one file.
    pub(super) fn write(&mut self, lines: &[u8], now_unix_ns: u64) -> Result<(), LogFilesError> {
        self.append(lines, now_unix_ns).map_err(|source| LogFilesError::Io { path: self.folder.clone(), source })
    }

    /// What can still be appended before a rotation.
    pub(super) fn room_bytes(&self) -> u64 {
        self.rotate_bytes.saturating_sub(self.written_bytes)
    }

    fn append(&mut self, lines: &[u8], now_unix_ns: u64) -> io::Result<()> {
        if self.written_bytes > 0 && lines.len() as u64 > self.room_bytes() {
            self.rotate(now_unix_ns)?;
        }
        self.file.write_all(lines)?;
        self.written_bytes += lines.len() as u64;
        Ok(())
    }

    /// As the kubelet does it, except that it looks every ten seconds only, and compresses all rotated files but the newest.
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
