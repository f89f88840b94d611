//! `retry_on_failure` and `sending_queue`: options of an exporter that its delivery interprets.

use std::time::Duration;

use sluice_config::Fields;

/// An exporter's options of sending. `None` everywhere means "not set": then the defaults of
/// deliveries apply, which differ from the Collector's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sending {
    pub retry: RetryConfig,
    pub queue: QueueConfig,
    /// One request at a time, each sent again before the next one.
    pub in_order: bool,
}

/// `retry_on_failure`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RetryConfig {
    pub is_disabled: bool,
    pub initial_interval: Option<Duration>,
    /// From 0 to 1: each pause is drawn from `interval × (1 ± factor)`.
    pub randomization_factor: Option<f64>,
    pub multiplier: Option<f64>,
    pub max_interval: Option<Duration>,
    /// Zero: retry for ever.
    pub max_elapsed_time: Option<Duration>,
}

/// The unit of a queue's or a batch's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sizer {
    #[default]
    Requests,
    Items,
    Bytes,
}

/// `sending_queue`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueConfig {
    pub is_disabled: bool,
    /// A ceiling on the requests in flight.
    pub num_consumers: Option<usize>,
    /// In units of `sizer`.
    pub queue_size: Option<u64>,
    pub sizer: Sizer,
    /// A full queue makes its senders wait instead of refusing them.
    pub block_on_overflow: bool,
    /// The extension whose directory the log is in.
    pub storage: Option<String>,
    /// A sender is answered when its request was delivered.
    pub wait_for_result: bool,
    pub batch: Option<BatchConfig>,
}

impl QueueConfig {
    /// The Collector has two ways to say that senders wait for the delivery.
    pub fn makes_senders_wait(&self) -> bool {
        self.is_disabled || self.wait_for_result
    }
}

/// `sending_queue.batch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchConfig {
    pub flush_timeout: Duration,
    /// In units of `sizer`: a batch of this size goes out.
    pub min_size: u64,
    /// In units of `sizer`; zero: no limit.
    pub max_size: u64,
    /// `Items` or `Bytes`.
    pub sizer: Sizer,
    /// Requests whose metadata differ in these never share a batch. Lower case.
    pub metadata_keys: Vec<String>,
}

const SIZERS: [(&str, Sizer); 3] =
    [("requests", Sizer::Requests), ("items", Sizer::Items), ("bytes", Sizer::Bytes)];
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

impl Sending {
    /// Reads both sections.
    pub fn read(fields: &mut Fields<'_>) -> Sending {
        let retry = Sending::read_retries(fields);
        let why =
            "it was experimental in the Collector and is gone there; use `sending_queue.batch`";
        fields.no_effect("batcher", why);
        Sending { retry, ..Sending::read_queue(fields) }
    }

    /// Reads `retry_on_failure` only, for exporters with a queue of another name.
    pub(crate) fn read_retries(fields: &mut Fields<'_>) -> RetryConfig {
        let doc = "Retries of failed requests. The defaults recover quickly: pauses grow from 100 \
                   ms to 5 s, and retries never end.";
        fields.section_or_default("retry_on_failure", doc, read_retry)
    }

    /// Reads `sending_queue` only, for exporters that never retry.
    pub fn read_queue(fields: &mut Fields<'_>) -> Sending {
        let doc = "Limits of the backlog and of batches.";
        let queue = fields.section_or_default("sending_queue", doc, read_queue);
        Sending { queue, ..Sending::default() }
    }
}

