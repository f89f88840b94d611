//! The outcome of a load.

use std::collections::BTreeMap;
use std::time::Duration;

use super::answer::{Answer, Ending};
use crate::backend::Backend;
use crate::identity::SequenceSet;
use crate::latency::Latency;

/// The outcome of a load. Unless it says otherwise, a number counts items. Figures that a source
/// does not have, such as answers to written files, are zero.
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

    /// How many items were acknowledged and are not (yet) at this backend.
    pub fn missing_at(&self, backend: &Backend) -> u64 {
        backend.with_seen(self.generator, |seen| self.acknowledged.difference_len(seen))
    }

    /// Attempts that ended in this way.
    pub fn count_of(&self, ending: Ending) -> u64 {
        self.endings.get(&ending).copied().unwrap_or(0)
    }
}
