//! Whose turn it is to be read from: reading sockets is what a thread does when it has nothing else to do.
//!
//! Under more load than the CPU can bear, whatever is read too early waits in memory: it costs that memory, it has left the
//! caches when its time comes, and if it is refused in the end the reading was for nothing. So what was read is finished
//! first. Connections line up; the first in line is called when a thread of the runtime is about to park, and while the CPU or
//! memory is short only if little is under way (`in_flight_limit.rs`). What is not read stays in the socket, where flow control
//! holds the sender. Under less load some thread is always about to park, and nobody waits.
//!
//! What has begun to arrive is read to its end in the same turn, because a request of which a part was read holds memory for all of
//! it until its connection's turn comes again. So while little may be under way, answers of a connection are held until all that
//! has begun on it has arrived: senders that have as much in flight as they may begin nothing new meanwhile.
//!
//! There is one line a runtime, so that of all ports of a process the connection that waits longest comes first.

mod cpu;
mod in_flight_limit;
mod requests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use cpu::{CpuLoad, CpuShare};
use in_flight_limit::{InFlightLimit, weight_of_bytes};
pub(super) use requests::{Arriving, Requests};

/// Read in one turn, at most: enough for the bodies that are under way on a connection to be read to their ends.
const TURN_BYTES: usize = 16 << 20;
/// While little may be under way a turn ends when so much was read and nothing is under way any more of which a part was read.
const TURN_LEAST_BYTES: usize = 1 << 20;
/// So often somebody's turn comes even if no thread ever parks, because all are busy with what was received long ago. A tick is as
/// long, or longer where the process gets no CPU time.
const CALL_INTERVAL: Duration = Duration::from_millis(5);
/// If nobody had to line up for so long nothing is short any more.
const NOTHING_SHORT_AFTER: Duration = Duration::from_secs(1);
/// Requests of which hardly anything was read for so many ticks keep nobody from being called: their peers are slow, or they wait for
/// something else than the CPU.
const STALLED_TICKS: u64 = 8;
/// Of a connection, at least: less is what a sender trickles who wants to hold others up.
const MOVES_FROM_BYTES: usize = 4 << 10;

/// The line of a runtime.
#[derive(Debug, Default)]
pub struct ReadScheduler {
    state: Mutex<State>,
    called: AtomicU64,
    ticks: AtomicU64,
    lined_up: Notify,
    idle_threads: AtomicUsize,
    is_cpu_bound: AtomicBool,
    in_flight: InFlightLimit,
}

#[derive(Debug, Default)]
struct State {
    line: VecDeque<Arc<ConnectionEntry>>,
    /// Those that were called and have something under way, or may yet.
    in_turn: Vec<Arc<ConnectionEntry>>,
}

/// What the line knows of a connection.
#[derive(Debug, Default)]
struct ConnectionEntry {
    requests: Arc<Requests>,
    /// It stands in the line. Changed under its lock, as is the next one.
    is_lined_up: AtomicBool,
    /// It is among those whose requests count.
    is_in_turn: AtomicBool,
    /// Of its turn. Zero: it is not its turn.
    left_bytes: AtomicUsize,
    /// Requests that came in its last turn: as many are likely to come in this one, and as large.
    forecast: AtomicUsize,
    request_bytes: AtomicUsize,
    /// What was read in its turn.
    read_bytes: AtomicUsize,
    /// There was nothing more to read when it was last tried.
    is_drained: AtomicBool,
    /// The tick in which its turn came or enough was read, whichever is later; and what was read since.
    moved: AtomicU64,
    read_since_bytes: AtomicUsize,
    waker: Mutex<Option<Waker>>,
}

impl ConnectionEntry {
    fn begin_turn(&self, tick: u64) {
        self.moved.store(tick, Ordering::Relaxed);
        self.forecast.store(self.requests.most_in_flight(), Ordering::Relaxed);
        let (read_bytes, begun) = (self.read_bytes.swap(0, Ordering::Relaxed), self.requests.begun());
        if let Some(request_bytes) = read_bytes.checked_div(begun) {
            self.request_bytes.store(request_bytes, Ordering::Relaxed);
        }
        self.requests.begin_turn();
        self.is_drained.store(false, Ordering::Relaxed);
        self.left_bytes.store(TURN_BYTES, Ordering::Release);
    }

