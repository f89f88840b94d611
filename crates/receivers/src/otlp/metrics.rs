//! What the receiver exposes of its requests and connections.

use std::sync::atomic::{AtomicU64, Ordering};

use sluice_net::server::ServerCounters;
use sluice_otlp::Signal;
use sluice_telemetry::exposition::{Exposition, Series};
use sluice_telemetry::table::{Metric, Table};

use super::counters::{Counters, SignalCounters, Transport};
use super::refusal::RefusedReason;
use crate::receiver::ReceiverCounters;

impl ReceiverCounters for Counters {
    fn write(&self, receiver: &str, exposition: &mut Exposition<'_>) {
        exposition.write(&METRICS, &[receiver], self);
    }
}

fn load(counter: &AtomicU64) -> f64 {
    counter.load(Ordering::Relaxed) as f64
}

impl Counters {
    fn each_cell(&self, mut visit: impl FnMut(&'static str, Signal, &SignalCounters)) {
        for signal in Signal::ALL {
            for transport in Transport::ALL {
                visit(transport.as_str(), signal, self.of(signal, transport));
            }
        }
    }

    fn items(&self, series: &mut Series<'_, '_>, of: fn(&SignalCounters) -> &AtomicU64) {
        self.each_cell(|transport, signal, cell| {
            series.add_items(signal.items_name(), &[transport], load(of(cell)));
        });
    }

    fn by_signal(&self, series: &mut Series<'_, '_>, of: fn(&SignalCounters) -> &AtomicU64) {
        self.each_cell(|transport, signal, cell| {
            series.add(&[transport, signal.as_str()], load(of(cell)));
        });
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
            |counters: &Counters, series| counters.items(series, |cell| &cell.accepted_items),
        )
        .by_items(),
        Metric::counters(
            "otelcol_receiver_refused",
            &["transport"],
            "Items of requests that were refused after they had been read. \
             Those refused unread are requests in sluice_receiver_refused_requests.",
            |counters: &Counters, series| counters.items(series, |cell| &cell.refused_items),
        )
        .by_items(),
        Metric::counters(
            "sluice_receiver_accepted_requests",
            &["transport", "signal"],
            "Requests that were accepted.",
            |counters: &Counters, series| {
                counters.by_signal(series, |cell| &cell.accepted_requests)
            },
        ),
        Metric::counters(
            "sluice_receiver_accepted",
            &["transport", "signal"],
            "Bytes of accepted requests, as sent.",
            |counters: &Counters, series| counters.by_signal(series, |cell| &cell.accepted_bytes),
        )
        .unit("bytes"),
        Metric::counters(
            "sluice_receiver_refused_requests",
            &["transport", "signal", "reason"],
            "Requests that were refused, read or not.",
            |counters: &Counters, series| {
                counters.each_cell(|transport, signal, cell| {
                    for reason in RefusedReason::ALL {
                        let labels = [transport, signal.as_str(), reason.as_str()];
                        series.add(&labels, cell.refused_requests(reason) as f64);
                    }
                });
            },
        ),
        Metric::gauges(
            "sluice_receiver_open_connections",
            &["transport"],
            "Connections that are open.",
            |counters: &Counters, series| {
                for transport in Transport::ALL {
                    let open = load(&counters.connections(transport).open);
                    series.add(&[transport.as_str()], open);
                }
            },
        ),
        Metric::counters(
            "sluice_receiver_connections",
            &["transport", "event"],
            "What happened to connections.",
            |counters: &Counters, series| {
                for transport in Transport::ALL {
                    for (event, count) in events(counters.connections(transport)) {
                        series.add(&[transport.as_str(), event], load(count));
                    }
                }
            },
        ),
    ],
};
