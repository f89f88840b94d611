//! Log lines that are pushed as well as written: each goes into a bounded queue for each processor.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tracing::{Event, Span, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::otlp::logs;

/// By which the span is known that all work of sending own telemetry happens in.
pub(super) const PUSH_TARGET: &str = "sluice_own_telemetry";

/// Lines in this span are written, and not pushed: they would cause others without end.
pub fn push_span() -> Span {
    tracing::error_span!(target: PUSH_TARGET, "own_telemetry")
}

/// Records that wait to be sent. Never makes a thread that logs wait.
pub struct LogQueue {
    records_max: usize,
    bytes_max: usize,
    /// As many wake the processor.
    enough: usize,
    waiting: Mutex<Waiting>,
    dropped: AtomicU64,
    /// There is a first record.
    pub first: Notify,
    /// There are enough.
    pub full: Notify,
}

#[derive(Default)]
struct Waiting {
    records: VecDeque<Arc<[u8]>>,
    bytes: usize,
}

impl LogQueue {
    pub fn new(records_max: usize, bytes_max: usize, enough: usize) -> LogQueue {
        LogQueue {
            records_max,
            bytes_max,
            enough,
            waiting: Mutex::default(),
            dropped: AtomicU64::new(0),
            first: Notify::new(),
            full: Notify::new(),
        }
    }

    /// Drops the oldest if there is no room.
    fn push(&self, record: Arc<[u8]>) {
        let mut waiting = self.waiting.lock();
        waiting.bytes += record.len();
        waiting.records.push_back(record);
        while waiting.records.len() > self.records_max || waiting.bytes > self.bytes_max {
            waiting.pop();
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        let count = waiting.records.len();
        drop(waiting);
        if count == 1 {
            self.first.notify_one();
        }
        if count >= self.enough {
            self.full.notify_one();
        }
    }

    /// The oldest records, at most this many.
    pub fn take(&self, most: usize) -> Vec<Arc<[u8]>> {
        let mut waiting = self.waiting.lock();
        std::iter::from_fn(|| waiting.pop()).take(most).collect()
    }

    /// Takes back records that could not be sent. They are the oldest: those without room are gone.
    pub fn put_back(&self, records: Vec<Arc<[u8]>>) {
        let mut waiting = self.waiting.lock();
        for record in records.into_iter().rev() {
            let bytes = waiting.bytes + record.len();
            if waiting.records.len() >= self.records_max || bytes > self.bytes_max {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            waiting.bytes = bytes;
            waiting.records.push_front(record);
        }
    }

    pub fn len(&self) -> usize {
        self.waiting.lock().records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records that gave way to newer ones.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Waiting {
    fn pop(&mut self) -> Option<Arc<[u8]>> {
        let record = self.records.pop_front()?;
        self.bytes -= record.len();
        Some(record)
    }
}

/// The queues that get every line.
#[derive(Default)]
pub struct LogTap {
    queues: RwLock<Vec<Arc<LogQueue>>>,
}

impl LogTap {
    pub fn add(&self, queue: Arc<LogQueue>) {
        self.queues.write().push(queue);
    }

    pub fn remove(&self, queue: &Arc<LogQueue>) {
        self.queues.write().retain(|other| !Arc::ptr_eq(other, queue));
    }
}

pub(super) struct TapLayer(pub(super) Arc<LogTap>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for TapLayer {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let queues = self.0.queues.read();
        if queues.is_empty() {
            return;
        }
        let mut spans = context.event_scope(event).into_iter().flatten();
        if spans.any(|span| span.metadata().target() == PUSH_TARGET) {
            return;
        }
        let record: Arc<[u8]> = logs::record(event, SystemTime::now()).into();
        queues.iter().for_each(|queue| queue.push(record.clone()));
    }
}

#[cfg(test)]
mod tests;
