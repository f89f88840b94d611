use std::time::Duration;

use sluice_config::Fields;
use sluice_net::auth::client::read_authenticator;
use sluice_net::client::{Origin, UrlError, read_headers};
use sluice_net::tls::ClientTlsOptions;
use sluice_prometheus::{CustomBuckets, Settings, Version};

use crate::client_options::{ClientOptions, declare_unsupported};
use crate::connections::Connections;
use crate::sending::{QueueConfig, Sending};
use crate::translation;

const TIMEOUT: Duration = Duration::from_secs(5);
const BATCH_LIMIT_BYTES: u64 = 3_000_000;

/// Headers that the protocol sets.
pub(super) const RESERVED: [&str; 4] =
    ["content-encoding", "content-type", "user-agent", "x-prometheus-remote-write-version"];

#[derive(Clone)]
pub(super) struct RemoteWriteConfig {
    pub url: String,
    pub settings: Settings,
    pub client: ClientOptions,
    pub connections: Connections,
    /// Request metadata that becomes headers, in lower case.
    pub metadata_keys: Vec<String>,
}

/// The options of confighttp.
struct Http {
    url: String,
    client: ClientOptions,
    connections: Connections,
}

impl RemoteWriteConfig {
    pub(super) fn read(fields: &mut Fields<'_>) -> RemoteWriteConfig {
        let is_nested = fields.is_present("http");
        for key in ["endpoint", "headers", "tls", "auth", "proxy_url"] {
            if is_nested && fields.is_given(key) {
                fields.warn_at(key, "has no effect beside `http`, which has the same options");
            }
        }
        let flat = read_http(fields, !is_nested);
        let doc = "The options from `endpoint` to `middlewares`, as the Collector spells them \
                   since 0.158. They replace those beside it.";
        let http = fields.section("http", doc, |fields| read_http(fields, true)).unwrap_or(flat);
        let Http { url, mut client, connections } = http;
        let doc = "Larger requests are split. It bounds the message before compression.";
        let range = 1024..=u64::from(u32::MAX);
        let bytes = fields.size("max_batch_size_bytes", BATCH_LIMIT_BYTES, range, doc);
        client.max_request_bytes = bytes as usize;
        client.sending = read_sending(fields);
        let settings = read_settings(fields, client.max_request_bytes);
        let doc = "Names of request metadata whose values are sent as headers.";
        let keys = fields.string_list("include_metadata_keys", &[], doc);
        let metadata_keys: Vec<String> = keys.iter().map(|key| key.to_ascii_lowercase()).collect();
        if metadata_keys.iter().any(|key| RESERVED.contains(&&**key)) {
            fields.error_at("include_metadata_keys", "has a header that remote write itself sets");
        }
        let log = "the log does this: telemetry that waits for the backend is in \
                   `buffer.directory` or the directory of `file_storage`";
        fields.no_effect("wal", log);
        RemoteWriteConfig { url, settings, client, connections, metadata_keys }
    }
}

fn read_http(fields: &mut Fields<'_>, is_needed: bool) -> Http {
    let doc = "URL to which requests are sent, as `https://host/api/v1/write`.";
    let url = fields.string("endpoint", "", doc);
    if url.is_empty() && is_needed {
        fields.error_missing("endpoint");
    }
    if let Some(Err(error)) = Some(&url).filter(|url| !url.is_empty()).map(|url| Origin::of(url)) {
        fields.error_at("endpoint", &format!("cannot be used: {error}"));
        if error == UrlError::Credentials {
            fields.hide("endpoint");
        }
    }
    let snappy = [("snappy", ()), ("", ())];
    fields.choice("compression", (), &snappy, "The only compression that remote write has.");
    fields.no_effect("compression_params", "snappy has no levels");
    let client = ClientOptions {
        timeout: ClientOptions::read_timeout(fields, TIMEOUT),
        compression_level: None,
        tls: ClientTlsOptions::read(fields),
        headers: read_headers(fields),
        authenticator: read_authenticator(fields),
        max_request_bytes: BATCH_LIMIT_BYTES as usize,
        sending: Sending::default(),
        is_idempotent: false,
    };
    let connections = Connections::read(fields);
    connections.check(fields, "endpoint", &url);
    fields.not_yet("cookies", "cookies of the backend");
    declare_unsupported(fields);
    Http { url, client, connections }
}

