//! A backend of own telemetry: `otlp` in the schema's version 0.3, `otlp_grpc` and `otlp_http` in
//! its newest one.

use std::time::Duration;

use sluice_otlp::Signal;

use super::push::{LONGEST_MS, or_longest};
use crate::fields::Fields;
use crate::masking::shown_url;
use crate::secret::Secret;
use crate::source::Span;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushProtocol {
    Grpc,
    /// Over HTTP, as protobuf.
    Http,
    HttpJson,
}

/// The moment from which a counter counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Temporality {
    /// The start of the process.
    #[default]
    Cumulative,
    /// The report before.
    Delta,
    /// As `Delta`, but for what is only read when it is reported: figures of the process.
    LowMemory,
}

#[derive(Clone, Debug)]
pub struct PushTarget {
    pub protocol: PushProtocol,
    /// With `http://` or `https://`, which decides on TLS. Over HTTP the whole URL, over gRPC host
    /// and port.
    pub endpoint: String,
    pub headers: Vec<(String, Secret)>,
    /// Requests are packed with gzip.
    pub is_packed: bool,
    /// Of one request.
    pub timeout: Duration,
    /// Authorities that are trusted instead of the system's.
    pub ca_file: Option<String>,
    pub cert_file: Option<String>,
    pub key_file: Option<String>,
    /// The name of its section, and its place, for messages.
    pub path: String,
    pub span: Option<Span>,
}

/// Where it stands in the file makes no difference.
impl PartialEq for PushTarget {
    fn eq(&self, other: &Self) -> bool {
        let files = |it: &Self| (it.ca_file.clone(), it.cert_file.clone(), it.key_file.clone());
        (self.protocol, &self.endpoint, &self.headers, self.is_packed, self.timeout, files(self))
            == (
                other.protocol,
                &other.endpoint,
                &other.headers,
                other.is_packed,
                other.timeout,
                files(other),
            )
    }
}

pub(super) const EXPORTERS: [&str; 3] = ["otlp", "otlp_grpc", "otlp_http"];

const PROTOCOLS: [(&str, PushProtocol); 3] = [
    ("grpc", PushProtocol::Grpc),
    ("http/protobuf", PushProtocol::Http),
    // In older releases.
    ("grpc/protobuf", PushProtocol::Grpc),
];
const ENCODINGS: [(&str, PushProtocol); 2] =
    [("protobuf", PushProtocol::Http), ("json", PushProtocol::HttpJson)];
const TEMPORALITIES: [(&str, Temporality); 4] = [
    ("cumulative", Temporality::Cumulative),
    ("delta", Temporality::Delta),
    ("lowmemory", Temporality::LowMemory),
    ("low_memory", Temporality::LowMemory),
];
const COMPRESSIONS: [(&str, bool); 3] = [("gzip", true), ("none", false), ("", false)];
const TIMEOUT_MS: u64 = 10_000;
/// As for Go's gRPC.
const GRPC_PORT: u16 = 443;

/// The exporter that the section has, one of `EXPORTERS`.
pub(super) fn read_all(
    fields: &mut Fields<'_>,
    signal: Signal,
) -> Option<(PushTarget, Temporality)> {
    let old = fields.section("otlp", "A backend that takes OTLP.", |fields| {
        let doc = "The protocol. Required.";
        let protocol = fields.optional_choice("protocol", &PROTOCOLS, doc);
        if protocol.is_none() && !fields.is_given("protocol") && !fields.is_describing() {
            fields.error_missing("protocol");
        }
        let doc = "The backend: with `http://` (no TLS) or `https://`, or `host:port`, where \
                   `insecure` decides. Over HTTP the whole URL; without a path, that of OTLP.";
        let endpoint = fields.required_string("endpoint", doc);
        let doc = "No TLS, if the endpoint does not say whether there is any.";
        let insecure = fields.boolean("insecure", false, doc);
        let doc = "File with the authorities to trust instead of the system's.";
        let ca_file = fields.non_empty_string("certificate", doc);
        let doc = "File with our certificate for mTLS.";
        let cert_file = fields.non_empty_string("client_certificate", doc);
        let doc = "File with the private key of our certificate.";
        let key_file = fields.non_empty_string("client_key", doc);
        let protocol = protocol.unwrap_or(PushProtocol::Grpc);
        let files = [ca_file, cert_file, key_file];
        read_rest(fields, signal, protocol, endpoint, insecure, files)
    });
    let grpc = fields.section("otlp_grpc", "A backend that takes OTLP over gRPC.", |fields| {
        let doc = "As `otlp.endpoint`.";
        let endpoint = fields.string("endpoint", "http://localhost:4317", doc);
        let (insecure, files) = read_tls(fields, true);
        read_rest(fields, signal, PushProtocol::Grpc, endpoint, insecure, files)
    });
    let http = fields.section("otlp_http", "A backend that takes OTLP over HTTP.", |fields| {
        let default = format!("http://localhost:4318{}", signal.http_path());
        let endpoint = fields.string("endpoint", &default, "As `otlp.endpoint`.");
        let doc = "Format of requests.";
        let protocol = fields.choice("encoding", PushProtocol::Http, &ENCODINGS, doc);
        let (_, files) = read_tls(fields, false);
        read_rest(fields, signal, protocol, endpoint, false, files)
    });
    old.or(grpc).or(http)
}

