//! Decides which connections are read from: a thread reads a socket when it has nothing else to do.
//!
//! Under more load than the CPU bears, data that is read too early waits in memory: it has left the
//! caches when its time comes, and reading it was for nothing if it is refused in the end. So
//! requests that were read are finished before more is read. A connection with data in its socket
//! joins a queue and gets a *slice*: it may be read from until there is nothing more to read and
//! nothing in flight. Unread data stays in the socket, where flow control stops the sender. All
//! ports of a runtime share one queue.
//!
//! Guarantee: while the CPU is idle for more than half of the time, a connection that is likely to
//! send at most 16 KiB waits in the queue for at most 50 ms, whatever other connections trickle and
//! however short memory is. Larger ones, and new ones, of which nothing is known, share an
//! allowance: 256 KiB in the first 25 ms, and twice as much in each further 25 ms. Of those that
//! send more than 256 KiB, one is let in every 40 ms. No larger or new one is let in while requests
//! wait for the CPU.
//!
//! While the CPU is busy, slices end after 200 ms if other connections wait. Connections of whose
//! bodies nothing comes for 40 ms do not count: requests that never end, or wait for a slow peer or
//! backend, keep no connection out, but for `waiting-requests`.
//!
//! The rules, and in brackets their purpose:
//!
//! - `queue`: slices begin when a thread of the runtime is about to park (small working set under
//!   overload)
//! - `cpu-limit`: requests in flight are few while the CPU is the bottleneck (they fit the caches)
//! - `memory-limit`: the same while memory for receiving is short (fewer refusals: data waits
//!   unread)
//! - `weight-by-bytes`: a large request counts for several (large requests fit the caches too)
//! - `little-requests`: connections that are new, or whose requests have less than 48 KiB and come
//!   at most 256 KiB at a time, have turns with the others, whose large requests count as one for
//!   them (they seldom wait for large requests)
//! - `waiting-requests`: while a request waits for the CPU, connections with waiting requests count
//!   also without progress (more of them would fill the memory for waiting, and be refused)
//! - `forecast`: a connection counts for as many requests as in its last slice (the limit is kept,
//!   not overrun)
//! - `whole-requests`: under the limit a slice ends where no request is half read (a half-read
//!   request would occupy memory without making progress)
//! - `held-answers`: under the limit answers wait until all requests of the slice are read (slices
//!   do end there)
//!
//! `sluice run --scheduler-without RULE` switches a rule off, for benchmarks.
//! `docs/decisions/` has the reasons: `030-read-scheduler.md`, `031-in-flight-limit.md`,
//! `032-whole-requests.md` and `033-no-wait-while-idle.md`.

mod cpu;
mod entry;
mod in_flight_limit;
mod queue;
mod requests;
mod rules;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::time::sleep;

use cpu::{CpuLoad, CpuShare};
pub(super) use entry::ConnectionEntry;
use in_flight_limit::InFlightLimit;
use queue::ReadQueue;
pub(super) use requests::Arriving;
pub use rules::Rule;
use rules::Rules;

/// While the CPU is idle, one overdue connection with large requests is let in each time this many
/// ticks have passed.
const LARGE_TICKS: u64 = 8;
/// The length of a tick, or more if the process gets no CPU time. A slice begins in each, even if
/// no thread ever parks.
const TICK: Duration = Duration::from_millis(5);
/// The read scheduler of a runtime: the queue, driven by the runtime's threads and a timer.
#[derive(Debug, Default)]
pub struct ReadScheduler {
    queue: Mutex<ReadQueue>,
    /// Slices that have begun.
    slices: AtomicU64,
    ticks: AtomicU64,
    queued: Notify,
    idle_threads: AtomicUsize,
    is_cpu_bound: AtomicBool,
    is_cpu_idle: AtomicBool,
    limit: InFlightLimit,
    rules: Rules,
}

impl ReadScheduler {
    /// It does nothing until it is installed: see [`ReadScheduler::install`].
    pub fn new() -> Arc<ReadScheduler> {
        Arc::default()
    }

    /// A scheduler to which these rules do not apply.
    pub fn without(rules: &[Rule]) -> Arc<ReadScheduler> {
        Arc::new(ReadScheduler { rules: Rules::without(rules), ..ReadScheduler::default() })
    }

    /// Without any rule, and without a runtime: connections are read from as soon as there is
    /// something to read.
    pub fn off() -> Arc<ReadScheduler> {
        ReadScheduler::without(&Rule::ALL)
    }

    /// Builds a runtime whose threads read from connections when they have nothing else to do.
    pub fn install(self: &Arc<Self>, builder: &mut Builder) -> io::Result<Runtime> {
        let (parks, unparks, runs) = (Arc::clone(self), Arc::clone(self), Arc::clone(self));
        builder.on_thread_park(move || parks.on_thread_park());
        builder.on_thread_unpark(move || unparks.on_thread_unpark());
        let runtime = builder.build()?;
        runtime.spawn(async move { runs.run().await });
        Ok(runtime)
    }

    /// Whether the CPU is the bottleneck: found out while connections are queued, and then watched
    /// until it is not.
    pub fn is_cpu_bound(&self) -> bool {
        self.is_cpu_bound.load(Ordering::Relaxed)
    }

    /// A request found no memory because of other requests that are being received.
    pub fn note_memory_short(&self) {
        if self.rules.has(Rule::MemoryLimit) {
            self.limit.note_memory_short();
        }
    }

