//! OTLP over HTTP.

mod config;
#[cfg(test)]
mod echo_tests;
#[cfg(test)]
mod oauth2_tests;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, StatusCode};
use sluice_config::{ComponentKind, Kind, shown_url};
use sluice_flow::{Exporter, Outcome, PackError, Packed};
use sluice_net::client::{HttpClient, Origin, Secrets, Target};
use sluice_net::compress::{Packing, compress, compress_snappy_block};
use sluice_otlp::{Encoding, Signal};

use crate::client_options::ClientOptions;
use crate::connections::Destination;
use crate::exporter::{BuildContext, BuildError, ExporterConfig, NamedTarget};
use crate::json::{Format, JSON_PACKING_FACTOR};
use crate::network::{Answered, NetworkExporter, Protocol};
use crate::outcome;
pub(crate) use config::OtlpHttpConfig;
use config::{Coding, URL_OPTIONS};

pub(crate) const KIND: ComponentKind<Box<dyn ExporterConfig>> = ComponentKind::new(
    Kind::new("otlphttp", "Sends OTLP over HTTP, as protobuf or JSON").aliases(&["otlp_http"]),
    |fields| Box::new(OtlpHttpConfig::read(fields)),
);

impl ExporterConfig for OtlpHttpConfig {
    fn client(&self) -> Option<&ClientOptions> {
        Some(&self.client)
    }

    fn open_files(&self, requests: usize) -> usize {
        self.connections.http.connections.map_or(requests, |most| requests.min(most))
    }

    fn missing_option(&self, signal: Signal) -> Option<&'static str> {
        self.urls[signal as usize].is_empty().then_some(URL_OPTIONS[signal as usize])
    }

    fn destinations(&self) -> Vec<NamedTarget> {
        self.named_urls
            .iter()
            .filter_map(|(option, text)| {
                let origin = Origin::of(text).ok()?;
                let (target, tls) = (Some(origin.target), Some(origin.tls));
                Some(NamedTarget { option, text: shown_url(text), target, tls })
            })
            .collect()
    }

    fn build(&self, context: &BuildContext<'_>) -> Result<Arc<dyn Exporter>, BuildError> {
        let OtlpHttpConfig { format, coding, .. } = *self;
        let (level, destinations) = (self.client.compression_level, destinations(self)?);
        let request_limit_bytes = self.client.max_request_bytes;
        let http = Http { format, request_limit_bytes, coding, level, destinations };
        let headers = |encoding| headers(self, context, encoding);
        let Coding { token, encoding, .. } = coding;
        let is_known = matches!(token, "gzip" | "zstd") || encoding == Encoding::Identity;
        let passes_through = (format == Format::Proto && is_known).then_some(encoding);
        let exporter = NetworkExporter::new(http, passes_through, headers, &self.client, context);
        Ok(Arc::new(exporter?))
    }
}

struct Http {
    format: Format,
    /// Of the protobuf form.
    request_limit_bytes: usize,
    coding: Coding,
    level: Option<i32>,
    /// Destinations of `Signal::ALL`; none where the configuration names no URL.
    destinations: [Option<Destination>; 3],
}

fn headers(config: &OtlpHttpConfig, context: &BuildContext<'_>, encoding: Encoding) -> HeaderMap {
    let content_type = HeaderValue::from_static(match config.format {
        Format::Proto => "application/x-protobuf",
        Format::Json => "application/json",
    });
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, context.user_agent.clone());
    headers.insert(ACCEPT, content_type.clone());
    headers.extend(config.client.headers.clone());
    headers.insert(CONTENT_TYPE, content_type);
    if ![encoding, config.coding.encoding].contains(&Encoding::Identity) {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(config.coding.token));
    }
    headers
}

fn destinations(config: &OtlpHttpConfig) -> Result<[Option<Destination>; 3], BuildError> {
    let mut clients: Vec<(Target, bool, HttpClient)> = Vec::new();
    let mut destinations = [None, None, None];
    let given = config.urls.iter().enumerate().filter(|(_, url)| !url.is_empty());
    for (index, url) in given {
        let Origin { uri, target, tls } = Origin::of(url)?;
        let known = clients.iter().find(|known| (&known.0, known.1) == (&target, tls));
        let client = match known {
            Some((_, _, client)) => client.clone(),
            None => config.connections.client(&config.client, target.clone(), tls)?,
        };
        clients.push((target, tls, client.clone()));
        destinations[index] = Some(Destination { uri, client });
    }
    Ok(destinations)
}

impl Protocol for Http {
    fn pack(
        &self,
        signal: Signal,
        chunks: Vec<Bytes>,
    ) -> Result<(Vec<Bytes>, Encoding), PackError> {
        let chunks = self.format.write(signal, chunks, self.request_limit_bytes)?;
        let (Coding { token, encoding, .. }, level) = (self.coding, self.level);
        let packed = match token {
            _ if encoding == Encoding::Identity => return Ok((chunks, encoding)),
            "snappy" => compress_snappy_block(&chunks),
            "zlib" | "deflate" => compress(Packing::Zlib, &chunks, level),
            "lz4" => compress(Packing::Lz4, &chunks, level),
            _ => compress(encoding, &chunks, level),
        };
        Ok((vec![packed.map_err(|error| error.to_string())?], encoding))
    }

    fn packing_bytes(&self, request_bytes: usize, _: usize) -> usize {
        let factor = if self.format == Format::Json { JSON_PACKING_FACTOR } else { 1 };
        request_bytes.saturating_mul(factor)
    }

    fn secrets<'a>(&'a self, signal: Signal, headers: &'a HeaderMap) -> Secrets<'a> {
        let destination = self.destinations[signal as usize].as_ref();
        let secrets = Secrets::of(headers);
        let Some(Destination { uri, client }) = destination else { return secrets };
        secrets.and_proxy(client.clear_proxy()).and_query(uri.query())
    }

    async fn send(&self, request: &Packed, headers: &HeaderMap) -> Answered {
        let Some(destination) = &self.destinations[request.signal as usize] else {
            let signal = request.signal;
            let reason = format!("neither endpoint nor {signal}_endpoint is configured");
            return Ok((Outcome::Misconfigured { reason }, false));
        };
        let answer = destination.post(headers, &request.chunks).await?;
        let outcome = outcome::of_http(&answer, &self.secrets(request.signal, headers));
        Ok((outcome, answer.status == StatusCode::UNAUTHORIZED))
    }

    fn shut_down(&self) {
        self.destinations.iter().flatten().for_each(|it| it.client.shut_down());
    }
}
