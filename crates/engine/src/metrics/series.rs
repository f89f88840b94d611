//! Metrics of processors that remember the series of metrics.

use sluice_processors::SeriesUsage as Sample;
use sluice_telemetry::row;
use sluice_telemetry::table::Table;

const WITH_SERIES: &str = "a pipeline has such a processor";

pub(super) const SERIES: Table<Sample> = Table {
    title: "Processors that remember series",
    labels: &["processor", "otel.signal"],
    metrics: &[
        row!(Gauge "sluice_processor_series" = series,
            "Series whose latest points it remembers; of `interval` once for each open bucket.")
        .only(WITH_SERIES),
        row!(Gauge "sluice_processor_series_memory" in "bytes" = bytes,
            "Memory of what it remembers.")
        .only(WITH_SERIES),
        row!(Counter "sluice_processor_refused_points" = refused_points,
            "Points of series for which there was no memory: they could not be converted, or with \
             `interval` passed as they came.")
        .only(WITH_SERIES),
    ],
};
