//! Appending entries.

use std::sync::Arc;
use std::time::Instant;

use super::{Log, Slot};
use crate::types::{Appended, Charge, CursorId};

impl<T> Log<T> {
    /// Appends an entry for the given readers. Without readers the entry is resolved at once and
    /// not kept. Says whether more waits for some reader now than its budget allows.
    pub fn append(&self, entry: Arc<T>, charge: Charge, readers: &Arc<[CursorId]>) -> Appended {
        let appended = Instant::now();
        let mut inner = self.shared.inner.lock();
        let inner = &mut *inner;
        let head = inner.slots.head();
        let (mut unresolved, mut unresolved_ids) = (0, 0);
        let (mut over_budget, mut lags, mut gone) = (false, false, Vec::new());
        for &reader in readers.iter() {
            let mut cursor = inner.cursors[reader.0].as_mut();
            if let Some(cursor) = cursor.as_mut().filter(|it| it.is_subscribed) {
                cursor.unread.add(charge);
                cursor.unwritten.add(charge);
                unresolved += 1;
                unresolved_ids ^= reader.0;
                lags |= cursor.lags;
                over_budget |= cursor.is_over_limit();
                cursor.publish();
            } else {
                // It has unsubscribed: the caller uses an older list of readers.
                if let Some(cursor) = cursor {
                    cursor.resolve(head);
                }
                gone.push(reader);
            }
        }
        let is_kept = unresolved > 0;
        let offset = inner.slots.push(is_kept.then(|| Slot {
            entry,
            readers: readers.clone(),
            unresolved,
            unresolved_ids,
            is_taken: false,
            is_durable: false,
            charge,
            appended,
        }));
        if is_kept {
            inner.stored_bytes += charge.bytes;
            inner.memory.stored_bytes.add(charge.bytes);
            if unresolved == 1 {
                inner.note_alone(unresolved_ids, charge.bytes, true);
            }
            if let Some(store) = &mut inner.store {
                store.unwritten_bytes += charge.bytes;
                inner.memory.unwritten_bytes.add(charge.bytes);
                if lags
                    || store.flush_after.is_zero()
                    || inner.memory.stored_bytes.get() > store.memory_limit_bytes
                {
                    store.due_below = offset + 1;
                }
                // After an error of the disk the writer wakes up by itself.
                if store.trouble.is_none() && (store.writer_is_idle || store.due_below > offset) {
                    store.writer_is_idle = false;
                    self.shared.writer_wake.notify_one();
                }
            }
        }
        Appended { offset, gone, over_budget }
    }
}
