//! Scenarios of one delivery against a simulated backend, in simulated time.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use super::*;
use crate::export::Outcome;

pub(super) fn policy() -> DispatchPolicy {
    DispatchPolicy {
        batch: BatchPolicy {
            trigger: Trigger::Linger(Duration::from_millis(5)),
            full_items: 512,
            full_bytes: 1 << 20,
            max_items: 512,
            max_bytes: 4 << 20,
            max_groups: 100,
        },
        retry: RetryPolicy::default(),
        concurrency: ConcurrencyLimits::default(),
        return_rejections: false,
        in_order: false,
        least_items: None,
    }
}

pub(super) fn unit(id: u64, items: u32, bytes: usize) -> Unit<u64> {
    Unit { lease: id, items, bytes, alone: false, group: 0 }
}

fn retry_after(delay: Option<Duration>) -> Outcome {
    Outcome::RetryAfter { delay, reason: "503".into() }
}

/// Results of [`simulate`]. Delivered ids with the time of their delivery.
struct Run {
    delivered: Vec<(Duration, u64)>,
    dead: Vec<u64>,
    undelivered: usize,
    most_waiting: usize,
}

/// Offers `rate` units a second of 512 items each for `offered`; `answer` answers each request
/// after 2 ms. Ends when all are resolved or `limit` is over.
fn simulate(
    policy: DispatchPolicy,
    rate: u64,
    offered: Duration,
    limit: Duration,
    mut answer: impl FnMut(Duration, &Batch<u64>) -> Outcome,
) -> Run {
    let start = Instant::now();
    let mut random = fastrand::Rng::with_seed(7);
    let mut dispatcher = Dispatcher::new(policy);
    let total = rate * offered.as_millis() as u64 / 1000;
    let mut queue: VecDeque<u64> = VecDeque::new();
    let (mut arrived, mut resolved) = (0, 0);
    let mut in_flight: Vec<(Duration, Batch<u64>)> = Vec::new();
    let mut wakes: BinaryHeap<Reverse<Duration>> = BinaryHeap::new();
    let mut run = Run { delivered: Vec::new(), dead: Vec::new(), undelivered: 0, most_waiting: 0 };
    wakes.push(Reverse(Duration::ZERO));
    while let Some(Reverse(elapsed)) = wakes.pop() {
        if elapsed > limit || resolved == total {
            break;
        }
        let now = start + elapsed;
        while arrived < total && Duration::from_millis(arrived * 1000 / rate) <= elapsed {
            queue.push_back(arrived);
            arrived += 1;
        }
        if arrived < total {
            wakes.push(Reverse(Duration::from_millis(arrived * 1000 / rate)));
        }
        let (done, rest): (Vec<_>, Vec<_>) =
            in_flight.into_iter().partition(|(due, _)| *due <= elapsed);
        in_flight = rest;
        for (_, batch) in done {
            let outcome = answer(elapsed, &batch);
            match dispatcher.note_outcome(batch, outcome, now, random.f64()) {
                Verdict::Kept => {}
                Verdict::Delivered { units, .. } => {
                    resolved += units.len() as u64;
                    run.delivered.extend(units.into_iter().map(|unit| (elapsed, unit.lease)));
                }
                Verdict::Dead { units, .. } => {
                    resolved += units.len() as u64;
                    run.dead.extend(units.into_iter().map(|unit| unit.lease));
                }
                Verdict::Divide { .. } => panic!("these units are not divided here"),
            }
        }
        loop {
            if dispatcher.wants_more()
                && let Some(id) = queue.pop_front()
            {
                dispatcher.offer(unit(id, 512, 1000), now);
                continue;
            }
            let Some(batch) = dispatcher.next(now) else { break };
            in_flight.push((elapsed + Duration::from_millis(2), batch));
        }
        run.most_waiting = run.most_waiting.max(dispatcher.waiting_len());
        if !in_flight.is_empty() {
            wakes.push(Reverse(elapsed + Duration::from_millis(1)));
        }
        if let Some(wake) = dispatcher.next_wake() {
            wakes.push(Reverse((wake - start).max(elapsed + Duration::from_micros(100))));
        }
        wakes = wakes.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    }
    run.undelivered = (total - resolved) as usize;
    run
}

