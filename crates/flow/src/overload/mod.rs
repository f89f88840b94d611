//! What happens when more comes than goes out: the one place that decides it. No I/O and no lock;
//! the time is an argument, and only a [`Stamp`]'s origin is a clock's. The engine gathers what is
//! the case ([`PoolState`], [`DeliveryState`]) and does what these functions say.
//!
//! One pool of memory (or of disk) holds the backlogs of all deliveries and signals; a frame is in
//! it once. A delivery's budget is how far it may lag behind the newest frame.
//!
//! 1. **pace** ([`pacing::is_paced`]). When: the CPU is the bottleneck and a delivery has enough to
//!    do. Then: new requests wait, for 750 ms at most. Why: receiving takes the CPU time that
//!    sending needs.
//! 2. **delay** ([`delay::delays`]). When: an isolated delivery whose backend works comes close to
//!    its limit or the pool's. Then: answers to senders wait, for 750 ms at most. Why: senders that
//!    wait for answers slow down, and nothing has to be dropped.
//! 3. **outpaced** ([`delay::was_in_vain`]). When: rule 2 did not stop the backlog, CPU time is
//!    left for the delivery, and another one keeps up. Then: the delivery counts as sick for a
//!    minute. Why: its senders have a rate of their own, at which only this backend is too slow.
//! 4. **sick** ([`isolation::is_sick`]). When: outage, nothing taken for 500 ms (5 s while the CPU
//!    is short), less than half as large a share of its requests taken as of another's, or rule 3.
//!    Then: the backend is why the delivery lags. Why: nothing is dropped because the CPU is short.
//!    It is short for a delivery while all cores are busy, or its own task computes most of the
//!    time: that has one core.
//! 5. **isolate** ([`isolation::sheds`]). When: rule 4, and another delivery of the same receiver
//!    keeps up. Then: the delivery may give up frames that another has taken, which filtering
//!    them out is not. Why: where no delivery keeps up there is no single backend to blame.
//! 6. **own limit** ([`admission::admit`]). When: a delivery lags by more than its own limit. Then:
//!    it sheds, if it may; else its senders wait, then are refused. Why: that is what the limit is
//!    for.
//! 7. **high water** ([`budget::shed_first`], [`admission::admit`]). When: the pool is seven
//!    eighths full. Then: the delivery that alone pins the most sheds; where several pin the same
//!    frames the oldest are dropped for all; a delivery that may not shed and lags by more
//!    than a fair share, or takes nothing, has its senders wait. Why: what healthy deliveries have
//!    in flight keeps its place. On disk the pool is no larger than what the file system has for it
//!    ([`disk::room_bytes`]).
//! 8. **full** ([`admission::admit`]). When: the pool is full all the same. Then: requests wait,
//!    then are refused. Why: memory is bounded. The pool exceeds its limit by no more than requests
//!    grow, by inflating, that were admitted before: a refusal would only bring them again.
//! 9. **patience** ([`admission::Patience`]). When: a request waits. Then: after 750 ms it is no
//!    longer paced, after a second it is refused retryably. Why: no sender waits without end.
//! 10. **slow disk** ([`disk::keep_unwritten_bytes`]). When: half of the memory for frames that are
//!     not on disk is used. Then: deliveries give up unwritten frames as rules 5 and 6 let them; a
//!     full one refuses. Why: a frame is acknowledged on disk or delivered, never because it was
//!     dropped.

pub mod admission;
pub mod budget;
pub mod delay;
pub mod disk;
mod health;
pub mod isolation;
pub mod pacing;
mod stamp;
#[cfg(test)]
mod tests;

pub use budget::PoolState;
pub use health::{Backend, BackendHealth, Workload};
pub use isolation::RouteView;
pub use sluice_log::Sheds;
pub use stamp::Stamp;

/// What happens when a delivery is behind as far as it may be, or the pool is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Its senders wait, then are told to come back.
    Backpressure,
    /// Its oldest frames are dropped, and counted.
    DropOldest,
    /// As `DropOldest` while its own backend is why it lags and another delivery of its receiver
    /// keeps up; else as `Backpressure`.
    Isolate,
}

/// One delivery at a moment. All figures in bytes of charge.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryState {
    pub policy: Policy,
    /// It may lose data; its taking a frame does not count.
    pub is_best_effort: bool,
    /// How far it may lag.
    pub limit_bytes: u64,
    /// How far it lags: what was appended for it and is not resolved.
    pub lag_bytes: u64,
    /// What of that it has not come to.
    pub unread_bytes: u64,
    /// What it holds beside the log: parts and packed copies of its own.
    pub private_bytes: u64,
    /// It works off a backlog on disk: what comes now is not sent soon, at whatever pace it comes.
    pub is_far_behind: bool,
    pub backend: Backend,
}

impl DeliveryState {
    pub fn pinned_bytes(&self) -> u64 {
        self.lag_bytes + self.private_bytes
    }

    /// It would exceed its own limit. Never while nothing waits for it: a frame larger than the
    /// limit would find no way through.
    pub(crate) fn is_full(&self, arriving_bytes: u64) -> bool {
        self.lag_bytes > 0 && self.lag_bytes.saturating_add(arriving_bytes) > self.limit_bytes
    }
}
