//! The metrics of a running engine, under the Collector's names where it has them.

pub(crate) mod log;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use sluice_otlp::Signal;
use sluice_receivers::ReceiverCounters;
use sluice_telemetry::exposition::{Exposition, Naming};

use crate::backlog::Backlog;
use crate::delivery::{CAUSES, Delivery, OUTCOMES};
use crate::memory;
use crate::plan::DeliveryPlan;
use crate::receiving::ReceivingBudget;
use crate::storage::Storage;

const BUDGET_SPENT_IN: &str = "Time until the delivery's budget is spent, at the rate of the last two minutes; \
     0 while frames are dropped, \
     +Inf while its backlog does not grow.";
const POOL: &str = "Memory, or disk with a directory, that the backlogs of all deliveries take together.";
const POOL_LIMIT: &str = "What the backlogs of all deliveries may take together.";
const DEAD_LETTER_ITEMS: &str = "Items that became dead letters: rejected by the backend, too_large for it one by one, \
     given_up after max_elapsed_time, not_retried where retry_on_failure is disabled, \
     not_prepared where nothing could be made of them that an exporter could send.";

/// What deliveries hold and set aside: name with unit, kind, labels, meaning.
pub(crate) const OF_DELIVERIES: &[(&str, &str, &str, &str)] = &[
    ("sluice_delivery_budget_spent_in_seconds", "gauge", "exporter, pipeline", BUDGET_SPENT_IN),
    ("sluice_delivery_dead_letter_items", "counter", "exporter, pipeline, reason", DEAD_LETTER_ITEMS),
    ("sluice_backlog_pool_bytes", "gauge", "", POOL),
    ("sluice_backlog_pool_limit_bytes", "gauge", "", POOL_LIMIT),
];

/// How long the budget counts as spent after frames were dropped: shedding frees a little more than it must.
const DROPPING_FOR: Duration = Duration::from_secs(15);

/// The signal's name as the label `data_type` of queue metrics has it.
fn data_type(signal: Signal) -> &'static str {
    signal.as_str()
}

/// Everything, as text.
pub(crate) fn render(
    naming: &Naming,
    started: Instant,
    deliveries: &[(DeliveryPlan, Arc<Delivery>)],
    receivers: &[(String, Arc<dyn ReceiverCounters>)],
    receiving: &ReceivingBudget,
    backlog: &Backlog,
    storage: &Storage,
) -> String {
    let mut exposition = Exposition::new(naming);
    process(&mut exposition, started);
    for (id, counters) in receivers {
        counters.write(id, &mut exposition);
    }
    for (planned, delivery) in deliveries {
        self::delivery(&mut exposition, delivery, backlog, planned.dispatch.concurrency.max);
    }
    receiving_memory(&mut exposition, receiving);
    pool(&mut exposition, backlog);
    log::render(&mut exposition, storage);
    exposition.render()
}

fn receiving_memory(exposition: &mut Exposition<'_>, receiving: &ReceivingBudget) {
    for (name, help, value) in [
        ("sluice_receiving_memory", "Memory of requests that are being read.", receiving.used_bytes()),
        (
            "sluice_receiving_memory_limit",
            "Memory that requests may take while they are read.",
            receiving.limit_bytes(),
        ),
    ] {
        exposition.gauge(name, "bytes", help, &[], value as f64);
    }
}

fn pool(exposition: &mut Exposition<'_>, backlog: &Backlog) {
    let pool = backlog.state();
    for (name, help, value) in
        [("sluice_backlog_pool", POOL, pool.used_bytes), ("sluice_backlog_pool_limit", POOL_LIMIT, pool.limit_bytes)]
    {
        exposition.gauge(name, "bytes", help, &[], value as f64);
    }
}

fn process(exposition: &mut Exposition<'_>, started: Instant) {
    let uptime = started.elapsed().as_secs_f64();
    exposition.counter_seconds("otelcol_process_uptime", "Time since the process started.", &[], uptime);
    exposition.counter_seconds(
        "otelcol_process_cpu",
        "CPU time that the process has used, user and system.",
        &[],
        memory::cpu_seconds(),
    );
    let resident = memory::resident_bytes() as f64;
    exposition.gauge("otelcol_process_memory_rss", "bytes", "Resident memory in bytes.", &[], resident);
}

