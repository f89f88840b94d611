//! What is written with one sync.

use std::sync::Arc;

use crate::log::{Inner, Shared};
use crate::types::{Charge, CursorId, Offset};

/// Bytes of a batch: enough for full speed, and no more, for the sake of what comes next.
const BATCH_LIMIT_BYTES: u64 = 8 << 20;
/// At most so many frames are looked at while the lock is held once.
const FRAMES_AT_ONCE: usize = 256;

pub(super) struct BatchFrame<T> {
    pub(super) offset: Offset,
    pub(super) entry: Arc<T>,
    pub(super) charge: Charge,
    pub(super) is_taken: bool,
    /// Where its readers stand in the batch.
    readers: (usize, usize),
}

/// Unresolved frames that are not durable, in order of offsets.
pub(super) struct Batch<T> {
    pub(super) frames: Vec<BatchFrame<T>>,
    /// Persistent ids.
    readers: Vec<u32>,
    /// Readers that have no file yet.
    pub(super) newcomers: Vec<CursorId>,
}

impl<T> Batch<T> {
    /// All that may be written now, up to the limit. None if that is nothing.
    pub(super) fn collect(shared: &Shared<T>) -> Option<Self> {
        let mut batch = Batch { frames: Vec::new(), readers: Vec::new(), newcomers: Vec::new() };
        let mut bytes = 0;
        let (mut offset, until) = {
            let mut inner = shared.inner.lock();
            let head = inner.slots.head();
            let store = inner.on_disk();
            store.due_below = head;
            (store.durable_below, head)
        };
        while offset < until && bytes < BATCH_LIMIT_BYTES {
            let inner = shared.inner.lock();
            for _ in 0..FRAMES_AT_ONCE {
                offset = inner.slots.next_live(offset);
                if offset >= until || bytes >= BATCH_LIMIT_BYTES {
                    break;
                }
                bytes += batch.add(&inner, offset);
                offset += 1;
            }
        }
        (!batch.frames.is_empty()).then_some(batch)
    }

    /// Adds a frame for those of its readers that have not resolved it. Returns its charge.
    fn add(&mut self, inner: &Inner<T>, offset: Offset) -> u64 {
        let Some(slot) = inner.slots.get(offset).filter(|slot| !slot.is_durable) else { return 0 };
        let start = self.readers.len();
        for &id in slot.readers.iter() {
            let cursor = inner.cursors[id.0].as_ref();
            let Some(cursor) = cursor.filter(|it| !it.is_resolved(offset)) else { continue };
            self.readers.push(cursor.persistent_id);
            if !cursor.has_file && !self.newcomers.contains(&id) {
                self.newcomers.push(id);
            }
        }
        let readers = (start, self.readers.len());
        self.frames.push(BatchFrame {
            offset,
            entry: slot.entry.clone(),
            charge: slot.charge,
            is_taken: slot.is_taken,
            readers,
        });
        slot.charge.bytes
    }

    pub(super) fn readers_of(&self, frame: &BatchFrame<T>) -> &[u32] {
        &self.readers[frame.readers.0..frame.readers.1]
    }
}
