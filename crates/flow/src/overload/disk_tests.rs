//! Rules 7 and 10 over hours of a disk that is full, slow, fails or hangs.

use std::time::Duration;

use proptest::prelude::*;

use super::Policy;
use super::disk_simulation::*;

const WELL: bool = true;
const DEAD: bool = false;

/// A dead delivery under `isolate` beside a healthy one, and a receiver of its own for a third.
fn one_dead() -> World {
    let fed = [(Policy::Isolate, WELL), (Policy::Isolate, DEAD)];
    World::new(&[&fed, &[(Policy::Backpressure, WELL)]], 1)
}

/// The same with a dead delivery for which senders wait.
fn one_dead_with_backpressure() -> World {
    World::new(&[&[(Policy::Backpressure, DEAD)], &[(Policy::Backpressure, WELL)]], 1)
}

#[test]
fn rule_7_a_pool_on_disk_bridges_an_outage_and_then_loses_the_oldest_segments() {
    let mut world = one_dead();
    // 5 MiB a second fill seven eighths of 1 GiB in three minutes.
    world.run(2 * MINUTE);
    assert_eq!(world.dropped(), [0, 0, 0]);
    world.run(HOUR);
    let high_water_bytes = world.pool().high_water_bytes();
    let between_looks_bytes = LOOK * FRAME_BYTES + SEGMENT_BYTES;
    assert!(world.needed_bytes <= high_water_bytes + between_looks_bytes);
    assert!(world.needed_bytes > LIMIT_BYTES * 3 / 4, "{}", world.needed_bytes);
    assert!(world.dropped()[1] > HOUR / 2 && world.refused() == [0, 0]);
    assert!(world.senders.iter().all(|sender| sender.longest_wait.is_zero()));
    world.assert_accounted();
    // The rest arrives.
    let dropped = world.dropped();
    world.readers[1].is_well = WELL;
    world.run(10 * MINUTE);
    assert_eq!((world.dropped(), world.readers[1].lag_frames), (dropped, 0));
    assert!(world.needed_bytes <= SEGMENT_BYTES, "the one that is open");
}

#[test]
fn rule_7_a_file_system_that_others_fill_is_a_smaller_pool_until_there_is_room_again() {
    let mut world = one_dead();
    for (room_mib, least_mib) in [(4096, 768), (256, 150), (2, 0), (4096, 768)] {
        world.file_system_bytes = room_mib * MIB;
        world.run(30 * MINUTE);
        assert!(world.needed_bytes <= room_mib.max(SEGMENT_BYTES / MIB) * MIB, "{room_mib}");
        assert!(world.needed_bytes >= least_mib * MIB, "{} {room_mib}", world.needed_bytes);
        assert_eq!((world.dropped()[0], world.dropped()[2]), (0, 0));
        assert_eq!(world.refused(), [0, 0], "{room_mib} MiB");
        world.assert_accounted();
    }
    let mut world = one_dead_with_backpressure();
    for room_mib in [256, 2] {
        world.file_system_bytes = room_mib * MIB;
        world.run(30 * MINUTE);
        assert!(world.refused()[0] > 1_000 && world.refused()[1] == 0, "{:?}", world.refused());
        world.assert_accounted();
    }
    world.readers[0].is_well = WELL;
    world.run(30 * MINUTE);
    let refused = world.refused();
    world.run(MINUTE);
    assert_eq!((world.refused(), world.dropped()), (refused, vec![0, 0]));
}

#[test]
fn rule_10_a_slow_disk_costs_the_late_delivery_unwritten_frames_and_no_sender_waits() {
    for writes in [Writes::OneIn(2), Writes::OneIn(20), Writes::Hangs, Writes::Fails] {
        let mut world = one_dead();
        world.writes = writes;
        world.run(HOUR);
        assert!(world.dropped()[1] > HOUR / 4, "{writes:?}: {:?}", world.dropped());
        assert_eq!((world.dropped()[0], world.dropped()[2]), (0, 0), "{writes:?}");
        assert_eq!(world.refused(), [0, 0], "{writes:?}");
        assert!(world.senders.iter().all(|it| it.longest_wait.is_zero() && it.lost == 0));
        world.assert_accounted();
    }
}

