//! Readers that the disk refuses to read for: when each is tried again, and the bad blocks that it
//! passes.
//!
//! A drive may take a second or more for each bad block. One turn ends with the first refusal that
//! is slow, and the pause behind it is for the other readers: bad blocks take a bounded part of the
//! thread's time, however many there are and for however many readers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::tasks::Task;
use crate::disk::BadBlocks;
use crate::types::{CursorId, Offset};

/// A reader waits this long before it tries a refused read again: at first, and at most.
const RETRY: Duration = Duration::from_millis(200);
const RETRY_LIMIT: Duration = Duration::from_secs(5);
/// A turn ends when refusals have taken this long in it.
const TURN_LIMIT: Duration = Duration::from_millis(100);
/// Readers without refusals have the thread for this many times as long as the refusals took.
const PAUSE_FACTOR: u32 = 4;

pub(super) struct Refusals {
    /// The log goes on without blocks that the disk has refused for this long.
    patience: Duration,
    waiting: HashMap<CursorId, RefusedRead>,
    passing: HashMap<CursorId, Passing>,
    /// No reader that waits because of a refusal has a turn before.
    paused_until: Instant,
}

struct RefusedRead {
    since: Instant,
    again_at: Instant,
}

/// The bad blocks that a reader passes in a segment.
struct Passing {
    generation: u64,
    /// The reader was here. If it goes back, the disk is asked for all blocks again.
    at: Offset,
    bad: Arc<BadBlocks>,
}

impl Refusals {
    pub(super) fn new(patience: Duration) -> Self {
        let (waiting, passing) = Default::default();
        Refusals { patience, waiting, passing, paused_until: Instant::now() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn retain(&mut self, exists: impl Fn(CursorId) -> bool) {
        self.waiting.retain(|id, _| exists(*id));
        self.passing.retain(|id, _| exists(*id));
    }

    pub(super) fn has_to_wait(&self, id: CursorId, now: Instant) -> bool {
        self.waiting.get(&id).is_some_and(|refused| refused.again_at.max(self.paused_until) > now)
    }

    /// When the next reader is tried again.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let first = self.waiting.values().map(|refused| refused.again_at).min();
        first.map(|again_at| again_at.max(self.paused_until))
    }

    /// The disk has refused reads of a reader for longer than the log is patient.
    pub(super) fn is_lasting(&self, id: CursorId) -> bool {
        self.waiting.get(&id).is_some_and(|refused| refused.since.elapsed() >= self.patience)
    }

    /// The reader is refused nothing now.
    pub(super) fn end(&mut self, id: CursorId) {
        self.waiting.remove(&id);
    }

    /// The reader goes on elsewhere.
    pub(super) fn try_at_once(&mut self, id: CursorId) {
        let now = Instant::now();
        self.waiting.entry(id).and_modify(|refused| refused.again_at = now);
    }

    /// The bad blocks of a task's segment. Others may become so if `may_pass`.
    pub(super) fn begin_turn(&mut self, task: &Task, may_pass: bool) -> Arc<BadBlocks> {
        let generation = task.segment.generation;
        let is_same = |it: &&Passing| it.generation == generation && it.at <= task.from;
        let known = self.passing.get(&task.id).filter(is_same).map(|it| it.bad.clone());
        let bad = known.unwrap_or_else(|| BadBlocks::new(may_pass));
        bad.begin_turn(may_pass, TURN_LIMIT);
        let passing = Passing { generation, at: task.from, bad: bad.clone() };
        self.passing.insert(task.id, passing);
        bad
    }

    /// Makes a reader wait after a turn in which its read was refused: as long as it has waited so
    /// far, within bounds. If only the turn was over it waits no longer than all do.
    pub(super) fn refuse(&mut self, id: CursorId, bad: &BadBlocks) {
        let now = Instant::now();
        self.paused_until = self.paused_until.max(now + bad.refused_for() * PAUSE_FACTOR);
        let refused = self.waiting.entry(id).or_insert(RefusedRead { since: now, again_at: now });
        if bad.turn_is_over() {
            return;
        }
        refused.again_at = now + (now - refused.since).clamp(RETRY, RETRY_LIMIT);
        if bad.may_pass() {
            // The whole disk may be away: no block counts as bad.
            self.passing.remove(&id);
        }
    }
}
