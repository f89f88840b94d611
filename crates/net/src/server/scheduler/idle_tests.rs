//! The scheduler while the CPU is idle.

use super::entry::PROGRESS_LEAST_BYTES;
use super::in_flight_limit::LEAST_WEIGHT;
use super::tests::*;
use super::*;

/// Hours of ten connections whose streams make just enough progress to count, while memory is short
/// all the time and the CPU idle. Guarantee: another connection waits 50 ms at most.
#[test]
fn while_the_cpu_is_idle_no_small_request_waits_longer_than_50_ms() {
    const TICKS: u64 = 2 * 3600 * 200;
    let scheduler = limited();
    let mut trickling: [_; 10] = queued(&scheduler);
    let first_slice = |connection: &mut Connection| {
        park(&scheduler);
        assert!(connection.may_read());
        let streams = connection.begin(12);
        connection.read(PROGRESS_LEAST_BYTES);
        connection.requests.end_slice();
        streams
    };
    let streams: Vec<_> = trickling.iter_mut().map(first_slice).collect();
    let mut client = Connection::new(&scheduler);
    let (mut queued_at, mut answers, mut longest) = (0, 0, 0);
    for tick in 1..TICKS {
        scheduler.note_memory_short();
        for connection in &mut trickling {
            if connection.may_read() {
                connection.read(PROGRESS_LEAST_BYTES);
                connection.reads.note_read(0);
            }
        }
        if client.may_read() {
            longest = longest.max(tick - queued_at);
            let request = client.begin(1);
            client.read(100);
            client.reads.note_read(0);
            drop(request);
            client.answer(1);
            // It sends its next request a little later, and has to queue for it.
            client = Connection::new(&scheduler);
            (queued_at, answers) = (tick, answers + 1);
        }
        scheduler.tick(false, tick.is_multiple_of(WINDOW_TICKS).then_some(CpuLoad::Idle));
    }
    assert!(longest * TICK.as_millis() as u64 <= 50, "{longest} ticks");
    assert!(answers > TICKS / 10, "{answers} answers");
    drop(streams);
}

/// Scenario: the CPU was the bottleneck, and then is idle. Guarantee: connections that the limit
/// delays are read within 50 ms of that.
#[test]
fn a_limit_that_is_left_from_a_busy_time_holds_up_no_connection() {
    let scheduler = limited();
    let [mut first, mut second] = queued(&scheduler);
    park(&scheduler);
    let _in_flight = first.begin(100 * LEAST_WEIGHT);
    for tick in 1..=30 {
        first.read(PROGRESS_LEAST_BYTES);
        scheduler.tick(false, tick_window(tick, CpuLoad::Full));
        assert!(!second.may_read(), "the CPU is the bottleneck");
    }
    let waited = (1..=100).find(|tick| {
        first.read(PROGRESS_LEAST_BYTES);
        scheduler.tick(false, tick_window(*tick, CpuLoad::Idle));
        second.may_read()
    });
    assert!(waited.is_some_and(|ticks| ticks * TICK.as_millis() as u64 <= 50), "{waited:?}");
}

/// Scenario: the limit is low, the CPU idle, and connections with large requests queue beside one
/// with small ones. Guarantee: of the large ones one is let in every 40 ms; the small one does not
/// wait for them.
#[test]
fn while_the_cpu_is_idle_large_requests_are_let_in_one_by_one() {
    const ROUNDS: u64 = 50;
    const LARGE_BYTES: usize = 16 << 20;
    let scheduler = limited();
    let mut large: [_; 40] = queued(&scheduler);
    let read_one = |connection: &mut Connection| {
        drop(connection.begin(1));
        connection.read(LARGE_BYTES);
        connection.requests.end_slice();
        connection.answer(1);
        assert!(!connection.may_read());
    };
    // The size of a connection's requests is known once a slice of it is over.
    for _ in 0..2 * large.len() {
        park(&scheduler);
        let next = large.iter_mut().find_map(|it| it.may_read().then_some(it));
        read_one(next.expect("one is let in"));
    }
    let (mut begun, mut small_begun) = (0, 0);
    let mut small = Connection::new(&scheduler);
    for tick in 1..=ROUNDS * LARGE_TICKS {
        // Other connections have taken the slices that begin in turn.
        scheduler.tick(true, tick_window(tick, CpuLoad::Idle));
        for connection in &mut large {
            if connection.may_read() {
                begun += 1;
                read_one(connection);
            }
        }
        if small.may_read() {
            small_begun += 1;
            small = Connection::new(&scheduler);
        }
    }
    assert!((ROUNDS - 1..=ROUNDS).contains(&begun), "{begun}");
    assert!(small_begun > ROUNDS * LARGE_TICKS / 4, "{small_begun}");
}