    fn end_turn(&self) {
        self.left_bytes.store(0, Ordering::Relaxed);
        self.requests.end_turn();
    }

    fn has_turn(&self) -> bool {
        self.left_bytes.load(Ordering::Acquire) > 0
    }

    fn note_progress(&self, bytes: usize, tick: u64) {
        let read_bytes = self.read_since_bytes.load(Ordering::Relaxed) + bytes;
        let is_enough = read_bytes >= MOVES_FROM_BYTES;
        self.read_since_bytes.store(if is_enough { 0 } else { read_bytes }, Ordering::Relaxed);
        if is_enough {
            self.moved.store(tick, Ordering::Relaxed);
        }
    }

    /// Of requests that are under way, or of those that are likely to come while it has its turn; at least of what is read of the
    /// connection before another one's turn comes, which is one request.
    fn weight(&self) -> usize {
        let in_flight = self.requests.in_flight();
        let likely = if self.has_turn() { self.forecast.load(Ordering::Relaxed) } else { 0 };
        in_flight.max(likely).max(weight_of_bytes(self.request_bytes.load(Ordering::Relaxed)))
    }

    /// Nothing gets on before its next turn: of all that is under way a part is still to come.
    fn is_stuck(&self) -> bool {
        !self.has_turn() && self.requests.arriving() >= self.requests.in_flight()
    }

    /// Nothing is under way, and nothing more will be in this turn.
    fn is_over(&self) -> bool {
        self.requests.in_flight() == 0 && (self.is_drained.load(Ordering::Relaxed) || !self.has_turn())
    }
}

impl ReadScheduler {
    /// The line of all servers that it is given to. Its owner calls [`ReadScheduler::on_thread_park`] and
    /// [`ReadScheduler::on_thread_unpark`] from the runtime's threads and runs [`ReadScheduler::keep_moving`].
    pub fn new() -> Arc<ReadScheduler> {
        Arc::default()
    }

    /// Whether the CPU is the bottleneck, as far as the line has found out: known only while connections are read from.
    pub fn is_cpu_bound(&self) -> bool {
        self.is_cpu_bound.load(Ordering::Relaxed)
    }

    /// A request found no memory, because of others that are being received.
    pub fn note_memory_short(&self) {
        self.in_flight.note_memory_short();
    }

    /// Whether only so much may be under way.
    pub(super) fn is_bounded(&self) -> bool {
        self.in_flight.is_bounded()
    }

    /// A thread of the runtime has nothing to do.
    pub fn on_thread_park(&self) {
        self.idle_threads.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        self.call_next(&mut state);
    }

    pub fn on_thread_unpark(&self) {
        self.idle_threads.fetch_sub(1, Ordering::Relaxed);
    }

    /// Watches the CPU and what may be under way, and calls the first in line now and then when nothing else does. Never ends.
    pub async fn keep_moving(&self) {
        let mut share = CpuShare::start();
        loop {
            if self.state.lock().line.is_empty() {
                let since = Instant::now();
                self.lined_up.notified().await;
                if since.elapsed() >= NOTHING_SHORT_AFTER {
                    self.in_flight.open();
                }
            }
            let before = self.called.load(Ordering::Relaxed);
            sleep(CALL_INTERVAL).await;
            self.ticks.fetch_add(1, Ordering::Relaxed);
            if self.called.load(Ordering::Relaxed) == before {
                let mut state = self.state.lock();
                self.call_next(&mut state);
            }
            if let Some(load) = share.look() {
                self.is_cpu_bound.store(load != CpuLoad::Low, Ordering::Relaxed);
                self.in_flight.look(load);
            }
        }
    }

    /// Calls the one whose turn it is, if anybody may be read from now.
    fn call_next(&self, state: &mut State) {
        if state.line.is_empty() {
            return;
        }
        state.in_turn.retain(|place| {
            let is_over = place.is_over();
            if is_over {
                place.end_turn();
                place.is_in_turn.store(false, Ordering::Relaxed);
            }
            !is_over
        });
        let next = if self.is_room(&state.in_turn) {
            Some(0)
        } else if state.in_turn.iter().all(|place| place.is_stuck()) {
            // Whatever is under way waits for its own connection to be read from again: only that can go on.
            state.line.iter().position(|place| place.requests.arriving() > 0)
        } else {
            None
        };
        if let Some(place) = next.and_then(|index| state.line.remove(index)) {
            self.call(state, place);
        }
    }

