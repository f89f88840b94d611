//! The activity of a connection: its requests and answers, and since when it has none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::budget::{ConnectionBudget, STREAM_BYTES};
use super::charges::StreamCharges;
use super::header_blocks::HeaderBlocks;
use super::scheduler::{Arriving, ConnectionEntry};

/// Above this many uncharged bytes a connection ends at once; below, it may still say goodbye.
const UNCHARGED_MAX_BYTES: usize = 64 << 10;

pub(super) struct Activity {
    pub(super) entry: Arc<ConnectionEntry>,
    served: AtomicU64,
    /// Behind TLS.
    pub(super) read_bytes: AtomicU64,
    /// Requests in flight that wait, or whose bodies make no progress.
    idle: AtomicUsize,
    /// The last write found no room: the peer does not read.
    is_write_blocked: AtomicBool,
    charges: StreamCharges,
    /// Bytes of headers that were read and not asked for yet.
    header_bytes: AtomicUsize,
    must_end: AtomicBool,
    times: Mutex<Times>,
    /// Answers that are being sent, by whether the period in which each began is even or odd.
    sending: [AtomicUsize; 2],
    period: AtomicUsize,
    /// Notified if the connection has to make room.
    pub(super) evicted: Notify,
}

struct Times {
    /// The last request in flight was answered, or the connection was opened.
    idle_since: Instant,
    /// The last request was accepted, or the connection was opened. A connection that had one
    /// accepted does not age by refusals for want of memory, which are not its fault.
    useful_at: Instant,
    standing: Standing,
}

/// The standing of a connection, by the fate of its requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    New,
    Accepted,
    /// One of them made no progress while memory was short.
    Stalled,
}

impl Activity {
    pub(super) fn new(budget: &Arc<ConnectionBudget>) -> Self {
        let now = Instant::now();
        Activity {
            entry: Arc::default(),
            served: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            idle: AtomicUsize::new(0),
            is_write_blocked: AtomicBool::new(false),
            charges: StreamCharges::new(budget),
            header_bytes: AtomicUsize::new(0),
            must_end: AtomicBool::new(false),
            times: Mutex::new(Times { idle_since: now, useful_at: now, standing: Standing::New }),
            sending: Default::default(),
            period: AtomicUsize::new(0),
            evicted: Notify::new(),
        }
    }

    /// A request begins that holds this much beside its body.
    pub(super) fn begin(self: &Arc<Self>, bytes: usize) -> (InFlight, Arriving) {
        self.served.fetch_add(1, Ordering::Relaxed);
        let is_charged = self.try_charge(bytes);
        let activity = Arc::clone(self);
        let in_flight = InFlight { activity, bytes, is_charged, is_answered: false, period: None };
        (in_flight, self.entry.begin())
    }

    fn try_charge(&self, bytes: usize) -> bool {
        self.charges.try_take(bytes, || self.times.lock().standing == Standing::Stalled)
    }

    /// A stream whose request is answered lives on until this is dropped.
    pub(super) fn keep_stream(self: &Arc<Self>) -> Counted {
        self.try_charge(STREAM_BYTES);
        Counted { activity: Arc::clone(self), undo: |it| it.charges.give_back(STREAM_BYTES) }
    }

    /// A body makes no progress, until this is dropped. `None`: it has to go, because others need
    /// its memory.
    pub(super) fn note_stalled(self: &Arc<Self>) -> Option<Counted> {
        if self.is_memory_short() {
            self.times.lock().standing = Standing::Stalled;
            return None;
        }
        Some(self.note_idle())
    }

    /// A request is no progress of its connection, until this is dropped: no handler has begun with
    /// it, or its body makes none.
    pub(super) fn note_idle(self: &Arc<Self>) -> Counted {
        self.idle.fetch_add(1, Ordering::Relaxed);
        let undo = |it: &Activity| _ = it.idle.fetch_sub(1, Ordering::Relaxed);
        Counted { activity: Arc::clone(self), undo }
    }

    pub(super) fn set_write_blocked(&self, is_blocked: bool) {
        self.is_write_blocked.store(is_blocked, Ordering::Relaxed);
    }

    /// Nothing can be told to the peer now.
    pub(super) fn is_write_blocked(&self) -> bool {
        self.is_write_blocked.load(Ordering::Relaxed)
    }

    /// See [`ConnectionBudget::is_short`].
    pub(super) fn is_memory_short(&self) -> bool {
        self.charges.budget.is_short()
    }

    /// A request waits, until this is dropped.
    pub(super) fn note_waits(self: &Arc<Self>) -> Counted {
        self.idle.fetch_add(1, Ordering::Relaxed);
        self.entry.waiting.fetch_add(1, Ordering::Relaxed);
        let undo = |it: &Activity| {
            it.idle.fetch_sub(1, Ordering::Relaxed);
            it.entry.waiting.fetch_sub(1, Ordering::Relaxed);
        };
        Counted { activity: Arc::clone(self), undo }
    }

