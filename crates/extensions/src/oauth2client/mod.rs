//! `oauth2client`: client credentials (RFC 6749, section 4.4). A token is kept until it ends.

mod client;
#[cfg(test)]
mod tests;
mod token;

use std::time::Duration;

use sluice_config::{ComponentKind, Fields, Kind, Secret};
use sluice_net::client::{Origin, UrlError};
use sluice_net::tls::ClientTlsOptions;

use crate::extension::{ClientExtension, Extension};
use crate::secret::SecretSource;

pub use client::OAuth2Client;
pub use token::Granted;

pub(crate) const KIND: ComponentKind<Extension> = ComponentKind::new(
    Kind::new("oauth2client", "OAuth 2.0 client credentials, for exporters.")
        .aliases(&["oauth2_client"]),
    |fields| {
        let config = Config::read(fields);
        let id = config.client_id.credentials_file("client_id_file");
        let secret = config.client_secret.credentials_file("client_secret_file");
        let client = ClientExtension::foundation(move || OAuth2Client::new(&config));
        let credentials = id.into_iter().chain(secret).collect();
        Extension { client: Some(client), credentials, ..Extension::default() }
    },
);

#[derive(Clone, Debug)]
pub struct Config {
    pub token_url: String,
    pub(crate) client_id: SecretSource,
    pub(crate) client_secret: SecretSource,
    pub scopes: Vec<String>,
    /// A name may be there several times.
    pub endpoint_params: Vec<(String, String)>,
    /// A token is replaced this long before its end.
    pub expiry_buffer: Duration,
    /// For one request to the token endpoint.
    pub timeout: Duration,
    pub tls: ClientTlsOptions,
}

/// Of the grant with a signed token.
const JWT_OPTIONS: [&str; 7] = [
    "client_certificate_key_id",
    "client_certificate_key",
    "client_certificate_key_file",
    "signature_algorithm",
    "iss",
    "audience",
    "claims",
];

impl Config {
    pub fn read(fields: &mut Fields<'_>) -> Config {
        let token_url = fields.required_string("token_url", "URL of the token endpoint.");
        let client_id = Secret::new(fields.string("client_id", "", "The client's id."));
        let doc = "File with the client's id; read again when it changes.";
        let client_id = SecretSource::of(fields.non_empty_string("client_id_file", doc), client_id);
        let secret = fields.secret("client_secret", "The client's secret.").unwrap_or_default();
        let doc = "File with the client's secret; read again when it changes.";
        let secret_file = fields.non_empty_string("client_secret_file", doc);
        let scopes = fields.string_list("scopes", &[], "Scopes to ask for.");
        let doc = "Further parameters of the token request, such as `audience`. A parameter with a \
                   list, or a text with commas, is sent once for each item.";
        let endpoint_params = fields.string_lists("endpoint_params", doc);
        let doc = "A token is replaced this long before it expires.";
        let expiry_buffer = fields.duration("expiry_buffer", Duration::from_secs(300), doc);
        let doc = "Time limit for one request to the token endpoint.";
        let timeout = fields.duration("timeout", Duration::from_secs(10), doc);
        let config = Config {
            token_url,
            client_id,
            client_secret: SecretSource::of(secret_file, secret),
            scopes,
            endpoint_params,
            expiry_buffer,
            timeout,
            tls: ClientTlsOptions::read(fields),
        };
        let doc = "Only `client_credentials` is in this build.";
        let grant = fields.string("grant_type", "client_credentials", doc);
        if !["", "client_credentials"].contains(&grant.as_str()) {
            let message = "is not in this build of Sluice: grants other than client credentials";
            fields.error_at("grant_type", message);
        }
        fields.hide("client_certificate_key");
        for option in JWT_OPTIONS {
            fields.no_effect(option, "the grant of client credentials does not use it");
        }
        if config.client_id.is_unset() {
            fields.error_missing("client_id");
        }
        if config.client_secret.is_unset() {
            fields.error_missing("client_secret");
        }
        match Origin::of(&config.token_url) {
            _ if config.token_url.is_empty() => {}
            Ok(_) => {}
            Err(UrlError::Credentials) => {
                let hint = "set `client_id` and `client_secret`; an `@` in its path is written \
                            `%40`";
                fields.error_at_with_hint("token_url", "must not have credentials", hint);
                fields.hide("token_url");
            }
            Err(error) => fields.error_at("token_url", &format!("cannot be used: {error}")),
        }
        config
    }
}
