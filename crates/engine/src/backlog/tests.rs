//! Senders, deliveries and backends in virtual time, over the real log and the real decisions:
//! hours in a moment.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::SystemTime;

use bytes::Bytes;
use proptest::prelude::*;
use sluice_flow::overload::admission::{Obstacle, Patience};
use sluice_flow::overload::{BackendHealth, Policy, Workload};
use sluice_flow::{Frame, Payload};
use sluice_log::Next;

use super::*;
use crate::delivery::{Bounds, DeadLetters, DeliveryId};
use crate::entry::Origin;
use crate::intake::Route;
use crate::receiving::ReceivingBudget;
use crate::shared_work::SharedWorkMemory;

const FRAME_BYTES: u64 = 10_000;
const POOL_BYTES: u64 = 200 * FRAME_BYTES;
const TICK: Duration = Duration::from_millis(10);
/// Requests that a backend has in flight at most.
const CONCURRENCY: usize = 4;
/// An unbroken run of this many failures is an outage.
const FAILURES_OF_AN_OUTAGE: u32 = 32;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Backend {
    /// Answers after this many ticks.
    Answers(u64),
    /// Refuses at once.
    Dead,
    /// Never answers.
    Silent,
    /// Answers at once, but the delivery's own processors take this many ticks for each frame.
    Computes(u64),
}

struct Simulated {
    delivery: Arc<Delivery>,
    backend: Backend,
    /// Offsets with the tick at which they are answered.
    under_way: Vec<(u64, u64)>,
    failures: u32,
    taken: u64,
    workload: Workload,
}

/// A sender that waits for its answer before it sends again, or sends at a rate of its own.
#[derive(Clone, Debug)]
struct Sender {
    route: usize,
    /// Ticks from one request to the next; none: as soon as it is answered.
    every: Option<u64>,
    next_at: u64,
    waits: Option<Patience>,
    delayed: Option<(Instant, CursorId, u64)>,
    accepted: u64,
    refused: u64,
    /// The longest that it took from the first attempt at a request until it was accepted, in
    /// ticks.
    longest: u64,
    wants_since: Option<u64>,
}

struct World {
    began: Instant,
    tick: u64,
    is_cpu_bound: Arc<AtomicBool>,
    /// Requests that can be received or answered in a tick.
    cpu: Option<usize>,
    backlog: Arc<Backlog>,
    routes: Vec<Route>,
    deliveries: Vec<Simulated>,
    senders: Vec<Sender>,
    entry_memory: Arc<SharedWorkMemory>,
    most_used_bytes: u64,
    random: fastrand::Rng,
    /// Accepted requests: the tick, and the sender.
    history: Vec<(u64, usize)>,
}

fn sender(route: usize, every: Option<u64>) -> Sender {
    Sender {
        route,
        every,
        next_at: 0,
        waits: None,
        delayed: None,
        accepted: 0,
        refused: 0,
        longest: 0,
        wants_since: None,
    }
}

