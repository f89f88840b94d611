//! Tests of the memory tail by itself. Logs on disk are tested in `tests/`.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::types::Sheds;
use crate::types::{Keep, Next, Subscription};

const ONE: Charge = Charge { bytes: 10, items: 1 };

fn reader<T>(log: &Log<T>, limit_bytes: u64) -> CursorId {
    log.subscribe(Subscription { limit_bytes, ..Subscription::new("") })
}

fn readers(ids: &[CursorId]) -> Arc<[CursorId]> {
    ids.into()
}

#[test]
fn a_frame_is_stored_once_and_let_go_when_the_last_reader_has_resolved_it() {
    let log = Log::default();
    let (a, b) = (reader(&log, u64::MAX), reader(&log, u64::MAX));
    let entry = Arc::new("frame");
    log.append(entry.clone(), ONE, &readers(&[a, b]));
    assert_eq!((log.stored_bytes(), log.held(a).bytes, log.held(b).bytes), (10, 10, 10));
    let (offset, _) = log.read(a).entry().unwrap();
    log.resolve(a, offset);
    assert_eq!((log.stored_bytes(), log.held(a).bytes, log.held(b).bytes), (10, 0, 10));
    let (offset, _) = log.read(b).entry().unwrap();
    log.resolve(b, offset);
    assert_eq!((log.stored_bytes(), Arc::strong_count(&entry)), (0, 1));
}

#[test]
fn a_waiting_frame_pins_neither_its_neighbours_nor_their_memory() {
    let log = Log::default();
    let a = reader(&log, u64::MAX);
    let only_a = readers(&[a]);
    for index in 0..1000 {
        log.append(Arc::new(index), ONE, &only_a);
    }
    let offsets: Vec<_> =
        std::iter::from_fn(|| log.read(a).entry()).map(|(offset, _)| offset).collect();
    for &offset in &offsets[1..] {
        assert!(log.resolve(a, offset));
        assert!(!log.resolve(a, offset), "resolved only once");
    }
    assert_eq!((log.stored_bytes(), log.held(a).frames), (10, 1));
    assert!(
        log.shared.inner.lock().slots.kept() < 300,
        "{} slots held for one frame",
        log.shared.inner.lock().slots.kept()
    );
    log.resolve(a, offsets[0]);
    assert_eq!(log.stored_bytes(), 0);
}

#[test]
fn dropping_the_oldest_takes_what_is_not_leased_and_only_from_its_own_reader() {
    let log = Log::default();
    let (slow, quick) = (reader(&log, 30), reader(&log, u64::MAX));
    let both = readers(&[slow, quick]);
    for index in 0..10 {
        log.append(Arc::new(index), ONE, &both);
    }
    let (leased, _) = log.read(slow).entry().unwrap();
    let (dropped, entries) = log.drop_oldest_unread(slow);
    assert_eq!((dropped.frames, entries.len(), log.held(slow).bytes), (7, 7, 30));
    assert_eq!(*entries[0].entry, 1, "the leased frame 0 stays");
    assert_eq!(log.held(quick).bytes, 100);
    assert_eq!(*log.read(slow).entry().unwrap().1, 8);
    assert!(log.resolve(slow, leased));
}

#[test]
fn a_reader_that_was_idle_while_others_went_on_does_not_gather_ranges() {
    let log = Log::default();
    let (idle, busy) = (reader(&log, u64::MAX), reader(&log, u64::MAX));
    for index in 0..100 {
        log.append(Arc::new(index), ONE, &readers(&[busy]));
        let (offset, _) = log.read(busy).entry().unwrap();
        log.resolve(busy, offset);
    }
    log.append(Arc::new(100), ONE, &readers(&[idle]));
    let (offset, entry) = log.read(idle).entry().unwrap();
    assert_eq!((*entry, offset), (100, 100));
    log.resolve(idle, offset);
    assert!(log.shared.inner.lock().cursor(idle).resolved.is_empty());
}

