use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::reload::DEFAULT_RELOAD_INTERVAL;

/// PEM data: in a file, which is read again when it changes, or as it stands in the configuration.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    File(PathBuf),
    Inline(String),
}

/// Never shows inline data: it may be a key.
impl fmt::Debug for Pem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pem::File(path) => formatter.debug_tuple("File").field(path).finish(),
            Pem::Inline(_) => formatter.write_str("Inline([REDACTED])"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    V1_2,
    V1_3,
}

/// What both sides have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// `cert_file` or `cert_pem`: the chain, leaf first.
    pub certificate: Option<Pem>,
    /// `key_file` or `key_pem`.
    pub key: Option<Pem>,
    /// `ca_file` or `ca_pem`: the authorities that are trusted. Without them, the system's.
    pub authorities: Option<Pem>,
    /// `include_system_ca_certs_pool`: the system's authorities in addition to `authorities`.
    pub include_system_authorities: bool,
    pub min_version: TlsVersion,
    pub max_version: TlsVersion,
    /// TLS 1.2 cipher suites by their IANA names, as the Collector takes them; those of 1.3 are not
    /// configurable there either. Empty: all that ring has, which are all without known weakness.
    pub cipher_suites: Vec<String>,
    /// `curve_preferences`: `X25519`, `P256`, `P384`. Empty: all of them, in this order.
    pub curve_preferences: Vec<String>,
    /// How often files are read again. `None`: never.
    pub reload_interval: Option<Duration>,
}

impl Default for TlsOptions {
    fn default() -> Self {
        TlsOptions {
            certificate: None,
            key: None,
            authorities: None,
            include_system_authorities: false,
            min_version: TlsVersion::V1_2,
            max_version: TlsVersion::V1_3,
            cipher_suites: Vec::new(),
            curve_preferences: Vec::new(),
            reload_interval: Some(DEFAULT_RELOAD_INTERVAL),
        }
    }
}

/// The client side. (`insecure`, which means no TLS at all, is the caller's to decide.)
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTlsOptions {
    pub common: TlsOptions,
    /// Takes any certificate of the server. The connection is encrypted, but the server may be an
    /// impostor.
    pub insecure_skip_verify: bool,
    /// The name to ask for and to verify instead of the endpoint's host.
    pub server_name_override: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTlsOptions {
    pub common: TlsOptions,
    /// `client_ca_file`: clients must show a certificate of one of these authorities (mTLS).
    pub client_authorities: Option<Pem>,
}
