use http::HeaderName;
use http::header::AUTHORIZATION;
use sluice_config::{Fields, Secret};

/// Options of `bearertokenauth`. Both sides use them.
#[derive(Clone, Debug)]
pub struct Config {
    /// The header that carries the token.
    pub header: HeaderName,
    /// The word before the token; may be empty.
    pub scheme: String,
    pub tokens: Vec<Secret>,
    /// A file with a token a line. It wins over `tokens`.
    pub filename: Option<String>,
}

impl Config {
    pub fn read(fields: &mut Fields<'_>) -> Config {
        let token = fields.secret("token", "The token. Ignored beside `tokens`.");
        let tokens = fields.secret_list(
            "tokens",
            "Several tokens: senders may show any, requests to backends show the first.",
        );
        for (key, given) in [("token", token.as_slice()), ("tokens", &tokens)] {
            // As a variable makes it that is not set: it would be no secret.
            if given.iter().any(|token| token.expose().trim().is_empty()) {
                fields.error_at(key, "is empty");
            }
        }
        if token.is_some() && !tokens.is_empty() {
            fields.warn_at("token", "is ignored beside `tokens`: move it there to keep it");
        }
        let tokens = if tokens.is_empty() { token.into_iter().collect() } else { tokens };
        let filename = crate::optional_path(
            fields,
            "filename",
            "File with a token a line; read again when it changes. It wins over both.",
        );
        let header = fields.string("header", "Authorization", "The header that bears the token.");
        let header = HeaderName::try_from(header.as_str()).unwrap_or_else(|_| {
            fields.error_at("header", "is no header name");
            AUTHORIZATION
        });
        let config = Config {
            header,
            scheme: fields.string(
                "scheme",
                "Bearer",
                "What stands before the token; may be empty.",
            ),
            tokens,
            filename,
        };
        if config.tokens.is_empty() && config.filename.is_none() {
            fields.error_missing("token");
        }
        config
    }
}
