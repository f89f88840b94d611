//! The end of a log.

use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::store::Ends;
use super::{Inner, Log, Shared};
use crate::types::{DiskTrouble, Holding};

/// Closing waits this long for the last system calls of the threads.
const LAST_CALL: Duration = Duration::from_secs(2);

impl<T> Log<T> {
    /// Writes unresolved frames, then the cursors, and ends the threads, in little more than
    /// `timeout`. Returns the frames that were not written: in memory, all that are unresolved.
    /// Readers should have gone or been rewound. Frames appended afterwards stay in memory.
    pub fn close(&self, timeout: Duration) -> Holding {
        let deadline = Instant::now() + timeout;
        let mut inner = self.shared.inner.lock();
        if let Some(store) = &mut inner.store
            && store.ends == Ends::No
        {
            store.ends = Ends::Closing;
            self.shared.wake_all();
            let goes_on = |inner: &mut Inner<T>| inner.on_disk().ends == Ends::Closing;
            self.shared.maintenance_wake.wait_while_until(&mut inner, goes_on, deadline);
        }
        self.end_threads(&mut inner);
        inner.unwritten()
    }

    /// A thread that gets no answer from the disk is left behind, as [`Log::trouble`] then says.
    fn end_threads(&self, inner: &mut MutexGuard<'_, Inner<T>>) {
        let Some(store) = &mut inner.store else { return };
        store.ends = Ends::Now;
        self.shared.wake_all();
        let runs = |inner: &mut Inner<T>| inner.on_disk().threads > 0;
        self.shared.maintenance_wake.wait_while_for(inner, runs, LAST_CALL);
        let store = inner.on_disk();
        let left_behind = std::mem::take(&mut store.threads);
        if left_behind > 0 {
            let reason = format!("threads that got no answer from it: {left_behind}, left behind");
            store.trouble =
                Some(DiskTrouble { reason, stops_writing: true, ..DiskTrouble::default() });
        }
    }
}

impl<T> Drop for Log<T> {
    /// Without [`Log::close`] before: as if the process had been killed.
    fn drop(&mut self) {
        self.end_threads(&mut self.shared.inner.lock());
    }
}

impl<T> Shared<T> {
    pub(crate) fn wake_all(&self) {
        self.writer_wake.notify_all();
        self.reader_wake.notify_all();
        self.maintenance_wake.notify_all();
    }
}

impl<T> Inner<T> {
    /// Frames that are neither durable nor resolved everywhere.
    fn unwritten(&self) -> Holding {
        let durable_below = self.store.as_ref().map_or(0, |store| store.durable_below);
        let live = self.slots.live_from(durable_below).filter(|(_, slot)| !slot.is_durable);
        live.map(|(_, slot)| slot.charge).collect()
    }
}
