//! The one crypto provider, narrowed to the suites and curves in the options. Reading the options
//! has checked that these exist.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, SupportedKxGroup, ring};
use rustls::version::{TLS12, TLS13};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

use super::TlsOptions;

pub(super) fn provider(options: &TlsOptions) -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    if !options.cipher_suites.is_empty() {
        // The suites of TLS 1.3 always stay: as in the Collector, a list only chooses among those
        // of 1.2.
        provider.cipher_suites.retain(|suite| {
            let mut names = options.cipher_suites.iter();
            suite.tls13().is_some() || names.any(|name| matches_name(*suite, name))
        });
    }
    if !options.curve_preferences.is_empty() {
        let named = |name: &String| CURVES.into_iter().find(|(known, _)| known == name);
        let curves = options.curve_preferences.iter().filter_map(named);
        provider.kx_groups = curves.map(|(_, curve)| curve).collect();
    }
    Arc::new(provider)
}

pub(super) fn versions(options: &TlsOptions) -> Vec<&'static SupportedProtocolVersion> {
    let range = u16::from(options.min_version)..=u16::from(options.max_version);
    [&TLS13, &TLS12].into_iter().filter(|it| range.contains(&it.version.into())).collect()
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

/// All that `curve_preferences` may name.
pub(super) const CURVES: [(&str, &dyn SupportedKxGroup); 3] = [
    ("X25519", ring::kx_group::X25519),
    ("P256", ring::kx_group::SECP256R1),
    ("P384", ring::kx_group::SECP384R1),
];
