//! Metrics of processors that change data. `batch` and `memory_limiter` are settings of deliveries
//! and of the whole process.

use sluice_telemetry::row;
use sluice_telemetry::table::Table;

use crate::steps::StepCounters as Sample;

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
