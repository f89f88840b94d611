//! Certificates, keys and authorities out of PEM.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::provider::provider;
use super::{Pem, TlsError, TlsOptions};
use crate::reload::{Reloading, Snapshot};

/// Settings that are built from the options' files, and again when those change. `what` names them
/// in logs.
pub(super) fn follow<T: Send + Sync + 'static>(
    what: &str,
    options: &TlsOptions,
    build: impl Fn(&Arc<CryptoProvider>, &Snapshot) -> Result<T, TlsError> + Send + Sync + 'static,
) -> Result<Arc<Reloading<T>>, TlsError> {
    let files = options.files().cloned();
    let provider = provider(options);
    Reloading::start(what, files.collect(), options.reload_interval, move |snapshot: &Snapshot| {
        build(&provider, snapshot)
    })
}

impl TlsOptions {
    /// Files that are read.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let sources = [&self.certificate, &self.key, &self.authorities];
        sources.into_iter().flatten().filter_map(|source| match source {
            Pem::File(path) => Some(path),
            Pem::Inline(_) => None,
        })
    }
}

/// The certificate chain and its key, if the options name both.
pub(super) fn identity(
    options: &TlsOptions,
    snapshot: &Snapshot,
) -> Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>, TlsError> {
    let (Some(certificate), Some(key)) = (&options.certificate, &options.key) else {
        return Ok(None);
    };
    Ok(Some((certificates(certificate, snapshot, "certificate")?, private_key(key, snapshot)?)))
}

/// The certificates that a side trusts.
pub(super) struct Trusted {
    pub(super) roots: RootCertStore,
    /// The certificates of the configured source; without the system's.
    pub(super) own: Vec<CertificateDer<'static>>,
}

/// The authorities in `source`.
pub(super) fn authorities(source: &Pem, snapshot: &Snapshot) -> Result<Trusted, TlsError> {
    let mut own = certificates(source, snapshot, "authority's certificate")?;
    let mut roots = RootCertStore::empty();
    let mut fault = None;
    own.retain(|certificate| {
        roots.add(certificate.clone()).map_err(|error| fault = Some(error)).is_ok()
    });
    match fault {
        Some(error) if own.is_empty() => return Err(not_pem(source, &error)),
        // Go leaves it out too: bundles of many authorities have such certificates.
        Some(error) => tracing::warn!(
            "{} has a certificate that is left out, as it cannot be read: {error}",
            origin(source)
        ),
        None => {}
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
        let reason = "holds no authority's certificate; name one with ca_file";
        return Err(TlsError(format!("the system's certificate store {reason}")));
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
        .map_err(|error| not_pem(source, &error))?;
    if certificates.is_empty() {
        return Err(TlsError(format!("{} holds no {what}", origin(source))));
    }
    Ok(certificates)
}

fn private_key(source: &Pem, snapshot: &Snapshot) -> Result<PrivateKeyDer<'static>, TlsError> {
    use rustls::pki_types::pem::Error;
    PrivateKeyDer::from_pem_slice(bytes(source, snapshot)?).map_err(|error| match error {
        Error::NoItemsFound => TlsError(format!("{} holds no private key", origin(source))),
        error => not_pem(source, &error),
    })
}

fn bytes<'a>(source: &'a Pem, snapshot: &'a Snapshot) -> Result<&'a [u8], TlsError> {
    match source {
        Pem::Inline(text) => Ok(text.expose().as_bytes()),
        Pem::File(path) => snapshot
            .content(path)
            .map_err(|reason| TlsError(format!("cannot read {}: {reason}", path.display()))),
    }
}

fn not_pem(source: &Pem, error: &dyn Display) -> TlsError {
    TlsError(format!("{} is not valid PEM: {error}", origin(source)))
}

fn origin(source: &Pem) -> String {
    match source {
        Pem::File(path) => path.display().to_string(),
        Pem::Inline(_) => "the PEM text in the configuration".to_owned(),
    }
}
