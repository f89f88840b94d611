//! A log on a disk with troubles and damage, and a model of what it owes to its readers.
//!
//! The log owes a reader each frame for it that became durable and that the reader has neither
//! resolved, dropped nor forgotten. While its bytes cannot be read, it counts as lost or its file
//! is kept. Once they can be read again, it is delivered.

pub(crate) mod damage;
pub(crate) mod end;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_log::{CursorId, Holding, Keep, Log, Next, OpenOptions};

use crate::support::faulty_disk::{Answer, FaultyDisk, Trouble, Unsynced};
use crate::support::note::*;
use damage::Hurt;

pub(crate) const NAMES: [&str; 3] = ["a", "b", "c/d"];
/// The log is patient with a disk that refuses reads for this long.
const PATIENT_FOR: Duration = Duration::from_millis(40);

/// Values that a reader gets, or may get.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) id: Option<CursorId>,
    /// It is owed these.
    pub(crate) owed: BTreeSet<u64>,
    /// These may come: they were resolved, dropped, forgotten or never durable before a crash.
    maybe: BTreeSet<u64>,
    /// Values and offsets that it has and did not resolve.
    pub(crate) leased: BTreeMap<u64, u64>,
    /// Values that came since the last rewind.
    came: BTreeSet<u64>,
    /// The newest offset since then.
    last: Option<u64>,
    /// Resolved since the log was opened.
    resolved: BTreeSet<u64>,
    /// In files that were set aside when the log was opened: they do not come in this life.
    aside: BTreeSet<u64>,
    /// It came to the end without these in this life.
    lost: BTreeSet<u64>,
    /// They counted as lost before the last orderly end, and do not count again.
    counted: BTreeSet<u64>,
    /// Of these, what could be read again when the log was opened: it may count once more.
    back: BTreeSet<u64>,
}

pub(crate) struct World {
    pub(crate) disk: FaultyDisk,
    pub(crate) log: Option<Log<Note>>,
    options: OpenOptions,
    durable: Durable,
    /// Offset and charge by value.
    appended: Vec<(u64, Holding)>,
    /// Bits for the readers of each value.
    masks: Vec<u8>,
    pub(crate) readers: [Reader; 3],
    hurts: Vec<Hurt>,
    /// The cursors' files have exact counts: the last process ended in an orderly way.
    is_stored_exactly: bool,
    /// The counts were exact when the log was opened: what counts as lost is lost.
    was_exact: bool,
    /// The counts are exact by now: after a crash, once every reader came to the end.
    is_exact: bool,
    /// Values that were hurt at any time of this life.
    was_hurt: BTreeSet<u64>,
    /// The disk refused reads in this life: what it refused for long was passed.
    reads_were_refused: bool,
    /// Calls may get no answer.
    hangs: bool,
}

impl World {
    pub(crate) fn new(seed: u64, flush_after: Duration, memory_limit_bytes: u64) -> Self {
        let disk = FaultyDisk::new(seed);
        disk.set_short_calls(seed.is_multiple_of(2));
        disk.make_directory(Path::new(DIRECTORY).parent().expect("a directory"));
        let options = OpenOptions {
            flush_after,
            memory_limit_bytes,
            read_ahead_bytes: 4_000,
            read_patience: PATIENT_FOR,
            ..options(&disk)
        };
        let mut world = World {
            disk,
            log: None,
            options,
            durable: Durable::default(),
            appended: Vec::new(),
            masks: Vec::new(),
            readers: Default::default(),
            hurts: Vec::new(),
            is_stored_exactly: true,
            was_exact: true,
            is_exact: true,
            was_hurt: BTreeSet::new(),
            reads_were_refused: false,
            hangs: false,
        };
        world.start();
        world
    }

    pub(crate) fn log(&self) -> &Log<Note> {
        self.log.as_ref().expect("it runs")
    }

    pub(crate) fn id(&self, reader: usize) -> CursorId {
        self.readers[reader].id.expect("it is subscribed")
    }

