//! Waiting, on behalf of `flow::overload`: of requests to be admitted, unread, and of answers.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sluice_flow::Refusal;
use sluice_flow::overload::admission::{Obstacle, Patience};
use sluice_flow::source::{Connection, Permit};

use super::ReceiverRoute;

/// So often it is asked whether the CPU still is the bottleneck, and a backend still works.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl ReceiverRoute {
    /// Asks for memory for a body of `bytes`; waits a bounded time for it, if its connection may.
    pub(super) async fn admit_or_wait(
        &self,
        bytes: usize,
        connection: &dyn Connection,
    ) -> Result<Permit, Refusal> {
        let (receiving, resources) = (&self.door.receiving, &self.door.resources);
        let patience = Patience::from(Instant::now());
        let (mut waiting, mut place) = (None, None);
        loop {
            let now = Instant::now();
            let (refusal, is_paced) = match self.try_admit(bytes, patience.may_be_paced(now), now) {
                Ok(Some(permit)) => {
                    if waiting.is_some() {
                        receiving.note_freed(self.signal);
                    }
                    return Ok(permit);
                }
                Ok(None) => (Refusal::overloaded("deliveries are behind"), true),
                Err(refusal) => (refusal, false),
            };
            if !matches!(refusal, Refusal::Retry { .. }) {
                return Err(refusal);
            }
            if patience.is_over(now) {
                self.note_refused(bytes, now);
                return Err(refusal);
            }
            if !is_paced {
                receiving.note_wanted();
            }
            if waiting.is_none() {
                waiting = receiving.try_wait(connection.held_bytes(bytes), true);
                match waiting {
                    None if is_paced => return self.try_admit(bytes, false, now)?.ok_or(refusal),
                    None => return Err(refusal),
                    Some(_) => {}
                }
            }
            // Other streams of the connection may hold the memory without making progress. Not
            // where the CPU is the bottleneck: then some request gets on, and to refuse what has
            // come already would only bring it again.
            if place.is_none() && !resources.is_cpu_bound() {
                place = connection.try_wait(bytes);
                if place.is_none() {
                    return Err(refusal);
                }
            }
            let until = match (is_paced, &place) {
                (true, _) => patience.paced_until(),
                (false, None) => patience.ends().min(now + LOOK_AGAIN),
                (false, Some(_)) => patience.ends(),
            };
            let _ = tokio::time::timeout_at(until.into(), receiving.freed(self.signal).notified())
                .await;
        }
    }

    /// `None`: it would enter if senders were not paced.
    fn try_admit(
        &self,
        bytes: usize,
        may_be_paced: bool,
        now: Instant,
    ) -> Result<Option<Permit>, Refusal> {
        self.door.check_open()?;
        self.check_fits(bytes)?;
        let (arriving, of_route) = self.arriving_bytes(bytes);
        let spent = match self.route.admit(arriving, of_route, may_be_paced, now) {
            Ok(()) => None,
            Err(Obstacle::Paced) => return Ok(None),
            Err(Obstacle::Delivery(full)) => Some(format!("the budget of delivery {}", full.id)),
            Err(Obstacle::Pool) => Some("the memory for backlogs".to_owned()),
        };
        if let Some(spent) = spent {
            return Err(Refusal::overloaded(format!("{spent} is spent")));
        }
        self.route.check_disk(arriving, now)?;
        let admitted = Permit::take(self.memory.clone(), bytes);
        admitted.inspect_err(|_| self.door.resources.note_memory_short()).map(Some)
    }

    /// What other requests were admitted for and has not arrived yet counts too: in the pool all of
    /// it, at a delivery's own limit what is for the same deliveries.
    fn arriving_bytes(&self, bytes: usize) -> (u64, u64) {
        let all = [self.door.receiving.used_bytes(), self.memory.used_bytes()];
        all.map(|used| (used + bytes) as u64).into()
    }

    /// A request waited as long as it may: if the backend works, to slow its sender down.
    fn note_refused(&self, bytes: usize, now: Instant) {
        let (arriving, of_route) = self.arriving_bytes(bytes);
        if let Err(Obstacle::Delivery(full)) = self.route.admit(arriving, of_route, false, now) {
            self.route.note_slowed(full, now, 0, now);
        }
    }

    /// Refuses for good what no waiting would make room for.
    fn check_fits(&self, bytes: usize) -> Result<(), Refusal> {
        let receiving = (self.door.receiving.limit_bytes(), "the memory for receiving");
        // A frame beyond what the disk may have to take never finds room.
        let disk = self.route.disk.as_ref();
        let unwritten = disk.map_or(usize::MAX, |disk| disk.unwritten_limit_bytes as usize);
        let unwritten = (unwritten, "the memory for what is not on disk yet");
        let (limit, what) = receiving.min(unwritten);
        if bytes <= limit {
            return Ok(());
        }
        Err(Refusal::TooLarge {
            reason: format!("a request of {bytes} bytes exceeds {what} ({limit} bytes)"),
        })
    }

    /// Delays an answer while a delivery comes close to its limit: senders that wait for
    /// their answers then send no faster than its backend takes. What they sent is in the log
    /// already, and no other delivery waits.
    pub(super) async fn delay_answer(&self) {
        let began = Instant::now();
        let until = Patience::from(began).paced_until();
        let route = &self.route;
        let mut at_first = None;
        loop {
            let now = Instant::now();
            let Some(delivery) = route.delays(self.door.receiving.limit_bytes() as u64, now) else {
                if at_first.is_some() {
                    route.deliveries.iter().for_each(|delivery| delivery.note_room());
                }
                return;
            };
            let lag_bytes = delivery.lag_bytes();
            let (cursor, bytes) = *at_first.get_or_insert_with(|| {
                delivery.stats.delayed_answers.fetch_add(1, Ordering::Relaxed);
                (delivery.cursor, lag_bytes)
            });
            if self.door.is_closed() {
                return;
            }
            if now >= until {
                let lag_bytes = if cursor == delivery.cursor { bytes } else { u64::MAX };
                return route.note_slowed(delivery, began, lag_bytes, now);
            }
            delivery.wait_for_room(until.min(now + LOOK_AGAIN)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use std::sync::Arc;

    use futures_util::FutureExt as _;
    use sluice_flow::source::{Ingress as _, IngressRoute};
    use sluice_log::Log;
    use sluice_otlp::Signal;

    use super::super::tests::{empty_route, ingress, ingress_with};
    use super::*;
    use crate::delivery::Bounds;
    use crate::delivery::tests::{append, delivery};
    use crate::entry::Entry;
    use crate::intake::Route;
    use crate::receiving::ReceivingBudget;

    /// A connection with others that are being read, or without.
    struct Peer {
        lets_wait: bool,
    }

    impl Connection for Peer {
        fn try_wait(&self, _: usize) -> Option<Box<dyn Send>> {
            self.lets_wait.then(|| Box::new(()) as Box<dyn Send>)
        }

        fn held_bytes(&self, bytes: usize) -> usize {
            bytes
        }
    }

    fn route(receiving_bytes: usize) -> Arc<dyn IngressRoute> {
        let ingress = ingress(receiving_bytes);
        ingress.set_routes([(Signal::Traces, empty_route())]);
        ingress.route(Signal::Traces).expect("there is one")
    }

    #[tokio::test]
    async fn a_request_waits_for_memory_if_its_connection_lets_it() {
        let route = route(400_000);
        let (waits, busy) = (Peer { lets_wait: true }, Peer { lets_wait: false });
        let admit = |connection| route.admit(300_000, connection);
        let Some(Ok(first)) = admit(&busy).now_or_never() else { panic!("there is memory") };
        let mut second = pin!(admit(&waits));
        assert!(second.as_mut().now_or_never().is_none());
        let Some(Err(Refusal::Retry { .. })) = admit(&busy).now_or_never() else {
            panic!("it is refused at once")
        };
        drop(first);
        assert!(second.now_or_never().expect("it was told").is_ok());
    }

    /// Scenario: one receiver reads a large upload. Guarantee: a small delivery of another receiver
    /// takes requests up to its own limit, and no further.
    #[tokio::test]
    async fn what_another_receiver_reads_does_not_count_against_a_deliverys_own_limit() {
        let receiving = ReceivingBudget::new(1_000_000);
        let log = Arc::<Log<Entry>>::default();
        let delivery = delivery("small", &log);
        let bounds = Bounds { limit_bytes: 100_000, ..delivery.bounds() };
        delivery.set_bounds(bounds, u64::MAX);
        append(&log, &[delivery.cursor], None);
        let small = Route { deliveries: Arc::new([delivery]), ..empty_route() };
        let [small, other] = [small, empty_route()].map(|route| {
            let ingress = ingress_with(receiving.clone());
            ingress.set_routes([(Signal::Traces, route)]);
            ingress.route(Signal::Traces).expect("there is one")
        });
        let peer = Peer { lets_wait: false };
        let admit = |route: &Arc<dyn IngressRoute>, bytes| {
            route.clone().admit(bytes, &peer).now_or_never().expect("answers at once")
        };
        let _upload = admit(&other, 500_000).expect("there is memory");
        let first = admit(&small, 60_000).expect("the delivery has room");
        assert!(admit(&small, 60_000).is_err(), "both together exceed its limit");
        drop(first);
        assert!(admit(&small, 60_000).is_ok());
    }

    #[tokio::test]
    async fn a_request_that_never_fits_does_not_wait() {
        let route = route(400_000);
        let refused = route.admit(400_001, &Peer { lets_wait: true }).now_or_never();
        assert!(matches!(refused, Some(Err(Refusal::TooLarge { .. }))));
    }
}
