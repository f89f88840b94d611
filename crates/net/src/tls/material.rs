//! Certificates, keys and authorities out of PEM.

use std::path::PathBuf;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{Pem, TlsError, TlsOptions};
use crate::reload::Snapshot;

/// The files among the sources.
pub(super) fn files<'a>(sources: impl IntoIterator<Item = &'a Option<Pem>>) -> Vec<PathBuf> {
    let file = |source: &Option<Pem>| match source {
        Some(Pem::File(path)) => Some(path.clone()),
        _ => None,
    };
    sources.into_iter().filter_map(file).collect()
}

/// The certificate chain and its key, if the options name them.
pub(super) fn identity(
    options: &TlsOptions,
    snapshot: &Snapshot,
) -> Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>, TlsError> {
    match (&options.certificate, &options.key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some((
            certificates(certificate, snapshot, "certificate")?,
            private_key(key, snapshot)?,
        ))),
        (Some(_), None) => Err(TlsError::Option {
            option: "cert_file",
            reason: "it needs a key_file as well".to_owned(),
        }),
        (None, Some(_)) => Err(TlsError::Option {
            option: "key_file",
            reason: "it needs a cert_file as well".to_owned(),
        }),
    }
}

/// Whom a side trusts.
pub(super) struct Trusted {
    pub(super) roots: RootCertStore,
    /// The certificates of the configured source; without the system's.
    pub(super) own: Vec<CertificateDer<'static>>,
}

/// The authorities in `source`.
pub(super) fn authorities(source: &Pem, snapshot: &Snapshot) -> Result<Trusted, TlsError> {
    let own = certificates(source, snapshot, "authority's certificate")?;
    let mut roots = RootCertStore::empty();
    for certificate in &own {
        roots.add(certificate.clone()).map_err(|error| TlsError::NotPem {
            origin: origin(source),
            reason: error.to_string(),
        })?;
    }
    Ok(Trusted { roots, own })
}

/// The authorities that the options trust: the given ones, the system's, or both.
pub(super) fn trusted(options: &TlsOptions, snapshot: &Snapshot) -> Result<Trusted, TlsError> {
    let mut trusted = match &options.authorities {
        Some(source) => authorities(source, snapshot)?,
        None => Trusted { roots: RootCertStore::empty(), own: Vec::new() },
    };
    if options.authorities.is_none() || options.include_system_authorities {
        let system = rustls_native_certs::load_native_certs();
        // Some systems carry certificates that rustls does not parse: those are left out, as
        // browsers do.
        trusted.roots.add_parsable_certificates(system.certs);
    }
    if trusted.roots.is_empty() {
        return Err(TlsError::Empty {
            origin: "the system's certificate store".to_owned(),
            what: "authority's certificate; name one with ca_file",
        });
    }
    Ok(trusted)
}

fn certificates(
    source: &Pem,
    snapshot: &Snapshot,
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_slice_iter(bytes(source, snapshot)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| TlsError::NotPem { origin: origin(source), reason: error.to_string() })?;
    if certificates.is_empty() {
        return Err(TlsError::Empty { origin: origin(source), what });
    }
    Ok(certificates)
}

fn private_key(source: &Pem, snapshot: &Snapshot) -> Result<PrivateKeyDer<'static>, TlsError> {
    use rustls::pki_types::pem::Error;
    PrivateKeyDer::from_pem_slice(bytes(source, snapshot)?).map_err(|error| match error {
        Error::NoItemsFound => TlsError::Empty { origin: origin(source), what: "private key" },
        error => TlsError::NotPem { origin: origin(source), reason: error.to_string() },
    })
}

fn bytes<'a>(source: &'a Pem, snapshot: &'a Snapshot) -> Result<&'a [u8], TlsError> {
    match source {
        Pem::Inline(text) => Ok(text.as_bytes()),
        Pem::File(path) => snapshot.content(path).map_err(|reason| TlsError::Unreadable {
            path: path.display().to_string(),
            reason: reason.to_owned(),
        }),
    }
}

fn origin(source: &Pem) -> String {
    match source {
        Pem::File(path) => path.display().to_string(),
        Pem::Inline(_) => "the PEM text in the configuration".to_owned(),
    }
}