fn read_retry(fields: &mut Fields<'_>) -> RetryConfig {
    let any = Duration::ZERO..=LONGEST;
    let mut retry = RetryConfig::default();
    let doc = "If false, a request becomes a dead letter when it fails for the first time.";
    retry.is_disabled = !fields.boolean("enabled", true, doc);
    let doc = "Pause before the first retry. Default and minimum: 100 ms.";
    retry.initial_interval = fields.optional_duration("initial_interval", any.clone(), doc);
    let doc = "Each pause is varied at random by up to this share of it.";
    retry.randomization_factor = fields.optional_float("randomization_factor", 0.5, 0.0..=1.0, doc);
    let doc = "Factor by which each pause is longer than the one before.";
    retry.multiplier = fields.optional_float("multiplier", 1.5, 1.0..=100.0, doc);
    let doc = "Longest pause after the first, at least 100 ms. Unset: 5 s, or 30 s where \
               `initial_interval` is set.";
    retry.max_interval = fields.optional_duration("max_interval", any.clone(), doc);
    let doc = "A request that was not delivered within this time becomes a dead letter. 0 or \
               unset: never.";
    retry.max_elapsed_time = fields.optional_duration("max_elapsed_time", any, doc);
    let limit = retry.max_elapsed_time.filter(|limit| !limit.is_zero() && !retry.is_disabled);
    let pauses =
        [("initial_interval", retry.initial_interval), ("max_interval", retry.max_interval)];
    for (key, pause) in pauses {
        if limit.zip(pause).is_some_and(|(limit, pause)| limit < pause) {
            fields.error_at("max_elapsed_time", &format!("must not be less than `{key}`"));
        }
    }
    retry
}

fn read_queue(fields: &mut Fields<'_>) -> QueueConfig {
    let mut queue = QueueConfig::default();
    let doc = "If false, senders get their answer after delivery, as with `buffer.ack: delivered`. \
               This applies where the policy is `backpressure`.";
    queue.is_disabled = !fields.boolean("enabled", true, doc);
    queue.sizer = fields.choice("sizer", queue.sizer, &SIZERS, "Unit of `queue_size`.");
    let doc = "Extension `file_storage` whose directory stores waiting requests, so that they \
               survive a restart.";
    queue.storage = fields.non_empty_string("storage", doc);
    let doc = "If true, the same as `enabled: false`.";
    queue.wait_for_result = fields.boolean("wait_for_result", false, doc);
    let doc = "Limits of batches. A batch never exceeds the backend's message size.";
    let own_sizer = fields.is_given("sizer").then_some(queue.sizer);
    queue.batch = fields.section("batch", doc, |fields| read_batch(fields, own_sizer)).flatten();
    let doc =
        "Maximum number of requests in flight. Unset: Sluice finds the best number by measuring.";
    queue.num_consumers = fields.optional_integer("num_consumers", 0..=10_000, doc);
    let doc = "With `sizer: bytes`: limit of the delivery's backlog. Unset, or with another \
               `sizer`: only the limits of `buffer` apply.";
    queue.queue_size = fields.optional_integer("queue_size", 0..=u64::MAX, doc);
    let doc = "Has no effect, and causes a warning: on overflow senders always wait for up to a \
               second, and then get a retryable refusal.";
    queue.block_on_overflow = fields.boolean("block_on_overflow", false, doc);
    let has_none = [("num_consumers", queue.num_consumers == Some(0))];
    let has_none = has_none.into_iter().chain([("queue_size", queue.queue_size == Some(0))]);
    for (key, _) in has_none.filter(|(_, has_none)| *has_none && !queue.is_disabled) {
        fields.error_at(key, "must be at least 1");
    }
    queue.num_consumers = queue.num_consumers.filter(|number| *number > 0);
    queue.queue_size = queue.queue_size.filter(|size| *size > 0);
    if queue.storage.is_some() && queue.wait_for_result {
        fields.error_at("wait_for_result", "cannot be used with `storage`");
    }
    queue
}

