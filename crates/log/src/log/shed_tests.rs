//! Giving up frames, against a model that counts everything again at each step.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::types::Sheds;
use crate::types::{Holding, Next, Subscription};

const ONE: Charge = Charge { bytes: 10, items: 1 };

fn append(log: &Log<u64>, values: std::ops::Range<u64>, readers: &[CursorId]) {
    let readers: Arc<[CursorId]> = readers.into();
    for value in values {
        log.append(Arc::new(value), ONE, &readers);
    }
}

fn log_with(readers: usize) -> (Log<u64>, Vec<CursorId>, Arc<[CursorId]>) {
    let log = Log::default();
    let ids: Vec<_> = (0..readers).map(|_| log.subscribe(Subscription::new(""))).collect();
    let all = ids.clone().into();
    (log, ids, all)
}

fn allow(log: &Log<u64>, id: CursorId, give_up: Sheds) {
    log.gauges(id).allow(give_up);
}

/// Reads and resolves every frame of a reader.
fn take_all(log: &Log<u64>, id: CursorId) {
    while let Next::Entry(offset, _) = log.read(id) {
        log.resolve(id, offset);
    }
}

/// Guarantee: a frame that a reader gave up counts as dropped, also if the reader had leased it.
#[test]
fn leased_frames_that_are_given_up_are_noted() {
    let (log, ids, all) = log_with(1);
    append(&log, 0..5, &all);
    for _ in 0..3 {
        let (offset, _) = log.read(ids[0]).entry().expect("it is there");
        assert_eq!(log.give_up(ids[0], offset), Some(true));
        assert_eq!(log.give_up(ids[0], offset), None);
    }
    assert_eq!(log.dropped_total(ids[0]), Holding { frames: 3, items: 3, bytes: 30 });
    assert_eq!(log.dropped_ranges(ids[0]).len(), 1);
}

#[test]
fn what_only_one_reader_pins_is_counted_to_it() {
    let (log, ids, all) = log_with(3);
    append(&log, 0..10, &all);
    let alone = || ids.iter().map(|&id| log.gauges(id).alone_bytes.get()).collect::<Vec<_>>();
    assert_eq!(alone(), [0, 0, 0]);
    take_all(&log, ids[0]);
    assert_eq!(alone(), [0, 0, 0]);
    take_all(&log, ids[1]);
    assert_eq!(alone(), [0, 0, 100]);
    log.append(Arc::new(10), ONE, &[ids[0]].into());
    assert_eq!(alone(), [10, 0, 100]);
    log.unsubscribe(ids[2], crate::types::Keep::Nothing);
    assert_eq!((log.gauges(ids[0]).alone_bytes.get(), log.stored_bytes()), (10, 10));
}

#[test]
fn a_frame_that_no_other_reader_has_taken_stays_where_only_taken_ones_may_go() {
    let (log, ids, all) = log_with(3);
    let (healthy, dead, other_dead) = (ids[0], ids[1], ids[2]);
    [dead, other_dead].into_iter().for_each(|id| allow(&log, id, Sheds::Taken));
    allow(&log, healthy, Sheds::Nothing);
    append(&log, 0..20, &all);
    assert!(log.shed_together(1_000).is_empty() && log.shed_alone(dead, 1_000).is_empty());
    for _ in 0..10 {
        let (offset, _) = log.read(healthy).entry().expect("it is there");
        log.resolve(healthy, offset);
    }
    let shed = log.shed_together(1_000);
    let values: BTreeSet<u64> = shed.iter().map(|given_up| *given_up.entry).collect();
    assert_eq!(
        (shed.len(), values),
        (20, (0..10).collect()),
        "both give up what the healthy one has taken"
    );
    assert!(shed.iter().all(|given_up| !given_up.is_lost));
    assert_eq!(
        (log.stored_bytes(), log.held(dead).bytes, log.held(healthy).bytes),
        (100, 100, 100)
    );
    assert_eq!(log.dropped_ranges(dead).len(), 1, "one range, not one a frame");
    assert_eq!(*log.read(dead).entry().expect("it goes on behind").1, 10);
}

