//! `interval`: the points of a series become few, one for each bucket of time.
//!
//! `walk.rs` takes a request apart, `aggregate.rs` is what is known of open buckets, `write.rs`
//! makes requests of them. All of these are told the time; only this file looks at the clock.

mod aggregate;
mod cell;
mod fields;
mod numbers;
mod options;
mod parts;
mod sketch;
mod walk;
mod write;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aggregate::Aggregator;
use bytes::Bytes;
use options::Options;
use sluice_config::{ComponentKind, Kind};
use sluice_flow::{BoxFuture, Metadata};
use sluice_otlp::Signal;
use tokio::sync::Notify;

use crate::processor::{
    Aggregated, Built, Edited, Emission, Emitter, EmitterCounts, Processor, ProcessorConfig,
    Remembered, RunningState, Usage,
};
use crate::series::now_nanos;

const NAME: &str = "interval";

/// Buckets are looked at this often at the least, and at the most.
const LOOKS: [Duration; 2] = [Duration::from_millis(250), Duration::from_millis(10)];

pub(crate) const KIND: ComponentKind<ProcessorConfig> = ComponentKind::new(
    Kind {
        signals: &[Signal::Metrics],
        ..Kind::new(NAME, "Aggregates the points of series in buckets of time")
    },
    |fields| {
        let options = Arc::new(options::read(fields));
        ProcessorConfig::Edits(Box::new(move |_| {
            let processor = Box::new(Interval::new(options.clone()));
            Ok(Built { processor, warnings: Vec::new() })
        }))
    },
);

struct Interval {
    options: Arc<Options>,
    /// That of the processor that a reload replaces, once it is handed on.
    buckets: Mutex<Arc<Buckets>>,
}

/// Open buckets, for requests in turn and for the engine.
struct Buckets {
    turn: Mutex<()>,
    aggregator: Mutex<Aggregator>,
    /// Data has made something due.
    due: Notify,
    aggregated: Arc<Aggregated>,
}

impl Interval {
    fn new(options: Arc<Options>) -> Self {
        let aggregator = Aggregator::new(options.clone(), now_nanos());
        let aggregated = aggregator.aggregated.clone();
        let (turn, due) = (Mutex::default(), Notify::new());
        let buckets = Buckets { turn, aggregator: Mutex::new(aggregator), due, aggregated };
        Interval { options, buckets: Mutex::new(Arc::new(buckets)) }
    }

    fn buckets(&self) -> Arc<Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Processor for Interval {
    /// Never makes more of a request, so that no limit is needed.
    fn process(&self, _: Signal, request: &Bytes, _: &Metadata, _: usize) -> Edited {
        let buckets = self.buckets();
        let mut aggregator = buckets.lock();
        aggregator.begin(&self.options, now_nanos());
        walk::walk(request, &mut aggregator).map(Ok)
    }

    fn series(&self) -> Option<Arc<dyn Remembered>> {
        Some(self.buckets())
    }

    fn emitter(&self) -> Option<Arc<dyn Emitter>> {
        Some(self.buckets())
    }

    fn take_over(&self, running: RunningState, _: bool) {
        let Ok(buckets) = running.downcast::<Buckets>() else { return };
        *self.buckets.lock().unwrap_or_else(PoisonError::into_inner) = buckets;
    }

    fn fingerprint(&self) -> u64 {
        self.options.fingerprint(NAME)
    }
}

impl Buckets {
    fn lock(&self) -> MutexGuard<'_, Aggregator> {
        self.aggregator.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Remembered for Buckets {
    fn turn(&self) -> MutexGuard<'_, ()> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // Left by a request whose thread panicked.
        self.undo_to(0);
        turn
    }

    fn mark(&self) -> usize {
        self.lock().mark()
    }

    fn undo_to(&self, mark: usize) {
        self.lock().undo_to(mark);
    }

    fn keep(&self) {
        if self.lock().keep() {
            self.due.notify_one();
        }
    }

    fn usage(&self) -> Usage {
        let aggregator = self.lock();
        let (series, bytes) = aggregator.usage();
        let refused_points = aggregator.counts.refused;
        Usage { series: series as u64, bytes: bytes as u64, refused_points }
    }
}

impl Emitter for Buckets {
    fn waits(&self) -> BoxFuture<'_, ()> {
        let interval = Duration::from_nanos(self.lock().options().interval);
        let [most, least] = LOOKS;
        let look = (interval / 4).clamp(least, most);
        Box::pin(async move {
            let _ = tokio::time::timeout(look, self.due.notified()).await;
        })
    }

    fn is_due(&self) -> bool {
        self.lock().is_due(now_nanos())
    }

    fn emit(&self, which: Emission, limit_bytes: usize) -> Option<(Bytes, u32)> {
        let mut aggregator = self.lock();
        match which {
            Emission::Due => aggregator.seal(now_nanos()),
            Emission::All => aggregator.seal_all(),
        }
        aggregator.take(limit_bytes)
    }

    fn keeps_back(&self, is_on: bool) {
        self.lock().is_ending = !is_on;
    }

    fn counts(&self) -> EmitterCounts {
        let aggregator = self.lock();
        let counts = aggregator.counts;
        EmitterCounts {
            open_buckets: aggregator.open_buckets() as u64,
            late_points: counts.late,
            passed_points: counts.passed + counts.refused,
            estimated: counts.estimated,
        }
    }

    fn aggregated(&self) -> Arc<Aggregated> {
        self.aggregated.clone()
    }
}

#[cfg(test)]
mod tests;
