//! What deliveries sent, hold and set aside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sluice_log::Holding;
use sluice_telemetry::exposition::Exposition;
use sluice_telemetry::table::{Metric, Table};

use crate::backlog::Backlog;
use crate::delivery::{CAUSES, Delivery, OUTCOMES, Trouble};
use crate::plan::DeliveryPlan;

/// A delivery at one moment.
pub(super) struct Sample {
    delivery: Arc<Delivery>,
    /// How far it may lag.
    limit_bytes: u64,
    /// Where its backlog ends as things stand: at its own limit, or where the pool is full.
    budget_bytes: u64,
    concurrency_max: usize,
    held: Holding,
    trouble: Option<Trouble>,
    dead_letters: u64,
    evicted_items: u64,
}

/// How long the budget counts as spent after frames were dropped: shedding frees a little more than
/// it must.
const DROPPING_FOR: Duration = Duration::from_secs(15);

pub(super) fn write(
    exposition: &mut Exposition<'_>,
    planned: &DeliveryPlan,
    backlog: &Backlog,
    delivery: &Arc<Delivery>,
) {
    let letters = delivery.dead_letters.totals();
    let sample = Sample {
        delivery: delivery.clone(),
        limit_bytes: delivery.bounds().limit_bytes,
        budget_bytes: backlog.budget_bytes(&backlog.state(), delivery),
        concurrency_max: planned.dispatch.concurrency.max,
        held: delivery.log.held(delivery.cursor),
        trouble: delivery.stats.trouble.lock().clone(),
        dead_letters: letters.letters,
        evicted_items: letters.evicted_items,
    };
    exposition.write(&DELIVERIES, &[&delivery.id.exporter, &delivery.id.pipeline], &sample);
}

fn load(counter: &AtomicU64) -> f64 {
    counter.load(Ordering::Relaxed) as f64
}

fn load_size(gauge: &AtomicUsize) -> f64 {
    gauge.load(Ordering::Relaxed) as f64
}

impl Sample {
    fn items_name(&self) -> &'static str {
        self.delivery.signal.items_name()
    }

    fn failed_items(&self) -> f64 {
        let stats = &self.delivery.stats;
        stats.dead_items.iter().map(load).sum::<f64>()
            + load(&stats.partly_rejected_items)
            + load(&stats.returned_items)
    }

    /// The bound is in bytes: in requests it is an estimate from those that wait now.
    fn capacity_requests(&self) -> f64 {
        let request_bytes = self.held.bytes.checked_div(self.held.frames).unwrap_or(0).max(1024);
        (self.limit_bytes / request_bytes) as f64
    }

    fn is_held(&self) -> bool {
        self.trouble.as_ref().is_some_and(|trouble| trouble.held)
    }

    fn is_out_of_order(&self) -> bool {
        self.trouble.as_ref().is_some_and(|trouble| !trouble.held)
    }
}

