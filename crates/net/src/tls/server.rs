//! The server side.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;

use super::{ServerTlsOptions, TlsError, material, provider, self_signed};
use crate::reload::{Reloading, Snapshot};

/// A server's TLS settings, following their files. Ask for `current` at every handshake.
pub struct ServerTls {
    config: Arc<Reloading<Arc<ServerConfig>>>,
}

impl ServerTls {
    /// `alpn`: the protocols that are offered, the preferred one first (`h2`, `http/1.1`).
    pub fn new(
        options: ServerTlsOptions,
        alpn: &'static [&'static [u8]],
    ) -> Result<Self, TlsError> {
        if options.common.certificate.is_none() {
            return Err(TlsError::Option {
                option: "cert_file",
                reason: "a server needs a certificate and its key".to_owned(),
            });
        }
        let provider = provider::provider(&options.common)?;
        let files = material::files([
            &options.common.certificate,
            &options.common.key,
            &options.client_authorities,
        ]);
        let interval = options.common.reload_interval;
        let config = Reloading::start(
            "the server's TLS certificate",
            files,
            interval,
            move |snapshot: &Snapshot| build(&options, &provider, alpn, snapshot).map(Arc::new),
        )?;
        Ok(ServerTls { config })
    }

    pub fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.current())
    }

    /// Reads the files now instead of at the next interval. Returns whether anything changed.
    pub fn check_files(&self) -> bool {
        self.config.check()
    }
}

fn build(
    options: &ServerTlsOptions,
    provider: &Arc<CryptoProvider>,
    alpn: &[&[u8]],
    snapshot: &Snapshot,
) -> Result<ServerConfig, TlsError> {
    let unusable = |reason: String| TlsError::Unusable { reason };
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(provider::versions(&options.common)?)
        .map_err(|error| unusable(error.to_string()))?;
    let builder = match &options.client_authorities {
        None => builder.with_no_client_auth(),
        Some(source) => {
            let trusted = material::authorities(source, snapshot)?;
            builder.with_client_cert_verifier(self_signed::client_verifier(trusted, provider)?)
        }
    };
    let (chain, key) =
        material::identity(&options.common, snapshot)?.ok_or_else(|| TlsError::Option {
            option: "cert_file",
            reason: "a server needs a certificate and its key".to_owned(),
        })?;
    let mut config =
        builder.with_single_cert(chain, key).map_err(|error| unusable(error.to_string()))?;
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}
