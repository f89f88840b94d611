//! The thread that writes: it stamps copies of one line in a buffer and hands the buffer to the pods' files in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::line::{LineTemplate, LineTime};
use super::pod::PodLog;
use super::{LogFiles, LogFilesError};
use crate::backend::Arrivals;
use crate::generate::report::{LoadReport, Problem, Progress};
use crate::identity::{Identity, SequenceSet, next_generator};

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
    batch: Batch,
    pace: Pacer,
    generator: u16,
    acknowledged: SequenceSet,
    progress: Arc<Progress>,
    stop: Arc<AtomicBool>,
}

impl Writer {
    pub(super) fn new(
        shape: &LogFiles,
        template: LineTemplate,
        pods: Vec<PodLog>,
        backends: Vec<Arrivals>,
        progress: &Arc<Progress>,
        stop: &Arc<AtomicBool>,
    ) -> Writer {
        // Half of what a file a pod holds: no line is to be rotated away unread because the writer hurried ahead.
        let kept_lines = shape.rotate_bytes * shape.pods as u64 / template.bytes().len() as u64 / 2;
        let pace = match shape.lines_per_s {
            Some(lines_per_s) => Pacer::Fixed { lines_per_s, began: Instant::now() },
            None => Pacer::Following(Following::new(backends, kept_lines.clamp(1, LEAD_LINES))),
        };
        Writer {
            lines: vec![0; pods.len()],
            pods,
            next_pod: 0,
            batch: Batch::new(template),
            pace,
            generator: next_generator(),
            acknowledged: SequenceSet::default(),
            progress: Arc::clone(progress),
            stop: Arc::clone(stop),
        }
    }

    /// Writes until it is stopped.
    pub(super) fn run(mut self) -> Result<LoadReport, LogFilesError> {
        let began = Instant::now();
        let mut written = 0;
        while !self.stop.load(Ordering::Relaxed) && written < SequenceSet::LIMIT {
            let turn = self.pace.turn(written);
            self.progress.late_requests.fetch_add(u64::from(turn.is_late), Ordering::Relaxed);
            let until = (written + turn.lines).min(SequenceSet::LIMIT);
            while written < until && !self.stop.load(Ordering::Relaxed) {
                written += self.write_batch(until - written)?;
            }
            sleep(turn.pause);
        }
        let mut report = LoadReport::of(self.generator, &self.progress, self.acknowledged, began.elapsed());
        report.never_sent = self.pace.overdue().saturating_sub(written);
        report.offered += report.never_sent;
        if report.never_sent > 0 {
            report.problems.push(Problem {
                message: format!("{} lines were due and never written", report.never_sent),
                remedy: "set a lower rate with -r: the bench's disk or core does not keep up",
            });
        }
        Ok(report)
    }

    /// Some lines for the next pod, at least one. How many.
    fn write_batch(&mut self, wanted: u64) -> Result<u64, LogFilesError> {
        let pods = self.pods.len() as u64;
        let pod = self.next_pod;
        self.next_pod = (pod + 1) % self.pods.len();
        let line_bytes = self.batch.template.bytes().len() as u64;
        // Up to the end of a file, so that files are rotated at their size.
        let room = (self.pods[pod].room_bytes() / line_bytes).max(1);
        let share = wanted.div_ceil(pods);
        // A pod's lines have every pods-th number.
        let first = self.lines[pod] * pods + pod as u64;
        let count = share.min(room).min(self.batch.limit()).min((SequenceSet::LIMIT - first).div_ceil(pods)).max(1);
        let now_unix_ns = crate::unix_ns();
        let sequences = (first..).step_by(self.pods.len()).take(count as usize);
        let bytes = self.batch.fill(sequences.clone().map(|number| Identity::new(self.generator, number)), now_unix_ns);
        self.progress.offered.fetch_add(count, Ordering::Relaxed);
        self.pods[pod].write(bytes, now_unix_ns)?;
        self.progress.bytes_sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.progress.requests.fetch_add(1, Ordering::Relaxed);
        self.progress.accepted.fetch_add(count, Ordering::Relaxed);
        sequences.for_each(|number| {
            self.acknowledged.insert(number);
        });
        self.lines[pod] += count;
        Ok(count)
    }
}

/// Lines that are written at once.
struct Batch {
    template: LineTemplate,
    /// Copies of the line.
    buffer: Vec<u8>,
}

impl Batch {
    fn new(template: LineTemplate) -> Batch {
        let count = (BATCH_BYTES / template.bytes().len()).max(1);
        Batch { buffer: template.bytes().repeat(count), template }
    }

    fn limit(&self) -> u64 {
        (self.buffer.len() / self.template.bytes().len()) as u64
    }

    /// Lines of these identities, at most [`Batch::limit`], at least one.
    fn fill(&mut self, identities: impl Iterator<Item = Identity>, now_unix_ns: u64) -> &[u8] {
        let time = LineTime::of(now_unix_ns);
        let mut len = 0;
        for (line, identity) in self.buffer.chunks_exact_mut(self.template.bytes().len()).zip(identities) {
            self.template.stamp(line, identity, &time);
            len += line.len();
        }
        &self.buffer[..len]
    }
}

/// The lines to write now, and the pause afterwards.
struct Turn {
    lines: u64,
    is_late: bool,
    pause: Duration,
}

enum Pacer {
    Fixed { lines_per_s: f64, began: Instant },
    Following(Following),
}

impl Pacer {
    fn turn(&mut self, written: u64) -> Turn {
        match self {
            Pacer::Fixed { lines_per_s, began } => {
                let lines = due(*lines_per_s, began.elapsed()).saturating_sub(written);
                let behind_s = began.elapsed().as_secs_f64() - written as f64 / *lines_per_s;
                Turn { lines, is_late: lines > 0 && behind_s > LATE_AFTER.as_secs_f64(), pause: TICK }
            }
            Pacer::Following(following) => {
                let lines = following.allowed(written);
                Turn { lines, is_late: false, pause: if lines > 0 { Duration::ZERO } else { LOOK_EVERY } }
            }
        }
    }

    /// Lines that would be late by now.
    fn overdue(&self) -> u64 {
        match self {
            Pacer::Fixed { lines_per_s, began } => due(*lines_per_s, began.elapsed().saturating_sub(LATE_AFTER)),
            Pacer::Following(_) => 0,
        }
    }
}

fn due(lines_per_s: f64, elapsed: Duration) -> u64 {
    (elapsed.as_secs_f64() * lines_per_s) as u64
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
    fn new(backends: Vec<Arrivals>, lead: u64) -> Following {
        Following { backends, lead, arrived: 0, given_up: 0, last_arrival: Instant::now() }
    }

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
