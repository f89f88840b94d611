//! The memory for what is known of targets and their series, of all jobs together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A target's memory beside its series: its task, its client, an idle connection.
pub(super) const TARGET_BYTES: usize = 16 << 10;

#[derive(Debug, Default)]
pub(super) struct SeriesBudget {
    limit_bytes: AtomicUsize,
    used_bytes: AtomicUsize,
}

/// A target's part, given back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<SeriesBudget>,
    bytes: usize,
}

impl SeriesBudget {
    /// Shares that are out stay valid.
    pub(super) fn set_limit(&self, bytes: usize) {
        self.limit_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn limit_bytes(&self) -> usize {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Takes up to `bytes`, as far as they are free; answers how many.
    fn take(&self, bytes: usize) -> usize {
        let limit = self.limit_bytes();
        let part = |used: usize| bytes.min(limit.saturating_sub(used));
        let add = |used: usize| Some(used + part(used));
        let before = self.used_bytes.fetch_update(Ordering::AcqRel, Ordering::Relaxed, add);
        before.map_or(0, part)
    }
}

impl Share {
    /// The share of a target that is not scraped yet. `None`: there is no memory for one more.
    pub(super) fn of_target(budget: &Arc<SeriesBudget>) -> Option<Share> {
        let bytes = budget.take(TARGET_BYTES);
        let share = Share { budget: Arc::clone(budget), bytes };
        (bytes == TARGET_BYTES).then_some(share)
    }

    /// A share without memory, of a target that is scraped whether or not there is some.
    pub(super) fn empty(budget: &Arc<SeriesBudget>) -> Share {
        Share { budget: Arc::clone(budget), bytes: 0 }
    }

    /// Asks for more bytes for series, before they are used. Answers how many they may take now,
    /// which is all that they have and as much more as is free.
    pub(super) fn grow(&mut self, bytes: usize) -> usize {
        self.bytes += self.budget.take(bytes);
        self.bytes.saturating_sub(TARGET_BYTES)
    }

    /// The series take this many bytes, with a few that were not asked for.
    pub(super) fn settle(&mut self, bytes: usize) {
        let bytes = TARGET_BYTES + bytes;
        let used = &self.budget.used_bytes;
        if bytes > self.bytes {
            used.fetch_add(bytes - self.bytes, Ordering::AcqRel);
        } else {
            used.fetch_sub(self.bytes - bytes, Ordering::AcqRel);
        }
        self.bytes = bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: what is asked for never exceeds the limit, and comes back.
    #[test]
    fn shares_add_up_to_the_limit_at_most() {
        let budget = Arc::new(SeriesBudget::default());
        assert!(Share::of_target(&budget).is_none(), "there is no memory");
        budget.set_limit(3 * TARGET_BYTES);
        let mut first = Share::of_target(&budget).expect("there is memory");
        assert_eq!(first.grow(TARGET_BYTES / 2), TARGET_BYTES / 2);
        first.settle(10);
        let mut second = Share::of_target(&budget).expect("there is memory");
        assert_eq!(second.grow(usize::MAX), TARGET_BYTES - 10);
        assert_eq!(budget.used_bytes(), budget.limit_bytes());
        assert_eq!(first.grow(1), 10, "nothing is free");
        assert!(Share::of_target(&budget).is_none());
        drop(second);
        assert_eq!(budget.used_bytes(), TARGET_BYTES + 10);
        drop(first);
        assert_eq!(budget.used_bytes(), 0);
    }

    /// Guarantee: a target without memory takes none from others, and a lower limit counts at once.
    #[test]
    fn a_lower_limit_counts_at_once() {
        let budget = Arc::new(SeriesBudget::default());
        budget.set_limit(2 * TARGET_BYTES);
        let mut share = Share::of_target(&budget).expect("there is memory");
        budget.set_limit(TARGET_BYTES / 2);
        assert_eq!(share.grow(100), 0);
        assert!(Share::of_target(&budget).is_none());
        assert_eq!(budget.used_bytes(), TARGET_BYTES);
    }
}
