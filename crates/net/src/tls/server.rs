//! The server side.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;

use super::{TlsError, TlsOptions, material, provider, self_signed, unusable};
use crate::reload::{Reloading, Snapshot};

/// A server's TLS settings, following their files: as they are now at every handshake.
pub type ServerTls = Arc<Reloading<ServerConfig>>;

/// Reads certificates; they are read again when their files change. `alpn`: the protocols that are
/// offered, the preferred one first (`h2`, `http/1.1`). `what` names the server in logs.
pub fn server_tls(
    what: &str,
    options: TlsOptions,
    alpn: &'static [&'static [u8]],
) -> Result<ServerTls, TlsError> {
    let common = options.clone();
    material::follow(&format!("TLS of {what}"), &common, move |provider, snapshot| {
        build(&options, provider, alpn, snapshot)
    })
}

/// Whether a server could start with these options and files. Follows no changes.
pub fn check_server(options: &TlsOptions) -> Result<(), TlsError> {
    let options = TlsOptions { reload_interval: None, ..options.clone() };
    server_tls("a server", options, &[]).map(drop)
}

fn build(
    options: &TlsOptions,
    provider: &Arc<CryptoProvider>,
    alpn: &[&[u8]],
    snapshot: &Snapshot,
) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&provider::versions(options))
        .map_err(unusable)?;
    let builder = match &options.authorities {
        None => builder.with_no_client_auth(),
        Some(source) => {
            let trusted = material::authorities(source, snapshot)?;
            builder.with_client_cert_verifier(self_signed::client_verifier(trusted, provider)?)
        }
    };
    let none = || TlsError("cert_file: a server needs a certificate and its key".to_owned());
    let (chain, key) = material::identity(options, snapshot)?.ok_or_else(none)?;
    let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}
