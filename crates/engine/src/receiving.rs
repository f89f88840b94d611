//! The share of memory that belongs to receiving. No backlog can take it, and no request is read
//! before it has its part.
//!
//! Freed memory wakes one request: `docs/decisions/015-freed-memory-wakes-one-request.md`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Instant;

use sluice_flow::Refusal;
use sluice_flow::overload::{Stamp, admission};
use sluice_flow::source::{MemoryPool, Permit};
use sluice_otlp::Signal;
use tokio::sync::Notify;

/// A request of this size at most finds memory also while large ones take all that they may: slow
/// senders could keep it for as long as they like.
const SMALL_REQUEST_BYTES: usize = 256 << 10;
/// For small requests, beside the limit: this part of it.
pub(crate) const SMALL_REQUESTS_PART: usize = 8;

/// Requests that can be woken one after the other because each of them found no room: one that
/// does may wait behind them.
const PASSES_MAX: u32 = 8;

const SPENT: &str = "the memory for receiving is spent";

#[derive(Debug)]
pub(crate) struct ReceivingBudget {
    used_bytes: AtomicUsize,
    limit_bytes: AtomicUsize,
    /// Bytes that have arrived of requests that wait: up to the limit again, beside the used bytes.
    waiting_bytes: AtomicUsize,
    /// Of these, the bytes of requests that were admitted because they had arrived.
    arrived_bytes: AtomicUsize,
    /// When a request last found no memory.
    wanted: Stamp,
    /// Wakes requests that wait for memory, receiving's own or a delivery's, by signal.
    freed: [Freed; 3],
}

#[derive(Debug, Default)]
struct Freed {
    wakes: Notify,
    /// How often requests that were woken may pass that on.
    passes_left: AtomicU32,
}

impl ReceivingBudget {
    pub(crate) fn new(limit_bytes: usize) -> Arc<Self> {
        Arc::new(ReceivingBudget {
            used_bytes: AtomicUsize::new(0),
            limit_bytes: AtomicUsize::new(limit_bytes),
            waiting_bytes: AtomicUsize::new(0),
            arrived_bytes: AtomicUsize::new(0),
            wanted: Stamp::default(),
            freed: Default::default(),
        })
    }

    /// Bytes of admitted requests that are not in the log yet.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed) + self.arrived_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Changes the limit (reload). Permits that are out stay valid.
    pub(crate) fn set_limit(&self, limit_bytes: usize) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// Wakes a request of the signal that waits for memory.
    pub(crate) fn freed(&self, signal: Signal) -> &Notify {
        &self.freed[signal as usize].wakes
    }

    /// Lets one waiting request of the signal try again. It wakes the next if it gets in: waking
    /// all at once would cost more than the memory that came free is worth.
    pub(crate) fn note_freed(&self, signal: Signal) {
        let freed = &self.freed[signal as usize];
        freed.passes_left.store(PASSES_MAX, Ordering::Relaxed);
        freed.wakes.notify_one();
    }

    /// A request that was woken finds no room, and another one may: it tries next.
    pub(crate) fn pass_on(&self, signal: Signal) {
        let freed = &self.freed[signal as usize];
        let one_less = |left: u32| left.checked_sub(1);
        let passes_left = &freed.passes_left;
        if passes_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            freed.wakes.notify_one();
        }
    }

    /// As [`Self::note_freed`] for each signal: they share the pool.
    pub(crate) fn note_all_freed(&self) {
        Signal::ALL.into_iter().for_each(|signal| self.note_freed(signal));
    }

    fn check_fits(&self, bytes: usize) -> Result<(), Refusal> {
        let limit_bytes = self.limit_bytes();
        if bytes <= limit_bytes {
            return Ok(());
        }
        let reason = format!(
            "a request that takes {bytes} bytes exceeds the memory for receiving ({limit_bytes} \
             bytes)"
        );
        Err(Refusal::TooLarge { reason })
    }

    /// A request found no memory. Slow requests may occupy it without making progress.
    pub(crate) fn note_wanted(&self) {
        self.wanted.set(Instant::now());
    }
}

