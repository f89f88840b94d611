//! Points by measurement: a receiver's side of the ledger.

use sluice_flow::Tally;
use sluice_influx::K6_METRICS;
use sluice_telemetry::exposition::Series;

pub(crate) const WITH_POINTS: &str = "points have come";

/// Points that the log has taken, by measurement: those of k6 have rows of their own.
pub(crate) struct Received(pub Tally);

impl Default for Received {
    fn default() -> Received {
        Received(Tally::new(&K6_METRICS))
    }
}

pub(crate) fn by_measurement(series: &mut Series<'_, '_>, received: &Received) {
    for (measurement, points) in received.0.read().all() {
        series.add(&[measurement], points as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: many other measurements come before those of k6. Guarantee: none of these counts
    /// among the others.
    #[test]
    fn measurements_of_k6_have_rows() {
        let Received(tally) = Received::default();
        (0..300).for_each(|index| tally.add(format!("m{index}").as_bytes(), 1));
        K6_METRICS.iter().for_each(|name| tally.add(name.as_bytes(), 1));
        let counts = tally.read();
        assert!(K6_METRICS.iter().all(|name| counts.of(name) == 1), "{counts:?}");
    }
}
