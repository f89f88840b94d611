//! Metrics of deliveries: what they sent, what waits, and what they set aside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use sluice_flow::dispatch::State;
use sluice_flow::overload::PoolState;
use sluice_log::Holding;
use sluice_telemetry::exposition::{Exposition, Series};
use sluice_telemetry::row;
use sluice_telemetry::table::{Number, Table};

use crate::delivery::{CAUSES, DeadLetterTotals, Delivery, OUTCOMES};
use crate::plan::DeliveryPlan;

/// A delivery at one moment.
pub(super) struct Sample {
    delivery: Arc<Delivery>,
    /// The limit on its own lag.
    limit_bytes: u64,
    budget_spent_in_s: f64,
    concurrency_max: u64,
    waiting: Holding,
    state: State,
    dead_letters: DeadLetterTotals,
}

/// A request counts at least this much where bytes are converted to requests.
const REQUEST_MIN_BYTES: u64 = 1024;

pub(super) fn write(
    exposition: &mut Exposition<'_>,
    planned: &DeliveryPlan,
    (pool, pool_bytes_per_s): (&PoolState, f64),
    delivery: &Arc<Delivery>,
) {
    let now = Instant::now();
    let mut forecast = delivery.stats.forecast.lock();
    let budget_spent_in_s = forecast.seconds_left(now, &delivery.lag(now), pool, pool_bytes_per_s);
    drop(forecast);
    let sample = Sample {
        delivery: delivery.clone(),
        limit_bytes: delivery.bounds().limit_bytes,
        budget_spent_in_s,
        concurrency_max: planned.dispatch.concurrency.max as u64,
        waiting: delivery.log.held(delivery.cursor),
        state: delivery.stats.state.lock().clone(),
        dead_letters: delivery.dead_letters.totals(),
    };
    exposition.write(&DELIVERIES, &[&delivery.id.exporter, &delivery.id.pipeline], &sample);
}

impl Sample {
    fn add_items(&self, series: &mut Series<'_, '_>, items: &impl Number) {
        series.add_items(self.delivery.signal.items_name(), &[], items.value());
    }

    fn add_of_signal(&self, series: &mut Series<'_, '_>, value: u64) {
        series.add(&[self.delivery.signal.as_str()], value as f64);
    }

    fn failed_items(&self) -> u64 {
        let stats = &self.delivery.stats;
        let others = [&stats.partly_rejected_items, &stats.returned_items];
        stats.dead_items.iter().chain(others).map(|it| it.load(Ordering::Relaxed)).sum()
    }

    /// The bound is in bytes: in requests it is an estimate from those that wait now.
    fn capacity_requests(&self) -> u64 {
        let mean_bytes = self.waiting.bytes.checked_div(self.waiting.frames).unwrap_or(0);
        self.limit_bytes / mean_bytes.max(REQUEST_MIN_BYTES)
    }
}

fn add_each(series: &mut Series<'_, '_>, names: &[&str], counts: &[AtomicU64]) {
    names.iter().zip(counts).for_each(|(name, count)| series.add(&[name], count.value()));
}

