//! The options of the `otlp` receiver. Those of the Collector's `otlpreceiver`, `configgrpc` and
//! `confighttp` are all known: each works, or says why it does nothing here.

mod grpc;
pub(crate) mod http;

use std::path::PathBuf;
use std::time::Duration;

use ::http::HeaderMap;
use sluice_config::Fields;
use sluice_net::compress::Packing;
use sluice_net::server::{Address, BodyTimeouts, Cors, Family, Protocols, ServerOptions};
use sluice_net::tls::TlsOptions;

use super::counters::Transport;
use crate::listen::{check_endpoint, max_connections};

/// OTLP recommends this limit of a request after decompression.
const DEFAULT_LIMIT_BYTES: usize = 64 << 20;
/// Shorter ages, pings more often and the like would only cost CPU.
const AGE_LEAST: Duration = Duration::from_millis(1);
const TIMEOUT_LEAST: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
pub struct OtlpConfig {
    pub grpc: Option<SharedConfig>,
    pub http: Option<HttpConfig>,
}

/// Options that both protocols have.
#[derive(Clone, Debug)]
pub struct SharedConfig {
    pub address: Address,
    pub tls: Option<TlsOptions>,
    /// Name of the extension that decides who may send.
    pub authenticator: Option<String>,
    pub include_metadata: bool,
    /// The limit on a request, as sent and again after decompression.
    pub limit_bytes: usize,
    pub server: ServerOptions,
    pub body_timeouts: BodyTimeouts,
}

#[derive(Clone, Debug)]
pub struct HttpConfig {
    pub shared: SharedConfig,
    /// The paths of `Signal::ALL`.
    pub url_paths: [String; 3],
    pub cors: Option<Cors>,
    /// Added to every answer.
    pub response_headers: HeaderMap,
    /// The content codings that are taken, by name: `identity` and `compression_algorithms`.
    pub encodings: Vec<(&'static str, Packing)>,
    /// False: `connection: close` on every HTTP/1 answer.
    pub keep_alive: bool,
}

impl OtlpConfig {
    /// Reads the component's options.
    pub fn read(fields: &mut Fields<'_>) -> OtlpConfig {
        let doc = "The protocols to listen for; at least one.";
        let config = fields.section_or_default("protocols", doc, |fields| OtlpConfig {
            grpc: fields.section("grpc", "OTLP over gRPC.", grpc::read),
            http: fields.section("http", "OTLP over HTTP, in protobuf and JSON.", http::read),
        });
        if config.ports().next().is_none() {
            let hint = "write `protocols: {grpc: {}, http: {}}`";
            fields.error_with_hint("has no protocol to listen for", hint);
        }
        config
    }

    /// The protocols that are on, with the options that HTTP alone has.
    pub(super) fn ports(
        &self,
    ) -> impl Iterator<Item = (Transport, &SharedConfig, Option<&HttpConfig>)> {
        let grpc = self.grpc.iter().map(|grpc| (Transport::Grpc, grpc, None));
        let http = self.http.iter().map(|http| (Transport::Http, &http.shared, Some(http)));
        grpc.chain(http)
    }
}

/// `endpoint` and `transport`.
fn address(fields: &mut Fields<'_>, default_endpoint: &str) -> Address {
    let doc = "Address to listen on: `host:port`, `[ipv6]:port`, `:port` for all interfaces; or \
               the path of a Unix socket.";
    let endpoint = fields.string("endpoint", default_endpoint, doc);
    // `None`: a path.
    let transports = [
        ("tcp", Some(Family::Any)),
        ("tcp4", Some(Family::V4)),
        ("tcp6", Some(Family::V6)),
        ("unix", None),
    ];
    let doc = "`tcp4` and `tcp6` listen only on addresses of that family. With `unix`, `endpoint` \
               is a path, to which Sluice's own user and group may connect (mode 0660).";
    let family = fields.choice("transport", Some(Family::Any), &transports, doc);
    fields.no_effect("dialer", "a receiver opens no connections");
    if let Some(path) = endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:"))
    {
        return Address::Unix(PathBuf::from(path));
    }
    let Some(family) = family else { return Address::Unix(PathBuf::from(endpoint)) };
    match check_endpoint(&endpoint) {
        Err(why) => {
            let hint = "write `localhost:4317` or `0.0.0.0:4317`";
            fields.error_at_with_hint("endpoint", why, hint);
        }
        Ok(Some(ip)) if !family.has(ip) => {
            let message = format!("must be an {family} address with this `transport`");
            let hint = "write `transport: tcp`, or another address";
            fields.error_at_with_hint("endpoint", &message, hint);
        }
        Ok(_) => {}
    }
    Address::Tcp(endpoint, family)
}

impl SharedConfig {
    /// Reads the options that both protocols have next to each other; the rest has its defaults.
    fn read(fields: &mut Fields<'_>, address: Address, protocols: Protocols) -> SharedConfig {
        let doc = "TLS. Unset: connections are not encrypted.";
        let tls = fields.section_unless_empty("tls", doc, TlsOptions::read_server);
        let authenticator = authenticator(fields);
        let doc = "Keep the request headers that `headers_setter`, `metadata_keys` or \
                   `from_context` name, and no others. Requests with different values of a header \
                   are never merged for an exporter that reads it.";
        SharedConfig {
            address,
            tls,
            authenticator,
            include_metadata: fields.boolean("include_metadata", false, doc),
            limit_bytes: DEFAULT_LIMIT_BYTES,
            server: ServerOptions::new(protocols),
            body_timeouts: BodyTimeouts::default(),
        }
    }

    fn read_connections(&mut self, fields: &mut Fields<'_>) {
        self.server.max_connections = max_connections(fields, true);
    }
}

/// Zero means the same as no value, as for gRPC's Go library.
fn or_never(fields: &mut Fields<'_>, key: &str, doc: &str) -> Option<Duration> {
    let duration = fields.optional_duration(key, Duration::ZERO..=Duration::MAX, doc);
    duration.filter(|duration| !duration.is_zero()).map(|duration| duration.max(AGE_LEAST))
}

/// Zero stands for the default.
fn or_default(fields: &mut Fields<'_>, key: &str, default: Duration, doc: &str) -> Duration {
    match fields.duration(key, default, doc) {
        Duration::ZERO => default,
        duration => duration.max(TIMEOUT_LEAST),
    }
}

/// `auth.authenticator`.
fn authenticator(fields: &mut Fields<'_>) -> Option<String> {
    let doc = "Authentication of senders. Unset: every client that can connect may send.";
    let name = fields.section_unless_empty("auth", doc, |fields| {
        let doc = "Id of the extension that authenticates senders: `type` or `type/name`.";
        let name = fields.required_string("authenticator", doc);
        fields.no_effect("request_params", "authenticators see headers only");
        name
    });
    name.filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests;
