//! The receiver's rows of `/metrics`.

use std::sync::atomic::Ordering;

use sluice_net::server::ServerCounters;
use sluice_otlp::Signal;
use sluice_telemetry::exposition::Exposition;

use super::{Counters, RefusedReason, SignalCounters, Transport};
use crate::ReceiverCounters;

impl ReceiverCounters for Counters {
    fn write(&self, receiver: &str, exposition: &mut Exposition<'_>) {
        connections(exposition, receiver, Transport::Grpc, &self.grpc_connections);
        connections(exposition, receiver, Transport::Http, &self.http_connections);
        for signal in Signal::ALL {
            for transport in Transport::ALL {
                requests(exposition, receiver, signal, transport, self.requests.of(signal, transport));
            }
        }
    }
}

/// Connections of one port.
fn connections(exposition: &mut Exposition<'_>, id: &str, transport: Transport, counters: &ServerCounters) {
    let labels = [("receiver", id), ("transport", transport.as_str())];
    let open = counters.open.load(Ordering::Relaxed) as f64;
    exposition.gauge("sluice_receiver_open_connections", "", "Connections that are open.", &labels, open);
    let ended = [
        ("accepted", &counters.accepted),
        ("refused", &counters.refused),
        ("accept_error", &counters.accept_errors),
        ("tls_failure", &counters.tls_failures),
        ("handshake_timeout", &counters.handshake_timeouts),
        ("aged", &counters.aged),
        ("idled", &counters.idled),
        ("failed", &counters.failed),
        ("cut_off", &counters.cut_off),
    ];
    for (event, counter) in ended {
        let labels = [labels[0], labels[1], ("event", event)];
        let help = "What happened to connections.";
        exposition.counter("sluice_receiver_connections", "", help, &labels, counter.load(Ordering::Relaxed));
    }
}

/// What was accepted and refused of one signal over one transport.
fn requests(exposition: &mut Exposition<'_>, id: &str, signal: Signal, transport: Transport, cell: &SignalCounters) {
    let labels = [("receiver", id), ("transport", transport.as_str())];
    let accepted = cell.accepted_items.load(Ordering::Relaxed);
    let help = "Items that were accepted.";
    exposition.counter(&by_signal("otelcol_receiver_accepted", signal), "", help, &labels, accepted);
    let refused = cell.refused_items.load(Ordering::Relaxed);
    let help = "Items of requests that were refused after they had been read. Those refused unread are requests in sluice_receiver_refused_requests.";
    exposition.counter(&by_signal("otelcol_receiver_refused", signal), "", help, &labels, refused);
    let labels = [labels[0], labels[1], ("signal", signal.as_str())];
    let requests = cell.accepted_requests.load(Ordering::Relaxed);
    exposition.counter("sluice_receiver_accepted_requests", "", "Requests that were accepted.", &labels, requests);
    let bytes = cell.accepted_bytes.load(Ordering::Relaxed);
    exposition.counter("sluice_receiver_accepted", "bytes", "Bytes of accepted requests, as sent.", &labels, bytes);
    for reason in RefusedReason::ALL {
        let labels = [labels[0], labels[1], labels[2], ("reason", reason.as_str())];
        let help = "Requests that were refused, read or not.";
        let refused = cell.refused_requests(reason);
        exposition.counter("sluice_receiver_refused_requests", "", help, &labels, refused);
    }
}

/// Names that depend on the signal: the exposition wants them whole.
fn by_signal(prefix: &str, signal: Signal) -> String {
    format!("{prefix}_{}", signal.items_name())
}
