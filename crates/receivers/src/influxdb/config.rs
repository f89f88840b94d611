//! The options of the `influxdb` receiver: those of the Collector, which are `confighttp`'s, and
//! what lines may be.

use std::time::Duration;

use sluice_config::Fields;
use sluice_influx::{K6_COUNTERS, Limits, Settings};
use sluice_net::server::config::{address, answers, max_connections, or_default, or_never};
use sluice_net::server::{Address, Answers, Protocols};

use crate::otlp::SharedConfig;

const DEFAULT_LINE_BYTES: u64 = 1 << 20;

/// A body may take as long as it needs, if it makes progress.
const NO_TIME_LIMIT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

#[derive(Clone, Debug)]
pub(super) struct InfluxConfig {
    pub shared: SharedConfig,
    pub answers: Answers,
    /// The limit on a body, as sent and again after decompression. `None`: there is none.
    pub body_limit_bytes: Option<u64>,
    pub limits: Limits,
    pub settings: Settings,
}

impl InfluxConfig {
    pub(super) fn read(fields: &mut Fields<'_>) -> InfluxConfig {
        let address = address(fields, "localhost:8086");
        let mut shared = SharedConfig::read(fields, address, Protocols::Http1);
        let doc = "Largest body in bytes, before and after decompression. Larger ones are answered \
                   413, and what was read of them is kept. 0: any, since a body is taken while it \
                   is read. (The Collector's default is 20 MiB.)";
        let limit_bytes = fields.size("max_request_body_size", 0, 0..=u64::MAX, doc);
        let doc = "Largest line in bytes. A longer one is left out, and the answer says so. \
                   (Sluice's own option.)";
        let line_bytes =
            fields.size("max_line_bytes", DEFAULT_LINE_BYTES, 1024..=16 << 20, doc) as usize;
        let doc = "Measurements whose field `value` is an increment: its metric is a sum of \
                   deltas, not a gauge. The default is k6's counters. (Sluice's own option.)";
        let sums = fields.string_list("sum_measurements", &K6_COUNTERS, doc);
        let doc = "Time limit for a body to arrive, without the time in which Sluice did not read \
                   it. 0 or unset: none, but 15 s without a byte end it.";
        let body = &mut shared.body_timeouts;
        body.total = or_never(fields, "read_timeout", doc).unwrap_or(NO_TIME_LIMIT);
        body.gap = body.gap.min(body.total);
        let server = &mut shared.server;
        let doc = "Time limit for the headers of a request to arrive, from their first byte. 0 \
                   means the default.";
        server.read_header_timeout =
            or_default(fields, "read_header_timeout", server.read_header_timeout, doc);
        fields.no_effect("write_timeout", "an answer waits until all of its lines are accepted");
        shared.server.max_connections = max_connections(fields, true);
        // A write that waits outlives a reload: its end is that of the ingress.
        shared.server.drain_timeout = NO_TIME_LIMIT;
        let answers = answers(fields, &mut shared.server);
        encodings(fields);
        fields.not_yet("middlewares", "middleware extensions");
        InfluxConfig {
            shared,
            answers,
            body_limit_bytes: Some(limit_bytes).filter(|limit| *limit > 0),
            limits: Limits { line_bytes },
            settings: Settings { sums: sums.into_iter().collect() },
        }
    }

    pub(super) fn address(&self) -> &Address {
        &self.shared.address
    }
}

/// InfluxDB's clients know no other coding.
fn encodings(fields: &mut Fields<'_>) {
    let doc = "Content codings that are accepted: there is `gzip`, and it is always accepted.";
    for name in fields.string_list("compression_algorithms", &["gzip"], doc) {
        if !["gzip", "", "none", "identity"].contains(&name.as_str()) {
            let message = format!("has `{name}`, which the clients of InfluxDB do not use");
            fields.warn_at("compression_algorithms", &format!("{message}: it is not accepted"));
        }
    }
}
