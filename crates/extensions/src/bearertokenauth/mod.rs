//! `bearertokenauth` (RFC 6750): receivers let in any of its tokens, exporters show the first.

mod server;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::HeaderName;
use http::header::AUTHORIZATION;
use sluice_config::{ComponentKind, Fields, Kind, Secret};

use crate::extension::{ClientExtension, Extension};
use crate::secret::{MadeFromSecrets, SecretHeader, SecretSource, sensitive};

pub use server::BearerServer;

pub(crate) const KIND: ComponentKind<Extension> = ComponentKind::new(
    Kind::new("bearertokenauth", "Bearer tokens, for receivers and exporters.")
        .aliases(&["bearer_token_auth"]),
    |fields| {
        let config = Config::read(fields);
        let of_client = config.clone();
        Extension {
            client: Some(ClientExtension::foundation(move || Ok(of_client.shown()))),
            server: Some(Box::new(move || Ok(Arc::new(BearerServer::new(&config)?)))),
            ..Extension::default()
        }
    },
);

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
        let token = fields.secret("token", "The token. Ignored if `tokens` is set.");
        let doc = "Several tokens. Receivers accept any of them; exporters send the first.";
        let tokens = fields.secret_list("tokens", doc);
        for (key, given) in [("token", token.as_slice()), ("tokens", &tokens)] {
            // An unset variable makes an empty token, which would be no secret.
            if given.iter().any(|token| token.expose().trim().is_empty()) {
                fields.error_at(key, "is empty");
            }
        }
        if token.is_some() && !tokens.is_empty() {
            fields.warn_at("token", "is ignored beside `tokens`: move it there to keep it");
        }
        let tokens = if tokens.is_empty() { token.into_iter().collect() } else { tokens };
        let doc = "File with one token on each line; read again when it changes. Takes precedence \
                   over `token` and `tokens`.";
        let filename = fields.non_empty_string("filename", doc);
        let header = fields.string("header", "Authorization", "The header that carries the token.");
        let header = HeaderName::try_from(header).unwrap_or_else(|_| {
            fields.error_at("header", "is no header name");
            AUTHORIZATION
        });
        let doc = "Word before the token; may be empty.";
        let scheme = fields.string("scheme", "Bearer", doc);
        if tokens.is_empty() && filename.is_none() {
            fields.error_missing("token");
        }
        Config { header, scheme, tokens, filename }
    }

    /// The header that requests show, with the first token. A file has a token a line.
    fn shown(&self) -> SecretHeader {
        let token = self.tokens.first().cloned().unwrap_or_default();
        let token = SecretSource::of(self.filename.clone(), token);
        let (scheme, is_file) = (self.scheme.clone(), self.filename.is_some());
        let make = move |[secret]: [&str; 1]| {
            let first_line = || secret.lines().next().unwrap_or_default().trim_end();
            let token = if is_file { first_line() } else { secret };
            match scheme.as_str() {
                "" => sensitive(token),
                scheme => sensitive(&format!("{scheme} {token}")),
            }
        };
        let value = MadeFromSecrets::new("a bearer token", [token], make);
        SecretHeader { name: self.header.clone(), value }
    }
}