/// Adds bytes to the used ones, unless that would exceed the limit.
fn take(used_bytes: &AtomicUsize, bytes: usize, limit: usize) -> bool {
    let add = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= limit);
    used_bytes.fetch_update(Ordering::AcqRel, Ordering::Relaxed, add).is_ok()
}

/// Memory beyond the limit for a request that takes this much.
fn for_small(bytes: usize, limit: usize) -> usize {
    if bytes <= SMALL_REQUEST_BYTES { limit / SMALL_REQUESTS_PART } else { 0 }
}

/// The memory for bytes of waiting requests: beside that for receiving, and as large.
pub(crate) struct WaitingMemory {
    pub receiving: Arc<ReceivingBudget>,
    /// Unknown senders may fill only half of it. The first 256 KiB of a request find an eighth
    /// more.
    pub is_sender_known: bool,
}

impl MemoryPool for WaitingMemory {
    fn take(&self, own_bytes: usize, bytes: usize) -> Result<(), Refusal> {
        let limit = self.receiving.limit_bytes();
        let for_all = if self.is_sender_known { limit } else { limit / 2 };
        let limit = for_all + for_small(own_bytes.saturating_add(bytes), limit);
        let is_taken = take(&self.receiving.waiting_bytes, bytes, limit);
        let refusal = || Refusal::overloaded("the memory for requests that wait is spent");
        is_taken.then_some(()).ok_or_else(refusal)
    }

