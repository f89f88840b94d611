//! Whose turn it is to be read from: reading sockets is what a thread does when it has nothing else to do.
//!
//! Under more load than the CPU can bear, whatever is read too early waits in memory: it costs that memory, it has left the
//! caches when its time comes, and if it is refused in the end the reading was for nothing. So what was read is finished
//! first. Connections line up; the first in line is called when a thread of the runtime is about to park, and while the CPU is
//! the bottleneck only if few requests are under way. What is not read stays in the socket, where flow control holds the
//! sender. Under less load some thread is always about to park, and nobody waits.
//!
//! There is one line a runtime, so that of all ports of a process the connection that waits longest comes first.

mod cpu;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use cpu::CpuShare;

/// Read in one turn, at most: enough for the bodies that are under way on a connection to be read to their ends.
const TURN_BYTES: usize = 4 << 20;
/// While the CPU is the bottleneck nobody is called if so many requests are under way with those whose turn it is. Measured:
/// 32 requests of 190 kB are answered as cheaply as 8, and 256 at half to two thirds of that rate.
const FEW_REQUESTS: usize = 32;
/// So often somebody's turn comes even if no thread ever parks, because all are busy with what was received long ago.
const CALL_INTERVAL: Duration = Duration::from_millis(5);

static INSTALLED: OnceLock<Arc<Turns>> = OnceLock::new();

/// The line of a runtime.
#[derive(Debug, Default)]
pub struct Turns {
    state: Mutex<State>,
    called: AtomicU64,
    lined_up: Notify,
    idle_threads: AtomicUsize,
    is_cpu_bound: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    line: VecDeque<Arc<Place>>,
    in_turn: Vec<Arc<Place>>,
}

/// What the line knows of a connection.
#[derive(Debug, Default)]
struct Place {
    /// Requests that are not answered.
    in_flight: Arc<AtomicUsize>,
    /// Changed under the lock of the line.
    is_lined_up: AtomicBool,
    /// Of its turn. Zero: it is not its turn.
    left_bytes: AtomicUsize,
    /// There was nothing more to read when it was last tried.
    is_drained: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Place {
    fn is_over(&self) -> bool {
        self.is_drained.load(Ordering::Relaxed) && self.in_flight.load(Ordering::Relaxed) == 0
    }
}

impl Turns {
    /// The line that all servers of this process use from now on. Its owner calls [`Turns::on_thread_park`] and
    /// [`Turns::on_thread_unpark`] from the runtime's threads and runs [`Turns::keep_moving`]. Without it nobody lines up.
    pub fn install() -> Arc<Turns> {
        Arc::clone(INSTALLED.get_or_init(Arc::default))
    }

    /// Whether the CPU is the bottleneck, as far as the line has found out: known only while connections are read from.
    pub fn is_cpu_bound() -> bool {
        INSTALLED.get().is_some_and(|turns| turns.is_cpu_bound.load(Ordering::Relaxed))
    }

    pub(super) fn installed() -> Option<Arc<Turns>> {
        INSTALLED.get().cloned()
    }

    /// A thread of the runtime has nothing to do.
    pub fn on_thread_park(&self) {
        self.idle_threads.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        if !state.line.is_empty() && self.is_room(&mut state) {
            self.call(&mut state);
        }
    }

    pub fn on_thread_unpark(&self) {
        self.idle_threads.fetch_sub(1, Ordering::Relaxed);
    }

    /// Watches the CPU, and calls the first in line now and then when nothing else does. Never ends.
    pub async fn keep_moving(&self) {
        let mut share = CpuShare::start();
        loop {
            if self.state.lock().line.is_empty() {
                self.lined_up.notified().await;
            }
            let before = self.called.load(Ordering::Relaxed);
            sleep(CALL_INTERVAL).await;
            if self.called.load(Ordering::Relaxed) == before {
                self.call(&mut self.state.lock());
            }
            if let Some(is_bound) = share.is_bound() {
                self.is_cpu_bound.store(is_bound, Ordering::Relaxed);
            }
        }
    }