#[test]
fn a_best_effort_reader_is_no_witness_and_what_all_gave_up_is_lost() {
    let log = Log::default();
    let best_effort =
        log.subscribe(Subscription { is_best_effort: true, ..Subscription::new("debug") });
    let dead = log.subscribe(Subscription::new("dead"));
    allow(&log, dead, Sheds::Taken);
    append(&log, 0..3, &[best_effort, dead]);
    take_all(&log, best_effort);
    assert!(log.shed_alone(dead, 1_000).is_empty());
    allow(&log, dead, Sheds::Everything);
    let shed = log.shed_alone(dead, 1_000);
    assert!(shed.len() == 2 && shed.iter().all(|given_up| given_up.is_lost), "all but the newest");
}

#[test]
fn only_what_the_reader_pins_alone_makes_memory_free() {
    let (log, ids, all) = log_with(2);
    append(&log, 0..10, &all);
    for _ in 0..4 {
        let (offset, _) = log.read(ids[0]).entry().expect("it is there");
        log.resolve(ids[0], offset);
    }
    let shed = log.shed_alone(ids[1], 30);
    assert_eq!(shed.iter().map(|given_up| *given_up.entry).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(log.shed_alone(ids[1], 1_000).len(), 1);
    assert_eq!((log.stored_bytes(), log.held(ids[1]).bytes), (60, 60));
}

/// Fifty dead readers, one that is healthy and one with a backlog that must stay. The pool has room
/// for a thousand of the 20,000 frames beside that backlog.
#[test]
fn fifty_dead_readers_are_relieved_at_once_and_a_backlog_that_must_stay_is_looked_at_once() {
    let (log, ids, _) = log_with(52);
    let (healthy, firm, dead) = (ids[0], ids[1], &ids[2..]);
    dead.iter().for_each(|&id| allow(&log, id, Sheds::Taken));
    [healthy, firm].into_iter().for_each(|id| allow(&log, id, Sheds::Nothing));
    // Frames that stay come first: an append must not walk over them each time.
    append(&log, 0..5_000, &[firm]);
    let others = [&[healthy], dead].concat();
    let mut most_bytes = 0;
    for value in 0..20_000 {
        append(&log, value..value + 1, &others);
        take_all(&log, healthy);
        if log.stored_bytes() > 60_000 {
            log.shed_together(10);
        }
        most_bytes = most_bytes.max(log.stored_bytes());
    }
    assert!(most_bytes <= 60_500, "{most_bytes}: the search found its way soon");
    assert_eq!(log.held(firm).bytes, 50_000);
    assert!(
        dead.iter().all(|&id| log.held(id).bytes <= 11_000 && log.dropped_ranges(id).len() == 1)
    );
}

#[derive(Clone, Debug)]
enum Step {
    Append(u8),
    Read(usize),
    Resolve(usize, usize),
    Allow(usize, u8),
    Alone(usize, u64),
    Together(u64),
    Rewind(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let reader = 0usize..3;
    prop_oneof![
        6 => (1u8..8).prop_map(Step::Append),
        4 => reader.clone().prop_map(Step::Read),
        4 => (reader.clone(), any::<usize>())
            .prop_map(|(reader, pick)| Step::Resolve(reader, pick)),
        1 => (reader.clone(), 0u8..3).prop_map(|(reader, give_up)| Step::Allow(reader, give_up)),
        2 => (reader.clone(), 0u64..60).prop_map(|(reader, bytes)| Step::Alone(reader, bytes)),
        2 => (0u64..60).prop_map(Step::Together),
        1 => reader.prop_map(Step::Rewind),
    ]
}

#[derive(Default)]
struct Frame {
    waits: BTreeSet<usize>,
    leased: BTreeSet<usize>,
    is_taken: bool,
}

proptest! {
    /// Guarantee, for any order of steps: only frames that may go are given up, no leased frame is,
    /// and every figure is the result of a count.
    #[test]
    fn only_what_may_go_goes(steps in proptest::collection::vec(step(), 0..300)) {
        let (log, ids, _) = log_with(3);
        let mut frames: Vec<Frame> = Vec::new();
        let mut allowed = [Sheds::Everything; 3];
        for step in steps {
            let mut given_up = Vec::new();
            match step {
                Step::Append(mask) => {
                    let waits = (0..3).filter(|index| mask & (1 << index) != 0);
                    let waits: BTreeSet<usize> = waits.collect();
                    let readers: Vec<_> = waits.iter().map(|&index| ids[index]).collect();
                    log.append(Arc::new(frames.len() as u64), ONE, &readers.into());
                    frames.push(Frame { waits, ..Frame::default() });
                }
                Step::Read(index) => {
                    let is_unread = |frame: &Frame| {
                        frame.waits.contains(&index) && !frame.leased.contains(&index)
                    };
                    let next = frames.iter().position(is_unread);
                    let read = log.read(ids[index]).entry().map(|(offset, _)| offset as usize);
                    prop_assert_eq!(read, next);
                    if let Some(offset) = read {
                        frames[offset].leased.insert(index);
                    }
                }
                Step::Resolve(index, pick) => {
                    let is_leased = |&offset: &usize| frames[offset].leased.contains(&index);
                    let leased: Vec<usize> = (0..frames.len()).filter(is_leased).collect();
                    if !leased.is_empty() {
                        let offset = leased[pick % leased.len()];
                        prop_assert!(log.resolve(ids[index], offset as u64));
                        frames[offset].waits.remove(&index);
                        frames[offset].leased.remove(&index);
                        frames[offset].is_taken = true;
                    }
                }
                Step::Allow(index, give_up) => {
                    let choices = [Sheds::Nothing, Sheds::Taken, Sheds::Everything];
                    allowed[index] = choices[usize::from(give_up)];
                    allow(&log, ids[index], allowed[index]);
                }
                Step::Alone(index, bytes) => {
                    given_up = log.shed_alone(ids[index], bytes);
                    prop_assert!(given_up.len() as u64 <= bytes.div_ceil(ONE.bytes));
                    prop_assert!(given_up.iter().all(|gone| gone.reader == ids[index]));
                    let is_alone = |gone: &GivenUp<u64>| {
                        frames[*gone.entry as usize].waits.len() == 1
                    };
                    prop_assert!(given_up.iter().all(is_alone));
                }
                Step::Together(bytes) => {
                    let before = log.stored_bytes();
                    given_up = log.shed_together(bytes);
                    prop_assert!(before - log.stored_bytes() <= bytes.next_multiple_of(ONE.bytes));
                }
                Step::Rewind(index) => {
                    log.rewind(ids[index]);
                    for frame in &mut frames {
                        frame.leased.remove(&index);
                    }
                }
            }
            for gone in given_up {
                let index = ids.iter().position(|&id| id == gone.reader).expect("it is a reader");
                let frame = &mut frames[*gone.entry as usize];
                prop_assert!(frame.waits.remove(&index) && !frame.leased.contains(&index));
                let may_go = match allowed[index] {
                    Sheds::Nothing => false,
                    Sheds::Taken => frame.is_taken,
                    Sheds::Everything => true,
                };
                prop_assert!(may_go);
                prop_assert_eq!(gone.is_lost, frame.waits.is_empty() && !frame.is_taken);
            }
            let bytes = |of: &dyn Fn(&Frame) -> bool| {
                10 * frames.iter().filter(|frame| of(frame)).count() as u64
            };
            prop_assert_eq!(log.stored_bytes(), bytes(&|frame| !frame.waits.is_empty()));
            for (index, &id) in ids.iter().enumerate() {
                let gauges = log.gauges(id);
                let held_bytes = bytes(&|frame| frame.waits.contains(&index));
                prop_assert_eq!(gauges.held_bytes.get(), held_bytes);
                let alone_bytes = bytes(&|frame| frame.waits.iter().eq([&index]));
                prop_assert_eq!(gauges.alone_bytes.get(), alone_bytes);
            }
        }
    }
}
