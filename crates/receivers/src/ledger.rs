//! Points by measurement: a receiver's side of the ledger.

use sluice_flow::Tally;
use sluice_telemetry::exposition::Series;

pub(crate) const WITH_POINTS: &str = "points have come";

pub(crate) fn by_measurement(series: &mut Series<'_, '_>, tally: &Tally) {
    for (measurement, points) in tally.read().all() {
        series.add(&[measurement], points as f64);
    }
}
