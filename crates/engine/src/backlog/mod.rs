//! The pool that the backlogs of all deliveries share: gathers the input of `flow::overload`, and
//! does what it decides.

#[cfg(test)]
mod isolation_tests;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sluice_flow::overload::budget::{self, ShedFirst};
use sluice_flow::overload::{PoolState, RouteView, Sheds, Stamp, disk, isolation};
use sluice_log::{CursorId, GivenUp, Log, MemoryUse};
use sluice_net::server::ConnectionBudget;
use sluice_otlp::Signal;

use crate::delivery::{Delivery, Filling};
use crate::entry::Entry;
use crate::private_memory::{CommonMemory, PrivateMemory};

/// Shortest time between two decisions on what deliveries may shed: backends do not change faster.
const UPDATE_INTERVAL: Duration = Duration::from_millis(10);
/// Rounds of shedding for one request. Then the request is judged by the memory that is free.
const ROUNDS: usize = 8;
/// Segments that were given up are gone within this time, and the log has tried to write again.
const FREED_WITHIN: Duration = Duration::from_millis(500);

/// All deliveries, and the groups of them that share a receiver.
#[derive(Default)]
pub(crate) struct Members {
    deliveries: Vec<Arc<Delivery>>,
    /// Indices of deliveries, by receiver and signal.
    routes: Vec<Vec<usize>>,
    by_cursor: HashMap<(Signal, CursorId), usize>,
    /// Deliveries that a reload removed and that still send their backlog.
    leaving: Vec<Arc<Delivery>>,
}

impl Members {
    /// `routes`: the deliveries of each receiver and signal.
    fn new(routes: impl Iterator<Item = Vec<Arc<Delivery>>>, leaving: Vec<Arc<Delivery>>) -> Self {
        let mut members = Members { leaving, ..Members::default() };
        for route in routes {
            let index_of = |delivery: Arc<Delivery>| {
                *members.by_cursor.entry((delivery.signal, delivery.cursor)).or_insert_with(|| {
                    members.deliveries.push(delivery);
                    members.deliveries.len() - 1
                })
            };
            let indices = route.into_iter().map(index_of).collect();
            members.routes.push(indices);
        }
        members
    }

    /// The routes, with only those deliveries that stay.
    fn routes(
        &self,
        stays: impl Fn(&Arc<Delivery>) -> bool,
    ) -> impl Iterator<Item = Vec<Arc<Delivery>>> {
        self.routes.iter().map(move |route| {
            let deliveries = route.iter().map(|&index| &self.deliveries[index]);
            deliveries.filter(|delivery| stays(delivery)).cloned().collect()
        })
    }

    /// Notes at each delivery the frames that a log has given up for it.
    fn note_given_up(&self, signal: Signal, given_up: Vec<GivenUp<Entry>>) {
        let mut by_delivery: HashMap<usize, Vec<GivenUp<Entry>>> = HashMap::new();
        for given_up in given_up {
            if let Some(&index) = self.by_cursor.get(&(signal, given_up.reader)) {
                by_delivery.entry(index).or_default().push(given_up);
            }
        }
        for (index, given_up) in by_delivery {
            self.deliveries[index].note_given_up(given_up);
        }
    }
}

pub(crate) struct Backlog {
    /// Memory of all logs.
    pub(crate) memory: Arc<MemoryUse>,
    /// Memory of all deliveries beside the logs.
    private: Arc<CommonMemory>,
    /// Memory of results that several deliveries share.
    pub(crate) shared: Arc<PrivateMemory>,
    logs: [Arc<Log<Entry>>; 3],
    /// Set where the logs continue on disk.
    disk: Option<DiskUse>,
    limit_bytes: AtomicU64,
    firm_bytes: AtomicU64,
    members: ArcSwap<Members>,
    /// How the pool fills.
    filling: Mutex<Filling>,
    updated_at: Stamp,
    updating: Mutex<()>,
    /// One at a time sheds: two would both shed for the same excess.
    shedding: Mutex<()>,
    /// Whether the CPU is the bottleneck.
    cpu: Box<dyn Fn() -> bool + Send + Sync>,
    /// They borrow free memory of the pool.
    connections: OnceLock<Weak<ConnectionBudget>>,
}

