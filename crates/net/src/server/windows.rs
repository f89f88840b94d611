//! Memory of connections, out of one budget for all ports of a process: what they take by being open, and their flow-control
//! windows, because what peers may send before anybody reads it is memory too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::ServerOptions;

/// What an open HTTP/2 connection takes that does nothing: the buffers of h2 (16 KiB to write, 8 to read, 4 for headers), the
/// task, the connection's state. Measured.
const OPEN_BYTES: usize = 36 << 10;
/// What TLS adds. Measured.
const TLS_BYTES: usize = 12 << 10;

/// HTTP/2 begins every connection, and every stream, with a window of 65,535 bytes (RFC 9113, 6.9.2), and a connection's can only be
/// enlarged. Streams are not given less: under load a request that comes in many small pieces costs far more than one that comes in
/// a few. Of what peers send within it, only requests that wait to be admitted leave anything unread, and those are counted.
const WINDOW_LEAST_BYTES: usize = 64 << 10;
/// A new connection gets at most this part of what is left. Large enough that dozens of connections get nearly the same.
const PART_OF_REST: usize = 64;
/// For windows where nobody says how much.
const UNLIMITED_WINDOWS_BYTES: usize = 64 << 20;

/// What all ports of a process may take for connections.
#[derive(Debug)]
pub struct ConnectionBudget {
    used_bytes: AtomicUsize,
    limit_bytes: AtomicUsize,
    windows: Mutex<Windows>,
}

/// The place of an open connection, given back when it is gone.
#[derive(Debug)]
pub(super) struct ConnectionPlace {
    budget: Arc<ConnectionBudget>,
    bytes: usize,
}

impl ConnectionBudget {
    /// `open_bytes` for connections that are open, `windows_bytes` for what their peers may send before anybody reads it.
    pub fn new(open_bytes: usize, windows_bytes: usize) -> Arc<Self> {
        let windows = Mutex::new(Windows { budget_bytes: windows_bytes, ..Windows::default() });
        Arc::new(ConnectionBudget {
            used_bytes: AtomicUsize::new(0),
            limit_bytes: AtomicUsize::new(open_bytes),
            windows,
        })
    }

    /// No bound but the ports' own.
    pub fn unlimited() -> Arc<Self> {
        ConnectionBudget::new(usize::MAX, UNLIMITED_WINDOWS_BYTES)
    }

    /// How many connections without TLS a budget is good for.
    pub const fn connections(limit_bytes: usize) -> usize {
        limit_bytes / OPEN_BYTES
    }

    /// Changes the limits. Connections that are open stay, with the windows that they have.
    pub fn set_limits(&self, open_bytes: usize, windows_bytes: usize) {
        self.limit_bytes.store(open_bytes, Ordering::Relaxed);
        self.windows.lock().budget_bytes = windows_bytes;
    }

    pub(super) fn try_take(self: &Arc<Self>, has_tls: bool) -> Option<ConnectionPlace> {
        let bytes = if has_tls { OPEN_BYTES + TLS_BYTES } else { OPEN_BYTES };
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let taken = self.used_bytes.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= limit_bytes)
        });
        taken.is_ok().then(|| ConnectionPlace { budget: Arc::clone(self), bytes })
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.budget.used_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// What has been given of the budget for windows, beyond the least.
#[derive(Debug, Default)]
struct Windows {
    budget_bytes: usize,
    given_bytes: usize,
}

/// A connection's window, given back when the connection is gone.
#[derive(Debug)]
pub(super) struct Window<'a> {
    budget: &'a ConnectionBudget,
    /// Beyond the least.
    given_bytes: usize,
}

/// What one HTTP/2 connection is told that it may send unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowSizes {
    pub connection_bytes: u32,
    pub stream_bytes: u32,
}

impl ConnectionBudget {
    /// The window of a new connection: as large as wanted while there is plenty, less and less as connections come.
    pub(super) fn take_window(&self, wanted_bytes: usize) -> Window<'_> {
        let windows = &mut *self.windows.lock();
        let rest_bytes = windows.budget_bytes.saturating_sub(windows.given_bytes);
        let given_bytes = (rest_bytes / PART_OF_REST).min(wanted_bytes.saturating_sub(WINDOW_LEAST_BYTES));
        windows.given_bytes += given_bytes;
        Window { budget: self, given_bytes }
    }
}

impl Window<'_> {
    fn len_bytes(&self) -> usize {
        WINDOW_LEAST_BYTES + self.given_bytes
    }

    pub(super) fn sizes(&self, options: &ServerOptions) -> WindowSizes {
        let window_bytes = u32::try_from(self.len_bytes()).unwrap_or(u32::MAX);
        WindowSizes {
            connection_bytes: window_bytes,
            stream_bytes: window_bytes.min(options.initial_stream_window_bytes),
        }
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        self.budget.windows.lock().given_bytes -= self.given_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Protocols;
    use super::*;

    const WANTED: usize = 2 << 20;

    #[test]
    fn windows_shrink_as_connections_come_and_stay_within_the_budget() {
        const BUDGET: usize = 16 << 20;
        let options = ServerOptions::new(Protocols::Http2);
        let budget = ConnectionBudget::new(usize::MAX, BUDGET);
        let taken: Vec<_> = (0..500).map(|_| budget.take_window(WANTED)).collect();
        let sizes: Vec<_> = taken.iter().map(|window| window.sizes(&options)).collect();
        assert!(taken.windows(2).all(|pair| pair[0].len_bytes() >= pair[1].len_bytes()));
        assert_eq!(sizes[0], WindowSizes { connection_bytes: (256 + 64) << 10, stream_bytes: (256 + 64) << 10 });
        // A hundred and more have something, and dozens nearly as much as the first.
        assert!(sizes[30].stream_bytes >= 200 << 10 && sizes[64].stream_bytes >= 128 << 10);
        assert!((64 << 10..65 << 10).contains(&sizes[499].stream_bytes), "{:?}", sizes[499]);
        assert!(taken.iter().map(|window| window.given_bytes).sum::<usize>() <= BUDGET);
        drop(taken);
        assert_eq!(budget.windows.lock().given_bytes, 0);
    }

    #[test]
    fn the_configured_bound_of_a_stream_holds_whatever_there_is() {
        let mut options = ServerOptions::new(Protocols::Http2);
        options.initial_stream_window_bytes = 1000;
        for budget in [0, 1 << 20, 1 << 30] {
            assert_eq!(
                ConnectionBudget::new(usize::MAX, budget).take_window(WANTED).sizes(&options).stream_bytes,
                1000
            );
        }
    }

    #[test]
    fn connections_of_all_ports_share_one_budget() {
        let budget = ConnectionBudget::new(2 * OPEN_BYTES + TLS_BYTES, 0);
        let (plain, tls) = (budget.try_take(false).expect("fits"), budget.try_take(true).expect("fits"));
        assert!(budget.try_take(false).is_none());
        drop(tls);
        let again = budget.try_take(false).expect("fits");
        assert!(budget.try_take(true).is_none());
        budget.set_limits(0, 0);
        drop((plain, again));
        assert!(budget.try_take(false).is_none());
        assert_eq!(budget.used_bytes.load(Ordering::Relaxed), 0);
    }
}
