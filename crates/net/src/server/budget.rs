//! Memory of connections, out of one budget for all ports of a process: for open connections, and
//! for the requests on them beside their bodies.
//!
//! An open connection has a price for as long as it lives. Its requests in flight are charged in
//! blocks: their state and their headers, which HTTP/2 lets a peer send for hundreds of streams.
//! Beyond the budget, connections borrow memory that is free at the moment. A stream that is
//! refused lives on until its answer is sent and its body drained, so the more connections there
//! are, the fewer streams a new one may have.
//! `docs/decisions/034-connection-memory.md` has the reasons.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use tokio::time::Instant;

use super::windows::WindowSizes;

/// An open connection without requests: h2's buffers, the task, the connection's state.
pub(super) const OPEN_BYTES: usize = 18 << 10;
/// TLS adds this much.
pub(super) const TLS_BYTES: usize = 12 << 10;
/// A request beside its headers and its body: h2's stream, the task that answers it. After the
/// answer it is the stream, until the answer is sent and the body drained.
pub(super) const STREAM_BYTES: usize = 4 << 10;
/// The budget divided by this is left to streams by open connections.
const STREAMS_PART: usize = 8;
/// A new connection may have at least this many streams, and otherwise its share of the budget
/// divided by the second number.
const STREAMS_LEAST: usize = 16;
const STREAMS_OF_ALL_PART: usize = 2;
/// While there are few connections, their frames may be long: requests that arrive interleaved in
/// short ones are all half read, and take all memory for receiving.
const FRAME_MAX_BYTES: u32 = 64 << 10;
/// The protocol's default.
const FRAME_LEAST_BYTES: u32 = 16 << 10;
/// The budget divided by this is for unfinished long frames.
const FRAMES_OF_ALL_PART: usize = 2;
/// Memory counts as short for this long after a request found none, or none was left for a
/// connection.
const SHORT_FOR: Duration = Duration::from_secs(1);
/// The limit on open files divided by this is the least that connections have, and the least that
/// they leave to backends, files and probes.
const FILES_PART: usize = 4;
/// Evicted connections that are not closed yet, at most: they still use their memory and a file.
pub(super) const LEAVING_MAX: usize = 64;
/// Memory for requests that wait, if no limit is given.
const UNLIMITED_WAITING_BYTES: usize = 64 << 20;

/// The purpose of memory for streams. It is granted up to a share of the budget, and borrowed
/// beyond. Connections with a few streams must not suffer from those with hundreds.
#[derive(Clone, Copy)]
pub(super) enum Share {
    /// The first streams of a connection.
    First,
    /// The first streams of one whose requests made no progress: beside them there is room for new
    /// connections.
    Stalled,
    /// More of them.
    Further,
}

impl Share {
    fn bytes(self, limit_bytes: usize, open_bytes: usize) -> usize {
        match self {
            Share::First => limit_bytes / 4 * 3,
            Share::Stalled => {
                (limit_bytes / 2).min(beside_connections_bytes(limit_bytes, open_bytes))
            }
            Share::Further => limit_bytes / 4,
        }
    }
}

/// The limits on connections of all ports of a process, and their use.
pub struct ConnectionBudget {
    limit_bytes: AtomicUsize,
    /// Leaves file descriptors for backends, files and probes.
    pub(super) max_connections: AtomicUsize,
    /// Open connections. Changed by one thread at a time, as are their bytes.
    open: AtomicUsize,
    open_bytes: AtomicUsize,
    pub(super) streams_bytes: AtomicUsize,
    /// Returns how much memory beyond the budget connections may have borrowed now.
    lender: OnceLock<Box<dyn Fn() -> usize + Send + Sync>>,
    /// For bytes of requests that wait: it bounds the windows.
    waiting_bytes: AtomicUsize,
    /// When memory was last found short.
    short_at: Mutex<Option<Instant>>,
    /// When there were last as many connections as the limit on open files allows.
    files_short_at: Mutex<Option<Instant>>,
}

