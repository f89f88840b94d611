//! The share of memory that belongs to receiving. No backlog can take it, and no request is read
//! before it has its part.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sluice_flow::Refusal;
use sluice_flow::overload::Stamp;
use sluice_flow::source::MemoryPool;
use sluice_otlp::Signal;
use tokio::sync::Notify;

/// After a request found no memory, it counts as wanted for this long.
const WANTED_FOR: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct ReceivingBudget {
    used_bytes: AtomicUsize,
    limit_bytes: AtomicUsize,
    /// What waiting requests have sent already: at most the limit, beside what is used.
    waiting_bytes: AtomicUsize,
    /// When a request last found no memory.
    wanted: Stamp,
    /// Wakes requests that wait for memory, receiving's own or a delivery's, by signal.
    freed: [Notify; 3],
}

impl ReceivingBudget {
    pub(crate) fn new(limit_bytes: usize) -> Arc<Self> {
        Arc::new(ReceivingBudget { limit_bytes: limit_bytes.into(), ..ReceivingBudget::default() })
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Changes the limit (reload). Permits that are out stay valid.
    pub(crate) fn set_limit(&self, limit_bytes: usize) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// What a request of the signal waits on when there is no memory for it.
    pub(crate) fn freed(&self, signal: Signal) -> &Notify {
        &self.freed[signal as usize]
    }

    /// Lets one waiting request of the signal try again. It passes the word on if it gets in:
    /// waking all at once would cost more than the memory that came free is worth.
    pub(crate) fn note_freed(&self, signal: Signal) {
        self.freed[signal as usize].notify_one();
    }

    /// A request found no memory, which others may hold for nothing.
    pub(crate) fn note_wanted(&self) {
        self.wanted.set(Instant::now());
    }

    /// Leave to wait for memory while this many bytes are there. `None`: too many wait already.
    /// Senders that are known have one half for themselves.
    pub(crate) fn try_wait(&self, own_bytes: usize, is_known: bool) -> Option<Waiting<'_>> {
        let limit = self.limit_bytes() / if is_known { 1 } else { 2 };
        take(&self.waiting_bytes, own_bytes, limit).then(|| Waiting { budget: self, own_bytes })
    }
}

/// Adds bytes to what is used, unless that would exceed the limit.
fn take(used_bytes: &AtomicUsize, bytes: usize, limit: usize) -> bool {
    let add = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= limit);
    used_bytes.fetch_update(Ordering::AcqRel, Ordering::Relaxed, add).is_ok()
}

pub(crate) struct Waiting<'a> {
    budget: &'a ReceivingBudget,
    own_bytes: usize,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.budget.waiting_bytes.fetch_sub(self.own_bytes, Ordering::AcqRel);
    }
}

/// The memory for receiving as one route sees it.
pub(crate) struct RouteMemory {
    receiving: Arc<ReceivingBudget>,
    used_bytes: AtomicUsize,
}

impl RouteMemory {
    pub(crate) fn new(receiving: Arc<ReceivingBudget>) -> Arc<Self> {
        Arc::new(RouteMemory { receiving, used_bytes: AtomicUsize::new(0) })
    }

    /// What the route's requests take that are being read.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }
}

impl MemoryPool for RouteMemory {
    fn take(&self, own_bytes: usize, bytes: usize) -> Result<(), Refusal> {
        let (needed, limit) = (own_bytes.saturating_add(bytes), self.receiving.limit_bytes());
        if needed > limit {
            let reason = format!(
                "a request that takes {needed} bytes exceeds the memory for receiving \
                 ({limit} bytes)"
            );
            return Err(Refusal::TooLarge { reason });
        }
        if !take(&self.receiving.used_bytes, bytes, limit) {
            return Err(Refusal::overloaded("the memory for receiving is spent"));
        }
        self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.receiving.used_bytes.fetch_sub(bytes, Ordering::AcqRel);
        Signal::ALL.into_iter().for_each(|signal| self.receiving.note_freed(signal));
    }

    fn asked_back(&self) -> Option<Refusal> {
        let is_wanted = self.receiving.wanted.is_within(WANTED_FOR, Instant::now());
        is_wanted.then(|| {
            Refusal::overloaded("the request comes too slowly while others wait for memory")
        })
    }
}

#[cfg(test)]
mod tests {
    use sluice_flow::source::Permit;

    use super::*;

    fn try_admit(budget: &Arc<ReceivingBudget>, bytes: usize) -> Result<Permit, Refusal> {
        Permit::take(RouteMemory::new(budget.clone()), bytes)
    }

    #[test]
    fn permits_never_add_up_to_more_than_the_budget_and_come_back() {
        let budget = ReceivingBudget::new(100);
        let mut first = try_admit(&budget, 60).unwrap();
        assert!(try_admit(&budget, 41).is_err());
        assert!(first.grow(40).is_ok());
        assert!(first.grow(1).is_err());
        first.shrink_to(10);
        assert_eq!((budget.used_bytes(), first.bytes()), (10, 10));
        drop(first);
        assert_eq!(budget.used_bytes(), 0);
        assert!(try_admit(&budget, usize::MAX).is_err());
    }

    #[test]
    fn a_request_that_can_never_fit_is_told_so_and_others_to_come_back() {
        let budget = ReceivingBudget::new(100);
        let mut first = try_admit(&budget, 60).unwrap();
        assert!(matches!(try_admit(&budget, 100), Err(Refusal::Retry { .. })));
        assert!(matches!(try_admit(&budget, 101), Err(Refusal::TooLarge { .. })));
        assert!(matches!(first.grow(41), Err(Refusal::TooLarge { .. })));
        let other = try_admit(&budget, 20).unwrap();
        assert!(matches!(first.grow(40), Err(Refusal::Retry { .. })));
        drop(other);
        assert!(first.grow_to(100).is_ok() && first.grow_to(50).is_ok());
        assert_eq!(first.bytes(), 100);
    }

    #[test]
    fn memory_is_asked_back_while_a_request_wants_it() {
        let budget = ReceivingBudget::new(100);
        let permit = try_admit(&budget, 60).unwrap();
        assert_eq!(permit.asked_back(), None);
        budget.note_wanted();
        assert!(matches!(permit.asked_back(), Some(Refusal::Retry { .. })));
        let later = Instant::now() + WANTED_FOR;
        assert!(!budget.wanted.is_within(WANTED_FOR, later), "that was long ago");
    }

    #[test]
    fn what_waits_for_memory_is_bounded_too() {
        let budget = ReceivingBudget::new(100);
        let _used = try_admit(&budget, 100).unwrap();
        let first = budget.try_wait(80, true).unwrap();
        assert!(budget.try_wait(21, true).is_none() && budget.try_wait(usize::MAX, true).is_none());
        assert!(budget.try_wait(1, false).is_none(), "half of it is for senders that are known");
        let second = budget.try_wait(20, true).unwrap();
        drop((first, second));
        assert!(budget.try_wait(100, true).is_some());
    }
}
