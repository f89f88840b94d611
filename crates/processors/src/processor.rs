//! A processor's options, and the processor that is built from them for each signal. Nothing here
//! knows a component; options that the engine obeys itself have their types here.

use std::any::Any;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use sluice_flow::{BoxFuture, Metadata, Tally};
use sluice_otlp::{Beyond, Malformed, Signal};

/// The options of one processor.
pub enum ProcessorConfig {
    /// Ceilings of batches, which the engine makes.
    Batch(BatchLimits),
    /// The memory of the process, which the engine shares out.
    Memory(MemoryLimit),
    Edits(Build),
}

/// Makes a processor for pipelines of one signal. An error if its options do not fit the signal.
pub type Build = Box<dyn Fn(Signal) -> Result<Built, String> + Send + Sync>;

/// A processor made for one signal, and warnings about it there.
pub struct Built {
    pub processor: Box<dyn Processor>,
    /// Whole sentences for the log and for `validate`.
    pub warnings: Vec<String>,
}

/// The changed request; nothing if it stays as it is. Or it would take more memory than it may.
pub type Edited = Result<Result<Option<Bytes>, Beyond>, Malformed>;

/// The running part of a processor: see [`Processor::running`].
pub type RunningState = Arc<dyn Any + Send + Sync>;

/// The use of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub series: u64,
    pub bytes: u64,
    /// Points of series that could not be remembered. A request that comes again counts again.
    pub refused_points: u64,
}

/// The memory that a processor has from request to request: see docs/decisions/044. A request has
/// its turn from its first point until it is in the log or refused.
pub trait Remembered: Any + Send + Sync {
    /// Waits until no other request is on its way into the log.
    fn turn(&self) -> MutexGuard<'_, ()>;

    /// A point in the present turn, to which [`Remembered::undo_to`] leads back.
    fn mark(&self) -> usize;

    /// Takes back all changes of the present turn since a mark.
    fn undo_to(&self, mark: usize);

    /// Keeps the changes of the present turn for good.
    fn keep(&self);

    /// Its present size, and the points that found no room since its creation.
    fn usage(&self) -> Usage;
}

/// The side of a processor that keeps points back and gives them out by itself, as `interval`
/// does: see docs/decisions/050. What it keeps is in memory, and its senders are answered.
pub trait Emitter: Send + Sync {
    /// Ready when something may be due: at short intervals, and when data makes it so.
    fn waits(&self) -> BoxFuture<'_, ()>;

    /// Whether something is due now.
    fn is_due(&self) -> bool;

    /// In its turn: takes a request with points that are due, of about as many bytes at most, and
    /// says how many points it has. They are back if the turn is taken back.
    fn emit(&self, which: Emission, limit_bytes: usize) -> Option<(Bytes, u32)>;

    /// Whether it keeps points back from now on; if not, requests pass as they come.
    fn keeps_back(&self, is_on: bool);

    /// Points that are late and so on, since its creation.
    fn counts(&self) -> EmitterCounts;

    /// Its points by measurement, for the ledger.
    fn aggregated(&self) -> Arc<Aggregated>;
}

/// Which points an [`Emitter`] gives out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emission {
    Due,
    /// All that there are, before the processor ends.
    All,
}

/// Points that an [`Emitter`] took and made since its creation, by measurement. Requests that were
/// refused do not count.
#[derive(Debug)]
pub struct Aggregated {
    /// Points that it took out of requests.
    pub taken: Tally,
    /// Of these, the points of which others were made.
    pub replaced: Tally,
    /// Points that were made of them and given out.
    pub made: Tally,
}

/// Counters of an [`Emitter`], and its present buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmitterCounts {
    /// Times for which points are kept back now.
    pub open_buckets: u64,
    /// Points that came after their bucket was due.
    pub late_points: u64,
    /// Points that passed as they came.
    pub passed_points: u64,
    /// Series in a bucket whose quantiles were estimates.
    pub estimated: u64,
}

