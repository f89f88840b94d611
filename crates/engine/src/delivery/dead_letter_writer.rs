//! Writes dead letters beside the delivery's task. A part of a frame is resolved only when its
//! letter is kept: on disk that takes time, and another thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_flow::{Exporter, Payload};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

use super::Delivery;
use super::account::Death;
use super::content::Content;
use super::dead_letters::{DeadLetter, dead_letter};
use super::leased::Leased;
use super::messages;
use super::prepare::Unsendable;
use crate::entry::Entry;
use crate::large_work::LargeWork;
use crate::private_memory::ChargedCopy;

/// Pause before the next write after the disk refused one.
const RETRY: Duration = Duration::from_secs(1);

/// Writes of all deliveries at a time: each needs a buffer. One that hangs must not delay the rest.
static WRITES: Semaphore = Semaphore::const_new(4);

/// Longest pause before letters of earlier runs that the disk refused are opened again.
const REOPEN_MAX: Duration = Duration::from_secs(60);

/// Letters are written together up to this size.
const WRITE_BYTES: usize = 1 << 20;

/// A part of a frame that becomes a dead letter. Its bytes are copied only once it is written.
pub(super) struct Unwritten {
    pub leased: Arc<Leased>,
    pub prepared: Vec<u64>,
    pub content: Content,
    pub items: u32,
    pub reason: String,
}

impl Unwritten {
    pub(super) fn of(leased: Arc<Leased>, part: Unsendable) -> Unwritten {
        let prepared = leased.entry.origin.prepared.clone();
        let Unsendable { payload, items, reason } = part;
        Unwritten { leased, prepared, content: Content::Whole(payload), items, reason }
    }
}

/// At most one write at a time; letters that come meanwhile go with the next.
pub(super) struct DeadLetterWriter {
    delivery: Arc<Delivery>,
    exporter: Arc<dyn Exporter>,
    waiting: VecDeque<Unwritten>,
    storing: Option<JoinHandle<Vec<Arc<Leased>>>>,
    /// Opens letters of earlier runs that the disk refused at the start.
    reopening: Option<JoinHandle<()>>,
    /// The task ends: no further tries.
    ends: CancellationToken,
    large_work: Arc<LargeWork>,
    /// Was made again for a letter: the next ones are mostly of the same frame.
    made: Option<Arc<ChargedCopy>>,
}

impl DeadLetterWriter {
    pub(super) fn new(
        delivery: Arc<Delivery>,
        exporter: Arc<dyn Exporter>,
        large_work: Arc<LargeWork>,
    ) -> Self {
        let ends = CancellationToken::new();
        let is_refused = delivery.dead_letters.is_refused();
        let reopening = is_refused.then(|| tokio::spawn(reopen(delivery.clone(), ends.clone())));
        let (waiting, storing, made) = Default::default();
        DeadLetterWriter { delivery, exporter, waiting, storing, reopening, ends, large_work, made }
    }

    /// Lets go of what was made for letters.
    pub(super) fn let_go(&mut self) {
        self.made = None;
    }

    fn letter(&mut self, unwritten: &Unwritten) -> (DeadLetter, Death) {
        let Unwritten { leased, prepared, content, items, reason } = unwritten;
        let Entry { frame, origin, .. } = &*leased.entry;
        let mut content = content.clone();
        let restored = match content.is_let_go() {
            true => {
                let (bytes, items) = (frame.payload.uncompressed_len_bytes, frame.items as usize);
                self.large_work.on(bytes, items, || content.restore())
            }
            false => Ok(None),
        };
        let payload = restored.and_then(|made| {
            self.made = made.or(self.made.take());
            content.payload()
        });
        let death = |payload: &Payload| {
            let names = self.exporter.item_names();
            Death::new(names, leased.clone(), payload, u64::from(*items))
        };
        match payload {
            Ok(payload) => {
                let death = death(&payload);
                let reason = reason.clone();
                (dead_letter(&leased.entry, prepared, payload, *items, reason), death)
            }
            Err(error) => {
                // Rather all of the frame than nothing.
                let (payload, reason) = (frame.payload.clone(), format!("{reason}; {error}"));
                let death = death(&payload);
                let prepared = &origin.prepared;
                (dead_letter(&leased.entry, prepared, payload, frame.items, reason), death)
            }
        }
    }

    /// Stores the letter of a part. Returns the part if it is resolved now, as it is in memory.
    pub(super) fn store(&mut self, unwritten: Unwritten) -> Option<Arc<Leased>> {
        let (letter, death) = self.letter(&unwritten);
        messages::log_dead(&self.delivery, &letter);
        if !self.delivery.dead_letters.is_on_disk() {
            // Memory refuses nothing.
            let _ = self.delivery.dead_letters.store(&[letter]);
            death.count(&self.delivery.account);
            return Some(unwritten.leased);
        }
        self.waiting.push_back(unwritten);
        self.write_next();
        None
    }

