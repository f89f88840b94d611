//! A backend that gets requests without a delivery: Sluice's own telemetry.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderMap;
use sluice_net::client::{Endpoint, Origin};
use sluice_net::tls::{ClientTlsOptions, Pem, TlsOptions};
use sluice_otlp::Signal;

use crate::client_options::ClientOptions;
use crate::exporter::ExporterConfig;
use crate::json::Format;
use crate::otlp::OtlpConfig;
use crate::otlphttp::OtlpHttpConfig;
use crate::sending::Sending;

/// More is refused by servers that have the default limit of gRPC.
const REQUEST_LIMIT_BYTES: usize = 4 * 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectProtocol {
    Grpc,
    Http { is_json: bool },
}

/// The options of such a backend. What they do not say is as the exporters' defaults.
#[derive(Clone, Debug)]
pub struct Direct {
    pub protocol: DirectProtocol,
    /// With `http://` or `https://`. Over HTTP the whole URL.
    pub endpoint: String,
    pub headers: HeaderMap,
    /// With gzip.
    pub is_packed: bool,
    /// Of one request.
    pub timeout: Duration,
    pub ca_file: Option<String>,
    pub cert_file: Option<String>,
    pub key_file: Option<String>,
}

impl Direct {
    /// Why the endpoint cannot be used, if it cannot.
    pub fn problem(&self) -> Option<String> {
        match self.protocol {
            DirectProtocol::Grpc => Endpoint::parse(&self.endpoint).err().map(|it| it.to_string()),
            DirectProtocol::Http { .. } => {
                Origin::of(&self.endpoint).err().map(|it| it.to_string())
            }
        }
    }

    /// The configuration of an exporter of this signal.
    pub fn config(&self, signal: Signal) -> Box<dyn ExporterConfig> {
        match self.protocol {
            DirectProtocol::Grpc => {
                let endpoint = self.endpoint.clone();
                Box::new(OtlpConfig::plain(endpoint, self.is_packed, self.client()))
            }
            DirectProtocol::Http { is_json } => {
                let format = if is_json { Format::Json } else { Format::Proto };
                let mut urls = [const { String::new() }; 3];
                urls[signal as usize] = self.endpoint.clone();
                Box::new(OtlpHttpConfig::plain(urls, format, self.is_packed, self.client()))
            }
        }
    }

    fn client(&self) -> ClientOptions {
        let file = |path: &Option<String>| path.as_ref().map(|it| Pem::File(PathBuf::from(it)));
        let common = TlsOptions {
            certificate: file(&self.cert_file),
            key: file(&self.key_file),
            authorities: file(&self.ca_file),
            ..TlsOptions::default()
        };
        ClientOptions {
            timeout: self.timeout,
            compression_level: None,
            tls: ClientTlsOptions { common, ..ClientTlsOptions::default() },
            headers: self.headers.clone(),
            authenticator: None,
            max_request_bytes: REQUEST_LIMIT_BYTES,
            sending: Sending::default(),
            is_idempotent: false,
        }
    }
}
