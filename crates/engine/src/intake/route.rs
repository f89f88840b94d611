//! The route of a receiver's frames, and the state of their deliveries for the rules of overload.

use std::sync::Arc;
use std::time::Instant;

use sluice_flow::Refusal;
use sluice_flow::overload::admission::{self, Arrival, Obstacle, Patience};
use sluice_flow::overload::{DeliveryState, delay, disk};
use sluice_log::{Appended, CursorId, Log};
use sluice_otlp::Encoding;

use crate::ack::Awaited;
use crate::backlog::Backlog;
use crate::delivery::Delivery;
use crate::entry::{Entry, Origin};
use crate::steps::Step;
use crate::storage::LogWatch;

/// The deliveries for the frames of one receiver and signal, and the steps before them.
pub(crate) struct Route {
    /// Steps that all deliveries share: run once, before the log.
    pub prefix: Vec<Arc<Step>>,
    pub origin: Arc<Origin>,
    pub log: Arc<Log<Entry>>,
    pub backlog: Arc<Backlog>,
    pub deliveries: Arc<[Arc<Delivery>]>,
    pub readers: Arc<[CursorId]>,
    /// Deliveries that the sender waits for. None if it is answered from memory.
    pub awaited: Arc<Awaited>,
    /// Set where the log continues on disk.
    pub disk: Option<RouteDisk>,
    /// Encodings that some delivery passes on unchanged.
    pub passes_through: Vec<Encoding>,
    /// Request metadata that something downstream reads: names in lower case.
    pub metadata_keys: Vec<String>,
}

impl Route {
    fn states(&self, now: Instant) -> impl Iterator<Item = (&Delivery, DeliveryState)> + Clone {
        let is_cpu_bound = self.backlog.is_cpu_bound();
        self.deliveries.iter().map(move |delivery| (&**delivery, delivery.state(now, is_cpu_bound)))
    }

    /// Whether a request may enter, after shedding for it. `arriving_bytes`: its own, and of
    /// admitted requests that have not arrived; `route_bytes`: those on this route. `patience`: of
    /// a request that can wait.
    pub(crate) fn admit(
        &self,
        arriving_bytes: u64,
        route_bytes: u64,
        patience: Option<Patience>,
        now: Instant,
    ) -> Result<(), Obstacle<&Delivery>> {
        let may_be_paced = patience.is_some_and(|it| it.may_be_paced(now));
        let pool = self.backlog.make_room(arriving_bytes, now);
        let is_cpu_bound = self.backlog.is_cpu_bound();
        let arrival = Arrival { bytes: arriving_bytes, route_bytes, is_cpu_bound, may_be_paced };
        let admit = || admission::admit(&pool, arrival, self.states(now));
        let admitted = admit();
        let Err(Obstacle::Delivery(delivery)) = admitted else { return admitted };
        delivery.health.in_the_way.set(now);
        // To wait for a delivery whose backend works has slowed the sender down.
        let is_slowed = patience.is_some() && !may_be_paced;
        if is_slowed && self.note_slowed(delivery, now, 0, now) { admit() } else { admitted }
    }

    /// Whether a request would be admitted alone, without any that is still arriving.
    pub(crate) fn has_room_for(&self, bytes: u64, now: Instant) -> bool {
        let is_cpu_bound = self.backlog.is_cpu_bound();
        let arrival = Arrival { bytes, route_bytes: bytes, is_cpu_bound, may_be_paced: false };
        admission::admit(&self.backlog.state(), arrival, self.states(now)).is_ok()
    }

    /// To be called after an append: sheds what exceeds a limit, and wakes the deliveries. True if
    /// senders may have to slow down.
    pub(crate) fn appended(&self, appended: Appended, now: Instant) -> bool {
        if appended.over_budget {
            self.backlog.update_sheds(now);
            self.deliveries.iter().for_each(|delivery| delivery.enforce_limit());
        }
        let pool = self.backlog.make_room(0, now);
        self.deliveries.iter().for_each(|delivery| delivery.wake.notify_one());
        let lags = self.deliveries.iter().map(|it| (it.lag_bytes(), it.bounds().limit_bytes));
        let is_tight = delay::is_tight(&pool, lags);
        if is_tight {
            self.backlog.update_sheds(now);
        }
        is_tight
    }

    /// The delivery for whose sake answers to senders are delayed.
    pub(crate) fn delays(&self, in_flight_bytes: u64, now: Instant) -> Option<&Delivery> {
        self.backlog.update_sheds(now);
        delay::delays(&self.backlog.state(), in_flight_bytes, self.states(now))
    }

    /// A sender was slowed down as long as allowed, since `began`, at a lag of `lag_bytes`. True
    /// if that was in vain.
    pub(crate) fn note_slowed(
        &self,
        delivery: &Delivery,
        began: Instant,
        lag_bytes: u64,
        now: Instant,
    ) -> bool {
        let grew = delivery.lag_bytes() > lag_bytes;
        let goes_on = delay::goes_on(&delivery.health, grew, began, now);
        let is_cpu_bound = self.backlog.is_cpu_bound();
        let states = self.states(now).map(|(_, state)| state);
        let in_vain = delay::was_in_vain(&delivery.state(now, is_cpu_bound), goes_on, states);
        if in_vain {
            delivery.health.outpaced.set(now);
            self.backlog.update_sheds_at_once(now);
        }
        in_vain
    }

    /// Keeps frames that are not written yet within their memory, or refuses the request.
    pub(super) fn check_disk(&self, arriving_bytes: u64, now: Instant) -> Result<(), Refusal> {
        let Some(disk) = &self.disk else { return Ok(()) };
        if disk.watch.has_lasting_trouble() {
            self.backlog.give_up_unwritten(&self.deliveries, now);
            let waits_in_vain = |(delivery, state): (&Delivery, DeliveryState)| {
                self.awaited.unless_durable.contains(&delivery.cursor)
                    && disk::waits_in_vain(&state)
            };
            if self.states(now).any(waits_in_vain) {
                return Err(Refusal::overloaded(disk.watch.trouble().unwrap_or_default()));
            }
        }
        let unwritten = || self.backlog.memory.unwritten_bytes.get();
        let limit = disk.unwritten_limit_bytes;
        if let Some(keep_bytes) = disk::keep_unwritten_bytes(unwritten(), arriving_bytes, limit) {
            self.backlog.update_sheds(now);
            self.deliveries.iter().for_each(|delivery| delivery.drop_unwritten(keep_bytes));
        }
        let deliveries = self.backlog.state().deliveries;
        let of_route = self.deliveries.iter().map(|it| it.gauges.unwritten_bytes.get());
        let unwritten = disk::unwritten(unwritten(), limit, deliveries);
        if disk::is_unwritten_full(&unwritten, arriving_bytes, of_route) {
            return Err(Refusal::overloaded(
                "the disk does not keep up, and memory for what it has not taken is spent",
            ));
        }
        Ok(())
    }
}

/// The state of a route's disk that admission looks at.
pub(crate) struct RouteDisk {
    /// Memory for frames that are not written yet, of all signals.
    pub unwritten_limit_bytes: u64,
    pub watch: Arc<LogWatch>,
}
