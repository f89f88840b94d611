//! Metrics of processors that keep points back for a time.

use sluice_processors::EmitterCounts as Sample;
use sluice_telemetry::row;
use sluice_telemetry::table::Table;

const WITH_EMITTER: &str = "a pipeline has `interval`";

pub(super) const EMITTERS: Table<Sample> = Table {
    title: "Processors that aggregate over time",
    labels: &["processor", "otel.signal"],
    metrics: &[
        row!(Gauge "sluice_processor_open_buckets" = open_buckets,
            "Buckets of time to which points are added.")
        .only(WITH_EMITTER),
        row!(Counter "sluice_processor_late_points" = late_points,
            "Points that came after their bucket was due: they became points of their own.")
        .only(WITH_EMITTER),
        row!(Counter "sluice_processor_passed_points" = passed_points,
            "Points that it would aggregate and that passed as they came: without memory for \
             their series, without a time or a number, or from the future.")
        .only(WITH_EMITTER),
        row!(Counter "sluice_processor_estimated_series" = estimated,
            "Series in a bucket whose quantiles are estimates, because they had too many values.")
        .only(WITH_EMITTER),
    ],
};
