//! From the Collector's options for sending and batching to the policy of a delivery.

use std::time::Duration;

use sluice_exporters::BatchItems;
use sluice_exporters::sending::{BatchConfig, RetryConfig, Sending, Sizer};
use sluice_flow::dispatch::{
    Backoff, BatchPolicy, ConcurrencyLimits, DispatchPolicy, RetryPolicy, Trigger,
};
use sluice_processors::BatchLimits;

/// A batch of this many bytes is worth a request: a larger one saves next to nothing.
const FULL_BYTES: usize = 128 * 1024;
/// A configured batch may grow to this size, if its item counts say so.
const FULL_BYTES_CONFIGURED: usize = 1024 * 1024;

/// Pauses between retries are not configured shorter than this: a backend that refuses nearly all
/// requests would get many times its load.
const PAUSE_LEAST: Duration = Duration::from_millis(100);

/// Groups of request metadata that are gathered at a time, as in the Collector.
const MAX_GROUPS: usize = 1000;

/// Properties of a delivery that follow from the shape of the pipelines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// Senders wait until this delivery has delivered, whatever the disk does.
    pub senders_wait: bool,
    /// Senders may be answered by this delivery: batches do not wait for company for long.
    pub lingers: bool,
    /// They are answered by this delivery alone: a refusal can be handed back.
    pub is_sole: bool,
    pub linger: Duration,
    /// The largest request that the backend takes, in bytes.
    pub request_limit_bytes: usize,
    /// Sizes in items, if the exporter has a preference.
    pub items: Option<BatchItems>,
}

pub(super) fn policy(
    sending: &Sending,
    batch: Option<&BatchLimits>,
    setting: Setting,
) -> DispatchPolicy {
    let mut concurrency = ConcurrencyLimits::default();
    if let Some(max) = sending.queue.num_consumers {
        concurrency = ConcurrencyLimits { initial: concurrency.initial.min(max), max };
    }
    if sending.in_order {
        concurrency = ConcurrencyLimits { initial: 1, max: 1 };
    }
    let mut batch = batching(sending.queue.batch.as_ref(), batch, setting);
    if sending.in_order && batch.full_items == 0 {
        // With one request at a time, the time of an answer has to be worth it.
        let full_bytes = batch.full_bytes.max(FULL_BYTES_CONFIGURED);
        batch.full_bytes = full_bytes.min(batch.max_bytes);
    }
    DispatchPolicy {
        batch,
        retry: retry(&sending.retry),
        concurrency,
        return_rejections: setting.senders_wait && setting.is_sole,
        in_order: sending.in_order,
        least_items: setting.items.map(|items| items.least),
    }
}

fn batching(
    queue: Option<&BatchConfig>,
    processor: Option<&BatchLimits>,
    setting: Setting,
) -> BatchPolicy {
    let limit_bytes = setting.request_limit_bytes;
    let mut policy = BatchPolicy {
        trigger: Trigger::Linger(setting.linger),
        full_items: 0,
        full_bytes: FULL_BYTES.min(limit_bytes),
        max_items: 0,
        max_bytes: limit_bytes,
        max_groups: MAX_GROUPS,
    };
    let timeout = queue.map(|it| it.flush_timeout).or(processor.map(|it| it.timeout));
    if let Some(timeout) = timeout {
        policy.full_bytes = FULL_BYTES_CONFIGURED.min(limit_bytes);
        if !setting.lingers {
            policy.trigger = Trigger::Timeout(timeout);
        }
    }
    if let Some(batch) = queue {
        match batch.sizer {
            Sizer::Bytes => {
                policy.full_bytes = (batch.min_size as usize).clamp(1, limit_bytes);
                if batch.max_size > 0 {
                    policy.max_bytes = (batch.max_size as usize).min(limit_bytes);
                }
            }
            Sizer::Items | Sizer::Requests => {
                policy.full_items = (batch.min_size as usize).max(1);
                policy.max_items = batch.max_size as usize;
            }
        }
    } else if let Some(batch) = processor {
        // As in the Collector, zero sends each request at once, whatever the timeout.
        policy.full_items = (batch.send_batch_size as usize).max(1);
        policy.max_items = batch.send_batch_max_size as usize;
        policy.max_groups = match batch.metadata_cardinality_limit {
            // Gathered units are part of the delivery's budget, and are sent when the timeout ends.
            0 => usize::MAX,
            limit => limit as usize,
        };
    }
    if let Some(BatchItems { full, most, .. }) = setting.items {
        if policy.full_items == 0 && queue.is_none() {
            (policy.full_items, policy.full_bytes) = (full, limit_bytes);
        }
        policy.max_items = if policy.max_items == 0 { most } else { policy.max_items.min(most) };
        policy.full_items = policy.full_items.min(policy.max_items);
    }
    policy
}

