//! `tls` of a server.

use std::path::PathBuf;
use std::time::Duration;

use sluice_config::Fields;
use sluice_net::reload::DEFAULT_RELOAD_INTERVAL;
use sluice_net::tls::{Pem, ServerTlsOptions, TlsOptions, TlsVersion};

const VERSIONS: [(&str, TlsVersion); 2] = [("1.2", TlsVersion::V1_2), ("1.3", TlsVersion::V1_3)];

pub(super) fn read(fields: &mut Fields<'_>) -> Option<ServerTlsOptions> {
    fields.section("tls", "TLS. Without it, connections are not encrypted.", section)
}

fn section(fields: &mut Fields<'_>) -> ServerTlsOptions {
    let certificate = pem(fields, "cert_file", "cert_pem", "Our certificate, followed by its chain");
    let key = pem(fields, "key_file", "key_pem", "The private key of our certificate");
    let client_ca_file = fields.optional_string(
        "client_ca_file",
        "Senders must show a certificate of one of the authorities in this PEM file (mTLS). It is read again when it changes.",
    );
    let min_version = fields.choice("min_version", TlsVersion::V1_2, &VERSIONS, "Lowest TLS version.");
    let max_version = fields.choice("max_version", TlsVersion::V1_3, &VERSIONS, "Highest TLS version.");
    let cipher_suites = fields.string_list(
        "cipher_suites",
        &[],
        "TLS 1.2 cipher suites by their IANA names. Without it, all that are secure.",
    );
    let curve_preferences =
        fields.string_list("curve_preferences", &[], "Key exchange curves: `X25519`, `P256`, `P384`.");
    let reload_interval = fields.duration(
        "reload_interval",
        DEFAULT_RELOAD_INTERVAL,
        "How often the files are looked at. Unlike in the Collector, they are looked at by default.",
    );
    fields.no_effect("client_ca_file_reload", "all files are read again when they change");
    fields.no_effect("ca_file", "a server trusts nobody by it: `client_ca_file` names the authorities of senders");
    fields.no_effect("ca_pem", "a server trusts nobody by it: `client_ca_file` names the authorities of senders");
    fields.no_effect(
        "include_system_ca_certs_pool",
        "senders are never trusted for a certificate of the system's authorities",
    );
    fields.no_effect("include_insecure_cipher_suites", "insecure cipher suites are not available");
    fields.not_yet("tpm", "keys in a TPM");
    if certificate.is_none() || key.is_none() {
        fields.error_with_hint("needs a certificate and its key", "set `cert_file` and `key_file`");
    }
    if min_version > max_version {
        fields.error_at("min_version", "is above `max_version`");
    }
    ServerTlsOptions {
        common: TlsOptions {
            certificate,
            key,
            min_version,
            max_version,
            cipher_suites,
            curve_preferences,
            reload_interval: Some(or_default(reload_interval)),
            ..TlsOptions::default()
        },
        client_authorities: client_ca_file.filter(|path| !path.is_empty()).map(|path| Pem::File(PathBuf::from(path))),
    }
}

fn or_default(interval: Duration) -> Duration {
    if interval.is_zero() { DEFAULT_RELOAD_INTERVAL } else { interval }
}

fn pem(fields: &mut Fields<'_>, file: &str, inline: &str, what: &str) -> Option<Pem> {
    let path = fields.optional_string(file, &format!("{what}, as a PEM file. It is read again when it changes."));
    let text = fields.secret(inline, &format!("{what}, as PEM text."));
    let path = path.filter(|path| !path.is_empty());
    let text = text.filter(|text| !text.expose().is_empty());
    match (path, text) {
        (Some(_), Some(_)) => {
            fields.error_at(inline, &format!("is there together with `{file}`: only one of them can be used"));
            None
        }
        (Some(path), None) => Some(Pem::File(PathBuf::from(path))),
        (None, Some(text)) => Some(Pem::Inline(text.expose().to_owned())),
        (None, None) => None,
    }
}
