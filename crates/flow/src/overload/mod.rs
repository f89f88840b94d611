//! Decides, in this one place, what happens when more telemetry arrives than is delivered. No I/O
//! and no lock; the time is an argument, and only a [`Stamp`]'s origin comes from a clock. The
//! engine gathers the states ([`PoolState`], [`DeliveryState`]) and applies the decisions.
//!
//! One pool of memory (or of disk) is for the backlogs of all deliveries and signals; a frame is in
//! it once. A delivery's budget is how far it may lag behind the newest frame.
//!
//! 1. **pace** ([`pacing::is_paced`]). When: the CPU is the bottleneck and a delivery has enough to
//!    do. Then: new requests wait, for 750 ms at most. Why: receiving takes CPU time that sending
//!    needs.
//! 2. **delay** ([`delay::delays`]). When: an isolated delivery whose backend works comes close to
//!    its limit or the pool's. Then: answers to senders wait, for 750 ms at most. Why: senders that
//!    wait for answers slow down, and nothing has to be dropped.
//! 3. **outpaced** ([`delay::was_in_vain`]). When: rule 2 did not stop the backlog, or a request
//!    waited for the delivery as long (rule 6); CPU time is left for the delivery, and another one
//!    keeps up. Then: the delivery counts as sick for a minute. Why: its senders do not slow down,
//!    and only this backend is too slow for them.
//! 4. **sick** ([`isolation::is_sick`]). When: the backend is in an outage, took nothing for 500 ms
//!    (2 s if it took requests again after such a halt within the last 10 s; 5 s while the CPU is
//!    short), takes less than half the share of its requests that the best one takes, or rule 3.
//!    Then: the backend counts as the cause of the lag. Why: nothing is dropped because the CPU is
//!    short: for a delivery it is while all cores are busy, or while its task, which has one core,
//!    computes most of the time. Two seconds: with each halt rule 2 would end before its result.
//! 5. **isolate** ([`isolation::sheds`]). When: rule 4, and another delivery of the same receiver
//!    keeps up. Then: the delivery may give up frames that another has taken; a frame that another
//!    filtered out is not taken. Why: if no delivery keeps up, there is no single backend to blame.
//! 6. **own limit** ([`admission::admit`]). When: a delivery lags by more than its own limit. Then:
//!    it sheds, if it may; otherwise its senders wait, then are refused. Why: this is the purpose
//!    of the limit.
//! 7. **high water** ([`budget::shed_first`], [`admission::admit`]). When: the pool is seven
//!    eighths full. Then: the delivery that alone pins the most sheds; if several pin the same
//!    frames, the oldest are dropped for all of them; one that lags by no more than its part of the
//!    reserve sheds nothing; a delivery that may not shed makes its senders wait if it lags by more
//!    than a fair share or its backend takes nothing. Why: frames of healthy deliveries in flight
//!    keep their memory. On disk the pool is no larger than the room that the file system has for
//!    it ([`disk::room_bytes`]).
//! 8. **full** ([`admission::admit`]). When: the pool is full all the same, with what arrives for
//!    the same receiver and signal, and with what arrives for all beyond the memory for receiving.
//!    Then: requests wait, then are refused. Why: memory is bounded, and what others receive has
//!    memory of its own. A request that was inflated or that processors made larger is judged
//!    again, with that size: small compressed requests could fill any memory otherwise.
//! 9. **patience** ([`admission::Patience`]). When: a request waits. Then: after 750 ms it is no
//!    longer paced, and rule 3 judges deliveries that were in its way for as long; after a second
//!    it is refused retryably. Why: no sender waits without end.
//! 10. **slow disk** ([`disk::keep_unwritten_bytes`], [`disk::is_unwritten_full`]). When: half of
//!     the memory for frames that are not on disk is used, or writes have failed for a second.
//!     Then: deliveries give up unwritten frames as rules 5 and 6 let them; one that may not shed
//!     makes its senders wait if it is late while writes fail, or has more than a fair share of
//!     that memory while seven eighths are used; if all of it is used, requests wait, then are
//!     refused. Why: a frame is acknowledged when it is on disk or delivered, never because it was
//!     dropped.

pub mod admission;
pub mod budget;
pub mod delay;
pub mod disk;
#[cfg(test)]
mod disk_simulation;
#[cfg(test)]
mod disk_tests;
mod health;
pub mod isolation;
pub mod pacing;
mod stamp;
#[cfg(test)]
mod tests;

pub use budget::PoolState;
pub use health::{Backend, BackendHealth, STILL, Workload};
pub use isolation::RouteView;
pub use sluice_log::Sheds;
pub use stamp::Stamp;

/// Effect of a delivery that has reached its limit, or of a full pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Its senders wait, then get a retryable refusal.
    Backpressure,
    /// Its oldest frames are dropped, and counted.
    DropOldest,
    /// As `DropOldest`, but only frames that another delivery has taken, while its own backend is
    /// the cause and another delivery of its receiver keeps up; otherwise as `Backpressure`.
    Isolate,
}

/// One delivery at a moment. All figures in bytes of charge.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryState {
    pub policy: Policy,
    /// It may lose data. A frame that only it took does not count as taken.
    pub is_best_effort: bool,
    /// Limit of `lag_bytes`.
    pub limit_bytes: u64,
    /// Charge of the frames that were appended for it and are not resolved.
    pub lag_bytes: u64,
    /// The part of `lag_bytes` that it has not read.
    pub unread_bytes: u64,
    /// Memory that it uses beside the log: parts and packed copies of its own.
    pub private_bytes: u64,
    /// It works off a backlog on disk: new frames are not sent soon, whatever the pace of senders.
    pub is_far_behind: bool,
    pub backend: Backend,
}

impl DeliveryState {
    pub fn pinned_bytes(&self) -> u64 {
        self.lag_bytes + self.private_bytes
    }

    /// The arriving bytes, of which `own_bytes` are those of one request, would exceed its limit.
    /// Never if the request is all that waits for it, so that one larger than the limit gets
    /// through.
    pub(crate) fn is_full(&self, arriving_bytes: u64, own_bytes: u64) -> bool {
        let all_bytes = self.lag_bytes.saturating_add(arriving_bytes);
        all_bytes > own_bytes && all_bytes > self.limit_bytes
    }
}
