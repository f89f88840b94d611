//! Points by measurement: a receiver's side of the ledger.

use sluice_flow::Tally;
use sluice_telemetry::exposition::Series;

pub(crate) const WITH_POINTS: &str = "points have come";

pub(crate) fn by_measurement(series: &mut Series<'_, '_>, tally: &Tally) {
    for (measurement, points) in tally.read().all() {
        series.add(&[measurement], points as f64);
    }
}

#[cfg(test)]
mod tests {
    use sluice_flow::K6_METRICS;
    use sluice_influx::K6_COUNTERS;

    /// Guarantee: the two lists of k6's names agree.
    #[test]
    fn counters_of_k6_have_rows() {
        assert!(K6_COUNTERS.iter().all(|name| K6_METRICS.contains(name)));
    }
}