#[test]
fn seventy_percent_refused_at_random_are_delivered_within_seconds() {
    let mut random = fastrand::Rng::with_seed(1);
    let run = simulate(policy(), 40, Duration::from_secs(30), Duration::from_secs(45), |_, _| {
        if random.f64() < 0.7 { retry_after(None) } else { Outcome::Delivered }
    });
    let within = run.delivered.iter().filter(|(at, _)| *at <= Duration::from_secs(30)).count();
    assert!(within as f64 >= 0.95 * 1200.0, "{within} of 1200 within the 30 s");
    assert_eq!((run.undelivered, run.dead.len()), (0, 0));
    assert_eq!(run.delivered.iter().map(|(_, id)| id).collect::<BTreeSet<_>>().len(), 1200);
}

/// Guarantee: if 70 % are refused at random, no sender waits as long as SDKs do (10 s), and retries
/// are as few as possible. A full backend gets no more attempts.
#[test]
fn retries_come_soon_where_they_help_and_rarely_where_they_do_not() {
    let mut random = fastrand::Rng::with_seed(3);
    let lasts = Duration::from_secs(600);
    let mut attempts = 0;
    let run = simulate(policy(), 20, lasts, 2 * lasts, |_, _| {
        attempts += 1;
        if random.f64() < 0.7 { retry_after(None) } else { Outcome::Delivered }
    });
    let waited = |(at, id): &(Duration, u64)| *at - Duration::from_millis(id * 50);
    let mut waits: Vec<_> = run.delivered.iter().map(waited).collect();
    waits.sort_unstable();
    let (p99, longest) = (waits[waits.len() / 100 * 99], waits[waits.len() - 1]);
    assert_eq!(waits.len(), 12_000);
    assert!(
        p99 < Duration::from_secs(2) && longest < Duration::from_secs(6),
        "{p99:?}, {longest:?}"
    );
    let needed = waits.len() as f64 / 0.3;
    assert!((0.9..1.1).contains(&(f64::from(attempts) / needed)), "{attempts} attempts");

    // A quota of 2 requests a second, while 20 arrive.
    let (mut attempts, mut taken) = (0.0, 0.0);
    let minute = Duration::from_secs(60);
    let _ = simulate(policy(), 20, minute, minute, |at, _| {
        attempts += 1.0;
        if taken > 2.0 * at.as_secs_f64() {
            return retry_after(None);
        }
        taken += 1.0;
        Outcome::Delivered
    });
    assert!(taken >= 115.0 && attempts < 50.0 * taken, "{attempts} attempts for {taken}");
}

#[test]
fn explicit_retry_settings_hold_and_few_are_given_up() {
    let mut random = fastrand::Rng::with_seed(2);
    let backoff = Backoff {
        initial: Duration::from_secs(5),
        max: Duration::from_secs(30),
        multiplier: 1.5,
        jitter: 0.5,
    };
    let retry = RetryPolicy::Explicit { backoff, max_elapsed: Some(Duration::from_secs(300)) };
    let seconds = Duration::from_secs;
    let run =
        simulate(DispatchPolicy { retry, ..policy() }, 10, seconds(420), seconds(800), |_, _| {
            if random.f64() < 0.7 { retry_after(None) } else { Outcome::Delivered }
        });
    let window =
        run.delivered.iter().filter(|(at, _)| (seconds(240)..seconds(420)).contains(at)).count();
    assert!(window as f64 >= 0.95 * 1800.0, "{window} of 1800 in minutes 4 to 7");
    assert!(run.dead.len() as f64 <= 0.015 * 4200.0, "{} given up", run.dead.len());
    assert_eq!(run.delivered.len() + run.dead.len(), 4200);
}

#[test]
fn a_dead_backend_is_probed_by_one_request_and_everything_follows_when_it_returns() {
    let back = Duration::from_secs(20);
    let mut asked = 0;
    let run = simulate(policy(), 40, Duration::from_secs(30), Duration::from_secs(40), |at, _| {
        if at < back {
            asked += 1;
            retry_after(None)
        } else {
            Outcome::Delivered
        }
    });
    assert_eq!((run.delivered.len(), run.undelivered), (1200, 0));
    assert!(asked < 120, "{asked} requests to a dead backend");
    assert!(
        run.most_waiting < 64,
        "{} batches taken out of the log during an outage",
        run.most_waiting
    );
}

