//! `bearertokenauth` (RFC 6750): receivers let in any of its tokens, exporters show the first.

mod server;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use http::header::AUTHORIZATION;
use sluice_config::{ComponentKind, Fields, Kind, Secret};

use crate::extension::{ClientExtension, CredentialsFile, Extension};
use crate::secret::{MadeFromSecrets, SecretHeader, SecretSource, sensitive};

pub use server::BearerServer;

pub(crate) const KIND: ComponentKind<Extension> = ComponentKind::new(
    Kind::new("bearertokenauth", "Bearer tokens, for receivers and exporters.")
        .aliases(&["bearer_token_auth"]),
    |fields| {
        let config = Config::read(fields);
        let of_client = config.clone();
        Extension {
            credentials: config.credentials().into_iter().collect(),
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
    /// Receivers start without the file, and let in no sender until it is there.
    pub waits_for_file: bool,
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
            fields.error_at("token", "cannot stand beside `tokens`: move it there");
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
        let waits_for_file = read_retry(fields, filename.is_some());
        Config { header, scheme, tokens, filename, waits_for_file }
    }

    fn credentials(&self) -> Option<CredentialsFile> {
        let path = PathBuf::from(self.filename.as_ref()?);
        // Those that wait for the file take one that cannot be used for a missing one.
        let config = Config { waits_for_file: false, ..self.clone() };
        let check = Box::new(move || BearerServer::new(&config).map(drop));
        let otherwise =
            "until it can be used, no sender is let in, and nothing is sent that needs it";
        let otherwise = self.waits_for_file.then_some(otherwise);
        Some(CredentialsFile { option: "filename", path, otherwise, check })
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

/// `retry_on_failure` and `wait_for_token_file`: whether a file that is missing stops a start.
fn read_retry(fields: &mut Fields<'_>, has_file: bool) -> bool {
    let doc = "Start without the file that `filename` names, if it is missing. It is looked for \
               every second, without end; until it is there, receivers let in no sender.";
    let is_enabled = fields.section_or_default("retry_on_failure", doc, |fields| {
        let is_enabled = fields.boolean("enabled", false, "If false, the file must be there.");
        let max_retries = fields.optional_integer("max_retries", 0..=i64::MAX, "Has no effect.");
        if max_retries.is_some_and(|most| most > 0) {
            fields.warn_at("max_retries", "has no effect: the file is looked for without end");
        }
        let doc = "Has no effect: the file is looked for every second.";
        fields.optional_duration("interval", Duration::from_nanos(1)..=Duration::MAX, doc);
        if is_enabled && !fields.is_given("interval") {
            fields.error_missing("interval");
        }
        is_enabled
    });
    let doc = "Has no effect, and causes a warning: a start never waits for the file.";
    let waits = fields.boolean("wait_for_token_file", false, doc);
    for (key, is_set) in [("retry_on_failure", is_enabled), ("wait_for_token_file", waits)] {
        if is_set && !has_file {
            fields.error_at(key, "needs `filename`");
        }
    }
    if waits && !is_enabled {
        fields.error_at("wait_for_token_file", "needs `retry_on_failure` to be enabled");
    } else if waits {
        let message = "has no effect: the start does not wait; requests are refused or kept until \
                       the file is there";
        fields.warn_at("wait_for_token_file", message);
    }
    is_enabled
}