    /// A request waits for others that were admitted, or because deliveries have as much to do as
    /// the CPU allows. Until a window has ended without, connections with waiting requests count,
    /// whatever these wait for.
    pub fn note_waits_for_cpu(&self) {
        if self.rules.has(Rule::WaitingRequests) {
            self.limit.note_waits_for_cpu();
        }
    }

    /// Whether answers wait until all requests of their connection's slice are read: an answer
    /// would bring the next request.
    pub(super) fn holds_answers(&self) -> bool {
        self.limit.is_bounded() && self.rules.has(Rule::HeldAnswers)
    }

    /// Begins a slice although no thread is about to park: a connection has more requests from one
    /// read than may keep others out.
    pub(super) fn let_another_in(&self) {
        self.begin_next(&mut self.queue.lock());
    }

    /// A thread of the runtime has nothing to do.
    fn on_thread_park(&self) {
        self.idle_threads.fetch_add(1, Ordering::Relaxed);
        let mut queue = self.queue.lock();
        self.begin_next(&mut queue);
    }

    fn on_thread_unpark(&self) {
        self.idle_threads.fetch_sub(1, Ordering::Relaxed);
    }

    /// Watches the CPU, adapts the limit, and begins slices when the threads do not. Never ends.
    async fn run(&self) {
        let mut share = CpuShare::start();
        loop {
            let is_anything_short = self.is_cpu_bound() || self.limit.is_bounded();
            if !is_anything_short && self.queue.lock().is_empty() {
                self.queued.notified().await;
            }
            let before = self.slices.load(Ordering::Relaxed);
            sleep(TICK).await;
            let has_begun = self.slices.load(Ordering::Relaxed) != before;
            self.tick(has_begun, share.measure());
        }
    }

    /// A tick has passed. `load` is there at the end of a window of the CPU's load.
    fn tick(&self, has_begun: bool, load: Option<CpuLoad>) {
        let tick = self.ticks.fetch_add(1, Ordering::Relaxed) + 1;
        let mut queue = self.queue.lock();
        if let Some(load) = load {
            self.is_cpu_bound
                .store(matches!(load, CpuLoad::Full | CpuLoad::High), Ordering::Relaxed);
            self.is_cpu_idle.store(load == CpuLoad::Idle, Ordering::Relaxed);
            self.limit.adapt(if self.rules.has(Rule::CpuLimit) { load } else { CpuLoad::Low });
            queue.idle_allowance.renew(load, self.limit.is_cpu_awaited());
        }
        if self.limit.is_bounded() {
            queue.end_old_slices(tick);
        }
        if !has_begun {
            self.begin_next(&mut queue);
        }
        if self.is_cpu_idle.load(Ordering::Relaxed) {
            // At most one with large requests, and only now and then.
            let mut admits_large = tick.is_multiple_of(LARGE_TICKS) && !self.limit.is_cpu_awaited();
            while let Some(entry) = queue.next_overdue(tick, admits_large) {
                admits_large &= entry.expects_small_slice();
                self.wake(&entry);
            }
        }
    }

    fn begin_next(&self, queue: &mut ReadQueue) {
        if let Some(entry) = queue.next(&self.limit, self.rules, self.ticks.load(Ordering::Relaxed))
        {
            self.wake(&entry);
        }
    }

    fn wake(&self, entry: &ConnectionEntry) {
        self.slices.fetch_add(1, Ordering::Relaxed);
        if let Some(waker) = entry.waker.lock().take() {
            waker.wake();
        }
    }

    fn enqueue(&self, entry: &Arc<ConnectionEntry>) {
        let mut queue = self.queue.lock();
        let was_empty = queue.is_empty();
        if !queue.enqueue(entry, self.rules, self.ticks.load(Ordering::Relaxed)) {
            return;
        }
        if was_empty {
            self.queued.notify_one();
        }
        // A thread that has parked already will not park again for this.
        if self.idle_threads.load(Ordering::Relaxed) > 0 {
            self.begin_next(&mut queue);
        }
    }
}

/// One connection's side of the scheduler.
pub(super) struct ScheduledReads {
    scheduler: Option<Arc<ReadScheduler>>,
    entry: Arc<ConnectionEntry>,
}

impl ScheduledReads {
    /// Without the queue the connection may always be read from.
    pub(super) fn new(scheduler: &Arc<ReadScheduler>, entry: Arc<ConnectionEntry>) -> Self {
        let scheduler = scheduler.rules.has(Rule::Queue).then(|| Arc::clone(scheduler));
        ScheduledReads { scheduler, entry }
    }

    /// Whether the connection may be read from now.
    pub(super) fn may_read(&mut self) -> bool {
        let Some(scheduler) = &self.scheduler else { return true };
        if scheduler.limit.is_bounded() && scheduler.rules.has(Rule::WholeRequests) {
            self.entry.end_slice_between_requests();
        }
        self.entry.has_slice()
    }

    /// Joins the queue. Ready when the connection may be read from.
    pub(super) fn poll_may_read(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(scheduler) = &self.scheduler else { return Poll::Ready(()) };
        *self.entry.waker.lock() = Some(context.waker().clone());
        scheduler.enqueue(&self.entry);
        if self.entry.has_slice() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Zero bytes: there was nothing to read.
    pub(super) fn note_read(&mut self, bytes: usize) {
        if let Some(scheduler) = &self.scheduler {
            self.entry.note_read(bytes, scheduler.ticks.load(Ordering::Relaxed));
        }
    }
}

impl Drop for ScheduledReads {
    fn drop(&mut self) {
        if let Some(scheduler) = &self.scheduler {
            scheduler.queue.lock().remove(&self.entry);
        }
    }
}

#[cfg(test)]
mod idle_tests;
#[cfg(test)]
mod tests;
