//! The open connections of a process, and which of them has to go when there is no room.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::activity::Activity;

/// A connection is evicted only after so long without a request: a burst of new connections must not
/// chase each other out.
pub(super) const EVICTED_AFTER_IDLE: Duration = Duration::from_secs(1);
/// Connections that were evicted and are not closed yet, at most: they still hold their memory.
const LEAVING_MAX: usize = 64;
/// All connections are looked through for so many candidates at a time.
const CANDIDATES: usize = 64;
/// If none was found, all are looked through again only after this time.
const SEARCH_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Open {
    activity: Arc<Activity>,
    bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct OpenConnections {
    next_id: u64,
    open: HashMap<u64, Open>,
    /// The longest idle ones when they were last looked for, the longest first.
    candidates: VecDeque<u64>,
    leaving: usize,
    searched_in_vain_at: Option<Instant>,
}

impl OpenConnections {
    pub(super) fn insert(&mut self, activity: Arc<Activity>, bytes: usize) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.open.insert(id, Open { activity, bytes });
        id
    }

    /// A connection is closed. Returns the bytes that it was still charged with.
    pub(super) fn remove(&mut self, id: u64) -> usize {
        if let Some(open) = self.open.remove(&id) {
            return open.bytes;
        }
        self.leaving -= 1;
        0
    }

    /// Asks the connection that is idle longest to go. Returns the bytes that it was charged with.
    pub(super) fn evict_longest_idle(&mut self, now: Instant) -> Option<usize> {
        if self.leaving >= LEAVING_MAX {
            return None;
        }
        loop {
            if self.candidates.is_empty() {
                self.search(now);
            }
            let id = self.candidates.pop_front()?;
            let is_idle = |open: &Open| open.activity.idle_for(now).is_some_and(|idle| idle >= EVICTED_AFTER_IDLE);
            if self.open.get(&id).is_some_and(is_idle) {
                let Open { activity, bytes } = self.open.remove(&id)?;
                activity.evict();
                self.leaving += 1;
                return Some(bytes);
            }
        }
    }

    fn search(&mut self, now: Instant) {
        if self.searched_in_vain_at.is_some_and(|at| now - at < SEARCH_INTERVAL) {
            return;
        }
        let idle = self.open.iter().filter_map(|(id, open)| Some((open.activity.idle_for(now)?, *id)));
        let mut idle: Vec<_> = idle.filter(|(idle, _)| *idle >= EVICTED_AFTER_IDLE).collect();
        idle.sort_unstable_by(|a, b| b.cmp(a));
        self.candidates.extend(idle.iter().take(CANDIDATES).map(|(_, id)| *id));
        self.searched_in_vain_at = self.candidates.is_empty().then_some(now);
    }
}
