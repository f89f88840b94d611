//! Removing segments that no reader needs any more.

use super::Maintenance;
use crate::log::Inner;

impl<T> Maintenance<T> {
    pub(super) fn remove_unpinned(&self) {
        let unpinned = {
            let inner = &mut *self.shared.inner.lock();
            inner.settle_segments();
            let Some(store) = &mut inner.store else { return };
            let unpinned =
                store.segments.iter().filter(|segment| !segment.is_open && !segment.is_pinned());
            let unpinned: Vec<_> =
                unpinned.map(|segment| (segment.first, segment.path.clone())).collect();
            for (first, _) in &unpinned {
                store.segments.remove(*first);
            }
            let first = store.segments.first().unwrap_or(store.durable_below);
            let cursors = inner.cursors.iter_mut().flatten();
            cursors.for_each(|cursor| cursor.untaken.forget_ended(first));
            unpinned
        };
        for (_, path) in &unpinned {
            // One that stays behind is found again at the next start, and no reader needs it.
            let _ = self.home.disk.remove_file(path);
        }
    }
}

impl<T> Inner<T> {
    /// Brings up to date who needs which segment. A reader that has passed one needs its leases.
    pub(crate) fn settle_segments(&mut self) {
        let Some(store) = &mut self.store else { return };
        let evicted_below = store.evicted_below;
        for segment in store.segments.iter_mut().filter(|segment| !segment.is_open) {
            let (first, last) = (segment.first, segment.last);
            let has_passed = |reader: crate::types::CursorId| {
                self.cursors[reader.0].as_ref().is_none_or(|cursor| cursor.next > last)
            };
            segment.unknown.retain(|&reader| !has_passed(reader));
            if last >= evicted_below {
                // Some of it is in memory too, where the count is exact.
                continue;
            }
            for pin in &mut segment.pins {
                if !has_passed(pin.reader) {
                    continue;
                }
                let mut leased = crate::format::Holding::default();
                if let Some(cursor) = &self.cursors[pin.reader.0] {
                    cursor
                        .disk_leases
                        .range(first..=last)
                        .for_each(|(_, lease)| leased.add_charge(lease.charge));
                }
                pin.holding = leased;
            }
            segment.pins.retain(|pin| pin.holding.frames > 0);
        }
    }
}