#[test]
fn rule_10_a_disk_without_work_is_no_reason_to_refuse_while_all_is_delivered() {
    let mut world = World::new(&[&[(Policy::Backpressure, WELL)], &[(Policy::Isolate, WELL)]], 1);
    for writes in [Writes::Hangs, Writes::Fails] {
        world.writes = writes;
        world.run(HOUR);
        assert_eq!((world.refused(), world.dropped()), (vec![0, 0], vec![0, 0]));
    }
    assert!(world.senders.iter().all(|it| it.accepted + 2 >= it.appended));
}

#[test]
fn rule_10_a_disk_that_fails_refuses_senders_of_a_late_delivery_and_no_other() {
    for writes in [Writes::Fails, Writes::OneIn(2), Writes::Hangs] {
        let mut world = one_dead_with_backpressure();
        world.writes = writes;
        world.run(HOUR);
        assert!(world.refused()[0] > 1_000, "{writes:?}");
        assert_eq!((world.refused()[1], world.dropped()), (0, vec![0, 0]), "{writes:?}");
        world.assert_accounted();
        // Afterwards all that was appended arrives.
        (world.writes, world.readers[0].is_well) = (Writes::OneIn(1), WELL);
        world.run(30 * MINUTE);
        assert!(world.readers[0].lag_frames <= 1, "{writes:?}");
    }
}

/// A time in ticks, what the disk does in it, the MiB that other programs leave, and whether the
/// backend of the sick delivery works.
type Phase = (u64, Writes, u64, bool);

fn any_phase() -> impl Strategy<Value = Phase> {
    let writes = prop_oneof![
        3 => (1u64..60).prop_map(Writes::OneIn),
        1 => Just(Writes::Hangs),
        1 => Just(Writes::Fails),
    ];
    (1..10 * MINUTE, writes, 2u64..2_000, proptest::bool::ANY)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Whatever becomes of the disk and of one backend: deliveries that are well lose nothing, and
    /// their senders wait only beside a sick delivery with `backpressure`, a second at most, or one
    /// with `isolate` that works off its backlog. Once disk and backend work again, all arrives.
    #[test]
    fn a_disk_and_a_sick_delivery_change_nothing_for_another(
        policy in prop_oneof![
            Just(Policy::Isolate), Just(Policy::DropOldest), Just(Policy::Backpressure)
        ],
        every in 1u64..4,
        phases in proptest::collection::vec(any_phase(), 1..6),
    ) {
        let fed = [(Policy::Isolate, WELL), (policy, DEAD)];
        let mut world = World::new(&[&fed, &[(Policy::Isolate, WELL)]], every);
        let mut may_wait = policy == Policy::Backpressure;
        for (ticks, writes, room_mib, is_well) in phases {
            (world.writes, world.file_system_bytes) = (writes, room_mib * MIB);
            world.readers[1].is_well = is_well;
            world.run(ticks);
            world.assert_accounted();
            prop_assert_eq!((world.dropped()[0], world.dropped()[2]), (0, 0));
            may_wait |= is_well && policy == Policy::Isolate;
            for sender in &world.senders[usize::from(may_wait)..] {
                prop_assert_eq!((sender.refused, sender.lost), (0, 0), "{:?}", writes);
                prop_assert_eq!(sender.longest_wait, Duration::ZERO);
            }
        }
        (world.writes, world.file_system_bytes) = (Writes::OneIn(1), 4 * LIMIT_BYTES);
        world.readers[1].is_well = WELL;
        world.run(30 * MINUTE);
        let refused = world.refused();
        world.run(MINUTE);
        prop_assert_eq!(world.refused(), refused);
        prop_assert!(world.readers.iter().all(|reader| reader.lag_frames <= 1));
    }
}
