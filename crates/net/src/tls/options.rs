//! The options that the `tls` sections of clients and servers share.

use std::path::PathBuf;
use std::time::Duration;

use rustls::ProtocolVersion::{self, TLSv1_0, TLSv1_1, TLSv1_2, TLSv1_3};
use rustls::pki_types::ServerName;
use sluice_config::{Fields, Secret};

use super::provider::{CURVES, cipher_suite_names};
use crate::reload::DEFAULT_RELOAD_INTERVAL;

/// PEM data: in a file, which is read again when it changes, or as it stands in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pem {
    File(PathBuf),
    /// It may be a key.
    Inline(Secret),
}

/// Options that both sides have: all that a server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// `cert_file` or `cert_pem`: the chain, leaf first.
    pub certificate: Option<Pem>,
    /// `key_file` or `key_pem`.
    pub key: Option<Pem>,
    /// A client's `ca_file` or `ca_pem`: the authorities that are trusted. Without them, the
    /// system's. A server's `client_ca_file`: clients must show a certificate of one of them.
    pub authorities: Option<Pem>,
    /// `include_system_ca_certs_pool`: a client trusts the system's in addition to `authorities`.
    pub include_system_authorities: bool,
    pub min_version: ProtocolVersion,
    pub max_version: ProtocolVersion,
    /// TLS 1.2 cipher suites by their IANA names, as the Collector takes them; those of 1.3 are not
    /// configurable there either. Empty: all that ring has, which are all without known weakness.
    pub cipher_suites: Vec<String>,
    /// `curve_preferences`: `X25519`, `P256`, `P384`. Empty: all of them, in this order.
    pub curve_preferences: Vec<String>,
    /// Interval at which files are read again. `None`: never.
    pub reload_interval: Option<Duration>,
}

impl Default for TlsOptions {
    fn default() -> Self {
        TlsOptions {
            certificate: None,
            key: None,
            authorities: None,
            include_system_authorities: false,
            min_version: TLSv1_2,
            max_version: TLSv1_3,
            cipher_suites: Vec::new(),
            curve_preferences: Vec::new(),
            reload_interval: Some(DEFAULT_RELOAD_INTERVAL),
        }
    }
}

/// The client side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTlsOptions {
    pub common: TlsOptions,
    /// No TLS, unless the endpoint says `https://` or, over gRPC, there are `authorities`: the
    /// caller's to decide.
    pub insecure: bool,
    /// Takes a certificate of the server whatever its name, dates and signer, if its key and form
    /// are known. The connection is encrypted, but the server may be an impostor.
    pub insecure_skip_verify: bool,
    /// The name to ask for and to verify instead of the endpoint's host.
    pub server_name_override: Option<String>,
}

const VERSIONS: [(&str, ProtocolVersion); 4] =
    [("1.2", TLSv1_2), ("1.3", TLSv1_3), ("1.1", TLSv1_1), ("1.0", TLSv1_0)];

/// Cipher suites that the Collector has by default. They are weaker than those of this build.
const OLD_SUITES: [&str; 4] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
];

/// Those that it has with `include_insecure_cipher_suites`.
const INSECURE_SUITES: [&str; 12] = [
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
];

/// Curves of the Collector that this build does not have.
const OTHER_CURVES: [&str; 2] = ["P521", "X25519MLKEM768"];

impl Pem {
    /// Reads PEM data that is in a file or stands in the configuration. `what` begins the options'
    /// documentation.
    pub fn read(fields: &mut Fields<'_>, file: &str, inline: &str, what: &str) -> Option<Pem> {
        let doc = format!("{what}, as a PEM file. It is read again when it changes.");
        let path = fields.non_empty_string(file, &doc);
        let text = fields.secret(inline, &format!("{what}, as PEM text."));
        let text = text.filter(|text| !text.expose().is_empty());
        if path.is_some() && text.is_some() {
            let message = format!("is there together with `{file}`: only one of them can be used");
            fields.error_at(inline, &message);
        }
        let file = path.map(|path| Pem::File(PathBuf::from(path)));
        file.or_else(|| text.map(Pem::Inline))
    }
}

impl TlsOptions {
    /// Reads the section `tls` of a server.
    pub fn read_server(fields: &mut Fields<'_>) -> TlsOptions {
        let certificate =
            Pem::read(fields, "cert_file", "cert_pem", "Our certificate, followed by its chain");
        let key = Pem::read(fields, "key_file", "key_pem", "The private key of our certificate");
        let doc = "Senders must show a certificate of one of the authorities in this PEM file \
                   (mTLS). It is read again when it changes.";
        let client_ca_file = fields.non_empty_string("client_ca_file", doc);
        let protocol = TlsOptions::read_protocol(fields);
        fields.no_effect("client_ca_file_reload", "all files are read again when they change");
        let why = "a server does not use it: `client_ca_file` names the authorities of senders";
        fields.no_effect("ca_file", why);
        fields.no_effect("ca_pem", why);
        let why = "certificates of the system's authorities are never accepted from senders";
        fields.no_effect("include_system_ca_certs_pool", why);
        if certificate.is_none() || key.is_none() {
            let hint = "set `cert_file` and `key_file`";
            fields.error_with_hint("needs a certificate and its key", hint);
        }
        let authorities = client_ca_file.map(|path| Pem::File(PathBuf::from(path)));
        TlsOptions { certificate, key, authorities, ..protocol }
    }

