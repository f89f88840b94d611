//! Random operations of a log on a disk with troubles that come and go, damage at rest, crashes at
//! any call, restarts and repairs, against a model of what the log owes to its readers.

mod support;
mod troubled;

use std::ops::Range;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rustix::io::Errno;
use sluice_log::Keep;
use support::faulty_disk::{Answer, Operation, Trouble, Unsynced};
use support::troubles::Lasts;
use troubled::World;

/// Most of a case is waiting: more of them run at a time than the machine has processors.
const AT_A_TIME: u32 = 32;

#[derive(Clone, Debug)]
enum Step {
    Append {
        mask: u8,
        len: usize,
        count: u8,
    },
    Read {
        reader: usize,
        count: u8,
    },
    Resolve {
        reader: usize,
        pick: usize,
    },
    ResolveAll {
        reader: usize,
    },
    Rewind {
        reader: usize,
    },
    Leave {
        reader: usize,
    },
    Forget {
        reader: usize,
    },
    DropOldest {
        reader: usize,
        limit_bytes: u64,
    },
    DropUnwritten {
        reader: usize,
    },
    Wait {
        milliseconds: u8,
    },
    Trouble {
        trouble: Trouble,
    },
    /// From now on, for this many ticks.
    Spell {
        trouble: Trouble,
        ticks: u64,
    },
    FillUp {
        left_bytes: u64,
    },
    Heal,
    Damage {
        pick: usize,
        at: u64,
        is_bad_page: bool,
    },
    Restore,
    DieAfter {
        calls: u64,
    },
    /// Troubles go on at the start.
    Crash {
        power: Option<Unsynced>,
    },
    CleanEnd,
    Repair {
        power: Option<Unsynced>,
    },
    Settle,
}

const READS: [&[Operation]; 6] = [
    &[Operation::Read],
    &[Operation::Open],
    &[Operation::Len],
    &[Operation::List],
    &[Operation::Device],
    &[Operation::Read, Operation::Open, Operation::Len, Operation::List],
];
const CHANGES: [&[Operation]; 11] = [
    &[Operation::Write],
    &[Operation::SyncData],
    &[Operation::SyncDirectory],
    &[Operation::SyncData, Operation::SyncDirectory],
    &[Operation::Allocate],
    &[Operation::CreateNew],
    &[Operation::CreateDirectory],
    &[Operation::Rename],
    &[Operation::RemoveFile],
    &[Operation::SetLen],
    &[Operation::Linked],
];
const PATHS: [&str; 7] = ["", ".seg", ".cursor", "cursors.list", ".tmp", "rewrite", "00000000.seg"];
const ERRORS: [Errno; 6] =
    [Errno::IO, Errno::NOSPC, Errno::MFILE, Errno::INTR, Errno::ROFS, Errno::STALE];

fn lasts() -> impl Strategy<Value = Lasts> {
    prop_oneof![
        Just(Lasts::On),
        (0u64..20, 1u64..20).prop_map(|(from, calls)| Lasts::Calls(from..from + calls)),
        (50u32..700).prop_map(Lasts::Chance),
    ]
}

fn positions() -> impl Strategy<Value = Range<u64>> {
    prop_oneof![
        4 => Just(0..u64::MAX),
        1 => Just(0..4_096),
        1 => Just(4_096..u64::MAX),
        1 => (1u64..15).prop_map(|page| page * 4_096..page * 4_096 + 5_000),
    ]
}

/// A trouble of some of these operations.
fn trouble_of(operations: &'static [&'static [Operation]]) -> impl Strategy<Value = Trouble> {
    let operations = proptest::sample::select(operations);
    let (path, error) =
        (proptest::sample::select(&PATHS[..]), proptest::sample::select(&ERRORS[..]));
    (operations, path, error, positions(), lasts(), 0u8..8).prop_map(
        |(operations, path_part, error, positions, lasts, hangs)| {
            let answer = if hangs == 0 { Answer::Hang } else { Answer::Error(error) };
            let path_part = path_part.to_owned();
            // A call that is interrupted without end is no call.
            let is_endless = error == Errno::INTR && matches!(lasts, Lasts::On);
            let lasts = if is_endless { Lasts::Chance(500) } else { lasts };
            Trouble { path_part, positions, answer, lasts, ..Trouble::new(operations, error) }
        },
    )
}

fn whole_disk() -> impl Strategy<Value = Trouble> {
    let away = lasts().prop_map(|lasts| Trouble { lasts, ..Trouble::new(&[], Errno::IO) });
    prop_oneof![away, Just(Trouble::read_only()), Just(Trouble::unmounted())]
}

fn power() -> impl Strategy<Value = Option<Unsynced>> {
    const CUTS: [Unsynced; 3] = [Unsynced::Lost, Unsynced::Mixed, Unsynced::Garbage];
    proptest::option::of(proptest::sample::select(&CUTS[..]))
}