    /// Something was read. Header memory beside that of requests is charged: the peer's table
    /// for the life of the connection, an unfinished block until its end. If there is no room the
    /// connection has to go, and at once if it goes on or amid a block.
    pub(super) fn note_read(&self, bytes: &[u8], headers: &mut HeaderBlocks) {
        self.read_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let read = headers.read(bytes);
        self.header_bytes.fetch_add(headers.take_header_bytes(), Ordering::Relaxed);
        let uncharged_bytes = self.charges.keep(headers.kept_bytes());
        if uncharged_bytes > 0 {
            self.evicted.notify_one();
        }
        let has_too_much =
            uncharged_bytes > UNCHARGED_MAX_BYTES || uncharged_bytes > 0 && headers.is_unfinished;
        if read.is_err() || has_too_much {
            self.must_end.store(true, Ordering::Relaxed);
        }
    }

    /// Bytes of headers since this was last asked. `None`: the connection has to end.
    pub(super) fn take_header_bytes(&self) -> Option<usize> {
        let must_end = self.must_end.load(Ordering::Relaxed);
        // Both sides are the connection's task.
        let bytes = self.header_bytes.load(Ordering::Relaxed);
        self.header_bytes.store(0, Ordering::Relaxed);
        (!must_end).then_some(bytes)
    }

    pub(super) fn has_served(&self) -> bool {
        self.served.load(Ordering::Relaxed) > 0
    }

    pub(super) fn idle_since(&self) -> Instant {
        self.times.lock().idle_since
    }

    /// Time since a request was last accepted. `None`: a request in flight makes progress. Waiting
    /// for admission is not progress, nor is waiting behind an answer that the peer does not read.
    /// Refusals do not count: a peer could make use of them to stay while better ones have to go.
    pub(super) fn useless_for(&self, now: Instant) -> Option<Duration> {
        if self.entry.in_flight() > self.idle.load(Ordering::Relaxed) {
            return None;
        }
        let times = self.times.lock();
        Some(match times.standing {
            Standing::Stalled => Duration::MAX,
            _ => now.saturating_duration_since(times.useful_at),
        })
    }

    /// Asked at regular intervals: whether an answer is being sent that began before the last one.
    pub(super) fn has_stalled_answers(&self) -> bool {
        let next = self.period.load(Ordering::Relaxed) + 1;
        let is_stalled = self.sending[next % 2].load(Ordering::Acquire) > 0;
        self.period.store(next, Ordering::Relaxed);
        is_stalled
    }
}

/// A count or a charge of a connection until this is dropped: a stream beyond its request, or a
/// request that is no progress of its connection.
pub(super) struct Counted {
    activity: Arc<Activity>,
    undo: fn(&Activity),
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.undo)(&self.activity);
    }
}

/// A request until its answer is sent.
pub(super) struct InFlight {
    activity: Arc<Activity>,
    /// Charged now.
    bytes: usize,
    /// False: the budget of connections has no room for it.
    pub(super) is_charged: bool,
    is_answered: bool,
    /// In which its answer began to be sent.
    period: Option<usize>,
}

impl InFlight {
    /// There is an answer.
    pub(super) fn answered(&mut self, is_accepted: bool) {
        self.is_answered = true;
        let is_last = self.activity.entry.end() == 0;
        if is_last || is_accepted {
            let now = Instant::now();
            let mut times = self.activity.times.lock();
            times.idle_since = now;
            if is_accepted {
                times.useful_at = now;
                times.standing = Standing::Accepted;
            }
        }
    }

    /// There is an answer, because the budget of connections has no room for the request.
    pub(super) fn refused_for_memory(&mut self) {
        self.give_back(self.bytes);
        self.answered(false);
        let mut times = self.activity.times.lock();
        if times.standing == Standing::Accepted {
            times.useful_at = Instant::now();
        }
    }

    fn give_back(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.activity.charges.give_back(bytes);
    }

    /// Waits until all requests of the connection's slice have arrived, with nothing charged: under
    /// load many answers wait for their connection's turn, which is not their peers' fault.
    pub(super) async fn hold(&mut self) {
        self.give_back(self.bytes);
        self.activity.entry.all_have_arrived().await;
    }

