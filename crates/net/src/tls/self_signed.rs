//! Certificates that are trusted as they are. A self-signed certificate of `openssl req -x509` is
//! marked as an authority's; webpki does not take one as a peer's own certificate. Here it is
//! taken if the configured file of authorities holds this very certificate, as Go does.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::TlsError;
use super::material::Trusted;

/// The extended key usage extension, as a DER object identifier.
const EXTENDED_KEY_USAGE: &[u8] = &[0x06, 0x03, 0x55, 0x1d, 0x25];
const SERVER_AUTHENTICATION: &[u8] = &[0x06, 0x08, 0x2b, 6, 1, 5, 5, 7, 3, 1];
const CLIENT_AUTHENTICATION: &[u8] = &[0x06, 0x08, 0x2b, 6, 1, 5, 5, 7, 3, 2];

/// Verifies servers' certificates.
pub(super) fn server_verifier(
    Trusted { roots, own }: Trusted,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| TlsError::Unusable { reason: error.to_string() })?;
    Ok(Arc::new(OrTrustedItself { webpki, own }))
}

/// Verifies clients' certificates.
pub(super) fn client_verifier(
    Trusted { roots, own }: Trusted,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let webpki = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| TlsError::Unusable { reason: error.to_string() })?;
    Ok(Arc::new(OrTrustedItself { webpki, own }))
}

/// What `webpki` takes, and certificates that are trusted themselves.
#[derive(Debug)]
struct OrTrustedItself<V: ?Sized> {
    own: Vec<CertificateDer<'static>>,
    webpki: Arc<V>,
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
        let verified = self.webpki.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        verified.or_else(|why| {
            self.take(end_entity, SERVER_AUTHENTICATION, why)?;
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            Ok(ServerCertVerified::assertion())
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
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

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}
