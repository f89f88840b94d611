//! The line, without connections behind its places.

use super::in_flight_limit::LEAST_WEIGHT;
use super::*;

struct Connection {
    turn: Turn,
    requests: Arc<Requests>,
}

impl Connection {
    fn new(turns: &Arc<ReadScheduler>) -> Self {
        let requests = Arc::new(Requests::default());
        Connection { turn: Turn::new(Some(Arc::clone(turns)), Arc::clone(&requests)), requests }
    }

    /// As whoever reads asks.
    fn has_turn(&mut self) -> bool {
        self.turn.goes_on() || self.turn.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    fn begin(&self, requests: usize) -> Vec<Arriving> {
        (0..requests).map(|_| self.requests.begin()).collect()
    }

    fn answer(&self, requests: usize) {
        (0..requests).for_each(|_| {
            self.requests.end();
        });
    }
}

/// Connections in the line, in this order.
fn lined_up<const N: usize>(turns: &Arc<ReadScheduler>) -> [Connection; N] {
    let mut all = std::array::from_fn(|_| Connection::new(turns));
    assert!(all.iter_mut().all(|connection: &mut Connection| !connection.has_turn()));
    all
}

/// A thread has nothing to do for a moment.
fn call(turns: &ReadScheduler) {
    turns.on_thread_park();
    turns.on_thread_unpark();
}

fn cpu_bound() -> Arc<ReadScheduler> {
    let turns = Arc::new(ReadScheduler::default());
    turns.in_flight.close();
    turns
}

#[test]
fn while_no_thread_is_idle_connections_wait_and_are_called_in_the_order_in_which_they_lined_up() {
    let turns = Arc::new(ReadScheduler::default());
    let mut all: [_; 3] = lined_up(&turns);
    for next in 0..3 {
        call(&turns);
        let who: Vec<_> = all.iter_mut().map(Connection::has_turn).collect();
        assert_eq!(who.iter().filter(|has| **has).count(), next + 1);
        assert!(who[next]);
    }
}

#[test]
fn a_connection_does_not_wait_while_a_thread_is_idle() {
    let turns = Arc::new(ReadScheduler::default());
    turns.on_thread_park();
    assert!(Connection::new(&turns).has_turn());
}

#[test]
fn a_turn_ends_when_its_bytes_are_read_or_nothing_is_under_way() {
    let turns = Arc::new(ReadScheduler::default());
    let [mut connection] = lined_up(&turns);
    call(&turns);
    assert!(connection.has_turn());
    let _arriving = connection.begin(1);
    connection.turn.note_read(1000);
    connection.turn.note_read(0);
    // Somebody else is called meanwhile: a turn with a request under way goes on.
    let [mut other] = lined_up(&turns);
    call(&turns);
    assert!(connection.turn.goes_on() && other.has_turn());
    connection.turn.note_read(TURN_BYTES);
    assert!(!connection.turn.goes_on());
    // The other has nothing under way and nothing to read.
    other.turn.note_read(0);
    assert!(!connection.has_turn());
    call(&turns);
    assert!(!other.turn.goes_on() && connection.has_turn());
}

#[test]
fn a_connection_that_was_called_keeps_its_turn_until_it_has_looked_for_something_to_read() {
    let turns = Arc::new(ReadScheduler::default());
    let [mut connection] = lined_up(&turns);
    call(&turns);
    connection.turn.note_read(0);
    let [_other] = lined_up(&turns);
    call(&turns);
    assert!(!connection.has_turn(), "there was nothing to read");
    call(&turns);
    let [_third] = lined_up(&turns);
    call(&turns);
    assert!(connection.has_turn());
}

#[test]
fn while_the_cpu_is_the_bottleneck_few_requests_are_under_way() {
    let turns = cpu_bound();
    let [mut first, mut second] = lined_up(&turns);
    call(&turns);
    assert!(first.has_turn());
    let arriving = first.begin(LEAST_WEIGHT);
    turns.on_thread_park();
    assert!(!second.has_turn(), "not even where a thread is idle for the moment");
    turns.on_thread_unpark();
    // Its turn is over, but what it brought is not done.
    drop(arriving);
    first.turn.note_read(TURN_LEAST_BYTES);
    assert!(!first.turn.goes_on());
    call(&turns);
    assert!(!second.has_turn());
    first.answer(LEAST_WEIGHT - 1);
    call(&turns);
    assert!(second.has_turn());
}

#[test]
fn what_has_begun_is_read_to_its_end_in_the_same_turn() {
    let turns = cpu_bound();
    let [mut connection] = lined_up(&turns);
    call(&turns);
    let mut arriving = connection.begin(3);
    connection.turn.note_read(TURN_LEAST_BYTES - 1);
    arriving.truncate(1);
    connection.turn.note_read(1);
    assert!(connection.turn.goes_on(), "one is still arriving");
    arriving.clear();
    assert!(!connection.turn.goes_on(), "a good moment");
    // Where the CPU is not the bottleneck nobody waits, and every moment is as good.
    turns.in_flight.open();
    assert!(!connection.has_turn());
    call(&turns);
    connection.turn.note_read(TURN_LEAST_BYTES);
    assert!(connection.turn.goes_on());
}

#[test]
fn a_connection_counts_for_as_many_requests_as_it_brought_in_its_last_turn() {
    let turns = cpu_bound();
    let [mut many] = lined_up(&turns);
    call(&turns);
    drop(many.begin(LEAST_WEIGHT));
    many.turn.note_read(TURN_LEAST_BYTES);
    assert!(!many.has_turn());
    many.answer(LEAST_WEIGHT);
    call(&turns);
    assert!(many.has_turn() && many.requests.in_flight() == 0);
    let [mut other] = lined_up(&turns);
    call(&turns);
    assert!(!other.has_turn(), "as many may come as the last time");
    many.turn.note_read(0);
    call(&turns);
    assert!(other.has_turn(), "they did not");
}

/// How many of many connections have their turn at a time if each brings so many requests of 190 kB.
fn in_turn_with_large_requests(requests: usize) -> usize {
    let turns = cpu_bound();
    let mut all: [_; 16] = lined_up(&turns);
    for connection in &mut all {
        call(&turns);
        assert!(connection.has_turn());
        drop(connection.begin(requests));
        connection.turn.note_read(requests * 190_000);
        connection.answer(requests);
        connection.turn.note_read(0);
    }
    let [_last] = lined_up(&turns);
    call(&turns);
    assert!(!all.iter_mut().any(Connection::has_turn));
    all.iter().for_each(|_| call(&turns));
    all.iter_mut().map(Connection::has_turn).filter(|has| *has).count()
}

#[test]
fn large_requests_count_for_more_where_each_has_a_connection() {
    assert_eq!(in_turn_with_large_requests(1), LEAST_WEIGHT / 4);
    assert_eq!(in_turn_with_large_requests(8), LEAST_WEIGHT / 8);
}

#[test]
fn requests_that_do_not_get_on_hold_up_nobody_for_long() {
    let turns = cpu_bound();
    let [mut slow, mut other] = lined_up(&turns);
    call(&turns);
    let _arriving = slow.begin(2 * LEAST_WEIGHT);
    turns.ticks.store(STALLED_TICKS - 1, Ordering::Relaxed);
    call(&turns);
    assert!(!other.has_turn());
    turns.ticks.store(STALLED_TICKS, Ordering::Relaxed);
    call(&turns);
    assert!(other.has_turn());
    // Drops are not enough.
    slow.turn.note_read(1);
    let [mut third] = lined_up(&turns);
    call(&turns);
    assert!(third.has_turn());
    // They do get on again.
    slow.turn.note_read(MOVES_FROM_BYTES - 1);
    let [mut fourth] = lined_up(&turns);
    call(&turns);
    assert!(!fourth.has_turn());
}

#[test]
fn requests_that_wait_for_their_connections_next_turn_do_not_keep_it_from_coming() {
    let turns = cpu_bound();
    let [mut connection, mut other] = lined_up(&turns);
    call(&turns);
    // More than may be under way began, and but for one did not arrive before the turn's bytes were read.
    let mut arriving = connection.begin(2 * LEAST_WEIGHT);
    arriving.truncate(2 * LEAST_WEIGHT - 1);
    connection.turn.note_read(TURN_BYTES);
    assert!(!connection.has_turn());
    call(&turns);
    assert!(!connection.has_turn(), "one is worked on");
    connection.answer(1);
    call(&turns);
    assert!(connection.has_turn() && !other.has_turn(), "nobody else could let them go on");
}

#[tokio::test]
async fn answers_wait_for_all_that_has_begun_but_not_for_ever() {
    let turns = cpu_bound();
    let [mut connection] = lined_up(&turns);
    call(&turns);
    let mut arriving = connection.begin(2);
    let began = std::time::Instant::now();
    connection.requests.all_have_arrived().await;
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
    // Nothing arrives while it is somebody else's turn.
    let arriving = connection.begin(1);
    connection.turn.note_read(TURN_BYTES);
    let began = std::time::Instant::now();
    connection.requests.all_have_arrived().await;
    assert!(began.elapsed() < requests::HELD_AT_MOST);
    drop(arriving);
    connection.requests.all_have_arrived().await;
}

/// What was short long ago holds up nobody who comes after a pause.
#[tokio::test]
async fn the_bound_does_not_outlive_a_pause() {
    let turns = cpu_bound();
    let moving = tokio::spawn({
        let turns = Arc::clone(&turns);
        async move { turns.keep_moving().await }
    });
    tokio::time::sleep(NOTHING_SHORT_AFTER / 4).await;
    assert!(turns.in_flight.is_bounded());
    tokio::time::sleep(NOTHING_SHORT_AFTER).await;
    let [_connection] = lined_up(&turns);
    tokio::task::yield_now().await;
    assert!(!turns.in_flight.is_bounded());
    moving.abort();
}

#[test]
fn who_leaves_holds_up_nobody() {
    let turns = Arc::new(ReadScheduler::default());
    let [gone, mut stays] = lined_up(&turns);
    drop(gone);
    turns.on_thread_park();
    assert!(stays.has_turn());
}

#[test]
fn after_its_turn_a_connection_lines_up_again() {
    let turns = Arc::new(ReadScheduler::default());
    let mut connection = Connection::new(&turns);
    for _ in 0..3 {
        assert!(!connection.has_turn());
        call(&turns);
        assert!(connection.has_turn());
        connection.turn.note_read(TURN_BYTES);
    }
}

#[tokio::test]
async fn the_line_moves_even_if_no_thread_ever_parks() {
    let turns = Arc::new(ReadScheduler::default());
    let moving = tokio::spawn({
        let turns = Arc::clone(&turns);
        async move { turns.keep_moving().await }
    });
    let [mut connection] = lined_up(&turns);
    sleep(3 * CALL_INTERVAL).await;
    assert!(connection.has_turn());
    moving.abort();
}
