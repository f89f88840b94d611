//! Scenarios of items that a simulated backend refuses for good, in simulated time.

use std::time::{Duration, Instant};

use sluice_otlp::SplitLimits;

use super::tests::{policy, unit};
use super::*;
use crate::export::Outcome;

/// A backend of eight slots that answers each request after a time and refuses those with a bad
/// item.
struct Poisoned {
    dispatcher: Dispatcher<u64>,
    start: Instant,
    elapsed: Duration,
    unread: std::ops::Range<u64>,
    /// Time between the arrivals of units, from the start on.
    arrival: Duration,
    /// Times of the backend's answers.
    answer_us: std::ops::RangeInclusive<u64>,
    random: fastrand::Rng,
    /// The backend takes nothing before.
    off_until: Duration,
    /// Items of each unit. All or none are bad.
    items: u32,
    good: u64,
    dead: Vec<u64>,
    requests: u64,
    /// When the last good item was taken.
    good_at: Duration,
    /// Numbers of delivered and of dead items when the delivery was first held.
    when_held: Option<(u64, usize)>,
}

impl Poisoned {
    fn new(items: u64, batch: usize) -> Self {
        let batch = BatchPolicy { full_items: batch, max_items: batch, ..policy().batch };
        let concurrency = ConcurrencyLimits { initial: 8, max: 8 };
        let dispatcher = Dispatcher::new(DispatchPolicy { batch, concurrency, ..policy() });
        Poisoned {
            dispatcher,
            start: Instant::now(),
            elapsed: Duration::ZERO,
            unread: 0..items,
            arrival: Duration::ZERO,
            answer_us: 2_000..=2_000,
            random: fastrand::Rng::with_seed(7),
            off_until: Duration::ZERO,
            items: 1,
            good: 0,
            dead: Vec::new(),
            requests: 0,
            good_at: Duration::ZERO,
            when_held: None,
        }
    }

    /// Runs until all is resolved, or until `limit` is over and nothing is in flight. Returns the
    /// time that it took.
    fn run(&mut self, limit: Duration, is_bad: impl Fn(u64) -> bool) -> Duration {
        let begun = self.elapsed;
        let mut in_flight: Vec<(Duration, Batch<u64>)> = Vec::new();
        loop {
            let is_over = self.elapsed >= begun + limit;
            let is_done = self.unread.is_empty() && self.dispatcher.is_idle();
            if is_done || is_over && in_flight.is_empty() {
                return self.elapsed - begun;
            }
            let (elapsed, now) = (self.elapsed, self.start + self.elapsed);
            let is_answered = |(due, _): &mut (Duration, Batch<u64>)| *due <= elapsed;
            for (_, batch) in in_flight.extract_if(.., is_answered).collect::<Vec<_>>() {
                let is_refused = batch.units.iter().any(|unit| is_bad(unit.lease));
                let outcome = match is_refused {
                    _ if elapsed < self.off_until => {
                        Outcome::RetryAfter { delay: None, reason: "503".into() }
                    }
                    true => Outcome::Rejected { reason: "bad".into() },
                    false => Outcome::Delivered,
                };
                match self.dispatcher.note_outcome(batch, outcome, now, 0.5) {
                    Verdict::Delivered { units, .. } => {
                        self.good += units.iter().map(|it| u64::from(it.items)).sum::<u64>();
                        self.good_at = elapsed;
                    }
                    Verdict::Kept => {}
                    Verdict::Divide { unit: cut, .. } => {
                        let halves = [cut.items / 2, cut.items - cut.items / 2];
                        let halves = halves.map(|items| unit(cut.lease, items, 10));
                        self.dispatcher.divided(halves.into());
                    }
                    other => panic!("{other:?}"),
                }
                let is_held = *self.dispatcher.state() != State::Open;
                if is_held && self.when_held.is_none() {
                    self.when_held = Some((self.good, self.dead.len()));
                }
            }
            loop {
                let has_arrived = self.arrival * self.unread.start as u32 <= elapsed;
                if !is_over
                    && has_arrived
                    && self.dispatcher.wants_more()
                    && let Some(id) = self.unread.next()
                {
                    self.dispatcher.offer(unit(id, self.items, 10), now);
                    continue;
                }
                let next = if is_over { None } else { self.dispatcher.next(now) };
                let Some(batch) = next else { break };
                self.requests += 1;
                let answer = Duration::from_micros(self.random.u64(self.answer_us.clone()));
                in_flight.push((elapsed + answer, batch));
            }
            let at_fault = self.dispatcher.take_at_fault(self.unread.is_empty()).into_iter();
            self.dead.extend(at_fault.flat_map(|refused| refused.units).map(|unit| unit.lease));
            let answer = in_flight.iter().map(|(due, _)| *due).min();
            let wake = self.dispatcher.next_wake().map(|wake| wake - self.start);
            let arrival = self.arrival * self.unread.start as u32;
            let arrival = (!self.unread.is_empty() && arrival > elapsed).then_some(arrival);
            let next = [answer, wake, arrival].into_iter().flatten().min().unwrap_or(elapsed);
            self.elapsed = next.max(elapsed + Duration::from_micros(100));
        }
    }
}

