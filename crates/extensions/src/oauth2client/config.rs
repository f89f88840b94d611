use std::time::Duration;

use sluice_config::{Fields, Secret};
use sluice_net::client::Origin;
use sluice_net::tls::ClientTlsSection;

/// Options of `oauth2client`.
#[derive(Clone, Debug)]
pub struct Config {
    pub token_url: String,
    pub client_id: String,
    pub client_id_file: Option<String>,
    pub client_secret: Secret,
    pub client_secret_file: Option<String>,
    pub scopes: Vec<String>,
    pub endpoint_params: Vec<(String, String)>,
    /// A token is replaced this long before its end.
    pub expiry_buffer: Duration,
    /// For one request to the token endpoint.
    pub timeout: Duration,
    pub tls: ClientTlsSection,
}

impl Config {
    pub fn read(fields: &mut Fields<'_>) -> Config {
        let config = Config {
            token_url: fields.required_string("token_url", "URL of the token endpoint."),
            client_id: fields.string("client_id", "", "The client's id."),
            client_id_file: crate::optional_path(
                fields,
                "client_id_file",
                "File with the client's id; read again when it changes.",
            ),
            client_secret: fields
                .secret("client_secret", "The client's secret.")
                .unwrap_or_default(),
            client_secret_file: crate::optional_path(
                fields,
                "client_secret_file",
                "File with the client's secret; read again when it changes.",
            ),
            scopes: fields.string_list("scopes", &[], "Scopes to ask for."),
            endpoint_params: fields.string_map(
                "endpoint_params",
                "Further parameters of the token request, such as `audience`.",
            ),
            expiry_buffer: fields.duration(
                "expiry_buffer",
                Duration::from_secs(300),
                "A token is replaced this long before its end.",
            ),
            timeout: fields.duration(
                "timeout",
                Duration::from_secs(10),
                "For one request to the token endpoint.",
            ),
            tls: ClientTlsSection::read(fields),
        };
        fields.not_yet("grant_type", "grants other than client credentials");
        if config.client_id.is_empty() && config.client_id_file.is_none() {
            fields.error_missing("client_id");
        }
        if !fields.is_describing()
            && !config.token_url.is_empty()
            && Origin::of(&config.token_url).is_err()
        {
            fields.error_at("token_url", "is not a URL that starts with http:// or https://");
        }
        config
    }
}
