//! Senders, deliveries and backends in virtual time, over the real log and the real decisions:
//! hours in a moment.

use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use bytes::Bytes;
use sluice_flow::overload::admission::{Arrival, Patience};
use sluice_flow::overload::{BackendHealth, Policy, Workload};
use sluice_flow::{Frame, Payload};
use sluice_log::Next;

use super::*;
use crate::delivery::{Bounds, DeadLetters, DeliveryId, SharedMemory};
use crate::entry::Origin;
use crate::hop::Known;
use crate::intake::Route;
use crate::receiving::ReceivingBudget;
use crate::shared_work::SharedWorkMemory;

pub(super) const FRAME_BYTES: u64 = 10_000;
pub(super) const POOL_BYTES: u64 = 200 * FRAME_BYTES;
pub(super) const TICK: Duration = Duration::from_millis(10);
/// Beyond the end of every run.
const NEVER: u64 = u64::MAX / 2;
/// Requests that a backend has in flight at most.
const CONCURRENCY: usize = 4;
/// An unbroken run of this many failures is an outage.
const FAILURES_OF_AN_OUTAGE: u32 = 32;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Backend {
    /// Answers after this many ticks.
    Answers(u64),
    /// Refuses at once.
    Dead,
    /// Never answers.
    Silent,
    /// Answers at the next tick, and refuses this percentage of what it is sent.
    Refuses(u8),
    /// Answers at once, but the delivery's own processors take this many ticks for each frame.
    Computes(u64),
}

impl Backend {
    /// Ticks until it answers.
    pub(super) fn ticks(self) -> u64 {
        match self {
            Backend::Answers(ticks) | Backend::Computes(ticks) => ticks,
            Backend::Refuses(_) => 1,
            Backend::Dead => 0,
            Backend::Silent => NEVER,
        }
    }
}

pub(super) struct Simulated {
    pub delivery: Arc<Delivery>,
    pub backend: Backend,
    /// Requests in flight at most.
    pub concurrency: usize,
    /// Offsets with the tick at which they are answered.
    pub under_way: Vec<(u64, u64)>,
    failures: u32,
    /// Frames that the backend took: the offset, and the tick.
    pub taken: Vec<(u64, u64)>,
    dropped_before: u64,
    workload: Workload,
    random: fastrand::Rng,
}

/// A sender that waits for its answer before it sends again, or sends at a rate of its own.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    pub route: usize,
    /// Ticks from one request to the next; none: as soon as it is answered.
    pub every: Option<u64>,
    next_at: u64,
    /// When its rate has the next request, and when it sends none any more.
    due_at: u64,
    until: u64,
    waits: Option<(Instant, Patience)>,
    /// Deliveries for which it waits, and since when.
    in_the_way: Vec<(CursorId, Instant)>,
    delayed: Option<(Instant, CursorId, u64)>,
    pub accepted: u64,
    pub refused: u64,
    /// The longest that it took from the first attempt at a request until it was accepted, in
    /// ticks.
    pub longest: u64,
    /// The longest that one attempt waited until it was accepted or refused.
    pub longest_attempt: Duration,
    pub wants_since: Option<u64>,
}

pub(super) struct World {
    began: Instant,
    pub tick: u64,
    is_cpu_bound: Arc<AtomicBool>,
    /// Requests that can be received or answered in a tick.
    pub cpu: Option<usize>,
    pub backlog: Arc<Backlog>,
    pub routes: Vec<Route>,
    pub deliveries: Vec<Simulated>,
    pub senders: Vec<Sender>,
    pub entry_memory: Arc<SharedWorkMemory>,
    pub most_used_bytes: u64,
    random: fastrand::Rng,
    /// Accepted requests: the tick, and the sender.
    pub history: Vec<(u64, usize)>,
}

pub(super) fn sender(route: usize, every: Option<u64>) -> Sender {
    Sender {
        route,
        every,
        next_at: 0,
        due_at: 0,
        until: NEVER,
        waits: None,
        in_the_way: Vec::new(),
        delayed: None,
        accepted: 0,
        refused: 0,
        longest: 0,
        longest_attempt: Duration::ZERO,
        wants_since: None,
    }
}