/// Guarantee: a backlog goes out at the pace of the backend's answers, whatever the share of bad
/// items, their order and the size of batches. Only bad items die, and none costs more requests
/// than its search needs.
#[test]
fn poison_never_stops_a_delivery() {
    const ITEMS: u64 = 6_000;
    let mut random = fastrand::Rng::with_seed(11);
    for batch in [1, 10, 100, 512, 2_000] {
        for share in [0.0, 0.02, 0.05, 0.2, 0.5, 0.9] {
            // Bad items are spread, or all items of one sender are bad.
            let runs = [1, 20 * (batch as u64).min(10)];
            for run in runs {
                let runs = ITEMS / run + 1;
                let bad: Vec<bool> = (0..runs).map(|_| random.f64() < share).collect();
                let is_bad = |id: u64| bad[(id / run) as usize];
                let expected: Vec<u64> = (0..ITEMS).filter(|&id| is_bad(id)).collect();
                let mut poisoned = Poisoned::new(ITEMS, batch);
                let took = poisoned.run(Duration::from_secs(60), is_bad);
                let case = format!("{batch} a batch, {share} bad, {run} in a row");
                poisoned.dead.sort_unstable();
                assert!(poisoned.dead.iter().all(|&id| is_bad(id)), "{case}");
                let good = ITEMS - expected.len() as u64;
                if let Some((delivered, dead)) = poisoned.when_held {
                    // A run this long looks like a fault of all data.
                    let (good_left, bad_left) = (good - delivered, expected.len() - dead);
                    let is_alike = bad_left as u64 > 3 * good_left || batch == 1 || share >= 0.5;
                    assert!(
                        run > 1 && is_alike || good_left == 0,
                        "{case}: {good_left} good and {bad_left} bad left"
                    );
                } else {
                    assert_eq!((poisoned.good, &poisoned.dead), (good, &expected), "{case}");
                    let slowest = Duration::from_millis(2 * poisoned.requests + 100);
                    assert!(took <= slowest, "{case}: {took:?} for {} requests", poisoned.requests);
                }
                let levels = (batch as f64).log2().ceil() as u64;
                let most = ITEMS.div_ceil(batch as u64)
                    + expected.len() as u64 * (2 * levels + 2)
                    // A batch that was cut short to send data from elsewhere.
                    + expected.len() as u64;
                assert!(poisoned.requests <= most, "{case}: {} > {most}", poisoned.requests);
            }
        }
    }
}

/// Guarantee: if all data is refused no item dies, the backend gets few requests, and all data is
/// delivered when it works again.
#[test]
fn what_refuses_everything_alike_is_held_and_resumes() {
    const ITEMS: u64 = 2_000;
    let mended = Duration::from_secs(300);
    let mut poisoned = Poisoned::new(ITEMS, 512);
    poisoned.run(mended, |_| true);
    assert!(poisoned.when_held.is_some() && poisoned.dead.is_empty(), "{:?}", poisoned.dead);
    assert!(poisoned.requests < 600, "{} requests", poisoned.requests);
    let took = poisoned.run(Duration::from_secs(60), |_| false);
    assert!(took < Duration::from_secs(6), "{took:?}");
    assert_eq!((poisoned.good, poisoned.dead.len()), (ITEMS, 0));
}

