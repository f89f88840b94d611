//! Tests of each rule by itself. The engine has a simulation of how they work together over hours.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::admission::{Arrival, Obstacle, Patience, admit};
use super::budget::{ShedFirst, firm_bytes, shed_first};
use super::delay::{delays, was_in_vain};
use super::isolation::{best_taken_share, is_sick, sheds};
use super::pacing::is_paced;
use super::*;

const MIB: u64 = 1 << 20;

const HEALTHY: Backend = Backend {
    in_outage: false,
    stands_still: false,
    is_outpaced: false,
    is_short_of_cpu: false,
    is_moving: true,
    taken_share: 1.0,
};
const DEAD: Backend = Backend { in_outage: true, is_moving: false, taken_share: 0.0, ..HEALTHY };

fn delivery(policy: Policy, lag_mib: u64, backend: Backend) -> DeliveryState {
    DeliveryState {
        policy,
        is_best_effort: false,
        limit_bytes: 64 * MIB,
        lag_bytes: lag_mib * MIB,
        unread_bytes: lag_mib * MIB,
        private_bytes: 0,
        is_far_behind: false,
        backend,
    }
}

fn isolated(lag_mib: u64, backend: Backend) -> DeliveryState {
    delivery(Policy::Isolate, lag_mib, backend)
}

fn pool(used_mib: u64, deliveries: usize) -> PoolState {
    PoolState {
        limit_bytes: 64 * MIB,
        room_bytes: 64 * MIB,
        used_bytes: used_mib * MIB,
        firm_bytes: used_mib * MIB,
        deliveries,
    }
}

/// The obstacle for a request of 1 MiB, if there is one.
fn obstacle(pool: PoolState, route: &[DeliveryState]) -> Option<Obstacle<usize>> {
    let arrival = Arrival {
        own_bytes: MIB,
        bytes: MIB,
        route_bytes: MIB,
        beside_bytes: 64 * MIB,
        is_cpu_bound: false,
        may_be_paced: true,
    };
    admit(&pool, arrival, route.iter().copied().enumerate()).err()
}

fn what_sheds(route: &[DeliveryState]) -> Vec<Sheds> {
    let view = RouteView::of(route.iter().copied());
    route.iter().map(|delivery| sheds(delivery, &view)).collect()
}

#[test]
fn rule_1_only_a_busy_cpu_paces_and_a_slow_backend_does_not() {
    let busy = delivery(Policy::Backpressure, 5, HEALTHY);
    assert!(is_paced(true, [busy].into_iter()) && !is_paced(false, [busy].into_iter()));
    assert!(
        !is_paced(true, [delivery(Policy::Backpressure, 5, DEAD)].into_iter()),
        "what waits for it waits anyway"
    );
    let on_disk = DeliveryState { is_far_behind: true, ..busy };
    assert!(!is_paced(true, [on_disk].into_iter()));
    let (behind, keeps_up) = (isolated(5, HEALTHY), isolated(1, HEALTHY));
    assert!(
        is_paced(true, [behind, behind].into_iter())
            && !is_paced(true, [behind, keeps_up].into_iter())
    );
    assert!(
        is_paced(true, [behind, isolated(0, DEAD)].into_iter()),
        "one that is dead keeps nothing up"
    );
    assert!(!is_paced(true, [delivery(Policy::DropOldest, 5, HEALTHY)].into_iter()));
}

#[test]
fn rule_2_answers_are_delayed_for_a_backend_that_works_and_comes_close_to_the_limit() {
    let slow = isolated(60, HEALTHY);
    let delayed = |state| {
        delays(&pool(60, 2), 8 * MIB, [isolated(0, HEALTHY), state].into_iter().enumerate())
    };
    assert_eq!(delayed(slow), Some(1));
    assert_eq!(delayed(isolated(20, HEALTHY)), None, "others fill the pool");
    assert_eq!(delayed(isolated(60, DEAD)), None);
    assert_eq!(delayed(isolated(60, Backend { is_outpaced: true, ..HEALTHY })), None);
    assert_eq!(
        delayed(isolated(60, Backend { taken_share: 0.4, ..HEALTHY })),
        None,
        "it is isolated instead"
    );
    assert_eq!(
        delayed(delivery(Policy::Backpressure, 60, HEALTHY)),
        None,
        "its senders wait unread"
    );
    let own_limit = DeliveryState { limit_bytes: 10 * MIB, ..isolated(6, HEALTHY) };
    assert_eq!(delays(&pool(6, 2), 8 * MIB, [(0, own_limit)].into_iter()), Some(0));
    assert_eq!(delays(&pool(6, 2), 8 * MIB, [(0, isolated(6, HEALTHY))].into_iter()), None);
}

