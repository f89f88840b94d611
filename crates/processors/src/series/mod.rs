//! The memory of processors that compare a point with earlier ones of its series: its turns, its
//! journal, its bounds.
//!
//! A request has its turn from its first point until it is in the log or refused. Only then is it
//! known whether its changes are kept: a refused request comes again, and must find what the first
//! attempt found. See docs/decisions/044.

pub(crate) mod buckets;
pub(crate) mod exponential;
pub(crate) mod identity;
pub(crate) mod point;

use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use identity::Keys;
use point::Measured;
use sluice_config::Fields;

use crate::processor::{Remembered, Usage};

/// Memory of a series beside what its buckets take: the table's slot, which is partly empty.
const SERIES_BYTES: usize = 160;
/// While the memory is full, it is searched for stale series no more often.
const FULL_SWEEP: Duration = Duration::from_secs(10);

/// The memory of one processor. A reload hands it on.
pub(crate) struct Series {
    turn: Mutex<()>,
    table: Mutex<Table>,
    /// The kind of the processor: others read it differently.
    kind: &'static str,
    pub(crate) keys: Keys,
}

/// The series by the digests of their identities.
pub(crate) struct Table {
    slots: HashMap<u128, Slot>,
    /// The states that the request in turn found, latest last: nothing where a series is new.
    journal: Vec<(u128, Option<Slot>)>,
    bytes: usize,
    /// Points whose state found no room.
    refused: u64,
    swept: Instant,
    /// Of the memory's creation, in nanoseconds since 1970.
    pub started: u64,
}

/// The latest state of a series.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub state: Measured,
    /// Of the latest point, in nanoseconds since 1970.
    pub seen: u64,
}

impl Slot {
    fn bytes(&self) -> usize {
        SERIES_BYTES + self.state.value.heap_bytes()
    }
}

/// Bounds of a memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub series: usize,
    pub bytes: usize,
}

/// The series of a processor, until it is handed those of the one that a reload replaces.
pub(crate) struct Memory(Mutex<Arc<Series>>);

impl Memory {
    pub(crate) fn new(kind: &'static str) -> Self {
        Memory(Mutex::new(Arc::new(Series::new(kind))))
    }

    pub(crate) fn get(&self) -> Arc<Series> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes over series, if they are of the same kind of processor.
    pub(crate) fn take_over(&self, running: Arc<dyn Any + Send + Sync>) {
        let Ok(series) = running.downcast::<Series>() else { return };
        let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if own.kind == series.kind {
            *own = series;
        }
    }
}

impl Series {
    pub(crate) fn new(kind: &'static str) -> Self {
        let table = Table {
            slots: HashMap::new(),
            journal: Vec::new(),
            bytes: 0,
            refused: 0,
            swept: Instant::now(),
            started: now_nanos(),
        };
        Series { turn: Mutex::new(()), table: Mutex::new(table), kind, keys: Keys::new() }
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Remembered for Series {
    fn turn(&self) -> MutexGuard<'_, ()> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // Left by a request whose thread panicked.
        self.undo_to(0);
        turn
    }

    fn mark(&self) -> usize {
        self.table().journal.len()
    }

    fn undo_to(&self, mark: usize) {
        let mut table = self.table();
        while table.journal.len() > mark {
            let Some((key, before)) = table.journal.pop() else { break };
            table.restore(key, before);
        }
    }

    fn keep(&self) {
        self.table().journal = Vec::new();
    }

    fn usage(&self) -> Usage {
        let table = self.table();
        let (series, bytes) = (table.slots.len() as u64, table.bytes as u64);
        Usage { series, bytes, refused_points: table.refused }
    }
}

impl Table {
    pub(crate) fn get(&self, key: u128) -> Option<&Slot> {
        self.slots.get(&key)
    }

    /// Stores a state. False if there is no room: the series is forgotten then.
    pub(crate) fn put(&mut self, key: u128, slot: Slot, bounds: Bounds) -> bool {
        let (is_new, bytes) = (!self.slots.contains_key(&key), slot.bytes());
        let before_bytes = self.slots.get(&key).map_or(0, Slot::bytes);
        let is_full = is_new && self.slots.len() >= bounds.series
            || self.bytes - before_bytes + bytes > bounds.bytes;
        if is_full {
            self.refused += 1;
            if !is_new {
                self.remove(key);
            }
            return false;
        }
        self.bytes = self.bytes - before_bytes + bytes;
        let before = self.slots.insert(key, slot);
        self.journal.push((key, before));
        true
    }

