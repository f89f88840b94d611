//! Flow-control windows from one budget: what peers may send before anybody reads it is memory too, and a port may have
//! thousands of connections.

use std::sync::atomic::{AtomicUsize, Ordering};

/// HTTP/2 begins every connection with this window (RFC 9113, 6.9.2); it can only be enlarged.
const WINDOW_MIN_BYTES: usize = 65_535;
/// A new connection gets at most this part of what is left.
const PART_OF_REST: usize = 4;

#[derive(Debug)]
pub(super) struct Windows {
    left_bytes: AtomicUsize,
}

/// A connection's window, given back when the connection is gone.
#[derive(Debug)]
pub(super) struct Window<'a> {
    windows: &'a Windows,
    bytes: usize,
}

impl Windows {
    pub(super) fn new(budget_bytes: usize) -> Self {
        Windows { left_bytes: AtomicUsize::new(budget_bytes) }
    }

    /// The window of a new connection: as large as wanted while there is plenty, less and less as connections come, never
    /// less than the protocol's own.
    pub(super) fn take(&self, wanted_bytes: usize) -> Window<'_> {
        let mut left = self.left_bytes.load(Ordering::Relaxed);
        loop {
            let bytes = wanted_bytes.min(left / PART_OF_REST);
            match self.left_bytes.compare_exchange_weak(left, left - bytes, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Window { windows: self, bytes },
                Err(now) => left = now,
            }
        }
    }
}

impl Window<'_> {
    pub(super) fn len_bytes(&self) -> u32 {
        u32::try_from(self.bytes.max(WINDOW_MIN_BYTES)).unwrap_or(u32::MAX)
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        self.windows.left_bytes.fetch_add(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_shrink_as_connections_come_and_never_exceed_the_budget() {
        let windows = Windows::new(16 << 20);
        let taken: Vec<_> = (0..200).map(|_| windows.take(2 << 20)).collect();
        assert_eq!(taken[0].len_bytes(), 2 << 20);
        assert!(taken.windows(2).all(|pair| pair[0].bytes >= pair[1].bytes));
        assert!(taken.iter().map(|window| window.bytes).sum::<usize>() <= 16 << 20);
        assert_eq!(taken[199].len_bytes(), 65_535);
        drop(taken);
        assert_eq!(windows.left_bytes.load(Ordering::Relaxed), 16 << 20);
    }
}
