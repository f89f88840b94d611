//! The outcome of a load.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::answer::{Answer, Ending};
use crate::backend::Backend;
use crate::identity::SequenceSet;
use crate::latency::{Latency, new_histogram};

/// Counters of a load while it runs. All but `requests`, `late_requests` and `retries` count items.
#[derive(Debug, Default)]
pub struct Progress {
    pub(crate) offered: AtomicU64,
    pub(crate) accepted: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) unanswered: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) late_requests: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) bytes_sent: AtomicU64,
}

impl Progress {
    /// Items acknowledged so far.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Items offered so far: sent at least once.
    pub fn offered(&self) -> u64 {
        self.offered.load(Ordering::Relaxed)
    }

    /// Items that were refused or failed so far.
    pub fn turned_away(&self) -> u64 {
        self.refused.load(Ordering::Relaxed) + self.failed.load(Ordering::Relaxed)
    }
}

/// The figures that are collected under a lock, once a request.
pub(crate) struct Collected {
    pub(crate) acknowledged: SequenceSet,
    pub(crate) endings: BTreeMap<Ending, u64>,
    pub(crate) messages: BTreeMap<Ending, String>,
    pub(crate) refusals_without_delay: u64,
    pub(crate) acknowledged_after_us: Histogram<u64>,
}

impl Default for Collected {
    fn default() -> Self {
        Collected {
            acknowledged: SequenceSet::default(),
            endings: BTreeMap::new(),
            messages: BTreeMap::new(),
            refusals_without_delay: 0,
            acknowledged_after_us: new_histogram(),
        }
    }
}

impl Collected {
    /// Counts one attempt and keeps the first message of each kind of failure.
    pub(crate) fn count(&mut self, answer: &Answer) {
        *self.endings.entry(answer.ending).or_default() += 1;
        let is_refusal = !answer.is_ok() && answer.is_retryable() && !answer.fate_is_unknown();
        self.refusals_without_delay += u64::from(is_refusal && answer.retry_delay.is_none());
        if !answer.is_ok() && !answer.message.is_empty() {
            self.messages.entry(answer.ending).or_insert_with(|| answer.message.clone());
        }
    }
}

/// The outcome of a load. Unless it says otherwise, a number counts items.
#[derive(Clone, Debug, Default)]
pub struct LoadReport {
    /// The load's number in identities.
    pub generator: u16,
    /// Closed loop: sent at least once. Open loop: due within the duration, whether they could be
    /// sent or not.
    pub offered: u64,
    /// Of `offered`, in open loop: never sent, because all streams were waiting for answers.
    pub never_sent: u64,
    /// Acknowledged, less those that a partial success rejected.
    pub accepted: u64,
    /// Rejected by partial success.
    pub rejected: u64,
    /// Turned away with a retryable status until the sender gave up.
    pub refused: u64,
    /// Turned away for good.
    pub failed: u64,
    /// Without an answer: connection lost or timed out. The server may have them.
    pub unanswered: u64,
    /// Requests that got their final answer, or none.
    pub requests: u64,
    /// Requests of an open loop that were sent more than 50 ms after their time.
    pub late_requests: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Bytes of all attempts' messages as sent.
    pub bytes_sent: u64,
    /// How attempts ended.
    pub endings: BTreeMap<Ending, u64>,
    /// The first message of each kind of failure.
    pub messages: BTreeMap<Ending, String>,
    /// Attempts that were answered "come back" without RetryInfo or Retry-After, which would say
    /// when.
    pub refusals_without_delay: u64,
    /// From first sending to acknowledgement, retries included.
    pub acknowledged_after: Latency,
    pub elapsed: Duration,
    /// Sequence numbers of the items that were acknowledged for certain (those of requests without
    /// rejections).
    pub acknowledged: SequenceSet,
    /// Reasons why it was another load than asked for.
    pub problems: Vec<Problem>,
}

/// A flaw of the run that a source of load has found, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub message: String,
    pub remedy: &'static str,
}

impl LoadReport {
    /// The outcome of a source without answers of its own: scraped targets, written files. Unknown
    /// figures are zero.
    pub(crate) fn of(
        generator: u16,
        progress: &Progress,
        acknowledged: SequenceSet,
        elapsed: Duration,
    ) -> Self {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LoadReport {
            generator,
            offered: count(&progress.offered),
            accepted: count(&progress.accepted),
            rejected: count(&progress.rejected),
            refused: count(&progress.refused),
            failed: count(&progress.failed),
            unanswered: count(&progress.unanswered),
            requests: count(&progress.requests),
            late_requests: count(&progress.late_requests),
            retries: count(&progress.retries),
            bytes_sent: count(&progress.bytes_sent),
            elapsed,
            acknowledged,
            ..LoadReport::default()
        }
    }

    /// How many items were acknowledged and are not (yet) at this backend.
    pub fn missing_at(&self, backend: &Backend) -> u64 {
        backend.with_seen(self.generator, |seen| self.acknowledged.difference_len(seen))
    }

    /// Attempts that ended in this way.
    pub fn count_of(&self, ending: Ending) -> u64 {
        self.endings.get(&ending).copied().unwrap_or(0)
    }
}
