//! The open connections of a process, and which of them has to go when there is no room: a new one
//! takes the place of the one that is idle longest.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::activity::Activity;
use super::budget::{ConnectionBudget, LEAVING_MAX, OPEN_BYTES, TLS_BYTES};
use super::counters::ServerCounters;

/// As a rule a connection is evicted only if it accepted no request for this long: a burst of new
/// connections must not chase each other out.
pub(super) const EVICTED_AFTER_IDLE: Duration = Duration::from_secs(1);
/// One search through all connections finds at most this many candidates.
const CANDIDATES: usize = 64;
/// If none was found, all are looked through again only after this time.
const SEARCH_INTERVAL: Duration = Duration::from_millis(100);

/// State that the connections of one port share.
pub(super) struct Port {
    counters: Arc<ServerCounters>,
    /// The price of one.
    connection_bytes: usize,
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
        let connection_bytes = if has_tls { OPEN_BYTES + TLS_BYTES } else { OPEN_BYTES };
        let (open, candidates) = (AtomicUsize::new(0), Mutex::default());
        Arc::new(Port {
            counters,
            connection_bytes,
            max_connections,
            evicted_after,
            open,
            candidates,
        })
    }

    fn is_full(&self) -> bool {
        self.open.load(Ordering::Relaxed) >= self.max_connections
    }
}

struct Open {
    activity: Arc<Activity>,
    port: Arc<Port>,
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

/// The open connections of all ports of a process, within their budget.
pub struct OpenConnections {
    pub budget: Arc<ConnectionBudget>,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    next_id: u64,
    open: HashMap<u64, Open>,
    /// Among all ports.
    candidates: Candidates,
    leaving: usize,
}

/// The place of an open connection, given back when it is dropped. It counts as open until then.
pub(super) struct ConnectionPlace {
    connections: Arc<OpenConnections>,
    port: Arc<Port>,
    id: u64,
}

impl OpenConnections {
    pub fn new(budget: Arc<ConnectionBudget>) -> Arc<Self> {
        Arc::new(OpenConnections { budget, list: Mutex::default() })
    }

    /// A place for a new connection. Without room, the connection that is idle longest is asked to
    /// go, and its place is free at once. If the port is full, one of its own connections goes.
    pub(super) fn try_open(
        self: &Arc<Self>,
        port: &Arc<Port>,
        activity: &Arc<Activity>,
        now: Instant,
    ) -> Option<ConnectionPlace> {
        let mut list = self.list.lock();
        while port.is_full() || !self.budget.take_for_connection(port.connection_bytes) {
            list.evict_longest_idle(&self.budget, port.is_full().then_some(port), now)?;
        }
        port.open.fetch_add(1, Ordering::Relaxed);
        ServerCounters::count(&port.counters.open);
        let id = list.next_id;
        list.next_id += 1;
        list.open.insert(id, Open { activity: Arc::clone(activity), port: Arc::clone(port) });
        Some(ConnectionPlace { connections: Arc::clone(self), port: Arc::clone(port), id })
    }

    /// Asks the connection that is idle longest to go, if there is one: the process is short of
    /// something that connections occupy.
    pub(super) fn evict_longest_idle(&self, now: Instant) {
        self.list.lock().evict_longest_idle(&self.budget, None, now);
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.port.counters.open.fetch_sub(1, Ordering::Relaxed);
        let mut list = self.connections.list.lock();
        if !list.remove(self.id, &self.connections.budget) {
            // It was evicted: its place belongs to another connection.
            list.leaving -= 1;
        }
    }
}

impl List {
    /// Whether the connection was there.
    fn remove(&mut self, id: u64, budget: &ConnectionBudget) -> bool {
        let removed = self.open.remove(&id);
        if let Some(Open { port, .. }) = &removed {
            port.open.fetch_sub(1, Ordering::Relaxed);
            budget.give_back_of_connection(port.connection_bytes);
        }
        removed.is_some()
    }

    /// Asks the connection that is idle longest, of this port or of all, to go. `None`: none may.
    fn evict_longest_idle(
        &mut self,
        budget: &ConnectionBudget,
        of: Option<&Arc<Port>>,
        now: Instant,
    ) -> Option<()> {
        if self.leaving >= LEAVING_MAX {
            return None;
        }
        let id = match of {
            Some(port) => port.candidates.lock().next(&self.open, of, now),
            None => self.candidates.next(&self.open, of, now),
        }?;
        self.open.get(&id)?.activity.evicted.notify_one();
        self.remove(id, budget);
        self.leaving += 1;
        Some(())
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// A port without TLS.
    fn port(max_connections: usize, evicted_after: Duration) -> Arc<Port> {
        Port::new(false, Arc::default(), max_connections, evicted_after)
    }

    fn activity(connections: &OpenConnections) -> Arc<Activity> {
        Arc::new(Activity::new(&connections.budget))
    }

    #[test]
    fn the_connection_that_is_idle_longest_makes_room() {
        let few_descriptors = ConnectionBudget::unlimited();
        few_descriptors.max_connections.store(3, Ordering::Relaxed);
        for (budget, max_connections) in [
            (ConnectionBudget::new(4 * OPEN_BYTES, 0), usize::MAX),
            (ConnectionBudget::unlimited(), 3),
            (few_descriptors, usize::MAX),
        ] {
            let port = port(max_connections, EVICTED_AFTER_IDLE);
            the_longest_idle_makes_room(&OpenConnections::new(budget), &port);
        }
    }

    fn the_longest_idle_makes_room(connections: &Arc<OpenConnections>, port: &Arc<Port>) {
        let activities: Vec<_> = (0..3).map(|_| activity(connections)).collect();
        let now = Instant::now();
        let open = |now| connections.try_open(port, &activity(connections), now);
        let places: Vec<_> =
            activities.iter().map(|activity| connections.try_open(port, activity, now)).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(open(now).is_none(), "none is idle for long");
        // The first one is busy, the second was busy lately, and the third was only refused.
        let _busy = activities[0].begin(0);
        activities[1].begin(0).0.answered(true);
        activities[2].begin(0).0.answered(false);
        let later = Instant::now() + EVICTED_AFTER_IDLE;
        let newcomer = open(later).expect("the third makes room");
        let is_evicted =
            activities.iter().map(|activity| activity.evicted.notified().now_or_never().is_some());
        assert_eq!(is_evicted.collect::<Vec<_>>(), [false, false, true]);
        let next = open(later).expect("the second makes room");
        assert!(open(later).is_none(), "one is busy, and the others are new");
        drop((places, newcomer, next));
        connections.budget.set_limits(0, 0);
        assert_eq!(connections.budget.borrowed_bytes(), 0);
    }

    #[test]
    fn a_port_may_evict_at_once() {
        let connections = OpenConnections::new(ConnectionBudget::unlimited());
        let port = port(2, Duration::ZERO);
        let activities: Vec<_> = (0..4).map(|_| activity(&connections)).collect();
        let now = Instant::now();
        let open = |index: usize| connections.try_open(&port, &activities[index], now);
        let _two = [open(0).expect("fits"), open(1).expect("fits")];
        let _busy = activities[0].begin(0);
        let _third = open(2).expect("takes the place of the second");
        let _busy_too = activities[2].begin(0);
        assert!(open(3).is_none(), "all are busy");
    }
}
