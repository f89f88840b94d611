//! Counters of accepted and refused messages, and the receiver's metrics. They only grow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_net::server::ServerCounters;
use sluice_otlp::Signal;
use sluice_telemetry::exposition::{Exposition, Series};
use sluice_telemetry::row;
use sluice_telemetry::table::{Number, Table};

use super::batch::Piece;
use super::refused::{REMEDIES, Refused};
use crate::receiver::ReceiverCounters;
use crate::refused::{Refusals, remedy};

const TRANSPORT: &str = "forward";

#[derive(Default)]
pub(super) struct Counters {
    accepted_requests: AtomicU64,
    accepted_items: AtomicU64,
    accepted_bytes: AtomicU64,
    repaired_strings: AtomicU64,
    acknowledged_chunks: AtomicU64,
    refusals: Refusals,
    pub connections: Arc<ServerCounters>,
}

impl Counters {
    pub(super) fn count_accepted(&self, accepted: &Piece) {
        let add = |counter: &AtomicU64, number| counter.fetch_add(number, Ordering::Relaxed);
        add(&self.accepted_requests, 1);
        add(&self.accepted_items, u64::from(accepted.items));
        add(&self.accepted_bytes, accepted.len_bytes as u64);
        add(&self.repaired_strings, accepted.repaired_strings);
    }

    pub(super) fn count_acknowledged(&self, chunks: u64) {
        self.acknowledged_chunks.fetch_add(chunks, Ordering::Relaxed);
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
                why = message,
                "refuses messages: {}",
                remedy(REMEDIES, *reason)
            );
        }
    }
}

impl ReceiverCounters for Counters {
    fn write(&self, receiver: &str, exposition: &mut Exposition<'_>) {
        exposition.write(&METRICS, &[receiver], self);
    }
}

fn items(series: &mut Series<'_, '_>, counter: &AtomicU64) {
    series.add_items(Signal::Logs.items_name(), &[TRANSPORT], counter.value());
}

fn logs(series: &mut Series<'_, '_>, counter: &AtomicU64) {
    series.add(&[TRANSPORT, Signal::Logs.as_str()], counter.value());
}

fn refused(it: &Counters, series: &mut Series<'_, '_>) {
    for (reason, _) in REMEDIES {
        let count = it.refusals.requests(*reason).value();
        series.add(&[TRANSPORT, Signal::Logs.as_str(), reason.as_str()], count);
    }
}

pub(super) const METRICS: Table<Counters> = Table {
    title: "Receiver fluentforward",
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
            |it: &Counters, series| logs(series, &it.accepted_requests),
            "Requests that were accepted. Small messages that arrive together are one request."),
        row!(Counter "sluice_receiver_accepted" by ["transport", "signal"] in "bytes",
            |it: &Counters, series| logs(series, &it.accepted_bytes),
            "Bytes of accepted requests, before decompression."),
        row!(Counter "sluice_receiver_refused_requests" by ["transport", "signal", "reason"],
            refused, "All refused requests, whether or not they were read."),
        row!(Counter "sluice_receiver_acknowledged_chunks" by ["transport"],
            |it: &Counters, series| series.add(&[TRANSPORT], it.acknowledged_chunks.value()),
            "Chunks that were acknowledged."),
        row!(Counter "sluice_receiver_repaired_strings" by ["transport", "signal"],
            |it: &Counters, series| logs(series, &it.repaired_strings),
            "Strings that were not UTF-8: each byte at fault was replaced by `?`."),
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