impl World {
    /// `routes`: the deliveries of each receiver.
    pub(super) fn new(routes: &[&[(Policy, Backend)]], senders: Vec<Sender>) -> World {
        let memory = Arc::<MemoryUse>::default();
        let logs = Signal::ALL.map(|_| Arc::new(Log::in_memory(memory.clone())));
        let is_cpu_bound = Arc::<AtomicBool>::default();
        let cpu = is_cpu_bound.clone();
        let backlog =
            Backlog::new(memory, logs.clone(), POOL_BYTES, move || cpu.load(Ordering::Relaxed));
        let receiving = ReceivingBudget::new(10 * FRAME_BYTES as usize);
        let (mut deliveries, mut made, began) = (Vec::new(), Vec::new(), Instant::now());
        for (index, route) in routes.iter().enumerate() {
            let log = logs[index % 3].clone();
            let signal = Signal::ALL[index % 3];
            let of_route: Vec<_> = (route.iter().enumerate())
                .map(|(number, &(policy, backend))| {
                    let id =
                        DeliveryId { pipeline: format!("{index}"), exporter: format!("{number}") };
                    let delivery = Delivery::new(
                        id,
                        signal,
                        log.clone(),
                        DeadLetters::in_memory(0),
                        SharedMemory {
                            receiving: receiving.clone(),
                            private: backlog.private_memory(),
                            sending: Arc::default(),
                        },
                        false,
                    );
                    delivery.set_bounds(Bounds { policy, limit_bytes: POOL_BYTES }, u64::MAX);
                    let delivery = Arc::new(delivery);
                    deliveries.push(Simulated {
                        delivery: delivery.clone(),
                        backend,
                        concurrency: CONCURRENCY,
                        under_way: Vec::new(),
                        failures: 0,
                        taken: Vec::new(),
                        dropped_before: 0,
                        workload: Workload::starting(began),
                        random: fastrand::Rng::with_seed(7),
                    });
                    delivery
                })
                .collect();
            made.push(Route {
                prefix: Vec::new(),
                origin: Arc::new(Origin::default()),
                log,
                known: Arc::new(Known::in_memory(Signal::Traces, Default::default())),
                backlog: backlog.clone(),
                readers: of_route.iter().map(|delivery| delivery.cursor).collect(),
                deliveries: of_route.into(),
                awaited: Arc::default(),
                disk: None,
                passes_through: Vec::new(),
                names_ranges: false,
                metadata_keys: Vec::new(),
            });
        }
        let routes: Vec<_> = made.iter().map(|route| route.deliveries.clone()).collect();
        backlog.set_routes(&routes, &[]);
        World {
            began,
            tick: 0,
            is_cpu_bound,
            cpu: None,
            backlog,
            routes: made,
            deliveries,
            senders,
            entry_memory: Arc::new(SharedWorkMemory::new(0, Arc::default())),
            most_used_bytes: 0,
            random: fastrand::Rng::with_seed(7),
            history: Vec::new(),
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.began + TICK * self.tick as u32
    }

    pub(super) fn run(&mut self, time: Duration) {
        let until = self.tick + (time.as_millis() / TICK.as_millis()) as u64;
        while self.tick < until {
            let mut cpu_left = self.cpu.unwrap_or(usize::MAX);
            let (first, count) = (self.random.usize(..), self.deliveries.len());
            for index in 0..count {
                self.deliver((first % count + index) % count, &mut cpu_left);
            }
            let count = self.senders.len();
            for index in 0..count {
                if cpu_left > 0 {
                    cpu_left -= usize::from(self.send((first % count + index) % count));
                }
            }
            self.note_drops();
            self.is_cpu_bound.store(cpu_left == 0, Ordering::Relaxed);
            let used_bytes = self.backlog.state().used_bytes;
            assert!(used_bytes <= POOL_BYTES + FRAME_BYTES, "{used_bytes} of {POOL_BYTES}");
            self.most_used_bytes = self.most_used_bytes.max(used_bytes);
            self.tick += 1;
        }
    }

    /// Stamps drops with virtual time: the delivery itself knows only that of the machine.
    fn note_drops(&mut self) {
        let now = self.now();
        for simulated in &mut self.deliveries {
            let dropped = simulated.delivery.stats.dropped_items.load(Ordering::Relaxed);
            if dropped > std::mem::replace(&mut simulated.dropped_before, dropped) {
                simulated.delivery.health.shed.set(now);
            }
        }
    }

    /// The own limit of a delivery, in frames.
    pub(super) fn limit(&self, index: usize, frames: u64) {
        let delivery = &self.deliveries[index].delivery;
        let limit_bytes = frames * FRAME_BYTES;
        delivery.set_bounds(Bounds { limit_bytes, ..delivery.bounds() }, u64::MAX);
    }

    /// Requests in flight are answered at once, unless it never answers.
    pub(super) fn becomes(&mut self, index: usize, backend: Backend) {
        let answered_at = if backend == Backend::Silent { NEVER } else { self.tick };
        let simulated = &mut self.deliveries[index];
        simulated.backend = backend;
        simulated.under_way.iter_mut().for_each(|(_, at)| *at = answered_at);
    }

    /// No sender sends any more; what is under way arrives.
    pub(super) fn end_load(&mut self) {
        for sender in &mut self.senders {
            sender.until = self.tick;
            sender.next_at = if sender.every.is_none() { NEVER } else { sender.next_at };
        }
        self.run(Duration::from_secs(60));
    }

    fn deliver(&mut self, index: usize, cpu_left: &mut usize) {
        let (now, tick) = (self.now(), self.tick);
        let simulated = &mut self.deliveries[index];
        let delivery = simulated.delivery.clone();
        let health: &BackendHealth = &delivery.health;
        // There is no task, and nothing waits for a retry.
        delivery.note_shed(false);
        let concurrency = match simulated.backend {
            Backend::Computes(_) => {
                if !simulated.under_way.is_empty() {
                    health.note_work(&mut simulated.workload, now - TICK, now);
                }
                1
            }
            _ => simulated.concurrency,
        };
        let due = |&(_, at): &(u64, u64)| at <= tick;
        while let Some(position) =
            simulated.under_way.iter().position(due).filter(|_| *cpu_left > 0)
        {
            *cpu_left -= 1;
            let (offset, _) = simulated.under_way[position];
            let is_taken = match simulated.backend {
                Backend::Answers(_) | Backend::Computes(_) => true,
                Backend::Refuses(percent) => simulated.random.u8(..100) >= percent,
                Backend::Dead | Backend::Silent => false,
            };
            health.note_answer(is_taken, now);
            if is_taken {
                simulated.under_way.swap_remove(position);
                simulated.failures = 0;
                simulated.taken.push((offset, tick));
                delivery.log.resolve(delivery.cursor, offset);
            } else {
                simulated.failures += 1;
                simulated.under_way[position].1 = tick + 10;
            }
            health.note_outage(simulated.failures >= FAILURES_OF_AN_OUTAGE);
        }
        while simulated.under_way.len() < concurrency {
            let Next::Entry(offset, _) = delivery.log.read(delivery.cursor) else { break };
            if simulated.under_way.is_empty() {
                health.note_begun(now);
            }
            simulated.under_way.push((offset, tick + simulated.backend.ticks()));
        }
        if simulated.under_way.is_empty() {
            health.note_idle();
        }
    }

    /// True if that took CPU time.
    fn send(&mut self, index: usize) -> bool {
        let (now, tick) = (self.now(), self.tick);
        let sender = &mut self.senders[index];
        let route = &self.routes[sender.route];
        if let Some((began, cursor, lag_bytes)) = sender.delayed {
            match route.delays(10 * FRAME_BYTES, now) {
                None => sender.delayed = None,
                Some(delivery) if !Patience::from(began).may_be_paced(now) => {
                    let lag_bytes = if cursor == delivery.cursor { lag_bytes } else { u64::MAX };
                    route.note_slowed(delivery, began, lag_bytes, now);
                    sender.delayed = None;
                }
                Some(_) if sender.every.is_none() => return false,
                Some(_) => {}
            }
        }
        if tick < sender.next_at || sender.due_at >= sender.until {
            return false;
        }
        sender.wants_since.get_or_insert(tick);
        let (since, patience) = *sender.waits.get_or_insert((now, Patience::from(now)));
        sender.longest_attempt = sender.longest_attempt.max(now - since);
        loop {
            let may_be_paced = patience.may_be_paced(now);
            let arrival = Arrival { may_be_paced, ..route.arrival(FRAME_BYTES) };
            if route.admit(arrival, now).is_ok() {
                break;
            }
            if !route.note_in_the_way(&mut sender.in_the_way, arrival, now) {
                if patience.is_over(now) {
                    sender.refused += 1;
                    sender.waits = None;
                    sender.in_the_way.clear();
                    sender.next_at = tick + 100;
                    sender.due_at = sender.due_at.max(sender.next_at);
                }
                return false;
            }
        }
        let entry = entry(&self.entry_memory);
        let charge = entry.charge();
        let appended = route.log.append(Arc::new(entry), charge, &route.readers);
        if route.appended(appended, now)
            && sender.delayed.is_none()
            && let Some(delivery) = route.delays(10 * FRAME_BYTES, now)
        {
            sender.delayed = Some((now, delivery.cursor, delivery.lag_bytes()));
        }
        sender.accepted += 1;
        sender.waits = None;
        sender.in_the_way.clear();
        sender.longest = sender.longest.max(tick - sender.wants_since.take().unwrap_or(tick));
        // One with a rate of its own makes up for the time that it waited, a request a tick.
        sender.due_at += sender.every.unwrap_or(0);
        sender.next_at = sender.due_at.max(tick + 1);
        self.history.push((tick, index));
        true
    }

    pub(super) fn dropped(&self, index: usize) -> u64 {
        self.deliveries[index].delivery.stats.dropped_items.load(Ordering::Relaxed)
    }

    pub(super) fn accepted(&self) -> u64 {
        self.senders.iter().map(|sender| sender.accepted).sum()
    }

    pub(super) fn refused(&self) -> u64 {
        self.senders.iter().map(|sender| sender.refused).sum()
    }

    /// Everything that was accepted on the delivery's route was taken, waits or was dropped.
    pub(super) fn assert_accounted(&self, index: usize, accepted: u64) {
        let simulated = &self.deliveries[index];
        let held = simulated.delivery.log.held(simulated.delivery.cursor).frames;
        assert_eq!(
            simulated.taken.len() as u64 + held + self.dropped(index),
            accepted,
            "delivery {index}"
        );
    }
}

pub(super) fn entry(memory: &Arc<SharedWorkMemory>) -> Entry {
    static BYTES: [u8; FRAME_BYTES as usize - 512] = [0; FRAME_BYTES as usize - 512];
    let frame = Frame {
        signal: Signal::Traces,
        items: 1,
        payload: Payload::identity(Bytes::from_static(&BYTES)),
        receiver: 0,
        received_wall: SystemTime::now(),
        metadata: Arc::default(),
    };
    Entry::new(frame, Arc::default(), None, memory.clone())
}