#[test]
fn a_frame_larger_than_the_whole_budget_gets_through() {
    let log = Log::default();
    let reader = reader(&log, 25);
    let large = Charge { bytes: 1000, items: 1 };
    assert!(log.append(Arc::new(0), large, &readers(&[reader])).over_budget);
    assert_eq!(log.drop_oldest_unread(reader).0.frames, 0, "there is nothing older to drop");
    log.append(Arc::new(1), ONE, &readers(&[reader]));
    let (dropped, _) = log.drop_oldest_unread(reader);
    assert_eq!((dropped.frames, log.held(reader).bytes), (1, 10), "now it is the oldest");
}

#[test]
fn an_append_says_when_a_budget_is_exceeded_and_a_rewound_reader_sees_the_rest_again() {
    let log = Log::default();
    let reader = reader(&log, 25);
    let only = readers(&[reader]);
    assert!(!log.append(Arc::new(0), ONE, &only).over_budget);
    assert!(!log.append(Arc::new(1), ONE, &only).over_budget);
    assert!(log.append(Arc::new(2), ONE, &only).over_budget);
    let read: Vec<_> =
        std::iter::from_fn(|| log.read(reader).entry()).map(|(offset, _)| offset).collect();
    log.resolve(reader, read[1]);
    log.rewind(reader);
    let again: Vec<_> =
        std::iter::from_fn(|| log.read(reader).entry()).map(|(_, entry)| *entry).collect();
    assert_eq!(again, [0, 2]);
}

#[test]
fn a_reader_that_leaves_lets_go_of_what_only_it_held() {
    let log = Log::default();
    let (stays, leaves) = (reader(&log, u64::MAX), reader(&log, u64::MAX));
    log.append(Arc::new(0), ONE, &readers(&[stays, leaves]));
    log.append(Arc::new(1), ONE, &readers(&[leaves]));
    assert_eq!(log.unsubscribe(leaves, Keep::Backlog).frames, 2);
    assert_eq!(log.stored_bytes(), 10, "the frame that the other reader still wants");
}

#[test]
fn whether_a_reader_is_over_its_budget_is_said_without_the_lock() {
    let log = Log::default();
    let id = reader(&log, 15);
    let gauges = log.gauges(id);
    for (index, is_over) in [(0, false), (1, true)] {
        log.append(Arc::new(index), ONE, &readers(&[id]));
        let _held = log.shared.inner.lock();
        assert_eq!(gauges.is_over_budget(), is_over);
    }
    log.drop_oldest_unread(id);
    assert!(!gauges.is_over_budget());
    log.set_limits(id, 0, u64::MAX);
    assert!(!gauges.is_over_budget(), "a single frame may exceed it");
}

#[test]
fn what_a_reader_did_not_want_is_not_taken_for_another_one() {
    let log = Log::default();
    let (behind, other) = (reader(&log, u64::MAX), reader(&log, u64::MAX));
    log.gauges(behind).allow(Sheds::Taken);
    for index in 0..3 {
        log.append(Arc::new(index), ONE, &readers(&[behind, other]));
    }
    let read = || log.read(other).entry().unwrap().0;
    let (unwanted, taken) = (read(), read());
    assert!(log.resolve_unwanted(other, unwanted) && !log.resolve_unwanted(other, unwanted));
    assert!(log.resolve(other, taken));
    assert!(!log.may_give_up(behind, unwanted) && log.may_give_up(behind, taken));
    let given_up = log.shed_alone(behind, 100);
    assert_eq!(given_up.iter().map(|gone| *gone.entry).collect::<Vec<_>>(), [taken]);
}

