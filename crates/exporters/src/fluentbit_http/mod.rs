//! Logs over HTTP in the formats of Fluent Bit's output `http`.

mod config;
mod format;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use sluice_config::{ComponentKind, Kind, shown_url};
use sluice_flow::{Exporter, Outcome, PackError, Packed};
use sluice_net::client::{Answer, HttpClient, Origin, Proxy, Secrets};
use sluice_net::compress::compress;
use sluice_otlp::{Encoding, Signal};

use crate::client_options::ClientOptions;
use crate::exporter::{BuildContext, BuildError, ExporterConfig, NamedTarget};
use crate::fluent;
use crate::network::{Answered, NetworkExporter, Protocol};
use crate::outcome;
use config::FluentBitHttpConfig;
use format::Format;

pub(crate) const KIND: ComponentKind<Box<dyn ExporterConfig>> = ComponentKind::new(
    Kind {
        signals: &[Signal::Logs],
        ..Kind::new("fluentbit_http", "Sends logs over HTTP as Fluent Bit's output `http` does")
    },
    |fields| Box::new(FluentBitHttpConfig::read(fields)),
);

impl ExporterConfig for FluentBitHttpConfig {
    fn client(&self) -> Option<&ClientOptions> {
        Some(&self.client)
    }

    fn destinations(&self) -> Vec<NamedTarget> {
        let Ok(origin) = Origin::of(&self.url) else { return Vec::new() };
        let (target, tls) = (Some(origin.target), Some(origin.tls));
        vec![NamedTarget { option: "host", text: shown_url(&self.url), target, tls }]
    }

    fn build(&self, context: &BuildContext<'_>) -> Result<Arc<dyn Exporter>, BuildError> {
        let Origin { uri, target, tls } = Origin::of(&self.url)?;
        let proxy = Proxy::from_environment(&target, tls);
        let mut options = self.http.clone();
        self.client.set_connect(&mut options.connect, tls, proxy)?;
        let client = HttpClient::new(target, options);
        let http = Http { config: self.clone(), uri, client };
        let headers = |encoding| headers(self, context, encoding);
        Ok(Arc::new(NetworkExporter::new(http, None, headers, &self.client, context)?))
    }
}

fn headers(
    config: &FluentBitHttpConfig,
    context: &BuildContext<'_>,
    encoding: Encoding,
) -> HeaderMap {
    let content_type = HeaderValue::from_static(match config.format {
        Format::MessagePack => "application/msgpack",
        Format::JsonLines => "application/x-ndjson",
        Format::Json | Format::JsonStream => "application/json",
    });
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, context.user_agent.clone());
    headers.insert(CONTENT_TYPE, content_type);
    headers.extend(config.client.headers.clone());
    if encoding == Encoding::Gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers
}

struct Http {
    config: FluentBitHttpConfig,
    uri: Uri,
    client: HttpClient,
}

impl Protocol for Http {
    fn pack(&self, _: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), PackError> {
        let client = &self.config.client;
        let body = format::write(&self.config, &chunks)?;
        let encoding = self.config.encoding;
        if encoding == Encoding::Identity {
            return Ok((vec![body], encoding));
        }
        let packed = compress(encoding, &[body], client.compression_level);
        Ok((vec![packed.map_err(|error| error.to_string())?], encoding))
    }

    fn packing_bytes(&self, request_bytes: usize, items: usize) -> usize {
        let FluentBitHttpConfig { client, date_key, .. } = &self.config;
        fluent::packing_bytes(client, request_bytes, items, date_key.len())
    }

    fn secrets<'a>(&'a self, _: Signal, headers: &'a HeaderMap) -> Secrets<'a> {
        let secrets = Secrets::of(headers);
        secrets.and_proxy(self.client.clear_proxy()).and_query(self.uri.query())
    }

    async fn send(&self, request: &Packed, headers: &HeaderMap) -> Answered {
        let answer = self.client.post(&self.uri, headers, &request.chunks).await?;
        let outcome = outcome_of(&answer, &self.secrets(request.signal, headers));
        Ok((outcome, answer.status == StatusCode::UNAUTHORIZED))
    }

    fn shut_down(&self) {
        self.client.shut_down();
    }
}

/// As for OTLP, but any success is one, whatever its body says, and 408 is sent again.
fn outcome_of(answer: &Answer, secrets: &Secrets<'_>) -> Outcome {
    match answer.status {
        status if status.is_success() => Outcome::Delivered,
        status @ StatusCode::REQUEST_TIMEOUT => {
            let reason = secrets.peer_text(&format!("HTTP status {status}"));
            Outcome::RetryAfter { delay: None, reason }
        }
        _ => outcome::of_http(answer, secrets),
    }
}
