//! Unread data of waiting requests within their connection's flow-control window. All requests of
//! an HTTP/2 connection share one window: if requests that wait to be admitted filled it, those
//! that were admitted could not go on, and would keep the memory that the others wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::scheduler::Requests;
use super::windows::WindowSizes;

/// Waiting requests get at most this part of a connection's window.
const PART_OF_WINDOW: usize = 2;

/// The window of one connection, as its requests share it. Without sizes it is unlimited.
#[derive(Debug)]
pub(super) struct Unread {
    bytes: AtomicUsize,
    limit_bytes: AtomicUsize,
    stream_bytes: AtomicUsize,
}

impl Default for Unread {
    fn default() -> Self {
        let unlimited = || AtomicUsize::new(usize::MAX);
        Unread { bytes: AtomicUsize::new(0), limit_bytes: unlimited(), stream_bytes: unlimited() }
    }
}

impl Unread {
    pub(super) fn set_sizes(&self, sizes: WindowSizes) {
        self.limit_bytes.store(sizes.connection_bytes as usize / PART_OF_WINDOW, Ordering::Relaxed);
        self.stream_bytes.store(sizes.stream_bytes as usize, Ordering::Relaxed);
    }
}

/// The window of a request's connection, asked before the request waits unread.
#[derive(Clone, Debug)]
pub struct SharedWindow(pub(super) Arc<Requests>);

/// A request that waits unread.
#[derive(Debug)]
pub struct WaitsUnread {
    window: SharedWindow,
    bytes: usize,
}

impl SharedWindow {
    /// Whether a request of `len_bytes` may wait. `None`: it would hold up requests of the
    /// connection that are being read.
    pub fn try_wait(&self, len_bytes: usize) -> Option<WaitsUnread> {
        let unread = &self.0.unread;
        let bytes = len_bytes.min(unread.stream_bytes.load(Ordering::Relaxed));
        let limit = unread.limit_bytes.load(Ordering::Relaxed);
        let is_alone = self.0.arriving() <= 1;
        let taken = unread.bytes.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |sum| {
            sum.checked_add(bytes).filter(|sum| is_alone || *sum <= limit)
        });
        taken.is_ok().then(|| WaitsUnread { window: self.clone(), bytes })
    }
}

impl Drop for WaitsUnread {
    fn drop(&mut self) {
        self.window.0.unread.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_wait_leave_others_half_of_the_window() {
        let requests = Arc::new(Requests::default());
        requests.unread.set_sizes(WindowSizes { connection_bytes: 100_000, stream_bytes: 30_000 });
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
        drop((alone, second));
        assert!(window.try_wait(usize::MAX).is_some());
        drop(first);
    }

    #[test]
    fn without_a_window_every_request_may_wait() {
        let requests = Arc::new(Requests::default());
        let _arriving = [requests.begin(), requests.begin()];
        let window = SharedWindow(requests);
        let _waits =
            [window.try_wait(1 << 30).expect("may"), window.try_wait(1 << 30).expect("may too")];
    }
}
