//! Waiting, on behalf of `flow::overload`: requests that wait to be admitted, and answers that are
//! delayed.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use sluice_flow::Refusal;
use sluice_flow::overload::admission::{Arrival, Obstacle, Patience};
use sluice_flow::source::{ArrivedBody, Permit};
use sluice_log::format::{BODY_LIMIT_BYTES, METADATA_LIMIT_BYTES};

use super::ReceiverRoute;
use crate::receiving::ArrivedMemory;

/// A sender that waits for a delivery looks at its state again after this time.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
pub(super) const BEHIND: &str = "deliveries are behind";

/// A payload of this length and the longest metadata are a frame that the log can store.
const STORED_LIMIT_BYTES: usize = BODY_LIMIT_BYTES - METADATA_LIMIT_BYTES;

/// Why a request does not enter now.
pub(super) enum Denied {
    /// It would if senders were not paced.
    Paced,
    /// Others that wait would not either.
    ForAll(Refusal),
    /// Others that wait may enter: they go elsewhere, or are smaller.
    ForIt(Refusal),
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Refusal {
        match denied {
            Denied::Paced => Refusal::overloaded(BEHIND),
            Denied::ForAll(refusal) | Denied::ForIt(refusal) => refusal,
        }
    }
}

fn too_large(bytes: usize, limit: usize, what: &str) -> Refusal {
    let reason = format!("a request of {bytes} bytes exceeds {what} ({limit} bytes)");
    Refusal::TooLarge { reason }
}

impl ReceiverRoute {
    /// Asks for memory for a body of `bytes`. Waits a bounded time for it.
    pub(super) async fn admit_or_wait(
        &self,
        bytes: usize,
        arrived: &ArrivedBody,
    ) -> Result<Permit, Refusal> {
        let receiving = &self.door.receiving;
        let mut now = Instant::now();
        let patience = Patience::from(now);
        let (mut has_waited, mut was_woken, mut in_the_way) = (false, false, Vec::new());
        loop {
            let (has_arrived, may_be_paced) = (arrived.is_set(), patience.may_be_paced(now));
            let denied = match self.try_admit(bytes, Some(arrived), may_be_paced, now) {
                Ok(permit) => {
                    if has_waited {
                        receiving.note_freed(self.signal);
                    }
                    return Ok(permit);
                }
                Err(denied) => denied,
            };
            if std::mem::take(&mut was_woken) && matches!(denied, Denied::ForIt(_)) {
                receiving.pass_on(self.signal);
            }
            let is_paced = matches!(denied, Denied::Paced);
            let refusal = Refusal::from(denied);
            if !matches!(refusal, Refusal::Retry { .. }) {
                return Err(refusal);
            }
            if is_paced {
                // The CPU is short, and no delivery is to blame.
                in_the_way.clear();
            } else {
                let arrival = self.arrival(bytes, false);
                if self.route.note_in_the_way(&mut in_the_way, arrival, now) {
                    continue;
                }
            }
            if patience.is_over(now) {
                return Err(refusal);
            }
            has_waited = true;
            // At its end the request is no longer paced, and deliveries in its way are judged.
            let until = if may_be_paced { patience.paced_until() } else { patience.ends() };
            let freed =
                tokio::time::timeout_at(until.into(), receiving.freed(self.signal).notified());
            // The task that sets it polls this again.
            let arrives = poll_fn(|_| match arrived.is_set() && !has_arrived {
                true => Poll::Ready(()),
                false => Poll::Pending,
            });
            tokio::select! {
                woken = freed => was_woken = woken.is_ok(),
                () = arrives => {}
            }
            now = Instant::now();
        }
    }

