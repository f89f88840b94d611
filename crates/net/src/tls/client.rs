//! The client side.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;

use super::self_signed::AnyServer;
use super::{ClientTlsOptions, TlsError, material, provider, self_signed, unusable};
use crate::reload::{Reloading, Snapshot};

/// A client's TLS settings, following their files.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<Reloading<ClientConfig>>,
    /// See [`ClientTlsOptions::server_name_override`].
    pub(crate) server_name: Option<String>,
}

impl ClientTls {
    /// Reads certificates; they are read again when their files change.
    pub fn new(options: ClientTlsOptions) -> Result<Self, TlsError> {
        let (common, server_name) = (options.common.clone(), options.server_name_override.clone());
        let config =
            material::follow("a client's TLS certificates", &common, move |provider, snapshot| {
                build(&options, provider, snapshot)
            })?;
        Ok(ClientTls { config, server_name })
    }

    /// The settings as the files are now: ask at every new connection. `alpn`: the protocols to ask
    /// for, the preferred one first (`h2`, `http/1.1`).
    pub fn current(&self, alpn: &[&[u8]]) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.config.current());
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    }
}

/// Whether a client could be made of these options and files. Follows no changes.
pub fn check_client(options: &ClientTlsOptions) -> Result<(), TlsError> {
    let mut options = options.clone();
    options.common.reload_interval = None;
    ClientTls::new(options).map(drop)
}

fn build(
    options: &ClientTlsOptions,
    provider: &Arc<CryptoProvider>,
    snapshot: &Snapshot,
) -> Result<ClientConfig, TlsError> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&provider::versions(&options.common))
        .map_err(unusable)?;
    let verifier = if options.insecure_skip_verify {
        Arc::new(AnyServer { algorithms: provider.signature_verification_algorithms })
    } else {
        self_signed::server_verifier(material::trusted(&options.common, snapshot)?, provider)?
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    match material::identity(&options.common, snapshot)? {
        None => Ok(builder.with_no_client_auth()),
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(unusable),
    }
}
