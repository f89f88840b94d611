//! The options, with the Collector's names and meanings.

use std::time::Duration;

use sluice_config::Fields;
use sluice_flow::dispatch::Backoff;

use super::detector::Detector;
use super::detectors::{ABSENT, KINDS};
use crate::actions::Put;

/// Options of the Collector's HTTP client. It is used only where tags are read from an AWS API.
const CLIENT: [&str; 19] = [
    "endpoint",
    "proxy_url",
    "tls",
    "read_buffer_size",
    "write_buffer_size",
    "headers",
    "auth",
    "compression",
    "compression_params",
    "max_idle_conns",
    "max_idle_conns_per_host",
    "max_conns_per_host",
    "idle_conn_timeout",
    "disable_keep_alives",
    "http2_read_idle_timeout",
    "http2_ping_timeout",
    "cookies",
    "force_attempt_http2",
    "middlewares",
];
const WHY_NO_CLIENT: &str = "no detector in this build uses the HTTP client that it is for";
const WHY_ABSENT: &str = "this detector is not in this build of Sluice";

#[derive(Debug)]
pub(super) struct Options {
    /// In the order in which they count.
    pub(super) detectors: Vec<Named>,
    pub(super) on: Put,
    /// For the answer of a detector. `None`: it is waited for without an end.
    pub(super) timeout: Option<Duration>,
    pub(super) retry: Retry,
    /// Zero: what was detected at the start stays.
    pub(super) refresh_interval: Duration,
    pub(super) fail_on_missing_metadata: bool,
}

/// A detector, and its name in configurations.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: &'static str,
    pub(super) detector: Box<dyn Detector>,
}

#[derive(Clone, Debug)]
pub(super) struct Retry {
    pub(super) is_enabled: bool,
    pub(super) backoff: Backoff,
    /// For all attempts. `None`: `timeout` is for all of them.
    pub(super) max_elapsed_time: Option<Duration>,
}

impl Options {
    pub(super) fn read(fields: &mut Fields<'_>) -> Options {
        let doc = "The detectors. Of attributes that several find, those of the first count.";
        let names = fields.string_list("detectors", &["env"], doc);
        let names: Vec<&str> = names.iter().map(|name| name.trim()).collect();
        check(fields, &names);
        let doc = "Detected attributes replace those of the same key that a resource has already.";
        let on = if fields.boolean("override", true, doc) { Put::Upsert } else { Put::Insert };
        let doc = "Time for detection, with all attempts unless `retry.max_elapsed_time` is set; \
                   else for each attempt. 0: none.";
        let timeout = fields.duration("timeout", Duration::from_secs(5), doc);
        let doc = "Attempts after the first one.";
        let retry = fields.section_or_default("retry", doc, Retry::read);
        if retry.is_enabled && retry.max_elapsed_time.is_none() && timeout.is_zero() {
            let hint = "set `retry.max_elapsed_time`, or switch off `retry.enabled`";
            let message = "is 0, so that the start may wait without an end";
            fields.error_at_with_hint("timeout", message, hint);
        }
        let doc = "Detect again at this interval. While that fails, what was detected last stays. \
                   0: only at the start.";
        let refresh_interval = fields.duration("refresh_interval", Duration::ZERO, doc);
        let doc = "Whether a detector fails whose service is not there. Else it adds nothing.";
        let fail_on_missing_metadata = fields.boolean("fail_on_missing_metadata", false, doc);
        let read = KINDS.iter().map(|kind| (kind.name, kind.read(fields, &names)));
        let mut read: Vec<_> = read.collect();
        let mut detectors = Vec::new();
        for name in names {
            // One that is named twice finds the same.
            let place = read.iter().position(|(known, _)| *known == name);
            detectors.extend(place.map(|place| {
                let (name, detector) = read.swap_remove(place);
                Named { name, detector }
            }));
        }
        read_absent(fields);
        let timeout = Some(timeout).filter(|timeout| !timeout.is_zero());
        Options { detectors, on, timeout, retry, refresh_interval, fail_on_missing_metadata }
    }
}

fn check(fields: &mut Fields<'_>, names: &[&str]) {
    if names.is_empty() {
        fields.error_at("detectors", "is empty: leave it out, or write `[env]`");
    }
    for name in names {
        if *name == "k8snode" {
            fields.warn_at("detectors", "has `k8snode`, whose name is `k8s_api` now");
        }
        if KINDS.iter().any(|kind| kind.name == *name) {
            continue;
        }
        let message = match ABSENT.contains(name) {
            true => format!("has `{name}`, which is not in this build of Sluice"),
            false => format!("has `{name}`, which is no detector"),
        };
        let built: Vec<String> = KINDS.iter().map(|kind| format!("`{}`", kind.name)).collect();
        let hint = format!("the detectors in this build are {}", built.join(", "));
        fields.error_at_with_hint("detectors", &message, &hint);
    }
}

/// Options that have no effect here, and one that the Collector has no more.
fn read_absent(fields: &mut Fields<'_>) {
    let why = "the Collector has it no more: each detector has its own `resource_attributes`";
    fields.not_yet("attributes", why);
    for key in CLIENT {
        fields.no_effect(key, WHY_NO_CLIENT);
    }
    for section in ABSENT {
        fields.no_effect(section, WHY_ABSENT);
    }
}

impl Retry {
    fn read(fields: &mut Fields<'_>) -> Retry {
        let doc = "Whether there are any. Without, a detector has one attempt.";
        let is_enabled = fields.boolean("enabled", true, doc);
        let doc = "The first pause.";
        let initial_interval = fields.duration("initial_interval", Duration::from_secs(1), doc);
        let doc = "The part of each pause by which it is longer or shorter.";
        let randomization = fields.optional_float("randomization_factor", 0.5, 0.0..=1.0, doc);
        let doc = "The factor from a pause to the next.";
        let multiplier = fields.optional_float("multiplier", 2.0, 1.0..=100.0, doc);
        let doc = "The longest pause.";
        let max_interval = fields.duration("max_interval", Duration::from_secs(30), doc);
        let doc = "Time for all attempts. 0: `timeout` is.";
        let max_elapsed_time = fields.duration("max_elapsed_time", Duration::ZERO, doc);
        if is_enabled && !max_elapsed_time.is_zero() {
            let longer = [("initial_interval", initial_interval), ("max_interval", max_interval)];
            for (key, interval) in longer {
                if max_elapsed_time < interval {
                    let message = format!("is less than `{key}`");
                    fields.error_at("max_elapsed_time", &message);
                }
            }
        }
        Retry {
            is_enabled,
            backoff: Backoff {
                initial: initial_interval.min(max_interval),
                max: max_interval,
                multiplier: multiplier.unwrap_or(2.0),
                jitter: randomization.unwrap_or(0.5),
            },
            max_elapsed_time: Some(max_elapsed_time).filter(|it| !it.is_zero() && is_enabled),
        }
    }
}