    pub(super) fn try_admit(
        &self,
        bytes: usize,
        arrived: Option<&ArrivedBody>,
        may_be_paced: bool,
        now: Instant,
    ) -> Result<Permit, Denied> {
        self.door.check_open().map_err(Denied::ForAll)?;
        self.check_fits(bytes).map_err(Denied::ForIt)?;
        let receiving = &self.door.receiving;
        let arrival = self.arrival(bytes, may_be_paced);
        if let Err(denied) = self.judge_arrival(arrival, now) {
            if self.waits_for_cpu(bytes, now) {
                self.door.resources.scheduler.note_waits_for_cpu();
            }
            // No backlog is in its way, but what others have on their way.
            let is_paced = matches!(denied, Denied::Paced);
            if arrived.is_some() && !is_paced && self.route.has_room_for(bytes as u64, now) {
                receiving.note_wanted();
            }
            return Err(denied);
        }
        self.route.check_disk(arrival.pool_bytes(), now).map_err(Denied::ForAll)?;
        let refusal = match Permit::take(self.memory.clone(), bytes) {
            Ok(permit) => return Ok(permit),
            Err(refusal) => refusal,
        };
        self.door.resources.scheduler.note_memory_short();
        let Some(arrived) = arrived else { return Err(Denied::ForIt(refusal)) };
        let Some(body) = arrived.take() else {
            receiving.note_wanted();
            return Err(Denied::ForIt(refusal));
        };
        Ok(ArrivedMemory::take_over(self.memory.clone(), body))
    }

    /// Judges a request again that has become larger than what it was admitted with.
    pub(super) fn judge_again(&self, permit: &Permit) -> Result<(), Refusal> {
        self.door.check_open()?;
        let (now, own_bytes) = (Instant::now(), permit.bytes() as u64);
        let arrival = Arrival { own_bytes, ..self.arrival(0, false) };
        self.judge_arrival(arrival, now)?;
        self.route.check_disk(arrival.pool_bytes(), now)
    }

    fn judge_arrival(&self, arrival: Arrival, now: Instant) -> Result<(), Denied> {
        match self.route.admit(arrival, now) {
            Ok(()) => Ok(()),
            Err(Obstacle::Paced) => Err(Denied::Paced),
            Err(Obstacle::Delivery(full)) => {
                full.stats.blocked.set(now);
                let reason = format!("the budget of delivery {} is spent", full.id);
                Err(Denied::ForIt(Refusal::overloaded(reason)))
            }
            Err(Obstacle::Pool) => {
                Err(Denied::ForAll(Refusal::overloaded("the memory for backlogs is spent")))
            }
        }
    }

    /// Whether a request that is not admitted waits for the CPU, to read or to send others: no
    /// backlog is in its way. More of its kind need not be read.
    fn waits_for_cpu(&self, bytes: usize, now: Instant) -> bool {
        self.door.resources.scheduler.is_cpu_bound() && self.route.has_room_for(bytes as u64, now)
    }

    /// This request, with the admitted ones that have not arrived yet.
    fn arrival(&self, bytes: usize, may_be_paced: bool) -> Arrival {
        let receiving = &self.door.receiving;
        Arrival {
            bytes: (receiving.used_bytes() + bytes) as u64,
            route_bytes: (self.memory.used_bytes() + bytes) as u64,
            beside_bytes: receiving.limit_bytes() as u64,
            may_be_paced,
            ..self.route.arrival(bytes as u64)
        }
    }

    /// Refuses for good a request that is larger than the memory that it would wait for.
    fn check_fits(&self, bytes: usize) -> Result<(), Refusal> {
        let receiving = (self.door.receiving.limit_bytes(), "the memory for receiving");
        // A frame beyond the memory for unwritten frames never finds room.
        let disk = self.route.disk.as_ref();
        let unwritten = disk.map_or(usize::MAX, |disk| disk.unwritten_limit_bytes as usize);
        let unwritten = (unwritten, "the memory for what is not on disk yet");
        let (limit, what) = receiving.min(unwritten);
        if bytes > limit {
            return Err(too_large(bytes, limit, what));
        }
        self.check_storable(bytes)
    }

    /// Refuses for good a payload that no file of the log can hold. It would be tried for ever.
    pub(super) fn check_storable(&self, payload_len_bytes: usize) -> Result<(), Refusal> {
        match self.route.disk {
            Some(_) if payload_len_bytes > STORED_LIMIT_BYTES => Err(too_large(
                payload_len_bytes,
                STORED_LIMIT_BYTES,
                "what the disk's format holds",
            )),
            _ => Ok(()),
        }
    }