    /// At the end also while the store may be being opened: a successor opens it then.
    pub(super) fn is_storing(&self) -> bool {
        self.storing.is_some() || self.ends.is_cancelled() && self.reopening.is_some()
    }

    /// Waits for the write under way, and begins the next. To be called while one is under way.
    pub(super) async fn stored(&mut self) -> Vec<Arc<Leased>> {
        let Some(storing) = &mut self.storing else {
            if let Some(reopening) = &mut self.reopening {
                // After a panic nothing is being opened either.
                let _ = reopening.await;
                self.reopening = None;
            }
            return Vec::new();
        };
        let stored = storing.await;
        self.storing = None;
        self.write_next();
        // After an unexpected failure its frames stay leased: the next start reads them again.
        stored.unwrap_or_default()
    }

    /// Letters that are not stored by then stay in the log: their frames are not resolved.
    pub(super) fn end(&mut self) {
        self.ends.cancel();
        self.waiting.clear();
        *self.delivery.stats.dead_letter_trouble.lock() = None;
    }

    fn write_next(&mut self) {
        if self.storing.is_some() || self.waiting.is_empty() {
            return;
        }
        let (mut letters, mut deaths, mut bytes) = (Vec::new(), Vec::new(), 0);
        while bytes < WRITE_BYTES
            && let Some(unwritten) = self.waiting.pop_front()
        {
            let (letter, death) = self.letter(&unwritten);
            bytes += letter.payload.len() + letter.metadata.len();
            letters.push(letter);
            deaths.push(death);
        }
        let (delivery, ends) = (self.delivery.clone(), self.ends.clone());
        self.storing = Some(tokio::spawn(async move {
            if !store(delivery.clone(), ends, letters.into()).await {
                return Vec::new();
            }
            deaths.iter().for_each(|death| death.count(&delivery.account));
            deaths.into_iter().map(Death::leased).collect()
        }));
    }
}

impl Drop for DeadLetterWriter {
    fn drop(&mut self) {
        self.end();
    }
}

/// True when the letters are stored; false if the end comes before the disk takes them.
async fn store(
    delivery: Arc<Delivery>,
    ends: CancellationToken,
    letters: Arc<[DeadLetter]>,
) -> bool {
    loop {
        let (writer, written) = (delivery.clone(), letters.clone());
        let write = move |ready| writer.dead_letters.store_in_turn(&written, ready);
        let problem = match in_turn(&WRITES, write).await {
            Ok(Ok(())) => {
                *delivery.stats.dead_letter_trouble.lock() = None;
                return true;
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::error!(
            pipeline = %delivery.id.pipeline, exporter = %delivery.id.exporter, problem,
            "dead letters cannot be written to disk; their data stays in the log until they can"
        );
        *delivery.stats.dead_letter_trouble.lock() = Some(problem);
        if ends.run_until_cancelled(tokio::time::sleep(RETRY)).await.is_none() {
            *delivery.stats.dead_letter_trouble.lock() = None;
            return false;
        }
    }
}

/// Opens letters of earlier runs that the disk refuses, as soon as it does not.
async fn reopen(delivery: Arc<Delivery>, ends: CancellationToken) {
    let mut pause = RETRY;
    while delivery.dead_letters.is_refused()
        && ends.run_until_cancelled(tokio::time::sleep(pause)).await.is_some()
    {
        pause = (pause * 2).min(REOPEN_MAX);
        let opener = delivery.clone();
        // After a panic it is tried again, too.
        let _ = tokio::task::spawn_blocking(move || opener.dead_letters.open_found()).await;
    }
}

/// Waits for a turn, then acts on a thread that may wait for the disk. The act is told since when
/// it was ready.
async fn in_turn<A: Send + 'static>(
    turns: &Semaphore,
    act: impl FnOnce(Instant) -> A + Send + 'static,
) -> Result<A, JoinError> {
    let ready = Instant::now();
    let turn = turns.acquire().await;
    let result = tokio::task::spawn_blocking(move || act(ready)).await;
    drop(turn);
    result
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;

    /// Guarantee: time in the queue does not count as a time in which the disk may have worked.
    #[tokio::test]
    async fn a_write_knows_since_when_it_was_ready() {
        let turns = Semaphore::new(0);
        let mut write = std::pin::pin!(in_turn(&turns, |ready| ready));
        assert!(poll!(&mut write).is_pending());
        let queued = Instant::now();
        turns.add_permits(1);
        assert!(write.await.unwrap() <= queued);
    }
}
