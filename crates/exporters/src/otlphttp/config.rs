use std::time::Duration;

use http::HeaderMap;
use sluice_config::Fields;
use sluice_net::auth::client::read_authenticator;
use sluice_net::client::{Origin, read_headers};
use sluice_net::tls::ClientTlsSection;
use sluice_otlp::{Encoding, Signal};

use crate::otlp::{compression_level, highest_level, request_limit};
use crate::sending::Sending;

/// The default limit of the Collector's HTTP receiver.
const REQUEST_LIMIT_BYTES: u64 = 20 * 1024 * 1024;

/// How a request is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Proto,
    Json,
}

/// `content-encoding`. HTTP has two that are called snappy: the bare block and, with a name of its
/// own, the framing format; and two names for the zlib format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
    SnappyBlock,
    SnappyFramed,
    Zlib,
    Deflate,
    Lz4,
}

impl Compression {
    /// The token of `content-encoding`.
    pub const fn token(self) -> Option<&'static str> {
        Some(match self {
            Compression::None => return None,
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::SnappyBlock => "snappy",
            Compression::SnappyFramed => "x-snappy-framed",
            Compression::Zlib => "zlib",
            Compression::Deflate => "deflate",
            Compression::Lz4 => "lz4",
        })
    }

    /// `None` if it has no levels.
    pub(crate) const fn highest_level(self) -> Option<i32> {
        match self {
            Compression::Gzip | Compression::Zlib | Compression::Deflate => highest_level(Encoding::Gzip),
            Compression::Zstd => highest_level(Encoding::Zstd),
            Compression::None | Compression::SnappyBlock | Compression::SnappyFramed | Compression::Lz4 => None,
        }
    }
}

const COMPRESSIONS: [(&str, Compression); 9] = [
    ("gzip", Compression::Gzip),
    ("zstd", Compression::Zstd),
    ("snappy", Compression::SnappyBlock),
    ("x-snappy-framed", Compression::SnappyFramed),
    ("zlib", Compression::Zlib),
    ("deflate", Compression::Deflate),
    ("lz4", Compression::Lz4),
    ("none", Compression::None),
    ("", Compression::None),
];

/// Options of `otlphttp`.
#[derive(Clone, Debug)]
pub struct OtlpHttpConfig {
    /// The URLs of `Signal::ALL`; empty where a signal has none.
    pub urls: [String; 3],
    pub format: Format,
    pub timeout: Duration,
    pub compression: Compression,
    pub compression_level: Option<i32>,
    pub tls: ClientTlsSection,
    pub headers: HeaderMap,
    pub authenticator: Option<String>,
    pub proxy_url: Option<String>,
    pub max_idle_conns: usize,
    pub max_conns_per_host: Option<usize>,
    pub idle_conn_timeout: Duration,
    pub keep_alive: bool,
    pub http2: bool,
    /// Zero: no pings.
    pub http2_read_idle_timeout: Duration,
    pub http2_ping_timeout: Duration,
    pub max_request_bytes: usize,
    pub sending: Sending,
}

impl OtlpHttpConfig {
    pub fn read(fields: &mut Fields<'_>) -> OtlpHttpConfig {
        let urls = urls(fields);
        let format = fields.choice(
            "encoding",
            Format::Proto,
            &[("proto", Format::Proto), ("json", Format::Json)],
            "How requests are written.",
        );
        let compression =
            fields.choice("compression", Compression::Gzip, &COMPRESSIONS, "How requests are compressed.");
        let config = OtlpHttpConfig {
            urls,
            format,
            timeout: fields.duration_in(
                "timeout",
                Duration::from_secs(30),
                Duration::from_millis(1)..=Duration::from_secs(3600),
                "Deadline of one request.",
            ),
            compression,
            compression_level: compression_level(fields, compression.highest_level()),
            tls: ClientTlsSection::read(fields),
            headers: read_headers(fields),
            authenticator: read_authenticator(fields),
            proxy_url: fields
                .optional_string(
                    "proxy_url",
                    "Proxy: `http://host:port`. Unset: what `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` say.",
                )
                .filter(|url| !url.is_empty()),
            max_idle_conns: idle_connections(fields),
            max_conns_per_host: fields
                .optional_integer(
                    "max_conns_per_host",
                    0..=100_000,
                    "Connections in all; requests beyond wait. 0 or unset: no limit.",
                )
                .filter(|limit| *limit > 0),
            idle_conn_timeout: fields.duration(
                "idle_conn_timeout",
                Duration::from_secs(90),
                "An unused connection is closed after this time. 0: never.",
            ),
            keep_alive: !fields.boolean("disable_keep_alives", false, "Each request has a connection of its own."),
            http2: fields.boolean("force_attempt_http2", true, "Offer HTTP/2 in the TLS handshake."),
            http2_read_idle_timeout: fields.duration(
                "http2_read_idle_timeout",
                Duration::ZERO,
                "Between two HTTP/2 pings. 0: none.",
            ),
            http2_ping_timeout: fields.duration(
                "http2_ping_timeout",
                Duration::from_secs(15),
                "For the answer to an HTTP/2 ping.",
            ),
            max_request_bytes: request_limit(fields, REQUEST_LIMIT_BYTES),
            sending: Sending::read(fields),
        };
        no_effects(fields);
        config
    }
}

/// `endpoint` with the signal's path behind it, or the signal's own endpoint as it stands.
fn urls(fields: &mut Fields<'_>) -> [String; 3] {
    let base = fields.string(
        "endpoint",
        "",
        "URL of the backend; `/v1/traces`, `/v1/metrics` and `/v1/logs` are put behind it.",
    );
    let own = [
        fields.string("traces_endpoint", "", "URL for traces, taken as it stands."),
        fields.string("metrics_endpoint", "", "URL for metrics, taken as it stands."),
        fields.string("logs_endpoint", "", "URL for logs, taken as it stands."),
    ];
    fields.no_effect("profiles_endpoint", "profiles are not carried");
    if base.is_empty() && own.iter().all(String::is_empty) {
        fields.error_missing("endpoint");
    }
    let given =
        ["traces_endpoint", "metrics_endpoint", "logs_endpoint"].into_iter().zip(&own).chain([("endpoint", &base)]);
    for (key, url) in given {
        if let Err(error) = Origin::of(url)
            && !url.is_empty()
        {
            fields.error_at(key, &format!("cannot be used: {error}"));
        }
    }
    Signal::ALL.map(|signal| match own[signal as usize].as_str() {
        "" if base.is_empty() => String::new(),
        "" => format!("{}{}", base.strip_suffix('/').unwrap_or(&base), signal.http_path()),
        url => url.to_owned(),
    })
}

/// There is one host, so the smaller of both limits holds. 0 means "no limit" for the first, "default" for the second.
fn idle_connections(fields: &mut Fields<'_>) -> usize {
    let all: usize =
        fields.integer("max_idle_conns", 100, 0..=100_000, "Unused connections that are kept. 0: no limit.");
    let host: Option<usize> = fields.optional_integer(
        "max_idle_conns_per_host",
        0..=100_000,
        "The same for the one host. 0 or unset: `max_idle_conns`.",
    );
    let all = if all == 0 { usize::MAX } else { all };
    host.filter(|limit| *limit > 0).map_or(all, |host| host.min(all))
}

fn no_effects(fields: &mut Fields<'_>) {
    let buffers = "requests are written from where they lie; there is no such buffer";
    fields.no_effect("read_buffer_size", buffers);
    fields.no_effect("write_buffer_size", buffers);
    fields.not_yet("cookies", "cookies of the backend");
    fields.not_yet("middlewares", "middleware extensions");
}