/// Names that depend on the signal: the exposition wants them whole.
fn by_signal(prefix: &str, signal: Signal) -> String {
    format!("{prefix}_{}", signal.items_name())
}

fn delivery(exposition: &mut Exposition<'_>, delivery: &Delivery, backlog: &Backlog, concurrency_max: usize) {
    let stats = &delivery.stats;
    let labels = [("exporter", delivery.id.exporter.as_str()), ("pipeline", delivery.id.pipeline.as_str())];
    let signal = delivery.signal;
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let counters = [
        ("otelcol_exporter_sent", "Items that the backend has taken.", load(&stats.sent_items)),
        (
            "otelcol_exporter_send_failed",
            "Items that could not be delivered for good.",
            stats.dead_items.iter().map(load).sum::<u64>()
                + load(&stats.partly_rejected_items)
                + load(&stats.returned_items),
        ),
        (
            "otelcol_exporter_enqueue_failed",
            "Items dropped because the delivery's budget was spent.",
            load(&stats.dropped_items),
        ),
    ];
    for (name, help, value) in counters {
        exposition.counter(&by_signal(name, signal), "", help, &labels, value);
    }
    queue(exposition, delivery, &labels, backlog);
    own(exposition, delivery, &labels, concurrency_max);
    log::render_delivery(exposition, delivery, &labels);
}

fn queue(exposition: &mut Exposition<'_>, delivery: &Delivery, labels: &[(&str, &str); 2], backlog: &Backlog) {
    let budget_bytes = delivery.bounds().limit_bytes;
    let held = delivery.log.held(delivery.cursor);
    let queue_labels = [labels[0], labels[1], ("data_type", data_type(delivery.signal))];
    let help = "Requests that wait for the delivery.";
    exposition.gauge("otelcol_exporter_queue_size", "", help, &queue_labels, held.frames as f64);
    // The bound is in bytes: in requests it is an estimate from those that wait now.
    let request_bytes = held.bytes.checked_div(held.frames).unwrap_or(0).max(1024);
    let help = "Requests that the delivery's budget holds, estimated from the mean size of those that wait.";
    let capacity = (budget_bytes / request_bytes) as f64;
    exposition.gauge("otelcol_exporter_queue_capacity", "", help, &queue_labels, capacity);
    for (name, unit, help, value) in [
        ("sluice_delivery_backlog_items", "", "Items that wait for the delivery.", held.items as f64),
        ("sluice_delivery_backlog", "bytes", "Bytes that wait for the delivery.", held.bytes as f64),
        (
            "sluice_delivery_budget",
            "bytes",
            "How far the delivery may lag, in bytes: all that backlogs may take, or its own limit.",
            budget_bytes as f64,
        ),
    ] {
        exposition.gauge(name, unit, help, labels, value);
    }
    let age = delivery.log.oldest_age(delivery.cursor).map_or(0.0, |age| age.as_secs_f64());
    let help = "Age of the oldest frame that is not resolved.";
    exposition.gauge("sluice_delivery_oldest_age", "seconds", help, labels, age);
    let now = Instant::now();
    let left = delivery.stats.filling.lock().seconds_left(
        now,
        held.bytes,
        backlog.budget_bytes(&backlog.state(), delivery),
        delivery.health.has_shed_within(DROPPING_FOR, now),
    );
    exposition.gauge("sluice_delivery_budget_spent_in", "seconds", BUDGET_SPENT_IN, labels, left);
}

