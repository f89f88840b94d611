//! TLS on both sides, from the options that the Collector calls `tls`. One crypto provider, ring,
//! always given explicitly: nothing here depends on what else in the process may have installed a
//! default.
//!
//! Certificates, keys and authorities are read again when their files' contents change.

mod client;
mod material;
mod options;
mod provider;
mod section;
mod self_signed;
mod server;

pub use client::{ClientTls, is_server_name};
pub use options::{ClientTlsOptions, Pem, ServerTlsOptions, TlsOptions, TlsVersion};
pub use section::ClientTlsSection;
pub use server::ServerTls;

/// Why TLS settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path}: {reason}")]
    Unreadable { path: String, reason: String },
    #[error("{origin} holds no {what}")]
    Empty { origin: String, what: &'static str },
    #[error("{origin} is not valid PEM: {reason}")]
    NotPem { origin: String, reason: String },
    #[error("the certificate and the key cannot be used: {reason}")]
    Unusable { reason: String },
    #[error("{option}: {reason}")]
    Option { option: &'static str, reason: String },
}

fn unusable(error: impl std::fmt::Display) -> TlsError {
    TlsError::Unusable { reason: error.to_string() }
}

#[cfg(test)]
mod tests;
