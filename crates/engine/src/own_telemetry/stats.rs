//! Counters of one destination of own telemetry.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_otlp::Signal;
use sluice_telemetry::logging::LogQueue;

pub(crate) struct PushStats {
    pub signal: Signal,
    /// Its place under `service.telemetry`: `metrics.readers[0]`.
    pub name: String,
    pub taken_requests: AtomicU64,
    pub failed_requests: AtomicU64,
    pub refused_requests: AtomicU64,
    pub sent_items: AtomicU64,
    /// Refused by the backend, or of reports that gave way to newer ones.
    pub dropped_items: AtomicU64,
    pub waiting_reports: AtomicU64,
    /// Of a destination of log lines.
    pub lines: Option<Arc<LogQueue>>,
}

impl PushStats {
    pub(super) fn new(signal: Signal, name: String, lines: Option<Arc<LogQueue>>) -> PushStats {
        PushStats {
            signal,
            name,
            taken_requests: AtomicU64::new(0),
            failed_requests: AtomicU64::new(0),
            refused_requests: AtomicU64::new(0),
            sent_items: AtomicU64::new(0),
            dropped_items: AtomicU64::new(0),
            waiting_reports: AtomicU64::new(0),
            lines,
        }
    }

    pub(crate) fn dropped(&self) -> u64 {
        let lines = self.lines.as_ref().map_or(0, |lines| lines.dropped());
        self.dropped_items.load(Ordering::Relaxed) + lines
    }

    /// Reports or lines.
    pub(crate) fn waiting(&self) -> u64 {
        let lines = self.lines.as_ref().map_or(0, |lines| lines.len() as u64);
        self.waiting_reports.load(Ordering::Relaxed) + lines
    }
}
