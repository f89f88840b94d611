//! OTLP over HTTP.

mod config;
mod redirect;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use sluice_config::{ComponentKind, Kind};
use sluice_flow::{BoxFuture, Exporter, Metadata, Outcome, Packed};
use sluice_net::client::{
    Answer, HttpClient, HttpOptions, Keepalive, Origin, Proxy, Target, TransportError,
};
use sluice_net::compress;
use sluice_otlp::{Encoding, Signal};

use config::URL_OPTIONS;
pub(crate) use config::{Compression, Format, OtlpHttpConfig};
use redirect::REDIRECTS_MAX;

use crate::build::{BuildContext, BuildError};
use crate::client_options::ClientOptions;
use crate::credentials::Credentials;
use crate::{ExporterConfig, Sending, outcome};

pub(crate) const KIND: ComponentKind<Box<dyn ExporterConfig>> = ComponentKind::new(
    Kind::new("otlphttp", "Sends OTLP over HTTP, as protobuf or JSON").aliases(&["otlp_http"]),
    |fields| Box::new(OtlpHttpConfig::read(fields)),
);

impl ExporterConfig for OtlpHttpConfig {
    fn sending(&self) -> &Sending {
        &self.client.sending
    }

    fn client(&self) -> Option<&ClientOptions> {
        Some(&self.client)
    }

    fn missing_option(&self, signal: Signal) -> Option<&'static str> {
        self.urls[signal as usize].is_empty().then_some(URL_OPTIONS[signal as usize])
    }

    fn build(&self, context: &BuildContext<'_>) -> Result<Arc<dyn Exporter>, BuildError> {
        Ok(Arc::new(OtlpHttpExporter::new(self, context)?))
    }
}

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
    pub(crate) fn new(
        config: &OtlpHttpConfig,
        context: &BuildContext<'_>,
    ) -> Result<OtlpHttpExporter, BuildError> {
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
            credentials: context.credentials(config.authenticator())?,
            format: config.format,
            compression: config.compression,
            compression_level: config.client.compression_level,
            timeout: config.client.timeout,
            request_limit_bytes: config.client.max_request_bytes,
        })
    }

    async fn deliver(&self, request: &Packed) -> Outcome {
        let Some(destination) = &self.destinations[request.signal as usize] else {
            let signal = request.signal;
            return Outcome::Misconfigured {
                reason: format!("neither endpoint nor {signal}_endpoint is configured"),
            };
        };
        let fixed =
            if request.encoding == Encoding::Identity { &self.plain } else { &self.compressed };
        let headers = match self.credentials.headers(fixed, &request.metadata).await {
            Ok(headers) => headers,
            Err(outcome) => return outcome,
        };
        let answer = match destination.post(&headers, &request.chunks).await {
            Ok(answer) => answer,
            Err(error) => return outcome::of_transport_error(&error),
        };
        if answer.status == StatusCode::UNAUTHORIZED {
            self.credentials.refused().await;
        }
        outcome::of_http(&answer)
    }
}

impl Destination {
    async fn post(
        &self,
        headers: &HeaderMap,
        body: &Arc<[Bytes]>,
    ) -> Result<Answer, TransportError> {
        let mut uri = Cow::Borrowed(&self.uri);
        let mut redirects = 0;
        loop {
            let answer = self.client.post(&uri, headers, body).await?;
            match redirect::target(&uri, &answer) {
                Some(target) if redirects < REDIRECTS_MAX => uri = Cow::Owned(target),
                _ => return Ok(answer),
            }
            redirects += 1;
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
    for (name, value) in &config.client.headers {
        plain.insert(name.clone(), value.clone());
    }
    plain.insert(CONTENT_TYPE, content_type);
    let mut compressed = plain.clone();
    if let Some(token) = config.compression.token() {
        compressed.insert(CONTENT_ENCODING, HeaderValue::from_static(token));
    }
    (plain, compressed)
}

fn destinations(
    config: &OtlpHttpConfig,
    options: &HttpOptions,
) -> Result<[Option<Destination>; 3], BuildError> {
    let mut clients: Vec<(Target, bool, HttpClient)> = Vec::new();
    let mut destinations = [None, None, None];
    for (destination, url) in
        destinations.iter_mut().zip(&config.urls).filter(|(_, url)| !url.is_empty())
    {
        let Origin { uri, target, tls } = Origin::of(url)?;
        let known =
            clients.iter().find(|(known, known_tls, _)| *known == target && *known_tls == tls);
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

fn client(
    config: &OtlpHttpConfig,
    target: Target,
    tls: bool,
    options: HttpOptions,
) -> Result<HttpClient, BuildError> {
    let proxy = match &config.proxy_url {
        Some(url) => Proxy::parse(url).map(Some),
        None => Proxy::from_environment(&target, tls),
    };
    let connect = config.client.connect_options(tls, proxy, options.connect)?;
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

fn packed<E: Display>(
    bytes: Result<Bytes, E>,
    encoding: Encoding,
) -> Result<(Vec<Bytes>, Encoding), String> {
    Ok((vec![bytes.map_err(|error| error.to_string())?], encoding))
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

    fn pass_through_limit_bytes(&self) -> usize {
        self.request_limit_bytes
    }

    fn pack(&self, signal: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), String> {
        let chunks = match self.format {
            Format::Proto => chunks,
            Format::Json => vec![crate::json::to_json(signal, &chunks)?],
        };
        let level = self.compression_level;
        match self.compression {
            Compression::None => Ok((chunks, Encoding::Identity)),
            Compression::Gzip => {
                packed(compress::compress(Encoding::Gzip, &chunks, level), Encoding::Gzip)
            }
            Compression::Zstd => {
                packed(compress::compress(Encoding::Zstd, &chunks, level), Encoding::Zstd)
            }
            Compression::SnappyFramed => {
                packed(compress::compress(Encoding::Snappy, &chunks, level), Encoding::Snappy)
            }
            Compression::SnappyBlock => {
                packed(compress::compress_snappy_block(&chunks), Encoding::Snappy)
            }
            Compression::Zlib | Compression::Deflate => {
                packed(compress::compress_zlib(&chunks, level), ONLY_OVER_HTTP)
            }
            Compression::Lz4 => packed(compress::compress_lz4(&chunks), ONLY_OVER_HTTP),
        }
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

    fn refuses(&self, metadata: &Metadata) -> Option<String> {
        self.credentials.refuses(metadata)
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.destinations
                .iter()
                .flatten()
                .for_each(|destination| destination.client.shut_down());
        })
    }
}
