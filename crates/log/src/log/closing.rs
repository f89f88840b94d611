//! The end of a log.

use std::time::{Duration, Instant};

use super::store::Ends;
use super::{Inner, Log, Shared};
use crate::types::Holding;

impl<T> Log<T> {
    /// Writes what is unresolved, then the cursors, and ends the threads. Returns what could not be
    /// written within `timeout`, which is everything that is unresolved if the log is in memory.
    /// Readers should have gone or been rewound; what is appended afterwards stays in memory.
    /// Blocks.
    pub fn close(&self, timeout: Duration) -> Holding {
        let deadline = Instant::now() + timeout;
        let mut inner = self.shared.inner.lock();
        if let Some(store) = &mut inner.store
            && store.ends == Ends::No
        {
            store.ends = Ends::Closing;
            self.shared.wake_all();
            let goes_on = |inner: &mut Inner<T>| {
                let store = inner.on_disk();
                !(store.writer_has_ended && store.maintenance_has_ended)
            };
            self.shared.maintenance_wake.wait_while_until(&mut inner, goes_on, deadline);
            let is_late = goes_on(&mut inner);
            inner.on_disk().ends = Ends::Now;
            self.shared.wake_all();
            if is_late {
                // Their last system calls may take for ever: they end by themselves.
                self.threads.lock().clear();
            }
        }
        let unwritten = inner.unwritten();
        drop(inner);
        self.join();
        unwritten
    }

    fn join(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl<T> Drop for Log<T> {
    /// Without [`Log::close`] before: as if the process had been killed.
    fn drop(&mut self) {
        {
            let mut inner = self.shared.inner.lock();
            if let Some(store) = &mut inner.store {
                store.ends = Ends::Now;
            }
            self.shared.wake_all();
        }
        self.join();
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
    /// What is neither durable nor resolved everywhere.
    fn unwritten(&self) -> Holding {
        let durable_below = self.store.as_ref().map_or(0, |store| store.durable_below);
        let live = self.slots.live_from(durable_below).filter(|(_, slot)| !slot.is_durable);
        live.map(|(_, slot)| slot.charge).collect()
    }
}
