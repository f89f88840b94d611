//! `protocols.http`: the Collector's `confighttp` server settings.

use std::time::Duration;

use ::http::{HeaderName, HeaderValue};
use sluice_config::Fields;
use sluice_net::server::{BodyTimeouts, Cors, Protocols, ServerOptions};
use sluice_otlp::Signal;

use super::grpc::connections;
use super::{
    DEFAULT_LIMIT_MIB, HttpConfig, SharedConfig, address, authenticator, include_metadata, packing,
    tls,
};

/// In the order in which they are offered.
const ALGORITHMS: [&str; 7] =
    ["gzip", "zstd", "snappy", "x-snappy-framed", "deflate", "zlib", "lz4"];

pub(super) fn read(fields: &mut Fields<'_>) -> HttpConfig {
    let address = address(fields, "localhost:4318");
    let paths = Signal::ALL.map(|signal| url_path(fields, signal));
    let tls = tls::read(fields);
    let authenticator = authenticator(fields);
    let include_metadata = include_metadata(fields);
    let limit_bytes = fields.size(
        "max_request_body_size",
        DEFAULT_LIMIT_MIB << 20,
        0..=2 << 30,
        "Largest request in bytes, as sent and again after decompression. Larger ones are \
         answered 413. 0 means the default. (The Collector's default is 20 MiB; OTLP recommends \
         64 MiB.)",
    );
    let limit_bytes = if limit_bytes == 0 { DEFAULT_LIMIT_MIB << 20 } else { limit_bytes };
    let mut server = ServerOptions::new(Protocols::Http1AndHttp2);
    let body_timeouts = timeouts(fields, &mut server);
    server.max_connections = connections(fields, server.max_connections);
    let keep_alive = fields.boolean(
        "keep_alives_enabled",
        true,
        "Let HTTP/1 connections carry several requests.",
    );
    let cors = cors(fields);
    let response_headers = response_headers(fields);
    let compression_algorithms = compression_algorithms(fields);
    fields.not_yet("middlewares", "middleware extensions");
    let [traces_url_path, metrics_url_path, logs_url_path] = paths;
    HttpConfig {
        shared: SharedConfig {
            address,
            tls,
            authenticator,
            include_metadata,
            limit_bytes: usize::try_from(limit_bytes).unwrap_or(usize::MAX),
            server,
            body_timeouts,
        },
        traces_url_path,
        metrics_url_path,
        logs_url_path,
        cors,
        response_headers,
        compression_algorithms,
        keep_alive,
    }
}

fn url_path(fields: &mut Fields<'_>, signal: Signal) -> String {
    let key = format!("{signal}_url_path");
    let path = fields.string(&key, signal.http_path(), &format!("Where {signal} are sent to."));
    // The Collector takes the path with or without its slash.
    if path.starts_with('/') { path } else { format!("/{path}") }
}

fn timeouts(fields: &mut Fields<'_>, server: &mut ServerOptions) -> BodyTimeouts {
    let least = Duration::from_millis(10);
    let mut timeouts = BodyTimeouts::default();
    timeouts.total = or_default(
        fields.duration(
            "read_timeout",
            timeouts.total,
            "What the body of a request may take to arrive. 0 means the default.",
        ),
        timeouts.total,
    );
    timeouts.gap = timeouts.gap.min(timeouts.total);
    // One timer serves both in HTTP/1: it runs from the end of one request to the end of the next
    // one's headers.
    let header_default = server.read_header_timeout;
    let read_header = or_default(
        fields.duration(
            "read_header_timeout",
            header_default,
            "What the headers of a request may take to arrive, on a new or an idle connection. 0 \
             means the default.",
        ),
        header_default,
    );
    server.read_header_timeout = read_header.max(least);
    let idle = fields.duration(
        "idle_timeout",
        header_default,
        "How long an HTTP/2 connection may be without a request. HTTP/1 connections are bounded \
         by `read_header_timeout`. 0 means the default.",
    );
    server.max_connection_idle = Some(or_default(idle, header_default).max(least));
    fields.no_effect("write_timeout", "answers are a few bytes");
    timeouts
}

fn or_default(given: Duration, default: Duration) -> Duration {
    if given.is_zero() { default } else { given }
}

fn cors(fields: &mut Fields<'_>) -> Option<Cors> {
    let section = fields.section("cors", "Which web pages may send. Without it, none.", |fields| {
        let origins = fields.string_list(
            "allowed_origins",
            &[],
            "Origins such as `https://shop.example.com`; `*` in them stands for anything.",
        );
        let headers = fields.string_list(
            "allowed_headers",
            &[],
            "Headers that pages may set beyond the usual ones.",
        );
        let exposed = fields.string_list(
            "exposed_headers",
            &[],
            "Headers of the answer that pages may read.",
        );
        let max_age = fields.integer(
            "max_age",
            0_u64,
            0..=86_400 * 365,
            "Seconds for which browsers may remember this.",
        );
        let max_age = (max_age > 0).then(|| Duration::from_secs(max_age));
        if origins.is_empty() {
            return None;
        }
        Cors::new(origins, &headers, &exposed, max_age)
            .inspect_err(|error| fields.error(&error.to_string()))
            .ok()
    });
    section.flatten()
}

fn response_headers(fields: &mut Fields<'_>) -> Vec<(HeaderName, HeaderValue)> {
    let map = fields.secret_map("response_headers", "Headers that are added to every answer.");
    let mut headers = Vec::new();
    for (name, value) in map {
        match (HeaderName::try_from(name.as_str()), HeaderValue::from_str(value.expose())) {
            (Ok(name), Ok(value)) => headers.push((name, value)),
            _ => fields.error_at(
                "response_headers",
                &format!("has a header that cannot be sent: `{name}`"),
            ),
        }
    }
    headers
}

fn compression_algorithms(fields: &mut Fields<'_>) -> Vec<String> {
    let given = fields.string_list(
        "compression_algorithms",
        &ALGORITHMS,
        "Content codings that are taken besides `identity`: `gzip`, `zstd`, `snappy` (block or \
         framed), `x-snappy-framed`, `deflate` and `zlib` (both the zlib format), `lz4` (frames).",
    );
    let mut algorithms = Vec::new();
    for name in given {
        match name.as_str() {
            "" | "none" | "identity" => {}
            known if packing(known).is_some() => algorithms.push(name),
            unknown => {
                let message =
                    format!("has `{unknown}`, which is no content coding that can be taken");
                fields.error_at_with_hint(
                    "compression_algorithms",
                    &message,
                    &format!("there are {}", ALGORITHMS.join(", ")),
                );
            }
        }
    }
    algorithms
}
