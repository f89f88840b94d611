//! Metrics of pushing own telemetry.

use sluice_telemetry::exposition::Series;
use sluice_telemetry::row;
use sluice_telemetry::table::{Number, Table};

use crate::own_telemetry::stats::PushStats as Sample;

const WITH_PUSHES: &str = "own telemetry is pushed";

fn add_requests(it: &Sample, series: &mut Series<'_, '_>) {
    series.add(&["taken"], it.taken_requests.value());
    series.add(&["failed"], it.failed_requests.value());
    series.add(&["refused"], it.refused_requests.value());
}

pub(super) const PUSHES: Table<Sample> = Table {
    title: "Own telemetry",
    labels: &["destination"],
    metrics: &[
        row!(Counter "sluice_own_telemetry_sent_items" = sent_items,
            "Metric points or log records of Sluice itself that the backend has taken.")
        .only(WITH_PUSHES),
        row!(Counter "sluice_own_telemetry_dropped_items", |it: &Sample| it.dropped() as f64,
            "Metric points or log records of Sluice itself that gave way to newer ones while the \
             backend took none, or that it refused.")
        .only(WITH_PUSHES),
        row!(Counter "sluice_own_telemetry_requests" by ["outcome"], add_requests,
            "Requests with own telemetry, by outcome: taken, failed (sent again), refused (lost).")
        .only(WITH_PUSHES),
        row!(Gauge "sluice_own_telemetry_waiting", |it: &Sample| it.waiting() as f64,
            "Reports of metrics, or log records, that wait to be sent.")
        .only(WITH_PUSHES),
    ],
};
