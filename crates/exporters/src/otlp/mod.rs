//! OTLP over gRPC.

mod config;
#[cfg(test)]
mod connection_tests;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Uri};
use sluice_config::{ComponentKind, Kind, shown_url};
use sluice_flow::{Exporter, PackError, Packed};
use sluice_net::client::{Balancer, Channel, Endpoint, Proxy, Secrets};
use sluice_net::compress;
use sluice_net::grpc::Code;
use sluice_net::grpc::client::{Call, call, call_headers};
use sluice_otlp::{Encoding, Signal};

use crate::client_options::ClientOptions;
use crate::exporter::{BuildContext, BuildError, ExporterConfig, NamedTarget};
use crate::network::{Answered, Built, NetworkExporter, Protocol};
use crate::outcome;
use config::ASKS_HTTPS_PROXY;
pub(crate) use config::OtlpConfig;

pub(crate) const KIND: ComponentKind<Box<dyn ExporterConfig>> = ComponentKind::new(
    Kind::new("otlp", "Sends OTLP over gRPC").aliases(&["otlp_grpc"]),
    |fields| Box::new(OtlpConfig::read(fields)),
);

/// A name with more addresses is rare: a reserve of open files is for this many.
const ADDRESSES: usize = 8;

impl ExporterConfig for OtlpConfig {
    fn client(&self) -> Option<&ClientOptions> {
        Some(&self.client)
    }

    fn spreads_requests(&self) -> bool {
        self.channel.balancer == Balancer::RoundRobin
    }

    /// Requests share connections.
    fn open_files(&self, _requests: usize) -> usize {
        let addresses = match self.channel.balancer {
            Balancer::PickFirst => 1,
            Balancer::RoundRobin => ADDRESSES,
        };
        self.channel.connections * addresses
    }

    fn destinations(&self) -> Vec<NamedTarget> {
        let Ok(endpoint) = Endpoint::parse(&self.endpoint) else { return Vec::new() };
        vec![NamedTarget {
            option: "endpoint",
            text: shown_url(&self.endpoint),
            tls: Some(self.has_tls(&endpoint)),
            target: Some(endpoint.target),
        }]
    }

    fn build(&self, context: &BuildContext<'_>) -> Result<Arc<dyn Exporter>, BuildError> {
        Ok(Arc::new(exporter(self, context)?))
    }
}

/// An answer's message is a few bytes.
const ANSWER_LIMIT_BYTES: usize = 4 * 1024 * 1024;

struct Grpc {
    compression: Encoding,
    level: Option<i32>,
    channel: Channel,
    /// The URIs of `Signal::ALL`.
    uris: [Uri; 3],
    /// Values of headers that are sent as base64, as they were: an answer may have them decoded.
    binary_values: Vec<String>,
}

fn exporter(config: &OtlpConfig, context: &BuildContext<'_>) -> Built<Grpc> {
    let endpoint = Endpoint::parse(&config.endpoint)?;
    let tls = config.has_tls(&endpoint);
    let proxy = Proxy::from_environment(&endpoint.target, ASKS_HTTPS_PROXY);
    let mut options = config.channel.clone();
    config.client.set_connect(&mut options.connect, tls, proxy)?;
    let channel = Channel::new(endpoint.target, options);
    let uri = |signal: Signal| {
        let reason = |error| format!("`authority` or `endpoint` cannot be used: {error}");
        channel.uri(signal.grpc_path()).map_err(reason)
    };
    let (fixed_headers, binary_values) = encode_binary(config.client.headers.clone());
    let grpc = Grpc {
        compression: config.compression,
        level: config.client.compression_level,
        uris: [uri(Signal::Traces)?, uri(Signal::Metrics)?, uri(Signal::Logs)?],
        channel,
        binary_values,
    };
    let user_agent = config.user_agent.as_ref().unwrap_or(&context.user_agent);
    let headers = |encoding| {
        let mut headers = call_headers(encoding, user_agent, Some(config.client.timeout));
        headers.extend(fixed_headers.clone());
        headers
    };
    // Two formats are called snappy: the backend's may be another one than the sender's.
    let passes_through = Some(config.compression).filter(|it| *it != Encoding::Snappy);
    NetworkExporter::new(grpc, passes_through, headers, &config.client, context)
}

/// Values of names that end in `-bin` are bytes to gRPC, and travel as base64. Returns the headers
/// as they are sent, and those values as they were.
fn encode_binary(mut headers: HeaderMap) -> (HeaderMap, Vec<String>) {
    let mut plain = Vec::new();
    for (_, value) in headers.iter_mut().filter(|(name, _)| name.as_str().ends_with("-bin")) {
        let text = STANDARD_NO_PAD.encode(value.as_bytes());
        let Ok(mut encoded) = HeaderValue::try_from(text) else { continue };
        encoded.set_sensitive(value.is_sensitive());
        plain.push(String::from_utf8_lossy(value.as_bytes()).into_owned());
        *value = encoded;
    }
    (headers, plain)
}

impl Protocol for Grpc {
    fn pack(&self, _: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), PackError> {
        let encoding = self.compression;
        if encoding == Encoding::Identity {
            return Ok((chunks, encoding));
        }
        let packed = compress::compress(encoding, &chunks, self.level);
        Ok((vec![packed.map_err(|error| error.to_string())?], encoding))
    }

    fn secrets<'a>(&'a self, _: Signal, headers: &'a HeaderMap) -> Secrets<'a> {
        let secrets = Secrets::of(headers);
        self.binary_values.iter().fold(secrets, |secrets, value| secrets.and(value.as_str()))
    }

    async fn send(&self, request: &Packed, headers: &HeaderMap) -> Answered {
        let signal = request.signal;
        let uri = &self.uris[signal as usize];
        let request = Call { uri, headers, encoding: request.encoding, chunks: &request.chunks };
        let reply = call(&self.channel, request, ANSWER_LIMIT_BYTES).await?;
        let outcome = outcome::of_grpc(&reply, &self.secrets(signal, headers));
        Ok((outcome, reply.status.code == Code::Unauthenticated))
    }

    fn shut_down(&self) {
        self.channel.shut_down();
    }
}