/// Edits one request after another. Keeps nothing between them, but for what [`Remembered`] holds.
pub trait Processor: Send + Sync {
    /// `request` is uncompressed. An error only if [`sluice_otlp::scan`] does not accept it.
    /// `limit_bytes`: of the memory that the changes and the changed request take.
    fn process(
        &self,
        signal: Signal,
        request: &Bytes,
        metadata: &Metadata,
        limit_bytes: usize,
    ) -> Edited;

    /// Names of the request metadata (lower case) that this processor reads.
    fn metadata_keys(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether this processor reads the sender's address.
    fn reads_address(&self) -> bool {
        false
    }

    /// The memory that the processor has from request to request, if any. It may then only run
    /// before the log, in the request's turn.
    fn series(&self) -> Option<Arc<dyn Remembered>> {
        None
    }

    /// Its side that gives out points by itself, if it has one. It has a memory then.
    fn emitter(&self) -> Option<Arc<dyn Emitter>> {
        None
    }

    /// Whether it leaves each request as many points of the same metrics as it has.
    fn keeps_points(&self) -> bool {
        false
    }

    /// Hash of the processor's effect: the same for a configuration, over restarts and releases.
    fn fingerprint(&self) -> u64;

    /// Whether it makes the same of a request each time, so that the result can be made again and
    /// cut at the same places. If not, it has to make the same items each time: what it says of
    /// them may differ, and what it says last is sent.
    fn is_repeatable(&self) -> bool {
        self.series().is_none()
    }

    /// Starts what it needs to run, within a tokio runtime; what runs already stays. When the
    /// future ends, requests may come. An error is the reason for which the plan cannot be applied.
    fn start(&self) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Its running part, for its successor after a reload: what it remembers, if it does.
    fn running(&self) -> Option<RunningState> {
        self.series().map(|series| series as RunningState)
    }

    /// Goes on with the running part of the processor that it replaces. `is_unchanged`: that one
    /// has the same fingerprint.
    fn take_over(&self, _running: RunningState, _is_unchanged: bool) {}
}

/// Ceilings of a batch. Zero means none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// A batch with this many items goes out at once.
    pub send_batch_size: u32,
    /// A batch goes out once its oldest item has waited this long.
    pub timeout: Duration,
    /// A batch never has more items; larger requests are split.
    pub send_batch_max_size: u32,
    /// Names of request metadata, in lower case. Requests that differ in them are batched apart.
    pub metadata_keys: Vec<String>,
    /// Combinations of their values that may be batched at a time.
    pub metadata_cardinality_limit: u32,
}

impl Default for BatchLimits {
    fn default() -> Self {
        BatchLimits {
            send_batch_size: 8192,
            timeout: Duration::from_millis(200),
            send_batch_max_size: 0,
            metadata_keys: Vec::new(),
            metadata_cardinality_limit: 1000,
        }
    }
}

/// Hard limit, and the distance below it at which refusing begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    Bytes {
        limit: u64,
        spike: u64,
    },
    /// Percentages of the memory that the process may have (the cgroup's limit, or the machine's).
    Percent {
        limit: u32,
        spike: u32,
    },
}

impl MemoryLimit {
    /// The part of the limit that is kept free for spikes if the configuration has none.
    const DEFAULT_SPIKE_PERCENT: u64 = 20;

    /// The hard and the soft limit in bytes. Refusing begins at the soft one.
    pub fn resolve(self, available_bytes: u64) -> (u64, u64) {
        let part = |percent: u32| (u128::from(available_bytes) * u128::from(percent) / 100) as u64;
        let (limit, spike) = match self {
            MemoryLimit::Bytes { limit, spike } => (limit, spike),
            MemoryLimit::Percent { limit, spike } => (part(limit), part(spike)),
        };
        let spike = if spike == 0 { limit / 100 * Self::DEFAULT_SPIKE_PERCENT } else { spike };
        (limit, limit.saturating_sub(spike))
    }
}
