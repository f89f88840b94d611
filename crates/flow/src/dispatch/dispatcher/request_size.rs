//! The size of the requests that a backend takes: a half of what it finds too large, and more again
//! after a time, because a proxy on the way or another setting may have been the reason.

use crate::dispatch::BatchPolicy;

/// Requests of nearly the present size that are taken before a larger one is tried, and the most
/// after larger ones were too large again and again.
const TAKEN_BEFORE_LARGER: (u32, u32) = (32, 4096);

pub(super) struct RequestSize {
    max_bytes: usize,
    full_bytes: usize,
    /// Requests of nearly the present size that were taken.
    taken: u32,
    taken_before_larger: u32,
    /// The present size is larger than one that was taken.
    is_tried: bool,
}

impl RequestSize {
    /// The sizes that are configured.
    pub(super) fn new(configured: &BatchPolicy) -> RequestSize {
        let BatchPolicy { max_bytes, full_bytes, .. } = *configured;
        let (taken_before_larger, _) = TAKEN_BEFORE_LARGER;
        RequestSize { max_bytes, full_bytes, taken: 0, taken_before_larger, is_tried: false }
    }

    /// A request of so many uncompressed bytes is too large.
    pub(super) fn note_too_large(&mut self, policy: &mut BatchPolicy, bytes: usize) {
        if std::mem::take(&mut self.is_tried) {
            let (_, most) = TAKEN_BEFORE_LARGER;
            self.taken_before_larger = (self.taken_before_larger * 2).min(most);
        }
        self.taken = 0;
        self.set(policy, policy.max_bytes.min((bytes / 2).max(1)));
    }

    pub(super) fn note_taken(&mut self, policy: &mut BatchPolicy, bytes: usize) {
        let is_full = policy.max_bytes >= self.max_bytes;
        if is_full && !self.is_tried || bytes.saturating_mul(2) < policy.max_bytes {
            return;
        }
        self.taken += 1;
        if self.taken < self.taken_before_larger {
            return;
        }
        self.taken = 0;
        self.is_tried = !is_full;
        if is_full {
            (self.taken_before_larger, _) = TAKEN_BEFORE_LARGER;
        }
        self.set(policy, policy.max_bytes.saturating_mul(2));
    }

    fn set(&self, policy: &mut BatchPolicy, max_bytes: usize) {
        policy.max_bytes = max_bytes.min(self.max_bytes);
        policy.full_bytes = self.full_bytes.min(policy.max_bytes);
    }
}
