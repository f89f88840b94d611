//! The one crypto provider, narrowed to what the options allow.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, SupportedKxGroup, ring};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

use super::{TlsError, TlsOptions, TlsVersion};

pub(super) fn provider(options: &TlsOptions) -> Result<Arc<CryptoProvider>, TlsError> {
    let mut provider = ring::default_provider();
    if !options.cipher_suites.is_empty() {
        provider.cipher_suites = cipher_suites(&options.cipher_suites)?;
    }
    if !options.curve_preferences.is_empty() {
        provider.kx_groups =
            options.curve_preferences.iter().map(|name| curve(name)).collect::<Result<_, _>>()?;
    }
    Ok(Arc::new(provider))
}

pub(super) fn versions(
    options: &TlsOptions,
) -> Result<&'static [&'static SupportedProtocolVersion], TlsError> {
    static ONLY_1_2: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
    static BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];
    static ONLY_1_3: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];
    match (options.min_version, options.max_version) {
        (TlsVersion::V1_2, TlsVersion::V1_2) => Ok(ONLY_1_2),
        (TlsVersion::V1_2, TlsVersion::V1_3) => Ok(BOTH),
        (TlsVersion::V1_3, TlsVersion::V1_3) => Ok(ONLY_1_3),
        (TlsVersion::V1_3, TlsVersion::V1_2) => Err(TlsError::Option {
            option: "min_version",
            reason: "it is above max_version".to_owned(),
        }),
    }
}

/// The suites of TLS 1.3 always stay: as in the Collector, a list only chooses among those of 1.2.
fn cipher_suites(names: &[String]) -> Result<Vec<SupportedCipherSuite>, TlsError> {
    let all = ring::ALL_CIPHER_SUITES;
    let mut chosen: Vec<_> = all.iter().copied().filter(|suite| suite.tls13().is_some()).collect();
    for name in names {
        let suite = all.iter().find(|suite| matches_name(**suite, name)).ok_or_else(|| {
            let known: Vec<_> = all.iter().map(|suite| iana_name(*suite)).collect();
            TlsError::Option {
                option: "cipher_suites",
                reason: format!("`{name}` is not available; there are {}", known.join(", ")),
            }
        })?;
        if !chosen.contains(suite) {
            chosen.push(*suite);
        }
    }
    Ok(chosen)
}

/// Go has names without the hash for the two ChaCha suites as well.
fn matches_name(suite: SupportedCipherSuite, name: &str) -> bool {
    let iana = iana_name(suite);
    iana == name || (name.ends_with("POLY1305") && iana.strip_suffix("_SHA256") == Some(name))
}

fn iana_name(suite: SupportedCipherSuite) -> String {
    suite.suite().as_str().unwrap_or_default().replace("TLS13_", "TLS_")
}

/// All names that `cipher_suites` may have.
pub(super) fn cipher_suite_names() -> Vec<String> {
    let iana = || ring::ALL_CIPHER_SUITES.iter().map(|suite| iana_name(*suite));
    let short = iana().filter_map(|name| {
        name.strip_suffix("POLY1305_SHA256").map(|name| format!("{name}POLY1305"))
    });
    iana().chain(short).collect()
}

/// All names that `curve_preferences` may have.
pub(super) const CURVES: [&str; 3] = ["X25519", "P256", "P384"];

fn curve(name: &str) -> Result<&'static dyn SupportedKxGroup, TlsError> {
    match name {
        "X25519" => Ok(ring::kx_group::X25519),
        "P256" => Ok(ring::kx_group::SECP256R1),
        "P384" => Ok(ring::kx_group::SECP384R1),
        _ => Err(TlsError::Option {
            option: "curve_preferences",
            reason: format!("`{name}` is not available; there are {}", CURVES.join(", ")),
        }),
    }
}
