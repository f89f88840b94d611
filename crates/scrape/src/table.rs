//! Values by the keys that name them, each with a small number that stands for it.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash, RandomState};

use hashbrown::HashTable;

/// No value.
pub(crate) const NONE: u32 = u32::MAX;

/// Bytes that an entry of the index takes, about.
const ENTRY_BYTES: usize = 10;
/// Bytes that the allocator takes for a key beside its own, about.
const ALLOCATION_BYTES: usize = 16;

pub(crate) trait Key: Hash + Eq {
    /// Bytes that it owns, about.
    fn owned_bytes(&self) -> usize;
}

impl Key for Box<[u8]> {
    fn owned_bytes(&self) -> usize {
        self.len() + ALLOCATION_BYTES
    }
}

#[derive(Debug)]
struct Slot<K, T> {
    key: K,
    /// References to the value: it lives as long as there is one.
    uses: u32,
    value: T,
}

/// The number of a removed value is used again.
#[derive(Debug)]
pub(crate) struct Table<T, K = Box<[u8]>> {
    hasher: RandomState,
    /// Numbers by their keys, which are in the slots.
    index: HashTable<u32>,
    slots: Vec<Option<Slot<K, T>>>,
    free: Vec<u32>,
    key_bytes: usize,
}

impl<T, K> Default for Table<T, K> {
    fn default() -> Self {
        let hasher = RandomState::new();
        Table { hasher, index: HashTable::new(), slots: Vec::new(), free: Vec::new(), key_bytes: 0 }
    }
}

fn slot<K, T>(slots: &[Option<Slot<K, T>>], id: u32) -> &Slot<K, T> {
    slots[id as usize].as_ref().expect("the number of a value")
}

impl<T> Table<T> {
    /// The value of this key, made if there is none, with one use more; and whether it was made.
    pub(crate) fn take(&mut self, key: &[u8], make: impl FnOnce() -> T) -> (u32, bool) {
        if let Some(id) = self.find(key) {
            self.slot_mut(id).uses += 1;
            return (id, false);
        }
        (self.add(key.into(), make()), true)
    }
}

impl<T, K: Key> Table<T, K> {
    pub(crate) fn find<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<u32>
    where
        K: Borrow<Q>,
    {
        let is_of_key = |id: &u32| slot(&self.slots, *id).key.borrow() == key;
        self.index.find(self.hasher.hash_one(key), is_of_key).copied()
    }

    /// Adds a value whose key is not known, with one use.
    pub(crate) fn add(&mut self, key: K, value: T) -> u32 {
        let id = self.free.pop().unwrap_or(self.slots.len() as u32);
        self.key_bytes += key.owned_bytes();
        let hash = self.hasher.hash_one(&key);
        let added = Some(Slot { key, uses: 1, value });
        match self.slots.get_mut(id as usize) {
            Some(place) => *place = added,
            None => self.slots.push(added),
        }
        let rehash = |id: &u32| self.hasher.hash_one(&slot(&self.slots, *id).key);
        self.index.insert_unique(hash, id, rehash);
        id
    }

    /// Ends one use; answers key and value if that was the last.
    pub(crate) fn release(&mut self, id: u32) -> Option<(K, T)> {
        let slot = self.slot_mut(id);
        slot.uses -= 1;
        if slot.uses > 0 {
            return None;
        }
        let Slot { key, value, .. } = self.slots[id as usize].take()?;
        if let Ok(entry) = self.index.find_entry(self.hasher.hash_one(&key), |it| *it == id) {
            entry.remove();
        }
        self.key_bytes -= key.owned_bytes();
        self.free.push(id);
        Some((key, value))
    }

    /// Gives back memory: what a target needed that once was large, and the room to grow that a
    /// vector takes in advance.
    pub(crate) fn trim(&mut self) {
        let used = self.slots.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        if used < self.slots.len() / 2 {
            self.slots.truncate(used);
            self.slots.shrink_to_fit();
            self.free.retain(|id| (*id as usize) < used);
            self.free.shrink_to_fit();
            let rehash = |id: &u32| self.hasher.hash_one(&slot(&self.slots, *id).key);
            self.index.shrink_to_fit(rehash);
        }
        let slack = self.slots.len() / 8 + 4;
        if self.slots.capacity() > self.slots.len() + slack {
            self.slots.shrink_to_fit();
        }
    }

    fn slot_mut(&mut self, id: u32) -> &mut Slot<K, T> {
        self.slots[id as usize].as_mut().expect("the number of a value")
    }

    pub(crate) fn key(&self, id: u32) -> &K {
        &slot(&self.slots, id).key
    }

    /// The key behind a number that may be outdated.
    pub(crate) fn key_if_any(&self, id: u32) -> Option<&K> {
        let slot = self.slots.get(id as usize).and_then(Option::as_ref);
        slot.map(|slot| &slot.key)
    }

    pub(crate) fn get(&self, id: u32) -> &T {
        &slot(&self.slots, id).value
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
            + self.slots.len() * size_of::<Option<Slot<K, T>>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: a value lives as long as its uses, its number is used again, and an empty table
    /// takes no memory.
    #[test]
    fn values_live_as_long_as_their_uses() {
        let mut table: Table<_> = Table::default();
        let first = table.add(b"a"[..].into(), 1);
        let second = table.add(b"b"[..].into(), 2);
        assert_eq!(table.take(b"a", || 3), (first, false));
        assert_eq!((*table.get(first), *table.get(second)), (1, 2));
        assert_eq!(&**table.key(first), b"a");
        assert!(table.key_if_any(7).is_none());
        assert_eq!(table.release(first), None);
        assert_eq!(table.release(first), Some((b"a"[..].into(), 1)));
        let find = |key: &[u8]| table.find(key);
        assert_eq!((find(b"a"), find(b"b"), table.len()), (None, Some(second), 1));
        assert!(table.key_if_any(first).is_none());
        assert_eq!(table.take(b"c", || 4), (first, true));
        assert_eq!(table.end(), 2);
        assert!(table.memory() > 0);
        table.release(first);
        table.release(second);
        table.trim();
        assert_eq!(table.memory(), 0);
    }

    /// Guarantee: no number is given twice after a table has become small, and keys are found.
    #[test]
    fn a_small_table_has_small_numbers() {
        let mut table: Table<_> = Table::default();
        let ids: Vec<u32> = (0..100_u8).map(|key| table.add([key][..].into(), key)).collect();
        for id in &ids[10..] {
            table.release(*id);
        }
        table.trim();
        assert_eq!(table.end(), 10);
        assert!((0..10_u8).all(|key| table.find(&[key][..]) == Some(ids[usize::from(key)])));
        table.release(ids[3]);
        let mut again: Vec<u32> =
            (100..120_u8).map(|key| table.add([key][..].into(), key)).collect();
        again.sort_unstable();
        let expected: Vec<u32> = [3].into_iter().chain(10..29).collect();
        assert_eq!(again, expected);
    }
}
