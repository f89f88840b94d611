//! OTLP over gRPC.

mod config;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Uri};
use sluice_config::{ComponentKind, Kind};
use sluice_flow::{BoxFuture, Exporter, Metadata, Outcome, Packed};
use sluice_net::client::{Channel, ChannelOptions, Endpoint, Proxy, Security};
use sluice_net::compress;
use sluice_net::grpc::Code;
use sluice_net::grpc::client::{Call, call, call_headers};
use sluice_otlp::{Encoding, Signal};

use crate::client_options::ClientOptions;
use crate::exporter::{BuildContext, BuildError, Credentials, ExporterConfig};
use crate::outcome;
use crate::sending::Sending;
use config::OtlpConfig;

pub(crate) const KIND: ComponentKind<Box<dyn ExporterConfig>> = ComponentKind::new(
    Kind::new("otlp", "Sends OTLP over gRPC").aliases(&["otlp_grpc"]),
    |fields| Box::new(OtlpConfig::read(fields)),
);

impl ExporterConfig for OtlpConfig {
    fn sending(&self) -> &Sending {
        &self.client.sending
    }

    fn client(&self) -> Option<&ClientOptions> {
        Some(&self.client)
    }

    fn build(&self, context: &BuildContext<'_>) -> Result<Arc<dyn Exporter>, BuildError> {
        Ok(Arc::new(OtlpExporter::new(self, context, ChannelOptions::default())?))
    }
}

/// An answer's message is a few bytes.
const ANSWER_LIMIT_BYTES: usize = 4 * 1024 * 1024;

struct OtlpExporter {
    config: OtlpConfig,
    channel: Channel,
    /// Of `Signal::ALL`.
    uris: [Uri; 3],
    /// For requests without and with compression of our own choice; passed-through ones have the
    /// latter.
    headers: HashMap<Encoding, HeaderMap>,
    credentials: Credentials,
}

impl OtlpExporter {
    /// `options` has what no option of the configuration says.
    fn new(
        config: &OtlpConfig,
        context: &BuildContext<'_>,
        options: ChannelOptions,
    ) -> Result<OtlpExporter, BuildError> {
        let endpoint = Endpoint::parse(&config.endpoint)?;
        let tls = match endpoint.security {
            Security::Plain => false,
            Security::Tls => true,
            Security::Unset => !config.client.tls.insecure,
        };
        let proxy = Proxy::from_environment(&endpoint.target, tls);
        let connect = config.client.connect_options(tls, proxy, options.connect)?;
        let options = ChannelOptions {
            connect,
            authority: config.authority.clone(),
            connections: config.connections,
            balancer: config.balancer,
            keepalive: config.keepalive,
            wait_for_ready: config.wait_for_ready,
            ..options
        };
        let channel = Channel::new(endpoint.target, options);
        let uri = |signal: Signal| {
            channel.uri(signal.grpc_path()).map_err(|error| {
                let url = config.authority.as_ref().unwrap_or(&config.endpoint);
                format!("the URL {url:?} cannot be used: {error}")
            })
        };
        Ok(OtlpExporter {
            config: config.clone(),
            uris: [uri(Signal::Traces)?, uri(Signal::Metrics)?, uri(Signal::Logs)?],
            headers: all_headers(config, context),
            credentials: context.credentials(&config.client)?,
            channel,
        })
    }

    async fn deliver(&self, request: &Packed) -> Outcome {
        let fixed = &self.headers[&request.encoding];
        let headers = match self.credentials.headers(fixed, &request.metadata).await {
            Ok(headers) => headers,
            Err(outcome) => return outcome,
        };
        let uri = &self.uris[request.signal as usize];
        let request =
            Call { uri, headers: &headers, encoding: request.encoding, chunks: &request.chunks };
        match call(&self.channel, request, ANSWER_LIMIT_BYTES).await {
            Err(error) => outcome::of_transport_error(&error),
            Ok(reply) => {
                if reply.status.code == Code::Unauthenticated {
                    self.credentials.refused().await;
                }
                outcome::of_grpc(&reply)
            }
        }
    }
}

fn all_headers(config: &OtlpConfig, context: &BuildContext<'_>) -> HashMap<Encoding, HeaderMap> {
    let own_agent = config.user_agent.as_deref().and_then(|agent| agent.parse().ok());
    let user_agent = own_agent.unwrap_or_else(|| context.user_agent());
    let of = |encoding: Encoding| {
        let mut headers = call_headers(encoding, &user_agent, Some(config.client.timeout));
        for (name, value) in &config.client.headers {
            headers.insert(name.clone(), value.clone());
        }
        (encoding, headers)
    };
    Encoding::ALL.into_iter().map(of).collect()
}

impl Exporter for OtlpExporter {
    fn passes_through(&self) -> Option<Encoding> {
        // Two formats are called snappy: what came in may not be what goes out.
        (self.config.compression != Encoding::Snappy).then_some(self.config.compression)
    }

    fn pass_through_limit_bytes(&self) -> usize {
        self.config.client.max_request_bytes
    }

    fn pack(&self, _: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), String> {
        let (encoding, level) = (self.config.compression, self.config.client.compression_level);
        if encoding == Encoding::Identity {
            return Ok((chunks, encoding));
        }
        let packed = compress::compress(encoding, &chunks, level);
        Ok((vec![packed.map_err(|error| error.to_string())?], encoding))
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
        self.channel.shut_down();
        Box::pin(std::future::ready(()))
    }
}
