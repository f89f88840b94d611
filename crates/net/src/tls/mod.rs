//! TLS on both sides, from the options that the Collector calls `tls`. One crypto provider, ring,
//! always given explicitly: nothing here depends on what else in the process may have installed a
//! default.
//!
//! Certificates, keys and authorities are read again when their files' contents change.

mod client;
mod material;
mod options;
mod provider;
mod self_signed;
mod server;

pub use client::{ClientTls, check_client};
pub use options::{ClientTlsOptions, Pem, TlsOptions};
pub use server::{ServerTls, check_server, server_tls};

/// Why TLS settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

fn unusable(error: impl std::fmt::Display) -> TlsError {
    TlsError(format!("the certificate and the key cannot be used: {error}"))
}

#[cfg(test)]
mod tests;
