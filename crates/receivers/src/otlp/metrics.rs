//! What the receiver exposes of its requests and connections.

use std::sync::atomic::{AtomicU64, Ordering};

use sluice_net::server::ServerCounters;
use sluice_otlp::Signal;
use sluice_telemetry::exposition::Exposition;
use sluice_telemetry::table::{Metric, Table};

use super::{Counters, RefusedReason, SignalCounters, Transport};
use crate::ReceiverCounters;

impl ReceiverCounters for Counters {
    fn write(&self, receiver: &str, exposition: &mut Exposition<'_>) {
        exposition.write(&METRICS, &[receiver], self);
    }
}

fn load(counter: &AtomicU64) -> f64 {
    counter.load(Ordering::Relaxed) as f64
}

impl Counters {
    fn connections(&self) -> [(Transport, &ServerCounters); 2] {
        [(Transport::Grpc, &self.grpc_connections), (Transport::Http, &self.http_connections)]
    }

    fn cells(&self) -> impl Iterator<Item = (Transport, Signal, &SignalCounters)> {
        let pairs = Signal::ALL
            .into_iter()
            .flat_map(|signal| Transport::ALL.map(|transport| (transport, signal)));
        pairs.map(|(transport, signal)| (transport, signal, self.requests.of(signal, transport)))
    }
}

/// What connections are counted by.
fn events(counters: &ServerCounters) -> [(&'static str, &AtomicU64); 11] {
    [
        ("accepted", &counters.accepted),
        ("refused", &counters.refused),
        ("evicted", &counters.evicted),
        ("refused_stream", &counters.refused_streams),
        ("accept_error", &counters.accept_errors),
        ("tls_failure", &counters.tls_failures),
        ("handshake_timeout", &counters.handshake_timeouts),
        ("aged", &counters.aged),
        ("idled", &counters.idled),
        ("failed", &counters.failed),
        ("cut_off", &counters.cut_off),
    ]
}

pub(crate) const METRICS: Table<Counters> = Table {
    title: "Receiver otlp",
    labels: &["receiver"],
    metrics: &[
        Metric::counters(
            "otelcol_receiver_accepted",
            &["transport"],
            "Items that were accepted.",
            |counters: &Counters, series| {
                for (transport, signal, cell) in counters.cells() {
                    series.add_items(
                        signal.items_name(),
                        &[transport.as_str()],
                        load(&cell.accepted_items),
                    );
                }
            },
        )
        .by_items(),
        Metric::counters(
            "otelcol_receiver_refused",
            &["transport"],
            "Items of requests that were refused after they had been read. \
             Those refused unread are requests in sluice_receiver_refused_requests.",
            |counters: &Counters, series| {
                for (transport, signal, cell) in counters.cells() {
                    series.add_items(
                        signal.items_name(),
                        &[transport.as_str()],
                        load(&cell.refused_items),
                    );
                }
            },
        )
        .by_items(),
        Metric::counters(
            "sluice_receiver_accepted_requests",
            &["transport", "signal"],
            "Requests that were accepted.",
            |counters: &Counters, series| {
                for (transport, signal, cell) in counters.cells() {
                    series
                        .add(&[transport.as_str(), signal.as_str()], load(&cell.accepted_requests));
                }
            },
        ),
        Metric::counters(
            "sluice_receiver_accepted",
            &["transport", "signal"],
            "Bytes of accepted requests, as sent.",
            |counters: &Counters, series| {
                for (transport, signal, cell) in counters.cells() {
                    series.add(&[transport.as_str(), signal.as_str()], load(&cell.accepted_bytes));
                }
            },
        )
        .unit("bytes"),
        Metric::counters(
            "sluice_receiver_refused_requests",
            &["transport", "signal", "reason"],
            "Requests that were refused, read or not.",
            |counters: &Counters, series| {
                for (transport, signal, cell) in counters.cells() {
                    for reason in RefusedReason::ALL {
                        let labels = [transport.as_str(), signal.as_str(), reason.as_str()];
                        series.add(&labels, cell.refused_requests(reason) as f64);
                    }
                }
            },
        ),
        Metric::gauges(
            "sluice_receiver_open_connections",
            &["transport"],
            "Connections that are open.",
            |counters: &Counters, series| {
                for (transport, counters) in counters.connections() {
                    series.add(&[transport.as_str()], load(&counters.open));
                }
            },
        ),
        Metric::counters(
            "sluice_receiver_connections",
            &["transport", "event"],
            "What happened to connections.",
            |counters: &Counters, series| {
                for (transport, counters) in counters.connections() {
                    for (event, count) in events(counters) {
                        series.add(&[transport.as_str(), event], load(count));
                    }
                }
            },
        ),
    ],
};
