//! Evicting frames from memory that are on disk.

use std::sync::Arc;
use std::time::Instant;

use super::Inner;
use crate::cursor::DiskLease;
use crate::types::unix_now_ns;

/// At most this many entries are evicted under one lock.
const EVICTED_AT_ONCE: usize = 256;

impl<T> Inner<T> {
    /// Evicts durable entries, the oldest first, while memory is over its limit. Returns them, to
    /// be freed without the lock.
    pub(crate) fn evict(&mut self) -> Vec<Arc<T>> {
        let (now, now_unix_ns) = (Instant::now(), unix_now_ns());
        let mut evicted = Vec::new();
        while let Some(store) = &mut self.store
            && self.memory.stored_bytes.get() > store.memory_limit_bytes
            && evicted.len() < EVICTED_AT_ONCE
        {
            let offset = self.slots.next_live(store.evicted_below).min(store.durable_below);
            store.evicted_below = store.evicted_below.max(offset);
            if offset >= store.durable_below {
                break;
            }
            store.evicted_below = offset + 1;
            let Some(slot) = self.slots.remove(offset) else { continue };
            store.stats.frames_evicted += 1;
            self.note_let_go(slot.charge.bytes);
            if slot.unresolved == 1 {
                self.note_alone(slot.unresolved_ids, slot.charge.bytes, false);
            }
            let age_ns = now.saturating_duration_since(slot.appended).as_nanos() as u64;
            let received_unix_ns = now_unix_ns.saturating_sub(age_ns);
            for reader in slot.readers.iter() {
                let Some(cursor) = &mut self.cursors[reader.0] else { continue };
                if offset < cursor.next && !cursor.is_resolved(offset) {
                    let lease = DiskLease { charge: slot.charge, received_unix_ns };
                    cursor.disk_leases.insert(offset, lease);
                }
            }
            evicted.push(slot.entry);
        }
        evicted
    }
}
