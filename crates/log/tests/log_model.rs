//! Random operations, failures, power cuts and restarts against a model that fits on a page.
//!
//! After each start every reader gets, once and in order, at least the durable frames that it had
//! not resolved, and no frame that was not for it. After a clean end it gets exactly its unresolved
//! frames.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use sluice_log::{CursorId, Holding, Keep, Log, Next, OpenOptions};
use support::faulty_disk::{
    FaultyDisk, Operation, Unsynced, input_output, no_space, too_many_open_files,
};
use support::note::*;

/// Longer than a test takes.
const NEVER: Duration = Duration::from_secs(3600);
const NAMES: [&str; 3] = ["a", "b", "c/d"];

#[derive(Clone, Debug)]
enum Step {
    Append { mask: u8, len: usize, count: u8 },
    Read { reader: usize, count: u8 },
    Resolve { reader: usize, pick: usize },
    ResolveAll { reader: usize },
    Rewind { reader: usize },
    Leave { reader: usize },
    DropOldest { reader: usize, limit_bytes: u64 },
    DropUnwritten { reader: usize },
    Wait { milliseconds: u8 },
    WaitDurable,
    Fail { operation: u8, error: u8 },
    Heal,
    PowerCut { unsynced: u8 },
    Kill,
    CleanEnd,
}

fn step() -> impl Strategy<Value = Step> {
    let reader = 0usize..3;
    prop_oneof![
        12 => (1u8..8, 0usize..3000, 1u8..30)
            .prop_map(|(mask, len, count)| Step::Append { mask, len, count }),
        8 => (reader.clone(), 1u8..60).prop_map(|(reader, count)| Step::Read { reader, count }),
        8 => (reader.clone(), any::<usize>())
            .prop_map(|(reader, pick)| Step::Resolve { reader, pick }),
        3 => reader.clone().prop_map(|reader| Step::ResolveAll { reader }),
        2 => reader.clone().prop_map(|reader| Step::Rewind { reader }),
        1 => reader.clone().prop_map(|reader| Step::Leave { reader }),
        2 => (reader.clone(), 0u64..30_000)
            .prop_map(|(reader, limit_bytes)| Step::DropOldest { reader, limit_bytes }),
        1 => reader.prop_map(|reader| Step::DropUnwritten { reader }),
        4 => (0u8..15).prop_map(|milliseconds| Step::Wait { milliseconds }),
        4 => Just(Step::WaitDurable),
        2 => (0u8..7, 0u8..3).prop_map(|(operation, error)| Step::Fail { operation, error }),
        3 => Just(Step::Heal),
        2 => (0u8..3).prop_map(|unsynced| Step::PowerCut { unsynced }),
        1 => Just(Step::Kill),
        1 => Just(Step::CleanEnd),
    ]
}

/// State of a reader in the model.
#[derive(Default)]
struct Reader {
    id: Option<CursorId>,
    /// Values, by offset, that the reader must or may get.
    expected: BTreeMap<u64, u64>,
    /// Read from the log since the last rewind and not resolved.
    leased: BTreeMap<u64, u64>,
    /// Every offset below was read since the last start or rewind.
    read_below: u64,
}

struct World {
    disk: FaultyDisk,
    log: Option<Log<Note>>,
    options: OpenOptions,
    durable: Durable,
    readers: [Reader; 3],
    next_value: u64,
    /// Values, by offset, that were ever called durable.
    durable_offsets: BTreeMap<u64, u64>,
    /// Values, by offset, that were appended since the log was opened.
    offsets: BTreeMap<u64, u64>,
    is_failing: bool,
    /// The disk refused a call since the log was opened: cursors may not have been stored.
    has_failed: bool,
    /// No call was refused since the last orderly end: segments were removed only after cursors
    /// had been stored. Otherwise frames of removed segments may count as lost after a crash.
    is_stored_exactly: bool,
}

impl World {
    fn new(seed: u64, flush_after: Duration, memory_limit_bytes: u64) -> Self {
        let disk = FaultyDisk::new(seed);
        disk.set_short_calls(seed.is_multiple_of(2));
        let options = OpenOptions {
            flush_after,
            memory_limit_bytes,
            read_ahead_bytes: 4000,
            ..options(&disk)
        };
        let mut world = World {
            disk,
            log: None,
            options,
            durable: Durable::default(),
            readers: Default::default(),
            next_value: 0,
            durable_offsets: BTreeMap::new(),
            offsets: BTreeMap::new(),
            is_failing: false,
            has_failed: false,
            is_stored_exactly: true,
        };
        world.start();
        world
    }

