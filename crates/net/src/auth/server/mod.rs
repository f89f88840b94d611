//! Who may send to us: the server side of the Collector's `bearertokenauth` and `basicauth` extensions.
//!
//! Secrets are kept and compared as SHA-256 digests, in constant time: neither their content nor their length shows in
//! how long a refusal takes, and none can be printed.

mod basic;
mod bearer;

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use basic::Basic;
use bearer::Bearer;

/// Why a request is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    #[error("no credentials were provided")]
    Missing,
    #[error("the credentials are malformed")]
    Malformed,
    #[error("the credentials are not valid")]
    Wrong,
    /// Checking a password is meant to be slow, and too many are being checked. Not the sender's fault: come back later.
    #[error("too many credentials are being checked at the moment")]
    Busy,
}

/// Why authentication cannot be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthSetupError {
    #[error("`{name}` is not a header name")]
    Header { name: String },
    #[error("there is no token")]
    NoTokens,
    #[error("there is no user")]
    NoUsers,
    #[error("line {line} is not `user:password-hash`")]
    NotAUser { line: usize },
    #[error(
        "the password hash of user `{user}` is of a kind that is not supported: use bcrypt (htpasswd -B) or {{SHA}} (htpasswd -s)"
    )]
    UnsupportedHash { user: String },
    #[error("cannot read {path}: {reason}")]
    Unreadable { path: String, reason: String },
}

#[derive(Clone, PartialEq, Eq)]
pub struct BearerOptions {
    /// The header that carries the token.
    pub header: String,
    /// The word before the token; may be empty.
    pub scheme: String,
    pub tokens: Vec<String>,
    /// A token a line, read again when it changes. Used instead of `tokens`.
    pub file: Option<PathBuf>,
    pub reload_interval: Option<Duration>,
}

#[derive(Clone, Default, PartialEq, Eq)]
pub struct BasicOptions {
    /// Lines of an htpasswd file.
    pub inline: String,
    /// An htpasswd file, read again when it changes. Users in `inline` win.
    pub file: Option<PathBuf>,
    pub reload_interval: Option<Duration>,
}

/// Decides from a request's headers whether its sender may send.
pub struct Authenticator {
    kind: Kind,
    challenge: HeaderValue,
}

enum Kind {
    Bearer(Bearer),
    Basic(Basic),
}

impl Authenticator {
    pub fn bearer(options: BearerOptions) -> Result<Self, AuthSetupError> {
        let header = HeaderName::try_from(options.header.as_str())
            .map_err(|_| AuthSetupError::Header { name: options.header.clone() })?;
        let scheme = if options.scheme.is_empty() { "Bearer" } else { &options.scheme };
        let challenge = HeaderValue::from_str(scheme).unwrap_or(HeaderValue::from_static("Bearer"));
        Ok(Authenticator { kind: Kind::Bearer(Bearer::new(header, options)?), challenge })
    }

    /// Whether lines of an htpasswd file can be used.
    pub fn check_users(lines: &str) -> Result<(), AuthSetupError> {
        basic::check(lines)
    }

    pub fn basic(options: BasicOptions) -> Result<Self, AuthSetupError> {
        let challenge = HeaderValue::from_static("Basic realm=\"telemetry\", charset=\"UTF-8\"");
        Ok(Authenticator { kind: Kind::Basic(Basic::new(options)?), challenge })
    }

    pub async fn authenticate(&self, headers: &HeaderMap) -> Result<(), AuthError> {
        match &self.kind {
            Kind::Bearer(bearer) => bearer.authenticate(headers),
            Kind::Basic(basic) => basic.authenticate(headers).await,
        }
    }

    /// For `www-authenticate`.
    pub fn challenge(&self) -> &HeaderValue {
        &self.challenge
    }
}

/// The value of the header that credentials come in.
fn sole<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a HeaderValue, AuthError> {
    crate::headers::sole(headers, name).map_err(|_| AuthError::Malformed)?.ok_or(AuthError::Missing)
}

type Sha256Digest = [u8; 32];

fn digest(secret: &[u8]) -> Sha256Digest {
    Sha256::digest(secret).into()
}

/// The credentials after a scheme's name, which is compared without regard to case.
fn after_scheme<'a>(value: &'a [u8], scheme: &str) -> Option<&'a [u8]> {
    if scheme.is_empty() {
        return Some(value.trim_ascii());
    }
    let (name, rest) = value.split_at_checked(scheme.len())?;
    let rest = rest.strip_prefix(b" ")?;
    name.eq_ignore_ascii_case(scheme.as_bytes()).then(|| rest.trim_ascii())
}

/// Compares with every candidate, found or not.
fn is_among(secret: &Sha256Digest, candidates: &[Sha256Digest]) -> bool {
    candidates.iter().fold(subtle::Choice::from(0), |found, candidate| found | secret.ct_eq(candidate)).into()
}

#[cfg(test)]
mod tests;