    /// Whether one more may be read from.
    fn is_room(&self, state: &mut State) -> bool {
        state.in_turn.retain(|place| {
            let is_over = place.is_over();
            if is_over {
                place.left_bytes.store(0, Ordering::Relaxed);
            }
            !is_over
        });
        let requests = || state.in_turn.iter().map(|place| place.in_flight.load(Ordering::Relaxed).max(1));
        !self.is_cpu_bound.load(Ordering::Relaxed) || requests().sum::<usize>() < FEW_REQUESTS
    }

    fn call(&self, state: &mut State) {
        let Some(place) = state.line.pop_front() else { return };
        place.is_lined_up.store(false, Ordering::Relaxed);
        place.left_bytes.store(TURN_BYTES, Ordering::Release);
        self.called.fetch_add(1, Ordering::Relaxed);
        let waker = place.waker.lock().take();
        state.in_turn.push(place);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn line_up(&self, place: &Arc<Place>) {
        let mut state = self.state.lock();
        // It may have been called since it was last asked, or stand in the line already.
        if place.left_bytes.load(Ordering::Relaxed) > 0 || place.is_lined_up.swap(true, Ordering::Relaxed) {
            return;
        }
        state.line.push_back(Arc::clone(place));
        if state.line.len() == 1 {
            self.lined_up.notify_one();
        }
        // A thread that has parked already will not do it again for this.
        if self.idle_threads.load(Ordering::Relaxed) > 0 && self.is_room(&mut state) {
            self.call(&mut state);
        }
    }

    fn end(&self, place: &Arc<Place>) {
        self.state.lock().in_turn.retain(|other| !Arc::ptr_eq(other, place));
    }

    fn leave(&self, place: &Arc<Place>) {
        let mut state = self.state.lock();
        state.line.retain(|other| !Arc::ptr_eq(other, place));
        state.in_turn.retain(|other| !Arc::ptr_eq(other, place));
    }
}

/// One connection's part in it.
pub(super) struct Turn {
    turns: Option<Arc<Turns>>,
    place: Arc<Place>,
}

impl Turn {
    /// Without a line it is always the connection's turn. `in_flight`: its requests that are not answered.
    pub(super) fn new(turns: Option<Arc<Turns>>, in_flight: Arc<AtomicUsize>) -> Self {
        Turn { turns, place: Arc::new(Place { in_flight, ..Place::default() }) }
    }

    /// True while the connection may be read from.
    pub(super) fn has_come(&self) -> bool {
        self.turns.is_none() || self.place.left_bytes.load(Ordering::Acquire) > 0
    }