    /// Whether one more may be read from.
    fn is_room(&self, in_turn: &[Arc<ConnectionEntry>]) -> bool {
        if !self.in_flight.is_bounded() {
            return true;
        }
        let now = self.ticks.load(Ordering::Relaxed);
        let moves =
            |place: &&Arc<ConnectionEntry>| now.saturating_sub(place.moved.load(Ordering::Relaxed)) < STALLED_TICKS;
        self.in_flight.is_left_beside(in_turn.iter().filter(moves).map(|place| place.weight()).sum())
    }

    fn call(&self, state: &mut State, place: Arc<ConnectionEntry>) {
        place.is_lined_up.store(false, Ordering::Relaxed);
        place.begin_turn(self.ticks.load(Ordering::Relaxed));
        self.called.fetch_add(1, Ordering::Relaxed);
        let waker = place.waker.lock().take();
        // Requests of its last turn may still be under way.
        if !place.is_in_turn.swap(true, Ordering::Relaxed) {
            state.in_turn.push(place);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn line_up(&self, place: &Arc<ConnectionEntry>) {
        let mut state = self.state.lock();
        // It may have been called since it was last asked, or stand in the line already.
        if place.has_turn() || place.is_lined_up.swap(true, Ordering::Relaxed) {
            return;
        }
        state.line.push_back(Arc::clone(place));
        if state.line.len() == 1 {
            self.lined_up.notify_one();
        }
        // A thread that has parked already will not do it again for this.
        if self.idle_threads.load(Ordering::Relaxed) > 0 {
            self.call_next(&mut state);
        }
    }

    fn leave(&self, place: &Arc<ConnectionEntry>) {
        let mut state = self.state.lock();
        state.line.retain(|other| !Arc::ptr_eq(other, place));
        state.in_turn.retain(|other| !Arc::ptr_eq(other, place));
    }
}

/// One connection's part in it.
pub(super) struct Turn {
    turns: Option<Arc<ReadScheduler>>,
    place: Arc<ConnectionEntry>,
}

impl Turn {
    /// Without a line it is always the connection's turn.
    pub(super) fn new(turns: Option<Arc<ReadScheduler>>, requests: Arc<Requests>) -> Self {
        Turn { turns, place: Arc::new(ConnectionEntry { requests, ..ConnectionEntry::default() }) }
    }

    /// Whether the connection may be read from now. A turn ends here if it is a good moment: everything has arrived that had begun.
    pub(super) fn goes_on(&mut self) -> bool {
        let Some(turns) = &self.turns else { return true };
        let left = self.place.left_bytes.load(Ordering::Relaxed);
        let has_had_enough = (1..=TURN_BYTES - TURN_LEAST_BYTES).contains(&left);
        if has_had_enough && turns.in_flight.is_bounded() && self.place.requests.arriving() == 0 {
            self.place.end_turn();
        }
        self.place.has_turn()
    }

    /// Lines up. Ready when the turn has come.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(turns) = &self.turns else { return Poll::Ready(()) };
        *self.place.waker.lock() = Some(context.waker().clone());
        turns.line_up(&self.place);
        if self.place.has_turn() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// So much was read. Nothing: there is no more at the moment.
    pub(super) fn note_read(&mut self, bytes: usize) {
        let Some(turns) = &self.turns else { return };
        self.place.is_drained.store(bytes == 0, Ordering::Relaxed);
        self.place.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        let left = self.place.left_bytes.load(Ordering::Relaxed);
        if left > 0 && bytes > 0 {
            self.place.note_progress(bytes, turns.ticks.load(Ordering::Relaxed));
            if bytes < left {
                self.place.left_bytes.store(left - bytes, Ordering::Relaxed);
            } else {
                self.place.end_turn();
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = &self.turns {
            turns.leave(&self.place);
        }
    }
}

#[cfg(test)]
mod tests;
