use std::time::Duration;

use sluice_config::{Fields, Secret};
use sluice_net::client::{HttpOptions, Keepalive, Origin, Proxy, UrlError};
use sluice_otlp::{Encoding, Signal};

use crate::client_options::{ClientOptions, GZIP_LEVELS, ZSTD_LEVELS, declare_unsupported};
use crate::json::Format;

const TIMEOUT: Duration = Duration::from_secs(30);

/// The default limit of the Collector's HTTP receiver.
const REQUEST_LIMIT_BYTES: u64 = 20 * 1024 * 1024;

/// The URL options of `Signal::ALL`.
pub(super) const URL_OPTIONS: [&str; 3] = ["traces_endpoint", "metrics_endpoint", "logs_endpoint"];

/// A `content-encoding`. HTTP has two that are called snappy: the bare block and, with a name of
/// its own, the framing format; and two names for the zlib format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Coding {
    /// In the header, and as the option's value.
    pub token: &'static str,
    /// By which a packed request is known. A coding that has no name outside of HTTP counts as
    /// gzip: it is packed, and the headers say how.
    pub encoding: Encoding,
    /// `None` if it has no levels.
    highest_level: Option<i32>,
}

const UNPACKED: Coding =
    Coding { token: "none", encoding: Encoding::Identity, highest_level: None };

const CODINGS: [Coding; 9] = [
    Coding { token: "gzip", encoding: Encoding::Gzip, highest_level: GZIP_LEVELS },
    Coding { token: "zstd", encoding: Encoding::Zstd, highest_level: ZSTD_LEVELS },
    Coding { token: "snappy", encoding: Encoding::Snappy, highest_level: None },
    Coding { token: "x-snappy-framed", encoding: Encoding::Snappy, highest_level: None },
    Coding { token: "zlib", encoding: Encoding::Gzip, highest_level: GZIP_LEVELS },
    Coding { token: "deflate", encoding: Encoding::Gzip, highest_level: GZIP_LEVELS },
    Coding { token: "lz4", encoding: Encoding::Gzip, highest_level: None },
    UNPACKED,
    Coding { token: "", encoding: Encoding::Identity, highest_level: None },
];

#[derive(Clone)]
pub(crate) struct OtlpHttpConfig {
    /// The URLs of `Signal::ALL`; empty where a signal has none.
    pub urls: [String; 3],
    /// The URLs as the configuration has them, with their options.
    pub named_urls: Vec<(&'static str, String)>,
    pub format: Format,
    pub coding: Coding,
    pub client: ClientOptions,
    pub proxy_url: Option<Secret>,
    /// Without settings that depend on the URL.
    pub http: HttpOptions,
}

impl OtlpHttpConfig {
    /// With the defaults for all other options. `is_packed`: with gzip.
    pub(crate) fn plain(
        urls: [String; 3],
        format: Format,
        is_packed: bool,
        client: ClientOptions,
    ) -> OtlpHttpConfig {
        let coding = if is_packed { CODINGS[0] } else { UNPACKED };
        let http = HttpOptions::default();
        let named_urls = Vec::new();
        OtlpHttpConfig { urls, named_urls, format, coding, client, proxy_url: None, http }
    }