    fn give_back(&self, bytes: usize) {
        self.receiving.waiting_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// The memory of requests that were admitted because all of them had arrived while they waited: it
/// stays that for waiting, which slow requests that are being read cannot have.
pub(crate) struct ArrivedMemory(Arc<RouteMemory>);

impl ArrivedMemory {
    /// The permit of the body in memory for waiting becomes that of its request.
    pub(crate) fn take_over(memory: Arc<RouteMemory>, body: Permit) -> Permit {
        memory.receiving.arrived_bytes.fetch_add(body.bytes(), Ordering::Relaxed);
        memory.used_bytes.fetch_add(body.bytes(), Ordering::Relaxed);
        body.moved_to(Arc::new(ArrivedMemory(memory)))
    }
}

impl MemoryPool for ArrivedMemory {
    fn take(&self, own_bytes: usize, bytes: usize) -> Result<(), Refusal> {
        let receiving = &self.0.receiving;
        self.0.take_of(&receiving.waiting_bytes, own_bytes, bytes)?;
        receiving.arrived_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        let receiving = &self.0.receiving;
        receiving.arrived_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.0.give_back_to(&receiving.waiting_bytes, bytes);
    }

    /// It may be the beginning of a message whose rest does not come.
    fn asked_back(&self) -> Option<Refusal> {
        self.0.asked_back()
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

    /// Bytes that the route's requests take while they are read.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// `all_bytes`: those in use of all routes, of the memory that the request has.
    fn take_of(
        &self,
        all_bytes: &AtomicUsize,
        own_bytes: usize,
        bytes: usize,
    ) -> Result<(), Refusal> {
        let (needed, limit) = (own_bytes.saturating_add(bytes), self.receiving.limit_bytes());
        self.receiving.check_fits(needed)?;
        if !take(all_bytes, bytes, limit + for_small(needed, limit)) {
            return Err(Refusal::overloaded(SPENT));
        }
        self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn give_back_to(&self, all_bytes: &AtomicUsize, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        all_bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.receiving.note_all_freed();
    }
}

impl MemoryPool for RouteMemory {
    fn take(&self, own_bytes: usize, bytes: usize) -> Result<(), Refusal> {
        self.take_of(&self.receiving.used_bytes, own_bytes, bytes)
    }

    fn give_back(&self, bytes: usize) {
        self.give_back_to(&self.receiving.used_bytes, bytes);
    }

    fn asked_back(&self) -> Option<Refusal> {
        let is_wanted = admission::is_memory_wanted(&self.receiving.wanted, Instant::now());
        is_wanted.then(|| {
            Refusal::overloaded("the request comes too slowly while others wait for memory")
        })
    }
}

#[cfg(test)]
mod sum_tests;
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MIB: usize = 1 << 20;

    fn try_admit(budget: &Arc<ReceivingBudget>, bytes: usize) -> Result<Permit, Refusal> {
        Permit::take(RouteMemory::new(budget.clone()), bytes)
    }

    #[test]
    fn permits_never_add_up_to_more_than_the_budget_and_come_back() {
        let budget = ReceivingBudget::new(100 * MIB);
        let mut first = try_admit(&budget, 60 * MIB).unwrap();
        assert!(try_admit(&budget, 41 * MIB).is_err());
        assert!(first.grow(40 * MIB).is_ok());
        assert!(first.grow(1).is_err());
        first.shrink_to(10 * MIB);
        assert_eq!((budget.used_bytes(), first.bytes()), (10 * MIB, 10 * MIB));
        drop(first);
        assert_eq!(budget.used_bytes(), 0);
        assert!(try_admit(&budget, usize::MAX).is_err());
    }

    /// Scenario: senders of large requests keep all memory that they may. Guarantee: small requests
    /// find some, up to a bound.
    #[test]
    fn small_requests_find_memory_beside_large_ones() {
        let budget = ReceivingBudget::new(8 * MIB);
        let _large = try_admit(&budget, 8 * MIB).unwrap();
        assert!(try_admit(&budget, SMALL_REQUEST_BYTES + 1).is_err());
        let small = || try_admit(&budget, SMALL_REQUEST_BYTES).ok();
        let small: Vec<_> = std::iter::from_fn(small).collect();
        assert_eq!(small.len() * SMALL_REQUEST_BYTES, MIB);
    }

    #[test]
    fn a_request_that_can_never_fit_is_told_so_and_others_to_come_back() {
        let budget = ReceivingBudget::new(100 * MIB);
        let mut first = try_admit(&budget, 60 * MIB).unwrap();
        assert!(matches!(try_admit(&budget, 100 * MIB), Err(Refusal::Retry { .. })));
        assert!(matches!(try_admit(&budget, 101 * MIB), Err(Refusal::TooLarge { .. })));
        assert!(matches!(first.grow(41 * MIB), Err(Refusal::TooLarge { .. })));
        let other = try_admit(&budget, 20 * MIB).unwrap();
        assert!(matches!(first.grow(40 * MIB), Err(Refusal::Retry { .. })));
        drop(other);
        assert!(first.grow_to(100 * MIB).is_ok() && first.grow_to(50 * MIB).is_ok());
        assert_eq!(first.bytes(), 100 * MIB);
    }

    #[test]
    fn memory_is_asked_back_while_a_request_wants_it() {
        let budget = ReceivingBudget::new(100);
        let permit = try_admit(&budget, 60).unwrap();
        assert_eq!(permit.asked_back(), None);
        budget.note_wanted();
        assert!(matches!(permit.asked_back(), Some(Refusal::Retry { .. })));
        let later = Instant::now() + Duration::from_secs(1);
        assert!(!admission::is_memory_wanted(&budget.wanted, later), "that was long ago");
    }

    #[test]
    fn what_comes_of_requests_that_wait_is_bounded_too() {
        let budget = ReceivingBudget::new(80 * MIB);
        let _used = try_admit(&budget, 80 * MIB).unwrap();
        let [known, unknown] = [true, false].map(|is_sender_known| {
            Arc::new(WaitingMemory { receiving: budget.clone(), is_sender_known })
        });
        let [take, take_unknown] =
            [known, unknown].map(|pool| move |bytes| Permit::take(pool.clone(), bytes));
        let mut first = take(70 * MIB).unwrap();
        assert!(take(11 * MIB).is_err() && take(usize::MAX).is_err());
        assert!(take_unknown(MIB).is_err(), "half of it is for senders that are known");
        assert!(first.grow_to(80 * MIB).is_ok() && take(MIB).is_err());
        let small = std::iter::from_fn(|| take(SMALL_REQUEST_BYTES).ok());
        assert_eq!(small.collect::<Vec<_>>().len() * SMALL_REQUEST_BYTES, 10 * MIB);
        drop(first);
        assert!(take_unknown(40 * MIB).is_ok() && take_unknown(41 * MIB).is_err());
    }
}
