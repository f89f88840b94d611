//! The server side.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;

use super::{ServerTlsOptions, TlsError, material, provider, self_signed, unusable};
use crate::reload::{Reloading, Snapshot};

/// A server's TLS settings, following their files.
pub struct ServerTls(pub(super) Arc<Reloading<ServerConfig>>);

impl ServerTls {
    /// `alpn`: the protocols that are offered, the preferred one first (`h2`, `http/1.1`).
    pub fn new(
        options: ServerTlsOptions,
        alpn: &'static [&'static [u8]],
    ) -> Result<Self, TlsError> {
        let provider = provider::provider(&options.common);
        let common = &options.common;
        let files =
            material::files([&common.certificate, &common.key, &options.client_authorities]);
        let interval = common.reload_interval;
        let build = move |snapshot: &Snapshot| build(&options, &provider, alpn, snapshot);
        Reloading::start("the server's TLS certificate", files, interval, build).map(ServerTls)
    }

    /// The settings as the files are now: ask at every handshake.
    pub fn current(&self) -> Arc<ServerConfig> {
        self.0.current()
    }
}

fn build(
    options: &ServerTlsOptions,
    provider: &Arc<CryptoProvider>,
    alpn: &[&[u8]],
    snapshot: &Snapshot,
) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&provider::versions(&options.common))
        .map_err(unusable)?;
    let builder = match &options.client_authorities {
        None => builder.with_no_client_auth(),
        Some(source) => {
            let trusted = material::authorities(source, snapshot)?;
            builder.with_client_cert_verifier(self_signed::client_verifier(trusted, provider)?)
        }
    };
    let none = || TlsError("cert_file: a server needs a certificate and its key".to_owned());
    let (chain, key) = material::identity(&options.common, snapshot)?.ok_or_else(none)?;
    let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}