/// Scenario: single items come seldom, and all are refused. Guarantee: they die one by one, as long
/// as each may be at fault itself.
#[test]
fn a_refused_item_dies_where_nothing_else_can_tell() {
    let mut dispatcher = Dispatcher::new(policy());
    let mut now = Instant::now();
    for id in 0..200 {
        dispatcher.offer(unit(id, 1, 10), now);
        let Some(batch) = dispatcher.next(now) else { break };
        let outcome = Outcome::Rejected { reason: "bad".into() };
        assert!(matches!(dispatcher.note_outcome(batch, outcome, now, 0.5), Verdict::Kept));
        let dead = dispatcher.take_at_fault(true).len();
        assert_eq!(dead == 0, *dispatcher.state() != State::Open, "item {id}");
        now += Duration::from_millis(50);
    }
    assert!(matches!(dispatcher.state(), State::Held(_)), "64 in a row");
}

/// Guarantee: no run of bad items stops the good ones, whatever its length, its place, the share of
/// bad items and the size of batches: all go out at the pace of the backend's answers, as long as
/// one in 32 of those that wait is good.
#[test]
fn no_run_of_poison_keeps_good_items_waiting() {
    for batch in [1, 10, 100, 512] {
        for run in [10, 100, 1_000, 10_000] {
            for share in [0.1, 0.5, 0.9] {
                let items = (run as f64 / share) as u64;
                let good = items - run;
                for (order, begin) in [("first", 0), ("middle", good / 2), ("last", good)] {
                    let case = format!("{batch} a batch, {run} bad in a row, {share}, {order}");
                    let is_bad = |id: u64| (begin..begin + run).contains(&id);
                    let mut poisoned = Poisoned::new(items, batch);
                    poisoned.run(Duration::from_secs(300), is_bad);
                    let requests = poisoned.requests;
                    match poisoned.when_held {
                        Some((taken, dead)) => {
                            let (good_left, bad_left) = (good - taken, run - dead as u64);
                            assert!(32 * good_left <= bad_left, "{case}: {good_left} good left");
                        }
                        None => {
                            assert_eq!(poisoned.good, good, "{case}");
                            let slowest = Duration::from_millis(2 * requests + 100);
                            assert!(poisoned.good_at <= slowest, "{case}: {:?}", poisoned.good_at);
                        }
                    }
                    assert!(poisoned.dead.iter().all(|&id| is_bad(id)), "{case}");
                    let is_held = *poisoned.dispatcher.state() != State::Open;
                    assert!(is_held || poisoned.dead.len() as u64 == run, "{case}");
                    let levels = (batch as f64).log2().ceil() as u64;
                    // One request more to look elsewhere, and one for what that cuts short.
                    let most = items.div_ceil(batch as u64) + run * (2 * levels + 4);
                    assert!(requests <= most, "{case}: {requests} > {most}");
                }
            }
        }
    }
}

/// Scenario: a backlog of a run of poison with good data before and behind it. Guarantee: all good
/// data goes out before the delivery can be held, also a few items in a batch of poison.
#[test]
fn good_data_around_a_run_of_poison_is_found_by_its_neighbours() {
    for batch in [1, 10, 100, 512, 2_048, 8_192] {
        for (before, run, behind) in [(500, 1_000, 500), (0, 1_000, 3), (497, 3_000, 13)] {
            let case = format!("{batch} a batch, {before} good, {run} bad, {behind} good");
            let is_bad = |id: u64| (before..before + run).contains(&id);
            let mut poisoned = Poisoned::new(before + run + behind, batch);
            poisoned.run(Duration::from_secs(10), is_bad);
            assert_eq!(poisoned.good, before + behind, "{case}");
            if let Some((taken, _)) = poisoned.when_held {
                assert_eq!(taken, before + behind, "{case}");
            }
        }
    }
}

