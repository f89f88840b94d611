//! The requests of one connection in its record: how many are in flight, and how many are only
//! partly read.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::entry::{ConnectionEntry, PROGRESS_LEAST_BYTES};

/// No answer is held longer: a peer may be slow with one body, or wait for this answer before it
/// sends the rest of another body.
pub(super) const HELD_AT_MOST: Duration = Duration::from_millis(250);
/// While an answer is held, arriving requests are looked at in this interval. After this many looks
/// without progress it is held no longer; one alone may be due to a CPU quota.
const LOOK_INTERVAL: Duration = Duration::from_millis(25);
const LOOKS_WITHOUT_PROGRESS: u32 = 2;

/// A request that is not admitted yet or whose body has not ended. Dropped when its rest is of no
/// use as well.
#[derive(Debug)]
pub(in crate::server) struct Arriving {
    entry: Arc<ConnectionEntry>,
    came_bytes: usize,
}

impl ConnectionEntry {
    /// Requests that have no answer yet. One whose answer is held is not among them.
    pub(in crate::server) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Requests of which a part is still to come.
    pub(super) fn arriving(&self) -> usize {
        self.arriving.load(Ordering::Relaxed)
    }

    /// A request begins.
    pub(in crate::server) fn begin(self: &Arc<Self>) -> Arriving {
        let in_flight = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_in_flight.fetch_max(in_flight, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.arriving.fetch_add(1, Ordering::Relaxed);
        Arriving { entry: Arc::clone(self), came_bytes: 0 }
    }

    /// A request has its answer, or its peer is gone. Returns how many are left.
    pub(in crate::server) fn end(&self) -> usize {
        self.in_flight.fetch_sub(1, Ordering::Relaxed) - 1
    }

    /// Waits until nothing is arriving, or arriving requests make no progress, or the connection's
    /// slice has ended: without one nothing arrives. Requests that come whole are no progress.
    pub(in crate::server) async fn all_have_arrived(&self) {
        let mut until = None;
        let came_bytes = || self.arriving_bytes.load(Ordering::Relaxed);
        let (mut seen_bytes, mut looks) = (came_bytes(), 0);
        loop {
            let notified = self.all_have_arrived.notified();
            if self.arriving() == 0 || !self.has_slice() || looks >= LOOKS_WITHOUT_PROGRESS {
                return;
            }
            let now = Instant::now();
            let until = *until.get_or_insert(now + HELD_AT_MOST);
            if now >= until {
                return;
            }
            if timeout_at(until.min(now + LOOK_INTERVAL), notified).await.is_ok() {
                return;
            }
            looks += 1;
            if came_bytes().abs_diff(seen_bytes) >= PROGRESS_LEAST_BYTES {
                (seen_bytes, looks) = (came_bytes(), 0);
            }
        }
    }
}

impl Arriving {
    /// A part of it has come.
    pub(in crate::server) fn note_came(&mut self, bytes: usize) {
        self.came_bytes += bytes;
        self.entry.note_came(bytes);
        self.entry.arriving_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.entry.arriving_bytes.fetch_sub(self.came_bytes, Ordering::Relaxed);
        self.entry.note_body_ended(self.came_bytes);
        if self.entry.arriving.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.entry.all_have_arrived.notify_waiters();
        }
    }
}