    /// Opens the log. If troubles keep it from opening, they end.
    pub(crate) fn start(&mut self) {
        self.reads_were_refused = self.disk.is_troubled();
        // If the disk refuses a slot of a cursor for long, the other one counts.
        self.was_exact = self.is_stored_exactly && !self.disk.is_troubled();
        self.is_exact = self.was_exact;
        if self.hangs {
            self.heal();
        }
        let aside = self.values_aside();
        self.note_written_hurts();
        self.was_hurt = self.hurt_values();
        self.options.disk = Arc::new(self.disk.clone());
        let opened = Log::open(self.options.clone()).or_else(|error| {
            assert!(self.disk.is_troubled(), "{error}");
            self.disk = self.disk.kill_process();
            self.heal();
            self.options.disk = Arc::new(self.disk.clone());
            Log::open(self.options.clone())
        });
        let (log, recovered) = opened.expect("it opens once the troubles are over");
        assert!(recovered.lost_cursors.is_empty(), "{:?}", recovered.lost_cursors);
        for (reader, name) in self.readers.iter_mut().zip(NAMES) {
            reader.id = Some(subscribe(&log, name));
            reader.rewind();
            reader.resolved.clear();
            reader.lost.clear();
            reader.aside = aside.intersection(&reader.owed).copied().collect();
            reader.back = reader.counted.difference(&self.was_hurt).copied().collect();
        }
        self.log = Some(log);
    }

    pub(crate) fn heal(&mut self) {
        self.disk.clear_fault();
        self.disk.set_capacity(None);
        self.hangs = false;
    }

    pub(crate) fn trouble(&mut self, trouble: Trouble) {
        self.hangs |= trouble.answer == Answer::Hang;
        self.reads_were_refused = true;
        self.disk.trouble(trouble);
    }

    pub(crate) fn fill_up(&mut self, left_bytes: u64) {
        self.disk.set_capacity(Some(self.disk.used_bytes() + left_bytes));
    }

    pub(crate) fn append(&mut self, mask: u8, len: usize) {
        let chosen: Vec<usize> = (0..3).filter(|index| mask & (1 << index) != 0).collect();
        let ids: Vec<CursorId> = chosen.iter().map(|&index| self.id(index)).collect();
        let value = self.masks.len() as u64;
        let charge = Note::new(value, len, &self.durable).charge();
        let offset = append(self.log(), value, len, &ids, &self.durable);
        self.masks.push(mask);
        self.appended.push((offset, charge.into()));
        for index in chosen {
            self.readers[index].owed.insert(value);
        }
    }

    /// Reads one frame, if there is one now.
    pub(crate) fn read(&mut self, index: usize) {
        let id = self.id(index);
        let lost_before = self.log().lost_total(id);
        match self.log().read(id) {
            Next::Entry(offset, note) => {
                self.take(index, offset, note.value);
                if self.log().lost_total(id) != lost_before {
                    // It was the last one.
                    self.note_lost(index);
                }
            }
            Next::Empty => self.note_lost(index),
            Next::Full | Next::Loading => {}
        }
    }

    /// The reader is at the end: what it is owed and did not come counts as lost.
    fn note_lost(&mut self, index: usize) {
        self.note_dropped();
        let Reader { owed, came, aside, counted, lost, .. } = &mut self.readers[index];
        // The reader may have passed a place without coming to the end: then it counts only now.
        let is_known = |value: &&u64| aside.contains(value) && counted.contains(value);
        lost.extend(owed.difference(came).filter(|value| !is_known(value)));
    }

    fn take(&mut self, index: usize, offset: u64, value: u64) {
        let (name, reader) = (NAMES[index], &mut self.readers[index]);
        let mask = self.masks.get(value as usize).copied().unwrap_or(0);
        assert!(mask & (1 << index) != 0, "{name} got {value}, which is not for it");
        assert!(reader.last.is_none_or(|last| last < offset), "{name}: {offset} is out of order");
        assert!(!reader.resolved.contains(&value), "{name} got {value} after it resolved it");
        let is_possible = reader.owed.contains(&value) || reader.maybe.contains(&value);
        assert!(is_possible, "{name} got {value}");
        reader.counted.remove(&value);
        reader.last = Some(offset);
        reader.leased.insert(value, offset);
        reader.came.insert(value);
    }

    pub(crate) fn resolve(&mut self, index: usize, pick: usize) {
        let (id, reader) = (self.id(index), &mut self.readers[index]);
        let Some((&value, &offset)) = reader.leased.iter().nth(pick % reader.leased.len().max(1))
        else {
            return;
        };
        reader.leased.remove(&value);
        reader.resolved.insert(value);
        reader.forgive(value);
        assert!(self.log().resolve(id, offset));
        assert!(!self.log().resolve(id, offset));
    }