/// Scenario: good data is delivered, poison comes and stays the only data for minutes, then good
/// data comes. Guarantee: it is found within seconds and goes out at the backend's pace.
#[test]
fn good_data_that_comes_to_a_held_delivery_is_found_soon() {
    for (batch, held_s) in [1, 512].into_iter().flat_map(|it| [(it, 3), (it, 300), (it, 3_600)]) {
        let is_bad = |id: u64| (500..1_500).contains(&id);
        let mut poisoned = Poisoned::new(500, batch);
        poisoned.run(Duration::from_secs(1), is_bad);
        poisoned.unread = 500..1_500;
        poisoned.run(Duration::from_secs(held_s), is_bad);
        let case = format!("{batch} a batch, held for {held_s} s");
        assert_eq!((poisoned.good, poisoned.dead.len()), (500, 0), "{case}");
        assert!(matches!(poisoned.dispatcher.state(), State::Held(_)), "{case}");
        let most = 500 + 64 * 12 + 10 + held_s / 7;
        assert!(poisoned.requests < most, "{case}: {} requests", poisoned.requests);
        let came = poisoned.elapsed;
        let requests = poisoned.requests;
        poisoned.unread = 1_500..2_000;
        poisoned.run(Duration::from_secs(60), is_bad);
        assert_eq!(poisoned.good, 1_000, "{case}");
        let slowest = Duration::from_millis(1_500 + 2 * (poisoned.requests - requests));
        assert!(poisoned.good_at - came <= slowest, "{case}: {:?}", poisoned.good_at - came);
        assert!(poisoned.dead.len() >= 64, "{case}: refused items are at fault now");
        assert!(poisoned.dead.iter().all(|&id| is_bad(id)), "{case}");
    }
}

/// Scenario: requests of many items, of which fifty in a row are bad throughout. Guarantee: the
/// search in one of them does not keep the delivery from the good ones.
#[test]
fn a_run_of_large_bad_requests_keeps_no_good_one_waiting() {
    const ITEMS: u32 = 200;
    for begin in [0, 25, 50] {
        let is_bad = |id: u64| (begin..begin + 50).contains(&id);
        let mut poisoned = Poisoned { items: ITEMS, ..Poisoned::new(100, 200) };
        poisoned.run(Duration::from_secs(60), is_bad);
        assert_eq!(poisoned.good, 50 * u64::from(ITEMS), "{begin}: {}", poisoned.requests);
        assert!(poisoned.good_at < Duration::from_secs(40), "{begin}: {:?}", poisoned.good_at);
        assert!(poisoned.dead.iter().all(|&id| is_bad(id)));
    }
    // All are bad until new ones come.
    let mut poisoned = Poisoned { items: ITEMS, ..Poisoned::new(50, 200) };
    poisoned.run(Duration::from_secs(600), |id| id < 50);
    assert!(matches!(poisoned.dispatcher.state(), State::Held(_)) && poisoned.dead.is_empty());
    let came = poisoned.elapsed;
    poisoned.unread = 50..100;
    poisoned.run(Duration::from_secs(60), |id| id < 50);
    assert_eq!(poisoned.good, 50 * u64::from(ITEMS));
    assert!(poisoned.good_at - came < Duration::from_secs(40), "{:?}", poisoned.good_at - came);
}

/// Numbers of the good and of the dead items among this many in order, for a backend that refuses
/// items that are bad or older than what it has.
fn in_order(total: u64, batch: usize, is_bad: impl Fn(u64) -> bool) -> (usize, Vec<u64>) {
    let batch = BatchPolicy { full_items: batch, max_items: batch, ..policy().batch };
    let mut dispatcher = Dispatcher::new(DispatchPolicy { batch, in_order: true, ..policy() });
    let (mut now, mut unread, mut newest) = (Instant::now(), 0..total, None);
    let (mut good, mut dead) = (0, Vec::new());
    for _ in 0..10_000_000 {
        if unread.is_empty() && dispatcher.is_idle() {
            return (good, dead);
        }
        while dispatcher.wants_more()
            && let Some(id) = unread.next()
        {
            dispatcher.offer(unit(id, 1, 10), now);
        }
        now += Duration::from_millis(2);
        if let Some(batch) = dispatcher.next(now) {
            let ids: Vec<u64> = batch.units.iter().map(|unit| unit.lease).collect();
            let outcome = match ids.iter().any(|id| is_bad(*id) || newest > Some(*id)) {
                true => Outcome::Rejected { reason: "bad, or out of order".into() },
                false => Outcome::Delivered,
            };
            if outcome.is_taken() {
                newest = newest.max(ids.last().copied());
            }
            match dispatcher.note_outcome(batch, outcome, now, 0.5) {
                Verdict::Delivered { units, .. } => good += units.len(),
                Verdict::Kept => {}
                other => panic!("{other:?}"),
            }
        }
        let at_fault = dispatcher.take_at_fault(unread.is_empty());
        dead.extend(at_fault.iter().flat_map(|it| it.units.iter().map(|unit| unit.lease)));
    }
    panic!("{good} good and {} dead items, {:?}", dead.len(), dispatcher.state());
}

