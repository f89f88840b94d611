//! Writes dead letters beside the delivery's task. A part of a frame is resolved only when its
//! letter is kept: on disk that takes time, and another thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Delivery;
use super::dead_letters::{DeadLetter, dead_letter};
use super::messages;
use super::prepare::{Content, Leased, Unsendable};

/// Pause before the next write after the disk refused one.
const RETRY: Duration = Duration::from_secs(1);

/// Writes of all deliveries at a time: each needs a buffer. One that hangs must not delay the rest.
static WRITES: Semaphore = Semaphore::const_new(4);

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

    fn letter(&self) -> DeadLetter {
        let Unwritten { leased, prepared, content, items, reason } = self;
        dead_letter(&leased.entry, prepared, content.payload(), *items, reason.clone())
    }
}

/// At most one write at a time; letters that come meanwhile go with the next.
pub(super) struct DeadLetterWriter {
    delivery: Arc<Delivery>,
    waiting: VecDeque<Unwritten>,
    storing: Option<JoinHandle<Vec<Arc<Leased>>>>,
    /// The task ends: no further tries.
    ends: CancellationToken,
}

impl DeadLetterWriter {
    pub(super) fn new(delivery: Arc<Delivery>) -> Self {
        DeadLetterWriter {
            delivery,
            waiting: VecDeque::new(),
            storing: None,
            ends: CancellationToken::new(),
        }
    }

    /// Stores the letter of a part. Returns the part if it is resolved now, as it is in memory.
    pub(super) fn store(&mut self, unwritten: Unwritten) -> Option<Arc<Leased>> {
        let letter = unwritten.letter();
        messages::log_dead(&self.delivery, &letter);
        if !self.delivery.dead_letters.is_on_disk() {
            // Memory refuses nothing.
            let _ = self.delivery.dead_letters.store(&[letter]);
            return Some(unwritten.leased);
        }
        self.waiting.push_back(unwritten);
        self.write_next();
        None
    }

    pub(super) fn is_storing(&self) -> bool {
        self.storing.is_some()
    }

    /// Waits for the write under way, and begins the next. To be called while one is under way.
    pub(super) async fn stored(&mut self) -> Vec<Arc<Leased>> {
        let Some(storing) = &mut self.storing else { return Vec::new() };
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
        let (mut letters, mut parts, mut bytes) = (Vec::new(), Vec::new(), 0);
        while bytes < WRITE_BYTES
            && let Some(unwritten) = self.waiting.pop_front()
        {
            let letter = unwritten.letter();
            bytes += letter.payload.len() + letter.metadata.len();
            letters.push(letter);
            parts.push(unwritten.leased);
        }
        let (delivery, ends) = (self.delivery.clone(), self.ends.clone());
        self.storing = Some(tokio::spawn(async move {
            if store(delivery, ends, letters.into()).await { parts } else { Vec::new() }
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
        let turn = WRITES.acquire().await;
        let result = tokio::task::spawn_blocking(move || writer.dead_letters.store(&written)).await;
        drop(turn);
        let problem = match result {
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
