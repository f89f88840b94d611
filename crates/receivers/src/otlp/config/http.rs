//! `protocols.http`: the Collector's `confighttp` server settings.

use ::http::uri::PathAndQuery;
use sluice_config::Fields;
use sluice_net::compress::Packing;
use sluice_net::server::config::{address, answers, or_default};
use sluice_net::server::{Address, Protocols};
use sluice_otlp::{Encoding, Signal};

use super::{DEFAULT_LIMIT_BYTES, HttpConfig, SharedConfig};

/// All content codings that can be taken, in the order in which they are offered.
const ENCODINGS: [(&str, Packing); 7] = [
    ("gzip", Packing::Known(Encoding::Gzip)),
    ("zstd", Packing::Known(Encoding::Zstd)),
    ("snappy", Packing::Known(Encoding::Snappy)),
    ("x-snappy-framed", Packing::Known(Encoding::Snappy)),
    ("deflate", Packing::Zlib),
    ("zlib", Packing::Zlib),
    ("lz4", Packing::Lz4),
];

pub(super) fn read(fields: &mut Fields<'_>) -> HttpConfig {
    let address = address(fields, "localhost:4318");
    let url_paths = Signal::ALL.map(|signal| url_path(fields, signal));
    let doc = "Has no effect, and causes a warning: profiles are not received.";
    if let Some(path) = fields.optional_string("profiles_url_path", doc) {
        check_url_path(fields, "profiles_url_path", &path);
        fields.warn_at("profiles_url_path", "has no effect: profiles are not received");
    }
    read_rest(fields, address, url_paths)
}

/// Reads the options of a server for another protocol over HTTP.
pub(crate) fn read_plain(fields: &mut Fields<'_>, default_endpoint: &str) -> HttpConfig {
    let address = address(fields, default_endpoint);
    read_rest(fields, address, Default::default())
}

fn read_rest(fields: &mut Fields<'_>, address: Address, url_paths: [String; 3]) -> HttpConfig {
    let mut shared = SharedConfig::read(fields, address, Protocols::Http1AndHttp2);
    let doc = "Largest request in bytes, before and after decompression. Larger ones are answered \
               413. 0 means the default. (The Collector's default is 20 MiB; OTLP recommends 64 \
               MiB.)";
    let default = DEFAULT_LIMIT_BYTES as u64;
    let limit_bytes = fields.size("max_request_body_size", default, 0..=2 << 30, doc);
    if limit_bytes > 0 {
        shared.limit_bytes = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
    }
    timeouts(fields, &mut shared);
    shared.read_connections(fields);
    let answers = answers(fields, &mut shared.server);
    let encodings = encodings(fields);
    fields.not_yet("middlewares", "middleware extensions");
    HttpConfig { shared, url_paths, answers, encodings }
}

fn url_path(fields: &mut Fields<'_>, signal: Signal) -> String {
    let key = format!("{signal}_url_path");
    let doc = format!("URL path of requests with {signal}.");
    let path = fields.string(&key, signal.http_path(), &doc);
    check_url_path(fields, &key, &path);
    // The Collector takes the path with or without its slash.
    if path.starts_with('/') { path } else { format!("/{path}") }
}

/// As Go reads a URL: what stands before a colon in the first part would be a scheme.
fn check_url_path(fields: &mut Fields<'_>, key: &str, path: &str) {
    let first = path.split('/').next().unwrap_or_default();
    if first.contains(':') || PathAndQuery::try_from(format!("/{path}")).is_err() {
        fields.error_at_with_hint(key, "is no path of a URL", "write it as `/v1/traces`");
    }
}

fn timeouts(fields: &mut Fields<'_>, config: &mut SharedConfig) {
    let (body, server) = (&mut config.body_timeouts, &mut config.server);
    let doc = "Time limit for the body of a request to arrive. 0 means the default.";
    body.total = or_default(fields, "read_timeout", body.total, doc);
    body.gap = body.gap.min(body.total);
    let doc = "Time limit for the headers of a request to arrive, from their first byte. 0 means \
               the default.";
    server.read_header_timeout =
        or_default(fields, "read_header_timeout", server.read_header_timeout, doc);
    fields.no_effect("write_timeout", "answers are a few bytes");
}

fn encodings(fields: &mut Fields<'_>) -> Vec<(&'static str, Packing)> {
    let doc = "Content codings that are accepted besides `identity`: `gzip`, `zstd`, `snappy` \
               (block or framed), `x-snappy-framed`, `deflate` and `zlib` (both the zlib format), \
               `lz4` (frames).";
    let all = ENCODINGS.map(|(name, _)| name);
    let mut encodings = vec![("identity", Packing::Known(Encoding::Identity))];
    for name in fields.string_list("compression_algorithms", &all, doc) {
        match ENCODINGS.into_iter().find(|(known, _)| *known == name) {
            Some(known) => encodings.push(known),
            None if ["", "none", "identity"].contains(&name.as_str()) => {}
            None => {
                let message = format!("has `{name}`, which is no content coding that can be taken");
                let hint = format!("there are {}", all.join(", "));
                fields.error_at_with_hint("compression_algorithms", &message, &hint);
            }
        }
    }
    encodings
}
