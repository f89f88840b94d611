//! The client side.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

use super::{ClientTlsOptions, TlsError, material, provider, self_signed};
use crate::reload::{Reloading, Snapshot};

/// A client's TLS settings, following their files. Ask for `current` at every new connection.
pub struct ClientTls {
    config: Arc<Reloading<Arc<ClientConfig>>>,
}

impl ClientTls {
    /// `alpn`: the protocols to ask for, the preferred one first (`h2`, `http/1.1`).
    pub fn new(
        options: ClientTlsOptions,
        alpn: &'static [&'static [u8]],
    ) -> Result<Self, TlsError> {
        let provider = provider::provider(&options.common)?;
        let common = &options.common;
        let files = material::files([&common.certificate, &common.key, &common.authorities]);
        let interval = common.reload_interval;
        let config = Reloading::start(
            "a client's TLS certificates",
            files,
            interval,
            move |snapshot: &Snapshot| build(&options, &provider, alpn, snapshot).map(Arc::new),
        )?;
        Ok(ClientTls { config })
    }

    pub fn current(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config.current())
    }

    /// Reads the files now instead of at the next interval. Returns whether anything changed.
    pub fn check_files(&self) -> bool {
        self.config.check()
    }
}

/// Whether a certificate can bear this name.
pub fn is_server_name(name: &str) -> bool {
    ServerName::try_from(name).is_ok()
}

fn build(
    options: &ClientTlsOptions,
    provider: &Arc<CryptoProvider>,
    alpn: &[&[u8]],
    snapshot: &Snapshot,
) -> Result<ClientConfig, TlsError> {
    let unusable = |reason: String| TlsError::Unusable { reason };
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(provider::versions(&options.common)?)
        .map_err(|error| unusable(error.to_string()))?;
    let verifier = if options.insecure_skip_verify {
        Arc::new(AnyServer(Arc::clone(provider)))
    } else {
        self_signed::server_verifier(material::trusted(&options.common, snapshot)?, provider)?
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = match material::identity(&options.common, snapshot)? {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| unusable(error.to_string()))?,
    };
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

/// `insecure_skip_verify`: any certificate will do. That the peer holds its key is still verified.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
