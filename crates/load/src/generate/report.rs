//! A running load with its figures so far and its early end, and the outcome of a load.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Error, Result, anyhow};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::client::{Answer, Ending};
use crate::backend::Backend;
use crate::identity::{SequenceSet, next_generator};
use crate::latency::Latency;

/// A request or a line of an open loop is late when it is sent or written this long after its time.
pub(super) const LATE_AFTER: Duration = Duration::from_millis(50);

/// The outcome of a load, in items unless said otherwise. Figures that a source lacks are zero.
#[derive(Clone, Debug, Default)]
pub struct LoadReport {
    /// The load's number in identities.
    pub generator: u16,
    /// Closed loop: sent at least once. Open loop: due within the duration, sent or not.
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
    /// Number of attempts by their ending.
    pub endings: BTreeMap<Ending, u64>,
    /// The first message of each kind of failure.
    pub messages: BTreeMap<Ending, String>,
    /// Attempts that got a retryable refusal without RetryInfo or Retry-After.
    pub refusals_without_delay: u64,
    /// Time from first sending to acknowledgement, retries included.
    pub acknowledged_after: Latency,
    /// Sequence numbers of the items of acknowledged requests without rejections.
    pub acknowledged: SequenceSet,
    /// Reasons why the load differed from the one asked for, each with a remedy.
    pub problems: Vec<(String, &'static str)>,
}

impl LoadReport {
    /// Counts one attempt and keeps the first message of each kind of failure.
    pub(super) fn count(&mut self, answer: &Answer) {
        *self.endings.entry(answer.ending).or_default() += 1;
        if answer.ending.is_ok() {
            return;
        }
        let is_refusal = answer.is_retryable() && !answer.fate_is_unknown();
        self.refusals_without_delay += u64::from(is_refusal && answer.retry_delay.is_none());
        if !answer.message.is_empty() {
            self.messages.entry(answer.ending).or_insert_with(|| answer.message.clone());
        }
    }

    /// Notes items that were due and never sent, and the reason for it where there are any.
    pub(super) fn leave_out(&mut self, items: u64, message: String, remedy: &'static str) {
        self.never_sent = items;
        self.offered += items;
        if items > 0 {
            self.problems.push((message, remedy));
        }
    }

    /// Number of acknowledged items that are not (yet) at this backend.
    pub fn missing_at(&self, backend: &Backend) -> u64 {
        let store = backend.store();
        let seen = store.seen.get(&self.generator);
        seen.map_or(self.acknowledged.len(), |seen| self.acknowledged.difference_len(seen))
    }
}

/// The figures of a load so far, and the time at which it was asked to end early.
pub(super) struct Progress {
    report: Mutex<LoadReport>,
    stopped_at: watch::Sender<Option<Instant>>,
}

impl Progress {
    pub(super) fn new() -> Arc<Progress> {
        let report = LoadReport { generator: next_generator(), ..LoadReport::default() };
        Arc::new(Progress { report: Mutex::new(report), stopped_at: watch::Sender::new(None) })
    }

    /// The figures so far, for changing them.
    pub(super) fn report(&self) -> MutexGuard<'_, LoadReport> {
        self.report.lock()
    }

    pub(super) fn stopped_at(&self) -> Option<Instant> {
        *self.stopped_at.borrow()
    }

    pub(super) async fn wait_for_stop(&self) {
        // `self` holds the sender: no error.
        let _ = self.stopped_at.subscribe().wait_for(Option::is_some).await;
    }
}

/// A running load. The files or targets that it offers stay until this is dropped.
pub struct RunningLoad {
    pub(super) progress: Arc<Progress>,
    pub(super) task: JoinHandle<Result<LoadReport>>,
    pub(super) _offered: Box<dyn Any + Send>,
}

impl RunningLoad {
    /// The figures so far. The load waits while this is held.
    pub fn report(&self) -> MutexGuard<'_, LoadReport> {
        self.progress.report()
    }

    /// Ends it early. Requests in flight still have until `grace` after the planned end.
    pub fn stop(&self) {
        self.progress.stopped_at.send_modify(|at| {
            at.get_or_insert_with(Instant::now);
        });
    }

    /// Waits for the end, once. Farms and log files end when they are stopped.
    pub async fn finish(&mut self) -> Result<LoadReport> {
        let ended = (&mut self.task).await.map_err(Error::from).and_then(|report| report);
        ended.map_err(|error| anyhow!("the load stopped before its end: {error:#}"))
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        self.stop();
    }
}
