//! The options that the `tls` sections of clients and servers share.

use std::path::PathBuf;

use sluice_config::Fields;

use super::provider::{CURVES, cipher_suite_names};
use super::{Pem, TlsOptions, TlsVersion};
use crate::reload::DEFAULT_RELOAD_INTERVAL;

const VERSIONS: [(&str, TlsVersion); 2] = [("1.2", TlsVersion::V1_2), ("1.3", TlsVersion::V1_3)];

impl Pem {
    /// Reads PEM data that is in a file or stands in the configuration. `what` begins the options'
    /// documentation.
    pub fn read(fields: &mut Fields<'_>, file: &str, inline: &str, what: &str) -> Option<Pem> {
        let path = fields.optional_string(
            file,
            &format!("{what}, as a PEM file. It is read again when it changes."),
        );
        let text = fields.secret(inline, &format!("{what}, as PEM text."));
        let path = path.filter(|path| !path.is_empty());
        let text = text.filter(|text| !text.expose().is_empty());
        match (path, text) {
            (Some(_), Some(_)) => {
                fields.error_at(
                    inline,
                    &format!("is there together with `{file}`: only one of them can be used"),
                );
                None
            }
            (Some(path), None) => Some(Pem::File(PathBuf::from(path))),
            (None, Some(text)) => Some(Pem::Inline(text.expose().to_owned())),
            (None, None) => None,
        }
    }
}

impl TlsOptions {
    /// Reads how to speak: versions, cipher suites, curves; and how often files are looked at.
    /// Whose certificates there are is left to the caller.
    pub fn read_protocol(fields: &mut Fields<'_>) -> TlsOptions {
        let min_version =
            fields.choice("min_version", TlsVersion::V1_2, &VERSIONS, "Lowest TLS version.");
        let max_version =
            fields.choice("max_version", TlsVersion::V1_3, &VERSIONS, "Highest TLS version.");
        let cipher_suites = fields.name_list(
            "cipher_suites",
            &cipher_suite_names().iter().map(String::as_str).collect::<Vec<_>>(),
            "Cipher suites of TLS 1.2; those of 1.3 are always there. Without it, all that are \
             secure.",
        );
        let curve_preferences = fields.name_list(
            "curve_preferences",
            &CURVES,
            "Key exchange curves, the preferred one first. Without it, all.",
        );
        let reload_interval = fields.duration(
            "reload_interval",
            DEFAULT_RELOAD_INTERVAL,
            "How often the files are looked at. Unlike in the Collector, they are looked at by \
             default.",
        );
        fields.no_effect(
            "include_insecure_cipher_suites",
            "insecure cipher suites are not available",
        );
        fields.not_yet("tpm", "keys in a TPM");
        if min_version > max_version {
            fields.error_at("min_version", "is above `max_version`");
        }
        let is_unset = reload_interval.is_zero();
        TlsOptions {
            min_version,
            max_version,
            cipher_suites,
            curve_preferences,
            reload_interval: Some(if is_unset { DEFAULT_RELOAD_INTERVAL } else { reload_interval }),
            ..TlsOptions::default()
        }
    }
}