    /// Reads the options of the protocol: versions, cipher suites, curves, and the interval for
    /// reading files again. The caller reads the options of the certificates.
    pub fn read_protocol(fields: &mut Fields<'_>) -> TlsOptions {
        let min_version = version(fields, "min_version", TLSv1_2, "Lowest TLS version.");
        let max_version = version(fields, "max_version", TLSv1_3, "Highest TLS version.");
        let names = cipher_suite_names();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let doc = "Cipher suites of TLS 1.2. Unset: all that are secure. Those of TLS 1.3 are \
                   always enabled.";
        let with_insecure = fields.is_present("include_insecure_cipher_suites");
        let insecure = if with_insecure { &INSECURE_SUITES[..] } else { &[] };
        let absent = [&OLD_SUITES[..], insecure].concat();
        let cipher_suites = fields.name_list("cipher_suites", &names, &absent, doc);
        let doc = "Key exchange curves, the preferred one first. Unset: all.";
        let names = CURVES.map(|(name, _)| name);
        let curve_preferences = fields.name_list("curve_preferences", &names, &OTHER_CURVES, doc);
        let doc = "Interval at which the files are checked for changes. 0: never, which is the \
                   Collector's default.";
        let reload_interval = fields.duration("reload_interval", DEFAULT_RELOAD_INTERVAL, doc);
        let reason = "insecure cipher suites are not available";
        fields.no_effect("include_insecure_cipher_suites", reason);
        fields.not_yet("tpm", "keys in a TPM");
        if u16::from(min_version) > u16::from(max_version) {
            fields.error_at("min_version", "is above `max_version`");
        }
        TlsOptions {
            min_version,
            max_version,
            cipher_suites,
            curve_preferences,
            reload_interval: (!reload_interval.is_zero()).then_some(reload_interval),
            ..TlsOptions::default()
        }
    }
}

/// A version of TLS. The Collector still has those that are older than 1.2.
fn version(
    fields: &mut Fields<'_>,
    key: &str,
    default: ProtocolVersion,
    doc: &str,
) -> ProtocolVersion {
    let doc = format!("{doc} `1.0` and `1.1` count as `1.2`, with a warning.");
    let choices = [&VERSIONS[..], &[("", default)]].concat();
    let version = fields.choice(key, default, &choices, &doc);
    if matches!(version, TLSv1_0 | TLSv1_1) {
        fields.warn_at(key, "counts as `1.2`: Sluice has no older version of TLS");
        return TLSv1_2;
    }
    version
}

impl ClientTlsOptions {
    /// Reads the section `tls` of a client: an exporter, a receiver that fetches, a token endpoint.
    pub fn read(fields: &mut Fields<'_>) -> ClientTlsOptions {
        let doc = "TLS of connections to the backend.";
        let insecure = "Connect without TLS. An endpoint that starts with `https://` overrides it, \
                        and over gRPC `ca_file` or `ca_pem` does.";
        fields.section_or_default("tls", doc, |fields| Self::read_section(fields, insecure))
    }

    /// The same of a client that uses TLS only where the section is there.
    pub fn read_where_present(fields: &mut Fields<'_>) -> ClientTlsOptions {
        let doc = "TLS of connections to the backend; `{}` has the defaults. Unset: connections \
                   are not encrypted.";
        let insecure = "Connect without TLS, as without this section.";
        fields.section_or_default("tls", doc, |fields| Self::read_section(fields, insecure))
    }

    fn read_section(fields: &mut Fields<'_>, insecure: &str) -> ClientTlsOptions {
        let insecure = fields.boolean("insecure", false, insecure);
        let doc = "Check neither the name nor the dates nor the signer of the backend's \
                   certificate. The connection is encrypted, but the backend may be an impostor.";
        let insecure_skip_verify = fields.boolean("insecure_skip_verify", false, doc);
        let doc =
            "The name that the backend's certificate must have, instead of the endpoint's host.";
        let server_name_override = fields.non_empty_string("server_name_override", doc);
        if server_name_override.as_deref().is_some_and(|name| ServerName::try_from(name).is_err()) {
            fields.error_at("server_name_override", "must be a host name or an address");
        }
        let doc = "Our certificate for mTLS, followed by its chain";
        let certificate = Pem::read(fields, "cert_file", "cert_pem", doc);
        let key = Pem::read(fields, "key_file", "key_pem", "The private key of our certificate");
        let doc = "Authorities that may sign the backend's certificate (by default the system's)";
        let authorities = Pem::read(fields, "ca_file", "ca_pem", doc);
        let doc = "Trust the system's authorities in addition to `ca_file`.";
        let include_system_authorities = fields.boolean("include_system_ca_certs_pool", false, doc);
        let protocol = TlsOptions::read_protocol(fields);
        match (&certificate, &key) {
            (Some(_), None) => fields.error("has `cert_file` without `key_file`"),
            (None, Some(_)) => fields.error("has `key_file` without `cert_file`"),
            _ => {}
        }
        let common =
            TlsOptions { certificate, key, authorities, include_system_authorities, ..protocol };
        ClientTlsOptions { common, insecure, insecure_skip_verify, server_name_override }
    }
}
