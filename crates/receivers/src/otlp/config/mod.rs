//! The options of the `otlp` receiver. Those of the Collector's `otlpreceiver`, `configgrpc` and
//! `confighttp` are all known: each works, or says why it does nothing here.

mod grpc;
mod http;
mod tls;

use std::net::IpAddr;
use std::path::PathBuf;

use ::http::{HeaderName, HeaderValue};
use sluice_config::Fields;
use sluice_net::compress::Packing;
use sluice_net::server::{Address, BodyTimeouts, Cors, Family, ServerOptions};
use sluice_net::tls::ServerTlsOptions;
use sluice_otlp::Encoding;

/// What OTLP recommends as the limit of a request after decompression.
pub(super) const DEFAULT_LIMIT_MIB: u64 = 64;

#[derive(Clone, Debug)]
pub struct OtlpConfig {
    pub grpc: Option<GrpcConfig>,
    pub http: Option<HttpConfig>,
}

/// What both protocols have.
#[derive(Clone, Debug)]
pub struct SharedConfig {
    pub address: Address,
    pub tls: Option<ServerTlsOptions>,
    /// Name of the extension that decides who may send.
    pub authenticator: Option<String>,
    pub include_metadata: bool,
    /// Of a request, as sent and again after decompression.
    pub limit_bytes: usize,
    pub server: ServerOptions,
    pub body_timeouts: BodyTimeouts,
}

#[derive(Clone, Debug)]
pub struct GrpcConfig {
    pub shared: SharedConfig,
}

#[derive(Clone, Debug)]
pub struct HttpConfig {
    pub shared: SharedConfig,
    pub traces_url_path: String,
    pub metrics_url_path: String,
    pub logs_url_path: String,
    pub cors: Option<Cors>,
    /// Added to every answer.
    pub response_headers: Vec<(HeaderName, HeaderValue)>,
    /// Names of the content codings that are taken, from `compression_algorithms`.
    pub compression_algorithms: Vec<String>,
    /// False: `connection: close` on every HTTP/1 answer.
    pub keep_alive: bool,
}

impl OtlpConfig {
    /// Reads the component's options.
    pub fn read(fields: &mut Fields<'_>) -> OtlpConfig {
        let config = fields.section_or_default(
            "protocols",
            "The protocols to listen for; at least one.",
            |fields| {
                let grpc = fields.section("grpc", "OTLP over gRPC.", grpc::read);
                let http =
                    fields.section("http", "OTLP over HTTP, in protobuf and JSON.", http::read);
                OtlpConfig { grpc, http }
            },
        );
        if config.grpc.is_none() && config.http.is_none() {
            fields.error_with_hint(
                "has no protocol to listen for",
                "write `protocols: {grpc: {}, http: {}}`",
            );
        }
        config
    }
}

impl HttpConfig {
    /// The content codings that are taken, by name.
    pub(super) fn encodings(&self) -> Vec<(String, Packing)> {
        let known = self
            .compression_algorithms
            .iter()
            .filter_map(|name| Some((name.clone(), packing(name)?)));
        let identity = ("identity".to_owned(), Packing::Known(Encoding::Identity));
        std::iter::once(identity).chain(known).collect()
    }
}

/// All content codings that there are. An unknown name is `None`.
pub(super) fn packing(name: &str) -> Option<Packing> {
    match name {
        "gzip" => Some(Packing::Known(Encoding::Gzip)),
        "zstd" => Some(Packing::Known(Encoding::Zstd)),
        "snappy" | "x-snappy-framed" => Some(Packing::Known(Encoding::Snappy)),
        "deflate" | "zlib" => Some(Packing::Zlib),
        "lz4" => Some(Packing::Lz4),
        _ => None,
    }
}

/// `endpoint` and `transport`.
fn address(fields: &mut Fields<'_>, default_endpoint: &str) -> Address {
    let endpoint = fields.string(
        "endpoint",
        default_endpoint,
        "Where to listen: `host:port`, `[ipv6]:port`, `:port` for all interfaces; or the path of \
         a Unix socket.",
    );
    // `None`: a path.
    let transports = [
        ("tcp", Some(Family::Any)),
        ("tcp4", Some(Family::V4)),
        ("tcp6", Some(Family::V6)),
        ("unix", None),
    ];
    let family = fields.choice(
        "transport",
        Some(Family::Any),
        &transports,
        "`tcp4` and `tcp6` listen on addresses of that family alone; `unix` makes `endpoint` a \
         path.",
    );
    let prefixed = endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:"));
    match (prefixed, family) {
        (Some(path), _) => Address::Unix(PathBuf::from(path)),
        (None, None) => Address::Unix(PathBuf::from(endpoint)),
        (None, Some(family)) => {
            match check_endpoint(&endpoint) {
                Err(why) => fields.error_at_with_hint(
                    "endpoint",
                    why,
                    "write `localhost:4317` or `0.0.0.0:4317`",
                ),
                Ok(Some(ip)) if !family.has(ip) => fields.error_at_with_hint(
                    "endpoint",
                    &format!("must be an {family} address with this `transport`"),
                    "write `transport: tcp`, or another address",
                ),
                Ok(_) => {}
            }
            Address::Tcp(endpoint, family)
        }
    }
}

/// The address in `host:port`, if the host is one and not a name.
fn check_endpoint(endpoint: &str) -> Result<Option<IpAddr>, &'static str> {
    if endpoint.contains("://") {
        return Err("must be an address without a scheme");
    }
    let (host, port) = endpoint.rsplit_once(':').ok_or("must be `host:port`")?;
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if host.contains(':') && in_brackets.is_none() {
        return Err("must have its IPv6 address in brackets");
    }
    port.parse::<u16>().map_err(|_| "must end in a port from 0 to 65535")?;
    Ok(in_brackets.unwrap_or(host).parse().ok())
}

/// `auth.authenticator`.
fn authenticator(fields: &mut Fields<'_>) -> Option<String> {
    let doc = "Who may send. Without it, every client that can connect.";
    let name = fields.section("auth", doc, |fields| {
        let name = fields.required_string(
            "authenticator",
            "Name of the extension that decides: `basicauth` or `bearertokenauth`, with its \
             `/name` if it has one.",
        );
        fields.no_effect("request_params", "authenticators see headers only");
        name
    });
    name.filter(|name| !name.is_empty())
}

fn include_metadata(fields: &mut Fields<'_>) -> bool {
    fields.boolean(
        "include_metadata",
        false,
        "Keep those of the request's headers that `headers_setter`, `metadata_keys` or \
         `from_context` name. Requests whose kept headers differ are never merged where an \
         exporter reads them.",
    )
}

#[cfg(test)]
mod tests;