fn step() -> impl Strategy<Value = Step> {
    let reader = 0usize..3;
    let trouble = |trouble| Step::Trouble { trouble };
    let usual = prop_oneof![
        12 => (1u8..8, 0usize..3000, 1u8..30)
            .prop_map(|(mask, len, count)| Step::Append { mask, len, count }),
        8 => (reader.clone(), 1u8..60).prop_map(|(reader, count)| Step::Read { reader, count }),
        6 => (reader.clone(), any::<usize>())
            .prop_map(|(reader, pick)| Step::Resolve { reader, pick }),
        4 => reader.clone().prop_map(|reader| Step::ResolveAll { reader }),
        2 => reader.clone().prop_map(|reader| Step::Rewind { reader }),
        1 => reader.clone().prop_map(|reader| Step::Leave { reader }),
        1 => reader.clone().prop_map(|reader| Step::Forget { reader }),
        1 => (reader.clone(), 0u64..30_000)
            .prop_map(|(reader, limit_bytes)| Step::DropOldest { reader, limit_bytes }),
        1 => reader.prop_map(|reader| Step::DropUnwritten { reader }),
        6 => (0u8..15).prop_map(|milliseconds| Step::Wait { milliseconds }),
    ];
    let troubles = prop_oneof![
        4 => trouble_of(&READS).prop_map(trouble),
        4 => trouble_of(&CHANGES).prop_map(trouble),
        1 => whole_disk().prop_map(trouble),
        1 => (whole_disk(), 1u64..60).prop_map(|(trouble, ticks)| Step::Spell { trouble, ticks }),
        1 => (0u64..100_000).prop_map(|left_bytes| Step::FillUp { left_bytes }),
        5 => Just(Step::Heal),
        3 => (any::<usize>(), any::<u64>(), any::<bool>())
            .prop_map(|(pick, at, is_bad_page)| Step::Damage { pick, at, is_bad_page }),
        1 => Just(Step::Restore),
    ];
    let ends = prop_oneof![
        3 => (0u64..40).prop_map(|calls| Step::DieAfter { calls }),
        4 => power().prop_map(|power| Step::Crash { power }),
        2 => Just(Step::CleanEnd),
        1 => power().prop_map(|power| Step::Repair { power }),
        1 => Just(Step::Settle),
    ];
    prop_oneof![16 => usual, 4 => troubles, 2 => ends]
}

fn apply(world: &mut World, step: Step) {
    match step {
        Step::Append { mask, len, count } => (0..count).for_each(|_| world.append(mask, len)),
        Step::Read { reader, count } => (0..count).for_each(|_| world.read(reader)),
        Step::Resolve { reader, pick } => world.resolve(reader, pick),
        Step::ResolveAll { reader } => world.resolve_all(reader),
        Step::Rewind { reader } => world.rewind(reader),
        Step::Leave { reader } => world.leave(reader, Keep::Backlog),
        Step::Forget { reader } => world.leave(reader, Keep::Nothing),
        Step::DropOldest { reader, limit_bytes } => world.drop_oldest(reader, limit_bytes),
        Step::DropUnwritten { reader } => world.drop_unwritten(reader),
        Step::Wait { milliseconds } => {
            std::thread::sleep(Duration::from_millis(milliseconds.into()))
        }
        Step::Trouble { trouble } => world.trouble(trouble),
        Step::Spell { trouble, ticks } => {
            let now = world.disk.ticks();
            world.trouble(Trouble { lasts: Lasts::Ticks(now..now + ticks), ..trouble });
        }
        Step::FillUp { left_bytes } => world.fill_up(left_bytes),
        Step::Heal => world.heal(),
        Step::Damage { pick, at, is_bad_page } => world.damage(pick, at, is_bad_page),
        Step::Restore => world.restore_all(),
        Step::DieAfter { calls } => world.die_after(calls),
        Step::Crash { power } => {
            world.crash(power);
            world.start();
        }
        Step::CleanEnd => {
            world.end();
            world.start();
        }
        Step::Repair { power } => {
            world.crash(power);
            world.repair();
            world.start();
        }
        Step::Settle => world.settle_if_alive(),
    }
}

/// Runs this many cases.
fn run(cases: u32, at_a_time: u32) {
    let steps = proptest::collection::vec(step(), 1..80);
    let memory = prop_oneof![Just(0u64), Just(20_000), Just(1 << 30)];
    let case = (any::<u64>(), 0u64..3, memory, any::<bool>(), steps);
    let config = ProptestConfig {
        cases: cases.div_ceil(at_a_time),
        max_shrink_iters: shrinks(),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let case = &case;
    std::thread::scope(|scope| {
        let run = || {
            let mut runner = TestRunner::new(config.clone());
            let ran = runner.run(case, |(seed, flush_ms, memory, is_killed, steps)| {
                let mut world = World::new(seed, Duration::from_millis(flush_ms), memory);
                steps.into_iter().for_each(|step| apply(&mut world, step));
                world.finish(is_killed);
                Ok(())
            });
            ran.unwrap_or_else(|error| panic!("{error}"));
        };
        let threads: Vec<_> = (0..at_a_time).map(|_| scope.spawn(run)).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("every case holds"));
    });
}

fn shrinks() -> u32 {
    std::env::var("SHRINKS").map_or(60, |text| text.parse().expect("a number"))
}

fn cases(usual: u32) -> u32 {
    std::env::var("SLUICE_TEST_CASES").map_or(usual, |text| text.parse().expect("a number"))
}

/// `SLUICE_TEST_CASES` sets the number of cases.
#[test]
fn whatever_the_disk_does_what_can_be_read_is_delivered() {
    run(cases(1_000), AT_A_TIME);
}

#[test]
#[ignore = "an hour long"]
fn torture_whatever_the_disk_does_what_can_be_read_is_delivered() {
    run(cases(100_000), AT_A_TIME);
}
