//! Log files for a subject that tails them: flog's lines in Kubernetes' CRI format, in a tree like
//! /var/log/pods, rotated as the kubelet does it. Each line carries its identity and its time.

mod line;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use super::report::{Progress, RunningLoad};
use crate::backend::Arrivals;
use crate::reaper::Reaper;
use line::LineTemplate;
use writer::{PodLog, Writer};

const PODS_LIMIT: usize = 1_000;
const BODY_LIMIT_BYTES: usize = 1_000_000;
/// The kubelet keeps five files of a container, the one that is written included.
const KEPT_FILES: usize = 5;
/// A file with this many times its rotation size is rotated at once.
const OVERGROWN: u64 = 4;

/// The lines that are written, and their rate.
#[derive(Clone, Debug, PartialEq)]
pub struct LogFiles {
    pub pods: usize,
    /// Length of a line without its CRI prefix. More than 16 KiB become several lines, all but the
    /// last marked as partial.
    pub body_bytes: usize,
    /// Rate of all pods. `None`: as fast as the lines arrive at the backends, with a bounded lead.
    pub lines_per_s: Option<f64>,
    /// A file that has reached this size at a check is renamed, and a new one is begun.
    pub rotate_bytes: u64,
    /// Interval of the checks.
    pub rotate_every: Duration,
}

impl Default for LogFiles {
    /// The Kyma load test's ten pods of flog, and the kubelet's rotation.
    fn default() -> Self {
        LogFiles {
            pods: 10,
            body_bytes: 400,
            lines_per_s: None,
            rotate_bytes: 10 << 20,
            rotate_every: Duration::from_secs(10),
        }
    }
}

impl LogFiles {
    /// Creates the tree, with an empty file a pod, in a temporary folder.
    pub fn open(self) -> Result<OpenLogFiles> {
        let template = self.template()?;
        let folder = std::env::temp_dir();
        self.check_space(&folder)?;
        let folder = TempDir::with_prefix("sluice-load-test-logs-")
            .with_context(|| folder.display().to_string())?;
        // Started while the folder is empty: a bench can be killed at any time.
        let tree = Tree { _reaper: Reaper::start(folder.path(), &[]), folder };
        let pods = (0..self.pods).map(|pod| PodLog::create(tree.folder.path(), pod, &self));
        let pods = pods.collect::<Result<_, _>>()?;
        Ok(OpenLogFiles { shape: self, template, tree: Arc::new(tree), pods })
    }

    /// Fails if a number is impossible, and names it.
    pub fn check(&self) -> Result<()> {
        self.template().map(|_| ())
    }

    fn template(&self) -> Result<LineTemplate> {
        let (pods, bytes, rotate) = (self.pods, self.body_bytes, self.rotate_bytes);
        let minimum = LineTemplate::minimum_body_bytes();
        ensure!(
            (1..=PODS_LIMIT).contains(&pods),
            "there can be 1 to {PODS_LIMIT} pods, not {pods}"
        );
        ensure!(
            (minimum..=BODY_LIMIT_BYTES).contains(&bytes),
            "a line's body has {minimum} to {BODY_LIMIT_BYTES} bytes, not {bytes}: set it with -s"
        );
        let has_rate = self.lines_per_s.is_none_or(|rate| rate > 0.0);
        ensure!(has_rate, "the rate must be above zero");
        let template = LineTemplate::new(bytes);
        let line = template.bytes.len();
        ensure!(
            line as u64 <= rotate,
            "a file must hold at least one line of {line} bytes before it is rotated, {rotate} are \
             too few"
        );
        Ok(template)
    }

    fn check_space(&self, folder: &Path) -> Result<()> {
        let disk = rustix::fs::statvfs(folder).with_context(|| folder.display().to_string())?;
        let free_bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
        let needed_bytes = self.file_limit_bytes().saturating_mul((self.pods * KEPT_FILES) as u64);
        ensure!(
            free_bytes >= needed_bytes,
            "the log files of {} pods need up to {} MiB in {}, where {} MiB are free: set TMPDIR \
             to another disk, or take fewer or smaller files",
            self.pods,
            needed_bytes >> 20,
            folder.display(),
            free_bytes >> 20
        );
        Ok(())
    }

    fn file_limit_bytes(&self) -> u64 {
        self.rotate_bytes.saturating_mul(OVERGROWN)
    }
}

/// Removed at the end of the bench, also when the bench is killed.
struct Tree {
    _reaper: Option<Reaper>,
    folder: TempDir,
}

/// A tree in which nothing is written yet.
pub struct OpenLogFiles {
    shape: LogFiles,
    template: LineTemplate,
    /// The writer shares it, so that it is not removed while a file is begun in it.
    tree: Arc<Tree>,
    pods: Vec<PodLog>,
}

impl OpenLogFiles {
    /// The folder that stands for /var/log/pods.
    pub fn root(&self) -> &Path {
        self.tree.folder.path()
    }

    /// Writes on a thread of its own until stopped. Without a rate, `backends` set the pace.
    pub fn start(self, backends: Vec<Arrivals>) -> RunningLoad {
        let (progress, tree) = (Progress::new(), Arc::clone(&self.tree));
        let writer = Writer::new(self, backends, Arc::clone(&progress));
        let task = spawn_blocking(move || writer.run());
        RunningLoad { progress, task, _offered: Box::new(tree) }
    }
}

#[cfg(test)]
mod tests;
