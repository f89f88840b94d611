//! Values by the bytes that name them, each with a small number that stands for it.

use std::collections::HashMap;
use std::sync::Arc;

/// No value.
pub(crate) const NONE: u32 = u32::MAX;

/// Bytes that an entry takes beside its key and value, about.
const ENTRY_BYTES: usize = 64;

#[derive(Debug)]
struct Slot<T> {
    key: Arc<[u8]>,
    /// References to the value: it lives as long as there is one.
    uses: u32,
    value: T,
}

/// The number of a removed value is used again.
#[derive(Debug)]
pub(crate) struct Table<T> {
    index: HashMap<Arc<[u8]>, u32>,
    slots: Vec<Option<Slot<T>>>,
    free: Vec<u32>,
    key_bytes: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { index: HashMap::new(), slots: Vec::new(), free: Vec::new(), key_bytes: 0 }
    }
}

impl<T> Table<T> {
    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        self.index.get(key).copied()
    }

    /// The value of this key, made if there is none, with one use more; and whether it was made.
    pub(crate) fn take(&mut self, key: &[u8], make: impl FnOnce() -> T) -> (u32, bool) {
        if let Some(id) = self.find(key) {
            self.slot_mut(id).uses += 1;
            return (id, false);
        }
        (self.add(key, make()), true)
    }

    /// Adds a value whose key is not known, with one use.
    pub(crate) fn add(&mut self, key: &[u8], value: T) -> u32 {
        let id = self.free.pop().unwrap_or(self.slots.len() as u32);
        let key: Arc<[u8]> = key.into();
        self.key_bytes += key.len();
        self.index.insert(Arc::clone(&key), id);
        let slot = Some(Slot { key, uses: 1, value });
        match self.slots.get_mut(id as usize) {
            Some(place) => *place = slot,
            None => self.slots.push(slot),
        }
        id
    }

    /// Ends one use; answers the value if that was the last.
    pub(crate) fn release(&mut self, id: u32) -> Option<T> {
        let slot = self.slot_mut(id);
        slot.uses -= 1;
        if slot.uses > 0 {
            return None;
        }
        let slot = self.slots[id as usize].take()?;
        self.index.remove(&slot.key);
        self.key_bytes -= slot.key.len();
        self.free.push(id);
        Some(slot.value)
    }

    /// Gives back the memory of a target that once was large.
    pub(crate) fn trim(&mut self) {
        let used = self.slots.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        if used < self.slots.len() / 2 {
            self.slots.truncate(used);
            self.slots.shrink_to_fit();
            self.free.retain(|id| (*id as usize) < used);
            self.free.shrink_to_fit();
            self.index.shrink_to_fit();
        }
    }

    fn slot_mut(&mut self, id: u32) -> &mut Slot<T> {
        self.slots[id as usize].as_mut().expect("the number of a value")
    }

    pub(crate) fn key(&self, id: u32) -> &[u8] {
        &self.slots[id as usize].as_ref().expect("the number of a value").key
    }

    /// The key behind a number that may be outdated.
    pub(crate) fn key_if_any(&self, id: u32) -> &[u8] {
        let slot = self.slots.get(id as usize).and_then(Option::as_ref);
        slot.map_or(&[], |slot| &slot.key)
    }

    pub(crate) fn get(&self, id: u32) -> &T {
        &self.slots[id as usize].as_ref().expect("the number of a value").value
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> &mut T {
        &mut self.slot_mut(id).value
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// The numbers of all values are below it.
    pub(crate) fn end(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(crate) fn value_mut(&mut self, id: u32) -> Option<&mut T> {
        self.slots.get_mut(id as usize)?.as_mut().map(|slot| &mut slot.value)
    }

    /// Bytes that it takes, about, without what values own.
    pub(crate) fn memory(&self) -> usize {
        self.key_bytes
            + self.index.len() * ENTRY_BYTES
            + self.slots.len() * size_of::<Option<Slot<T>>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: a value lives as long as its uses, its number is used again, and an empty table
    /// takes no memory.
    #[test]
    fn values_live_as_long_as_their_uses() {
        let mut table = Table::default();
        let first = table.add(b"a", 1);
        let second = table.add(b"b", 2);
        assert_eq!(table.take(b"a", || 3), (first, false));
        assert_eq!((*table.get(first), *table.get(second)), (1, 2));
        assert_eq!((table.key(first), table.key_if_any(7)), (&b"a"[..], &b""[..]));
        assert_eq!(table.release(first), None);
        assert_eq!(table.release(first), Some(1));
        assert_eq!((table.find(b"a"), table.find(b"b"), table.len()), (None, Some(second), 1));
        assert_eq!(table.key_if_any(first), b"");
        assert_eq!(table.take(b"c", || 4), (first, true));
        assert_eq!(table.end(), 2);
        assert!(table.memory() > 0);
        table.release(first);
        table.release(second);
        table.trim();
        assert_eq!(table.memory(), 0);
    }

    /// Guarantee: no number is given twice after a table has become small.
    #[test]
    fn a_small_table_has_small_numbers() {
        let mut table = Table::default();
        let ids: Vec<u32> = (0..100_u8).map(|key| table.add(&[key], key)).collect();
        for id in &ids[10..] {
            table.release(*id);
        }
        table.trim();
        assert_eq!(table.end(), 10);
        table.release(ids[3]);
        let mut again: Vec<u32> = (100..120_u8).map(|key| table.add(&[key], key)).collect();
        again.sort_unstable();
        let expected: Vec<u32> = [3].into_iter().chain(10..29).collect();
        assert_eq!(again, expected);
    }
}
