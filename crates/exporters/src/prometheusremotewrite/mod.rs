//! Prometheus' remote write, 1.0 and 2.0.

mod answer;
mod config;
mod note;
#[cfg(test)]
pub(crate) mod real_tests;
#[cfg(test)]
pub(crate) mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use sluice_config::{ComponentKind, Kind, shown_url};
use sluice_flow::{Exporter, PackError, Packed};
use sluice_net::client::{Origin, Secrets};
use sluice_net::compress::{compress_snappy_block, joined};
use sluice_otlp::{Encoding, Signal};
use sluice_prometheus::{Settings, Version, WriteError, write};

use crate::client_options::ClientOptions;
use crate::connections::Destination;
use crate::exporter::{BuildContext, BuildError, ExporterConfig, NamedTarget};
use crate::network::{Answered, NetworkExporter, Protocol};
use crate::note::body_and_note;
use config::RemoteWriteConfig;
use note::Note;

const VERSION: HeaderName = HeaderName::from_static("x-prometheus-remote-write-version");

pub(crate) const KIND: ComponentKind<Box<dyn ExporterConfig>> = ComponentKind::new(
    Kind {
        signals: &[Signal::Metrics],
        ..Kind::new("prometheusremotewrite", "Sends metrics by Prometheus' remote write")
            .aliases(&["prometheus_remote_write"])
    },
    |fields| Box::new(RemoteWriteConfig::read(fields)),
);

impl ExporterConfig for RemoteWriteConfig {
    fn client(&self) -> Option<&ClientOptions> {
        Some(&self.client)
    }

    fn open_files(&self, requests: usize) -> usize {
        self.connections.http.connections.map_or(requests, |most| requests.min(most))
    }

    fn destinations(&self) -> Vec<NamedTarget> {
        let Ok(origin) = Origin::of(&self.url) else { return Vec::new() };
        let (target, tls) = (Some(origin.target), Some(origin.tls));
        vec![NamedTarget { option: "endpoint", text: shown_url(&self.url), target, tls }]
    }

    fn build(&self, context: &BuildContext<'_>) -> Result<Arc<dyn Exporter>, BuildError> {
        let Origin { uri, target, tls } = Origin::of(&self.url)?;
        let client = self.connections.client(&self.client, target, tls)?;
        let (settings, metadata_keys) = (self.settings.clone(), self.metadata_keys.clone());
        let destination = Destination { uri, client };
        let protocol = RemoteWrite { settings, metadata_keys, destination };
        let headers = |_| headers(self, context);
        Ok(Arc::new(NetworkExporter::new(protocol, None, headers, &self.client, context)?))
    }
}

fn headers(config: &RemoteWriteConfig, context: &BuildContext<'_>) -> HeaderMap {
    let (content_type, version) = match config.settings.version {
        Version::V1 => ("application/x-protobuf", "0.1.0"),
        Version::V2 => ("application/x-protobuf;proto=io.prometheus.write.v2.Request", "2.0.0"),
    };
    let mut headers = config.client.headers.clone();
    headers.insert(USER_AGENT, context.user_agent.clone());
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("snappy"));
    headers.insert(VERSION, HeaderValue::from_static(version));
    headers
}

struct RemoteWrite {
    settings: Settings,
    metadata_keys: Vec<String>,
    destination: Destination,
}

impl RemoteWrite {
    /// With the request metadata that the configuration names.
    fn with_metadata<'a>(&self, request: &Packed, headers: &'a HeaderMap) -> Cow<'a, HeaderMap> {
        let mut headers = Cow::Borrowed(headers);
        for (name, value) in &request.metadata.headers {
            if self.metadata_keys.contains(name)
                && let Ok(name) = HeaderName::try_from(name)
                && let Ok(mut value) = HeaderValue::try_from(value.clone())
            {
                value.set_sensitive(true);
                headers.to_mut().append(name, value);
            }
        }
        headers
    }
}

impl Protocol for RemoteWrite {
    fn pack(&self, _: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), PackError> {
        let written = write(&self.settings, &joined(&chunks)).map_err(|error| match error {
            WriteError::TooLarge { .. } => PackError::TooLarge(error.to_string()),
            WriteError::Malformed(_) => PackError::Failed(error.to_string()),
        })?;
        let note = Note::of(&written.counts).to_bytes();
        if written.parts.is_empty() {
            return Ok((vec![Bytes::new(), note], Encoding::Snappy));
        }
        let parts: Vec<Bytes> = written.parts.into_iter().map(Bytes::from).collect();
        let body = compress_snappy_block(&parts).map_err(|error| error.to_string())?;
        Ok((vec![body, note], Encoding::Snappy))
    }

    /// The message, a copy that is compressed, and what it becomes. A point with its resource can
    /// make many series, so that a small request may make a message of the largest size.
    fn packing_bytes(&self, request_bytes: usize, _: usize) -> usize {
        let message_bytes = self.settings.limit_bytes.saturating_add(request_bytes);
        request_bytes.saturating_mul(2).saturating_add(message_bytes.saturating_mul(3))
    }

    fn metadata_keys(&self) -> &[String] {
        &self.metadata_keys
    }

    fn secrets<'a>(&'a self, _: Signal, headers: &'a HeaderMap) -> Secrets<'a> {
        let Destination { uri, client } = &self.destination;
        Secrets::of(headers).and_proxy(client.clear_proxy()).and_query(uri.query())
    }

    async fn send(&self, request: &Packed, headers: &HeaderMap) -> Answered {
        let (body, note) = match body_and_note(request) {
            Ok(parts) => parts,
            Err(outcome) => return Ok((outcome, false)),
        };
        let note = Note::from_bytes(note);
        if body.is_empty() {
            return Ok((answer::of_nothing(note), false));
        }
        let headers = self.with_metadata(request, headers);
        let answer = self.destination.post(&headers, &Arc::from([body.clone()])).await?;
        let secrets = self.secrets(request.signal, &headers);
        let outcome = answer::of(self.settings.version, note, &answer, &secrets);
        Ok((outcome, answer.status == StatusCode::UNAUTHORIZED))
    }

    fn shut_down(&self) {
        self.destination.client.shut_down();
    }
}
