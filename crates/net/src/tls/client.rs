//! The client side.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;

use super::self_signed::AnyServer;
use super::{ClientTlsOptions, TlsError, material, provider, self_signed, unusable};
use crate::reload::{Reloading, Snapshot};

/// A client's TLS settings, following their files.
pub struct ClientTls(Arc<Reloading<ClientConfig>>);

impl ClientTls {
    pub fn new(options: ClientTlsOptions) -> Result<Self, TlsError> {
        let provider = provider::provider(&options.common);
        let common = &options.common;
        let files = material::files([&common.certificate, &common.key, &common.authorities]);
        let interval = common.reload_interval;
        let build = move |snapshot: &Snapshot| build(&options, &provider, snapshot);
        Reloading::start("a client's TLS certificates", files, interval, build).map(ClientTls)
    }

    /// The settings as the files are now: ask at every new connection. `alpn`: the protocols to ask
    /// for, the preferred one first (`h2`, `http/1.1`).
    pub fn current(&self, alpn: &[&[u8]]) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.0.current());
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    }
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
