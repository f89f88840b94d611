use std::time::Duration;

use http::HeaderMap;
use sluice_config::Fields;
use sluice_net::auth::client::read_authenticator;
use sluice_net::client::{Balancer, Endpoint, Keepalive, read_headers};
use sluice_net::tls::ClientTlsSection;
use sluice_otlp::Encoding;

use crate::sending::Sending;

pub(crate) const COMPRESSIONS: [(&str, Encoding); 5] = [
    ("gzip", Encoding::Gzip),
    ("zstd", Encoding::Zstd),
    ("snappy", Encoding::Snappy),
    ("none", Encoding::Identity),
    ("", Encoding::Identity),
];

/// gRPC clients may not ping more often.
const KEEPALIVE_TIME_LEAST: Duration = Duration::from_secs(10);

/// The default limit of gRPC servers.
const REQUEST_LIMIT_BYTES: u64 = 4 * 1024 * 1024;

/// Options of `otlp`.
#[derive(Clone, Debug)]
pub struct OtlpConfig {
    /// `host:port` with or without `http://`, `https://`, `dns:///`, or `unix:/path`.
    pub endpoint: String,
    pub timeout: Duration,
    pub compression: Encoding,
    pub compression_level: Option<i32>,
    pub tls: ClientTlsSection,
    pub headers: HeaderMap,
    pub user_agent: Option<String>,
    pub authenticator: Option<String>,
    pub authority: Option<String>,
    pub keepalive: Option<Keepalive>,
    pub wait_for_ready: bool,
    pub balancer: Balancer,
    pub connections: usize,
    pub max_request_bytes: usize,
    pub sending: Sending,
}

impl OtlpConfig {
    pub fn read(fields: &mut Fields<'_>) -> OtlpConfig {
        let endpoint = fields.required_string(
            "endpoint",
            "The backend: `host:port`, `https://host:port` (TLS), `http://host:port` (no TLS), \
             `dns:///host:port` or `unix:/path`.",
        );
        if let Err(error) = Endpoint::parse(&endpoint)
            && !endpoint.is_empty()
        {
            fields.error_at("endpoint", &format!("cannot be used: {error}"));
        }
        let compression = fields.choice("compression", Encoding::Gzip, &COMPRESSIONS, "How requests are compressed.");
        let config = OtlpConfig {
            endpoint,
            timeout: fields.duration_in(
                "timeout",
                Duration::from_secs(5),
                Duration::from_millis(1)..=Duration::from_secs(3600),
                "Deadline of one request.",
            ),
            compression,
            compression_level: compression_level(fields, highest_level(compression)),
            tls: ClientTlsSection::read(fields),
            headers: read_headers(fields),
            user_agent: fields
                .optional_string("user_agent", "`user-agent` of requests.")
                .filter(|agent| !agent.is_empty()),
            authenticator: read_authenticator(fields),
            authority: fields
                .optional_string("authority", "`:authority` of requests, instead of the endpoint's host and port.")
                .filter(|authority| !authority.is_empty()),
            keepalive: keepalive(fields),
            wait_for_ready: fields.boolean(
                "wait_for_ready",
                false,
                "A request waits for a connection until its deadline, instead of failing with the first attempt.",
            ),
            balancer: fields.choice(
                "balancer_name",
                Balancer::RoundRobin,
                &[
                    ("round_robin", Balancer::RoundRobin),
                    ("pick_first", Balancer::PickFirst),
                    ("", Balancer::PickFirst),
                ],
                "`round_robin` uses all addresses of the endpoint's name in turn, `pick_first` the first that works.",
            ),
            connections: fields.integer("connections", 1, 1..=64, "Connections to each address."),
            max_request_bytes: request_limit(fields, REQUEST_LIMIT_BYTES),
            sending: Sending::read(fields),
        };
        no_effects(fields);
        config
    }
}

/// `max_request_bytes`.
pub(crate) fn request_limit(fields: &mut Fields<'_>, default: u64) -> usize {
    let limit = fields.size(
        "max_request_bytes",
        default,
        1024..=u64::from(u32::MAX),
        "Larger requests are split before they are sent. The backend's own limit is found out in any case.",
    );
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// `compression_params.level`. Unset or 0 (the Collector's "default"): the fastest level that
/// compresses well. `highest` is the compression's own; `None` if it has no levels.
pub(crate) fn compression_level(fields: &mut Fields<'_>, highest: Option<i32>) -> Option<i32> {
    fields.section_or_default("compression_params", "How hard to compress.", |fields| {
        let level = fields.optional_integer(
            "level",
            -1..=22,
            "gzip, zlib and deflate: 1 to 9, zstd: 1 to 22. Unset, 0 or -1: the fastest that compresses well.",
        );
        let level = level.filter(|level| *level > 0);
        match (level, highest) {
            (Some(_), None) => fields.warn_at("level", "has no effect: this compression has no levels"),
            (Some(level), Some(highest)) if level > highest => {
                fields.error_at("level", &format!("must be at most {highest} for this compression"));
            }
            _ => {}
        }
        level
    })
}

/// The highest level of a compression that has levels.
pub(crate) const fn highest_level(encoding: Encoding) -> Option<i32> {
    match encoding {
        Encoding::Gzip => Some(9),
        Encoding::Zstd => Some(22),
        Encoding::Identity | Encoding::Snappy => None,
    }
}

fn keepalive(fields: &mut Fields<'_>) -> Option<Keepalive> {
    fields.section(
        "keepalive",
        "HTTP/2 pings, which notice a dead backend and keep middleboxes from forgetting the connection.",
        |fields| {
            let default = Duration::from_secs(10);
            let time = fields.duration("time", default, "Between two pings; at least 10 s, as in every gRPC client.");
            Keepalive {
                time: time.max(KEEPALIVE_TIME_LEAST),
                timeout: fields.duration("timeout", default, "For the answer to a ping."),
                permit_without_stream: fields.boolean(
                    "permit_without_stream",
                    false,
                    "Ping also while no request is under way.",
                ),
            }
        },
    )
}

fn no_effects(fields: &mut Fields<'_>) {
    let buffers = "requests are written from where they lie; there is no such buffer";
    fields.no_effect("read_buffer_size", buffers);
    fields.no_effect("write_buffer_size", buffers);
    fields.not_yet("middlewares", "middleware extensions");
}