impl World {
    /// `routes`: the deliveries of each receiver.
    fn new(routes: &[&[(Policy, Backend)]], senders: Vec<Sender>) -> World {
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
                        receiving.clone(),
                        backlog.private_memory(),
                        false,
                    );
                    delivery.set_bounds(
                        Bounds { policy, is_best_effort: false, limit_bytes: POOL_BYTES },
                        u64::MAX,
                    );
                    let delivery = Arc::new(delivery);
                    let (under_way, failures, taken) = (Vec::new(), 0, 0);
                    deliveries.push(Simulated {
                        delivery: delivery.clone(),
                        backend,
                        under_way,
                        failures,
                        taken,
                        workload: Workload::starting(began),
                    });
                    delivery
                })
                .collect();
            made.push(Route {
                prefix: Vec::new(),
                origin: Arc::new(Origin::default()),
                log,
                backlog: backlog.clone(),
                readers: of_route.iter().map(|delivery| delivery.cursor).collect(),
                deliveries: of_route.into(),
                awaited: Arc::default(),
                disk: None,
                passes_through: Vec::new(),
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

    fn now(&self) -> Instant {
        self.began + TICK * self.tick as u32
    }

    fn run(&mut self, time: Duration) {
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
            self.is_cpu_bound.store(cpu_left == 0, Ordering::Relaxed);
            let used_bytes = self.backlog.state().used_bytes;
            assert!(used_bytes <= POOL_BYTES + FRAME_BYTES, "{used_bytes} of {POOL_BYTES}");
            self.most_used_bytes = self.most_used_bytes.max(used_bytes);
            self.tick += 1;
        }
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
            _ => CONCURRENCY,
        };
        let due = |&(_, at): &(u64, u64)| at <= tick;
        while let Some(position) =
            simulated.under_way.iter().position(due).filter(|_| *cpu_left > 0)
        {
            *cpu_left -= 1;
            let (offset, _) = simulated.under_way[position];
            let is_taken = matches!(simulated.backend, Backend::Answers(_) | Backend::Computes(_));
            health.note_answer(is_taken, now);
            if is_taken {
                simulated.under_way.swap_remove(position);
                simulated.failures = 0;
                simulated.taken += 1;
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
            let answered_at = match simulated.backend {
                Backend::Answers(ticks) | Backend::Computes(ticks) => tick + ticks,
                Backend::Dead => tick,
                Backend::Silent => u64::MAX,
            };
            simulated.under_way.push((offset, answered_at));
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
        if tick < sender.next_at {
            return false;
        }
        sender.wants_since.get_or_insert(tick);
        let patience = *sender.waits.get_or_insert(Patience::from(now));
        match route.admit(FRAME_BYTES, FRAME_BYTES, patience.may_be_paced(now), now) {
            Ok(()) => {}
            Err(obstacle) => {
                if patience.is_over(now) {
                    if let Obstacle::Delivery(delivery) = obstacle {
                        route.note_slowed(delivery, now, 0, now);
                    }
                    sender.refused += 1;
                    sender.waits = None;
                    sender.next_at = tick + 100;
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
        sender.longest = sender.longest.max(tick - sender.wants_since.take().unwrap_or(tick));
        sender.next_at = sender
            .every
            .map_or(tick + 1, |every| sender.next_at.max(tick.saturating_sub(every)) + every);
        self.history.push((tick, index));
        true
    }

    fn dropped(&self, index: usize) -> u64 {
        self.deliveries[index].delivery.stats.dropped_items.load(Ordering::Relaxed)
    }

    fn accepted(&self) -> u64 {
        self.senders.iter().map(|sender| sender.accepted).sum()
    }

    fn refused(&self) -> u64 {
        self.senders.iter().map(|sender| sender.refused).sum()
    }

    /// Everything that was accepted on the delivery's route was taken, waits or was dropped.
    fn assert_accounted(&self, index: usize, accepted: u64) {
        let simulated = &self.deliveries[index];
        let held = simulated.delivery.log.held(simulated.delivery.cursor).frames;
        assert_eq!(simulated.taken + held + self.dropped(index), accepted, "delivery {index}");
    }
}

fn entry(memory: &Arc<SharedWorkMemory>) -> Entry {
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

const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE: Duration = Duration::from_secs(60);
const QUICK: Backend = Backend::Answers(1);

/// 25 requests a second.
fn steady(route: usize) -> Sender {
    sender(route, Some(4))
}

#[test]
fn a_dead_backend_beside_healthy_ones_for_hours_changes_nothing_for_them() {
    let route =
        |third| [(Policy::Isolate, QUICK), (Policy::Isolate, QUICK), (Policy::Isolate, third)];
    let mut healthy = World::new(&[&route(QUICK)], vec![steady(0)]);
    healthy.run(2 * HOUR);
    for backend in [Backend::Dead, Backend::Silent] {
        let mut world = World::new(&[&route(backend)], vec![steady(0)]);
        world.run(2 * HOUR);
        assert!(
            world.history == healthy.history,
            "every request is accepted when it would have been"
        );
        assert_eq!((world.dropped(0), world.dropped(1), world.refused()), (0, 0, 0));
        assert!(world.dropped(2) > 170_000 && world.most_used_bytes > POOL_BYTES * 3 / 4);
        (0..3).for_each(|index| world.assert_accounted(index, world.accepted()));
        // The newest requests are still there when the backend is well again.
        world.deliveries[2].backend = QUICK;
        world.deliveries[2].under_way.iter_mut().for_each(|(_, at)| *at = 0);
        let dropped = world.dropped(2);
        world.run(MINUTE);
        assert_eq!((world.dropped(2), world.deliveries[2].delivery.lag_bytes()), (dropped, 0));
    }
}

#[test]
fn of_fifty_dead_backends_the_healthy_one_notices_nothing() {
    let mut route = vec![(Policy::Isolate, Backend::Dead); 51];
    route[17].1 = QUICK;
    let mut world = World::new(&[&route], vec![steady(0)]);
    world.run(MINUTE * 10);
    assert_eq!((world.dropped(17), world.refused(), world.senders[0].longest), (0, 0, 0));
    assert!(world.dropped(0) > 10_000);
    (0..51).for_each(|index| world.assert_accounted(index, world.accepted()));
}

/// Scenario: a reload removes a delivery that is behind, and later another one is behind too.
/// Guarantee: the removed one sheds as its policy says until it has ended, and what it drops is
/// counted.
#[test]
fn a_delivery_that_a_reload_removes_still_gives_way() {
    for policy in [Policy::DropOldest, Policy::Isolate] {
        let fed: &[_] = &[(Policy::Isolate, QUICK), (policy, Backend::Dead)];
        let other: &[_] = &[(Policy::Backpressure, Backend::Dead)];
        let mut world = World::new(&[fed, other], vec![steady(0)]);
        world.run(MINUTE);
        let (gone, dropped) = (world.deliveries[1].delivery.clone(), world.dropped(1));
        assert!(gone.lag_bytes() > POOL_BYTES / 2);

        let kept: Arc<[_]> = Arc::new([world.deliveries[0].delivery.clone()]);
        world.routes[0].readers = kept.iter().map(|delivery| delivery.cursor).collect();
        world.routes[0].deliveries = kept.clone();
        let routes = [kept, world.routes[1].deliveries.clone()];
        world.backlog.set_routes(&routes, std::slice::from_ref(&gone));
        world.senders.push(steady(1));
        world.run(MINUTE);
        let share_bytes = world.backlog.state().fair_share_bytes();
        let behind_bytes = world.deliveries[2].delivery.lag_bytes();
        assert!(behind_bytes + FRAME_BYTES >= share_bytes, "{behind_bytes} of {share_bytes}");
        assert!(world.dropped(1) > dropped && world.senders[0].refused == 0);
        assert_eq!(world.backlog.state().deliveries, 3);

        world.backlog.left(&gone);
        assert_eq!(world.backlog.state().deliveries, 2);
    }
}

#[test]
fn where_every_backend_is_dead_senders_wait_and_nothing_is_dropped() {
    let mut world = World::new(&[&[(Policy::Isolate, Backend::Dead); 3]], vec![steady(0)]);
    world.run(HOUR);
    assert!(world.refused() > 1_000);
    assert!((0..3).all(|index| world.dropped(index) == 0));
    (0..3).for_each(|index| world.assert_accounted(index, world.accepted()));
}

#[test]
fn a_dead_backend_with_backpressure_holds_up_its_own_receiver_and_no_other() {
    let dead: &[_] = &[(Policy::Backpressure, Backend::Dead)];
    let healthy: &[_] = &[(Policy::Backpressure, QUICK)];
    let mut world = World::new(&[dead, healthy, dead], vec![steady(0), steady(1), steady(2)]);
    world.run(HOUR);
    assert!(world.senders[0].refused > 1_000 && world.senders[2].refused > 1_000);
    assert_eq!((world.senders[1].refused, world.senders[1].longest), (0, 0));
    assert!((0..3).all(|index| world.dropped(index) == 0));
}

#[test]
fn senders_that_wait_for_answers_go_as_fast_as_a_slower_backend_and_nothing_is_dropped() {
    let route = [(Policy::Isolate, QUICK), (Policy::Isolate, Backend::Answers(20))];
    let mut world = World::new(&[&route], vec![sender(0, None); 8]);
    world.run(HOUR);
    assert_eq!((world.dropped(0), world.dropped(1), world.refused()), (0, 0, 0));
    // Four at a time, five times a second.
    assert!(world.accepted() > 20 * 3_600 * 9 / 10, "{}", world.accepted());
    assert!(world.senders.iter().all(|sender| sender.longest < 100));
}

#[test]
fn senders_with_a_rate_of_their_own_outpace_a_slower_backend_which_is_isolated() {
    let route = [(Policy::Isolate, QUICK), (Policy::Isolate, Backend::Answers(20))];
    let mut world = World::new(&[&route], vec![sender(0, Some(2))]);
    world.run(HOUR);
    assert_eq!(world.dropped(0), 0);
    let offered = 50 * 3_600;
    assert!(world.accepted() > offered * 95 / 100, "{} of {offered}", world.accepted());
    assert!(world.dropped(1) > 0);
    assert!(world.deliveries[1].taken > 20 * 3_600 * 9 / 10, "it gets what it takes");
}

#[test]
fn nothing_is_dropped_because_the_cpu_is_short() {
    let route: &[_] = &[(Policy::Isolate, QUICK); 4];
    let senders = (0..60).map(|index| sender(index % 3, None)).collect();
    let mut world = World::new(&[route, route, route], senders);
    world.cpu = Some(20);
    world.run(10 * MINUTE);
    assert!((0..12).all(|index| world.dropped(index) == 0));
    assert!(
        world.senders.iter().all(|sender| sender.accepted > 100),
        "no sender waits without end"
    );
}

/// Scenario: one delivery's own processors take all the time of its task, which has one core; the
/// other cores are idle. Guarantee: its senders wait, whether for answers or with a rate of their
/// own, and nothing is dropped.
#[test]
fn nothing_is_dropped_because_a_deliverys_own_work_takes_one_core() {
    for (every, ticks) in [(None, 2), (Some(1), 2), (Some(1), 100)] {
        let route = [(Policy::Isolate, QUICK), (Policy::Isolate, Backend::Computes(ticks))];
        let mut world = World::new(&[&route], vec![sender(0, every); 150]);
        world.run(MINUTE);
        assert_eq!((world.dropped(0), world.dropped(1)), (0, 0), "{every:?} {ticks}");
        assert!(world.deliveries[1].taken > 6_000 / ticks * 9 / 10, "it is busy");
        assert!(world.refused() > 0);
    }
}

#[test]
fn a_dead_backend_while_the_cpu_is_short_costs_only_its_own_delivery() {
    let route: &[_] = &[
        (Policy::Isolate, QUICK),
        (Policy::Isolate, QUICK),
        (Policy::Isolate, QUICK),
        (Policy::Isolate, Backend::Dead),
    ];
    let mut world = World::new(&[route], vec![sender(0, None); 60]);
    world.cpu = Some(20);
    world.run(10 * MINUTE);
    assert!((0..3).all(|index| world.dropped(index) == 0) && world.dropped(3) > 0);
    assert!(world.accepted() > 100_000, "{}", world.accepted());
}

static SEEN: AtomicU64 = AtomicU64::new(0);

fn any_route() -> impl Strategy<Value = Vec<(Policy, Backend)>> {
    let policy = prop_oneof![
        2 => Just(Policy::Isolate),
        1 => Just(Policy::Backpressure),
        1 => Just(Policy::DropOldest),
    ];
    let backend = prop_oneof![
        4 => (1u64..6).prop_map(Backend::Answers),
        1 => Just(Backend::Answers(40)),
        1 => Just(Backend::Dead),
        1 => Just(Backend::Silent),
    ];
    proptest::collection::vec((policy, backend), 1..5)
}

/// Scenario: the delivery with the largest backlog was asked to shed what waits for a retry, and
/// its task has not looked yet. Guarantee: no other delivery sheds for the same shortage, unless
/// that task finds too little.
#[test]
fn only_one_delivery_sheds_for_one_shortage() {
    let route = [(Policy::DropOldest, Backend::Silent)];
    let world = World::new(&[&route, &route], Vec::new());
    for (route, frames) in world.routes.iter().zip([110, 75]) {
        for _ in 0..frames {
            let entry = entry(&world.entry_memory);
            let charge = entry.charge();
            route.log.append(Arc::new(entry), charge, &route.readers);
        }
    }
    let large = &world.deliveries[0].delivery;
    while large.log.read(large.cursor).entry().is_some() {}
    for _ in 0..2 {
        world.backlog.make_room(0, world.now());
        assert!(large.shedding_bytes() > 0, "the log finds nothing that is not leased");
        assert_eq!((world.dropped(0), world.dropped(1)), (0, 0));
    }
    large.note_shed(false);
    world.backlog.make_room(0, world.now());
    assert!(world.dropped(1) > 0);
}

/// Scenario: two receivers whose only backends are dead, and a third one whose backend is well.
/// Guarantee: the two fill the pool to its high-water mark, and the third notices nothing.
#[test]
fn dead_backends_of_other_receivers_leave_room_for_a_healthy_one() {
    let dead = [(Policy::Isolate, Backend::Dead)];
    let well = [(Policy::Isolate, Backend::Answers(1))];
    let senders = vec![sender(0, None), sender(1, Some(5)), sender(2, None)];
    let mut world = World::new(&[&dead, &dead, &well], senders);
    world.run(2 * MINUTE);
    let third = &world.senders[2];
    assert!(third.longest <= 2, "{}", third.longest);
    assert!(third.accepted > world.tick / 2, "{}", third.accepted);
    assert_eq!((0..3).map(|index| world.dropped(index)).sum::<u64>(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// In any combination: every acknowledged request is taken, waits, or is dropped by a policy
    /// for a delivery that may; the pool is never exceeded by more than one request; if a delivery
    /// of a route moves and no policy makes senders wait, no sender waits without end.
    #[test]
    fn everything_is_accounted_for_and_no_sender_waits_for_ever(
        routes in proptest::collection::vec(any_route(), 1..4),
        every in proptest::collection::vec(proptest::option::of(1u64..20), 1..6),
    ) {
        let of_route = |(index, &every): (usize, &Option<u64>)| sender(index % routes.len(), every);
        let senders: Vec<_> = every.iter().enumerate().map(of_route).collect();
        let slices: Vec<_> = routes.iter().map(Vec::as_slice).collect();
        let mut world = World::new(&slices, senders);
        world.run(2 * MINUTE);
        let mut index = 0;
        for (number, route) in routes.iter().enumerate() {
            let senders = || world.senders.iter().filter(|sender| sender.route == number);
            let accepted: u64 = senders().map(|sender| sender.accepted).sum();
            let ticks = |backend| match backend {
                Backend::Answers(ticks) | Backend::Computes(ticks) => ticks,
                Backend::Dead | Backend::Silent => u64::MAX,
            };
            let is_quick = |backend| ticks(backend) < 10;
            for &(policy, backend) in route {
                world.assert_accounted(index, accepted);
                let is_quickest = route.iter().all(|&(_, other)| ticks(backend) <= ticks(other));
                let is_well = is_quick(backend) && is_quickest && routes.len() == 1;
                if policy == Policy::Backpressure || policy == Policy::Isolate && is_well {
                    prop_assert_eq!(world.dropped(index), 0, "{:?} {:?}", policy, backend);
                }
                index += 1;
            }
            let holds_up = route.iter().any(|&(policy, backend)| {
                policy == Policy::Backpressure && ticks(backend) == u64::MAX
            });
            let moves = route.iter().any(|&(_, backend)| is_quick(backend));
            if moves && !holds_up {
                SEEN.fetch_add(1, Ordering::Relaxed);
                for sender in senders() {
                    prop_assert!(sender.longest < 2_000, "{} ticks: {:?}", sender.longest, route);
                    let waits = sender.wants_since.map_or(0, |since| world.tick - since);
                    prop_assert!(waits < 2_000, "{waits} ticks: {route:?}");
                }
            }
        }
    }
}