impl ConnectionBudget {
    /// `limit_bytes` is for connections. `waiting_bytes` is the handlers' memory for requests that
    /// wait: the size of windows follows from it.
    pub fn new(limit_bytes: usize, waiting_bytes: usize) -> Arc<Self> {
        Arc::new(ConnectionBudget {
            limit_bytes: AtomicUsize::new(limit_bytes),
            max_connections: AtomicUsize::new(connections_within(file_descriptors(), 0)),
            open: AtomicUsize::new(0),
            open_bytes: AtomicUsize::new(0),
            streams_bytes: AtomicUsize::new(0),
            lender: OnceLock::new(),
            waiting_bytes: AtomicUsize::new(waiting_bytes),
            short_at: Mutex::default(),
            files_short_at: Mutex::default(),
        })
    }

    /// No bound but the ports' own.
    pub fn unlimited() -> Arc<Self> {
        ConnectionBudget::new(usize::MAX, UNLIMITED_WAITING_BYTES)
    }

    /// The number of idle connections without TLS that a budget is good for.
    pub const fn connections(limit_bytes: usize) -> usize {
        open_limit_bytes(limit_bytes) / OPEN_BYTES
    }

    /// Changes the limits. Connections that are open stay, with the windows that they have.
    pub fn set_limits(&self, limit_bytes: usize, waiting_bytes: usize) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
        self.waiting_bytes.store(waiting_bytes, Ordering::Relaxed);
    }

    /// Leaves this many of the files that may be open to all but the receivers' connections, or a
    /// quarter of them if that is more. Connections have a quarter in any case.
    pub fn reserve_files(&self, files: usize) -> FilesShare {
        let limit = file_descriptors();
        let reserved = files.saturating_add(LEAVING_MAX);
        let connections = connections_within(limit, reserved);
        self.max_connections.store(connections, Ordering::Relaxed);
        FilesShare { limit, connections, is_short: limit.saturating_sub(reserved) < connections }
    }

    /// The limit on connections, if the one on open files left no room for one within this time.
    pub(super) fn max_connections_reached(&self, within: Duration) -> Option<usize> {
        let is_lately = self.files_short_at.lock().is_some_and(|at| at.elapsed() < within);
        is_lately.then(|| self.max_connections.load(Ordering::Relaxed))
    }

    /// The windows of a new connection.
    pub(super) fn windows(&self) -> WindowSizes {
        WindowSizes::of(self.waiting_bytes.load(Ordering::Relaxed))
    }

    /// Lets connections borrow. `lendable_bytes` is called when one wants more than the budget; its
    /// result includes the bytes that are borrowed already. The lender counts
    /// [`ConnectionBudget::borrowed_bytes`] as used.
    pub fn set_lender(&self, lendable_bytes: impl Fn() -> usize + Send + Sync + 'static) {
        // The first one stays.
        let _ = self.lender.set(Box::new(lendable_bytes));
    }

    /// Bytes that connections use beyond their budget.
    pub fn borrowed_bytes(&self) -> usize {
        let used_bytes =
            self.open_bytes.load(Ordering::Relaxed) + self.streams_bytes.load(Ordering::Relaxed);
        used_bytes.saturating_sub(self.limit_bytes.load(Ordering::Relaxed))
    }

    /// Whether one kind may use `own_bytes` beside the other kind, borrowing what is beyond its
    /// share or beyond the budget.
    fn has_room(&self, own_bytes: usize, share_bytes: usize, other_bytes: usize) -> bool {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let beyond_bytes = own_bytes
            .saturating_sub(share_bytes)
            .max((own_bytes + other_bytes).saturating_sub(limit_bytes));
        beyond_bytes == 0 || self.lender.get().is_some_and(|lender| beyond_bytes <= lender())
    }

    /// The number of streams at a time that a new connection may have, at most `wanted`.
    pub(super) fn streams(&self, wanted: u32) -> u32 {
        let all = self.limit_bytes.load(Ordering::Relaxed) / STREAMS_OF_ALL_PART / STREAM_BYTES;
        let share = (all / self.open.load(Ordering::Relaxed).max(1)).max(STREAMS_LEAST);
        wanted.min(u32::try_from(share).unwrap_or(u32::MAX))
    }

    /// The longest frame that a new connection may send. Its bytes are kept, uncharged, until the
    /// last one has come.
    pub(super) fn frame_bytes(&self) -> u32 {
        let large_ones = self.limit_bytes.load(Ordering::Relaxed)
            / FRAMES_OF_ALL_PART
            / FRAME_MAX_BYTES as usize;
        let is_one_of_few = self.open.load(Ordering::Relaxed) <= large_ones;
        if is_one_of_few { FRAME_MAX_BYTES } else { FRAME_LEAST_BYTES }
    }

    /// Whether requests found no memory lately, or left none for a new connection.
    pub(super) fn is_short(&self) -> bool {
        let mut short_at = self.short_at.lock();
        let is_short = short_at.is_some_and(|at| at.elapsed() < SHORT_FOR);
        if !is_short && !self.streams_leave_room() {
            *short_at = Some(Instant::now());
            return true;
        }
        is_short
    }

    /// Whether there is room for a connection beside the streams. True also if connections have
    /// taken all that they may.
    fn streams_leave_room(&self) -> bool {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let open_bytes = self.open_bytes.load(Ordering::Relaxed) + OPEN_BYTES + TLS_BYTES;
        let streams_bytes = self.streams_bytes.load(Ordering::Relaxed);
        let has_places = open_bytes <= open_limit_bytes(limit_bytes);
        !has_places || self.has_room(open_bytes, open_limit_bytes(limit_bytes), streams_bytes)
    }

    /// Charges an open connection. False: there is no room for it.
    pub(super) fn take_for_connection(&self, bytes: usize) -> bool {
        let open_bytes = self.open_bytes.load(Ordering::Relaxed) + bytes;
        let share_bytes = open_limit_bytes(self.limit_bytes.load(Ordering::Relaxed));
        let streams_bytes = self.streams_bytes.load(Ordering::Relaxed);
        if self.open.load(Ordering::Relaxed) >= self.max_connections.load(Ordering::Relaxed) {
            *self.files_short_at.lock() = Some(Instant::now());
            return false;
        }
        let has_room = self.has_room(open_bytes, share_bytes, streams_bytes);
        if has_room {
            self.open.fetch_add(1, Ordering::Relaxed);
            self.open_bytes.store(open_bytes, Ordering::Relaxed);
        }
        has_room
    }

    pub(super) fn give_back_of_connection(&self, bytes: usize) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.open_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Beyond their share, streams may borrow half as much as the budget.
    pub(super) fn take_for_streams(&self, bytes: usize, share: Share) -> bool {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let open_bytes = self.open_bytes.load(Ordering::Relaxed);
        let share_bytes = share.bytes(limit_bytes, open_bytes);
        let taken = self.streams_bytes.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| {
            let sum_bytes = used.checked_add(bytes)?;
            let may_borrow = || {
                sum_bytes <= share_bytes.saturating_add(limit_bytes / 2)
                    && self.has_room(sum_bytes, share_bytes, open_bytes)
            };
            (sum_bytes <= share_bytes || may_borrow()).then_some(sum_bytes)
        });
        // Those that stalled may come back at once and for ever: others need not give way to them.
        if taken.is_err() && !matches!(share, Share::Stalled) {
            *self.short_at.lock() = Some(Instant::now());
        }
        taken.is_ok()
    }

    pub(super) fn give_back_of_streams(&self, bytes: usize) {
        self.streams_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// How the files that a process may have open are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilesShare {
    pub limit: usize,
    /// The most connections of receivers.
    pub connections: usize,
    /// The rest is less than what else may be needed.
    pub is_short: bool,
}

