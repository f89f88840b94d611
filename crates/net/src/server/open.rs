//! The open connections of a process, and which of them has to go when there is no room.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::activity::Activity;
use super::counters::ServerCounters;

/// As a rule a connection is evicted only if it accepted no request for this long: a burst of new
/// connections must not chase each other out.
pub(super) const EVICTED_AFTER_IDLE: Duration = Duration::from_secs(1);
/// Evicted connections that are not closed yet, at most: they still use their memory.
const LEAVING_MAX: usize = 64;
/// One search through all connections finds at most this many candidates.
const CANDIDATES: usize = 64;
/// If none was found, all are looked through again only after this time.
const SEARCH_INTERVAL: Duration = Duration::from_millis(100);

/// State that the connections of one port share.
pub(super) struct Port {
    pub(super) has_tls: bool,
    pub(super) counters: Arc<ServerCounters>,
    max_connections: usize,
    evicted_after: Duration,
    /// Open connections, without evicted ones. Changed under the lock of [`OpenConnections`].
    open: AtomicUsize,
    candidates: Mutex<Candidates>,
}

impl Port {
    pub(super) fn new(
        has_tls: bool,
        counters: Arc<ServerCounters>,
        max_connections: usize,
        evicted_after: Duration,
    ) -> Arc<Self> {
        let (open, candidates) = (AtomicUsize::new(0), Mutex::default());
        Arc::new(Port { has_tls, counters, max_connections, evicted_after, open, candidates })
    }

    pub(super) fn is_full(&self) -> bool {
        self.open.load(Ordering::Relaxed) >= self.max_connections
    }
}

struct Open {
    activity: Arc<Activity>,
    port: Arc<Port>,
    bytes: usize,
}

impl Open {
    fn may_go(&self, now: Instant) -> Option<Duration> {
        self.activity.useless_for(now).filter(|idle| *idle >= self.port.evicted_after)
    }
}

/// The longest idle connections when they were last looked for, the longest first.
#[derive(Default)]
struct Candidates {
    ids: VecDeque<u64>,
    searched_in_vain_at: Option<Instant>,
}

#[derive(Default)]
pub(super) struct OpenConnections {
    next_id: u64,
    open: HashMap<u64, Open>,
    /// Among all ports.
    candidates: Candidates,
    leaving: usize,
}

impl OpenConnections {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn insert(
        &mut self,
        port: &Arc<Port>,
        activity: Arc<Activity>,
        bytes: usize,
    ) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        port.open.fetch_add(1, Ordering::Relaxed);
        self.open.insert(id, Open { activity, port: Arc::clone(port), bytes });
        id
    }

    /// A connection is closed. Returns the bytes that it is still charged.
    pub(super) fn remove(&mut self, id: u64) -> usize {
        if let Some(open) = self.open.remove(&id) {
            open.port.open.fetch_sub(1, Ordering::Relaxed);
            return open.bytes;
        }
        self.leaving -= 1;
        0
    }

    /// Asks the connection that is idle longest, of this port or of all, to go. Returns the bytes
    /// that it was charged.
    pub(super) fn evict_longest_idle(
        &mut self,
        of: Option<&Arc<Port>>,
        now: Instant,
    ) -> Option<usize> {
        if self.leaving >= LEAVING_MAX {
            return None;
        }
        let id = match of {
            Some(port) => port.candidates.lock().next(&self.open, of, now),
            None => self.candidates.next(&self.open, of, now),
        }?;
        self.open.get(&id)?.activity.evicted.notify_one();
        let bytes = self.remove(id);
        self.leaving += 1;
        Some(bytes)
    }
}

impl Candidates {
    fn next(
        &mut self,
        all: &HashMap<u64, Open>,
        of: Option<&Arc<Port>>,
        now: Instant,
    ) -> Option<u64> {
        loop {
            if self.ids.is_empty() {
                self.search(all, of, now);
            }
            let id = self.ids.pop_front()?;
            if all.get(&id).is_some_and(|open| open.may_go(now).is_some()) {
                return Some(id);
            }
        }
    }

    fn search(&mut self, all: &HashMap<u64, Open>, of: Option<&Arc<Port>>, now: Instant) {
        if self.searched_in_vain_at.is_some_and(|at| now - at < SEARCH_INTERVAL) {
            return;
        }
        let is_of = |open: &Open| of.is_none_or(|port| Arc::ptr_eq(port, &open.port));
        let mut idle: Vec<_> = all
            .iter()
            .filter(|(_, open)| is_of(open))
            .filter_map(|(id, open)| Some((open.may_go(now)?, *id)))
            .collect();
        idle.sort_unstable_by(|a, b| b.cmp(a));
        self.ids.extend(idle.iter().take(CANDIDATES).map(|(_, id)| *id));
        self.searched_in_vain_at = self.ids.is_empty().then_some(now);
    }
}
