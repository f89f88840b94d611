//! OTLP over HTTP.

mod config;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use sluice_config::{ComponentKind, Kind};
use sluice_flow::{BoxFuture, Exporter, Metadata, Outcome, Packed};
use sluice_net::client::{ConnectOptions, HttpClient, HttpOptions, Keepalive, Origin, Proxy, Target};
use sluice_net::compress;
use sluice_otlp::{Encoding, Signal};

pub use config::{Compression, Format, OtlpHttpConfig};

use crate::build::{BuildContext, BuildError};
use crate::credentials::Credentials;
use crate::otlp::packed;
use crate::{ExporterConfig, Sending, outcome};

pub(crate) const KIND: ComponentKind<Box<dyn ExporterConfig>> = ComponentKind::new(
    Kind::new("otlphttp", "Sends OTLP over HTTP, as protobuf or JSON").aliases(&["otlp_http"]),
    |fields| Box::new(OtlpHttpConfig::read(fields)),
);

impl ExporterConfig for OtlpHttpConfig {
    fn sending(&self) -> &Sending {
        &self.sending
    }

    fn request_limit_bytes(&self) -> usize {
        self.max_request_bytes
    }

    fn authenticator(&self) -> Option<&str> {
        self.authenticator.as_deref()
    }

    fn build(&self, context: &BuildContext<'_>) -> Result<Arc<dyn Exporter>, BuildError> {
        Ok(Arc::new(OtlpHttpExporter::new(self, context)?))
    }
}

const CONNECT_TIMEOUT_LIMIT: Duration = Duration::from_secs(10);

/// The encoding by which a request is known whose coding has no name outside of HTTP: it is packed,
/// and the headers say how.
const ONLY_OVER_HTTP: Encoding = Encoding::Gzip;

pub(crate) struct OtlpHttpExporter {
    /// Of `Signal::ALL`; none where the configuration names no URL.
    destinations: [Option<Destination>; 3],
    plain: HeaderMap,
    compressed: HeaderMap,
    credentials: Credentials,
    format: Format,
    compression: Compression,
    compression_level: Option<i32>,
    timeout: Duration,
    request_limit_bytes: usize,
}

struct Destination {
    uri: Uri,
    /// Shared by the signals that go to the same origin.
    client: HttpClient,
}

impl OtlpHttpExporter {
    pub(crate) fn new(config: &OtlpHttpConfig, context: &BuildContext<'_>) -> Result<OtlpHttpExporter, BuildError> {
        OtlpHttpExporter::with_options(config, context, &HttpOptions::default())
    }

    /// With other ways to connect, for tests.
    pub(crate) fn with_options(
        config: &OtlpHttpConfig,
        context: &BuildContext<'_>,
        options: &HttpOptions,
    ) -> Result<OtlpHttpExporter, BuildError> {
        let (plain, compressed) = all_headers(config, context);
        Ok(OtlpHttpExporter {
            destinations: destinations(config, options)?,
            plain,
            compressed,
            credentials: context.credentials(config.authenticator.as_deref())?,
            format: config.format,
            compression: config.compression,
            compression_level: config.compression_level,
            timeout: config.timeout,
            request_limit_bytes: config.max_request_bytes,
        })
    }

    async fn deliver(&self, request: &Packed) -> Outcome {
        let Some(destination) = &self.destinations[request.signal as usize] else {
            let signal = request.signal;
            return Outcome::Misconfigured { reason: format!("neither endpoint nor {signal}_endpoint is configured") };
        };
        let fixed = if request.encoding == Encoding::Identity { &self.plain } else { &self.compressed };
        let headers = match self.credentials.headers(fixed, &request.metadata).await {
            Ok(headers) => headers,
            Err(outcome) => return outcome,
        };
        match destination.client.post(&destination.uri, &headers, &request.chunks).await {
            Err(error) => outcome::of_transport_error(&error),
            Ok(answer) => {
                if answer.status == StatusCode::UNAUTHORIZED {
                    self.credentials.refused().await;
                }
                outcome::of_http(&answer)
            }
        }
    }
}

fn all_headers(config: &OtlpHttpConfig, context: &BuildContext<'_>) -> (HeaderMap, HeaderMap) {
    let content_type = HeaderValue::from_static(match config.format {
        Format::Proto => "application/x-protobuf",
        Format::Json => "application/json",
    });
    let mut plain = HeaderMap::new();
    plain.insert(USER_AGENT, context.user_agent());
    plain.insert(ACCEPT, content_type.clone());
    for (name, value) in &config.headers {
        plain.insert(name.clone(), value.clone());
    }
    plain.insert(CONTENT_TYPE, content_type);
    let mut compressed = plain.clone();
    if let Some(token) = config.compression.token() {
        compressed.insert(CONTENT_ENCODING, HeaderValue::from_static(token));
    }
    (plain, compressed)
}

