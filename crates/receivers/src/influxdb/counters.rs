//! Counters of lines, points and requests, and the receiver's metrics. They only grow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use sluice_flow::Tally;
use sluice_net::server::ServerCounters;
use sluice_otlp::Signal;
use sluice_telemetry::exposition::{Exposition, Series};
use sluice_telemetry::row;
use sluice_telemetry::table::{Number, Table};

use super::refused::{REMEDIES, Refused};
use crate::ledger::{Received, WITH_POINTS, by_measurement};
use crate::receiver::ReceiverCounters;
use crate::refused::{Refusals, remedy};
use crate::untold::Untold;

const TRANSPORT: &str = "http";

#[derive(Default)]
pub(super) struct Counters {
    pub accepted_requests: AtomicU64,
    /// Points.
    pub accepted_items: AtomicU64,
    /// Bytes of bodies as sent, compressed or not, also of those that were refused later.
    pub accepted_bytes: AtomicU64,
    received: Received,
    pub lines: AtomicU64,
    pub faults: AtomicU64,
    pub waits: AtomicU64,
    refusals: Refusals,
    untold_faults: Untold,
    untold_unknown: Untold,
    unknown_requests: AtomicU64,
    pub connections: Arc<ServerCounters>,
}

pub(super) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

/// A measurement, and a number of its points.
pub(super) type Counted = (Arc<[u8]>, u64);

impl Counters {
    /// Counts a request that the log has taken.
    pub(super) fn note_received(&self, counted: &[Counted]) {
        counted.iter().for_each(|(measurement, points)| self.received.0.add(measurement, *points));
    }

    /// Counts a refusal, and logs such refusals now and then.
    pub(super) fn refuse(&self, receiver: &str, peer: Option<&str>, refused: &Refused) {
        let Refused { reason, message, .. } = refused;
        if let Some(requests) = self.refusals.count(refused) {
            tracing::warn!(
                receiver,
                transport = TRANSPORT,
                peer,
                requests,
                reason = reason.as_str(),
                answer = message,
                "refuses requests: {}",
                remedy(REMEDIES, *reason)
            );
        }
    }

    /// Counts lines at fault, and logs such bodies now and then.
    pub(super) fn count_faults(&self, receiver: &str, peer: Option<&str>, lines: u64, first: &str) {
        add(&self.faults, lines);
        if let Some(bodies) = self.untold_faults.count(Instant::now()) {
            tracing::warn!(
                receiver,
                peer,
                bodies,
                lines,
                first,
                "leaves out lines that are at fault: mend the senders"
            );
        }
    }

    /// Counts a request to no known path, and logs such requests now and then.
    pub(super) fn refuse_unknown(&self, receiver: &str, peer: Option<&str>, what: &str) {
        add(&self.unknown_requests, 1);
        if let Some(requests) = self.untold_unknown.count(Instant::now()) {
            tracing::warn!(
                receiver,
                peer,
                requests,
                what,
                "refuses requests that are none of InfluxDB's for writing: look at the senders' \
                 endpoint"
            );
        }
    }
}

impl ReceiverCounters for Counters {
    fn write(&self, receiver: &str, exposition: &mut Exposition<'_>) {
        exposition.write(&METRICS, &[receiver], self);
    }

    fn received(&self) -> Option<&Tally> {
        Some(&self.received.0)
    }
}

fn items(series: &mut Series<'_, '_>, counter: &AtomicU64) {
    series.add_items(Signal::Metrics.items_name(), &[TRANSPORT], counter.value());
}

fn metrics(series: &mut Series<'_, '_>, counter: &AtomicU64) {
    series.add(&[TRANSPORT, Signal::Metrics.as_str()], counter.value());
}

fn refused(it: &Counters, series: &mut Series<'_, '_>) {
    for (reason, _) in REMEDIES {
        let count = it.refusals.requests(*reason).value();
        series.add(&[TRANSPORT, Signal::Metrics.as_str(), reason.as_str()], count);
    }
}

pub(super) const METRICS: Table<Counters> = Table {
    title: "Receiver influxdb",
    labels: &["receiver"],
    metrics: &[
        row!(Counter "otelcol_receiver_accepted" by ["transport"],
            |it: &Counters, series| items(series, &it.accepted_items),
            "Items that were accepted.")
        .by_items(),
        row!(Counter "otelcol_receiver_refused" by ["transport"],
            |it: &Counters, series| items(series, &it.refusals.items),
            "Items of refused requests, if the items had been counted. Most requests are refused \
             before that: only sluice_receiver_refused_requests counts those.")
        .by_items(),
        row!(Counter "sluice_receiver_accepted_requests" by ["transport", "signal"],
            |it: &Counters, series| metrics(series, &it.accepted_requests),
            "Requests that were accepted, also those with lines at fault."),
        row!(Counter "sluice_receiver_accepted" by ["transport", "signal"] in "bytes",
            |it: &Counters, series| metrics(series, &it.accepted_bytes),
            "Bytes of accepted requests, before decompression."),
        row!(Counter "sluice_receiver_refused_requests" by ["transport", "signal", "reason"],
            refused, "All refused requests, whether or not they were read."),
        row!(Counter "sluice_ledger_received_points" by ["measurement"],
            |it: &Counters, series| by_measurement(series, &it.received),
            "Points that the log, or a processor before it, has taken, by measurement. Beyond k6's \
             own and 256 further measurements, the points of all others count as `#others`.")
        .only(WITH_POINTS),
        row!(Counter "sluice_influxdb_lines",
            |it: &Counters| it.lines.value(), "Lines that became points."),
        row!(Counter "sluice_influxdb_line_faults",
            |it: &Counters| it.faults.value(),
            "Lines that were left out because they are at fault. The sender was told."),
        row!(Counter "sluice_influxdb_waits",
            |it: &Counters| it.waits.value(),
            "How often a body was not read for some time because memory was short or deliveries \
             were behind."),
        row!(Counter "sluice_receiver_unknown_requests",
            |it: &Counters| it.unknown_requests.value(),
            "Requests to an unknown URL path, or with a wrong HTTP method."),
        row!(Gauge "sluice_receiver_open_connections" by ["transport"],
            |it: &Counters, series| series.add(&[TRANSPORT], it.connections.open.value()),
            "Open connections."),
        row!(Counter "sluice_receiver_connections" by ["transport", "event"],
            |it: &Counters, series| {
                for (event, count) in it.connections.events() {
                    series.add(&[TRANSPORT, event], count.value());
                }
            },
            "Connections by event, such as accepted, refused, evicted, tls_failure."),
    ],
};
