//! Senders, deliveries and backends over hours. The numbers are those of the rules in
//! `flow::overload`; a disk is simulated beside these rules.

use std::sync::atomic::AtomicU64;

use proptest::prelude::*;
use sluice_flow::overload::Policy;

use super::simulation::*;
use super::*;

const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE: Duration = Duration::from_secs(60);
const QUICK: Backend = Backend::Answers(1);

/// 25 requests a second.
fn steady(route: usize) -> Sender {
    sender(route, Some(4))
}

#[test]
fn rule_5_a_dead_backend_beside_healthy_ones_for_hours_changes_nothing_for_them() {
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
        world.becomes(2, QUICK);
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
fn rule_5_where_every_backend_is_dead_senders_wait_and_nothing_is_dropped() {
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
fn rule_2_senders_that_wait_for_answers_go_as_fast_as_a_slower_backend() {
    let route = [(Policy::Isolate, QUICK), (Policy::Isolate, Backend::Answers(20))];
    let mut world = World::new(&[&route], vec![sender(0, None); 8]);
    world.run(HOUR);
    assert_eq!((world.dropped(0), world.dropped(1), world.refused()), (0, 0, 0));
    // Four at a time, five times a second.
    assert!(world.accepted() > 20 * 3_600 * 9 / 10, "{}", world.accepted());
    assert!(world.senders.iter().all(|sender| sender.longest < 100));
}

#[test]
fn rule_3_senders_with_a_rate_of_their_own_outpace_a_slower_backend() {
    let route = [(Policy::Isolate, QUICK), (Policy::Isolate, Backend::Answers(20))];
    let mut world = World::new(&[&route], vec![sender(0, Some(2))]);
    world.run(HOUR);
    assert_eq!(world.dropped(0), 0);
    let offered = 50 * 3_600;
    assert!(world.accepted() > offered * 95 / 100, "{} of {offered}", world.accepted());
    assert!(world.dropped(1) > 0);
    assert!(world.deliveries[1].taken.len() as u64 > 20 * 3_600 * 9 / 10, "it gets what it takes");
}

#[test]
fn rule_4_nothing_is_dropped_because_the_cpu_is_short() {
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
fn rule_4_nothing_is_dropped_because_a_deliverys_own_work_takes_one_core() {
    for (every, ticks) in [(None, 2), (Some(1), 2), (Some(1), 100)] {
        let route = [(Policy::Isolate, QUICK), (Policy::Isolate, Backend::Computes(ticks))];
        let mut world = World::new(&[&route], vec![sender(0, every); 150]);
        world.run(MINUTE);
        assert_eq!((world.dropped(0), world.dropped(1)), (0, 0), "{every:?} {ticks}");
        assert!(world.deliveries[1].taken.len() as u64 > 6_000 / ticks * 9 / 10, "it is busy");
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

/// Scenario: senders that wait for their answers offer more than the CPU can pass on. Guarantee:
/// what waits in the pool stays a fraction of it, and no sender is refused.
#[test]
fn rule_1_senders_are_paced_while_the_cpu_is_short() {
    let mut world = World::new(&[&[(Policy::Isolate, QUICK); 4]], vec![sender(0, None); 60]);
    world.cpu = Some(20);
    world.run(HOUR);
    assert!(world.most_used_bytes < POOL_BYTES / 2, "{}", world.most_used_bytes);
    assert_eq!((world.refused(), world.dropped(0)), (0, 0));
    assert!(world.senders.iter().all(|it| it.longest_attempt <= Duration::from_secs(1)));
}

/// Guarantee: in an hour senders with a rate of their own are slowed down once a minute at most for
/// a slower backend, each time by less than a second, and none is refused.
#[test]
fn rule_3_slowing_senders_is_tried_again_once_a_minute() {
    let route = [(Policy::Isolate, QUICK), (Policy::Isolate, Backend::Answers(20))];
    let mut world = World::new(&[&route], vec![sender(0, Some(2))]);
    world.run(HOUR);
    assert_eq!((world.refused(), world.dropped(0)), (0, 0));
    let gaps = world.history.windows(2).map(|pair| pair[1].0 - pair[0].0).filter(|&gap| gap > 2);
    let gaps: Vec<_> = gaps.collect();
    let waited: u64 = gaps.iter().sum();
    assert!((1..=60 * 100).contains(&waited), "{waited} ticks, a second a minute");
    assert!(gaps.iter().all(|&gap| gap <= 80), "{gaps:?}");
}

/// Scenario: answers take about as long as a backend may take nothing before it counts as sick.
/// Guarantee: senders with a rate of their own are slowed down as little as for other slow ones.
#[test]
fn rule_4_a_backend_that_halts_again_and_again_is_not_tried_each_time() {
    for (ticks, every) in (45..60).flat_map(|ticks| [2, 4, 8].map(|every| (ticks, every))) {
        let route = [(Policy::Isolate, QUICK), (Policy::Isolate, Backend::Answers(ticks))];
        let mut world = World::new(&[&route], vec![sender(0, Some(every)); 2]);
        world.run(10 * MINUTE);
        assert_eq!((world.refused(), world.dropped(0)), (0, 0));
        let first: Vec<_> = world.history.iter().filter(|it| it.1 == 0).map(|it| it.0).collect();
        let late = first.windows(2).map(|pair| (pair[1] - pair[0]).saturating_sub(every));
        let late: u64 = late.sum();
        let longest = world.senders.iter().map(|sender| sender.longest).max();
        assert!(late <= 10 * 100, "{ticks} {every}: {late} ticks, a second a minute");
        assert!(longest <= Some(100), "{ticks} {every}: {longest:?}");
    }
}

/// Scenario: the same, with senders that wait for their answers. Guarantee: they are slowed down to
/// the pace of the slow backend, and no more than a few requests are dropped, at its first halts.
#[test]
fn rule_4_a_backend_that_halts_again_and_again_loses_nothing_of_senders_that_wait() {
    for ticks in 45..60 {
        let route = [(Policy::Isolate, QUICK), (Policy::Isolate, Backend::Answers(ticks))];
        let mut world = World::new(&[&route], vec![sender(0, None); 3]);
        world.run(10 * MINUTE);
        assert_eq!((world.refused(), world.dropped(0)), (0, 0));
        assert!(world.dropped(1) <= 20, "{ticks}: {} of {}", world.dropped(1), world.accepted());
    }
}

#[test]
fn rule_4_a_backend_that_refuses_more_than_half_is_sick_and_one_among_equals_is_not() {
    let refuses = Backend::Refuses(90);
    let route = [(Policy::Isolate, QUICK), (Policy::Isolate, refuses)];
    let mut world = World::new(&[&route], vec![steady(0)]);
    world.run(HOUR);
    assert!(world.dropped(1) > 0 && world.dropped(0) == 0);
    assert_eq!((world.refused(), world.senders[0].longest), (0, 0));

    let mut world = World::new(&[&[(Policy::Isolate, refuses); 2]], vec![steady(0)]);
    world.run(HOUR);
    assert_eq!((world.dropped(0), world.dropped(1)), (0, 0));
    assert!(world.refused() > 0, "no single backend is to blame");
}

#[test]
fn rule_6_a_delivery_lags_by_no_more_than_its_own_limit() {
    for policy in [Policy::DropOldest, Policy::Isolate, Policy::Backpressure] {
        let route = [(Policy::Isolate, QUICK), (policy, Backend::Dead)];
        let other = [(Policy::Backpressure, QUICK)];
        let mut world = World::new(&[&route, &other], vec![steady(0), steady(1)]);
        world.limit(1, 20);
        world.run(HOUR);
        assert!(world.most_used_bytes <= 25 * FRAME_BYTES, "{}", world.most_used_bytes);
        assert_eq!((world.dropped(0), world.dropped(2), world.senders[1].longest), (0, 0, 0));
        let waits = policy == Policy::Backpressure;
        assert_eq!((world.dropped(1) == 0, world.senders[0].refused > 0), (waits, waits));
        assert!(waits || world.senders[0].longest == 0);
        world.assert_accounted(1, world.senders[0].accepted);
        // The rest arrives.
        world.becomes(1, QUICK);
        let dropped = world.dropped(1);
        world.end_load();
        assert_eq!((world.dropped(1), world.deliveries[1].delivery.lag_bytes()), (dropped, 0));
    }
}

/// Scenario: a backend hangs with the whole pool in flight, which nothing can shed. Guarantee: the
/// pool is not exceeded, senders are refused after a second, and all arrives once it answers.
#[test]
fn rules_8_and_9_a_full_pool_refuses_after_a_second_and_drops_nothing() {
    let mut world = World::new(&[&[(Policy::DropOldest, Backend::Silent)]], vec![steady(0)]);
    world.deliveries[0].concurrency = 1_000;
    world.run(HOUR);
    assert!(world.most_used_bytes > POOL_BYTES - FRAME_BYTES && world.refused() > 1_000);
    assert_eq!(world.senders[0].longest_attempt, Duration::from_secs(1));
    world.becomes(0, QUICK);
    world.end_load();
    let (taken, accepted) = (world.deliveries[0].taken.len() as u64, world.accepted());
    assert_eq!((world.dropped(0), taken), (0, accepted));
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
fn rule_7_only_one_delivery_sheds_for_one_shortage() {
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
fn rule_7_dead_backends_of_other_receivers_leave_room_for_a_healthy_one() {
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
                Backend::Refuses(_) | Backend::Dead | Backend::Silent => u64::MAX,
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