#[test]
fn the_delay_that_a_backend_asks_for_is_kept() {
    let now = Instant::now();
    let mut dispatcher = Dispatcher::new(policy());
    dispatcher.offer(unit(0, 512, 1000), now);
    let batch = dispatcher.next(now).unwrap();
    let asked = Duration::from_secs(7);
    assert!(matches!(
        dispatcher.note_outcome(batch, retry_after(Some(asked)), now, 0.5),
        Verdict::Kept
    ));
    assert_eq!(
        (dispatcher.in_flight(), dispatcher.next_wake()),
        (0, Some(now + asked)),
        "it holds no slot"
    );
    dispatcher.offer(unit(1, 512, 1000), now);
    assert_eq!(dispatcher.next(now).unwrap().units[0].lease, 1, "only the request itself waits");
    assert!(dispatcher.next(now + asked - Duration::from_millis(1)).is_none());
    assert_eq!(dispatcher.next(now + asked).unwrap().units[0].lease, 0);
}

/// Guarantee: a delay that would overflow the clock becomes a day for a request, without a panic.
/// Where all data would wait for it, it becomes five minutes.
#[test]
fn a_backend_that_asks_for_ages_is_left_alone_for_a_day_and_asked_again_in_an_outage() {
    let now = Instant::now();
    let (day, five_minutes) = (Duration::from_secs(24 * 60 * 60), Duration::from_secs(300));
    let mut in_order = Dispatcher::new(DispatchPolicy { in_order: true, ..policy() });
    in_order.offer(unit(0, 512, 1000), now);
    let batch = in_order.next(now).expect("a request");
    in_order.note_outcome(batch, retry_after(Some(Duration::MAX)), now, 0.5);
    assert_eq!(in_order.next_wake(), Some(now + five_minutes));
    let mut dispatcher = Dispatcher::new(policy());
    for id in 0..40 {
        dispatcher.offer(unit(id, 512, 1000), now);
        let batch = dispatcher.next(now).unwrap_or_else(|| panic!("no request {id}"));
        dispatcher.note_outcome(batch, retry_after(Some(Duration::MAX)), now, 0.5);
        if dispatcher.state() != &State::Open {
            assert_eq!(dispatcher.next_wake(), Some(now + five_minutes));
            return;
        }
        assert_eq!(dispatcher.next_wake(), Some(now + day));
    }
    panic!("no outage");
}

#[test]
fn one_bad_item_is_found_and_nothing_else_is_lost() {
    let now = Instant::now();
    let mut dispatcher = Dispatcher::new(policy());
    for id in 0..500 {
        dispatcher.offer(unit(id, 1, 10), now);
    }
    let (mut dead, mut delivered) = (Vec::new(), BTreeSet::new());
    let later = now + Duration::from_millis(5);
    while let Some(batch) = dispatcher.next(later) {
        let bad = batch.units.iter().any(|unit| unit.lease == 321);
        let outcome =
            if bad { Outcome::Rejected { reason: "bad".into() } } else { Outcome::Delivered };
        match dispatcher.note_outcome(batch, outcome, later, 0.5) {
            Verdict::Delivered { units, .. } => {
                delivered.extend(units.into_iter().map(|unit| unit.lease))
            }
            Verdict::Dead { units, .. } => dead.extend(units.into_iter().map(|unit| unit.lease)),
            Verdict::Kept => {}
            Verdict::Divide { .. } => unreachable!("units of one item"),
        }
        let at_fault = dispatcher.take_at_fault(true).into_iter();
        dead.extend(at_fault.flat_map(|refused| refused.units).map(|unit| unit.lease));
    }
    assert_eq!((dead, delivered.len()), (vec![321], 499));
    assert!(dispatcher.is_idle());
}

#[test]
fn misconfigured_holds_at_once_and_gives_up_nothing() {
    let now = Instant::now();
    let mut dispatcher = Dispatcher::new(policy());
    dispatcher.offer(unit(0, 512, 1000), now);
    let batch = dispatcher.next(now).unwrap();
    let outcome = Outcome::Misconfigured { reason: "401".into() };
    assert!(matches!(dispatcher.note_outcome(batch, outcome, now, 0.5), Verdict::Kept));
    assert_eq!(dispatcher.state(), &State::Held("401".into()));
    assert!(dispatcher.next(now).is_none());
    let probe_at = dispatcher.next_wake().unwrap();
    let probe = dispatcher.next(probe_at).unwrap();
    assert!(matches!(
        dispatcher.note_outcome(probe, Outcome::Delivered, probe_at, 0.5),
        Verdict::Delivered { .. }
    ));
    assert_eq!(dispatcher.state(), &State::Open);
}

