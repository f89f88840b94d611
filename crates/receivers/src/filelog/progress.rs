//! Ranges of files that are under way, and the checkpoint.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use sluice_flow::source::{Position, Positions};
use sluice_tail::{Checkpoint, FileId, Journal, Known, Tail};
use tokio::task::JoinHandle;

use super::metrics::Counters;
use crate::receiver::Streams;

/// Time between checkpoints, if something changed.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct Progress {
    /// Of files with something under way, and of those read since the last look.
    positions: HashMap<FileId, Positions>,
    checkpoint: Option<Arc<Checkpoint>>,
    /// Knows what the file has.
    journal: Journal,
    saving: Option<JoinHandle<io::Result<()>>>,
    next_look: Instant,
    is_failing: bool,
}

impl Progress {
    /// Takes over the streams of the receiver before: their names are the contents that they stand
    /// for, as read, and the beginnings of what is under way.
    pub(super) fn new(
        tail: &mut Tail,
        checkpoint: Option<Checkpoint>,
        streams: Streams,
    ) -> Progress {
        let mut under_way = HashMap::new();
        for (name, positions) in streams {
            let mut known = name.lines().map(Known::of_line);
            let (Some(Some(content)), Some(begun)) =
                (known.next(), known.collect::<Option<Vec<_>>>())
            else {
                continue;
            };
            let begun = begun.into_iter().map(|it| it.mark).collect();
            under_way.insert(tail.remember(content, begun), positions);
        }
        let checkpoint = checkpoint.map(Arc::new);
        let next_look = Instant::now();
        let (journal, saving, is_failing) = (Journal::default(), None, false);
        Progress { positions: under_way, checkpoint, journal, saving, next_look, is_failing }
    }

    /// Whether a range of the file was refused, so that it is read again.
    pub(super) fn is_interrupted(&self, id: FileId) -> bool {
        self.positions.get(&id).is_some_and(Positions::is_interrupted)
    }

    /// Whether the file has to be read again from an earlier offset: the place is set.
    pub(super) fn resume(&mut self, tail: &mut Tail, id: FileId) {
        if let Some(positions) = self.positions.get(&id).filter(|it| it.is_interrupted()) {
            tail.rewind(id, positions.rewind());
        }
    }

    /// The position of a range that is about to be submitted.
    pub(super) fn begin(&mut self, id: FileId, range: Range<u64>) -> Position {
        let start = range.start;
        self.positions.entry(id).or_insert_with(|| Positions::starting_at(start)).begin(range)
    }

    pub(super) fn next_look(&self) -> Option<Instant> {
        let is_idle = self.positions.is_empty() && self.saving.is_none();
        (!is_idle).then_some(self.next_look)
    }

    /// Tells the tail what is resolved, and writes a checkpoint if something changed.
    pub(super) fn look(&mut self, tail: &mut Tail, counters: &Counters, now: Instant) {
        if now < self.next_look {
            return;
        }
        self.next_look = now + CHECKPOINT_INTERVAL;
        self.settle(tail, now);
        if self.saving.as_ref().is_none_or(JoinHandle::is_finished) {
            self.save(tail, counters);
        }
    }

    fn settle(&mut self, tail: &mut Tail, now: Instant) {
        self.positions.retain(|id, positions| {
            if positions.is_interrupted() {
                if tail.is_missing(*id) {
                    // It cannot be read again, unless it comes back.
                    let (end, offset) = (positions.end(), positions.rewind());
                    tail.rewind(*id, offset);
                    tail.lose(*id, end.saturating_sub(offset));
                } else {
                    tail.again(*id, now, Duration::ZERO);
                    tail.resolved(*id, positions.lowest_unresolved());
                    return true;
                }
            }
            tail.resolved(*id, positions.lowest_unresolved());
            !tail.is_settled(*id)
        });
    }

    /// Writes the checkpoint on a thread that may wait for the disk. The one before has ended.
    fn save(&mut self, tail: &Tail, counters: &Counters) {
        let Some(checkpoint) = self.checkpoint.clone() else { return };
        if let Some(before) = self.saving.take().and_then(|before| before.now_or_never()) {
            self.note(before.unwrap_or_else(|error| Err(io::Error::other(error))), counters);
        }
        if let Some(next) = self.journal.next(tail) {
            let write = move || checkpoint.write(&next);
            self.saving = Some(tokio::task::spawn_blocking(write));
        }
    }

    fn note(&mut self, result: io::Result<()>, counters: &Counters) {
        let Err(error) = result else {
            self.is_failing = false;
            return;
        };
        Counters::add(&counters.failed_checkpoints, 1);
        // It is written again at the next look.
        self.journal.failed();
        if let Some(checkpoint) = self.checkpoint.as_ref().filter(|_| !self.is_failing) {
            tracing::error!(path = %checkpoint.path().display(), %error,
                "cannot write the checkpoint: after a crash lines would arrive again");
        }
        self.is_failing = true;
    }

    /// The last checkpoint, and what a receiver that takes this one's place goes on with.
    pub(super) async fn end(mut self, tail: &mut Tail, counters: &Counters) -> Streams {
        self.settle(tail, Instant::now());
        if let Some(saving) = self.saving.take() {
            let result = saving.await.unwrap_or_else(|error| Err(io::Error::other(error)));
            self.note(result, counters);
        }
        if let Some(checkpoint) = self.checkpoint.clone()
            && let Some(next) = self.journal.next(tail)
        {
            self.note(checkpoint.write(&next), counters);
        }
        let mut streams = Streams::default();
        for (id, content, begun) in tail.contents() {
            let offset = content.mark.offset;
            let positions = self.positions.remove(&id);
            let positions = positions.unwrap_or_else(|| Positions::starting_at(offset));
            let lines = std::iter::once(content.clone())
                .chain(begun.into_iter().map(|mark| Known { mark, ..content.clone() }));
            let lines: Vec<String> = lines.map(|it| it.to_line()).collect();
            streams.insert(lines.join("\n"), positions);
        }
        streams
    }
}
