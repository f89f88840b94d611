//! The requests of one connection: how many are in flight, and how many are only partly read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::server::unread::{SharedWindow, Unread};

/// No answer is held longer: a peer may be slow with one body, or wait for this answer before it
/// sends the rest of another.
pub(super) const HELD_AT_MOST: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
pub(in crate::server) struct Requests {
    in_flight: AtomicUsize,
    /// Since it was last asked for.
    most_in_flight: AtomicUsize,
    begun: AtomicUsize,
    arriving: AtomicUsize,
    /// The connection has a slice. Without one nothing arrives, and nothing is worth waiting for.
    are_read: AtomicBool,
    pub(in crate::server) unread: Unread,
    all_have_arrived: Notify,
}

/// A request whose body has not ended. Dropped when it has, or when its rest is of no use.
#[derive(Debug)]
pub(in crate::server) struct Arriving(Arc<Requests>);

impl Requests {
    /// Requests that have no answer yet. One whose answer is held is not among them.
    pub(in crate::server) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The most that were in flight at a time since this was last called.
    pub(super) fn most_in_flight(&self) -> usize {
        self.most_in_flight.swap(0, Ordering::Relaxed)
    }

    /// The number of requests that have begun since this was last called.
    pub(super) fn begun(&self) -> usize {
        self.begun.swap(0, Ordering::Relaxed)
    }

    /// Requests of which a part is still to come.
    pub(in crate::server) fn arriving(&self) -> usize {
        self.arriving.load(Ordering::Relaxed)
    }

    /// A request begins.
    pub(in crate::server) fn begin(self: &Arc<Self>) -> Arriving {
        let in_flight = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_in_flight.fetch_max(in_flight, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.arriving.fetch_add(1, Ordering::Relaxed);
        Arriving(Arc::clone(self))
    }

    /// A request has its answer, or its peer is gone. Returns how many are left.
    pub(in crate::server) fn end(&self) -> usize {
        self.in_flight.fetch_sub(1, Ordering::Relaxed) - 1
    }

    pub(super) fn begin_slice(&self) {
        self.are_read.store(true, Ordering::SeqCst);
    }

    pub(super) fn end_slice(&self) {
        self.are_read.store(false, Ordering::SeqCst);
        self.all_have_arrived.notify_waiters();
    }

    /// Waits until nothing is arriving, or the connection's slice has ended.
    pub(in crate::server) async fn all_have_arrived(&self) {
        let notified = self.all_have_arrived.notified();
        if self.arriving() > 0 && self.are_read.load(Ordering::SeqCst) {
            // Too late is the same as enough.
            let _ = timeout(HELD_AT_MOST, notified).await;
        }
    }
}

impl Arriving {
    pub(in crate::server) fn window(&self) -> SharedWindow {
        SharedWindow(Arc::clone(&self.0))
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if self.0.arriving.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.all_have_arrived.notify_waiters();
        }
    }
}
