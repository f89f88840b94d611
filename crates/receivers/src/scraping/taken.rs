//! Requests that the engine took, and those that it did not: one or more a scrape.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use sluice_otlp::Signal;
use sluice_telemetry::exposition::Series;
use sluice_telemetry::table::Number;

use super::refused::Refused;
use crate::untold::Untold;

const TRANSPORT: &str = "http";

/// Counters of one receiver, which grow only. Each of the last four writes the series of a metric.
#[derive(Default)]
pub(crate) struct Taken {
    accepted_requests: AtomicU64,
    accepted_items: AtomicU64,
    refused_requests: [AtomicU64; Refused::ALL.len()],
    refused_items: AtomicU64,
    untold: [Untold; Refused::ALL.len()],
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

fn items(series: &mut Series<'_, '_>, counter: &AtomicU64) {
    series.add_items(Signal::Metrics.items_name(), &[TRANSPORT], counter.value());
}

impl Taken {
    pub(crate) fn accept(&self, items: u32) {
        add(&self.accepted_requests, 1);
        add(&self.accepted_items, u64::from(items));
    }

    /// Counts what the engine does not take, and logs such now and then.
    pub(crate) fn refuse(&self, receiver: &str, items: u32, refused: &Refused) {
        let Refused { kind, message } = refused;
        add(&self.refused_requests[*kind], 1);
        add(&self.refused_items, u64::from(items));
        if let Some(requests) = self.untold[*kind].count(Instant::now()) {
            let (reason, remedy) = Refused::ALL[*kind];
            tracing::warn!(receiver, requests, reason, why = message, "metrics are lost: {remedy}");
        }
    }

    pub(crate) fn accepted_items(&self, series: &mut Series<'_, '_>) {
        items(series, &self.accepted_items);
    }

    pub(crate) fn refused_items(&self, series: &mut Series<'_, '_>) {
        items(series, &self.refused_items);
    }

    pub(crate) fn accepted_requests(&self, series: &mut Series<'_, '_>) {
        series.add(&[TRANSPORT, Signal::Metrics.as_str()], self.accepted_requests.value());
    }

    pub(crate) fn refused_requests(&self, series: &mut Series<'_, '_>) {
        for ((reason, _), count) in Refused::ALL.iter().zip(&self.refused_requests) {
            series.add(&[TRANSPORT, Signal::Metrics.as_str(), reason], count.value());
        }
    }
}