/// The most connections of receivers, if this many files are reserved for everything else.
fn connections_within(limit: usize, reserved: usize) -> usize {
    let part = limit / FILES_PART;
    limit.saturating_sub(reserved).clamp(part, limit - part)
}

/// The number of files and sockets that the process may have open.
fn file_descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

const fn open_limit_bytes(limit_bytes: usize) -> usize {
    limit_bytes - limit_bytes / STREAMS_PART
}

/// The most that streams may take so that an eighth of the budget stays free for new connections,
/// if not all places are taken; an eighth at least.
fn beside_connections_bytes(limit_bytes: usize, open_bytes: usize) -> usize {
    open_limit_bytes(limit_bytes).saturating_sub(open_bytes).max(limit_bytes / STREAMS_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit that is good for this many connections without TLS.
    fn limit_for(connections: usize) -> usize {
        let limit_bytes = connections * OPEN_BYTES * STREAMS_PART / (STREAMS_PART - 1) + 1;
        assert_eq!(ConnectionBudget::connections(limit_bytes), connections);
        limit_bytes
    }

    #[test]
    fn connections_with_and_without_tls_share_one_budget() {
        let budget = ConnectionBudget::new(limit_for(3), 0);
        let [plain, tls] = [OPEN_BYTES, OPEN_BYTES + TLS_BYTES];
        assert!(budget.take_for_connection(plain) && budget.take_for_connection(tls));
        assert!(!budget.take_for_connection(plain));
        budget.give_back_of_connection(tls);
        assert!(budget.take_for_connection(plain));
        assert!(!budget.take_for_connection(tls));
        budget.set_limits(0, 0);
        (0..2).for_each(|_| budget.give_back_of_connection(plain));
        assert!(!budget.take_for_connection(plain));
        assert_eq!(budget.borrowed_bytes(), 0);
    }

    #[test]
    fn beyond_the_budget_connections_borrow_what_is_free() {
        let limit_bytes = limit_for(2);
        let budget = ConnectionBudget::new(limit_bytes, 0);
        let free_bytes = Arc::new(AtomicUsize::new(3 * OPEN_BYTES));
        let lender = Arc::clone(&free_bytes);
        budget.set_lender(move || lender.load(Ordering::Relaxed));
        let open = || (0..9).take_while(|_| budget.take_for_connection(OPEN_BYTES)).count();
        assert_eq!(open(), 5);
        assert_eq!(budget.borrowed_bytes(), 5 * OPEN_BYTES - limit_bytes);
        free_bytes.store(0, Ordering::Relaxed);
        (0..5).for_each(|_| budget.give_back_of_connection(OPEN_BYTES));
        assert_eq!(budget.borrowed_bytes(), 0);
        assert_eq!(open(), 2);
    }

    /// Guarantee: connections leave what is reserved, a quarter at least, and have a quarter.
    #[test]
    fn connections_leave_files_to_everything_else() {
        for (limit, reserved, expected) in [
            (1024, 0, 768),
            (1024, 256, 768),
            (1024, 400, 624),
            (1024, 5_000, 256),
            (256, 180, 76),
            (usize::MAX, 400, usize::MAX - usize::MAX / 4),
        ] {
            assert_eq!(connections_within(limit, reserved), expected, "{limit} {reserved}");
        }
        let budget = ConnectionBudget::unlimited();
        let limit = file_descriptors();
        let few = FilesShare { limit, connections: limit / 4, is_short: true };
        assert_eq!(budget.reserve_files(limit), few);
        assert_eq!(budget.max_connections.load(Ordering::Relaxed), limit / 4);
        let many = FilesShare { limit, connections: limit - limit / 4, is_short: false };
        assert_eq!(budget.reserve_files(0), many);
    }

    /// Guarantee: all streams that connections may have together take a bounded amount, and each
    /// connection may have some.
    #[test]
    fn the_more_connections_there_are_the_fewer_streams_has_a_new_one() {
        const LIMIT: usize = 16 << 20;
        let budget = ConnectionBudget::new(LIMIT, 0);
        let streams: Vec<_> = (0..ConnectionBudget::connections(LIMIT))
            .map(|_| {
                assert!(budget.take_for_connection(OPEN_BYTES));
                budget.streams(256) as usize
            })
            .collect();
        assert_eq!((streams[0], streams.last()), (256, Some(&STREAMS_LEAST)));
        assert!(streams.iter().sum::<usize>() * STREAM_BYTES < 5 * LIMIT, "{streams:?}");
        assert_eq!(budget.streams(4), 4, "the configured bound holds");
    }
}
