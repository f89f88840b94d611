//! Ranges of files that are under way, and the checkpoint.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use sluice_flow::hop::Fetched;
use sluice_flow::source::{Position, Positions};
use sluice_tail::{Checkpoint, FileId, Journal, Known, Name, Sent, Shown, Tail};
use tokio::task::JoinHandle;

use super::counters::Counters;
use crate::receiver::Streams;

/// Time between checkpoints, if something changed.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);
/// Files for which memory is kept while nothing is under way.
const KEPT_POSITIONS: usize = 64;
/// Files of which something is under way before resolved ranges are looked for.
const SETTLED_POSITIONS: usize = 256;
/// Begins the lines of a stream's name that are ranges which were sent.
const SENT: &str = "sent ";

pub(super) struct Progress {
    /// Of files with something under way, and of those read since the last look.
    positions: HashMap<FileId, Positions>,
    checkpoint: Option<Arc<Checkpoint>>,
    /// Knows what the file has.
    journal: Journal,
    saving: Option<JoinHandle<io::Result<()>>>,
    /// It is not tried for the first time.
    was_saved: bool,
    next_look: Instant,
    /// Resolved ranges are looked for before that with so many files.
    settles_at: usize,
    is_failing: bool,
}

impl Progress {
    /// Takes over the streams of the receiver before: their names are their order, the contents
    /// that they stand for, as read, and the beginnings of what is under way.
    pub(super) fn new(
        tail: &mut Tail,
        checkpoint: Option<Checkpoint>,
        streams: Streams,
        now: Instant,
    ) -> Progress {
        let mut under_way = HashMap::new();
        let Streams { positions, mut files } = streams;
        let order = |name: &str| name.lines().next()?.parse::<usize>().ok();
        let mut streams: Vec<_> = positions.into_iter().collect();
        streams.sort_unstable_by_key(|(name, _)| order(name));
        for (name, positions) in streams {
            let mut lines = name.lines().skip(1);
            let Some(mut content) = lines.next().and_then(Known::of_line) else { continue };
            let (mut begun, mut is_whole) = (Vec::new(), true);
            for line in lines {
                match line.strip_prefix(SENT).map(Sent::of_words) {
                    Some(sent) => content.sent.extend(sent),
                    None => match Known::of_line(line) {
                        Some(known) => begun.push(known.mark),
                        None => is_whole = false,
                    },
                }
            }
            if is_whole {
                // One without is not identified: nothing was read of it.
                let has_head = content.head.len > 0;
                let id = tail.remember(content, begun);
                if let Some(open) = files.remove(&name) {
                    tail.follow(id, open, now);
                }
                if has_head {
                    under_way.insert(id, positions);
                }
            }
        }
        let checkpoint = checkpoint.map(Arc::new);
        let (journal, next_look) = (Journal::default(), Instant::now());
        let (positions, saving, was_saved, is_failing) = (under_way, None, false, false);
        let settles_at = SETTLED_POSITIONS;
        Progress {
            positions,
            checkpoint,
            journal,
            saving,
            was_saved,
            next_look,
            settles_at,
            is_failing,
        }
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

    /// Whether ranges can have names that are known after a kill.
    pub(super) fn names(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// The name of the range that was read last for another Sluice: the one that it had before, if
    /// it was sent, and `made`, a number or sum of its items, is the same. A new one is noted.
    pub(super) fn name(
        &mut self,
        tail: &mut Tail,
        id: FileId,
        range: &Range<u64>,
        made: u32,
        counters: &Counters,
    ) -> Option<Fetched> {
        let checkpoint = self.checkpoint.clone()?;
        let (sent, is_new) = tail.name(id, range, made)?;
        if is_new {
            if !checkpoint.can_append() {
                return None;
            }
            let text = self.journal.sent(tail, id, &sent)?;
            if let Err(error) = checkpoint.append(&text) {
                self.note(Err(error), counters);
                return None;
            }
        }
        let Name { run, number } = sent.name;
        Some(Fetched { run, number })
    }

    pub(super) fn next_look(&self) -> Option<Instant> {
        let is_idle = self.positions.is_empty() && self.saving.is_none();
        (!is_idle).then_some(self.next_look)
    }

    /// Tells the tail what is resolved, and writes a checkpoint if something changed.
    pub(super) fn look(&mut self, tail: &mut Tail, counters: &Counters, now: Instant) {
        if now < self.next_look {
            if self.positions.len() >= self.settles_at {
                self.settle(tail, now);
            }
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
        self.settles_at = SETTLED_POSITIONS.max(2 * self.positions.len());
        // At the start all files are under way.
        if self.positions.capacity() > KEPT_POSITIONS.max(8 * self.positions.len()) {
            self.positions.shrink_to(2 * self.positions.len());
        }
    }

    /// Writes the checkpoint on a thread that may wait for the disk. The one before has ended.
    fn save(&mut self, tail: &Tail, counters: &Counters) {
        let Some(checkpoint) = self.checkpoint.clone() else { return };
        if let Some(before) = self.saving.take().and_then(|before| before.now_or_never()) {
            self.note(before.unwrap_or_else(|error| Err(io::Error::other(error))), counters);
        }
        let Some(next) = self.journal.next(tail) else { return };
        if let Err(error) = checkpoint.begin(&next) {
            self.note(Err(error), counters);
        } else if std::mem::replace(&mut self.was_saved, true) {
            self.saving = Some(tokio::task::spawn_blocking(move || checkpoint.finish(&next)));
        } else {
            // The first lines already have names.
            self.note(checkpoint.finish(&next), counters);
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
            tracing::error!(path = %Shown(checkpoint.path()), %error,
                "cannot write the checkpoint: after a crash lines would arrive again");
        }
        self.is_failing = true;
    }

    /// The last checkpoint, and what a receiver that takes this one's place goes on with.
    pub(super) async fn end(
        mut self,
        tail: &mut Tail,
        counters: &Counters,
        now: Instant,
    ) -> Streams {
        self.settle(tail, now);
        if let Some(saving) = self.saving.take() {
            let result = saving.await.unwrap_or_else(|error| Err(io::Error::other(error)));
            self.note(result, counters);
        }
        if let Some(checkpoint) = self.checkpoint.clone()
            && let Some(next) = self.journal.next(tail)
        {
            let written = checkpoint.begin(&next).and_then(|()| checkpoint.finish(&next));
            self.note(written, counters);
        }
        let mut streams = Streams::default();
        let contents: Vec<_> = tail.contents().collect();
        let mut left: HashMap<FileId, File> = tail.take_left().into_iter().collect();
        for (order, (id, mut content, begun)) in contents.into_iter().enumerate() {
            let offset = content.mark.offset;
            let positions = self.positions.remove(&id);
            let positions = positions.unwrap_or_else(|| Positions::starting_at(offset));
            let sent = std::mem::take(&mut content.sent);
            let lines = std::iter::once(content.clone())
                .chain(begun.into_iter().map(|mark| Known { mark, ..content.clone() }));
            let sent = sent.iter().map(|it| format!("{SENT}{}", it.to_words()));
            let lines = lines.map(|it| it.to_line()).chain(sent);
            let lines: Vec<String> = std::iter::once(order.to_string()).chain(lines).collect();
            let name = lines.join("\n");
            streams.files.extend(left.remove(&id).map(|open| (name.clone(), open)));
            streams.positions.insert(name, positions);
        }
        streams
    }
}