#[test]
fn rule_3_a_delivery_is_outpaced_only_if_it_is_the_only_one_and_has_cpu_time_left() {
    let (slow, quick) = (isolated(40, HEALTHY), isolated(1, HEALTHY));
    let in_vain =
        |slow, goes_on, other| was_in_vain(&pool(40, 2), &slow, goes_on, [other].into_iter());
    assert!(in_vain(slow, true, quick));
    let short = isolated(40, Backend { is_short_of_cpu: true, ..HEALTHY });
    assert!(!in_vain(short, true, quick), "the CPU is short");
    assert!(!in_vain(slow, false, quick), "its senders slowed down");
    assert!(!in_vain(slow, true, isolated(30, HEALTHY)), "all are too slow");
    assert!(!in_vain(quick, true, isolated(1, DEAD)), "it is the one that keeps up");
    assert!(!in_vain(delivery(Policy::Backpressure, 40, HEALTHY), true, quick));
    let nearly_empty = DeliveryState { limit_bytes: 3 * MIB, ..quick };
    assert!(!in_vain(nearly_empty, true, quick), "the request is large");
}

#[test]
fn rule_4_the_backend_is_to_blame_and_nothing_else() {
    let sick = |backend| is_sick(&isolated(50, backend), 1.0);
    assert!(!sick(HEALTHY), "however far behind");
    assert!(sick(DEAD) && sick(Backend { stands_still: true, ..HEALTHY }));
    assert!(
        sick(Backend { is_outpaced: true, ..HEALTHY })
            && sick(Backend { taken_share: 0.3, ..HEALTHY })
    );
    let refusing = Backend { taken_share: 0.3, ..HEALTHY };
    let best = best_taken_share([isolated(5, refusing), isolated(5, refusing)].into_iter());
    assert!(!is_sick(&isolated(5, refusing), best), "all refuse alike");
}

#[test]
fn rule_5_a_sick_delivery_is_isolated_only_beside_one_that_keeps_up() {
    assert_eq!(
        what_sheds(&[isolated(50, DEAD), isolated(2, HEALTHY)]),
        [Sheds::Taken, Sheds::Nothing]
    );
    assert_eq!(what_sheds(&[isolated(50, DEAD), isolated(50, DEAD)]), [Sheds::Nothing; 2]);
    assert_eq!(
        what_sheds(&[isolated(50, DEAD), isolated(40, HEALTHY)]),
        [Sheds::Nothing; 2],
        "both are behind"
    );
    let best_effort =
        DeliveryState { is_best_effort: true, ..delivery(Policy::DropOldest, 0, HEALTHY) };
    assert_eq!(what_sheds(&[isolated(50, DEAD), best_effort])[0], Sheds::Nothing);
    let policies =
        [delivery(Policy::DropOldest, 0, HEALTHY), delivery(Policy::Backpressure, 50, DEAD)];
    assert_eq!(what_sheds(&policies), [Sheds::Everything, Sheds::Nothing]);
}

#[test]
fn rule_6_senders_wait_for_a_delivery_beyond_its_own_limit_unless_it_may_shed() {
    let full =
        |policy, backend| DeliveryState { limit_bytes: 10 * MIB, ..delivery(policy, 10, backend) };
    let beside = |state| obstacle(pool(10, 2), &[isolated(0, HEALTHY), state]);
    assert_eq!(beside(full(Policy::Backpressure, HEALTHY)), Some(Obstacle::Delivery(1)));
    assert_eq!(beside(full(Policy::Backpressure, DEAD)), Some(Obstacle::Delivery(1)));
    assert_eq!(
        beside(full(Policy::Isolate, HEALTHY)),
        Some(Obstacle::Delivery(1)),
        "it may only be short of CPU time"
    );
    assert_eq!(beside(full(Policy::Isolate, DEAD)), None);
    assert_eq!(beside(full(Policy::DropOldest, HEALTHY)), None);
    let larger_than_all =
        DeliveryState { limit_bytes: 10, ..delivery(Policy::Backpressure, 0, HEALTHY) };
    assert_eq!(
        obstacle(pool(0, 1), &[larger_than_all]),
        None,
        "a frame larger than the limit gets through"
    );
}

