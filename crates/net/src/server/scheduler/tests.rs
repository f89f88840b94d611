//! The scheduler, driven by hand: ticks and loads are passed in, and no sockets are behind the
//! connections.

use std::collections::VecDeque;
use std::task::Waker;

use super::entry::{PROGRESS_LEAST_BYTES, SLICE_LEAST_BYTES, SLICE_TICKS, STALLED_TICKS};
use super::in_flight_limit::LEAST_WEIGHT;
use super::*;

/// Ticks in a window of the CPU's load.
pub(super) const WINDOW_TICKS: u64 = 5;

pub(super) struct Connection {
    pub(super) reads: ScheduledReads,
    pub(super) requests: Arc<ConnectionEntry>,
}

impl Connection {
    pub(super) fn new(scheduler: &Arc<ReadScheduler>) -> Self {
        let requests = Arc::new(ConnectionEntry::default());
        Connection { reads: ScheduledReads::new(scheduler, Arc::clone(&requests)), requests }
    }

    /// Asks as the socket does when there is something to read.
    pub(super) fn may_read(&mut self) -> bool {
        self.reads.may_read()
            || self.reads.poll_may_read(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    pub(super) fn begin(&self, requests: usize) -> Vec<Arriving> {
        (0..requests).map(|_| self.requests.begin()).collect()
    }

    /// Bytes of bodies came.
    pub(super) fn read(&mut self, bytes: usize) {
        self.requests.note_came(bytes);
        self.reads.note_read(bytes);
    }

    pub(super) fn answer(&self, requests: usize) {
        (0..requests).for_each(|_| {
            self.requests.end();
        });
    }
}

/// Connections in the queue, in this order.
pub(super) fn queued<const N: usize>(scheduler: &Arc<ReadScheduler>) -> [Connection; N] {
    let mut all = std::array::from_fn(|_| Connection::new(scheduler));
    assert!(all.iter_mut().all(|connection: &mut Connection| !connection.may_read()));
    all
}

/// A thread has nothing to do for a moment.
pub(super) fn park(scheduler: &ReadScheduler) {
    scheduler.on_thread_park();
    scheduler.on_thread_unpark();
}

pub(super) fn limited_without(rules: &[Rule]) -> Arc<ReadScheduler> {
    let scheduler = ReadScheduler::without(rules);
    scheduler.is_cpu_bound.store(true, Ordering::Relaxed);
    scheduler.limit.adapt(CpuLoad::Full);
    scheduler
}

pub(super) fn limited() -> Arc<ReadScheduler> {
    limited_without(&[])
}

#[test]
fn while_no_thread_is_idle_connections_are_read_in_the_order_in_which_they_queued() {
    let scheduler = ReadScheduler::new();
    let mut all: [_; 3] = queued(&scheduler);
    for next in 0..3 {
        park(&scheduler);
        let may_read: Vec<_> = all.iter_mut().map(Connection::may_read).collect();
        assert_eq!(may_read.iter().filter(|may| **may).count(), next + 1);
        assert!(may_read[next]);
    }
}

#[test]
fn a_connection_does_not_wait_while_a_thread_is_idle() {
    let scheduler = ReadScheduler::new();
    scheduler.on_thread_park();
    assert!(Connection::new(&scheduler).may_read());
}

#[test]
fn a_slice_goes_on_while_something_is_in_flight() {
    let scheduler = ReadScheduler::new();
    let [mut connection] = queued(&scheduler);
    park(&scheduler);
    assert!(connection.may_read());
    let _arriving = connection.begin(1);
    connection.read(1000);
    connection.reads.note_read(0);
    // Another slice begins meanwhile: one with a request in flight goes on.
    let [mut other] = queued(&scheduler);
    park(&scheduler);
    assert!(connection.reads.may_read() && other.may_read());
    connection.requests.end_slice();
    assert!(!connection.reads.may_read());
    // The other has nothing in flight and nothing to read.
    other.reads.note_read(0);
    assert!(!connection.may_read());
    park(&scheduler);
    assert!(!other.reads.may_read() && connection.may_read());
}

#[test]
fn a_slice_lasts_until_the_connection_has_looked_for_something_to_read() {
    let scheduler = ReadScheduler::new();
    let [mut connection] = queued(&scheduler);
    park(&scheduler);
    connection.reads.note_read(0);
    let [_other] = queued(&scheduler);
    park(&scheduler);
    assert!(!connection.may_read(), "there was nothing to read");
    park(&scheduler);
    let [_third] = queued(&scheduler);
    park(&scheduler);
    assert!(connection.may_read());
}

#[test]
fn while_the_cpu_is_the_bottleneck_few_requests_are_in_flight() {
    let scheduler = limited();
    let [mut first, mut second] = queued(&scheduler);
    park(&scheduler);
    assert!(first.may_read());
    let arriving = first.begin(LEAST_WEIGHT);
    scheduler.on_thread_park();
    assert!(!second.may_read(), "not even if a thread is idle for the moment");
    scheduler.on_thread_unpark();
    // Its slice has ended, but its requests are not answered.
    drop(arriving);
    first.requests.end_slice();
    assert!(!first.reads.may_read());
    park(&scheduler);
    assert!(!second.may_read());
    first.answer(LEAST_WEIGHT - 1);
    park(&scheduler);
    assert!(second.may_read());
}

#[test]
fn requests_that_have_begun_are_read_to_their_end_in_the_same_slice() {
    let scheduler = limited();
    let [mut connection] = queued(&scheduler);
    park(&scheduler);
    let mut arriving = connection.begin(3);
    connection.read(SLICE_LEAST_BYTES - 1);
    arriving.truncate(1);
    connection.read(1);
    assert!(connection.reads.may_read(), "one is still arriving");
    arriving.clear();
    assert!(!connection.reads.may_read(), "no request is half read");
    // Without a limit no connection waits, and every moment is as good.
    (0..100).for_each(|_| scheduler.limit.adapt(CpuLoad::Low));
    assert!(!connection.may_read());
    park(&scheduler);
    connection.read(SLICE_LEAST_BYTES);
    assert!(connection.reads.may_read());
}

#[test]
fn a_connection_counts_for_as_many_requests_as_in_its_last_slice() {
    for (scheduler, is_forecast) in [(limited(), true), (limited_without(&[Rule::Forecast]), false)]
    {
        let [mut many] = queued(&scheduler);
        park(&scheduler);
        drop(many.begin(LEAST_WEIGHT));
        many.requests.end_slice();
        assert!(!many.may_read());
        many.answer(LEAST_WEIGHT);
        park(&scheduler);
        assert!(many.may_read() && many.requests.in_flight() == 0);
        let [mut other] = queued(&scheduler);
        park(&scheduler);
        assert_eq!(other.may_read(), !is_forecast, "as many may come as last time");
        many.reads.note_read(0);
        park(&scheduler);
        assert!(other.may_read(), "they did not");
    }
}

/// The number of connections with a slice at a time, if each sends this many requests of 190 kB.
fn active_with_large_requests(scheduler: &Arc<ReadScheduler>, requests: usize) -> usize {
    let mut all: [_; 40] = queued(scheduler);
    for connection in &mut all {
        park(scheduler);
        assert!(connection.may_read());
        drop(connection.begin(requests));
        connection.read(requests * 190_000);
        connection.answer(requests);
        connection.reads.note_read(0);
    }
    let [_last] = queued(scheduler);
    park(scheduler);
    assert!(!all.iter_mut().any(Connection::may_read));
    all.iter().for_each(|_| park(scheduler));
    all.iter_mut().map(Connection::may_read).filter(|may| *may).count()
}

#[test]
fn large_requests_count_for_more_if_each_has_a_connection() {
    assert_eq!(active_with_large_requests(&limited(), 1), LEAST_WEIGHT / 4);
    assert_eq!(active_with_large_requests(&limited(), 8), LEAST_WEIGHT / 8);
    // The last one to queue has a slice too.
    assert_eq!(
        active_with_large_requests(&limited_without(&[Rule::WeightByBytes]), 1),
        LEAST_WEIGHT - 1
    );
}

/// Guarantee: what waits for the CPU keeps others out, so that no more is read than memory has room
/// for. What waits for a backend does not.
#[test]
fn requests_that_wait_for_the_cpu_count_without_progress() {
    let scheduler = limited();
    let [mut first, mut other] = queued(&scheduler);
    park(&scheduler);
    assert!(first.may_read());
    let _arriving = first.begin(2 * LEAST_WEIGHT);
    first.requests.waiting.store(2 * LEAST_WEIGHT, Ordering::Relaxed);
    scheduler.ticks.store(STALLED_TICKS, Ordering::Relaxed);
    scheduler.note_waits_for_cpu();
    park(&scheduler);
    assert!(!other.may_read());
    first.requests.end_slice();
    park(&scheduler);
    assert!(!other.may_read(), "although it waits for its next slice");
    (0..2).for_each(|_| scheduler.limit.adapt(CpuLoad::Full));
    park(&scheduler);
    assert!(other.may_read(), "nothing waits for the CPU any more");
}

/// Scenario: connections hold as many streams as they may, and send headers only. Guarantee: after
/// 40 ms they keep no connection out, whatever they send and however often they get a slice.
#[test]
fn requests_without_bodies_do_not_count() {
    let scheduler = limited();
    let [mut silent, mut other] = queued(&scheduler);
    park(&scheduler);
    let _streams = silent.begin(10 * LEAST_WEIGHT);
    park(&scheduler);
    assert!(!other.may_read(), "nothing is known of a new connection");
    scheduler.ticks.store(STALLED_TICKS, Ordering::Relaxed);
    silent.reads.note_read(10 * PROGRESS_LEAST_BYTES);
    park(&scheduler);
    assert!(other.may_read());
    other.reads.note_read(0);
    silent.requests.end_slice();
    // Nor do drops in each slice help, or an empty body.
    silent.read(1);
    silent.requests.begin().note_came(0);
    silent.answer(1);
    assert!(!silent.may_read());
    park(&scheduler);
    assert!(silent.may_read());
    let [mut other] = queued(&scheduler);
    silent.reads.note_read(10 * PROGRESS_LEAST_BYTES);
    park(&scheduler);
    assert!(other.may_read());
    silent.read(PROGRESS_LEAST_BYTES);
    let [mut other] = queued(&scheduler);
    park(&scheduler);
    assert!(!other.may_read(), "bodies come");
}

#[test]
fn requests_without_progress_do_not_count_for_long() {
    let scheduler = limited();
    let [mut slow, mut other] = queued(&scheduler);
    park(&scheduler);
    let _arriving = slow.begin(2 * LEAST_WEIGHT);
    scheduler.ticks.store(STALLED_TICKS - 1, Ordering::Relaxed);
    park(&scheduler);
    assert!(!other.may_read());
    scheduler.ticks.store(STALLED_TICKS, Ordering::Relaxed);
    park(&scheduler);
    assert!(other.may_read());
    // Drops are not enough.
    slow.read(1);
    let [mut third] = queued(&scheduler);
    park(&scheduler);
    assert!(third.may_read());
    // They make progress again.
    slow.read(PROGRESS_LEAST_BYTES - 1);
    let [mut fourth] = queued(&scheduler);
    park(&scheduler);
    assert!(!fourth.may_read());
}

/// Scenario: the limit is low, and one large request weighs more. Guarantee: connections with
/// little requests are let in beside it, and have turns with those that wait with large ones.
#[test]
fn little_requests_do_not_wait_for_large_ones() {
    const LARGE_BYTES: usize = 16 << 20;
    for (without, is_let_in) in [(&[][..], true), (&[Rule::LittleRequests][..], false)] {
        let scheduler = limited_without(without);
        let mut large: [_; 3] = queued(&scheduler);
        // The size of a connection's requests is known once a slice of it is over.
        for connection in &mut large {
            park(&scheduler);
            assert!(connection.may_read());
            drop(connection.begin(1));
            connection.read(LARGE_BYTES);
            connection.requests.end_slice();
            connection.answer(1);
        }
        assert!(large.iter_mut().all(|connection| !connection.may_read()));
        park(&scheduler);
        let _arriving = large[0].begin(1);
        let [mut first, mut second, mut third] = queued(&scheduler);
        park(&scheduler);
        assert_eq!(first.may_read(), is_let_in);
        if !is_let_in {
            continue;
        }
        large[0].requests.end_slice();
        large[0].answer(1);
        park(&scheduler);
        assert!(large[1].may_read() && !second.may_read(), "they have turns");
        let _arriving = large[1].begin(1);
        park(&scheduler);
        park(&scheduler);
        assert!(second.may_read() && third.may_read() && !large[2].may_read(), "beside it");
    }
}

/// Scenario: one large request is being worked on, and so many connections with little ones come
/// that they fill the limit again and again. Guarantee: another one with large requests gets its
/// slice all the same.
#[test]
fn little_requests_do_not_keep_large_ones_out() {
    const LARGE_BYTES: usize = 256 << 10;
    let scheduler = limited();
    let mut both: [_; 2] = queued(&scheduler);
    for connection in &mut both {
        park(&scheduler);
        assert!(connection.may_read());
        connection.read(LARGE_BYTES);
        connection.requests.end_slice();
    }
    let [mut busy, mut large] = both;
    assert!(!busy.may_read());
    park(&scheduler);
    assert!(busy.may_read());
    let _arriving = busy.begin(1);
    let mut let_in = VecDeque::new();
    let let_in_next = |let_in: &mut VecDeque<Connection>| {
        let [mut little] = queued(&scheduler);
        park(&scheduler);
        let may_read = little.may_read();
        if may_read {
            drop(little.begin(1));
            let_in.push_back(little);
        }
        may_read
    };
    while let_in_next(&mut let_in) {}
    let waited = (0..1_000).find(|tick| {
        scheduler.ticks.store(*tick, Ordering::Relaxed);
        busy.read(PROGRESS_LEAST_BYTES);
        if large.may_read() {
            return true;
        }
        // As soon as one is answered, the next one comes.
        let_in.iter_mut().for_each(|little| little.read(PROGRESS_LEAST_BYTES));
        for _ in 0..let_in.len() {
            let answered = let_in.pop_front().expect("there is one");
            answered.answer(1);
            answered.requests.end_slice();
            let_in_next(&mut let_in);
        }
        false
    });
    assert!(waited.is_some_and(|ticks| ticks <= 40), "{waited:?}");
}

#[test]
fn requests_that_wait_for_their_connections_next_slice_do_not_count() {
    let scheduler = limited();
    let [mut connection, mut other] = queued(&scheduler);
    park(&scheduler);
    // More than the limit have begun, and all but one did not arrive before the slice ended.
    let mut arriving = connection.begin(2 * LEAST_WEIGHT);
    arriving.truncate(2 * LEAST_WEIGHT - 1);
    connection.requests.end_slice();
    assert!(!connection.may_read());
    park(&scheduler);
    assert!(!connection.may_read() && !other.may_read(), "one is worked on");
    connection.answer(1);
    park(&scheduler);
    assert!(other.may_read() && !connection.may_read(), "it queued first");
    park(&scheduler);
    assert!(connection.may_read());
}

/// Scenario: the CPU is the bottleneck, and connections whose requests never end make just enough
/// progress to count. Guarantee: another connection is read from when their slices are over.
#[test]
fn requests_that_never_end_keep_no_connection_out_while_the_cpu_is_busy() {
    let scheduler = limited();
    let mut trickling: [_; 3] = queued(&scheduler);
    let mut streams = Vec::new();
    let longest = longest_wait_while_busy(&scheduler, || {
        for connection in &mut trickling {
            if connection.may_read() {
                if connection.requests.in_flight() == 0 {
                    streams.extend(connection.begin(2 * LEAST_WEIGHT));
                }
                connection.read(PROGRESS_LEAST_BYTES);
            }
        }
    });
    assert!(longest <= 6 * SLICE_TICKS, "some have two slices meanwhile: {longest}");
}

/// Scenario: the CPU is the bottleneck, and more requests than the limit lets in wait for a backend
/// that takes seconds. Guarantee: another connection is still read from.
#[test]
fn requests_that_wait_for_a_backend_keep_no_connection_out_while_the_cpu_is_busy() {
    let scheduler = limited();
    let [mut waiting] = queued(&scheduler);
    park(&scheduler);
    assert!(waiting.may_read());
    drop(waiting.begin(2 * LEAST_WEIGHT));
    waiting.read(PROGRESS_LEAST_BYTES);
    let longest = longest_wait_while_busy(&scheduler, || {});
    assert!(longest <= 2 * STALLED_TICKS, "{longest}");
}

/// The longest wait of a client for its slice while the CPU is the bottleneck, in ticks.
fn longest_wait_while_busy(scheduler: &Arc<ReadScheduler>, mut others: impl FnMut()) -> u64 {
    const TICKS: u64 = 20_000;
    let mut client = Connection::new(scheduler);
    let (mut queued_at, mut longest) = (0, 0);
    for tick in 1..=TICKS {
        others();
        if client.may_read() {
            longest = longest.max(tick - queued_at);
            client = Connection::new(scheduler);
            queued_at = tick;
        }
        scheduler.tick(false, tick_window(tick, CpuLoad::Full));
    }
    longest.max(TICKS - queued_at)
}

pub(super) fn tick_window(tick: u64, load: CpuLoad) -> Option<CpuLoad> {
    tick.is_multiple_of(WINDOW_TICKS).then_some(load)
}

#[tokio::test]
async fn answers_wait_for_all_requests_that_have_begun_but_not_for_ever() {
    let scheduler = limited();
    let [connection] = queued(&scheduler);
    park(&scheduler);
    let mut arriving = connection.begin(2);
    let began = tokio::time::Instant::now();
    let mut held = std::pin::pin!(connection.requests.all_have_arrived());
    while tokio::time::timeout(Duration::from_millis(5), held.as_mut()).await.is_err() {
        arriving[0].note_came(PROGRESS_LEAST_BYTES);
    }
    assert!(began.elapsed() >= requests::HELD_AT_MOST, "one of them is slow");
    let held = tokio::spawn({
        let requests = Arc::clone(&connection.requests);
        async move { requests.all_have_arrived().await }
    });
    tokio::task::yield_now().await;
    arriving.pop();
    tokio::task::yield_now().await;
    assert!(!held.is_finished());
    arriving.pop();
    held.await.expect("it ends");
    // Nothing arrives after the slice.
    let arriving = connection.begin(1);
    connection.requests.end_slice();
    let began = tokio::time::Instant::now();
    connection.requests.all_have_arrived().await;
    assert!(began.elapsed() < requests::HELD_AT_MOST);
    drop(arriving);
    connection.requests.all_have_arrived().await;
}

/// Scenario: one request of a shared connection trickles, the other ones come whole. Guarantee: it
/// delays their answers for a part of the longest time only.
#[tokio::test]
async fn answers_do_not_wait_for_requests_that_make_no_progress() {
    let scheduler = limited();
    let [connection] = queued(&scheduler);
    park(&scheduler);
    let mut trickling = connection.begin(1);
    let began = tokio::time::Instant::now();
    let mut held = std::pin::pin!(connection.requests.all_have_arrived());
    while tokio::time::timeout(Duration::from_millis(5), held.as_mut()).await.is_err() {
        trickling[0].note_came(1);
        connection.begin(1)[0].note_came(2 * PROGRESS_LEAST_BYTES);
    }
    assert!(began.elapsed() < requests::HELD_AT_MOST / 2, "{:?}", began.elapsed());
}

/// A shortage of long ago delays no connection that comes after a pause.
/// Scenario: a flood has ended, and no connection queues any more. Guarantee: neither the limit nor
/// the finding that the CPU is the bottleneck outlives that.
#[tokio::test]
async fn nothing_stays_short_because_the_queue_is_empty() {
    let scheduler = limited();
    scheduler.is_cpu_bound.store(true, Ordering::Relaxed);
    let running = tokio::spawn({
        let scheduler = Arc::clone(&scheduler);
        async move { scheduler.run().await }
    });
    let is_short = || scheduler.limit.is_bounded() || scheduler.is_cpu_bound();
    let ended = async {
        while is_short() {
            tokio::time::sleep(TICK).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), ended).await.is_ok());
    running.abort();
}

#[test]
fn a_connection_that_ends_holds_up_no_other() {
    let scheduler = ReadScheduler::new();
    let [gone, mut stays] = queued(&scheduler);
    drop(gone);
    scheduler.on_thread_park();
    assert!(stays.may_read());
}

#[test]
fn after_its_slice_a_connection_queues_again() {
    let scheduler = ReadScheduler::new();
    let mut connection = Connection::new(&scheduler);
    assert!(!connection.may_read());
    for _ in 0..3 {
        park(&scheduler);
        assert!(connection.may_read());
        connection.reads.note_read(0);
        // Its slice ends when another connection gets one.
        let [_other] = queued(&scheduler);
        park(&scheduler);
        assert!(!connection.may_read());
    }
}

#[test]
fn rules_that_are_switched_off_do_nothing() {
    let scheduler = ReadScheduler::without(&[Rule::Queue]);
    assert!(Connection::new(&scheduler).may_read());

    let scheduler = ReadScheduler::without(&[Rule::CpuLimit, Rule::MemoryLimit]);
    scheduler.note_memory_short();
    scheduler.tick(false, Some(CpuLoad::Full));
    assert!(scheduler.is_cpu_bound() && !scheduler.limit.is_bounded());

    assert!(limited().holds_answers() && !limited_without(&[Rule::HeldAnswers]).holds_answers());

    let scheduler = limited_without(&[Rule::WholeRequests]);
    let [mut connection] = queued(&scheduler);
    park(&scheduler);
    connection.read(SLICE_LEAST_BYTES);
    assert!(connection.reads.may_read());
}

#[tokio::test]
async fn connections_are_read_even_if_no_thread_ever_parks() {
    let scheduler = ReadScheduler::new();
    let running = tokio::spawn({
        let scheduler = Arc::clone(&scheduler);
        async move { scheduler.run().await }
    });
    let [mut connection] = queued(&scheduler);
    sleep(3 * TICK).await;
    assert!(connection.may_read());
    running.abort();
}
