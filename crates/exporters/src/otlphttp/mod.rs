//! OTLP over HTTP.

mod config;
mod redirect;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
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

use crate::client_options::ClientOptions;
use crate::exporter::{BuildContext, BuildError, Credentials, ExporterConfig};
use crate::outcome;
use crate::sending::Sending;
use config::{Compression, Format, OtlpHttpConfig, URL_OPTIONS};
use redirect::REDIRECTS_MAX;

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
        Ok(Arc::new(OtlpHttpExporter::new(self, context, &HttpOptions::default())?))
    }
}

struct OtlpHttpExporter {
    config: OtlpHttpConfig,
    /// Of `Signal::ALL`; none where the configuration names no URL.
    destinations: [Option<Destination>; 3],
    plain: HeaderMap,
    compressed: HeaderMap,
    credentials: Credentials,
}

struct Destination {
    uri: Uri,
    /// Shared by the signals that go to the same origin.
    client: HttpClient,
}

impl OtlpHttpExporter {
    /// `options` has what no option of the configuration says.
    fn new(
        config: &OtlpHttpConfig,
        context: &BuildContext<'_>,
        options: &HttpOptions,
    ) -> Result<OtlpHttpExporter, BuildError> {
        let (plain, compressed) = all_headers(config, context);
        Ok(OtlpHttpExporter {
            destinations: destinations(config, options)?,
            plain,
            compressed,
            credentials: context.credentials(&config.client)?,
            config: config.clone(),
        })
    }

    async fn deliver(&self, request: &Packed) -> Outcome {
        let Some(destination) = &self.destinations[request.signal as usize] else {
            let signal = request.signal;
            let reason = format!("neither endpoint nor {signal}_endpoint is configured");
            return Outcome::Misconfigured { reason };
        };
        let fixed =
            if request.encoding == Encoding::Identity { &self.plain } else { &self.compressed };
        let headers = match self.credentials.headers(fixed, &request.metadata).await {
            Ok(headers) => headers,
            Err(outcome) => return outcome,
        };
        match destination.post(&headers, &request.chunks).await {
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
    let given = config.urls.iter().enumerate().filter(|(_, url)| !url.is_empty());
    for (index, url) in given {
        let Origin { uri, target, tls } = Origin::of(url)?;
        let known = clients.iter().find(|known| (&known.0, known.1) == (&target, tls));
        let client = match known {
            Some((_, _, client)) => client.clone(),
            None => client(config, target.clone(), tls, options.clone())?,
        };
        clients.push((target, tls, client.clone()));
        destinations[index] = Some(Destination { uri, client });
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

impl Exporter for OtlpHttpExporter {
    fn passes_through(&self) -> Option<Encoding> {
        match (self.config.format, self.config.compression) {
            (
                Format::Proto,
                known @ (Compression::None | Compression::Gzip | Compression::Zstd),
            ) => Some(known.encoding()),
            _ => None,
        }
    }

    fn pass_through_limit_bytes(&self) -> usize {
        self.config.client.max_request_bytes
    }

    fn pack(&self, signal: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), String> {
        let chunks = match self.config.format {
            Format::Proto => chunks,
            Format::Json => vec![crate::json::to_json(signal, &chunks)?],
        };
        let (compression, level) = (self.config.compression, self.config.client.compression_level);
        let encoding = compression.encoding();
        let packed = match compression {
            Compression::None => return Ok((chunks, encoding)),
            Compression::Gzip | Compression::Zstd | Compression::SnappyFramed => {
                compress::compress(encoding, &chunks, level).map_err(|error| error.to_string())
            }
            Compression::SnappyBlock => {
                compress::compress_snappy_block(&chunks).map_err(|error| error.to_string())
            }
            Compression::Zlib | Compression::Deflate => {
                compress::compress_zlib(&chunks, level).map_err(|error| error.to_string())
            }
            Compression::Lz4 => compress::compress_lz4(&chunks).map_err(|error| error.to_string()),
        };
        Ok((vec![packed?], encoding))
    }

    fn send<'a>(&'a self, request: &'a Packed) -> BoxFuture<'a, Outcome> {
        Box::pin(self.deliver(request))
    }

    fn timeout(&self) -> Duration {
        self.config.client.timeout
    }

    fn metadata_keys(&self) -> &[String] {
        self.credentials.metadata_keys()
    }

    fn refuses(&self, metadata: &Metadata) -> Option<String> {
        self.credentials.refuses(metadata)
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        self.destinations.iter().flatten().for_each(|it| it.client.shut_down());
        Box::pin(std::future::ready(()))
    }
}