#[test]
fn rule_7_above_the_high_water_mark_the_delivery_that_pins_the_most_gives_way() {
    let mark = pool(0, 4);
    assert_eq!((mark.high_water_bytes(), mark.fair_share_bytes()), (56 * MIB, 14 * MIB));
    assert_eq!((pool(40, 4).to_shed_bytes(MIB), pool(56, 4).to_shed_bytes(MIB)), (0, 2 * MIB));
    let taken = Sheds::Taken;
    let first = |states: &[(Sheds, u64)]| {
        let states =
            states.iter().enumerate().map(|(index, &(sheds, mib))| (index, sheds, mib * MIB));
        shed_first(&pool(56, 4), states)
    };
    assert_eq!(first(&[(taken, 20), (Sheds::Nothing, 30), (taken, 25)]), ShedFirst::Alone(2));
    assert_eq!(first(&[(taken, 3), (taken, 0)]), ShedFirst::Together { else_alone: Some(0) });
    assert_eq!(first(&[(Sheds::Nothing, 50)]), ShedFirst::Together { else_alone: None });
    // The rest of the pool is for deliveries that have no more than a fair share.
    let (dead, small) =
        (delivery(Policy::Backpressure, 50, DEAD), delivery(Policy::Backpressure, 3, HEALTHY));
    assert_eq!(obstacle(pool(56, 4), &[small]), None);
    assert_eq!(obstacle(pool(56, 4), &[small, dead]), Some(Obstacle::Delivery(1)));
    assert_eq!(obstacle(pool(40, 4), &[small, dead]), None);
}

#[test]
fn rule_7_a_full_file_system_is_a_full_pool() {
    let room = |free, refuses| disk::room_bytes(50, free, refuses);
    assert_eq!([room(Some(20), false), room(Some(20), true), room(None, true)], [70, 50, 50]);
    assert_eq!(room(None, false), u64::MAX, "the limit counts");

    let full = PoolState { room_bytes: 32 * MIB, ..pool(30, 4) };
    assert_eq!((pool(30, 4).to_shed_bytes(0), full.to_shed_bytes(0)), (0, 5 * MIB / 2));
    let dead = delivery(Policy::Backpressure, 1, DEAD);
    let in_flight = delivery(Policy::Backpressure, 10, HEALTHY);
    assert_eq!(obstacle(full, &[in_flight, dead]), Some(Obstacle::Delivery(1)));
    assert_eq!(obstacle(full, &[isolated(1, DEAD), isolated(0, HEALTHY)]), None);
    // Frames in flight of a healthy delivery need no disk.
    let nothing_left = PoolState { room_bytes: 30 * MIB, ..full };
    assert_eq!(obstacle(nothing_left, &[in_flight]), None);
}

#[test]
fn rule_7_what_is_firm_is_never_underestimated() {
    let firm =
        |used, deliveries: &[(Sheds, u64, u64)]| firm_bytes(used, deliveries.iter().copied());
    assert_eq!(
        firm(60, &[(Sheds::Nothing, 30, 20), (Sheds::Nothing, 40, 30)]),
        60,
        "retries are scattered"
    );
    assert_eq!(firm(60, &[(Sheds::Taken, 58, 50), (Sheds::Nothing, 10, 2)]), 10);
    assert_eq!(firm(60, &[(Sheds::Taken, 58, 50), (Sheds::Nothing, 30, 2)]), 10);
    assert_eq!(firm(60, &[(Sheds::Nothing, u64::MAX, 0), (Sheds::Nothing, 1, 0)]), 60);
}

