//! Comparing credentials on the server sides: as SHA-256 digests, in constant time. The time of a
//! refusal shows neither content nor length, and no kept value can be printed.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};
use sluice_net::auth::server::AuthError;
use subtle::ConstantTimeEq;

/// Interval for reading files of senders' credentials: a token taken away must stop working soon.
pub(crate) const CREDENTIALS_RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// Says why a file with credentials cannot be read.
pub(crate) fn unreadable(path: &Path, reason: impl Display) -> String {
    format!("cannot read {}: {reason}", path.display())
}

/// Says why the content of a file with credentials cannot be used.
pub(crate) fn unusable(path: &Path, reason: impl Display) -> String {
    format!("cannot use {}: {reason}", path.display())
}

/// The value of the header that credentials come in.
pub(crate) fn sole<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<&'a HeaderValue, AuthError> {
    sluice_net::headers::sole(headers, name)
        .map_err(|_| AuthError::Malformed)?
        .ok_or(AuthError::Missing)
}

pub(crate) type Sha256Digest = [u8; 32];

pub(crate) fn digest(secret: &[u8]) -> Sha256Digest {
    Sha256::digest(secret).into()
}

/// The credentials after a scheme's name, which is compared without regard to case.
pub(crate) fn after_scheme<'a>(value: &'a [u8], scheme: &str) -> Option<&'a [u8]> {
    if scheme.is_empty() {
        return Some(value.trim_ascii());
    }
    let (name, rest) = value.split_at_checked(scheme.len())?;
    let rest = rest.strip_prefix(b" ")?;
    name.eq_ignore_ascii_case(scheme.as_bytes()).then(|| rest.trim_ascii())
}

/// Compares with every candidate, found or not.
pub(crate) fn is_among(secret: &Sha256Digest, candidates: &[Sha256Digest]) -> bool {
    let none = subtle::Choice::from(0);
    candidates.iter().fold(none, |found, candidate| found | secret.ct_eq(candidate)).into()
}
