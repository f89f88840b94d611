//! One sick delivery changes nothing for another: the same load with and without it, over time.

use std::time::Duration;

use proptest::prelude::*;
use sluice_flow::overload::Policy;

use super::simulation::*;

/// The longest wait of rule 2, and the time between two looks. Before a backend that works is
/// isolated, senders are slowed down for it once a minute.
const WAIT: Duration = Duration::from_millis(750 + 150);
/// The backend of a healthy delivery takes all that the senders offer.
const CAPACITY: Backend = Backend::Answers(1);

/// A time in seconds, and how the backend behaves in it.
type Phase = (u64, Backend);

#[derive(Clone, Debug)]
struct Case {
    healthy: Vec<Policy>,
    sick: Policy,
    /// Frames of the sick delivery's own limit.
    own_limit: Option<u64>,
    phases: Vec<Phase>,
    /// Ticks from one request to the next, of each sender.
    every: Vec<u64>,
}

/// `backpressure` is left out: with it the senders of a sick delivery wait, as it says.
fn policy_of_the_sick() -> impl Strategy<Value = Policy> {
    prop_oneof![2 => Just(Policy::Isolate), 1 => Just(Policy::DropOldest)]
}

fn policy_of_the_healthy() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::Isolate), Just(Policy::Backpressure), Just(Policy::DropOldest)]
}

fn any_phase() -> impl Strategy<Value = Phase> {
    let backend = prop_oneof![
        2 => Just(Backend::Dead),
        2 => Just(Backend::Silent),
        2 => (2u64..300).prop_map(Backend::Answers),
        2 => (0u8..101).prop_map(Backend::Refuses),
        1 => Just(CAPACITY),
    ];
    (1u64..90, backend)
}

/// Senders have a rate of their own: those that wait for their answers are meant to go as slowly as
/// the slowest backend that works (rule 2). At most 100 requests a second fill the pool in 2 s.
fn any_case() -> impl Strategy<Value = Case> {
    let every = proptest::collection::vec(4u64..60, 1..5);
    let healthy = proptest::collection::vec(policy_of_the_healthy(), 1..4);
    let own_limit = proptest::option::of(40u64..300);
    let phases = proptest::collection::vec(any_phase(), 1..6);
    (healthy, policy_of_the_sick(), own_limit, phases, every).prop_map(
        |(healthy, sick, own_limit, phases, every)| Case {
            healthy,
            sick,
            own_limit,
            phases,
            every,
        },
    )
}

impl Case {
    /// Two receivers, of which the first feeds the sick delivery too, if there is one.
    fn run(&self, has_sick: bool) -> World {
        let mut fed: Vec<_> = self.healthy.iter().map(|&policy| (policy, CAPACITY)).collect();
        let other = fed.clone();
        let sick = fed.len();
        if has_sick {
            fed.push((self.sick, CAPACITY));
        }
        let senders =
            (self.every.iter()).flat_map(|&every| [sender(0, Some(every)), sender(1, Some(every))]);
        let mut world = World::new(&[&fed, &other], senders.collect());
        if let (true, Some(frames)) = (has_sick, self.own_limit) {
            world.limit(sick, frames);
        }
        for &(seconds, backend) in &self.phases {
            if has_sick {
                world.becomes(sick, backend);
            }
            world.run(Duration::from_secs(seconds));
        }
        world.end_load();
        world
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let (without, with) = (self.run(false), self.run(true));
        // An answer may end a wait for a delivery's own limit early: the next request waits anew.
        let waits = 1 + u32::from(self.own_limit.is_some());
        let [wait, bound] =
            [WAIT, waits * WAIT].map(|it| (it.as_millis() / TICK.as_millis()) as u64);
        prop_assert_eq!((without.refused(), with.refused()), (0, 0));
        for (index, (alone, beside)) in without.senders.iter().zip(&with.senders).enumerate() {
            prop_assert_eq!(alone.accepted, beside.accepted, "sender {}", index);
            prop_assert!(beside.longest <= wait, "sender {}: {}", index, beside.longest);
        }
        let (healthy, all) = (self.healthy.len(), without.deliveries.len());
        for index in 0..all {
            // The deliveries of the second receiver come after the sick one.
            let beside = index + usize::from(index >= healthy);
            prop_assert_eq!((without.dropped(index), with.dropped(beside)), (0, 0));
            let (alone, beside) =
                (&without.deliveries[index].taken, &with.deliveries[beside].taken);
            prop_assert_eq!(alone.len(), beside.len(), "delivery {}", index);
            // Frames are numbered as they come, and all are alike: the nth is the nth.
            for (&(_, at), &(offset, later)) in alone.iter().zip(beside) {
                prop_assert!(later <= at + bound, "{}: {} at {}, {}", index, offset, at, later);
            }
        }
        let of_route = with.senders.iter().filter(|sender| sender.route == 0);
        with.assert_accounted(healthy, of_route.map(|sender| sender.accepted).sum());
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Whatever happens to the backend of one delivery: the others deliver the same requests, none
    /// is dropped or refused, and none comes later than by its bound.
    #[test]
    fn one_sick_delivery_changes_nothing_for_another(case in any_case()) {
        case.check()?;
    }
}