fn read_sending(fields: &mut Fields<'_>) -> Sending {
    let retry = Sending::read_retries(fields);
    let doc = "Send one request at a time, and none before one that is to be sent again: samples \
               of a series arrive in the order of their times, without which Prometheus refuses \
               them. If false, several are in flight: for backends that take samples out of order. \
               (Sluice's own option.)";
    let in_order = fields.boolean("in_order", true, doc);
    let doc = "The Collector's queue.";
    let queue = fields.section_or_default("remote_write_queue", doc, |fields| {
        let mut queue = QueueConfig::default();
        let doc = "If false, senders get their answer after delivery, as with `buffer.ack: \
                   delivered`. This applies where the policy is `backpressure`.";
        queue.is_disabled = !fields.boolean("enabled", true, doc);
        fields.no_effect("queue_size", "the limits of `buffer` apply, in bytes");
        let doc = "With `in_order: false`: maximum number of requests in flight. Unset: Sluice \
                   finds the best number by measuring.";
        let consumers: Option<usize> = fields.optional_integer("num_consumers", 0..=10_000, doc);
        if consumers.is_some_and(|number| number > 1) && in_order {
            let why = "has no effect: one request at a time keeps samples in order; `in_order: \
                       false` lifts that";
            fields.warn_at("num_consumers", why);
        }
        queue.num_consumers = consumers.filter(|number| *number > 0);
        queue
    });
    let why = "parts of a batch are requests as others: see `in_order`";
    fields.no_effect("max_batch_request_parallelism", why);
    Sending { retry, queue, in_order }
}

fn read_settings(fields: &mut Fields<'_>, limit_bytes: usize) -> Settings {
    let messages =
        [("prometheus.WriteRequest", Version::V1), ("io.prometheus.write.v2.Request", Version::V2)];
    let doc = "Message to send: of remote write 1.0 or of 2.0, with metadata and start times.";
    let version = fields.choice("protobuf_message", Version::V1, &messages, doc);
    let namespace = translation::namespace(fields);
    let strategy = translation::strategy(fields);
    if version == Version::V1 && !strategy.escapes() {
        let message = "needs `protobuf_message: io.prometheus.write.v2.Request`: remote write 1.0 \
                       has no such names";
        fields.error_at("translation_strategy", message);
    }
    let doc = "Labels of every series that has none of the same name.";
    let external_labels = translation::labels(fields, "external_labels", strategy, doc);
    let resource_labels = translation::resource_labels(fields);
    let doc = "The series `target_info`.";
    let target_info = fields.section_or_default("target_info", doc, |fields| {
        let doc = "Write a series `target_info` with the attributes of each resource.";
        fields.boolean("enabled", true, doc)
    });
    let doc = "Leave out the labels `otel_scope_…`.";
    let scope_info = !fields.boolean("disable_scope_info", false, doc);
    let doc = "Send types, units and descriptions of metrics. In remote write 2.0 every series has \
               them.";
    let send_metadata = fields.boolean("send_metadata", false, doc);
    let doc = "Send histograms with explicit buckets as native histograms with custom buckets.";
    let to_native = fields.boolean("convert_explicit_histograms_to_nhcb", false, doc);
    let doc = "With `convert_explicit_histograms_to_nhcb`: send the series `_bucket`, `_sum` and \
               `_count` too.";
    let keep_classic = fields.boolean("keep_classic_histograms", false, doc);
    if keep_classic && !to_native {
        let why = "has no effect without `convert_explicit_histograms_to_nhcb`";
        fields.warn_at("keep_classic_histograms", why);
    }
    let why = "the Collector has removed it: remote write 2.0 has start times";
    fields.no_effect("export_created_metric", why);
    let custom_buckets = match (to_native, keep_classic) {
        (false, _) => CustomBuckets::Classic,
        (true, false) => CustomBuckets::Native,
        (true, true) => CustomBuckets::Both,
    };
    Settings {
        version,
        namespace,
        strategy,
        external_labels,
        resource_labels,
        target_info,
        scope_info,
        send_metadata,
        custom_buckets,
        limit_bytes,
        ..Settings::default()
    }
}
