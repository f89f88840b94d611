//! Authentication of senders: receivers check a request's headers.

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue};

/// Why a request is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    #[error("no credentials were provided")]
    Missing,
    #[error("the credentials are malformed")]
    Malformed,
    #[error("the credentials are not valid")]
    Wrong,
    /// Password checks are slow by design, and too many are under way. The sender is not at fault
    /// and may try again later.
    #[error("too many credentials are being checked at the moment")]
    Busy,
}

/// Decides from a request's headers whether its sender may send.
pub trait ServerAuth: Send + Sync {
    fn authenticate<'a>(&'a self, headers: &'a HeaderMap) -> BoxFuture<'a, Result<(), AuthError>>;

    /// The value of `www-authenticate` in a refusal.
    fn challenge(&self) -> &HeaderValue;
}
