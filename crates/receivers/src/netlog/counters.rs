//! Counters of records, connections and datagrams, and the metrics of the three receivers. They
//! only grow.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_net::server::ServerCounters;
use sluice_operators::Counts;
use sluice_otlp::Signal;
use sluice_telemetry::exposition::{Exposition, Series};
use sluice_telemetry::row;
use sluice_telemetry::table::{Metric, Number, Table};

use super::kernel;
use super::refused::{REMEDIES, Refused};
use crate::receiver::ReceiverCounters;
use crate::refused::{Refusals, remedy};

#[derive(Default)]
pub(crate) struct Counters {
    /// `tcp` or `udp`.
    pub(super) transport: &'static str,
    /// The address on which datagrams come in.
    pub(super) datagrams_at: Option<SocketAddr>,
    accepted_requests: AtomicU64,
    accepted_items: AtomicU64,
    accepted_bytes: AtomicU64,
    refusals: Refusals,
    pub(super) dropped_datagrams: AtomicU64,
    pub(super) cut_records: AtomicU64,
    operator_errors: AtomicU64,
    dropped_records: AtomicU64,
    filtered_records: AtomicU64,
    incomplete_records: AtomicU64,
    pub(super) connections: Arc<ServerCounters>,
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

impl Counters {
    pub(super) fn new(transport: &'static str, datagrams_at: Option<SocketAddr>) -> Counters {
        Counters { transport, datagrams_at, ..Counters::default() }
    }

    /// `received_bytes`: as they came, of which the items are made.
    pub(super) fn count_accepted(&self, items: u32, received_bytes: usize) {
        add(&self.accepted_requests, 1);
        add(&self.accepted_items, u64::from(items));
        add(&self.accepted_bytes, received_bytes as u64);
    }

    /// Counts the events of operators since the counts before.
    pub(super) fn count_operators(&self, now: Counts, before: Counts) {
        add(&self.operator_errors, now.errors - before.errors);
        add(&self.dropped_records, now.dropped - before.dropped);
        add(&self.filtered_records, now.filtered - before.filtered);
        add(&self.incomplete_records, now.let_go - before.let_go);
    }

    /// Counts a refusal, and logs such refusals now and then.
    pub(super) fn refuse(&self, receiver: &str, peer: Option<&str>, refused: &Refused) {
        let Refused { reason, message, .. } = refused;
        if let Some(requests) = self.refusals.count(refused) {
            tracing::warn!(
                receiver,
                transport = self.transport,
                peer,
                requests,
                reason = reason.as_str(),
                why = message,
                "refuses log lines: {}",
                remedy(REMEDIES, *reason)
            );
        }
    }
}

impl ReceiverCounters for Counters {
    fn write(&self, receiver: &str, exposition: &mut Exposition<'_>) {
        exposition.write(&metrics(""), &[receiver], self);
    }
}

fn items(it: &Counters, series: &mut Series<'_, '_>, counter: &AtomicU64) {
    series.add_items(Signal::Logs.items_name(), &[it.transport], counter.value());
}

fn logs(it: &Counters, series: &mut Series<'_, '_>, counter: &AtomicU64) {
    series.add(&[it.transport, Signal::Logs.as_str()], counter.value());
}

fn refused(it: &Counters, series: &mut Series<'_, '_>) {
    for (reason, _) in REMEDIES {
        let count = it.refusals.requests(*reason).value();
        series.add(&[it.transport, Signal::Logs.as_str(), reason.as_str()], count);
    }
}

fn dropped(it: &Counters, series: &mut Series<'_, '_>) {
    let Some(address) = it.datagrams_at else { return };
    series.add(&["receiver"], it.dropped_datagrams.value());
    if let Some(count) = kernel::dropped_datagrams(address) {
        series.add(&["kernel"], count.value());
    }
}

fn connections(it: &Counters, series: &mut Series<'_, '_>) {
    for (event, count) in it.connections.events() {
        series.add(&[it.transport, event], count.value());
    }
}

/// The metrics of a receiver, under a title.
pub(crate) const fn metrics(title: &'static str) -> Table<Counters> {
    Table { title, labels: &["receiver"], metrics: METRICS }
}

const METRICS: &[Metric<Counters>] = &[
    row!(Counter "otelcol_receiver_accepted" by ["transport"],
        |it: &Counters, series| items(it, series, &it.accepted_items),
        "Items that were accepted.")
    .by_items(),
    row!(Counter "otelcol_receiver_refused" by ["transport"],
        |it: &Counters, series| items(it, series, &it.refusals.items),
        "Items that were refused for good, or not handed on before the end. They are lost.")
    .by_items(),
    row!(Counter "sluice_receiver_accepted_requests" by ["transport", "signal"],
        |it: &Counters, series| logs(it, series, &it.accepted_requests),
        "Requests that were accepted: records that came together."),
    row!(Counter "sluice_receiver_accepted" by ["transport", "signal"] in "bytes",
        |it: &Counters, series| logs(it, series, &it.accepted_bytes),
        "Bytes of which accepted records were made: as they came, or decoded to UTF-8."),
    row!(Counter "sluice_receiver_refused_requests" by ["transport", "signal", "reason"],
        refused,
        "Refusals. Records that are refused for the moment (`overloaded`) wait and are tried \
         again, except datagrams for which there is no room."),
    row!(Counter "sluice_receiver_dropped_datagrams" by ["where"], dropped,
        "Datagrams that were lost: `receiver` had no room for them while the engine made it wait, \
         or the buffer of the `kernel` was full."),
    row!(Counter "sluice_receiver_cut_records",
        |it: &Counters| it.cut_records.value(),
        "Parts that were made of records longer than `max_log_size`, or of lines that were not \
         ended in time while memory was short."),
    row!(Counter "sluice_receiver_operator_errors",
        |it: &Counters| it.operator_errors.value(),
        "Failures of operators on records."),
    row!(Counter "sluice_receiver_dropped_records",
        |it: &Counters| it.dropped_records.value(),
        "Records that were dropped as `on_error` says."),
    row!(Counter "sluice_receiver_filtered_records",
        |it: &Counters| it.filtered_records.value(),
        "Records that a `filter` dropped, or that no route of a `router` took."),
    row!(Counter "sluice_receiver_incomplete_records",
        |it: &Counters| it.incomplete_records.value(),
        "Records that left an operator before they were whole, as operators held too much."),
    row!(Gauge "sluice_receiver_open_connections" by ["transport"],
        |it: &Counters, series| series.add(&[it.transport], it.connections.open.value()),
        "Open connections."),
    row!(Counter "sluice_receiver_connections" by ["transport", "event"], connections,
        "Connections by event, such as accepted, refused, evicted, tls_failure."),
];