#[derive(Clone, Debug)]
enum Step {
    Append(u8),
    Read(usize),
    Resolve(usize, usize),
    Drop(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1u8..8).prop_map(Step::Append),
        3 => (0usize..3).prop_map(Step::Read),
        3 => (0usize..3, any::<usize>()).prop_map(|(reader, pick)| Step::Resolve(reader, pick)),
        1 => (0usize..3, 0u64..100).prop_map(|(reader, limit)| Step::Drop(reader, limit)),
    ]
}

proptest! {
    /// Guarantee, for any order of appends, leases, resolutions and drops: each reader gets each of
    /// its frames once and in order, and the stored bytes are those of the unresolved frames.
    #[test]
    fn behaves_as_one_queue_a_reader(steps in proptest::collection::vec(step(), 0..300)) {
        let log = Log::default();
        let ids = [reader(&log, u64::MAX), reader(&log, u64::MAX), reader(&log, u64::MAX)];
        let mut queues = [const { VecDeque::<u64>::new() }; 3];
        let mut leased = [const { Vec::<(u64, u64)>::new() }; 3];
        let mut appended = 0u64;
        for step in steps {
            match step {
                Step::Append(mask) => {
                    let chosen: Vec<_> = (0..3).filter(|index| mask & (1 << index) != 0).collect();
                    let readers: Arc<[CursorId]> = chosen.iter().map(|&index| ids[index]).collect();
                    log.append(Arc::new(appended), ONE, &readers);
                    for index in chosen {
                        queues[index].push_back(appended);
                    }
                    appended += 1;
                }
                Step::Read(index) => {
                    let read = log.read(ids[index]).entry();
                    let value = read.as_ref().map(|(_, entry)| **entry);
                    prop_assert_eq!(value, queues[index].pop_front());
                    leased[index].extend(read.map(|(offset, entry)| (offset, *entry)));
                }
                Step::Resolve(index, pick) => {
                    if !leased[index].is_empty() {
                        let at = pick % leased[index].len();
                        let (offset, _) = leased[index].swap_remove(at);
                        prop_assert!(log.resolve(ids[index], offset));
                    }
                }
                Step::Drop(index, limit) => {
                    log.set_limits(ids[index], limit, u64::MAX);
                    let (_, entries) = log.drop_oldest_unread(ids[index]);
                    for given_up in entries {
                        prop_assert_eq!(Some(*given_up.entry), queues[index].pop_front());
                    }
                    let held = 10 * (queues[index].len() + leased[index].len()) as u64;
                    let is_newest = |&left: &u64| left + 1 == appended;
                    prop_assert!(held <= limit || queues[index].iter().all(is_newest));
                }
            }
            for index in 0..3 {
                let unread = 10 * queues[index].len() as u64;
                let held = unread + 10 * leased[index].len() as u64;
                prop_assert_eq!(log.held(ids[index]).bytes, held);
                prop_assert_eq!(log.shared.inner.lock().cursor(ids[index]).unread.bytes, unread);
            }
        }
    }
}

#[test]
fn a_reader_that_has_leased_all_it_may_gets_more_only_after_it_has_resolved_some() {
    let log = Log::default();
    let id = log.subscribe(Subscription { lease_limit_bytes: 20, ..Subscription::new("") });
    for index in 0..3 {
        log.append(Arc::new(index), ONE, &readers(&[id]));
    }
    let (first, _) = log.read(id).entry().unwrap();
    log.read(id).entry().unwrap();
    assert!(matches!(log.read(id), Next::Full));
    log.resolve(id, first);
    assert_eq!(*log.read(id).entry().unwrap().1, 2);
    assert_eq!(log.leased(id).frames, 2);
}

#[test]
fn a_reader_may_lease_one_frame_that_is_larger_than_all_it_may_lease() {
    let log = Log::default();
    let id = log.subscribe(Subscription { lease_limit_bytes: 5, ..Subscription::new("") });
    log.append(Arc::new(0), ONE, &readers(&[id]));
    assert!(matches!(log.read(id), Next::Entry(..)));
    assert!(matches!(log.read(id), Next::Full));
}