#[test]
fn what_is_too_large_is_cut_and_later_batches_are_smaller() {
    let now = Instant::now();
    let mut dispatcher = Dispatcher::new(policy());
    dispatcher.offer(unit(0, 100, 3 << 20), now);
    let batch = dispatcher.next(now).unwrap();
    let too_large = Outcome::TooLarge { reason: "larger than max".into() };
    let Verdict::Divide { unit: cut, limits, .. } =
        dispatcher.note_outcome(batch, too_large.clone(), now, 0.5)
    else {
        panic!("one unit of several items is cut")
    };
    assert_eq!((cut.lease, limits.max_items), (0, 50));
    assert_eq!(dispatcher.unit_limits().max_bytes, (3 << 20) / 2);
    dispatcher.divided(vec![unit(1, 50, 10), unit(2, 50, 10)]);
    assert_eq!(dispatcher.next(now).unwrap().units[0].lease, 1);
    let second = dispatcher.next(now).unwrap();
    assert_eq!((second.units[0].lease, second.units.len()), (2, 1));
    dispatcher.offer(unit(3, 1, 512), now);
    dispatcher.drain();
    let single = dispatcher.next(now).unwrap();
    let verdict = dispatcher.note_outcome(single, too_large, now, 0.5);
    assert!(matches!(verdict, Verdict::Kept), "{verdict:?}");
    assert!(dispatcher.take_at_fault(true).is_empty(), "two answers are to come");
    dispatcher.note_outcome(second, Outcome::Delivered, now, 0.5);
    let [Refused { cause: Cause::TooLarge, .. }] = &dispatcher.take_at_fault(false)[..] else {
        panic!("one item cannot be cut, and the backend takes others")
    };
}

/// Scenario: batches are too large for their exporter to encode, while the backend is in outage or
/// takes data. Guarantee: they are cut or dead as any others, the limit of later batches stays, and
/// the outage too.
#[test]
fn what_cannot_be_encoded_says_nothing_of_the_backend() {
    let now = Instant::now();
    let mut dispatcher = Dispatcher::new(policy());
    let limits = dispatcher.unit_limits();
    let unpackable = |dispatcher: &mut Dispatcher<u64>, items| {
        dispatcher.offer(unit(0, items, 3 << 20), now);
        let batch = dispatcher.next(dispatcher.next_wake().unwrap_or(now)).expect("a batch");
        dispatcher.note_unpackable(batch, "too large".into(), now)
    };
    let cut = unpackable(&mut dispatcher, 100);
    assert!(matches!(cut, Verdict::Divide { cause: Cause::TooLarge, .. }), "{cut:?}");
    let dead = unpackable(&mut dispatcher, 1);
    assert!(matches!(dead, Verdict::Dead { cause: Cause::TooLarge, .. }), "{dead:?}");
    assert_eq!((dispatcher.unit_limits(), dispatcher.in_flight()), (limits, 0));
    while *dispatcher.state() == State::Open {
        dispatcher.offer(unit(0, 1, 10), now);
        let batch = dispatcher.next(now).expect("a batch");
        dispatcher.note_outcome(batch, retry_after(None), now, 0.5);
    }
    let probe = dispatcher.next(dispatcher.next_wake().expect("a probe")).expect("a batch");
    dispatcher.note_unpackable(probe, "too large".into(), now);
    assert!(matches!(dispatcher.state(), State::Outage(_)), "the backend was not asked");
    assert!(dispatcher.next(now).is_some(), "another probe follows at once");
}

#[test]
fn a_refusal_is_handed_back_frame_by_frame_where_senders_wait() {
    let now = Instant::now();
    let mut dispatcher = Dispatcher::new(DispatchPolicy { return_rejections: true, ..policy() });
    for id in 0..4 {
        dispatcher.offer(unit(id, 128, 10), now);
    }
    let mut dead = Vec::new();
    while let Some(batch) = dispatcher.next(now) {
        let bad = batch.units.iter().any(|unit| unit.lease == 2);
        let outcome =
            if bad { Outcome::Rejected { reason: "bad".into() } } else { Outcome::Delivered };
        if let Verdict::Dead { units, .. } = dispatcher.note_outcome(batch, outcome, now, 0.5) {
            dead.extend(units.into_iter().map(|unit| unit.lease));
        }
    }
    assert_eq!(dead, [2]);
}

