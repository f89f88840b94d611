//! The thread that writes: it stamps copies of one line in a buffer, for the pods' files in turn.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::line::{LineTime, SECOND_NS, rotation_suffix};
use super::{KEPT_FILES, LogFiles, OpenLogFiles};
use crate::backend::Arrivals;
use crate::generate::report::{LATE_AFTER, LoadReport, Progress};
use crate::identity::{Identity, SEQUENCE_LIMIT};

/// Bytes that are written to a file at once.
const BATCH_BYTES: usize = 64 << 10;
/// Lines of a fixed rate are written this often.
const TICK: Duration = Duration::from_millis(10);
/// Interval of asking the backends for their arrivals, without a rate.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Most lines ahead of the backends, without a rate. More would keep no subject busier.
const LEAD_LINES: u64 = 100_000;
/// If nothing arrives for this long, the missing lines are given up.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct Writer {
    files: OpenLogFiles,
    /// Lines written so far, by pod.
    lines: Vec<u64>,
    next_pod: usize,
    /// Copies of the line.
    buffer: Vec<u8>,
    backends: Vec<Arrivals>,
    /// Lines that it may be ahead of the slowest backend, without a rate.
    lead: u64,
    arrived: u64,
    /// Lines that were given up.
    given_up: u64,
    last_arrival: Instant,
    began: Instant,
    progress: Arc<Progress>,
}

impl Writer {
    pub(super) fn new(
        files: OpenLogFiles,
        backends: Vec<Arrivals>,
        progress: Arc<Progress>,
    ) -> Writer {
        let line = &files.template.bytes;
        // Half of the lines in one file of each pod: no line is to be rotated away unread.
        let lead = files.shape.rotate_bytes * files.shape.pods as u64 / line.len() as u64 / 2;
        Writer {
            lines: vec![0; files.pods.len()],
            next_pod: 0,
            buffer: line.repeat((BATCH_BYTES / line.len()).max(1)),
            backends,
            lead: lead.clamp(1, LEAD_LINES),
            arrived: 0,
            given_up: 0,
            last_arrival: Instant::now(),
            began: Instant::now(),
            progress,
            files,
        }
    }

    pub(super) fn run(mut self) -> Result<LoadReport> {
        let mut written = 0;
        while self.progress.stopped_at().is_none() && written < SEQUENCE_LIMIT {
            let is_late = self.due(LATE_AFTER) > written;
            self.progress.report().late_requests += u64::from(is_late);
            let (lines, pause) = match self.files.shape.lines_per_s {
                Some(_) => (self.due(Duration::ZERO).saturating_sub(written), TICK),
                None => match self.allowed(written) {
                    0 => (0, LOOK_EVERY),
                    lines => (lines, Duration::ZERO),
                },
            };
            let until = (written + lines).min(SEQUENCE_LIMIT);
            while written < until && self.progress.stopped_at().is_none() {
                written += self.write_batch(until - written)?;
            }
            sleep(pause);
        }
        let mut report = self.progress.report().clone();
        let never_sent = self.due(LATE_AFTER).saturating_sub(written);
        report.leave_out(
            never_sent,
            format!("{never_sent} lines were due and never written"),
            "set a lower rate with -r: the bench's disk or core does not keep up",
        );
        Ok(report)
    }

    /// Lines of a fixed rate that were due at least this long ago.
    fn due(&self, ago: Duration) -> u64 {
        let elapsed_s = self.began.elapsed().saturating_sub(ago).as_secs_f64();
        (elapsed_s * self.files.shape.lines_per_s.unwrap_or(0.0)) as u64
    }

    /// Lines that may be written now, without a rate.
    fn allowed(&mut self, written: u64) -> u64 {
        let arrived = self.backends.iter().map(|arrived| arrived()).min().unwrap_or(0);
        if arrived > self.arrived {
            (self.arrived, self.last_arrival) = (arrived, Instant::now());
        }
        let missing = written.saturating_sub(arrived + self.given_up);
        if missing >= self.lead && self.last_arrival.elapsed() > PATIENCE {
            self.given_up += missing;
            self.last_arrival = Instant::now();
        }
        self.lead.saturating_sub(missing)
    }

    /// Writes at least one line for the next pod. Returns their number.
    fn write_batch(&mut self, wanted: u64) -> Result<u64> {
        let pods = self.files.pods.len() as u64;
        let pod = self.next_pod;
        self.next_pod = (pod + 1) % self.files.pods.len();
        let line_bytes = self.files.template.bytes.len();
        // A pod's lines have every pods-th number.
        let first = self.lines[pod] * pods + pod as u64;
        let limits = [
            wanted.div_ceil(pods),
            // Up to the end of a file, so that files are rotated at their size.
            self.files.pods[pod].room_bytes() / line_bytes as u64,
            (self.buffer.len() / line_bytes) as u64,
            (SEQUENCE_LIMIT - first).div_ceil(pods),
        ];
        let count = limits.into_iter().min().unwrap_or(1).max(1);
        let sequences = (first..).step_by(self.files.pods.len()).take(count as usize);
        let generator = self.progress.report().generator;
        let now_unix_ns = crate::unix_ns();
        let time = LineTime::of(now_unix_ns);
        for (line, number) in self.buffer.chunks_exact_mut(line_bytes).zip(sequences.clone()) {
            self.files.template.stamp(line, Identity::new(generator, number), &time);
        }
        let bytes = &self.buffer[..count as usize * line_bytes];
        self.progress.report().offered += count;
        self.files.pods[pod].write(bytes, now_unix_ns)?;
        let mut report = self.progress.report();
        report.bytes_sent += bytes.len() as u64;
        report.requests += 1;
        report.accepted += count;
        report.acknowledged.extend(sequences);
        self.lines[pod] += count;
        Ok(count)
    }
}

const CURRENT: &str = "0.log";
const NAMESPACE: &str = "log-load-test";
const CONTAINER: &str = "flog";

/// `<root>/<namespace>_<pod>_<uid>/<container>/0.log`.
pub(super) struct PodLog {
    shape: LogFiles,
    folder: PathBuf,
    file: File,
    written_bytes: u64,
    /// Oldest first.
    rotated: VecDeque<PathBuf>,
    next_check: Instant,
    /// Second of the last rotation, which is in the rotated file's name.
    last_rotation_s: u64,
}

impl PodLog {
    pub(super) fn create(root: &Path, pod: usize, shape: &LogFiles) -> Result<PodLog> {
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

    /// Bytes that can be appended before a rotation.
    pub(super) fn room_bytes(&self) -> u64 {
        self.shape.file_limit_bytes().saturating_sub(self.written_bytes)
    }

    /// Appends whole lines to one file.
    pub(super) fn write(&mut self, lines: &[u8], now_unix_ns: u64) -> Result<()> {
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

    /// Rotates as the kubelet does, which also compresses all rotated files but the newest.
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
