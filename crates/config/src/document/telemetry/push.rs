//! Own telemetry that is pushed over OTLP: periodic readers of metrics and processors of logs, as
//! opentelemetry-configuration has them in version 0.3, which Collectors read, and in its newest.
//! Times there are numbers of milliseconds.

use std::time::Duration;

use sluice_otlp::Signal;

use super::target::{self, PushTarget, Temporality};
use crate::fields::Fields;

/// Metrics are read and sent at this interval.
#[derive(Clone, Debug, PartialEq)]
pub struct PeriodicReader {
    pub interval: Duration,
    /// Of one request, beside the target's own.
    pub timeout: Duration,
    pub temporality: Temporality,
    pub target: PushTarget,
}

/// Log lines are sent in batches.
#[derive(Clone, Debug, PartialEq)]
pub struct LogProcessor {
    /// A record waits this long for others.
    pub delay: Duration,
    /// Of one request, beside the target's own.
    pub timeout: Duration,
    /// More records than this do not wait: the oldest are dropped.
    pub queue_max: usize,
    pub batch_max: usize,
    pub target: PushTarget,
}

const READER_INTERVAL_MS: u64 = 60_000;
const REQUEST_TIMEOUT_MS: u64 = 30_000;
const LOG_DELAY_MS: u64 = 1_000;
const LOG_QUEUE: usize = 2048;
const LOG_BATCH: usize = 512;
/// An hour, the longest that any time may be.
pub(super) const LONGEST_MS: u64 = 3_600_000;

/// `readers[].periodic`. `None`: nothing is sent, and a remark says why.
pub(super) fn read_periodic(fields: &mut Fields<'_>) -> Option<PeriodicReader> {
    let doc = "Time between two reports in milliseconds.";
    let interval_ms = fields.integer("interval", READER_INTERVAL_MS, 100..=LONGEST_MS, doc);
    let doc = "Time limit for one request in milliseconds. That of the exporter applies too.";
    let timeout_ms = fields.integer("timeout", REQUEST_TIMEOUT_MS, 0..=LONGEST_MS, doc);
    fields.no_effect("producers", "there are no metrics of other libraries");
    fields.no_effect("cardinality_limits", "the configuration bounds the number of series");
    let (target, temporality) = read_exporter(fields, Signal::Metrics)?;
    let [interval, timeout] = [interval_ms, or_longest(timeout_ms)].map(Duration::from_millis);
    Some(PeriodicReader { interval, timeout, temporality, target })
}

/// `processors[]` of logs.
pub(super) fn read_processor(fields: &mut Fields<'_>) -> Option<LogProcessor> {
    let batch = fields.section("batch", "Log lines are sent in batches.", read_batch);
    let doc = "Log lines are sent at once; those that come during a request go with the next one.";
    let simple = fields.section("simple", doc, |fields| {
        let (target, _) = read_exporter(fields, Signal::Logs)?;
        let (delay, timeout) = (Duration::ZERO, target.timeout);
        Some(LogProcessor { delay, timeout, queue_max: LOG_QUEUE, batch_max: LOG_BATCH, target })
    });
    match (batch, simple) {
        (Some(_), Some(_)) => {
            fields.error("has both `batch` and `simple`: a processor is one of them");
            None
        }
        (Some(read), None) | (None, Some(read)) => read,
        (None, None) => {
            if !fields.is_describing() {
                fields.error("must have `batch` or `simple`");
            }
            None
        }
    }
}

fn read_batch(fields: &mut Fields<'_>) -> Option<LogProcessor> {
    let doc = "Longest time in milliseconds that a line waits for others.";
    let delay_ms = fields.integer("schedule_delay", LOG_DELAY_MS, 0..=LONGEST_MS, doc);
    let doc = "Time limit for one request in milliseconds. That of the exporter applies too.";
    let timeout_ms = fields.integer("export_timeout", REQUEST_TIMEOUT_MS, 0..=LONGEST_MS, doc);
    let doc = "Most lines that wait, in at most 512 KiB. The oldest are dropped for newer ones. \
               0: the default.";
    let queue_max = fields.integer("max_queue_size", LOG_QUEUE, 0..=100_000, doc);
    let doc = "Most lines in one request; as many are sent without waiting. 0: the default.";
    let batch_max = fields.integer("max_export_batch_size", LOG_BATCH, 0..=100_000, doc);
    let (target, _) = read_exporter(fields, Signal::Logs)?;
    let or = |given: usize, default: usize| if given == 0 { default } else { given };
    let queue_max = or(queue_max, LOG_QUEUE);
    let [delay, timeout] = [delay_ms, or_longest(timeout_ms)].map(Duration::from_millis);
    let batch_max = or(batch_max, LOG_BATCH).min(queue_max);
    Some(LogProcessor { delay, timeout, queue_max, batch_max, target })
}

/// 0 means no limit in the schema.
pub(super) fn or_longest(milliseconds: u64) -> u64 {
    if milliseconds == 0 { LONGEST_MS } else { milliseconds }
}

/// The only exporter in the section `exporter`.
fn read_exporter(fields: &mut Fields<'_>, signal: Signal) -> Option<(PushTarget, Temporality)> {
    let doc = format!("The backend of Sluice's own {signal}: one of these.");
    let found = fields.section_or_default("exporter", &doc, |fields| {
        let why = match signal {
            Signal::Logs => "log lines go to `output_paths`",
            _ => "metrics are not written to the standard output: a reader `pull` serves them",
        };
        fields.no_effect("console", why);
        let given: Vec<&str> =
            target::EXPORTERS.into_iter().filter(|it| fields.is_present(it)).collect();
        if given.len() > 1 {
            let message = format!("has `{}`: there can be only one", given.join("` and `"));
            fields.error(&message);
        }
        let read = target::read_all(fields, signal);
        (read, !given.is_empty() || fields.is_present("console"))
    });
    let (read, is_any) = found;
    if !is_any && !fields.is_describing() {
        fields.error_at_with_hint(
            "exporter",
            "has no exporter",
            "give `otlp` with `protocol` and `endpoint`",
        );
    }
    read
}
