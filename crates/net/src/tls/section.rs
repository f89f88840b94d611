//! The section `tls` of clients: exporters, receivers that fetch, token endpoints.

use std::sync::Arc;

use sluice_config::Fields;

use super::{ClientTls, ClientTlsOptions, Pem, TlsError, TlsOptions, is_server_name};

/// The options of the section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTlsSection {
    /// No TLS, unless the endpoint says `https://`.
    pub insecure: bool,
    pub options: ClientTlsOptions,
}

impl ClientTlsSection {
    pub fn read(fields: &mut Fields<'_>) -> ClientTlsSection {
        fields.section_or_default("tls", "TLS towards the backend.", read)
    }

    /// Reads certificates; they are read again when their files change. The client sets the
    /// protocols that it offers.
    pub fn build(&self) -> Result<Arc<ClientTls>, TlsError> {
        ClientTls::new(self.options.clone(), &[]).map(Arc::new)
    }
}

fn read(fields: &mut Fields<'_>) -> ClientTlsSection {
    let insecure = fields.boolean(
        "insecure",
        false,
        "Connect without TLS. An endpoint that starts with `https://` overrides it.",
    );
    let insecure_skip_verify = fields.boolean(
        "insecure_skip_verify",
        false,
        "Take any certificate of the backend. The connection is encrypted, but the backend may be \
         an impostor.",
    );
    let server_name_override = fields.optional_string(
        "server_name_override",
        "The name that the backend's certificate has to bear, instead of the endpoint's host.",
    );
    let server_name_override = server_name_override.filter(|name| !name.is_empty());
    if server_name_override.as_deref().is_some_and(|name| !is_server_name(name)) {
        fields.error_at("server_name_override", "must be a host name or an address");
    }
    let options = TlsOptions {
        certificate: Pem::read(
            fields,
            "cert_file",
            "cert_pem",
            "Our certificate for mTLS, followed by its chain",
        ),
        key: Pem::read(fields, "key_file", "key_pem", "The private key of our certificate"),
        authorities: Pem::read(
            fields,
            "ca_file",
            "ca_pem",
            "The authorities that the backend's certificate may come from. Without it, the \
             system's",
        ),
        include_system_authorities: fields.boolean(
            "include_system_ca_certs_pool",
            false,
            "Trust the system's authorities in addition to `ca_file`.",
        ),
        ..TlsOptions::read_protocol(fields)
    };
    if options.certificate.is_some() != options.key.is_some() {
        let (given, missing) = if options.key.is_some() {
            ("key_file", "cert_file")
        } else {
            ("cert_file", "key_file")
        };
        fields.error(&format!("has `{given}` without `{missing}`"));
    }
    let options = ClientTlsOptions { common: options, insecure_skip_verify, server_name_override };
    ClientTlsSection { insecure, options }
}
