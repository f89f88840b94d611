//! The options of the `fluentbit_http` exporter: those of Fluent Bit's output `http`, and the
//! switches of Kyma's `LogPipeline`.

use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use sluice_config::{Fields, Secret};
use sluice_net::auth::client::basic_credentials;
use sluice_net::client::{HttpOptions, Origin};
use sluice_net::tls::ClientTlsOptions;
use sluice_otlp::Encoding;

use super::format::{DateFormat, Format};
use crate::client_options::{ClientOptions, GZIP_LEVELS, check_proxy, declare_unsupported};
use crate::fluent::Layout;

const TIMEOUT: Duration = Duration::from_secs(30);
const REQUEST_LIMIT_BYTES: u64 = 4 << 20;

#[derive(Clone)]
pub(super) struct FluentBitHttpConfig {
    pub url: String,
    pub format: Format,
    /// Empty: no field for the time.
    pub date_key: String,
    pub date_format: DateFormat,
    pub encoding: Encoding,
    pub layout: Layout,
    pub client: ClientOptions,
    pub http: HttpOptions,
}

impl FluentBitHttpConfig {
    pub(super) fn read(fields: &mut Fields<'_>) -> FluentBitHttpConfig {
        let host = fields.string("host", "127.0.0.1", "Name or address of the backend.");
        let port = fields.integer("port", 80_u16, 1..=u16::MAX, "Port of the backend.");
        let uri = fields.string("uri", "/", "Path of the URL, with a query if it has one.");
        let formats = [
            ("json", Format::Json),
            ("json_lines", Format::JsonLines),
            ("json_stream", Format::JsonStream),
            ("msgpack", Format::MessagePack),
        ];
        let doc = "Format of requests: one array of records, a record a line, records one after \
                   the other, or MessagePack (`[time, record]` one after the other). (Fluent Bit's \
                   default was `msgpack` before 3.0.)";
        let format = fields.choice("format", Format::Json, &formats, doc);
        let doc = "Name of the field with the time. Empty or `\"false\"`: there is none.";
        let date_key = fields.string("json_date_key", "date", doc);
        let date_key = if date_key == "false" { String::new() } else { date_key };
        let date_formats = [
            ("double", DateFormat::Double),
            ("epoch", DateFormat::Epoch),
            ("epoch_ms", DateFormat::EpochMs),
            ("iso8601", DateFormat::Iso8601),
            ("java_sql_timestamp", DateFormat::JavaSqlTimestamp),
        ];
        let doc = "Format of the time: seconds with a fraction, seconds, milliseconds, \
                   `2026-11-21T06:05:43.000001Z` or `2026-11-21 06:05:43.000001`.";
        let date_format = fields.choice("json_date_format", DateFormat::Double, &date_formats, doc);
        for key in ["json_date_key", "json_date_format"] {
            if format == Format::MessagePack && fields.is_given(key) {
                let why =
                    "has no effect with `format: msgpack`: the time stands before each record";
                fields.warn_at(key, why);
            }
        }
        let encodings =
            [("gzip", Encoding::Gzip), ("none", Encoding::Identity), ("", Encoding::Identity)];
        let doc = "Compression of requests.";
        let encoding = fields.choice("compress", Encoding::Identity, &encodings, doc);
        let layout = Layout::read(fields);
        let mut headers = read_header_list(fields);
        headers.extend(read_basic(fields).map(|value| (AUTHORIZATION, value)));
        // TLS is off unless the section is there, as in Fluent Bit.
        let has_tls = fields.is_present("tls");
        let highest_level = (encoding == Encoding::Gzip).then_some(GZIP_LEVELS).flatten();
        let (tls, limit_bytes) = (ClientTlsOptions::read_where_present, REQUEST_LIMIT_BYTES);
        let mut client =
            ClientOptions::read_for(fields, true, tls, TIMEOUT, highest_level, limit_bytes);
        client.headers.extend(headers);
        let scheme = if has_tls && !client.tls.insecure { "https" } else { "http" };
        let host =
            if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
        let slash = if uri.starts_with('/') { "" } else { "/" };
        let url = format!("{scheme}://{host}:{port}{slash}{uri}");
        match Origin::of(&url) {
            Ok(origin) => check_proxy(fields, "host", &origin.target, origin.tls),
            Err(error) => {
                fields.error_at("host", &format!("cannot be used with `uri`: {error}"));
            }
        }
        declare_unsupported(fields);
        let http = HttpOptions::default();
        FluentBitHttpConfig { url, format, date_key, date_format, encoding, layout, client, http }
    }
}

/// `header`: a list of `Name value`, as lines of Fluent Bit's configuration.
fn read_header_list(fields: &mut Fields<'_>) -> HeaderMap {
    let doc = "Headers added to every request, each as `Name value`. Treated as secrets. `headers` \
               has the same as a map.";
    let mut headers = HeaderMap::new();
    for header in fields.secret_list("header", doc) {
        let (name, value) = header.expose().split_once(' ').unwrap_or_default();
        let name = HeaderName::try_from(name.trim_end_matches(':'));
        match (name, HeaderValue::try_from(value.trim())) {
            (Ok(name), Ok(mut value)) if !value.is_empty() => {
                value.set_sensitive(true);
                headers.append(name, value);
            }
            _ => {
                let hint = "write `- X-Scope-OrgID tenant`";
                fields.error_at_with_hint("header", "has an item that is no `Name value`", hint);
            }
        }
    }
    headers
}

/// `http_user` and `http_passwd`.
fn read_basic(fields: &mut Fields<'_>) -> Option<HeaderValue> {
    let user = fields.non_empty_string("http_user", "User name for HTTP basic authentication.");
    let password = fields.secret("http_passwd", "Password of `http_user`.");
    let Some(user) = user else {
        if password.is_some() {
            fields.error_at("http_passwd", "needs `http_user`");
        }
        return None;
    };
    let password = password.unwrap_or_else(|| Secret::new(""));
    let credentials = basic_credentials(format!("{user}:{}", password.expose()));
    let mut value = HeaderValue::try_from(credentials).ok()?;
    value.set_sensitive(true);
    Some(value)
}