#[test]
fn rule_8_a_full_pool_admits_nothing() {
    assert_eq!(obstacle(pool(64, 4), &[isolated(0, HEALTHY)]), Some(Obstacle::Pool));
    assert_eq!(
        obstacle(PoolState { limit_bytes: 10, used_bytes: 0, ..pool(0, 1) }, &[]),
        None,
        "one always fits"
    );
}

/// Scenario: others are receiving requests that would fill the pool, and may never enter it.
#[test]
fn rule_8_what_arrives_for_other_deliveries_does_not_fill_the_pool() {
    let admitted = |route_mib, beside_mib| {
        let arrival = Arrival {
            own_bytes: route_mib * MIB,
            bytes: 40 * MIB,
            route_bytes: route_mib * MIB,
            beside_bytes: beside_mib * MIB,
            is_cpu_bound: false,
            may_be_paced: true,
        };
        admit(&pool(40, 4), arrival, [(0, isolated(0, HEALTHY))].into_iter())
    };
    assert_eq!(admitted(1, 40), Ok(()));
    assert_eq!(admitted(40, 40), Err(Obstacle::Pool), "its own do");
    assert_eq!(admitted(1, 16), Ok(()), "24 MiB beyond the memory for receiving have room");
    assert_eq!(admitted(1, 15), Err(Obstacle::Pool), "25 MiB have not");
}

/// Scenario: others are receiving 40 MiB, for which there is memory beside the pool. Guarantee: no
/// delivery has its senders wait for that, however much it lags.
#[test]
fn rule_7_what_arrives_for_other_deliveries_does_not_bring_the_pool_to_its_high_water() {
    let admitted = |beside_mib, lag_mib| {
        let arrival = Arrival {
            own_bytes: MIB,
            bytes: 41 * MIB,
            route_bytes: MIB,
            beside_bytes: beside_mib * MIB,
            is_cpu_bound: false,
            may_be_paced: false,
        };
        let slow = delivery(Policy::Backpressure, lag_mib, HEALTHY);
        admit(&pool(lag_mib, 4), arrival, [(0, slow)].into_iter())
    };
    assert_eq!(admitted(64, 30), Ok(()));
    assert_eq!(admitted(0, 30), Err(Obstacle::Delivery(0)), "nothing has memory beside the pool");
}

/// Scenario: requests are on their way to a delivery that has nothing to do. Guarantee: one larger
/// than its limit gets through, and several do not exceed it together.
#[test]
fn rule_6_only_a_request_that_is_alone_may_exceed_a_limit() {
    let admitted = |own_mib, route_mib, lag_mib| {
        let arrival = Arrival {
            own_bytes: own_mib * MIB,
            bytes: route_mib * MIB,
            route_bytes: route_mib * MIB,
            beside_bytes: 64 * MIB,
            is_cpu_bound: false,
            may_be_paced: false,
        };
        let small = DeliveryState {
            limit_bytes: 10 * MIB,
            ..delivery(Policy::Backpressure, lag_mib, HEALTHY)
        };
        admit(&pool(0, 1), arrival, [(0, small)].into_iter()).is_ok()
    };
    assert!(admitted(20, 20, 0), "it is alone");
    assert!(admitted(4, 10, 0) && !admitted(4, 11, 0));
    assert!(admitted(4, 4, 6) && !admitted(4, 5, 6));
}

#[test]
fn rule_9_patience_ends_after_a_second() {
    let began = Instant::now();
    let patience = Patience::from(began);
    let after = |ms| began + Duration::from_millis(ms);
    assert!(patience.may_be_paced(after(749)) && !patience.may_be_paced(after(750)));
    assert!(!patience.is_over(after(999)) && patience.is_over(after(1_000)));
}

#[test]
fn rule_10_unwritten_frames_go_before_senders_are_refused() {
    assert_eq!(
        (disk::keep_unwritten_bytes(40, 10, 100), disk::keep_unwritten_bytes(50, 10, 100)),
        (None, Some(25))
    );
    let is_full = |used, arriving, of_delivery| {
        disk::is_unwritten_full(&disk::unwritten(used, 100, 4), arriving, [of_delivery].into_iter())
    };
    assert!(!is_full(90, 10, 20) && is_full(91, 10, 20));
    assert!(is_full(90, 10, 30) && !is_full(70, 10, 70), "more than a fair share of a scarce good");
    assert!(!is_full(0, 1_000, 0), "a frame larger than that gets through");
    assert!(disk::waits_in_vain(&delivery(Policy::Backpressure, 20, HEALTHY)));
    assert!(
        !disk::waits_in_vain(&delivery(Policy::Backpressure, 1, HEALTHY))
            && !disk::waits_in_vain(&isolated(20, DEAD))
    );
}