/// Scenario: a backend says that it refused more items than it was sent. Guarantee: those that it
/// was sent count.
#[test]
fn no_more_is_refused_than_was_sent() {
    let (now, mut dispatcher) = (Instant::now(), Dispatcher::new(policy()));
    dispatcher.offer(unit(1, 3, 10), now);
    let batch = dispatcher.next(now).expect("a batch");
    let refused = Outcome::PartlyRejected { items: u64::MAX, reason: "no".to_owned() };
    let verdict = dispatcher.note_outcome(batch, refused, now, 0.5);
    assert!(matches!(verdict, Verdict::Delivered { rejected_items: 3, .. }), "{verdict:?}");
}

/// Scenario: after a crash another Sluice has had a part of a batch. Guarantee: its parts go out at
/// once, in order, down to what is known or new as a whole, and none is held to be at fault.
#[test]
fn a_batch_that_is_known_in_part_goes_out_in_parts() {
    let (mut dispatcher, now) = (Dispatcher::new(policy()), Instant::now());
    (0..5).for_each(|id| dispatcher.offer(unit(id, 1, 10), now));
    let (mut sent, mut taken) = (Vec::new(), Vec::new());
    while let Some(batch) = dispatcher.next(now) {
        let ids: Vec<_> = batch.units.iter().map(|unit| unit.lease).collect();
        let is_known: BTreeSet<bool> = ids.iter().map(|id| *id < 3).collect();
        sent.push(ids);
        let outcome = match is_known.len() {
            1 => Outcome::Delivered,
            _ => Outcome::Overlaps { reason: "known".into() },
        };
        if let Verdict::Delivered { units, .. } = dispatcher.note_outcome(batch, outcome, now, 0.5)
        {
            taken.extend(units.iter().map(|unit| unit.lease));
        }
    }
    assert_eq!(sent, [vec![0, 1, 2, 3, 4], vec![0, 1], vec![2, 3, 4], vec![2], vec![3, 4]]);
    assert_eq!(taken, [0, 1, 2, 3, 4]);
    assert!(dispatcher.is_idle() && *dispatcher.state() == State::Open);
    dispatcher.offer(unit(5, 9, 10), now);
    let batch = dispatcher.next(now).expect("one unit");
    let overlaps = Outcome::Overlaps { reason: "known".into() };
    let verdict = dispatcher.note_outcome(batch, overlaps, now, 0.5);
    assert!(matches!(verdict, Verdict::Divide { limits, .. } if limits.max_items == 5));
}

/// Scenario: a backend that must get data in order refuses half of the requests, then all for some
/// seconds. Guarantee: nothing overtakes what is to be sent again, and all arrives.
#[test]
fn requests_in_order_wait_for_the_one_before() {
    let mut random = fastrand::Rng::with_seed(5);
    let backoff = Backoff {
        initial: Duration::from_millis(100),
        max: Duration::from_secs(1),
        multiplier: 2.0,
        jitter: 0.5,
    };
    let explicit = RetryPolicy::Explicit { backoff, max_elapsed: None };
    for retry in [RetryPolicy::default(), explicit] {
        let policy = DispatchPolicy { in_order: true, retry, ..policy() };
        let mut together = Vec::new();
        let run =
            simulate(policy, 50, Duration::from_secs(20), Duration::from_secs(300), |at, batch| {
                together.push(at);
                let is_out = (5..15).contains(&at.as_secs());
                let is_refused = is_out || random.f64() < 0.5;
                let has_one_group = batch.units.is_sorted_by_key(|unit| unit.lease);
                assert!(has_one_group, "{retry:?}");
                if is_refused { retry_after(None) } else { Outcome::Delivered }
            });
        assert_eq!((run.delivered.len(), run.undelivered, run.dead.len()), (1000, 0, 0));
        assert!(run.delivered.is_sorted_by_key(|(_, id)| *id), "{retry:?}");
        assert!(together.windows(2).all(|pair| pair[0] < pair[1]), "one request at a time");
        assert_eq!(run.most_waiting, 1);
    }
}

