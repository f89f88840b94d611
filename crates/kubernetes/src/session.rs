//! A client with what it shows the API server, which must not come back in texts of failures.

use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;

use kube::Config;
use kube::client::AuthError;
use serde_json::Value;
use sluice_net::client::Secrets;

use crate::access::read;
use crate::failure::Failure;

const REDACTED: &str = "[redacted]";
/// The words of a program about its failure are cut there.
const PROGRAM_LIMIT_BYTES: usize = 500;
/// A word behind `Bearer` that is as long is a credential, whatever its characters.
const LONG_WORD_BYTES: usize = 20;

/// A client, and the credentials that it shows.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) client: kube::Client,
    shows: Arc<Shows>,
}

/// The credentials that are shown to the API server, as far as they are known.
#[derive(Default)]
pub(crate) struct Shows {
    texts: Vec<String>,
    token_file: Option<PathBuf>,
    /// A program gets the credentials: only `kube` knows them.
    is_of_program: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Session")
    }
}

impl Session {
    /// # Errors
    /// A file, or a program of the kubeconfig, cannot be used.
    pub(crate) fn new(config: Config) -> Result<Session, String> {
        let shows = Arc::new(Shows::of(&config));
        let client = kube::Client::try_from(config).map_err(|error| shown(&error))?;
        Ok(Session { client, shows })
    }

    /// The failure without our credentials, which a peer may have named.
    pub(crate) async fn hide(&self, failure: Failure) -> Failure {
        let shows = self.shows.clone();
        // Reads the file of the token.
        let hidden = tokio::task::spawn_blocking(move || shows.hide(failure)).await;
        hidden.unwrap_or_else(|error| Failure::Other(error.to_string()))
    }
}

impl Shows {
    fn of(config: &Config) -> Shows {
        let who = &config.auth_info;
        // Secrets have no other way out of `kube`'s type.
        let all = serde_json::to_value(who).unwrap_or_default();
        let mut texts = Vec::new();
        for name in ["password", "token", "auth-provider"] {
            add_texts(&all[name], &mut texts);
        }
        add_texts(&all["exec"]["env"], &mut texts);
        for (_, value) in config.headers.iter().filter(|(_, value)| value.is_sensitive()) {
            texts.extend(value.to_str().ok().map(str::to_owned));
        }
        Shows {
            texts,
            token_file: who.token_file.as_ref().map(PathBuf::from),
            is_of_program: who.exec.is_some() || who.auth_provider.is_some(),
        }
    }

    fn hide(&self, failure: Failure) -> Failure {
        if self.is_of_program && matches!(failure, Failure::Unauthorized(_)) {
            let text = "its message may have the credentials, and is not shown";
            return failure.map_text(|_| text.to_owned());
        }
        let token = self.token_file.as_ref().and_then(|path| read(path).ok());
        let token = token.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
        let secrets = self.texts.iter().fold(Secrets::default(), |all, text| all.and(text));
        let secrets = secrets.and(token.trim());
        failure.map_text(|text| without_bearers(&secrets.peer_text(text)))
    }
}

/// All texts in a value.
fn add_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| add_texts(value, texts)),
        Value::Object(pairs) => pairs.values().for_each(|value| add_texts(value, texts)),
        _ => {}
    }
}

/// The text without words that look like credentials: those behind `Bearer` or `Basic`, and JWTs.
fn without_bearers(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut is_behind = false;
    for word in text.split_inclusive(' ') {
        let end = if word.ends_with(' ') { " " } else { "" };
        let bare = word.trim_matches(|it: char| !it.is_alphanumeric());
        let is_plain = bare.len() < LONG_WORD_BYTES && bare.chars().all(|it| it.is_lowercase());
        if is_behind && !is_plain || bare.contains("eyJ") {
            kept.push_str(REDACTED);
            kept.push_str(end);
        } else {
            kept.push_str(word);
        }
        let is_scheme = |scheme: &str| {
            bare.get(bare.len().saturating_sub(scheme.len())..)
                .is_some_and(|it| it.eq_ignore_ascii_case(scheme))
        };
        is_behind = is_scheme("bearer") || is_scheme("basic");
    }
    kept
}

/// An error with its causes. Of a program that gets credentials only its own complaint is shown.
pub(crate) fn shown(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(Some(error), |&cause| cause.source()) {
        match cause.downcast_ref() {
            Some(AuthError::AuthExecRun { out, .. }) => return of_program(out),
            Some(AuthError::AuthExecParse(_)) => {
                return "the program that the kubeconfig names does not print credentials"
                    .to_owned();
            }
            _ => {}
        }
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// A program may print its credentials and fail: its standard output is not shown.
fn of_program(output: &Output) -> String {
    let said =
        String::from_utf8_lossy(&output.stderr[..output.stderr.len().min(PROGRAM_LIMIT_BYTES)]);
    let said = without_bearers(&Secrets::default().peer_text(said.trim()));
    let said = if said.is_empty() { "it does not say why" } else { &said };
    let status = output.status;
    format!("the program that the kubeconfig names for credentials fails with {status} ({said})")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: the API server refuses credentials and names them; they are a token, a password, a
    /// header, of a file, or a program's. Guarantee: the text does not have them.
    #[test]
    fn texts_have_no_credentials() {
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("token");
        std::fs::write(&file, "filetoken-12345678\n").expect("writes");
        let known = Shows {
            texts: vec!["plain-token-1234".to_owned(), "pass word 1".to_owned()],
            token_file: Some(file),
            is_of_program: false,
        };
        let said = |text: &str| Failure::Unauthorized(text.to_owned());
        for (text, expected) in [
            ("token plain-token-1234 is unknown", "token [redacted] is unknown"),
            ("filetoken-12345678?", "[redacted]?"),
            ("Authorization: Bearer other-Token9, again", "Authorization: Bearer [redacted] again"),
            ("\"Basic dXNlcjpwYXNz\"", "\"Basic [redacted]"),
            ("of eyJhbGciOiJSUzI1NiJ9.e30.c2ln", "of [redacted]"),
            ("the bearer is not known", "the bearer is not known"),
        ] {
            assert_eq!(known.hide(said(text)), said(expected));
        }
        let program = Shows { is_of_program: true, ..Shows::default() };
        let text = format!("{:?}", program.hide(said("EXECSECRET-1234567890 is unknown")));
        assert!(!text.contains("EXECSECRET"), "{text}");
        let forbidden = Failure::Forbidden("User \"x\" cannot list".to_owned());
        assert_eq!(program.hide(forbidden.clone()), forbidden);
    }
}
