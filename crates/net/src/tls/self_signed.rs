//! Certificates that are trusted as they are. A self-signed certificate of `openssl req -x509` is
//! marked as an authority's; webpki does not take one as a peer's own certificate. Here it is taken
//! if the configured file of authorities contains this very certificate, as Go does.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::material::Trusted;
use super::{TlsError, unusable};

/// The extended key usage extension, as a DER object identifier.
const EXTENDED_KEY_USAGE: &[u8] = &[0x06, 0x03, 0x55, 0x1d, 0x25];
const SERVER_AUTHENTICATION: &[u8] = &[0x06, 0x08, 0x2b, 6, 1, 5, 5, 7, 3, 1];
const CLIENT_AUTHENTICATION: &[u8] = &[0x06, 0x08, 0x2b, 6, 1, 5, 5, 7, 3, 2];

/// The parts of a verifier that check handshakes' signatures with its `algorithms`.
macro_rules! verify_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls12_signature(message, certificate, signature, &self.algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, certificate, signature, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.algorithms.supported_schemes()
        }
    };
}

/// Verifies servers' certificates.
pub(super) fn server_verifier(
    Trusted { roots, own }: Trusted,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let webpki = WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(provider));
    let webpki = webpki.build().map_err(unusable)?;
    let algorithms = provider.signature_verification_algorithms;
    Ok(Arc::new(OrTrustedItself { webpki, own, algorithms }))
}

/// Verifies clients' certificates.
pub(super) fn client_verifier(
    Trusted { roots, own }: Trusted,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let webpki = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(provider));
    let webpki = webpki.build().map_err(unusable)?;
    let algorithms = provider.signature_verification_algorithms;
    Ok(Arc::new(OrTrustedItself { webpki, own, algorithms }))
}

/// `insecure_skip_verify`: name, dates and signer do not matter. That the peer has the key is still
/// verified, for which webpki has to be able to read the certificate.
#[derive(Debug)]
pub(super) struct AnyServer {
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    verify_signatures!();
}

/// Takes certificates as `webpki` does, and those that are trusted themselves.
#[derive(Debug)]
struct OrTrustedItself<V: ?Sized> {
    own: Vec<CertificateDer<'static>>,
    webpki: Arc<V>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl<V: ?Sized> OrTrustedItself<V> {
    /// `Ok` if webpki refused the certificate only because it is an authority's. It looks at that
    /// after the dates and before the usage.
    fn take(
        &self,
        certificate: &CertificateDer<'_>,
        usage: &[u8],
        why: Error,
    ) -> Result<(), Error> {
        let is_authority = matches!(
            &why,
            Error::InvalidCertificate(CertificateError::Other(other))
                if other.0.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity)
        );
        if !is_authority || !self.own.contains(certificate) {
            return Err(why);
        }
        let has = |identifier| memchr::memmem::find(certificate, identifier).is_some();
        if has(EXTENDED_KEY_USAGE) && !has(usage) {
            return Err(CertificateError::InvalidPurpose.into());
        }
        Ok(())
    }
}

impl ServerCertVerifier for OrTrustedItself<WebPkiServerVerifier> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let (webpki, name) = (&self.webpki, server_name);
        let verified =
            webpki.verify_server_cert(end_entity, intermediates, name, ocsp_response, now);
        verified.or_else(|why| {
            self.take(end_entity, SERVER_AUTHENTICATION, why)?;
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
            Ok(ServerCertVerified::assertion())
        })
    }

    verify_signatures!();
}

impl ClientCertVerifier for OrTrustedItself<dyn ClientCertVerifier> {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.webpki.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.webpki.verify_client_cert(end_entity, intermediates, now);
        verified.or_else(|why| {
            self.take(end_entity, CLIENT_AUTHENTICATION, why)?;
            Ok(ClientCertVerified::assertion())
        })
    }

    verify_signatures!();
}
