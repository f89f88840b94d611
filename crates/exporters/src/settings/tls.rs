//! `tls` of a client.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_config::Fields;
use sluice_net::reload::DEFAULT_RELOAD_INTERVAL;
use sluice_net::tls::{ClientTls, ClientTlsOptions, Pem, TlsError, TlsOptions, TlsVersion};

const VERSIONS: [(&str, TlsVersion); 2] = [("1.2", TlsVersion::V1_2), ("1.3", TlsVersion::V1_3)];

/// What `tls` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSection {
    /// No TLS, unless the endpoint says `https://`.
    pub insecure: bool,
    pub options: ClientTlsOptions,
}

impl TlsSection {
    pub fn read(fields: &mut Fields<'_>) -> TlsSection {
        fields.section_or_default("tls", "TLS towards the backend.", read)
    }

    /// Reads certificates; they are read again when their files change.
    pub fn build(&self) -> Result<Arc<ClientTls>, TlsError> {
        // The protocols to offer are the client's business; it puts them in.
        ClientTls::new(self.options.clone(), &[]).map(Arc::new)
    }
}

fn read(fields: &mut Fields<'_>) -> TlsSection {
    let insecure =
        fields.boolean("insecure", false, "Connect without TLS. An endpoint that starts with `https://` overrides it.");
    let insecure_skip_verify = fields.boolean(
        "insecure_skip_verify",
        false,
        "Take any certificate of the backend. The connection is encrypted, but nobody knows to whom.",
    );
    let server_name_override = fields.optional_string(
        "server_name_override",
        "The name that the backend's certificate has to bear, instead of the endpoint's host.",
    );
    let options = TlsOptions {
        certificate: pem(fields, "cert_file", "cert_pem", "Our certificate for mTLS, followed by its chain"),
        key: pem(fields, "key_file", "key_pem", "The private key of our certificate"),
        authorities: pem(
            fields,
            "ca_file",
            "ca_pem",
            "The authorities that the backend's certificate may come from. Without it, the system's",
        ),
        include_system_authorities: fields.boolean(
            "include_system_ca_certs_pool",
            false,
            "Trust the system's authorities in addition to `ca_file`.",
        ),
        min_version: version(fields, "min_version", TlsVersion::V1_2, "Lowest TLS version."),
        max_version: version(fields, "max_version", TlsVersion::V1_3, "Highest TLS version."),
        cipher_suites: fields.string_list(
            "cipher_suites",
            &[],
            "TLS 1.2 cipher suites by their IANA names. Without it, all that are secure.",
        ),
        curve_preferences: fields.string_list(
            "curve_preferences",
            &[],
            "Key exchange curves: `X25519`, `P256`, `P384`.",
        ),
        reload_interval: reload_interval(fields),
    };
    fields.no_effect("include_insecure_cipher_suites", "insecure cipher suites are not available");
    fields.not_yet("tpm", "keys in a TPM");
    if options.certificate.is_some() != options.key.is_some() {
        let (given, missing) =
            if options.key.is_some() { ("key_file", "cert_file") } else { ("cert_file", "key_file") };
        fields.error(&format!("has `{given}` without `{missing}`"));
    }
    if options.min_version > options.max_version {
        fields.error_at("min_version", "is above `max_version`");
    }
    let options = ClientTlsOptions {
        common: options,
        insecure_skip_verify,
        server_name_override: server_name_override.filter(|name| !name.is_empty()),
    };
    TlsSection { insecure, options }
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

fn version(fields: &mut Fields<'_>, key: &str, default: TlsVersion, doc: &str) -> TlsVersion {
    fields.choice(key, default, &VERSIONS, doc)
}

/// Unset or zero means "when the files change", which costs nothing to notice.
fn reload_interval(fields: &mut Fields<'_>) -> Option<Duration> {
    let interval = fields.duration(
        "reload_interval",
        DEFAULT_RELOAD_INTERVAL,
        "How often the files are looked at. Unlike in the Collector, they are looked at by default.",
    );
    Some(if interval.is_zero() { DEFAULT_RELOAD_INTERVAL } else { interval })
}