    /// The answer is being sent until this is dropped. Its stream is charged.
    pub(super) fn sending(mut self) -> Self {
        let period = self.activity.period.load(Ordering::Relaxed);
        self.activity.sending[period % 2].fetch_add(1, Ordering::AcqRel);
        self.period = Some(period);
        match self.bytes.checked_sub(STREAM_BYTES) {
            Some(more_bytes) => self.give_back(more_bytes),
            None => {
                self.activity.try_charge(STREAM_BYTES - self.bytes);
                self.bytes = STREAM_BYTES;
            }
        }
        self
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if !self.is_answered {
            self.answered(false);
        }
        self.give_back(self.bytes);
        if let Some(period) = self.period {
            self.activity.sending[period % 2].fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity() -> Arc<Activity> {
        Arc::new(Activity::new(&ConnectionBudget::unlimited()))
    }

    /// Guarantee: an answer counts as stalled after one to two intervals, and not before.
    #[test]
    fn answers_that_make_no_progress_are_found_in_time() {
        let activity = activity();
        for _ in 0..5 {
            let mut in_flight = activity.begin(0).0;
            in_flight.answered(true);
            let sending = in_flight.sending();
            assert!(!activity.has_stalled_answers());
            drop(sending);
            assert!(!activity.has_stalled_answers());
        }
        let _stalled = activity.begin(0).0.sending();
        assert!(!activity.has_stalled_answers());
        drop(activity.begin(0).0.sending());
        assert!(activity.has_stalled_answers());
    }

    /// Guarantee: a refused request ends a connection's idleness, but is no reason to keep it.
    #[tokio::test]
    async fn refusals_are_no_use() {
        let activity = activity();
        let opened = activity.idle_since();
        tokio::time::sleep(Duration::from_millis(2)).await;
        activity.begin(0).0.answered(false);
        let now = Instant::now();
        assert!(activity.idle_since() > opened);
        assert_eq!(activity.useless_for(now), Some(now - opened));
        activity.begin(0).0.answered(true);
        assert!(activity.useless_for(Instant::now()).is_some_and(|idle| idle < now - opened));
    }

    /// Guarantee: refusals for want of memory do not age a connection that had a request accepted.
    #[tokio::test]
    async fn refusals_for_memory_are_not_the_fault_of_a_useful_connection() {
        let (new, useful) = (activity(), activity());
        useful.begin(0).0.answered(true);
        let before = Instant::now();
        tokio::time::sleep(Duration::from_millis(2)).await;
        for activity in [&new, &useful] {
            activity.begin(0).0.refused_for_memory();
        }
        let useless_for = |activity: &Activity| activity.useless_for(Instant::now());
        assert!(useless_for(&new).is_some_and(|idle| idle > before.elapsed()));
        assert!(useless_for(&useful).is_some_and(|idle| idle < before.elapsed()));
    }

    /// Guarantee: requests that wait to be admitted do not protect a connection. One that had a
    /// request accepted lately goes after those that had none.
    #[tokio::test]
    async fn requests_that_wait_to_be_admitted_are_no_use() {
        let (idle, useful) = (activity(), activity());
        tokio::time::sleep(Duration::from_millis(2)).await;
        useful.begin(0).0.answered(true);
        let _begun = [&idle, &useful].map(|activity| activity.begin(0));
        let useless_for = |now| [&idle, &useful].map(|activity| activity.useless_for(now));
        let waiting = [&idle, &useful].map(|activity| activity.note_waits());
        let [idle_for, useful_for] = useless_for(Instant::now());
        assert!(useful_for.is_some() && idle_for > useful_for, "{idle_for:?}, {useful_for:?}");
        drop(waiting);
        assert_eq!(useless_for(Instant::now()), [None, None], "both are being read");
    }

    /// Scenario: requests wait behind answers that their peer does not read. Guarantee: they do not
    /// protect a connection, until a handler begins with one of them.
    #[test]
    fn requests_that_no_handler_has_begun_are_no_use() {
        let activity = activity();
        let _in_flight = activity.begin(0);
        let unbegun = activity.note_idle();
        assert!(activity.useless_for(Instant::now()).is_some());
        drop(unbegun);
        assert_eq!(activity.useless_for(Instant::now()), None);
    }

    /// Guarantee: requests that make no progress do not protect a connection, and while there is no
    /// memory it is the first to go.
    #[test]
    fn requests_without_progress_are_no_use() {
        let budget = ConnectionBudget::new(0, 0);
        let activity = Arc::new(Activity::new(&budget));
        let in_flight = activity.begin(0);
        assert_eq!(activity.useless_for(Instant::now()), None);
        let stalled = activity.note_stalled().expect("nothing is refused");
        assert!(activity.useless_for(Instant::now()).is_some_and(|idle| idle < Duration::MAX));
        drop(stalled);
        assert_eq!(activity.useless_for(Instant::now()), None);
        let refused = activity.begin(1 << 20);
        assert!(!refused.0.is_charged && activity.note_stalled().is_none());
        drop(refused);
        drop(in_flight);
        assert_eq!(activity.useless_for(Instant::now()), Some(Duration::MAX));
    }
}