    pub(crate) fn resolve_all(&mut self, index: usize) {
        while !self.readers[index].leased.is_empty() {
            self.resolve(index, 0);
        }
    }

    pub(crate) fn rewind(&mut self, index: usize) {
        self.log().rewind(self.id(index));
        self.readers[index].rewind();
    }

    /// Unsubscribes a reader, which comes back at once.
    pub(crate) fn leave(&mut self, index: usize, keep: Keep) {
        self.note_dropped();
        self.rewind(index);
        self.log().unsubscribe(self.id(index), keep);
        if keep == Keep::Nothing {
            let reader = &mut self.readers[index];
            reader.lost.clear();
            reader.owed.clone().into_iter().for_each(|value| reader.forgive(value));
        }
        self.readers[index].id = Some(subscribe(self.log(), NAMES[index]));
    }

    pub(crate) fn drop_oldest(&mut self, index: usize, limit_bytes: u64) {
        let (id, log) = (self.id(index), self.log());
        log.set_limits(id, limit_bytes, u64::MAX);
        let began = Instant::now();
        // The disk may refuse what is to be dropped: then it stays.
        while log.held(id).bytes > limit_bytes && began.elapsed() < PATIENT_FOR {
            log.drop_oldest_unread(id);
            std::thread::sleep(Duration::from_millis(1));
        }
        log.set_limits(id, u64::MAX, u64::MAX);
        log.drop_oldest_unread(id);
        self.note_dropped();
    }

    pub(crate) fn drop_unwritten(&mut self, index: usize) {
        for given_up in self.log().drop_unwritten(self.id(index), 500) {
            self.readers[index].forgive(given_up.entry.value);
        }
        self.note_dropped();
    }

    /// Frames that were dropped by policy are not owed any more.
    fn note_dropped(&mut self) {
        let Some(log) = &self.log else { return };
        for reader in &mut self.readers {
            let Some(id) = reader.id else { continue };
            let ranges = log.dropped_ranges(id);
            // Older ranges are forgotten.
            let all = (ranges.len() == 16).then_some(0..u64::MAX);
            let dropped = ranges.iter().map(|range| range.start..range.end).chain(all);
            let dropped: Vec<Range<u64>> = dropped.collect();
            let is_dropped = |value: &u64| {
                let offset = self.appended[*value as usize].0;
                !reader.leased.contains_key(value)
                    && dropped.iter().any(|range| range.contains(&offset))
            };
            let forgiven: Vec<u64> = reader.owed.iter().copied().filter(is_dropped).collect();
            forgiven.into_iter().for_each(|value| reader.forgive(value));
        }
    }

    /// The process or the power fails. What was not durable may be gone.
    pub(crate) fn crash(&mut self, power: Option<Unsynced>) {
        self.note_dropped();
        self.disk = match power {
            Some(unsynced) => self.disk.cut_power(unsynced),
            None => self.disk.kill_process(),
        };
        self.note_dropped();
        self.mend_hopeless();
        drop(self.log.take());
        self.is_stored_exactly = false;
        let durable = self.durable.lock();
        for reader in &mut self.readers {
            let lost: Vec<u64> = reader.owed.difference(&durable).copied().collect();
            lost.into_iter().for_each(|value| reader.forgive(value));
        }
    }

    pub(crate) fn die_after(&mut self, calls: u64) {
        self.disk.die_after(calls);
    }

    /// The process ends in an orderly way, unless it is to die sooner.
    pub(crate) fn end(&mut self) {
        if self.disk.is_dying() { self.crash(None) } else { self.close() }
    }

    /// Everything unresolved is durable.
    fn close(&mut self) {
        self.heal();
        (0..3).for_each(|index| self.rewind(index));
        self.note_dropped();
        let log = self.log.take().expect("it runs");
        assert_eq!(log.close(PATIENCE).frames, 0, "{:?}", log.trouble());
        drop(log);
        self.disk = self.disk.kill_process();
        self.is_stored_exactly = self.is_exact;
        let mut durable = self.durable.lock();
        for reader in &mut self.readers {
            durable.extend(&reader.owed);
            reader.counted.extend(&reader.lost);
        }
    }
}

impl Reader {
    fn rewind(&mut self) {
        self.leased.clear();
        self.came.clear();
        self.last = None;
    }

    /// A value is not owed any more, and may come.
    fn forgive(&mut self, value: u64) {
        self.owed.remove(&value);
        self.maybe.insert(value);
    }
}
