//! The requests of one connection in its record: how many are in flight, how many are only partly
//! read, and how much of its flow-control window is filled by those that wait unread.
//!
//! All requests of an HTTP/2 connection share one window: if requests that wait to be admitted
//! filled it, those that were admitted could not go on, and would keep the memory that the others
//! wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::entry::{ConnectionEntry, PROGRESS_LEAST_BYTES};
use crate::server::windows::WindowSizes;

/// No answer is held longer: a peer may be slow with one body, or wait for this answer before it
/// sends the rest of another.
pub(super) const HELD_AT_MOST: Duration = Duration::from_millis(250);
/// While an answer is held, the requests that arrive are looked at so often. After so many looks
/// without progress it is held no longer; one alone may be owed to a CPU quota.
const LOOK_INTERVAL: Duration = Duration::from_millis(25);
const LOOKS_WITHOUT_PROGRESS: u32 = 2;
/// Requests that wait unread get at most this part of a connection's window.
const PART_OF_WINDOW: usize = 2;

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

    /// Of these, the ones that wait to be admitted.
    pub(in crate::server) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
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

    /// Waits until nothing is arriving, or what arrives makes no progress, or the connection's
    /// slice has ended: without one nothing arrives. Requests that come whole are no progress.
    pub(in crate::server) async fn all_have_arrived(&self) {
        let until = Instant::now() + HELD_AT_MOST;
        let came_bytes = || self.arriving_bytes.load(Ordering::Relaxed);
        let (mut seen_bytes, mut looks) = (came_bytes(), 0);
        loop {
            let notified = self.all_have_arrived.notified();
            let now = Instant::now();
            let is_waited_for = self.arriving() > 0 && self.has_slice() && now < until;
            if !is_waited_for || looks >= LOOKS_WITHOUT_PROGRESS {
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
    pub(in crate::server) fn window(&self) -> SharedWindow {
        SharedWindow(Arc::clone(&self.entry))
    }

    /// A part of it has come.
    pub(in crate::server) fn note_came(&mut self, bytes: usize) {
        self.came_bytes += bytes;
        self.entry.arriving_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.entry.arriving_bytes.fetch_sub(self.came_bytes, Ordering::Relaxed);
        if self.entry.arriving.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.entry.all_have_arrived.notify_waiters();
        }
    }
}

/// The window of one connection, as its requests share it.
#[derive(Debug, Default)]
pub(in crate::server) struct Unread {
    bytes: AtomicUsize,
    pub(in crate::server) sizes: WindowSizes,
}

impl Unread {
    pub(super) fn new(sizes: WindowSizes) -> Self {
        Unread { bytes: AtomicUsize::new(0), sizes }
    }
}

/// The window of a request's connection, asked before the request waits unread.
#[derive(Clone, Debug)]
pub struct SharedWindow(Arc<ConnectionEntry>);

/// A request that waits unread.
#[derive(Debug)]
pub struct WaitsUnread {
    window: SharedWindow,
    bytes: usize,
}

impl SharedWindow {
    /// What the peer may have sent of a body of so many bytes that is not read.
    pub fn unread_bytes(&self, len_bytes: usize) -> usize {
        self.0.unread.sizes.unread_bytes(len_bytes)
    }

    /// Whether a request may wait, of which `len_bytes` are not read. `None`: it would hold up
    /// requests of the connection that are being read.
    pub fn try_wait(&self, len_bytes: usize) -> Option<WaitsUnread> {
        let unread = &self.0.unread;
        let limit = unread.sizes.connection_bytes as usize / PART_OF_WINDOW;
        let bytes = unread.sizes.unread_bytes(len_bytes);
        let is_alone = self.0.arriving() <= 1;
        let taken = unread.bytes.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |sum| {
            sum.checked_add(bytes).filter(|sum| is_alone || *sum <= limit)
        });
        taken.is_ok().then(|| {
            self.0.waiting.fetch_add(1, Ordering::Relaxed);
            WaitsUnread { window: self.clone(), bytes }
        })
    }
}

impl Drop for WaitsUnread {
    fn drop(&mut self) {
        let entry = &self.window.0;
        entry.waiting.fetch_sub(1, Ordering::Relaxed);
        entry.unread.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_wait_leave_others_half_of_the_window() {
        let sizes = WindowSizes { connection_bytes: 100_000, stream_bytes: 30_000 };
        let requests = Arc::new(ConnectionEntry::new(sizes));
        let window = SharedWindow(Arc::clone(&requests));
        let first = requests.begin();
        let alone = window.try_wait(80_000).expect("there is no other request to hold up");
        let _others = [requests.begin(), requests.begin()];
        assert!(
            window.try_wait(20_001).is_none(),
            "as much of the first one as its own window lets through counts"
        );
        let second = window.try_wait(20_000).expect("half of the window");
        assert!(window.try_wait(1).is_none());
        assert!(window.try_wait(0).is_some(), "it is being read while it waits");
        drop((alone, second));
        assert!(window.try_wait(usize::MAX).is_some());
        drop(first);
    }
}
