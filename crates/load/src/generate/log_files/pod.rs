//! The log files of one container: the one that is written, and those that were rotated away.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;

use super::civil::rotation_suffix;
use super::{KEPT_FILES, LogFiles};

const CURRENT: &str = "0.log";
const NAMESPACE: &str = "log-load-test";
const CONTAINER: &str = "flog";
const SECOND_NS: u64 = 1_000_000_000;

/// `<root>/<namespace>_<pod>_<uid>/<container>/0.log`.
pub(super) struct PodLog {
    shape: LogFiles,
    folder: PathBuf,
    file: File,
    written_bytes: u64,
    /// Oldest first.
    rotated: VecDeque<PathBuf>,
    next_check: Instant,
    /// The seconds are part of rotated files' names.
    last_rotation_s: u64,
}

impl PodLog {
    pub(super) fn create(root: &Path, pod: usize, shape: &LogFiles) -> anyhow::Result<PodLog> {
        let uid = format!("{pod:08x}-0000-4000-8000-{pod:012x}");
        let folder =
            root.join(format!("{NAMESPACE}_log-load-generator-{pod}_{uid}")).join(CONTAINER);
        let create = || {
            fs::create_dir_all(&folder)?;
            File::create(folder.join(CURRENT))
        };
        Ok(PodLog {
            file: create().with_context(|| folder.display().to_string())?,
            folder,
            written_bytes: 0,
            rotated: VecDeque::new(),
            next_check: Instant::now() + shape.rotate_every,
            last_rotation_s: 0,
            shape: shape.clone(),
        })
    }

    /// How much can still be appended before a rotation.
    pub(super) fn room_bytes(&self) -> u64 {
        self.shape.file_limit_bytes().saturating_sub(self.written_bytes)
    }

    /// Appends whole lines to one file.
    pub(super) fn write(&mut self, lines: &[u8], now_unix_ns: u64) -> anyhow::Result<()> {
        let mut is_full = self.written_bytes > 0 && lines.len() as u64 > self.room_bytes();
        let now = Instant::now();
        if now >= self.next_check {
            self.next_check = now + self.shape.rotate_every;
            is_full |= self.written_bytes >= self.shape.rotate_bytes;
        }
        let rotated = if is_full { self.rotate(now_unix_ns) } else { Ok(()) };
        let written = rotated.and_then(|()| self.file.write_all(lines));
        self.written_bytes += lines.len() as u64;
        written.with_context(|| self.folder.display().to_string())
    }

    /// As the kubelet does it, which compresses all rotated files but the newest as well.
    fn rotate(&mut self, now_unix_ns: u64) -> std::io::Result<()> {
        self.last_rotation_s = (now_unix_ns / SECOND_NS).max(self.last_rotation_s + 1);
        let suffix = rotation_suffix(self.last_rotation_s * SECOND_NS);
        let current = self.folder.join(CURRENT);
        let rotated = self.folder.join(format!("{CURRENT}.{suffix}"));
        fs::rename(&current, &rotated)?;
        self.file = File::create(&current)?;
        self.written_bytes = 0;
        self.rotated.push_back(rotated);
        while self.rotated.len() >= KEPT_FILES {
            self.rotated.pop_front().map_or(Ok(()), fs::remove_file)?;
        }
        Ok(())
    }
}