    /// Delays an answer while a delivery comes close to its limit: senders that wait for their
    /// answers then send no faster than its backend takes. The request is in the log already, and
    /// no other delivery waits.
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
                route.note_slowed(delivery, began, lag_bytes, now);
                return;
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
    use sluice_log::{Log, Next};
    use sluice_otlp::Signal;

    use super::super::tests::{empty_route, ingress, ingress_with};
    use super::*;
    use crate::delivery::tests::{append, delivery};
    use crate::delivery::{Bounds, Delivery, Policy};
    use crate::entry::Entry;
    use crate::intake::Route;
    use crate::intake::route::RouteDisk;
    use crate::receiving::ReceivingBudget;

    fn route(receiving_bytes: usize) -> Arc<dyn IngressRoute> {
        let ingress = ingress(receiving_bytes);
        ingress.set_routes([(Signal::Traces, empty_route())]);
        ingress.route(Signal::Traces).expect("there is one")
    }

    #[tokio::test]
    async fn a_request_waits_for_memory_if_it_can() {
        let (route, arrived) = (route(400_000), ArrivedBody::default());
        let first = route.admit_at_once(300_000).expect("there is memory");
        let mut second = pin!(route.admit(300_000, &arrived));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(matches!(route.admit_at_once(300_000), Err(Refusal::Retry { .. })));
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
        let admit = |route: &Arc<dyn IngressRoute>, bytes| route.admit_at_once(bytes);
        let _upload = admit(&other, 500_000).expect("there is memory");
        let first = admit(&small, 60_000).expect("the delivery has room");
        assert!(admit(&small, 60_000).is_err(), "both together exceed its limit");
        drop(first);
        assert!(admit(&small, 60_000).is_ok());
    }

    /// Scenario: slow requests hold all memory for receiving, with that for small ones. Guarantee:
    /// a request that arrives while it waits is admitted as soon as all of it is there, with the
    /// memory that it has. It keeps out no other, and that memory comes back.
    #[tokio::test]
    async fn slow_requests_do_not_keep_out_one_that_has_arrived() {
        const BYTES: usize = 100_000;
        let receiving = ReceivingBudget::new(4 * BYTES);
        let ingress = ingress_with(receiving.clone());
        ingress.set_routes([(Signal::Traces, empty_route())]);
        let route = ingress.route(Signal::Traces).expect("there is one");
        let body = || Permit::take(ingress.waiting(true), BYTES);
        let mut slow: Vec<_> = std::iter::from_fn(|| route.admit_at_once(BYTES / 2).ok()).collect();
        assert_eq!(slow.len(), 9, "eight, and one for which small requests have room");
        let arrived = ArrivedBody::default();
        let mut next = pin!(route.admit(BYTES, &arrived));
        assert!(next.as_mut().now_or_never().is_none());
        let others: Vec<_> = std::iter::from_fn(|| body().ok()).collect();
        arrived.set(others.into_iter().next_back().expect("there is memory"));
        let mut admitted = next.now_or_never().expect("is told").expect("is admitted");
        assert_eq!((admitted.bytes(), receiving.used_bytes()), (BYTES, 9 * BYTES / 2 + BYTES));
        slow.truncate(7);
        assert!(route.admit_at_once(BYTES / 2).is_ok(), "slow ones alone count for others");
        assert!(admitted.grow(3 * BYTES).is_ok() && admitted.grow(BYTES).is_err());
        drop((admitted, slow));
        assert_eq!(receiving.used_bytes(), 0);
        assert!(route.admit_at_once(4 * BYTES).is_ok());
        assert!((0..4).map(|_| body()).collect::<Vec<_>>().iter().all(Result::is_ok));
    }

