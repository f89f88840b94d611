//! The thread that writes: it stamps copies of one line in a buffer and hands the buffer to the
//! pods' files in turn.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::line::{LineTemplate, LineTime};
use super::pod::PodLog;
use super::{LoadError, LogFiles};
use crate::backend::Arrivals;
use crate::generate::report::{LoadReport, Problem};
use crate::generate::running::Progress;
use crate::identity::{Identity, SEQUENCE_LIMIT};

/// Handed to a file at once.
const BATCH_BYTES: usize = 64 << 10;
/// Lines of a fixed rate are written this often.
const TICK: Duration = Duration::from_millis(10);
/// Without a rate, how often the backends are asked how far they are.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// A line of a fixed rate is late when it is written this long after its time.
const LATE_AFTER: Duration = Duration::from_millis(50);
/// Without a rate, lines that have not arrived yet: more than this keep no tailing subject busier.
const LEAD_LINES: u64 = 100_000;
/// When nothing has arrived for this long, the missing lines are given up.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct Writer {
    pods: Vec<PodLog>,
    /// Written so far, by pod.
    lines: Vec<u64>,
    next_pod: usize,
    template: LineTemplate,
    /// Copies of the line.
    buffer: Vec<u8>,
    /// `None`: as `following` allows.
    lines_per_s: Option<f64>,
    following: Following,
    began: Instant,
    generator: u16,
    progress: Arc<Progress>,
}

impl Writer {
    pub(super) fn new(
        shape: &LogFiles,
        template: LineTemplate,
        pods: Vec<PodLog>,
        backends: Vec<Arrivals>,
        progress: &Arc<Progress>,
    ) -> Writer {
        let line_bytes = template.bytes().len();
        // Half of what a file a pod holds: no line is to be rotated away unread because the writer
        // hurried ahead.
        let lead = shape.rotate_bytes * shape.pods as u64 / line_bytes as u64 / 2;
        Writer {
            lines: vec![0; pods.len()],
            pods,
            next_pod: 0,
            buffer: template.bytes().repeat((BATCH_BYTES / line_bytes).max(1)),
            template,
            lines_per_s: shape.lines_per_s,
            following: Following {
                backends,
                lead: lead.clamp(1, LEAD_LINES),
                arrived: 0,
                given_up: 0,
                last_arrival: Instant::now(),
            },
            began: Instant::now(),
            generator: progress.report().generator,
            progress: Arc::clone(progress),
        }
    }

    /// Writes until it is stopped.
    pub(super) fn run(mut self) -> Result<LoadReport, LoadError> {
        let mut written = 0;
        while self.progress.stopped_at().is_none() && written < SEQUENCE_LIMIT {
            let is_late = self.due(LATE_AFTER) > written;
            self.progress.report().late_requests += u64::from(is_late);
            let (lines, pause) = match self.lines_per_s {
                Some(_) => (self.due(Duration::ZERO).saturating_sub(written), TICK),
                None => match self.following.allowed(written) {
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
        report.elapsed = self.began.elapsed();
        report.never_sent = self.due(LATE_AFTER).saturating_sub(written);
        report.offered += report.never_sent;
        if report.never_sent > 0 {
            report.problems.push(Problem {
                message: format!("{} lines were due and never written", report.never_sent),
                remedy: "set a lower rate with -r: the bench's disk or core does not keep up",
            });
        }
        Ok(report)
    }

    /// Lines of a fixed rate whose time was so long ago or longer.
    fn due(&self, ago: Duration) -> u64 {
        let elapsed_s = self.began.elapsed().saturating_sub(ago).as_secs_f64();
        (elapsed_s * self.lines_per_s.unwrap_or(0.0)) as u64
    }

    /// Some lines for the next pod, at least one. How many.
    fn write_batch(&mut self, wanted: u64) -> Result<u64, LoadError> {
        let pods = self.pods.len() as u64;
        let pod = self.next_pod;
        self.next_pod = (pod + 1) % self.pods.len();
        let line_bytes = self.template.bytes().len();
        // A pod's lines have every pods-th number.
        let first = self.lines[pod] * pods + pod as u64;
        let limits = [
            wanted.div_ceil(pods),
            // Up to the end of a file, so that files are rotated at their size.
            self.pods[pod].room_bytes() / line_bytes as u64,
            (self.buffer.len() / line_bytes) as u64,
            (SEQUENCE_LIMIT - first).div_ceil(pods),
        ];
        let count = limits.into_iter().min().unwrap_or(1).max(1);
        let sequences = (first..).step_by(self.pods.len()).take(count as usize);
        let now_unix_ns = crate::unix_ns();
        let time = LineTime::of(now_unix_ns);
        for (line, number) in self.buffer.chunks_exact_mut(line_bytes).zip(sequences.clone()) {
            self.template.stamp(line, Identity::new(self.generator, number), &time);
        }
        let bytes = &self.buffer[..count as usize * line_bytes];
        self.progress.report().offered += count;
        self.pods[pod].write(bytes, now_unix_ns)?;
        let mut report = self.progress.report();
        report.bytes_sent += bytes.len() as u64;
        report.requests += 1;
        report.accepted += count;
        report.acknowledged.extend(sequences);
        self.lines[pod] += count;
        Ok(count)
    }
}

/// Writes ahead of the slowest backend by a bounded number of lines.
struct Following {
    backends: Vec<Arrivals>,
    lead: u64,
    arrived: u64,
    /// Lines that were given up.
    given_up: u64,
    last_arrival: Instant,
}

impl Following {
    fn allowed(&mut self, written: u64) -> u64 {
        let arrived = self.backends.iter().map(Arrivals::unique_items).min().unwrap_or(0);
        if arrived > self.arrived {
            (self.arrived, self.last_arrival) = (arrived, Instant::now());
        }
        let missing = written.saturating_sub(arrived + self.given_up);
        if missing < self.lead {
            return self.lead - missing;
        }
        if self.last_arrival.elapsed() > PATIENCE {
            self.given_up += missing;
            self.last_arrival = Instant::now();
        }
        0
    }
}