fn read_batch(fields: &mut Fields<'_>, queue_sizer: Option<Sizer>) -> Option<BatchConfig> {
    let enabled = fields.boolean("enabled", true, "If false, this section is ignored.");
    let default = queue_sizer.filter(|sizer| *sizer != Sizer::Requests).unwrap_or(Sizer::Items);
    let doc = "Unit of `min_size` and `max_size`. Unset: the queue's `sizer`.";
    let given = fields.optional_choice("sizer", &SIZERS[1..], doc);
    let doc = "Longest time that a batch waits for more data.";
    let range = Duration::from_nanos(1)..=LONGEST;
    let flush_timeout = fields.duration_in("flush_timeout", Duration::from_millis(200), range, doc);
    let doc = "A batch is sent as soon as it has this size.";
    let min_size = fields.integer("min_size", 8192, 0..=u64::MAX, doc);
    let doc = "Larger batches are split. 0: only the backend's limit applies.";
    let max_size = fields.integer("max_size", 0, 0..=u64::MAX, doc);
    let doc = "Limits batches to requests with the same metadata.";
    let metadata_keys = fields.section_or_default("partition", doc, |fields| {
        let doc = "Names of request metadata (headers). Requests that differ in them never share a \
                   batch.";
        let keys = fields.string_list("metadata_keys", &[], doc);
        keys.into_iter().map(|key| key.to_ascii_lowercase()).collect()
    });
    if !enabled {
        return None;
    }
    if max_size > 0 && max_size < min_size {
        fields.error_at("max_size", "must not be less than `min_size`");
    }
    if queue_sizer == Some(Sizer::Requests) && given.is_none() {
        fields.error("needs a `sizer` of its own, `items` or `bytes`: the queue's is `requests`");
    }
    let sizer = given.unwrap_or(default);
    Some(BatchConfig { flush_timeout, min_size, max_size, sizer, metadata_keys })
}

#[cfg(test)]
mod tests {
    use sluice_config::read_text;

    use super::*;

    fn read(text: &str) -> (Sending, bool) {
        let (sending, diagnostics) = read_text("exporters.otlp", text, Sending::read);
        (sending, diagnostics.errors().next().is_none())
    }

    /// Scenario: nothing is configured. Guarantee: no option counts as set.
    #[test]
    fn unset_is_told_from_set() {
        let (sending, valid) = read("{}");
        assert!(valid);
        assert_eq!(sending, Sending::default());
        let (sending, valid) = read(
            "retry_on_failure: {initial_interval: 5s, max_interval: 30s, max_elapsed_time: 300s}\n\
             sending_queue: {queue_size: 512}\n",
        );
        assert!(valid);
        assert_eq!(sending.retry.max_elapsed_time, Some(Duration::from_secs(300)));
        assert_eq!(sending.retry.multiplier, None);
        assert!(
            read("retry_on_failure: {enabled: false, max_elapsed_time: 1s, max_interval: 5s}").1
        );
        assert_eq!(sending.queue.queue_size, Some(512));
        assert_eq!(sending.queue.num_consumers, None);
    }

    /// Scenario: a batch in bytes. Guarantee: the queue's sizer applies to the batch unless it has
    /// its own.
    #[test]
    fn the_batch_takes_the_queues_sizer() {
        let (sending, valid) = read("sending_queue: {sizer: bytes, batch: {max_size: 10000}}\n");
        assert!(valid);
        assert_eq!(
            sending.queue.batch.map(|batch| (batch.sizer, batch.max_size)),
            Some((Sizer::Bytes, 10_000))
        );
        let (sending, valid) = read("sending_queue: {sizer: bytes, batch: {sizer: items}}\n");
        assert!(valid);
        assert_eq!(sending.queue.batch.map(|batch| batch.sizer), Some(Sizer::Items));
    }

    #[test]
    fn a_batch_section_that_is_not_enabled_is_ignored() {
        for text in [
            "sending_queue: {sizer: requests, batch: {enabled: false}}",
            "sending_queue: {batch: {enabled: false, min_size: 10, max_size: 5}}",
            "sending_queue: {enabled: false, num_consumers: 0, queue_size: 0}",
            "sending_queue: {sizer: , batch: {enabled: false}}",
        ] {
            let (sending, valid) = read(text);
            assert!(valid && sending.queue.batch.is_none(), "{text}");
        }
    }

    /// Scenario: combinations that the Collector refuses. Guarantee: they are errors here as well.
    #[test]
    fn contradictions_are_refused() {
        for text in [
            "retry_on_failure: {max_elapsed_time: 1s, initial_interval: 5s}",
            "retry_on_failure: {max_elapsed_time: 1s, max_interval: 5s}",
            "sending_queue: {storage: file_storage, wait_for_result: true}",
            "sending_queue: {batch: {min_size: 10, max_size: 5}}",
            "sending_queue: {num_consumers: 0}",
            "sending_queue: {queue_size: 0}",
            "sending_queue: {sizer: bits}",
        ] {
            assert!(!read(text).1, "{text}");
        }
    }
}