    /// A route with two slow deliveries, which are full if they have this limit, and a healthy one.
    fn with_slow_deliveries(limit_bytes: u64) -> (Arc<dyn IngressRoute>, [Arc<Delivery>; 3]) {
        let log = Arc::<Log<Entry>>::default();
        let deliveries = ["slow", "slower", "healthy"].map(|name| delivery(name, &log));
        let [slow, slower, healthy] = &deliveries;
        for delivery in [slow, slower] {
            delivery.set_bounds(Bounds { policy: Policy::Isolate, limit_bytes }, u64::MAX);
        }
        append(&log, &deliveries.each_ref().map(|delivery| delivery.cursor), None);
        let Next::Entry(offset, _) = log.read(healthy.cursor) else { panic!("it has a frame") };
        log.resolve(healthy.cursor, offset);
        let ingress = ingress(400_000);
        let route = Route { deliveries: Arc::new(deliveries.clone()), ..empty_route() };
        ingress.set_routes([(Signal::Traces, route)]);
        (ingress.route(Signal::Traces).expect("there is one"), deliveries)
    }

    /// Scenario: deliveries with limits of their own are full. Their backends work, and another
    /// delivery has taken the frame. Guarantee: a request waits 750 ms, and is not refused.
    #[tokio::test]
    async fn a_request_that_waited_for_slow_deliveries_is_not_refused() {
        let (route, _deliveries) = with_slow_deliveries(600);
        assert!(route.admit_at_once(1_000).is_err(), "they may not shed yet");
        let began = Instant::now();
        route.admit(1_000, &ArrivedBody::default()).await.expect("waited long enough");
        let waited = began.elapsed();
        assert!((750..950).contains(&waited.as_millis()), "{waited:?}");
    }

    /// Scenario: a request waits for memory, and a delivery is full only at the end. Guarantee: the
    /// delivery is not judged by that.
    #[tokio::test]
    async fn a_delivery_for_which_a_request_waited_only_in_the_end_is_not_isolated() {
        let (route, [slow, ..]) = with_slow_deliveries(u64::MAX);
        let others =
            [400_000, 50_000].map(|bytes| route.admit_at_once(bytes).expect("there is memory"));
        let arrived = ArrivedBody::default();
        let mut waits = pin!(route.admit(1_000, &arrived));
        let first = tokio::time::timeout(Duration::from_millis(700), waits.as_mut()).await;
        assert!(first.is_err(), "it finds no memory");
        let bounds = Bounds { policy: Policy::Isolate, limit_bytes: 600 };
        slow.set_bounds(bounds, u64::MAX);
        drop(others);
        assert!(waits.await.is_err());
        assert!(!slow.health.judge(Instant::now(), false).is_outpaced);
    }

    /// Guarantee: what no file of the log can hold is refused for good: it would be tried for ever.
    #[tokio::test]
    async fn a_payload_that_cannot_be_stored_is_refused() {
        let ingress = ingress(2 << 30);
        for (on_disk, len_bytes, fits) in [
            (false, 1 << 30, true),
            (true, STORED_LIMIT_BYTES, true),
            (true, STORED_LIMIT_BYTES + 1, false),
        ] {
            let disk = on_disk
                .then(|| RouteDisk { unwritten_limit_bytes: u64::MAX, watch: Arc::default() });
            ingress.set_routes([(Signal::Traces, Route { disk, ..empty_route() })]);
            let route = ingress.route(Signal::Traces).expect("there is one");
            let admitted = route.admit_at_once(len_bytes);
            assert_eq!(admitted.is_ok(), fits, "{on_disk} {len_bytes}");
            assert!(fits || matches!(admitted, Err(Refusal::TooLarge { .. })));
        }
    }

    /// Scenario: a request waits for a delivery that is full. Guarantee: what others are reading is
    /// not asked back for it. It is for a request that waits for their memory.
    #[tokio::test]
    async fn only_requests_that_wait_for_memory_ask_for_that_of_others() {
        let receiving = ReceivingBudget::new(400_000);
        let log = Arc::<Log<Entry>>::default();
        let delivery = delivery("full", &log);
        let bounds = Bounds { policy: Policy::Backpressure, limit_bytes: 600 };
        delivery.set_bounds(bounds, u64::MAX);
        append(&log, &[delivery.cursor], None);
        let full = Route { deliveries: Arc::new([delivery]), ..empty_route() };
        let [full, other] = [full, empty_route()].map(|route| {
            let ingress = ingress_with(receiving.clone());
            ingress.set_routes([(Signal::Traces, route)]);
            ingress.route(Signal::Traces).expect("there is one")
        });
        let slow = other.admit_at_once(300_000).expect("there is memory");
        let arrived = ArrivedBody::default();
        assert!(full.admit(1_000, &arrived).now_or_never().is_none(), "it waits");
        assert!(slow.asked_back().is_none());
        assert!(other.admit(200_000, &arrived).now_or_never().is_none(), "it waits");
        assert!(slow.asked_back().is_some());
    }

