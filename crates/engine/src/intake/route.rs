//! The route of a receiver's frames, and the state of their deliveries for the rules of overload.

use std::sync::Arc;
use std::time::Instant;

use sluice_flow::Refusal;
use sluice_flow::hop::Ranges;
use sluice_flow::overload::admission::{self, Arrival, Obstacle, Patience};
use sluice_flow::overload::{DeliveryState, delay, disk};
use sluice_log::{Appended, CursorId, Log};
use sluice_otlp::Encoding;

use crate::ack::Awaited;
use crate::backlog::Backlog;
use crate::delivery::Delivery;
use crate::entry::{Entry, Origin};
use crate::hop::{Asked, Known, Promise};
use crate::steps::Step;
use crate::storage::LogWatch;

/// The deliveries for the frames of one receiver and signal, and the steps before them.
pub(crate) struct Route {
    /// Steps that all deliveries share: run once, before the log.
    pub prefix: Vec<Arc<Step>>,
    pub origin: Arc<Origin>,
    pub log: Arc<Log<Entry>>,
    /// The ranges of other Sluices that the log has had.
    pub known: Arc<Known>,
    pub backlog: Arc<Backlog>,
    pub deliveries: Arc<[Arc<Delivery>]>,
    pub readers: Arc<[CursorId]>,
    /// Deliveries that the sender waits for. None if it is answered from memory.
    pub awaited: Arc<Awaited>,
    /// Set where the log continues on disk.
    pub disk: Option<RouteDisk>,
    /// Encodings that some delivery passes on unchanged.
    pub passes_through: Vec<Encoding>,
    /// Some delivery names what it sends to another Sluice.
    pub names_ranges: bool,
    /// Request metadata that something downstream reads: names in lower case.
    pub metadata_keys: Vec<String>,
}

impl Route {
    /// Senders wait for deliveries or the disk.
    pub(super) fn waits(&self) -> bool {
        *self.awaited != Awaited::default()
    }

    /// Looks for a request of another Sluice among those that the log has had. A frame that may be
    /// withdrawn when it is on disk already does not have the ranges there.
    pub(super) fn arrive(&self, ranges: Ranges) -> Result<Asked, Refusal> {
        let is_stored = self.disk.is_some() && self.awaited.delivered.is_empty();
        self.known.arrive(ranges, Promise { is_answered: !self.waits(), is_stored })
    }

    fn states(&self, now: Instant) -> impl Iterator<Item = (&Delivery, DeliveryState)> + Clone {
        let is_cpu_bound = self.backlog.is_cpu_bound();
        self.deliveries.iter().map(move |delivery| (&**delivery, delivery.state(now, is_cpu_bound)))
    }

    /// Whether a request may enter, after shedding for it.
    pub(crate) fn admit(&self, arrival: Arrival, now: Instant) -> Result<(), Obstacle<&Delivery>> {
        let pool = self.backlog.make_room(arrival.pool_bytes(), now);
        let admitted = admission::admit(&pool, arrival, self.states(now));
        if let Err(Obstacle::Delivery(delivery)) = &admitted {
            delivery.health.in_the_way.set(now);
        }
        admitted
    }

    /// A request that arrives alone, and may not be paced.
    pub(crate) fn arrival(&self, bytes: u64) -> Arrival {
        let is_cpu_bound = self.backlog.is_cpu_bound();
        let (own_bytes, route_bytes, beside_bytes, may_be_paced) = (bytes, bytes, bytes, false);
        Arrival { own_bytes, bytes, route_bytes, beside_bytes, is_cpu_bound, may_be_paced }
    }

    /// Notes the deliveries in the way of a request that is not admitted, and since when they are:
    /// to wait for a delivery slows its sender down. True if one is isolated from now on, because
    /// the request has waited for it for the full time.
    pub(crate) fn note_in_the_way(
        &self,
        known: &mut Vec<(CursorId, Instant)>,
        arrival: Arrival,
        now: Instant,
    ) -> bool {
        let pool = self.backlog.state();
        let before = std::mem::take(known);
        let mut in_vain = false;
        for delivery in admission::in_the_way(&pool, arrival, self.states(now)) {
            let since = before.iter().find(|(cursor, _)| *cursor == delivery.cursor);
            let since = since.map_or(now, |(_, since)| *since);
            known.push((delivery.cursor, since));
            let is_over = !Patience::from(since).may_be_paced(now);
            in_vain |= is_over && self.note_slowed(delivery, since, 0, now);
        }
        in_vain
    }

    /// Whether a request would be admitted alone, without any that is still arriving.
    pub(crate) fn has_room_for(&self, bytes: u64, now: Instant) -> bool {
        admission::admit(&self.backlog.state(), self.arrival(bytes), self.states(now)).is_ok()
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
        let others = self.states(now).filter(|(other, _)| other.cursor != delivery.cursor);
        let others = others.map(|(_, state)| state);
        let (pool, state) = (self.backlog.state(), delivery.state(now, is_cpu_bound));
        let in_vain = delay::was_in_vain(&pool, &state, goes_on, others);
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