    pub(crate) fn read(fields: &mut Fields<'_>) -> OtlpHttpConfig {
        let (urls, named_urls) = urls(fields);
        let formats = [("proto", Format::Proto), ("json", Format::Json)];
        let format = fields.choice("encoding", Format::Proto, &formats, "Format of requests.");
        let doc = "Compression of requests.";
        let codings = CODINGS.map(|coding| (coding.token, coding));
        let coding = fields.choice("compression", CODINGS[0], &codings, doc);
        let mut client =
            ClientOptions::read(fields, TIMEOUT, coding.highest_level, REQUEST_LIMIT_BYTES);
        client.read_idempotent(fields);
        let doc = "Proxy: `http://[user:password@]host:port`. Unset: `HTTP_PROXY`, `HTTPS_PROXY` \
                   and `NO_PROXY` of the environment decide.";
        let proxy_url = fields.secret("proxy_url", doc).filter(|url| !url.expose().is_empty());
        if let Some(Err(error)) = proxy_url.as_ref().map(|url| Proxy::parse(url.expose())) {
            fields.error_at("proxy_url", &format!("cannot be used: {error}"));
        }
        let http = http_options(fields);
        fields.not_yet("cookies", "cookies of the backend");
        declare_unsupported(fields);
        OtlpHttpConfig { urls, named_urls, format, coding, client, proxy_url, http }
    }
}

fn http_options(fields: &mut Fields<'_>) -> HttpOptions {
    let ((idle_connections, idle_timeout), keep_alive) = keep_alive(fields);
    let doc = "Maximum number of connections; further requests wait for one. 0 or unset: no limit.";
    let connections = fields.optional_integer("max_conns_per_host", 0..=100_000, doc);
    let doc = "Offer HTTP/2 in the TLS handshake.";
    let http2 = fields.boolean("force_attempt_http2", true, doc);
    let doc = "Time between two HTTP/2 pings. 0: no pings.";
    let time = fields.duration("http2_read_idle_timeout", Duration::ZERO, doc);
    let doc = "Time limit for the answer to an HTTP/2 ping.";
    let timeout = fields.duration("http2_ping_timeout", Duration::from_secs(15), doc);
    let pings = Keepalive { time, timeout, permit_without_stream: true };
    HttpOptions {
        connections: connections.filter(|limit| *limit > 0),
        idle_connections,
        idle_timeout,
        keep_alive,
        http2,
        http2_keepalive: Some(pings).filter(|pings| !pings.time.is_zero()),
        ..HttpOptions::default()
    }
}

/// `endpoint` with the signal's path behind it, or the signal's own endpoint as it stands.
fn urls(fields: &mut Fields<'_>) -> ([String; 3], Vec<(&'static str, String)>) {
    let doc = "URL of the backend, to which `/v1/traces`, `/v1/metrics` or `/v1/logs` is appended.";
    let base = fields.string("endpoint", "", doc);
    let own = Signal::ALL.map(|signal| {
        let doc = format!("URL for {signal}, used unchanged.");
        fields.string(URL_OPTIONS[signal as usize], "", &doc)
    });
    fields.no_effect("profiles_endpoint", "profiles are not supported");
    if base.is_empty() && own.iter().all(String::is_empty) {
        fields.error_missing("endpoint");
    }
    let named = URL_OPTIONS.into_iter().zip(own.clone()).chain([("endpoint", base.clone())]);
    let named: Vec<_> = named.filter(|(_, url)| !url.is_empty()).collect();
    for (key, url) in &named {
        if let Err(error) = Origin::of(url) {
            fields.error_at(key, &format!("cannot be used: {error}"));
            if error == UrlError::Credentials {
                fields.hide(key);
            }
        }
    }
    let urls = Signal::ALL.map(|signal| match own[signal as usize].as_str() {
        "" if base.is_empty() => String::new(),
        "" => format!("{}{}", base.strip_suffix('/').unwrap_or(&base), signal.http_path()),
        url => url.to_owned(),
    });
    (urls, named)
}

/// The settings of [`idle_connections`], and whether connections carry several requests.
fn keep_alive(fields: &mut Fields<'_>) -> ((usize, Duration), bool) {
    const FLAT: [&str; 4] =
        ["idle_conn_timeout", "max_idle_conns", "max_idle_conns_per_host", "disable_keep_alives"];
    let idle = idle_connections(fields);
    let doc = "Use a new connection for each request.";
    let keep_alive = !fields.boolean(FLAT[3], false, doc);
    let flat = FLAT.into_iter().find(|key| fields.is_given(key));
    let doc =
        "The four options about unused connections, as the Collector spells them since 0.160.";
    let section = fields.section_unless_empty("keepalive", doc, |fields| {
        if let Some(flat) = flat {
            fields.error(&format!("cannot stand beside `{flat}`"));
        }
        let idle = idle_connections(fields);
        (idle, fields.boolean("enabled", true, "Let connections carry several requests."))
    });
    section.unwrap_or((idle, keep_alive))
}

/// The number of unused connections that are kept, and the time for it. There is one host, so the
/// smaller of both limits applies. 0 means "no limit" for the first, "default" for the second.
fn idle_connections(fields: &mut Fields<'_>) -> (usize, Duration) {
    let doc = "Maximum number of unused connections that are kept. 0: no limit.";
    let all: usize = fields.integer("max_idle_conns", 100, 0..=100_000, doc);
    let doc = "As `max_idle_conns`, whose limit applies too: there is one host. 0 or unset: only \
               `max_idle_conns`.";
    let host = fields.optional_integer("max_idle_conns_per_host", 0..=100_000, doc);
    let all = if all == 0 { usize::MAX } else { all };
    let limit = host.filter(|limit| *limit > 0).map_or(all, |host| all.min(host));
    let doc = "An unused connection is closed after this time. 0: never.";
    (limit, fields.duration("idle_conn_timeout", Duration::from_secs(90), doc))
}