/// Guarantee: where order matters, a bad item costs no good one, also if many follow each other.
#[test]
fn bad_items_cost_no_good_ones_where_order_matters() {
    for (total, batch) in [(100, 10), (100, 1), (1000, 100)] {
        assert_eq!(in_order(total, batch, |id| id == 5), (total as usize - 1, vec![5]));
    }
    let (good, mut dead) = in_order(1000, 100, |id| (300..500).contains(&id));
    dead.sort_unstable();
    assert_eq!((good, dead), (800, (300..500).collect()));
}

/// Scenario: a proxy finds all requests too large for a while. Guarantee: no item is given up for
/// that, and later requests are as large as before.
#[test]
fn a_time_of_too_large_requests_leaves_nothing_behind() {
    for refusals in [1, 8, 200] {
        let mut dispatcher = Dispatcher::new(policy());
        let (mut now, mut unread, mut requests) = (Instant::now(), 0..4_000, 0);
        let mut items = Vec::new();
        while !(unread.is_empty() && dispatcher.is_idle()) {
            while dispatcher.wants_more()
                && let Some(id) = unread.next()
            {
                // As the engine does: a frame of 500 items of 100 bytes is cut at the limits.
                let SplitLimits { max_bytes, max_items } = dispatcher.unit_limits();
                let part_items = (max_bytes / 100).clamp(1, max_items.min(500)) as u32;
                for first in (0..500).step_by(part_items as usize) {
                    let items = part_items.min(500 - first);
                    dispatcher.offer(unit(id, items, items as usize * 100), now);
                }
            }
            now += Duration::from_millis(1);
            let Some(batch) = dispatcher.next(now) else { continue };
            requests += 1;
            let outcome = match requests <= refusals {
                true => Outcome::TooLarge { reason: "413".into() },
                false => {
                    items.push(batch.items);
                    Outcome::Delivered
                }
            };
            match dispatcher.note_outcome(batch, outcome, now, 0.5) {
                Verdict::Delivered { .. } | Verdict::Kept => {}
                Verdict::Divide { unit: cut, .. } => {
                    let halves = [cut.items / 2, cut.items - cut.items / 2];
                    let halves = halves.map(|items| unit(cut.lease, items, items as usize * 100));
                    dispatcher.divided(halves.into());
                }
                dead => panic!("{refusals} refusals: {dead:?}"),
            }
            assert!(dispatcher.take_at_fault(false).is_empty(), "{refusals} refusals");
        }
        assert_eq!(items.iter().sum::<u64>(), 4_000 * 500);
        let last = &items[items.len() - 100..];
        assert!(last.iter().filter(|it| **it >= 500).count() > 80, "{refusals} refusals: {last:?}");
    }
}

/// Scenario: good data arrives, then poison, then good data, in times that vary, and the backend is
/// off for some of that time. Guarantee: all good data goes out within seconds.
#[test]
fn good_data_around_poison_is_found_whatever_the_times() {
    for seed in 0..1_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let is_bad = |id: u64| (500..1_500).contains(&id);
        let batch = [1, 10, 512, 8_192][random.usize(..4)];
        let mut poisoned = Poisoned::new(2_000, batch);
        poisoned.answer_us =
            [200..=2_000, 1_000..=20_000, 2_000..=2_000][random.usize(..3)].clone();
        poisoned.arrival = Duration::from_micros(random.u64(1..2_000));
        poisoned.random = random.fork();
        let arrives_within = poisoned.arrival * 2_000;
        poisoned.off_until =
            arrives_within.mul_f64(random.f64() * 1.5).saturating_sub(arrives_within / 3);
        let limit = arrives_within.max(poisoned.off_until) + Duration::from_secs(15);
        poisoned.run(limit, is_bad);
        let case = format!("seed {seed}, {batch} a batch, off until {:?}", poisoned.off_until);
        assert_eq!(poisoned.good, 1_000, "{case}");
        assert!(poisoned.dead.iter().all(|&id| is_bad(id)), "{case}");
    }
}