pub(super) const DELIVERIES: Table<Sample> = Table {
    title: "Deliveries",
    labels: &["exporter", "pipeline"],
    metrics: &[
        row!(Counter "otelcol_exporter_sent" by [],
            |it: &Sample, series| it.add_items(series, &it.delivery.stats.sent_items),
            "Items that the backend has taken.")
        .by_items(),
        row!(Counter "otelcol_exporter_send_failed" by [],
            |it: &Sample, series| it.add_items(series, &it.failed_items()),
            "Items that failed and are not sent again.")
        .by_items(),
        row!(Counter "otelcol_exporter_enqueue_failed" by [],
            |it: &Sample, series| it.add_items(series, &it.delivery.stats.dropped_items),
            "Items dropped because the delivery's budget was spent.")
        .by_items(),
        row!(UpDownCounter "otelcol_exporter_in_flight_requests" by ["data_type"],
            |it: &Sample, series| {
                let stats = &it.delivery.stats;
                let all = stats.in_flight.load(Ordering::Relaxed)
                    + stats.waiting.load(Ordering::Relaxed);
                it.add_of_signal(series, all);
            },
            "Requests in flight, or waiting for their retry."),
        row!(Gauge "otelcol_exporter_queue_size" by ["data_type"],
            |it: &Sample, series| it.add_of_signal(series, it.waiting.frames),
            "Requests that the delivery has not resolved, those in flight included."),
        row!(Gauge "otelcol_exporter_queue_capacity" by ["data_type"],
            |it: &Sample, series| it.add_of_signal(series, it.capacity_requests()),
            "Limit of the delivery's backlog in requests, estimated from the mean size of those \
             that wait."),
        row!(Gauge "sluice_delivery_backlog_items" = waiting.items,
            "Items that the delivery has not resolved, those in flight included."),
        row!(Gauge "sluice_delivery_backlog" in "bytes" = waiting.bytes,
            "Bytes that the delivery has not resolved, those in flight included."),
        row!(Gauge "sluice_delivery_budget" in "bytes" = limit_bytes,
            "Limit of the delivery's backlog: its own limit, or that of all backlogs together."),
        row!(Gauge "sluice_delivery_oldest_age" in "seconds",
            |Sample { delivery, .. }: &Sample| {
                let age = delivery.log.oldest_age(delivery.cursor);
                age.unwrap_or_default().as_secs_f64()
            },
            "Age of the oldest request that the delivery has not resolved, those in flight and \
             those that wait for their retry included."),
        row!(Gauge "sluice_delivery_budget_spent_in" in "seconds",
            |it: &Sample| it.budget_spent_in_s,
            "Time until the delivery's budget is spent, at the rate at which its backlog and the \
             pool have grown in the last two minutes; 0 while requests are dropped or senders wait \
             for it, and until an eighth of its backlog is delivered then; +Inf while its backlog \
             does not grow."),
        row!(Counter "sluice_delivery_requests" by ["outcome"],
            |it: &Sample, series| add_each(series, &OUTCOMES, &it.delivery.stats.requests),
            "Requests to the backend by outcome."),
        row!(Counter "sluice_delivery_dead_letter_items" by ["reason"],
            |it: &Sample, series| add_each(series, &CAUSES, &it.delivery.stats.dead_items),
            "Items that could not be delivered and became dead letters, by reason: rejected (by \
             the backend), too_large (for the backend, even alone), given_up (after \
             max_elapsed_time), not_retried (retry_on_failure is disabled), not_prepared (no \
             request could be made of them)."),
        row!(Counter "sluice_delivery_dead_letter_evicted_items" = dead_letters.evicted_items,
            "Items of dead letters that are not kept: deleted to make room for newer ones, or \
             larger than all dead letters of the delivery may be."),
        row!(Counter "sluice_delivery_partly_rejected_items" = delivery.stats.partly_rejected_items,
            "Items that the backend rejected from requests that it accepted (partial success)."),
        row!(Counter "sluice_delivery_returned_items" = delivery.stats.returned_items,
            "Items that the backend refused, and whose waiting sender got the refusal."),
        row!(Counter "sluice_delivery_dropped_items" = delivery.stats.dropped_items,
            "Items dropped because the budget was spent."),
        row!(Counter "sluice_delivery_lost_items",
            |Sample { delivery, .. }| delivery.log.lost_total(delivery.cursor).items as f64,
            "Items that waited on disk and could not be read or were not there, counted when the \
             delivery has come to the end of its backlog."),
        row!(Gauge "sluice_delivery_dropped_items_ever",
            |Sample { delivery, .. }| delivery.log.dropped_total(delivery.cursor).items as f64,
            "Items dropped because the budget was spent. With a directory, the count continues \
             after a restart."),
        row!(Counter "sluice_delivery_delayed_answers" = delivery.stats.delayed_answers,
            "Answers to senders that were delayed so that this slow delivery need not drop data."),
        row!(Counter "sluice_delivery_sent" in "bytes" = delivery.stats.sent_bytes,
            "Bytes sent in requests that the backend has taken."),
        row!(Gauge "sluice_delivery_in_flight_requests" = delivery.stats.in_flight,
            "Requests in flight."),
        row!(Gauge "sluice_delivery_in_flight_age" in "seconds",
            |it: &Sample| it.delivery.stats.in_flight_age().unwrap_or_default().as_secs_f64(),
            "Time since the oldest request in flight was sent. Policies drop nothing that is in \
             flight: it can be older than all that waits."),
        row!(Gauge "sluice_delivery_in_flight_copies" in "bytes",
            |it: &Sample| it.delivery.sending.used_bytes() as f64,
            "Memory of requests in flight beside the backlog: packed copies, and what is inflated \
             to pack them."),
        row!(Gauge "sluice_delivery_concurrency_limit" = delivery.stats.concurrency_limit,
            "Requests that may be in flight now."),
        row!(Gauge "sluice_delivery_concurrency_max" = concurrency_max,
            "Highest number of requests that can be in flight (num_consumers)."),
        row!(Gauge "sluice_delivery_waiting_requests" = delivery.stats.waiting,
            "Requests that wait for their retry."),
        row!(Gauge "sluice_delivery_held",
            |Sample { state, .. }| matches!(state, State::Held(_)).value(),
            "1 while the delivery is held: its backend cannot be used as configured, and is probed \
             until it can."),
        row!(Gauge "sluice_delivery_outage",
            |Sample { state, .. }| matches!(state, State::Outage(_)).value(),
            "1 while the backend takes nothing."),
        row!(Gauge "sluice_delivery_dead_letters" = dead_letters.letters,
            "Dead letters that are stored."),
        row!(Gauge "sluice_delivery_dead_letter_trouble",
            |it: &Sample| it.delivery.stats.dead_letter_trouble.lock().is_some().value(),
            "1 while dead letters cannot be stored. Their data stays in the backlog, and once it \
             fills the memory of the delivery, nothing more is sent; the health check says why."),
        row!(Gauge "sluice_delivery_unreadable_dead_letter_files" = dead_letters.unreadable_files,
            "Files of dead letters of earlier runs of which something cannot be read. That is not \
             counted."),
    ],
};
