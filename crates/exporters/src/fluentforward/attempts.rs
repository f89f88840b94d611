//! Requests that were not acknowledged in full. The protocol has no refusal: a receiver that does
//! not take a message ends the connection, and its neighbours must not be sent again for that. A
//! message that is lost again and again, while others are acknowledged, is at fault.

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem::take;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_net::client::Progress;
use sluice_net::forward::message::Message;

/// A request that was lost this often is at fault. A receiver that is overloaded loses some, too.
pub(super) const LOSSES_MAX: u32 = 8;
/// Chunk ids that are kept: of more, those of the oldest requests are forgotten.
const KEPT_MAX: usize = 16 << 10;

#[derive(Default)]
pub(super) struct Attempts {
    known: Mutex<Known>,
    /// Chunks that were acknowledged, of all requests.
    acknowledged: AtomicU64,
}

/// Requests that wait to be sent again, by their first chunk.
#[derive(Default)]
struct Known {
    requests: HashMap<Vec<u8>, Lost>,
    /// The oldest first. Some may be gone.
    order: VecDeque<Vec<u8>>,
    /// Chunk ids in `requests`.
    kept: usize,
}

#[derive(Default)]
struct Lost {
    acknowledged: HashSet<Vec<u8>>,
    losses: u32,
    /// [`Attempts::acknowledged`] at the last loss.
    at: u64,
}

impl Known {
    fn remove(&mut self, request: &[u8]) -> Option<Lost> {
        let lost = self.requests.remove(request)?;
        self.kept -= 1 + lost.acknowledged.len();
        Some(lost)
    }

    fn insert(&mut self, request: Vec<u8>, lost: Lost) {
        self.kept += 1 + lost.acknowledged.len();
        self.order.push_back(request.clone());
        self.requests.insert(request, lost);
        while self.kept > KEPT_MAX || self.order.len() > KEPT_MAX {
            let Some(oldest) = self.order.pop_front() else { return };
            self.remove(&oldest);
        }
    }
}

/// An attempt at a request. What is known of it then is kept when this is dropped, also because it
/// took too long.
pub(super) struct Attempt<'a> {
    attempts: &'a Attempts,
    /// The request's first chunk. `None`: it asks for no acknowledgement.
    request: Option<Vec<u8>>,
    pub progress: Progress,
    /// Chunks that were acknowledged before.
    before: usize,
    losses: u32,
    at: u64,
    pub is_delivered: bool,
}

impl Attempts {
    /// `None`: the request was lost too often.
    pub(super) fn begin(&self, messages: &[Bytes]) -> Option<Attempt<'_>> {
        let first = messages.first().and_then(|message| Message::read(message).ok().flatten());
        let request = first.and_then(|message| message.chunk).map(<[u8]>::to_vec);
        let lost = request.as_ref().and_then(|request| self.known.lock().remove(request));
        let Lost { acknowledged, losses, at } = lost.unwrap_or_default();
        if losses >= LOSSES_MAX {
            return None;
        }
        let before = acknowledged.len();
        let progress = Progress { acknowledged: Mutex::new(acknowledged), ..Progress::default() };
        let is_delivered = false;
        Some(Attempt { attempts: self, request, progress, before, losses, at, is_delivered })
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let acknowledged = take(&mut *self.progress.acknowledged.lock());
        let new = acknowledged.len().saturating_sub(self.before) as u64;
        let now = self.attempts.acknowledged.fetch_add(new, Ordering::Relaxed) + new;
        let Some(request) = self.request.take().filter(|_| !self.is_delivered) else { return };
        let mut lost = Lost { acknowledged, losses: self.losses, at: self.at };
        let is_written = self.progress.is_written.load(Ordering::Relaxed);
        // If nothing else is acknowledged either, the receiver is at fault.
        if is_written && now > lost.at {
            (lost.losses, lost.at) = (lost.losses + 1, now);
        }
        self.attempts.known.lock().insert(request, lost);
    }
}

#[cfg(test)]
mod tests {
    use sluice_net::forward::message::write_packed;

    use super::*;

    fn message(chunk: &str) -> Bytes {
        let mut out = Vec::new();
        write_packed(&mut out, "t", &[], 0, Some(chunk), false);
        out.into()
    }

    /// One attempt. Returns whether there was one.
    fn attempt(attempts: &Attempts, chunk: &str, is_written: bool, acknowledged: &[&str]) -> bool {
        let Some(attempt) = attempts.begin(&[message(chunk)]) else { return false };
        attempt.progress.is_written.store(is_written, Ordering::Relaxed);
        let acknowledged = acknowledged.iter().map(|chunk| chunk.as_bytes().to_vec());
        attempt.progress.acknowledged.lock().extend(acknowledged);
        true
    }

    #[test]
    fn a_request_is_at_fault_if_it_is_lost_while_others_are_acknowledged() {
        let attempts = Attempts::default();
        for number in 0..100 {
            assert!(attempt(&attempts, "a", true, &[]), "nothing is acknowledged: {number}");
            assert!(attempt(&attempts, "b", false, &[]), "nothing is written: {number}");
        }
        for number in 0..LOSSES_MAX {
            assert!(attempt(&attempts, "other", false, &[&format!("o{number}")]));
            assert!(attempt(&attempts, "a", true, &[]), "{number}");
            assert!(attempt(&attempts, "b", false, &[]), "{number}");
        }
        assert!(!attempt(&attempts, "a", true, &[]) && attempt(&attempts, "b", true, &[]));
        assert!(attempt(&attempts, "a", true, &[]), "it begins anew");
    }

    #[test]
    fn the_requests_that_are_known_are_bounded() {
        let attempts = Attempts::default();
        for number in 0..2 * KEPT_MAX {
            attempt(&attempts, &number.to_string(), true, &["x"]);
        }
        let known = attempts.known.lock();
        assert!(known.kept <= KEPT_MAX && known.order.len() <= KEPT_MAX);
        assert_eq!(known.requests.len() * 2, known.kept);
    }
}
