//! The times that a dispatcher names for its next call, whatever has happened before.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::tests::{policy, unit};
use super::*;
use crate::export::Outcome;

/// An event of a delivery. Numbers choose among the requests in flight, or among few values.
#[derive(Clone, Debug)]
enum Event {
    Offer {
        items: u32,
        group: u64,
        alone: bool,
    },
    Answer {
        request: usize,
        answer: Answer,
    },
    /// The time passes until the dispatcher wants to be called.
    Wake,
    Pass {
        ms: u64,
    },
    Shed,
    Drain,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Delivered,
    RetryAfter,
    Late,
    Rejected,
    TooLarge,
    Misconfigured,
    Unpackable,
    HandedBack,
}

fn answers() -> impl Strategy<Value = Answer> {
    prop_oneof![
        2 => Just(Answer::Delivered),
        4 => Just(Answer::RetryAfter),
        1 => Just(Answer::Late),
        6 => Just(Answer::Rejected),
        1 => Just(Answer::TooLarge),
        1 => Just(Answer::Misconfigured),
        1 => Just(Answer::Unpackable),
        1 => Just(Answer::HandedBack),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let offer = (1_u32..4, 0_u64..2, prop::bool::weighted(0.1))
        .prop_map(|(items, group, alone)| Event::Offer { items, group, alone });
    let answer =
        (0_usize..8, answers()).prop_map(|(request, answer)| Event::Answer { request, answer });
    let event = prop_oneof![
        6 => offer,
        8 => answer,
        4 => Just(Event::Wake),
        2 => (0_u64..300).prop_map(|ms| Event::Pass { ms }),
        1 => Just(Event::Shed),
    ];
    // Runs of one answer are what outages and faults of all data come from.
    let run = (event, prop_oneof![8 => Just(1_usize), 1 => Just(80)])
        .prop_map(|(event, times)| vec![event; times]);
    let runs = prop::collection::vec(run, 1..60).prop_map(|runs| runs.concat());
    (runs, prop::option::weighted(0.1, 0_usize..60)).prop_map(|(mut events, drain)| {
        events.extend(drain.map(|_| Event::Drain));
        if let Some(at) = drain {
            let last = events.len() - 1;
            events.swap(at.min(last), last);
        }
        events
    })
}

fn policies() -> impl Strategy<Value = DispatchPolicy> {
    let wait = Duration::from_millis(200);
    let backoff = Backoff { initial: wait, max: 5 * wait, multiplier: 1.5, jitter: 0.5 };
    let explicit = RetryPolicy::Explicit { backoff, max_elapsed: Some(50 * wait) };
    let trigger = prop_oneof![Just(Trigger::Linger(wait)), Just(Trigger::Timeout(wait))];
    let retry = prop_oneof![Just(RetryPolicy::default()), Just(explicit)];
    let full_items = prop_oneof![Just(1), Just(4)];
    (trigger, retry, full_items, any::<[bool; 3]>()).prop_map(
        |(trigger, retry, full_items, [return_rejections, in_order, may_be_cut])| {
            let batch = BatchPolicy { trigger, full_items, max_items: 8, ..policy().batch };
            let least_items = may_be_cut.then_some(2);
            DispatchPolicy { batch, retry, return_rejections, in_order, least_items, ..policy() }
        },
    )
}

struct Delivery {
    dispatcher: Dispatcher<u64>,
    now: Instant,
    in_flight: Vec<Batch<u64>>,
    units: u64,
}

impl Delivery {
    fn happen(&mut self, event: &Event) {
        let now = self.now;
        match *event {
            Event::Offer { items, group, alone } => {
                self.units += 1;
                let unit = unit(self.units, items, 100);
                self.dispatcher.offer(Unit { group, alone, ..unit }, now);
            }
            Event::Answer { request, answer } => {
                if !self.in_flight.is_empty() {
                    let batch = self.in_flight.remove(request % self.in_flight.len());
                    self.answer(batch, answer);
                }
            }
            Event::Wake => self.now = self.dispatcher.next_wake().unwrap_or(now),
            Event::Pass { ms } => self.now += Duration::from_millis(ms),
            Event::Shed => while self.dispatcher.shed_oldest(|_| true).is_some() {},
            Event::Drain => self.dispatcher.drain(),
        }
    }

    fn answer(&mut self, mut batch: Batch<u64>, answer: Answer) {
        let (now, reason) = (self.now, "no".to_owned());
        let outcome = match answer {
            Answer::Delivered => Outcome::Delivered,
            Answer::RetryAfter => Outcome::RetryAfter { delay: None, reason },
            Answer::Late => {
                self.dispatcher.note_late(&mut batch, now);
                Outcome::RetryAfter { delay: None, reason }
            }
            Answer::Rejected => Outcome::Rejected { reason },
            Answer::TooLarge => Outcome::TooLarge { reason },
            Answer::Misconfigured => Outcome::Misconfigured { reason },
            Answer::Unpackable => {
                let verdict = self.dispatcher.note_unpackable(batch, reason, now);
                return self.apply(verdict);
            }
            Answer::HandedBack => return self.dispatcher.hand_back(now),
        };
        let verdict = self.dispatcher.note_outcome(batch, outcome, now, 0.5);
        self.apply(verdict);
    }

    fn apply(&mut self, verdict: Verdict<u64>) {
        if let Verdict::Divide { unit: cut, .. } = verdict {
            let halves = [cut.items / 2, cut.items - cut.items / 2];
            let halves = halves.map(|items| Unit { items, group: cut.group, ..unit(0, items, 50) });
            self.dispatcher.divided(halves.into());
        }
        self.dispatcher.take_at_fault(false);
    }

    /// Sends what there is, and checks the time at which there is more. Returns whether there was
    /// anything.
    fn send(&mut self) -> Result<bool, TestCaseError> {
        let before = self.in_flight.len();
        while let Some(batch) = self.dispatcher.next(self.now) {
            self.in_flight.push(batch);
        }
        let wake = self.dispatcher.next_wake();
        prop_assert!(wake.is_none_or(|wake| wake > self.now), "the time has passed");
        let long_after = self.now + Duration::from_secs(10 * 24 * 60 * 60);
        let just_before = wake.map_or(long_after, |wake| wake - Duration::from_nanos(1));
        prop_assert!(self.dispatcher.next(just_before).is_none(), "{wake:?} is too late");
        prop_assert_eq!(self.dispatcher.next_wake(), wake);
        Ok(self.in_flight.len() > before)
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1_000, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Guarantee: at the time that a dispatcher names it has a request, and before that it has
    /// none. Its caller neither sleeps too long nor is woken in vain.
    #[test]
    fn a_dispatcher_is_woken_when_it_has_a_request(policy in policies(), events in events()) {
        let (dispatcher, now) = (Dispatcher::new(policy), Instant::now());
        let mut delivery = Delivery { dispatcher, now, in_flight: Vec::new(), units: 0 };
        for event in events {
            let is_due = matches!(event, Event::Wake) && delivery.dispatcher.next_wake().is_some();
            delivery.happen(&event);
            let has_sent = delivery.send()?;
            prop_assert!(has_sent || !is_due, "woken in vain");
        }
    }
}
