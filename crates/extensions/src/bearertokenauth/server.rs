use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue};
use sluice_net::auth::server::{AuthError, ServerAuth};
use sluice_net::reload::{Reloading, Snapshot};

use super::Config;
use crate::digest::{
    CREDENTIALS_RELOAD_INTERVAL, Sha256Digest, after_scheme, digest, is_among, sole, unreadable,
    unusable,
};

/// Lets in requests that show one of the tokens.
pub struct BearerServer {
    header: HeaderName,
    scheme: String,
    pub(super) tokens: Arc<Reloading<Vec<Sha256Digest>>>,
    challenge: HeaderValue,
}

impl BearerServer {
    pub fn new(config: &Config) -> Result<Self, String> {
        let file = config.filename.as_ref().map(PathBuf::from);
        // An empty token, as an unset variable makes it, would let in any request.
        let fixed = config.tokens.iter().map(|token| token.expose().as_bytes());
        let fixed: Vec<_> = fixed.filter(|token| !token.is_empty()).map(digest).collect();
        let waits = config.waits_for_file;
        let was_good = AtomicBool::new(false);
        let tokens = Reloading::start(
            "the bearer tokens",
            file.clone().into_iter().collect(),
            Some(CREDENTIALS_RELOAD_INTERVAL),
            move |snapshot: &Snapshot| {
                let read = match &file {
                    None if fixed.is_empty() => Err("there is no token".to_owned()),
                    None => Ok(fixed.clone()),
                    Some(path) => read_tokens(path, snapshot),
                };
                match read {
                    // An error keeps the tokens that were read before.
                    Err(error) if waits && !was_good.load(Relaxed) => {
                        tracing::error!(%error, "no sender is let in until there is a token");
                        Ok(Vec::new())
                    }
                    read => read.inspect(|_| was_good.store(true, Relaxed)),
                }
            },
        )?;
        let scheme = if config.scheme.is_empty() { "Bearer" } else { &config.scheme };
        let challenge = HeaderValue::from_str(scheme).unwrap_or(HeaderValue::from_static("Bearer"));
        let (header, scheme) = (config.header.clone(), config.scheme.clone());
        Ok(BearerServer { header, scheme, tokens, challenge })
    }

    fn check(&self, headers: &HeaderMap) -> Result<(), AuthError> {
        let value = sole(headers, &self.header)?;
        let token = after_scheme(value.as_bytes(), &self.scheme).ok_or(AuthError::Malformed)?;
        is_among(&digest(token), &self.tokens.current()).then_some(()).ok_or(AuthError::Wrong)
    }
}

impl ServerAuth for BearerServer {
    fn authenticate<'a>(&'a self, headers: &'a HeaderMap) -> BoxFuture<'a, Result<(), AuthError>> {
        Box::pin(std::future::ready(self.check(headers)))
    }

    fn challenge(&self) -> &HeaderValue {
        &self.challenge
    }
}

fn read_tokens(path: &Path, snapshot: &Snapshot) -> Result<Vec<Sha256Digest>, String> {
    let content = snapshot.content(path).map_err(|reason| unreadable(path, reason))?;
    let lines = content.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let tokens: Vec<_> = lines.filter(|line| !line.is_empty()).map(digest).collect();
    if tokens.is_empty() { Err(unusable(path, "it has no token")) } else { Ok(tokens) }
}