    fn remove(&mut self, key: u128) {
        if let Some(before) = self.slots.remove(&key) {
            self.bytes -= before.bytes();
            self.journal.push((key, Some(before)));
        }
    }

    fn restore(&mut self, key: u128, before: Option<Slot>) {
        let restored_bytes = before.as_ref().map_or(0, Slot::bytes);
        let gone = match (self.slots.entry(key), before) {
            (Entry::Occupied(mut entry), Some(before)) => Some(entry.insert(before)),
            (Entry::Occupied(entry), None) => Some(entry.remove()),
            (Entry::Vacant(entry), Some(before)) => {
                entry.insert(before);
                None
            }
            (Entry::Vacant(_), None) => None,
        };
        self.bytes = self.bytes + restored_bytes - gone.map_or(0, |gone| gone.bytes());
    }

    /// Forgets series whose latest point is older, from time to time. To be called before the
    /// first change of a turn: it is not taken back.
    pub(crate) fn sweep(&mut self, older_than: u64, every: Duration, bounds: Bounds) {
        let is_full = self.slots.len() >= bounds.series || self.bytes + 1024 > bounds.bytes;
        let every = if is_full { every.min(FULL_SWEEP) } else { every };
        if self.swept.elapsed() < every {
            return;
        }
        self.swept = Instant::now();
        let mut freed = 0;
        self.slots.retain(|_, slot| {
            let stays = slot.seen >= older_than;
            freed += if stays { 0 } else { slot.bytes() };
            stays
        });
        self.bytes -= freed;
        self.slots.shrink_to(self.slots.len() * 2);
    }
}

/// The option that bounds the memory, in bytes.
pub(crate) fn read_memory(fields: &mut Fields<'_>) -> usize {
    let doc = "Memory for the series of this processor, beside that of `buffer.memory`: a sum \
               takes 160 bytes, a histogram 8 more for each bucket and bound. While it is spent, \
               points of new series are dropped. Not an option of the Collector.";
    let mib: u32 = fields.integer("memory_limit_mib", 64, 1..=1 << 20, doc);
    (mib as usize) << 20
}

pub(crate) fn now_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::point::Measure;
    use super::*;

    const ANY: Bounds = Bounds { series: usize::MAX, bytes: usize::MAX };

    fn slot(value: i64) -> Slot {
        let state = Measured { start: 1, time: 2, flags: 0, value: Measure::Int(value) };
        Slot { state, seen: value as u64 }
    }

    fn value(series: &Series, key: u128) -> Option<Measure> {
        series.table().get(key).map(|slot| slot.state.value.clone())
    }

    /// Scenario: a request changes a series twice and adds one, half of it is taken back, then all
    /// of it. Guarantee: the memory is what it was, and so is its size.
    #[test]
    fn changes_of_a_refused_request_are_taken_back() {
        let series = Series::new("test");
        series.table().put(1, slot(1), ANY);
        series.keep();
        let bytes = series.table().bytes;
        let _turn = series.turn();
        series.table().put(1, slot(2), ANY);
        let mark = series.mark();
        series.table().put(1, slot(3), ANY);
        series.table().put(2, slot(3), ANY);
        series.undo_to(mark);
        assert_eq!((value(&series, 1), value(&series, 2)), (Some(Measure::Int(2)), None));
        series.undo_to(0);
        assert_eq!((value(&series, 1), series.table().bytes), (Some(Measure::Int(1)), bytes));
    }

    /// Guarantee: neither bound is exceeded, series that are known go on, and stale ones make room.
    #[test]
    fn a_full_memory_takes_no_new_series() {
        let series = Series::new("test");
        let bounds = Bounds { series: 2, bytes: usize::MAX };
        let mut table = series.table();
        assert!(table.put(1, slot(1), bounds) && table.put(2, slot(2), bounds));
        assert!(!table.put(3, slot(3), bounds) && table.put(1, slot(4), bounds));
        let bounds = Bounds { series: 9, bytes: 2 * SERIES_BYTES };
        assert!(!table.put(3, slot(3), bounds) && table.put(1, slot(4), bounds));
        table.sweep(3, Duration::ZERO, bounds);
        assert!(table.get(2).is_none() && table.get(1).is_some());
        assert!(table.put(3, slot(3), bounds));
        drop(table);
        let bytes = 2 * SERIES_BYTES as u64;
        assert_eq!(series.usage(), Usage { series: 2, bytes, refused_points: 2 });
    }
}