/// More than every limit and than the pool.
const MOST_MIB: u64 = 80;

fn any_delivery() -> impl Strategy<Value = DeliveryState> {
    let policy =
        prop_oneof![Just(Policy::Backpressure), Just(Policy::DropOldest), Just(Policy::Isolate)];
    let backend = prop_oneof![
        3 => Just(HEALTHY),
        1 => Just(DEAD),
        1 => Just(Backend { stands_still: true, is_moving: false, ..HEALTHY }),
        1 => (0.0..1.0).prop_map(|taken_share| Backend { taken_share, ..HEALTHY }),
    ];
    (policy, 0..MOST_MIB, backend)
        .prop_map(|(policy, lag_mib, backend)| delivery(policy, lag_mib, backend))
}

proptest! {
    /// Only a policy that drops sheds; `isolate` sheds only for a backend that is to blame, beside
    /// one that is not.
    #[test]
    fn nothing_is_dropped_without_a_policy_and_a_reason(
        route in proptest::collection::vec(any_delivery(), 1..6),
    ) {
        let best = best_taken_share(route.iter().copied());
        for (delivery, sheds) in route.iter().zip(what_sheds(&route)) {
            match delivery.policy {
                Policy::Backpressure => prop_assert_eq!(sheds, Sheds::Nothing),
                Policy::DropOldest => prop_assert_eq!(sheds, Sheds::Everything),
                Policy::Isolate if sheds != Sheds::Nothing => {
                    prop_assert_eq!(sheds, Sheds::Taken);
                    let is_healthy = |other: &DeliveryState| !is_sick(other, best);
                    prop_assert!(is_sick(delivery, best) && route.iter().any(is_healthy));
                }
                Policy::Isolate => {}
            }
        }
    }

    /// A request waits for a delivery that cannot shed and is beyond its limit, or, in a nearly
    /// full pool, beyond its fair share or with a backend that takes nothing. It waits for no
    /// other delivery, and for the pool only if that is full.
    #[test]
    fn senders_wait_where_they_have_to_and_nowhere_else(
        route in proptest::collection::vec(any_delivery(), 1..6),
        used_mib in 0..MOST_MIB,
    ) {
        let pool = pool(used_mib, 6);
        let has_to_wait = |(delivery, sheds): (&DeliveryState, Sheds)| {
            let takes_nothing = delivery.backend.in_outage || delivery.backend.stands_still;
            let share_mib = if takes_nothing { 0 } else { 9 };
            let lag_mib = delivery.lag_bytes / MIB;
            sheds == Sheds::Nothing && (lag_mib > 63 || used_mib > 55 && lag_mib > share_mib)
        };
        let expected = match route.iter().zip(what_sheds(&route)).position(has_to_wait) {
            Some(index) => Some(Obstacle::Delivery(index)),
            None => (used_mib > 63).then_some(Obstacle::Pool),
        };
        prop_assert_eq!(obstacle(pool, &route), expected);
    }

    /// The death of a delivery beside healthy ones makes no request wait that did not wait before,
    /// however far it lags and however full the pool is.
    #[test]
    fn a_delivery_that_dies_changes_nothing_for_the_others(
        lags in proptest::collection::vec(0u64..4, 1..6),
        dead_lag in 0..MOST_MIB,
        used_mib in 0..MOST_MIB,
    ) {
        let healthy: Vec<_> = lags.iter().map(|&lag_mib| isolated(lag_mib, HEALTHY)).collect();
        let mut with_dead = healthy.clone();
        with_dead.push(isolated(dead_lag, DEAD));
        let pool = pool(used_mib, 6);
        prop_assert_eq!(obstacle(pool, &with_dead), obstacle(pool, &healthy));
    }
}