    fn log(&self) -> &Log<Note> {
        self.log.as_ref().expect("it runs")
    }

    fn id(&self, reader: usize) -> CursorId {
        self.readers[reader].id.expect("it is subscribed")
    }

    fn start(&mut self) {
        self.options.disk = std::sync::Arc::new(self.disk.clone());
        let (log, recovered) = Log::open(self.options.clone()).expect("the log opens");
        assert!(recovered.lost_cursors.is_empty());
        // Frames that were resolved while cursors could not be stored count as missing.
        let is_exact = self.is_stored_exactly;
        assert!(!is_exact || recovered.missing.is_none(), "{:?}", recovered.missing);
        for (reader, name) in self.readers.iter_mut().zip(NAMES) {
            reader.id = Some(subscribe(&log, name));
            reader.leased.clear();
            reader.read_below = 0;
        }
        self.log = Some(log);
    }

    /// Records the values that the log called durable.
    fn gather_durable(&mut self) {
        let durable = self.durable.lock();
        for (&offset, value) in &self.offsets {
            if durable.contains(value) {
                let before = self.durable_offsets.insert(offset, *value);
                assert!(
                    before.is_none_or(|before| before == *value),
                    "offset {offset} was given twice"
                );
            }
        }
    }

    /// The process or the power fails. Frames that were not durable may be gone.
    fn crash(&mut self, disk: FaultyDisk) {
        drop(self.log.take());
        self.gather_durable();
        self.offsets.clear();
        self.disk = disk;
        self.heal();
        self.start();
        self.check_all(|durable, offset, value| durable.get(&offset) == Some(&value));
        if std::mem::take(&mut self.has_failed) {
            // Segments that no reader needs are removed even so, or a full disk would stay full.
            // If no file names their offsets any more, these may be given again.
            let readers = &self.readers;
            let is_needed =
                |offset: &u64| readers.iter().any(|it| it.expected.contains_key(offset));
            self.durable_offsets.retain(|offset, _| is_needed(offset));
        }
    }

    fn clean_end(&mut self) {
        self.heal();
        let log = self.log.take().expect("it runs");
        for reader in &self.readers {
            log.rewind(reader.id.expect("it is subscribed"));
        }
        assert_eq!(log.close(PATIENCE).frames, 0, "{:?}", log.trouble());
        drop(log);
        self.gather_durable();
        self.offsets.clear();
        self.has_failed = false;
        self.is_stored_exactly = true;
        self.start();
        self.check_all(|_, _, _| true);
    }

