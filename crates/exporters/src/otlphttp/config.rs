use std::time::Duration;

use sluice_config::Fields;
use sluice_net::client::{Origin, UrlError};
use sluice_otlp::{Encoding, Signal};

use crate::client_options::{ClientOptions, GZIP_LEVELS, ZSTD_LEVELS, declare_unsupported};
use crate::connections::Connections;
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
    pub connections: Connections,
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
        let (named_urls, connections) = Default::default();
        OtlpHttpConfig { urls, named_urls, format, coding, client, connections }
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
        let connections = Connections::read(fields);
        named_urls.iter().for_each(|(key, url)| connections.check(fields, key, url));
        fields.not_yet("cookies", "cookies of the backend");
        declare_unsupported(fields);
        OtlpHttpConfig { urls, named_urls, format, coding, client, connections }
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