fn own(exposition: &mut Exposition<'_>, delivery: &Delivery, labels: &[(&str, &str); 2], concurrency_max: usize) {
    let stats = &delivery.stats;
    for (index, outcome) in OUTCOMES.iter().enumerate() {
        let labels = [labels[0], labels[1], ("outcome", outcome)];
        let help = "Requests to the backend by what became of them.";
        let value = stats.requests[index].load(Ordering::Relaxed);
        exposition.counter("sluice_delivery_requests", "", help, &labels, value);
    }
    for (index, cause) in CAUSES.iter().enumerate() {
        let labels = [labels[0], labels[1], ("reason", cause)];
        let value = stats.dead_items[index].load(Ordering::Relaxed);
        exposition.counter("sluice_delivery_dead_letter_items", "", DEAD_LETTER_ITEMS, &labels, value);
    }
    let letters = delivery.dead_letters.totals();
    let partly = stats.partly_rejected_items.load(Ordering::Relaxed);
    let counters = [
        (
            "sluice_delivery_dead_letter_evicted_items",
            "",
            "Dead letters that gave way to newer ones, in items.",
            letters.evicted_items,
        ),
        (
            "sluice_delivery_partly_rejected_items",
            "",
            "Items that the backend refused within requests that it took.",
            partly,
        ),
        (
            "sluice_delivery_returned_items",
            "",
            "Items whose refusal was handed to the waiting sender.",
            stats.returned_items.load(Ordering::Relaxed),
        ),
        (
            "sluice_delivery_dropped_items",
            "",
            "Items dropped because the budget was spent.",
            stats.dropped_items.load(Ordering::Relaxed),
        ),
        (
            "sluice_delivery_held_back_answers",
            "",
            "Answers to senders that were held back while the delivery fell behind, so that it need not drop.",
            stats.held_back_answers.load(Ordering::Relaxed),
        ),
        (
            "sluice_delivery_sent",
            "bytes",
            "Bytes of requests that the backend has taken, as sent.",
            stats.sent_bytes.load(Ordering::Relaxed),
        ),
    ];
    for (name, unit, help, value) in counters {
        exposition.counter(name, unit, help, labels, value);
    }
    let trouble = stats.trouble.lock().clone();
    let gauges = [
        ("sluice_delivery_in_flight_requests", "Requests in flight.", stats.in_flight.load(Ordering::Relaxed) as f64),
        (
            "sluice_delivery_concurrency_limit",
            "Requests that may be in flight now.",
            stats.concurrency_limit.load(Ordering::Relaxed) as f64,
        ),
        (
            "sluice_delivery_concurrency_max",
            "Requests that may ever be in flight (num_consumers).",
            concurrency_max as f64,
        ),
        (
            "sluice_delivery_waiting_requests",
            "Requests that wait for their retry.",
            stats.waiting.load(Ordering::Relaxed) as f64,
        ),
        (
            "sluice_delivery_held",
            "1 while the delivery waits for a configuration to be mended.",
            f64::from(u8::from(trouble.as_ref().is_some_and(|trouble| trouble.held))),
        ),
        (
            "sluice_delivery_out_of_order",
            "1 while the backend takes nothing.",
            f64::from(u8::from(trouble.is_some_and(|trouble| !trouble.held))),
        ),
        ("sluice_delivery_dead_letters", "Dead letters that are kept.", letters.letters as f64),
    ];
    for (name, help, value) in gauges {
        exposition.gauge(name, "", help, labels, value);
    }
}

/// The newest dead letters of all deliveries, one line each.
pub(crate) fn dead_letters_text<'a>(deliveries: impl Iterator<Item = &'a Delivery>) -> String {
    let mut text = String::new();
    for delivery in deliveries {
        let totals = delivery.dead_letters.totals();
        if totals.letters == 0 && totals.evicted_items == 0 {
            continue;
        }
        let told = delivery.dead_letters.obituaries(20);
        text.push_str(&format!(
            "{}: {} items in {} letters ({} bytes), {} items gave way to newer ones\n",
            delivery.id, told.items, totals.letters, totals.bytes, totals.evicted_items
        ));
        for letter in told.newest {
            let age = SystemTime::now().duration_since(letter.at).unwrap_or_default().as_secs();
            text.push_str(&format!("  {age} s ago, {} items: {}\n", letter.items, letter.reason));
        }
    }
    text
}
