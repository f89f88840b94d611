//! Metrics of processors that change data. `batch` and `memory_limiter` are settings of deliveries
//! and of the whole process.

use sluice_processors::SeriesUsage;
use sluice_telemetry::row;
use sluice_telemetry::table::Table;

use crate::steps::StepCounters as Sample;

const WITH_SERIES: &str = "a pipeline has such a processor";
const WITH_STEPS: &str = "a pipeline has such a processor";

pub(super) const PROCESSORS: Table<Sample> = Table {
    title: "Processors that change data",
    labels: &["processor", "otel.signal"],
    metrics: &[
        row!(Counter "otelcol_processor_incoming_items" = incoming,
            "Items over which the processor ran: once where pipelines share its result, and again \
             where a delivery prepares a request again.")
        .only(WITH_STEPS),
        row!(Counter "otelcol_processor_outgoing_items" = outgoing,
            "Items that it left of them.")
        .only(WITH_STEPS),
    ],
};

pub(super) const SERIES: Table<SeriesUsage> = Table {
    title: "Processors that remember series",
    labels: &["processor", "otel.signal"],
    metrics: &[
        row!(Gauge "sluice_processor_series", |it| it.series as f64,
            "Series whose latest points it remembers.")
        .only(WITH_SERIES),
        row!(Gauge "sluice_processor_series" in "bytes", |it| it.bytes as f64,
            "Memory that they take.")
        .only(WITH_SERIES),
        row!(Counter "sluice_processor_refused_points", |it| it.refused_points as f64,
            "Points of series for which there was no memory: they could not be converted.")
        .only(WITH_SERIES),
    ],
};
