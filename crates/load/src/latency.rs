//! Latencies as quantiles of a histogram.

use std::time::Duration;

use hdrhistogram::Histogram;

/// One hour: longer latencies count as this.
const HIGHEST_US: u64 = 3_600_000_000;

pub fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_max(HIGHEST_US, 3).expect("valid bounds")
}

pub fn record(histogram: &mut Histogram<u64>, latency: Duration, count: u64) {
    let latency_us = u64::try_from(latency.as_micros()).unwrap_or(HIGHEST_US);
    histogram.saturating_record_n(latency_us.clamp(1, HIGHEST_US), count);
}

pub fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Quantiles of a latency; zero where nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    pub count: u64,
    pub min: Duration,
    pub p50: Duration,
    pub p99: Duration,
    pub p999: Duration,
    pub max: Duration,
}

impl Latency {
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let quantile = |q| Duration::from_micros(histogram.value_at_quantile(q));
        Latency {
            count: histogram.len(),
            min: Duration::from_micros(histogram.min()),
            p50: quantile(0.5),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: Duration::from_micros(histogram.max()),
        }
    }
}
