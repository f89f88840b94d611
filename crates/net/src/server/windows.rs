//! Flow-control windows out of one budget: data that peers may send unasked is memory.

use parking_lot::Mutex;

/// HTTP/2 begins every connection, and every stream, with a window of 65,535 bytes (RFC 9113,
/// 6.9.2), and a connection's can only be enlarged. Streams get no less: under load a request in
/// many small pieces costs far more than one in a few. Unread data within it is counted elsewhere.
const WINDOW_LEAST_BYTES: usize = 64 << 10;
/// What a peer may send unread of one body, and of all bodies of a connection, while there is
/// plenty.
const STREAM_MAX_BYTES: u32 = 512 << 10;
const CONNECTION_MAX_BYTES: usize = 2 << 20;
/// A new connection gets at most this part of the rest, so that dozens get nearly the same.
const PART_OF_REST: usize = 64;

/// The budget for windows beyond the least.
pub(super) struct Windows(Mutex<Given>);

struct Given {
    budget_bytes: usize,
    given_bytes: usize,
}

/// A connection's window, given back when it is dropped.
pub(super) struct Window<'a> {
    windows: &'a Windows,
    /// Beyond the least.
    given_bytes: usize,
}

/// What one HTTP/2 connection is told that it may send unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowSizes {
    pub connection_bytes: u32,
    pub stream_bytes: u32,
}

impl Windows {
    pub(super) fn new(budget_bytes: usize) -> Self {
        Windows(Mutex::new(Given { budget_bytes, given_bytes: 0 }))
    }

    /// Windows that are given stay.
    pub(super) fn set_budget(&self, budget_bytes: usize) {
        self.0.lock().budget_bytes = budget_bytes;
    }

    /// The window of a new connection: less and less as connections come.
    pub(super) fn take(&self) -> Window<'_> {
        let given = &mut *self.0.lock();
        let rest_bytes = given.budget_bytes.saturating_sub(given.given_bytes);
        let given_bytes =
            (rest_bytes / PART_OF_REST).min(CONNECTION_MAX_BYTES - WINDOW_LEAST_BYTES);
        given.given_bytes += given_bytes;
        Window { windows: self, given_bytes }
    }
}

impl Window<'_> {
    pub(super) fn sizes(&self) -> WindowSizes {
        let connection_bytes = (WINDOW_LEAST_BYTES + self.given_bytes) as u32;
        WindowSizes { connection_bytes, stream_bytes: connection_bytes.min(STREAM_MAX_BYTES) }
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        self.windows.0.lock().given_bytes -= self.given_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_shrink_as_connections_come_and_stay_within_the_budget() {
        const BUDGET: usize = 16 << 20;
        let windows = Windows::new(BUDGET);
        let taken: Vec<_> = (0..500).map(|_| windows.take()).collect();
        let sizes: Vec<_> = taken.iter().map(|window| window.sizes()).collect();
        assert!(taken.windows(2).all(|pair| pair[0].given_bytes >= pair[1].given_bytes));
        assert_eq!(
            sizes[0],
            WindowSizes { connection_bytes: (256 + 64) << 10, stream_bytes: (256 + 64) << 10 }
        );
        // A hundred and more have something, and dozens nearly as much as the first.
        assert!(sizes[30].stream_bytes >= 200 << 10 && sizes[64].stream_bytes >= 128 << 10);
        assert!((64 << 10..65 << 10).contains(&sizes[499].stream_bytes), "{:?}", sizes[499]);
        assert!(taken.iter().map(|window| window.given_bytes).sum::<usize>() <= BUDGET);
        drop(taken);
        assert_eq!(windows.0.lock().given_bytes, 0);
    }

    #[test]
    fn windows_are_bounded_however_much_there_is() {
        let sizes = Windows::new(1 << 40).take().sizes();
        assert_eq!(
            (sizes.connection_bytes as usize, sizes.stream_bytes),
            (CONNECTION_MAX_BYTES, STREAM_MAX_BYTES)
        );
    }
}
