//! The options of the `otlp` receiver. Those of the Collector's `otlpreceiver`, `configgrpc` and
//! `confighttp` are all known: each works, or says why it does nothing here.

mod grpc;
pub(crate) mod http;

use sluice_config::Fields;
use sluice_net::compress::Packing;
use sluice_net::server::config::{authenticator, max_connections};
use sluice_net::server::{Address, Answers, BodyTimeouts, Protocols, ServerOptions};
use sluice_net::tls::TlsOptions;

use super::counters::Transport;

/// OTLP recommends this limit of a request after decompression.
const DEFAULT_LIMIT_BYTES: usize = 64 << 20;

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
    pub answers: Answers,
    /// The content codings that are taken, by name: `identity` and `compression_algorithms`.
    pub encodings: Vec<(&'static str, Packing)>,
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

impl SharedConfig {
    /// Reads the options that both protocols have next to each other; the rest has its defaults.
    pub(crate) fn read(
        fields: &mut Fields<'_>,
        address: Address,
        protocols: Protocols,
    ) -> SharedConfig {
        let doc = "TLS. Unset: connections are not encrypted.";
        let tls = fields.section_unless_empty("tls", doc, TlsOptions::read_server);
        let doc = "Authentication of senders. Unset: every client that can connect may send.";
        let authenticator = authenticator(fields, doc);
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

#[cfg(test)]
mod tests;