    /// Scenario: an upload is on its way while the configuration is loaded anew. Guarantee: it
    /// still counts against the limit of its delivery.
    #[tokio::test]
    async fn what_is_on_its_way_counts_after_a_reload() {
        let log = Arc::<Log<Entry>>::default();
        let delivery = delivery("small", &log);
        let bounds = Bounds { limit_bytes: 100_000, ..delivery.bounds() };
        delivery.set_bounds(bounds, u64::MAX);
        let ingress = ingress(1_000_000);
        let load = || {
            let deliveries = Arc::new([delivery.clone()]) as Arc<[_]>;
            ingress.set_routes([(Signal::Traces, Route { deliveries, ..empty_route() })]);
            ingress.route(Signal::Traces).expect("there is one")
        };
        let upload = load().admit_at_once(60_000).expect("there is room");
        let after = load();
        assert!(after.admit_at_once(60_000).is_err(), "both together exceed the limit");
        drop(upload);
        assert!(after.admit_at_once(60_000).is_ok());
    }

    /// Guarantee: a request that has grown is judged as what it is now: it may exceed a limit if it
    /// is alone.
    #[tokio::test]
    async fn a_request_that_has_grown_is_judged_with_what_is_on_its_way() {
        let log = Arc::<Log<Entry>>::default();
        let delivery = delivery("small", &log);
        let bounds = Bounds { limit_bytes: 100_000, ..delivery.bounds() };
        delivery.set_bounds(bounds, u64::MAX);
        let ingress = ingress(1_000_000);
        let route = Route { deliveries: Arc::new([delivery]), ..empty_route() };
        ingress.set_routes([(Signal::Traces, route)]);
        let route = ingress.route(Signal::Traces).expect("there is one");
        let mut first = route.admit_at_once(10_000).expect("there is room");
        first.grow_to(300_000).expect("there is memory");
        assert_eq!(route.judge_again(&first), Ok(()), "it is alone");
        first.shrink_to(50_000);
        let mut second = route.admit_at_once(10_000).expect("there is room");
        second.grow_to(60_000).expect("there is memory");
        assert!(route.judge_again(&second).is_err(), "both together exceed the limit");
    }

    /// Scenario: large requests wait, and room comes free for a small one behind them. Guarantee:
    /// it is woken for that, by those that find no room.
    #[tokio::test]
    async fn a_request_that_finds_no_room_passes_its_turn_on() {
        let (route, arrived) = (route(400_000), ArrivedBody::default());
        let mut admitted: Vec<_> =
            std::iter::from_fn(|| route.admit_at_once(50_000).ok()).collect();
        let large = || route.admit(400_000, &arrived);
        let mut large = [large(), large(), large()];
        assert!(large.iter_mut().all(|it| it.now_or_never().is_none()));
        let mut small = pin!(route.admit(50_000, &arrived));
        assert!(small.as_mut().now_or_never().is_none());
        admitted.pop();
        for large in &mut large {
            assert!(small.as_mut().now_or_never().is_none(), "it is not its turn");
            assert!(large.now_or_never().is_none());
        }
        assert!(small.now_or_never().expect("it was told").is_ok());
    }

    #[tokio::test]
    async fn a_request_that_never_fits_does_not_wait() {
        let route = route(400_000);
        let refused = route.admit(400_001, &ArrivedBody::default()).now_or_never();
        assert!(matches!(refused, Some(Err(Refusal::TooLarge { .. }))));
    }
}