/// The logs' use of the disk, as of the last look.
struct DiskUse {
    /// Bytes of segments that some delivery needs.
    needed_bytes: AtomicU64,
    /// Bytes that all files of the logs may take in the file system, those in use included.
    room_bytes: AtomicU64,
    /// The same as the last look found it: a file amid its removal is neither there nor free.
    found_bytes: AtomicU64,
    /// When segments were last given up, and the result of [`DiskUse::look`] then.
    shed: Mutex<Option<(Instant, Option<u64>)>>,
}

impl DiskUse {
    /// Before the first look the limit counts.
    fn unknown() -> Self {
        let [room_bytes, found_bytes] = [(); 2].map(|()| AtomicU64::new(u64::MAX));
        let (needed_bytes, shed) = Default::default();
        DiskUse { needed_bytes, room_bytes, found_bytes, shed }
    }

    /// Commits of the logs to which the file system refuses space. None if there are no such logs.
    fn look(&self, logs: &[Arc<Log<Entry>>], free_bytes: Option<u64>) -> Option<u64> {
        let needed_bytes = logs.iter().map(|log| log.needed_disk_bytes()).sum();
        let files_bytes = logs.iter().map(|log| log.stats().disk_bytes).sum();
        let is_refused = |log: &&Arc<Log<_>>| {
            log.trouble().is_some_and(|trouble| trouble.out_of_space && trouble.stops_writing)
        };
        let refused = logs.iter().filter(is_refused).map(|log| log.stats().commits);
        let refused = refused.reduce(|all, commits| all + commits);
        let found_bytes = disk::room_bytes(files_bytes, free_bytes, refused.is_some());
        let before_bytes = self.found_bytes.swap(found_bytes, Ordering::Relaxed);
        let room_bytes = match refused {
            Some(_) => found_bytes,
            None => found_bytes.max(before_bytes),
        };
        self.needed_bytes.store(needed_bytes, Ordering::Relaxed);
        self.room_bytes.store(room_bytes, Ordering::Relaxed);
        refused
    }

    /// A log that is out of space has not yet got the space that was given up for it.
    fn is_freeing(&self, refused: Option<u64>, now: Instant) -> bool {
        let is_awaited = |(at, before): (Instant, Option<u64>)| {
            now < at + FREED_WITHIN && before.is_none_or(|before| Some(before) == refused)
        };
        refused.is_some() && self.shed.lock().is_some_and(is_awaited)
    }
}

impl Backlog {
    pub(crate) fn new(
        memory: Arc<MemoryUse>,
        logs: [Arc<Log<Entry>>; 3],
        limit_bytes: u64,
        cpu: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        let private = Arc::<CommonMemory>::default();
        Arc::new(Backlog {
            memory,
            shared: PrivateMemory::new(private.clone()),
            private,
            disk: logs[0].is_on_disk().then(DiskUse::unknown),
            logs,
            limit_bytes: AtomicU64::new(limit_bytes),
            firm_bytes: AtomicU64::new(0),
            members: ArcSwap::default(),
            filling: Mutex::default(),
            updated_at: Stamp::default(),
            updating: Mutex::new(()),
            shedding: Mutex::new(()),
            cpu: Box::new(cpu),
            connections: OnceLock::new(),
        })
    }

    /// Lets connections borrow free memory of the pool. Borrowed memory counts as used.
    pub(crate) fn lend_to(self: &Arc<Self>, connections: &Arc<ConnectionBudget>) {
        // Set once: an engine has one budget for connections.
        let _ = self.connections.set(Arc::downgrade(connections));
        let backlog = Arc::downgrade(self);
        connections.set_lender(move || backlog.upgrade().map_or(0, |it| it.lendable_bytes()));
    }

    /// Free memory, of which connections and large work may take some for a time. With a directory
    /// the pool is the disk's, and there is no memory to lend.
    pub(crate) fn lendable_bytes(&self) -> usize {
        if self.disk.is_some() {
            return 0;
        }
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        budget::lendable_bytes(limit_bytes, self.held_in_memory_bytes()) as usize
    }

    /// Memory of all backlogs: the logs' frames, and what deliveries keep beside them.
    fn held_in_memory_bytes(&self) -> u64 {
        self.memory.stored_bytes.get() + self.private.used_bytes()
    }