type Files = [Option<String>; 3];

fn read_tls(fields: &mut Fields<'_>, may_be_insecure: bool) -> (bool, Files) {
    fields.section_or_default("tls", "TLS of the connection.", |fields| {
        let doc = "As `otlp.insecure`.";
        let insecure = may_be_insecure && fields.boolean("insecure", false, doc);
        let named = [
            ("ca_file", "certificate"),
            ("cert_file", "client_certificate"),
            ("key_file", "client_key"),
        ];
        let files =
            named.map(|(key, old)| fields.non_empty_string(key, &format!("As `otlp.{old}`.")));
        (insecure, files)
    })
}

fn read_rest(
    fields: &mut Fields<'_>,
    signal: Signal,
    protocol: PushProtocol,
    endpoint: String,
    insecure: bool,
    [ca_file, cert_file, key_file]: Files,
) -> (PushTarget, Temporality) {
    let endpoint = full_endpoint(fields, signal, protocol, endpoint, insecure);
    let has_files = [&ca_file, &cert_file, &key_file].iter().any(|file| file.is_some());
    if has_files && endpoint.starts_with("http://") {
        fields.warn_at("endpoint", "is without TLS: the certificates have no effect");
    }
    if cert_file.is_some() != key_file.is_some() {
        fields.error("has only one of certificate and private key of the client");
    }
    let doc = "Headers added to every request. Their values are treated as secrets.";
    let headers = fields.secret_map("headers", doc);
    let doc = "Further headers as `name=value,name=value`; values may be percent-encoded. Those of \
               `headers` come first.";
    let listed = fields.secret("headers_list", doc);
    let headers = with_listed(fields, headers, listed);
    let doc = "Compression of requests.";
    let is_packed = fields.choice("compression", false, &COMPRESSIONS, doc);
    let doc = "Time limit for one request in milliseconds. 0: an hour.";
    let timeout_ms = fields.integer("timeout", TIMEOUT_MS, 0..=LONGEST_MS, doc);
    let mut temporality = Temporality::Cumulative;
    if signal == Signal::Metrics {
        let doc = "Counters count from the start of the process (`cumulative`) or from the report \
                   before (`delta`). `lowmemory`: as `delta`, except for figures of the process.";
        let default = Temporality::Cumulative;
        temporality = fields.choice("temporality_preference", default, &TEMPORALITIES, doc);
        fields.no_effect("default_histogram_aggregation", "no metric of Sluice is a histogram");
    }
    let target = PushTarget {
        protocol,
        endpoint,
        headers,
        is_packed,
        timeout: Duration::from_millis(or_longest(timeout_ms)),
        ca_file,
        cert_file,
        key_file,
        path: fields.path().to_owned(),
        span: fields.span(),
    };
    (target, temporality)
}

/// The endpoint with a scheme and, over gRPC, a port and no path, over HTTP a path.
fn full_endpoint(
    fields: &mut Fields<'_>,
    signal: Signal,
    protocol: PushProtocol,
    endpoint: String,
    insecure: bool,
) -> String {
    let (scheme, rest) = match endpoint.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => (scheme, rest),
        Some((scheme, _)) => {
            let message = format!("begins with `{scheme}://`: only `http` and `https` are known");
            fields.error_at("endpoint", &message);
            return endpoint;
        }
        None => (if insecure { "http" } else { "https" }, endpoint.as_str()),
    };
    if scheme == "https" && insecure {
        fields.warn_at("endpoint", "begins with `https://`: `insecure` has no effect");
    }
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if authority.contains('@') {
        fields.hide("endpoint");
        let message = "has a user or a password, which would not be sent: use `headers`";
        fields.error_at("endpoint", message);
    }
    if protocol != PushProtocol::Grpc {
        let path = if path.is_empty() { signal.http_path() } else { path };
        return format!("{scheme}://{authority}{path}");
    }
    if path.len() > 1 {
        let path = shown_url(path);
        let message = format!("has the path `{path}`, which gRPC does not know: it has no effect");
        fields.warn_at("endpoint", &message);
    }
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    match has_port || authority.is_empty() {
        true => format!("{scheme}://{authority}"),
        false => format!("{scheme}://{authority}:{GRPC_PORT}"),
    }
}

/// A name in both counts as it stands in `headers`.
fn with_listed(
    fields: &mut Fields<'_>,
    mut headers: Vec<(String, Secret)>,
    listed: Option<Secret>,
) -> Vec<(String, Secret)> {
    let listed = listed.as_ref().map_or("", Secret::expose);
    for item in listed.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let pair = item.split_once('=');
        let pair = pair.and_then(|(name, value)| Some((name.trim(), decoded(value.trim())?)));
        let Some((name, value)) = pair else {
            let message = "must be `name=value` pairs with commas between them, percent-encoded";
            fields.error_at("headers_list", message);
            break;
        };
        if !headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
            headers.push((name.to_owned(), Secret::new(value)));
        }
    }
    headers
}

/// Percent-encoded text. `None` if it is not.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                (high << 4 | low) as u8
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}