    /// Lines up. Ready when the turn has come.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(turns) = &self.turns else { return Poll::Ready(()) };
        *self.place.waker.lock() = Some(context.waker().clone());
        turns.line_up(&self.place);
        if self.has_come() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// So much was read. Nothing: there is no more at the moment.
    pub(super) fn note_read(&mut self, bytes: usize) {
        let Some(turns) = &self.turns else { return };
        self.place.is_drained.store(bytes == 0, Ordering::Relaxed);
        let left = self.place.left_bytes.load(Ordering::Relaxed);
        if left > 0 && bytes > 0 {
            let left = left.saturating_sub(bytes);
            self.place.left_bytes.store(left, Ordering::Relaxed);
            if left == 0 {
                turns.end(&self.place);
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
mod tests {
    use super::*;

    struct Connection(Turn, Arc<AtomicUsize>);

    impl Connection {
        fn new(turns: &Arc<Turns>) -> Self {
            let in_flight = Arc::new(AtomicUsize::new(0));
            Connection(Turn::new(Some(Arc::clone(turns)), Arc::clone(&in_flight)), in_flight)
        }

        fn has_turn(&mut self) -> bool {
            self.0.poll(&mut Context::from_waker(Waker::noop())).is_ready()
        }
    }

    #[test]
    fn while_no_thread_is_idle_connections_wait_and_are_called_in_the_order_in_which_they_lined_up() {
        let turns = Arc::new(Turns::default());
        let mut all = [Connection::new(&turns), Connection::new(&turns), Connection::new(&turns)];
        assert!(all.iter_mut().all(|connection| !connection.has_turn()));
        for next in 0..3 {
            turns.on_thread_park();
            turns.on_thread_unpark();
            let who: Vec<_> = all.iter_mut().map(Connection::has_turn).collect();
            assert_eq!(who.iter().filter(|has| **has).count(), next + 1);
            assert!(who[next]);
        }
    }

    #[test]
    fn a_connection_does_not_wait_while_a_thread_is_idle() {
        let turns = Arc::new(Turns::default());
        turns.on_thread_park();
        assert!(Connection::new(&turns).has_turn());
    }

    #[test]
    fn a_turn_ends_when_its_bytes_are_read_or_nothing_is_under_way() {
        let turns = Arc::new(Turns::default());
        let mut connection = Connection::new(&turns);
        let call = || {
            turns.on_thread_park();
            turns.on_thread_unpark();
        };
        assert!(!connection.has_turn());
        call();
        assert!(connection.has_turn());
        connection.1.store(1, Ordering::Relaxed);
        connection.0.note_read(1000);
        connection.0.note_read(0);
        // Somebody else is called meanwhile: a turn with a request under way goes on.
        let mut other = Connection::new(&turns);
        assert!(!other.has_turn());
        call();
        assert!(connection.0.has_come() && other.has_turn());
        connection.0.note_read(TURN_BYTES);
        assert!(!connection.0.has_come());
        // The other has nothing under way and nothing to read.
        other.0.note_read(0);
        assert!(!connection.has_turn());
        call();
        assert!(!other.0.has_come() && connection.has_turn());
    }

    #[test]
    fn while_the_cpu_is_the_bottleneck_few_requests_are_under_way() {
        let turns = Arc::new(Turns::default());
        turns.is_cpu_bound.store(true, Ordering::Relaxed);
        let mut first = Connection::new(&turns);
        let mut second = Connection::new(&turns);
        assert!(!first.has_turn() && !second.has_turn());
        turns.on_thread_park();
        turns.on_thread_unpark();
        assert!(first.has_turn());
        first.1.store(FEW_REQUESTS, Ordering::Relaxed);
        turns.on_thread_park();
        assert!(!second.has_turn(), "not even where a thread is idle for the moment");
        turns.on_thread_unpark();
        first.1.store(1, Ordering::Relaxed);
        turns.on_thread_park();
        assert!(second.has_turn());
    }

    #[test]
    fn who_leaves_holds_up_nobody() {
        let turns = Arc::new(Turns::default());
        let mut gone = Connection::new(&turns);
        let mut stays = Connection::new(&turns);
        assert!(!gone.has_turn() && !stays.has_turn());
        drop(gone);
        turns.on_thread_park();
        assert!(stays.has_turn());
    }

    #[test]
    fn after_its_turn_a_connection_lines_up_again() {
        let turns = Arc::new(Turns::default());
        let mut connection = Connection::new(&turns);
        for _ in 0..3 {
            assert!(!connection.has_turn());
            turns.on_thread_park();
            turns.on_thread_unpark();
            assert!(connection.0.has_come(), "as whoever reads asks");
            connection.0.note_read(TURN_BYTES);
        }
    }

    #[tokio::test]
    async fn the_line_moves_even_if_no_thread_ever_parks() {
        let turns = Arc::new(Turns::default());
        let moving = tokio::spawn({
            let turns = Arc::clone(&turns);
            async move { turns.keep_moving().await }
        });
        let mut connection = Connection::new(&turns);
        assert!(!connection.has_turn());
        sleep(3 * CALL_INTERVAL).await;
        assert!(connection.has_turn());
        moving.abort();
    }
}
