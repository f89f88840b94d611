//! Giving up what stands on disk, whole segments where that is possible.

use std::collections::BTreeMap;

use super::shed::{GivenUp, Goal};
use super::{Inner, Log};
use crate::gauges::GiveUp;
use crate::types::{CursorId, Offset};

impl<T> Log<T> {
    /// Length of the segments that some reader needs, or that are being written, reserved space included.
    pub fn needed_disk_bytes(&self) -> u64 {
        let mut inner = self.shared.inner.lock();
        inner.settle_segments();
        let Some(store) = &inner.store else { return 0 };
        let needed = store.segments.iter().filter(|segment| segment.is_open || segment.is_pinned());
        needed.map(|segment| segment.len_bytes).sum()
    }

    /// Gives up the oldest segments all of whose readers may give something up, until about `bytes`
    /// of disk are free. A reader that still wants a frame of a segment keeps it whole, so that
    /// what goes was taken by every other reader. What is on disk only is dropped by the reader
    /// thread, which tells [`Log::take_dropped`]. Returns the length of these segments, and what
    /// was in memory.
    pub fn shed_segments(&self, bytes: u64) -> (u64, Vec<GivenUp<T>>) {
        let mut given_up = Vec::new();
        let mut inner = self.shared.inner.lock();
        inner.settle_segments();
        let (freed_bytes, drops) = inner.sheddable_segments(bytes);
        let mut is_on_disk = false;
        for (id, below) in drops {
            let evicted_below = inner.evicted_below();
            let cursor = inner.cursor_mut(id);
            if cursor.next < evicted_below {
                cursor.ahead.drop_below = cursor.ahead.drop_below.max(below);
                cursor.ahead.drops = true;
                is_on_disk = true;
            } else {
                cursor.shed_from = 0;
                inner.shed_reader(id, Goal::Below { offset: below }, &mut given_up);
            }
        }
        if is_on_disk {
            self.wake_reader(&mut inner);
        }
        (freed_bytes, given_up)
    }
}

impl<T> Inner<T> {
    /// The oldest segments that may go, by their length, and below which offset each reader gives
    /// up everything for that.
    fn sheddable_segments(&self, bytes: u64) -> (u64, BTreeMap<CursorId, Offset>) {
        let mut drops = BTreeMap::new();
        let mut freed_bytes = 0;
        let Some(store) = &self.store else { return (0, drops) };
        for segment in store.segments.iter().filter(|segment| !segment.is_open && segment.is_pinned()) {
            if freed_bytes >= bytes {
                break;
            }
            let may_give_up = |id: CursorId| {
                let cursor = self.cursors[id.0].as_ref();
                cursor.is_none_or(|cursor| cursor.gauges.may_give_up() != GiveUp::Nothing)
            };
            if segment.pinning().all(may_give_up) {
                freed_bytes += segment.len_bytes;
                for id in segment.pinning().filter(|id| self.cursors[id.0].is_some()) {
                    drops.insert(id, segment.last + 1);
                }
            }
        }
        (freed_bytes, drops)
    }
}
