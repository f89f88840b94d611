//! `tls` of a server.

use std::path::PathBuf;

use sluice_config::Fields;
use sluice_net::tls::{Pem, ServerTlsOptions, TlsOptions};

pub(super) fn read(fields: &mut Fields<'_>) -> Option<ServerTlsOptions> {
    fields.section("tls", "TLS. Without it, connections are not encrypted.", section)
}

fn section(fields: &mut Fields<'_>) -> ServerTlsOptions {
    let certificate =
        Pem::read(fields, "cert_file", "cert_pem", "Our certificate, followed by its chain");
    let key = Pem::read(fields, "key_file", "key_pem", "The private key of our certificate");
    let client_ca_file = fields.optional_string(
        "client_ca_file",
        "Senders must show a certificate of one of the authorities in this PEM file (mTLS). It is \
         read again when it changes.",
    );
    let protocol = TlsOptions::read_protocol(fields);
    fields.no_effect("client_ca_file_reload", "all files are read again when they change");
    fields.no_effect(
        "ca_file",
        "it has no meaning for a server: `client_ca_file` names the authorities of senders",
    );
    fields.no_effect(
        "ca_pem",
        "it has no meaning for a server: `client_ca_file` names the authorities of senders",
    );
    fields.no_effect(
        "include_system_ca_certs_pool",
        "senders are never trusted for a certificate of the system's authorities",
    );
    if certificate.is_none() || key.is_none() {
        fields.error_with_hint("needs a certificate and its key", "set `cert_file` and `key_file`");
    }
    ServerTlsOptions {
        common: TlsOptions { certificate, key, ..protocol },
        client_authorities: client_ca_file
            .filter(|path| !path.is_empty())
            .map(|path| Pem::File(PathBuf::from(path))),
    }
}