pub(super) const DELIVERIES: Table<Sample> = Table {
    title: "Deliveries",
    labels: &["exporter", "pipeline"],
    metrics: &[
        Metric::counters(
            "otelcol_exporter_sent",
            &[],
            "Items that the backend has taken.",
            |sample: &Sample, series| {
                series.add_items(sample.items_name(), &[], load(&sample.delivery.stats.sent_items));
            },
        )
        .by_items(),
        Metric::counters(
            "otelcol_exporter_send_failed",
            &[],
            "Items that could not be delivered for good.",
            |sample: &Sample, series| series.add_items(sample.items_name(), &[], sample.failed_items()),
        )
        .by_items(),
        Metric::counters(
            "otelcol_exporter_enqueue_failed",
            &[],
            "Items dropped because the delivery's budget was spent.",
            |sample: &Sample, series| {
                series.add_items(sample.items_name(), &[], load(&sample.delivery.stats.dropped_items));
            },
        )
        .by_items(),
        Metric::gauges(
            "otelcol_exporter_queue_size",
            &["data_type"],
            "Requests that wait for the delivery.",
            |sample: &Sample, series| series.add(&[sample.delivery.signal.as_str()], sample.held.frames as f64),
        ),
        Metric::gauges(
            "otelcol_exporter_queue_capacity",
            &["data_type"],
            "Requests that the delivery's budget holds, estimated from the mean size of those that wait.",
            |sample: &Sample, series| series.add(&[sample.delivery.signal.as_str()], sample.capacity_requests()),
        ),
        Metric::gauge("sluice_delivery_backlog_items", "Items that wait for the delivery.", |sample: &Sample| {
            sample.held.items as f64
        }),
        Metric::gauge("sluice_delivery_backlog", "Bytes that wait for the delivery.", |sample: &Sample| {
            sample.held.bytes as f64
        })
        .unit("bytes"),
        Metric::gauge(
            "sluice_delivery_budget",
            "How far the delivery may lag, in bytes: all that backlogs may take, or its own limit.",
            |sample: &Sample| sample.limit_bytes as f64,
        )
        .unit("bytes"),
        Metric::gauge(
            "sluice_delivery_oldest_age",
            "Age of the oldest frame that is not resolved.",
            |sample: &Sample| {
                sample.delivery.log.oldest_age(sample.delivery.cursor).map_or(0.0, |age| age.as_secs_f64())
            },
        )
        .unit("seconds"),
        Metric::gauge(
            "sluice_delivery_budget_spent_in",
            "Time until the delivery's budget is spent, at the rate of the last two minutes; \
             0 while frames are dropped, +Inf while its backlog does not grow.",
            |sample: &Sample| {
                let now = Instant::now();
                let is_dropping = sample.delivery.health.has_shed_within(DROPPING_FOR, now);
                let mut filling = sample.delivery.stats.filling.lock();
                filling.seconds_left(now, sample.held.bytes, sample.budget_bytes, is_dropping)
            },
        )
        .unit("seconds"),
        Metric::counters(
            "sluice_delivery_requests",
            &["outcome"],
            "Requests to the backend by what became of them.",
            |sample: &Sample, series| {
                for (outcome, count) in OUTCOMES.iter().zip(&sample.delivery.stats.requests) {
                    series.add(&[outcome], load(count));
                }
            },
        ),
        Metric::counters(
            "sluice_delivery_dead_letter_items",
            &["reason"],
            "Items that became dead letters: rejected by the backend, too_large for it one by one, \
             given_up after max_elapsed_time, not_retried where retry_on_failure is disabled, \
             not_prepared where nothing could be made of them that an exporter could send.",
            |sample: &Sample, series| {
                for (cause, items) in CAUSES.iter().zip(&sample.delivery.stats.dead_items) {
                    series.add(&[cause], load(items));
                }
            },
        ),
        Metric::counter(
            "sluice_delivery_dead_letter_evicted_items",
            "Dead letters that gave way to newer ones, in items.",
            |sample: &Sample| sample.evicted_items as f64,
        ),
        Metric::counter(
            "sluice_delivery_partly_rejected_items",
            "Items that the backend refused within requests that it took.",
            |sample: &Sample| load(&sample.delivery.stats.partly_rejected_items),
        ),
        Metric::counter(
            "sluice_delivery_returned_items",
            "Items whose refusal was handed to the waiting sender.",
            |sample: &Sample| load(&sample.delivery.stats.returned_items),
        ),
        Metric::counter(
            "sluice_delivery_dropped_items",
            "Items dropped because the budget was spent.",
            |sample: &Sample| load(&sample.delivery.stats.dropped_items),
        ),
        Metric::gauge(
            "sluice_delivery_dropped_items_ever",
            "Items that were ever dropped because the budget was spent, \
             also before a restart where there is a directory.",
            |sample: &Sample| sample.delivery.log.dropped_total(sample.delivery.cursor).items as f64,
        ),
        Metric::counter(
            "sluice_delivery_held_back_answers",
            "Answers to senders that were held back while the delivery fell behind, so that it need not drop.",
            |sample: &Sample| load(&sample.delivery.stats.held_back_answers),
        ),
        Metric::counter(
            "sluice_delivery_sent",
            "Bytes of requests that the backend has taken, as sent.",
            |sample: &Sample| load(&sample.delivery.stats.sent_bytes),
        )
        .unit("bytes"),
        Metric::gauge("sluice_delivery_in_flight_requests", "Requests in flight.", |sample: &Sample| {
            load_size(&sample.delivery.stats.in_flight)
        }),
        Metric::gauge("sluice_delivery_concurrency_limit", "Requests that may be in flight now.", |sample: &Sample| {
            load_size(&sample.delivery.stats.concurrency_limit)
        }),
        Metric::gauge(
            "sluice_delivery_concurrency_max",
            "Requests that may ever be in flight (num_consumers).",
            |sample: &Sample| sample.concurrency_max as f64,
        ),
        Metric::gauge("sluice_delivery_waiting_requests", "Requests that wait for their retry.", |sample: &Sample| {
            load_size(&sample.delivery.stats.waiting)
        }),
        Metric::gauge(
            "sluice_delivery_held",
            "1 while the delivery waits for a configuration to be mended.",
            |sample: &Sample| f64::from(sample.is_held()),
        ),
        Metric::gauge("sluice_delivery_out_of_order", "1 while the backend takes nothing.", |sample: &Sample| {
            f64::from(sample.is_out_of_order())
        }),
        Metric::gauge("sluice_delivery_dead_letters", "Dead letters that are kept.", |sample: &Sample| {
            sample.dead_letters as f64
        }),
    ],
};