/// Sends 200 units of 128 items to a backend that takes 5 seconds for a request, or does not answer
/// in time if it has more than 150 items. Returns what was delivered, in order.
fn sent_to_a_slow_backend(policy: DispatchPolicy) -> Vec<u64> {
    let mut dispatcher = Dispatcher::new(policy);
    let (mut now, mut unread, mut taken) = (Instant::now(), 0..200, Vec::new());
    for _ in 0..500 {
        while dispatcher.wants_more()
            && let Some(id) = unread.next()
        {
            dispatcher.offer(unit(id, 128, 1000), now);
        }
        let in_flight: Vec<_> = std::iter::from_fn(|| dispatcher.next(now)).collect();
        now += Duration::from_secs(5);
        for mut batch in in_flight {
            let mut outcome = Outcome::Delivered;
            if batch.items > 150 {
                dispatcher.note_late(&mut batch, now);
                outcome = retry_after(None);
            }
            match dispatcher.note_outcome(batch, outcome, now, 0.5) {
                Verdict::Kept => {}
                Verdict::Delivered { units, .. } => {
                    taken.extend(units.into_iter().map(|unit| unit.lease));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    taken
}

/// Scenario: a backend needs longer than the timeout for a full batch. Guarantee: all is delivered
/// once, in parts, and in order where that matters; without a least size nothing is.
#[test]
fn a_backend_that_is_too_slow_for_full_batches_gets_smaller_ones() {
    for in_order in [false, true] {
        let policy = DispatchPolicy { in_order, ..policy() };
        assert!(sent_to_a_slow_backend(policy).is_empty());
        let mut taken = sent_to_a_slow_backend(DispatchPolicy { least_items: Some(100), ..policy });
        if !in_order {
            taken.sort_unstable();
        }
        assert_eq!(taken, (0..200).collect::<Vec<_>>());
    }
}

/// Scenario: a batch of one unit is late twice, and `max_elapsed_time` is set. Guarantee: the unit
/// is cut to the new size, its parts wait as it would, and their time began with its first attempt.
#[test]
fn parts_of_a_late_unit_wait_as_it_would() {
    let minute = Duration::from_secs(60);
    let backoff = Backoff { initial: minute, max: minute, multiplier: 1.0, jitter: 0.0 };
    let retry = RetryPolicy::Explicit { backoff, max_elapsed: Some(3 * minute) };
    let policy = DispatchPolicy { retry, least_items: Some(100), ..policy() };
    let (start, mut dispatcher) = (Instant::now(), Dispatcher::new(policy));
    dispatcher.offer(unit(0, 500, 1000), start);
    let mut batch = dispatcher.next(start).expect("a batch");
    assert_eq!(dispatcher.note_late(&mut batch, start), Late::Whole);
    let verdict = dispatcher.note_outcome(batch, retry_after(None), start, 0.5);
    assert!(matches!(verdict, Verdict::Kept), "{verdict:?}");
    let mut batch = dispatcher.next(start + minute).expect("a retry");
    let late = dispatcher.note_late(&mut batch, start + minute);
    assert_eq!(late, Late::Cut { first_size: Some(250) });
    let limits = [dispatcher.unit_limits(), dispatcher.step_limits()];
    assert_eq!(limits.map(|it| it.max_items), [250, 512]);
    let verdict = dispatcher.note_outcome(batch, retry_after(None), start + minute, 0.5);
    let Verdict::Divide { unit: cut, limits, .. } = verdict else { panic!("{verdict:?}") };
    assert_eq!((cut.lease, limits.max_items), (0, 250));
    dispatcher.divided(vec![unit(1, 250, 500), unit(2, 250, 500)]);
    assert_eq!((dispatcher.waiting_len(), dispatcher.next(start + minute).is_none()), (2, true));
    let parts = [0; 2].map(|_| dispatcher.next(start + 2 * minute).expect("a part"));
    assert_eq!(parts.each_ref().map(|part| part.units[0].lease), [1, 2]);
    for part in parts {
        let verdict = dispatcher.note_outcome(part, retry_after(None), start + 2 * minute, 0.5);
        assert!(matches!(verdict, Verdict::Kept), "{verdict:?}");
    }
    let part = dispatcher.next(start + 3 * minute).expect("a part");
    let verdict = dispatcher.note_outcome(part, retry_after(None), start + 3 * minute, 0.5);
    assert!(matches!(verdict, Verdict::Dead { cause: Cause::GivenUp, .. }), "{verdict:?}");
}