fn retry(config: &RetryConfig) -> RetryPolicy {
    if config.is_disabled {
        return RetryPolicy::Disabled;
    }
    let max_elapsed = config.max_elapsed_time.filter(|elapsed| !elapsed.is_zero());
    let unset = RetryConfig { max_elapsed_time: config.max_elapsed_time, ..RetryConfig::default() };
    if *config == unset && max_elapsed.is_none() {
        return RetryPolicy::default();
    }
    // The Collector's longest pause goes with the pauses that its files set.
    let longest = if config.initial_interval.is_some() { 30 } else { 5 };
    let backoff = Backoff {
        initial: config.initial_interval.unwrap_or_default().max(PAUSE_LEAST),
        max: config.max_interval.unwrap_or(Duration::from_secs(longest)).max(PAUSE_LEAST),
        multiplier: config.multiplier.unwrap_or(1.5),
        jitter: config.randomization_factor.unwrap_or(0.5),
    };
    RetryPolicy::Explicit { backoff, max_elapsed }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTING: Setting = Setting {
        senders_wait: false,
        lingers: false,
        is_sole: true,
        linger: Duration::from_millis(5),
        request_limit_bytes: 4 << 20,
        items: None,
    };

    #[test]
    fn nothing_said_about_retries_means_quick_and_endless() {
        let policy = policy(&Sending::default(), None, SETTING);
        assert!(matches!(policy.retry, RetryPolicy::Adaptive { .. }));
        assert_eq!(policy.batch.trigger, Trigger::Linger(Duration::from_millis(5)));
    }

    /// Scenario: intervals of all sizes. Guarantee: the middle of the first three pauses is the
    /// Collector's, which limits all pauses but the first, unless that is below 100 ms.
    #[test]
    fn pauses_are_as_long_as_the_collectors() {
        let pauses = |initial_ms: Option<u64>, max_ms: Option<u64>| {
            let mut sending = Sending::default();
            sending.retry.initial_interval = initial_ms.map(Duration::from_millis);
            sending.retry.max_interval = max_ms.map(Duration::from_millis);
            match policy(&sending, None, SETTING).retry {
                RetryPolicy::Explicit { backoff, .. } => {
                    [1, 2, 3].map(|failures| backoff.delay(failures, 0.5).as_millis())
                }
                _ => panic!("explicit"),
            }
        };
        assert_eq!(pauses(Some(6_000), None), [6_000, 9_000, 13_500]);
        assert_eq!(pauses(Some(60_000), None), [60_000, 30_000, 30_000]);
        assert_eq!(pauses(Some(3_000), Some(1_000)), [3_000, 1_000, 1_000]);
        assert_eq!(pauses(None, Some(0)), [100, 100, 100]);
        assert_eq!(pauses(Some(0), Some(120)), [100, 120, 120]);
    }

    #[test]
    fn what_is_said_holds() {
        let mut sending = Sending::default();
        sending.retry.initial_interval = Some(Duration::from_secs(5));
        sending.retry.max_interval = Some(Duration::from_secs(30));
        sending.retry.max_elapsed_time = Some(Duration::from_secs(300));
        sending.queue.num_consumers = Some(3);
        let policy = policy(&sending, None, SETTING);
        let RetryPolicy::Explicit { backoff, max_elapsed } = policy.retry else {
            panic!("explicit")
        };
        assert_eq!(
            (backoff.initial, backoff.max),
            (Duration::from_secs(5), Duration::from_secs(30))
        );
        assert_eq!(max_elapsed, Some(Duration::from_secs(300)));
        assert_eq!(policy.concurrency, ConcurrencyLimits { initial: 3, max: 3 });
    }

    #[test]
    fn the_timeout_of_the_batch_processor_holds_only_where_no_sender_waits() {
        let batch = BatchLimits {
            send_batch_size: 512,
            timeout: Duration::from_secs(10),
            ..Default::default()
        };
        let memory = policy(&Sending::default(), Some(&batch), SETTING).batch;
        assert_eq!(
            (memory.trigger, memory.full_items),
            (Trigger::Timeout(Duration::from_secs(10)), 512)
        );
        let waiting = Setting { senders_wait: true, lingers: true, ..SETTING };
        let delivered = policy(&Sending::default(), Some(&batch), waiting);
        assert_eq!(delivered.batch.trigger, Trigger::Linger(SETTING.linger));
        assert!(delivered.return_rejections);
        let on_demand =
            policy(&Sending::default(), Some(&batch), Setting { lingers: true, ..SETTING });
        assert_eq!(on_demand.batch.trigger, Trigger::Linger(SETTING.linger));
        assert!(!on_demand.return_rejections, "its sender may have been answered by the disk");
    }

    /// Guarantee: as in the Collector, a size of zero makes no request wait for the timeout.
    #[test]
    fn a_size_of_zero_sends_at_once() {
        let timeout = Duration::from_secs(20);
        let batch = BatchLimits { send_batch_size: 0, timeout, ..Default::default() };
        assert_eq!(policy(&Sending::default(), Some(&batch), SETTING).batch.full_items, 1);
    }

    /// Guarantee: while one request is in flight at a time, each is worth its answer's time, unless
    /// the configuration says how large batches are.
    #[test]
    fn requests_in_order_are_larger() {
        let mut sending = Sending { in_order: true, ..Sending::default() };
        let ordered = policy(&sending, None, SETTING);
        assert!(ordered.in_order);
        assert_eq!(ordered.concurrency, ConcurrencyLimits { initial: 1, max: 1 });
        assert_eq!(ordered.batch.full_bytes, FULL_BYTES_CONFIGURED);
        let small = Setting { request_limit_bytes: 10_000, ..SETTING };
        assert_eq!(policy(&sending, None, small).batch.full_bytes, 10_000);
        let batch = BatchLimits { send_batch_size: 512, ..Default::default() };
        assert_eq!(policy(&sending, Some(&batch), SETTING).batch.full_items, 512);
        sending.in_order = false;
        assert_eq!(policy(&sending, None, SETTING).batch.full_bytes, FULL_BYTES);
    }

    #[test]
    fn no_limit_of_groups_is_none() {
        for (limit, groups) in [(0, usize::MAX), (7, 7)] {
            let batch = BatchLimits { metadata_cardinality_limit: limit, ..Default::default() };
            assert_eq!(policy(&Sending::default(), Some(&batch), SETTING).batch.max_groups, groups);
        }
        assert_eq!(policy(&Sending::default(), None, SETTING).batch.max_groups, MAX_GROUPS);
    }

    /// Guarantee: an exporter's batches are as large as its backend likes them, unless the
    /// configuration has other sizes; none is larger than the backend's.
    #[test]
    fn exporters_may_count_items() {
        let items = Some(BatchItems { full: 5_000, most: 10_000, least: 100 });
        let setting = Setting { items, ..SETTING };
        let sizes = |sending: &Sending, batch: Option<&BatchLimits>| {
            let BatchPolicy { full_items, full_bytes, max_items, .. } =
                policy(sending, batch, setting).batch;
            (full_items, full_bytes, max_items)
        };
        assert_eq!(sizes(&Sending::default(), None), (5_000, 4 << 20, 10_000));
        let least = [SETTING, setting].map(|it| policy(&Sending::default(), None, it).least_items);
        assert_eq!(least, [None, Some(100)]);
        let batch = |send_batch_size, send_batch_max_size| BatchLimits {
            send_batch_size,
            send_batch_max_size,
            ..BatchLimits::default()
        };
        assert_eq!(sizes(&Sending::default(), Some(&batch(512, 0))).2, 10_000);
        assert_eq!(sizes(&Sending::default(), Some(&batch(512, 600))), (512, 1 << 20, 600));
        assert_eq!(sizes(&Sending::default(), Some(&batch(20_000, 0))).0, 10_000);
    }

    #[test]
    fn batches_never_exceed_what_the_backend_takes() {
        let small = Setting { request_limit_bytes: 10_000, ..SETTING };
        let batch = BatchLimits { send_batch_size: 100_000, ..Default::default() };
        let policy = policy(&Sending::default(), Some(&batch), small).batch;
        assert_eq!((policy.full_bytes, policy.max_bytes), (10_000, 10_000));
    }
}