fn destinations(config: &OtlpHttpConfig, options: &HttpOptions) -> Result<[Option<Destination>; 3], BuildError> {
    let mut clients: Vec<(Target, bool, HttpClient)> = Vec::new();
    let mut destinations = [None, None, None];
    for (destination, url) in destinations.iter_mut().zip(&config.urls).filter(|(_, url)| !url.is_empty()) {
        let Origin { uri, target, tls } = Origin::of(url)?;
        let known = clients.iter().find(|(known, known_tls, _)| *known == target && *known_tls == tls);
        let client = match known {
            Some((_, _, client)) => client.clone(),
            None => {
                let client = client(config, target.clone(), tls, options.clone())?;
                clients.push((target, tls, client.clone()));
                client
            }
        };
        *destination = Some(Destination { uri, client });
    }
    Ok(destinations)
}

fn client(config: &OtlpHttpConfig, target: Target, tls: bool, options: HttpOptions) -> Result<HttpClient, BuildError> {
    let proxy = match &config.proxy_url {
        Some(url) => Proxy::parse(url).map(Some),
        None => Proxy::from_environment(&target, tls),
    };
    let mut connect = ConnectOptions {
        connect_timeout: config.timeout.min(CONNECT_TIMEOUT_LIMIT),
        proxy: proxy.map_err(|reason| BuildError::Proxy { reason })?,
        ..options.connect
    };
    if tls {
        connect.tls = Some(config.tls.build()?);
        connect.server_name = config.tls.options.server_name_override.clone();
    }
    let pings = Keepalive {
        time: config.http2_read_idle_timeout,
        timeout: config.http2_ping_timeout,
        permit_without_stream: true,
    };
    let options = HttpOptions {
        connect,
        connections: config.max_conns_per_host,
        idle_connections: config.max_idle_conns,
        idle_timeout: config.idle_conn_timeout,
        keep_alive: config.keep_alive,
        http2: config.http2,
        http2_keepalive: (!config.http2_read_idle_timeout.is_zero()).then_some(pings),
        ..options
    };
    Ok(HttpClient::new(target, options))
}

impl Exporter for OtlpHttpExporter {
    fn passes_through(&self) -> Option<Encoding> {
        match (self.format, self.compression) {
            (Format::Proto, Compression::None) => Some(Encoding::Identity),
            (Format::Proto, Compression::Gzip) => Some(Encoding::Gzip),
            (Format::Proto, Compression::Zstd) => Some(Encoding::Zstd),
            _ => None,
        }
    }

    fn request_limit_bytes(&self) -> usize {
        self.request_limit_bytes
    }

    fn pack(&self, signal: Signal, items: u32, chunks: Vec<Bytes>, metadata: Arc<Metadata>) -> Result<Packed, String> {
        let chunks = match self.format {
            Format::Proto => chunks,
            Format::Json => vec![crate::json::to_json(signal, &chunks)?],
        };
        let level = self.compression_level;
        let pack = |encoding| compress::compress(encoding, &chunks, level).map_err(|error| error.to_string());
        let (bytes, encoding) = match self.compression {
            Compression::None => return Ok(packed(signal, items, chunks, Encoding::Identity, metadata)),
            Compression::Gzip => (pack(Encoding::Gzip)?, Encoding::Gzip),
            Compression::Zstd => (pack(Encoding::Zstd)?, Encoding::Zstd),
            Compression::SnappyFramed => (pack(Encoding::Snappy)?, Encoding::Snappy),
            Compression::SnappyBlock => {
                let bytes = compress::compress_snappy_block(&chunks).map_err(|error| error.to_string())?;
                (bytes, Encoding::Snappy)
            }
            Compression::Zlib | Compression::Deflate => {
                let bytes = compress::compress_zlib(&chunks, level).map_err(|error| error.to_string())?;
                (bytes, ONLY_OVER_HTTP)
            }
            Compression::Lz4 => {
                let bytes = compress::compress_lz4(&chunks).map_err(|error| error.to_string())?;
                (bytes, ONLY_OVER_HTTP)
            }
        };
        Ok(packed(signal, items, vec![bytes], encoding, metadata))
    }

    fn send<'a>(&'a self, request: &'a Packed) -> BoxFuture<'a, Outcome> {
        Box::pin(self.deliver(request))
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn metadata_keys(&self) -> &[String] {
        self.credentials.metadata_keys()
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.destinations.iter().flatten().for_each(|destination| destination.client.shut_down());
        })
    }
}
