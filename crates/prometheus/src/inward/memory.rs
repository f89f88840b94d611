//! Facts that requests tell once for those behind them: types of metrics, attributes of targets.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::kind::Kind;

/// Entries of a kind are forgotten beyond this many bytes: those that were not used for longest.
const KEPT_BYTES: usize = 1 << 20;
/// Memory of an entry beside its texts.
const ENTRY_BYTES: usize = 128;
/// A larger entry is not kept.
const ENTRY_LIMIT_BYTES: usize = 16 * 1024;

/// The metadata of a metric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct About {
    pub(super) kind: Kind,
    pub(super) help: Box<[u8]>,
    pub(super) unit: Box<[u8]>,
}

/// Names and values of attributes.
pub(super) type Attributes = Vec<(Box<[u8]>, Box<[u8]>)>;

/// `job` and `instance`.
type TargetName = (Box<[u8]>, Box<[u8]>);

/// The memory of a receiver: at most some megabytes. Shared by its requests.
#[derive(Default)]
pub struct Memory {
    metrics: Mutex<Recent<Box<[u8]>, About>>,
    targets: Mutex<Recent<TargetName, Attributes>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    pub(super) fn remember_metric(&self, name: &[u8], about: About) {
        let bytes = name.len() + about.help.len() + about.unit.len();
        lock(&self.metrics).insert(name.into(), Arc::new(about), bytes);
    }

    pub(super) fn metric(&self, name: &[u8]) -> Option<Arc<About>> {
        lock(&self.metrics).get(&Box::from(name))
    }

    pub(super) fn remember_target(&self, (job, instance): (&[u8], &[u8]), target: Attributes) {
        let own: usize = target.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
        let bytes = job.len() + instance.len() + own;
        lock(&self.targets).insert((job.into(), instance.into()), Arc::new(target), bytes);
    }

    pub(super) fn target(&self, (job, instance): (&[u8], &[u8])) -> Option<Arc<Attributes>> {
        lock(&self.targets).get(&(job.into(), instance.into()))
    }
}

/// A map that forgets what was not used for long. Entries that are used move to the newer half;
/// once that is full, it replaces the older one.
struct Recent<K, V> {
    newer: HashMap<K, (Arc<V>, usize)>,
    older: HashMap<K, (Arc<V>, usize)>,
    newer_bytes: usize,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Recent { newer: HashMap::new(), older: HashMap::new(), newer_bytes: 0 }
    }
}

impl<K: Hash + Eq, V> Recent<K, V> {
    fn insert(&mut self, key: K, value: Arc<V>, bytes: usize) {
        let bytes = bytes + ENTRY_BYTES;
        if bytes > ENTRY_LIMIT_BYTES {
            return;
        }
        if self.newer_bytes + bytes > KEPT_BYTES / 2 {
            self.older = std::mem::take(&mut self.newer);
            self.newer_bytes = 0;
        }
        self.newer_bytes += bytes;
        if let Some((_, before)) = self.newer.insert(key, (value, bytes)) {
            self.newer_bytes -= before;
        }
    }

    fn get(&mut self, key: &K) -> Option<Arc<V>> {
        if let Some((value, _)) = self.newer.get(key) {
            return Some(Arc::clone(value));
        }
        let (key, (value, bytes)) = self.older.remove_entry(key)?;
        self.insert(key, Arc::clone(&value), bytes - ENTRY_BYTES);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: however many entries come, memory stays bounded, and one that is used stays.
    #[test]
    fn unused_entries_are_forgotten() {
        let mut recent = Recent::<u32, u32>::default();
        recent.insert(0, Arc::new(7), 1000);
        for key in 1..10_000 {
            recent.insert(key, Arc::new(key), 1000);
            assert_eq!(recent.get(&0).as_deref(), Some(&7), "{key}");
        }
        assert!(recent.newer.len() + recent.older.len() < 1000);
        assert_eq!(recent.get(&1), None);
        recent.insert(1, Arc::new(1), ENTRY_LIMIT_BYTES);
        assert_eq!(recent.get(&1), None, "it is too large");
    }
}
