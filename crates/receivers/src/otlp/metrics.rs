//! The receiver's metrics of its requests and connections.

use std::sync::atomic::AtomicU64;

use sluice_otlp::Signal;
use sluice_telemetry::exposition::{Exposition, Series};
use sluice_telemetry::row;
use sluice_telemetry::table::{Number, Table};

use super::counters::{Counters, SignalCounters};
use crate::receiver::ReceiverCounters;

impl ReceiverCounters for Counters {
    fn write(&self, receiver: &str, exposition: &mut Exposition<'_>) {
        exposition.write(&METRICS, &[receiver], self);
    }
}

impl Counters {
    fn each_cell(&self, mut visit: impl FnMut(&'static str, Signal, &SignalCounters)) {
        for (transport, signal) in self.about.cells {
            visit(transport.as_str(), *signal, self.of(*signal, *transport));
        }
    }

    fn items(&self, series: &mut Series<'_, '_>, of: fn(&SignalCounters) -> &AtomicU64) {
        self.each_cell(|transport, signal, cell| {
            series.add_items(signal.items_name(), &[transport], of(cell).value());
        });
    }

    fn by_signal(&self, series: &mut Series<'_, '_>, of: fn(&SignalCounters) -> &AtomicU64) {
        self.each_cell(|transport, signal, cell| {
            series.add(&[transport, signal.as_str()], of(cell).value());
        });
    }

    fn refused(&self, series: &mut Series<'_, '_>) {
        self.each_cell(|transport, signal, cell| {
            for (reason, _) in self.about.remedies {
                let labels = [transport, signal.as_str(), reason.as_str()];
                series.add(&labels, cell.refused_requests(*reason) as f64);
            }
        });
    }

    fn open(&self, series: &mut Series<'_, '_>) {
        for transport in self.about.transports {
            series.add(&[transport.as_str()], self.connections(*transport).open.value());
        }
    }

    fn events(&self, series: &mut Series<'_, '_>) {
        for transport in self.about.transports {
            for (event, count) in self.connections(*transport).events() {
                series.add(&[transport.as_str(), event], count.value());
            }
        }
    }
}

pub(crate) const METRICS: Table<Counters> = Table {
    title: "Receiver otlp",
    labels: &["receiver"],
    metrics: &[
        row!(Counter "otelcol_receiver_accepted" by ["transport"],
            |it: &Counters, series| it.items(series, |cell| &cell.accepted_items),
            "Items that were accepted.")
        .by_items(),
        row!(Counter "otelcol_receiver_refused" by ["transport"],
            |it: &Counters, series| it.items(series, |cell| &cell.refused_items),
            "Items of refused requests, if the items had been counted. Most requests are refused \
             before that: only sluice_receiver_refused_requests counts those.")
        .by_items(),
        row!(Counter "sluice_receiver_accepted_requests" by ["transport", "signal"],
            |it: &Counters, series| it.by_signal(series, |cell| &cell.accepted_requests),
            "Requests that were accepted."),
        row!(Counter "sluice_receiver_accepted" by ["transport", "signal"] in "bytes",
            |it: &Counters, series| it.by_signal(series, |cell| &cell.accepted_bytes),
            "Bytes of accepted requests, before decompression."),
        row!(Counter "sluice_receiver_refused_requests" by ["transport", "signal", "reason"],
            Counters::refused, "All refused requests, whether or not they were read."),
        row!(Counter "sluice_receiver_repaired_strings" by ["transport", "signal"],
            |it: &Counters, series| it.by_signal(series, |cell| &cell.repaired_strings),
            "Strings that were not UTF-8: each byte at fault was replaced by `?`."),
        row!(Counter "sluice_receiver_unknown_requests",
            |it: &Counters| it.unknown_requests.value(),
            "Requests to an unknown gRPC method or URL path, or with a wrong HTTP method."),
        row!(Gauge "sluice_receiver_open_connections" by ["transport"],
            Counters::open, "Open connections."),
        row!(Counter "sluice_receiver_connections" by ["transport", "event"],
            Counters::events,
            "Connections by event, such as accepted, refused, evicted, tls_failure."),
    ],
};
