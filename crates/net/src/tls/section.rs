//! The section `tls` of clients: exporters, receivers that fetch, token endpoints.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use sluice_config::Fields;

use super::{ClientTls, ClientTlsOptions, Pem, TlsError, TlsOptions};

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
        ClientTls::new(self.options.clone()).map(Arc::new)
    }
}

fn read(fields: &mut Fields<'_>) -> ClientTlsSection {
    let doc = "Connect without TLS. An endpoint that starts with `https://` overrides it.";
    let insecure = fields.boolean("insecure", false, doc);
    let doc = "Take any certificate of the backend. The connection is encrypted, but the backend \
               may be an impostor.";
    let insecure_skip_verify = fields.boolean("insecure_skip_verify", false, doc);
    let doc =
        "The name that the backend's certificate has to bear, instead of the endpoint's host.";
    let server_name_override = fields.optional_string("server_name_override", doc);
    let server_name_override = server_name_override.filter(|name| !name.is_empty());
    if server_name_override.as_deref().is_some_and(|name| ServerName::try_from(name).is_err()) {
        fields.error_at("server_name_override", "must be a host name or an address");
    }
    let doc = "Our certificate for mTLS, followed by its chain";
    let certificate = Pem::read(fields, "cert_file", "cert_pem", doc);
    let key = Pem::read(fields, "key_file", "key_pem", "The private key of our certificate");
    let doc = "The authorities that the backend's certificate may come from. Without it, the \
               system's";
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
    let options = ClientTlsOptions { common, insecure_skip_verify, server_name_override };
    ClientTlsSection { insecure, options }
}
