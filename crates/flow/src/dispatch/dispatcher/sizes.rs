//! The sizes of units and batches: those that are configured, or what the backend takes of late.

use sluice_otlp::SplitLimits;

use super::Dispatcher;
use crate::dispatch::Batch;
use crate::dispatch::batcher::BatchPolicy;

impl<L> Dispatcher<L> {
    /// Limits of a unit that is offered, in items and uncompressed bytes.
    pub fn unit_limits(&self) -> SplitLimits {
        // Bytes shrink with each `TooLarge` and items with late requests, for some time.
        let BatchPolicy { max_items, max_bytes, .. } = self.batcher.policy;
        limits(max_items, max_bytes)
    }

    /// Limits of the input of steps that may make something else the next time. Late requests leave
    /// them as they are: a step that compares items, for instance to move points of one time apart,
    /// has to see the same ones together after a restart.
    pub fn step_limits(&self) -> SplitLimits {
        limits(self.policy.batch.max_items, self.batcher.policy.max_bytes)
    }

    /// The backend took a batch of this size.
    pub(super) fn note_size_taken(&mut self, batch: &Batch<L>) {
        let has_more_bytes = self.request_size.note_taken(batch.bytes);
        let has_more_items = self.late.note_taken(batch.items as usize);
        if has_more_bytes || has_more_items {
            self.set_sizes();
        }
    }

    /// Gives later batches the sizes that the backend takes: to be called when one has changed.
    pub(super) fn set_sizes(&mut self) {
        let BatchPolicy { full_items, full_bytes, .. } = self.policy.batch;
        let (max_items, max_bytes) = (self.late.size(), self.request_size.present());
        let (full_items, full_bytes) = (full_items.min(max_items), full_bytes.min(max_bytes));
        let policy = self.batcher.policy;
        self.batcher.policy =
            BatchPolicy { full_items, full_bytes, max_items, max_bytes, ..policy };
    }
}

/// With 0 items, there is no limit of these.
fn limits(max_items: usize, max_bytes: usize) -> SplitLimits {
    SplitLimits { max_items: if max_items == 0 { usize::MAX } else { max_items }, max_bytes }
}