    pub(crate) fn set_limit(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// The deliveries of each receiver and signal from now on (reload). Those that are `gone` stay
    /// members, beside those with which they shared a receiver, until they have [`Backlog::left`].
    pub(crate) fn set_routes(&self, routes: &[Arc<[Arc<Delivery>]>], gone: &[Arc<Delivery>]) {
        self.members.rcu(|before| {
            let leaving: Vec<_> = before.leaving.iter().chain(gone).cloned().collect();
            let stays = |delivery: &Arc<Delivery>| {
                routes.iter().map(|route| &**route).chain([&*leaving]).any(|it| has(it, delivery))
            };
            let old = before.routes(stays).filter(|old| leaving.iter().any(|it| has(old, it)));
            let routes: Vec<_> = routes.iter().map(|route| route.to_vec()).chain(old).collect();
            Members::new(routes.into_iter(), leaving)
        });
    }

    pub(crate) fn leaving(&self) -> Vec<Arc<Delivery>> {
        self.members.load().leaving.clone()
    }

    /// A delivery that a reload removed has ended, and occupies nothing any more.
    pub(crate) fn left(&self, delivery: &Arc<Delivery>) {
        self.members.rcu(|before| {
            let stays = |other: &Arc<Delivery>| !Arc::ptr_eq(other, delivery);
            let leaving = before.leaving.iter().filter(|other| stays(other)).cloned().collect();
            Members::new(before.routes(stays), leaving)
        });
    }

    /// Charges the memory that a delivery takes beside the log.
    pub(crate) fn private_memory(&self) -> Arc<PrivateMemory> {
        PrivateMemory::new(self.private.clone())
    }

    pub(crate) fn is_cpu_bound(&self) -> bool {
        (self.cpu)()
    }

    pub(crate) fn state(&self) -> PoolState {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let (used_bytes, room_bytes) = match &self.disk {
            Some(disk) => {
                let of = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
                (of(&disk.needed_bytes), of(&disk.room_bytes).min(limit_bytes))
            }
            None => {
                let connections = self.connections.get().and_then(Weak::upgrade);
                let borrowed_bytes = connections.map_or(0, |it| it.borrowed_bytes() as u64);
                (self.held_in_memory_bytes() + borrowed_bytes, limit_bytes)
            }
        };
        PoolState {
            limit_bytes,
            room_bytes,
            used_bytes,
            firm_bytes: self.firm_bytes.load(Ordering::Relaxed).min(used_bytes),
            deliveries: self.members.load().deliveries.len(),
        }
    }

    /// Bytes a second by which the pool fills; 0 if it does not.
    pub(crate) fn bytes_per_s(&self, pool: &PoolState, now: Instant) -> f64 {
        self.filling.lock().bytes_per_s(now, pool.used_bytes)
    }

    /// Decides anew what each delivery may shed, unless that was done a moment ago.
    pub(crate) fn update_sheds(&self, now: Instant) {
        if !self.updated_at.is_within(UPDATE_INTERVAL, now) {
            self.update_sheds_at_once(now);
        }
    }

    /// To be called where a delivery may shed from now on: no other one is to shed in its place.
    pub(crate) fn update_sheds_at_once(&self, now: Instant) {
        // Each one looks at newer states than the one before.
        let _alone = self.updating.lock();
        self.updated_at.set(now);
        let members = self.members.load();
        let is_cpu_bound = self.is_cpu_bound();
        let states: Vec<_> =
            members.deliveries.iter().map(|delivery| delivery.state(now, is_cpu_bound)).collect();
        let mut sheds = vec![Sheds::Nothing; states.len()];
        for route in &members.routes {
            let view = RouteView::of(route.iter().map(|&index| states[index]));
            for &index in route {
                sheds[index] = sheds[index].max(isolation::sheds(&states[index], &view));
            }
        }
        let pool = self.state();
        let mut pinned = Vec::with_capacity(states.len());
        for ((delivery, state), sheds) in members.deliveries.iter().zip(&states).zip(sheds) {
            delivery.gauges.allow(sheds);
            delivery.gauges.reserve(pool.reserve_bytes(state));
            pinned.push((sheds, state.pinned_bytes(), delivery.alone_bytes()));
        }
        let firm_bytes = budget::firm_bytes(pool.used_bytes, pinned.into_iter());
        self.firm_bytes.store(firm_bytes, Ordering::Relaxed);
    }

    /// Sheds until `arriving_bytes` fit below the high-water mark, as far as deliveries may shed.
    /// On disk the log's own thread does it.
    pub(crate) fn make_room(&self, arriving_bytes: u64, now: Instant) -> PoolState {
        let pool = self.state();
        if self.disk.is_some() || pool.to_shed_bytes(arriving_bytes) == 0 {
            return pool;
        }
        let _alone = self.shedding.lock();
        self.update_sheds(now);
        let members = self.members.load();
        let mut is_exhausted = vec![false; members.deliveries.len()];
        for _ in 0..ROUNDS {
            let pool = self.state();
            // Bytes that tasks were asked to shed count as free: no other delivery sheds for them.
            let shedding_bytes = members.deliveries.iter().map(|it| it.shedding_bytes()).sum();
            let wanted_bytes = pool.to_shed_bytes(arriving_bytes).saturating_sub(shedding_bytes);
            if wanted_bytes == 0 {
                break;
            }
            let candidates =
                members.deliveries.iter().zip(0..).filter(|(_, it)| !is_exhausted[*it]);
            let candidates = candidates.filter(|(it, _)| it.gauges.is_beyond_reserve());
            let candidates =
                candidates.map(|(it, index)| (index, it.gauges.may_shed(), it.alone_bytes()));
            let else_alone = match budget::shed_first(&pool, candidates) {
                ShedFirst::Alone(index) => Some(index),
                ShedFirst::Together { .. } if self.shed_together(&members, wanted_bytes) > 0 => {
                    continue;
                }
                ShedFirst::Together { else_alone } => else_alone,
            };
            let Some(index) = else_alone else { break };
            is_exhausted[index] = members.deliveries[index].shed_alone(wanted_bytes) == 0;
        }
        self.state()
    }

    /// Late deliveries give up frames that are not on disk, as far as they may: no sender is to
    /// wait for a disk that does not work.
    pub(crate) fn give_up_unwritten(&self, deliveries: &[Arc<Delivery>], now: Instant) {
        self.update_sheds(now);
        let is_cpu_bound = self.is_cpu_bound();
        let late = deliveries.iter().filter(|it| disk::is_late(&it.state(now, is_cpu_bound)));
        late.for_each(|delivery| delivery.drop_unwritten(0));
    }

    /// To be called a few times a second: looks at the disk, and notes how backlogs grow.
    /// `free_bytes`: free bytes of the file system, if they are known.
    pub(crate) fn tick(&self, free_bytes: Option<u64>, now: Instant) {
        let members = self.members.load();
        self.filling.lock().note(now, self.state().used_bytes);
        for delivery in &members.deliveries {
            delivery.stats.forecast.lock().note(now, &delivery.lag(now));
        }
        if let Some(disk) = &self.disk {
            let refused = disk.look(&self.logs, free_bytes);
            if !disk.is_freeing(refused, now) && self.make_room_on_disk(&members, now) {
                *disk.shed.lock() = Some((now, refused));
            }
        }
    }

    /// Gives up the oldest segments of the logs that take the most. They are gone a moment later: a
    /// call before that asks for the same segments. False if there was nothing to do.
    fn make_room_on_disk(&self, members: &Members, now: Instant) -> bool {
        let (wanted_bytes, mut freed_bytes) = (self.state().to_shed_bytes(0), 0);
        if wanted_bytes == 0 {
            return false;
        }
        self.update_sheds(now);
        let mut logs: Vec<_> = Signal::ALL.into_iter().zip(&self.logs).collect();
        logs.sort_by_key(|(_, log)| std::cmp::Reverse(log.needed_disk_bytes()));
        for (signal, log) in logs {
            if freed_bytes < wanted_bytes {
                let (of_log_bytes, given_up) = log.shed_segments(wanted_bytes - freed_bytes);
                members.note_given_up(signal, given_up);
                freed_bytes += of_log_bytes;
            }
        }
        freed_bytes > 0
    }

    /// Sheds frames for all deliveries that wait for them. Returns the bytes that this frees.
    fn shed_together(&self, members: &Members, wanted_bytes: u64) -> u64 {
        let mut freed_bytes = 0;
        for (signal, log) in Signal::ALL.into_iter().zip(&self.logs) {
            let before = log.stored_bytes();
            let given_up = log.shed_together(wanted_bytes - freed_bytes);
            if given_up.is_empty() {
                continue;
            }
            members.note_given_up(signal, given_up);
            freed_bytes += before.saturating_sub(log.stored_bytes()).max(1);
            if freed_bytes >= wanted_bytes {
                break;
            }
        }
        freed_bytes
    }
}

fn has(deliveries: &[Arc<Delivery>], delivery: &Arc<Delivery>) -> bool {
    deliveries.iter().any(|other| Arc::ptr_eq(other, delivery))
}