    /// Checks the frames that every reader gets after a start.
    fn check_all(&mut self, must_come: impl Fn(&BTreeMap<u64, u64>, u64, u64) -> bool) {
        for (index, name) in NAMES.into_iter().enumerate() {
            let id = self.id(index);
            let read: Vec<_> = read_all(self.log(), id);
            assert!(read.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order");
            let read: BTreeMap<u64, u64> = read.into_iter().collect();
            let reader = &mut self.readers[index];
            for (offset, value) in &reader.expected {
                if must_come(&self.durable_offsets, *offset, *value) {
                    assert_eq!(read.get(offset), Some(value), "{name} lost {offset}");
                }
            }
            for (offset, value) in &read {
                // A frame that was resolved just before a crash may come again.
                let is_known = self.durable_offsets.get(offset).is_none_or(|known| known == value);
                assert!(is_known && *value < self.next_value);
            }
            reader.expected = read.clone();
            reader.leased = read;
            reader.read_below = u64::MAX;
            let log = self.log.as_ref().expect("it runs");
            assert_eq!(log.held(id).frames, reader.leased.len() as u64);
            if self.is_stored_exactly {
                assert_eq!(log.lost_total(id), Holding::default(), "{name}");
            }
            self.rewind(index);
        }
    }

    fn rewind(&mut self, reader: usize) {
        self.log().rewind(self.id(reader));
        self.readers[reader].leased.clear();
        self.readers[reader].read_below = 0;
    }

    fn heal(&mut self) {
        self.disk.clear_fault();
        self.disk.set_capacity(None);
        self.is_failing = false;
    }

    fn append(&mut self, mask: u8, len: usize) {
        let chosen: Vec<usize> = (0..3).filter(|index| mask & (1 << index) != 0).collect();
        let ids: Vec<CursorId> = chosen.iter().map(|&index| self.id(index)).collect();
        let value = self.next_value;
        self.next_value += 1;
        let offset = append(self.log(), value, len, &ids, &self.durable);
        assert!(!self.durable_offsets.contains_key(&offset), "offset {offset} was given before");
        self.offsets.insert(offset, value);
        for index in chosen {
            self.readers[index].expected.insert(offset, value);
            if self.readers[index].read_below == u64::MAX {
                self.readers[index].read_below = offset;
            }
        }
    }

    fn read(&mut self, index: usize) {
        let id = self.id(index);
        let next = if self.is_failing {
            match self.log().read(id) {
                Next::Entry(offset, note) => Some((offset, note)),
                _ => return,
            }
        } else {
            next(self.log(), id)
        };
        let reader = &mut self.readers[index];
        let expected = reader
            .expected
            .range(reader.read_below..)
            .next()
            .map(|(&offset, &value)| (offset, value));
        assert_eq!(next.map(|(offset, note)| (offset, note.value)), expected, "reader {index}");
        if let Some((offset, value)) = expected {
            reader.leased.insert(offset, value);
            reader.read_below = offset + 1;
        }
    }

    fn resolve(&mut self, index: usize, pick: usize) {
        let reader = &mut self.readers[index];
        if reader.leased.is_empty() {
            return;
        }
        let offset = *reader.leased.keys().nth(pick % reader.leased.len()).expect("it is there");
        reader.leased.remove(&offset);
        reader.expected.remove(&offset);
        let id = self.id(index);
        assert!(self.log().resolve(id, offset));
        assert!(!self.log().resolve(id, offset));
    }

    /// Drops to a budget. The dropped ranges say which frames were dropped.
    fn drop_oldest(&mut self, index: usize, limit_bytes: u64) {
        let id = self.id(index);
        self.log().set_limits(id, limit_bytes, u64::MAX);
        let before = self.log().held(id).frames;
        let mut dropped = self.log().drop_oldest_unread(id).0;
        let newest = self.readers[index].expected.keys().next_back().copied();
        wait_until("within the budget", || {
            dropped.add(self.log().take_dropped(id));
            let held = self.log().held(id);
            let leased = self.log().leased(id);
            let is_least = held.frames <= leased.frames + 1;
            if held.bytes > limit_bytes && !is_least {
                dropped.add(self.log().drop_oldest_unread(id).0);
            }
            held.bytes <= limit_bytes || is_least
        });
        dropped.add(self.log().take_dropped(id));
        self.log().set_limits(id, u64::MAX, u64::MAX);
        let dropped_frames = dropped.frames;
        let reader = &mut self.readers[index];
        for _ in 0..dropped_frames {
            let (&offset, _) = reader
                .expected
                .range(reader.read_below..)
                .next()
                .expect("only what is unread is dropped");
            reader.expected.remove(&offset);
        }
        assert_eq!(self.log().held(id).frames, before - dropped_frames);
        let reader = &self.readers[index];
        assert_eq!(self.log().held(id).frames, reader.expected.len() as u64, "newest {newest:?}");
    }

    fn drop_unwritten(&mut self, index: usize) {
        let id = self.id(index);
        for given_up in self.log().drop_unwritten(id, 500) {
            let note = given_up.entry;
            let reader = &mut self.readers[index];
            let offset = *self
                .offsets
                .iter()
                .find(|(_, value)| **value == note.value)
                .expect("it is of this life")
                .0;
            assert!(offset >= reader.read_below);
            assert!(reader.expected.remove(&offset).is_some());
        }
    }

    fn fail(&mut self, operation: u8, error: u8) {
        let operation = [
            Operation::Write,
            Operation::SyncData,
            Operation::Allocate,
            Operation::CreateNew,
            Operation::SyncDirectory,
            Operation::Rename,
            Operation::RemoveFile,
        ][usize::from(operation)];
        self.disk.fail_operation(
            operation,
            [no_space, input_output, too_many_open_files][usize::from(error)],
        );
        (self.is_failing, self.has_failed, self.is_stored_exactly) = (true, true, false);
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Append { mask, len, count } => (0..count).for_each(|_| self.append(mask, len)),
            Step::Read { reader, count } => (0..count).for_each(|_| self.read(reader)),
            Step::Resolve { reader, pick } => self.resolve(reader, pick),
            Step::ResolveAll { reader } => {
                while !self.readers[reader].leased.is_empty() {
                    self.resolve(reader, 0);
                }
            }
            Step::Rewind { reader } => self.rewind(reader),
            Step::Leave { reader } => {
                self.rewind(reader);
                let id = self.id(reader);
                assert_eq!(self.log().unsubscribe(id, Keep::Backlog).frames, 0);
                let orphans = self.log().orphans();
                let orphan = orphans.iter().find(|orphan| orphan.name == NAMES[reader]);
                // It may be kept although it has no frame left, if that is not known yet.
                assert!(orphan.is_some() || self.readers[reader].expected.is_empty());
                self.readers[reader].id = Some(subscribe(self.log(), NAMES[reader]));
            }
            Step::DropOldest { reader, limit_bytes } => self.drop_oldest(reader, limit_bytes),
            Step::DropUnwritten { reader } => self.drop_unwritten(reader),
            Step::Wait { milliseconds } => {
                std::thread::sleep(Duration::from_millis(milliseconds.into()))
            }
            Step::WaitDurable if !self.is_failing && self.options.flush_after != NEVER => {
                wait_until("all written", || self.log().unwritten_bytes() == 0);
            }
            Step::WaitDurable => {}
            Step::Fail { operation, error } => self.fail(operation, error),
            Step::Heal => self.heal(),
            Step::PowerCut { unsynced } => {
                let unsynced =
                    [Unsynced::Lost, Unsynced::Mixed, Unsynced::Garbage][usize::from(unsynced)];
                let disk = self.disk.cut_power(unsynced);
                self.crash(disk);
            }
            Step::Kill => {
                let disk = self.disk.kill_process();
                self.crash(disk);
            }
            Step::CleanEnd => self.clean_end(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn nothing_durable_is_lost_and_nothing_foreign_comes(
        seed in any::<u64>(),
        policy in 0u8..3,
        memory_limit_bytes in prop_oneof![Just(0u64), Just(20_000), Just(1 << 30)],
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let flush_after = [Duration::ZERO, Duration::from_millis(2), NEVER][usize::from(policy)];
        let mut world = World::new(seed, flush_after, memory_limit_bytes);
        for step in steps {
            world.apply(step);
        }
        world.clean_end();
        let disk = world.disk.kill_process();
        world.crash(disk);
    }
}

/// Scenario: one frame is on disk when the unwritten ones are dropped, then the budget shrinks.
/// Guarantee: the oldest frame is dropped first.
#[test]
fn the_oldest_goes_first_also_after_what_was_not_written() {
    let mut world = World::new(0, Duration::ZERO, 1 << 30);
    for step in [
        Step::Append { mask: 2, len: 0, count: 1 },
        Step::Wait { milliseconds: 100 },
        Step::DropUnwritten { reader: 1 },
        Step::Append { mask: 2, len: 1413, count: 19 },
        Step::DropOldest { reader: 1, limit_bytes: 1613 },
    ] {
        world.apply(step);
    }
    world.clean_end();
}

/// Scenario: a reader resolves a frame, its file cannot be written, and the process is killed when
/// the segment is gone. Guarantee: the next process goes on, possibly with the offset of a frame
/// that no reader needs.
#[test]
fn a_place_that_could_not_be_stored_costs_nothing_that_is_needed() {
    let mut world = World::new(0, Duration::ZERO, 0);
    for step in [
        Step::Append { mask: 1, len: 0, count: 1 },
        Step::WaitDurable,
        Step::Read { reader: 0, count: 1 },
        Step::Fail { operation: 0, error: 0 },
        Step::ResolveAll { reader: 0 },
        Step::Wait { milliseconds: 250 },
        Step::Kill,
        Step::Append { mask: 1, len: 0, count: 1 },
        Step::WaitDurable,
        Step::PowerCut { unsynced: 0 },
    ] {
        world.apply(step);
    }
    assert_eq!(world.readers[0].expected.len(), 1);
}