/// Scenario: many new connections wait beside one with as many requests as the limit lets in, and
/// the CPU has nothing to do for a moment. Guarantee: a few of them are let in, and twice as many
/// with each further window in which it has nothing to do.
#[test]
fn while_the_cpu_is_idle_new_connections_are_let_in_a_few_at_a_time() {
    let scheduler = limited();
    let [mut busy] = queued(&scheduler);
    park(&scheduler);
    assert!(busy.may_read());
    let _arriving = busy.begin(LEAST_WEIGHT);
    let mut new: [_; 40] = queued(&scheduler);
    let mut let_in_by = |load: CpuLoad| {
        for tick in 0..WINDOW_TICKS {
            busy.read(PROGRESS_LEAST_BYTES);
            scheduler.tick(true, (tick == 0).then_some(load));
        }
        new.iter_mut().filter_map(|connection| connection.reads.may_read().then_some(())).count()
    };
    assert_eq!(let_in_by(CpuLoad::Full), 0);
    assert_eq!([CpuLoad::Idle, CpuLoad::Idle].map(&mut let_in_by), [1, 1 + 2]);
    assert_eq!(let_in_by(CpuLoad::Full), 1 + 2);
    assert_eq!(let_in_by(CpuLoad::Idle), 1 + 2 + 1);
    scheduler.note_waits_for_cpu();
    assert_eq!([CpuLoad::Idle, CpuLoad::Idle].map(let_in_by), [4, 4 + 1], "some wait already");
}

/// Scenario: the same, and those that wait have sent one request of 200 KiB each, but for one with
/// requests of 1 KiB behind them. Guarantee: those with 200 KiB are let in a few at a time, too,
/// and the last one at once.
#[test]
fn while_the_cpu_is_idle_requests_that_are_large_together_are_let_in_a_few_at_a_time() {
    let scheduler = limited();
    let mut waiting: [_; 41] = queued(&scheduler);
    for (index, connection) in waiting.iter_mut().enumerate() {
        park(&scheduler);
        assert!(connection.may_read());
        drop(connection.begin(1));
        connection.read(if index < 40 { 200 << 10 } else { 1 << 10 });
        connection.reads.note_read(0);
        connection.answer(1);
    }
    let [mut busy] = queued(&scheduler);
    park(&scheduler);
    assert!(busy.may_read());
    let _arriving = busy.begin(2 * LEAST_WEIGHT);
    for connection in &mut waiting {
        connection.requests.end_slice();
        assert!(!connection.may_read());
    }
    let mut let_in_by = |load: CpuLoad| {
        for tick in 0..WINDOW_TICKS {
            busy.read(PROGRESS_LEAST_BYTES);
            scheduler.tick(true, (tick == 0).then_some(load));
        }
        let let_in = waiting.iter_mut().map(|connection| connection.reads.may_read());
        let let_in: Vec<bool> = let_in.collect();
        (let_in[..40].iter().filter(|&&is_read| is_read).count(), let_in[40])
    };
    assert_eq!(let_in_by(CpuLoad::Full), (0, false));
    assert_eq!([CpuLoad::Idle, CpuLoad::Idle].map(&mut let_in_by), [(1, true), (1 + 2, true)]);
}

/// Scenario: connections that once sent a large request send a byte a slice. Guarantee: they take
/// no turns from those with large requests.
#[test]
fn a_connection_with_large_requests_is_one_only_while_it_sends_much() {
    let scheduler = limited();
    let [mut connection] = queued(&scheduler);
    let mut expects_little_after = |bytes: usize, requests: usize| {
        park(&scheduler);
        assert!(connection.may_read());
        drop(connection.begin(requests));
        connection.read(bytes);
        connection.requests.end_slice();
        connection.answer(requests);
        assert!(!connection.may_read());
        connection.requests.expects_small_slice()
    };
    assert!(!expects_little_after(1 << 20, 1));
    assert!(!expects_little_after(1 << 20, 0), "it goes on with a large request");
    assert!(expects_little_after(1, 0));
}
