//! Bearer tokens (RFC 6750).

use std::sync::Arc;

use http::{HeaderMap, HeaderName};

use super::{AuthError, AuthSetupError, BearerOptions, Sha256Digest, after_scheme, digest, is_among, sole};
use crate::reload::{Reloading, Snapshot};

pub(super) struct Bearer {
    header: HeaderName,
    scheme: String,
    tokens: Arc<Reloading<Vec<Sha256Digest>>>,
}

impl Bearer {
    pub(super) fn new(header: HeaderName, options: BearerOptions) -> Result<Self, AuthSetupError> {
        let scheme = options.scheme;
        let (tokens, file) = (options.tokens, options.file);
        let files = file.clone().into_iter().collect();
        let tokens =
            Reloading::start("the bearer tokens", files, options.reload_interval, move |snapshot: &Snapshot| {
                let tokens: Vec<Sha256Digest> = match &file {
                    None => tokens.iter().map(|token| digest(token.as_bytes())).collect(),
                    Some(path) => {
                        let content = snapshot.content(path).map_err(|reason| AuthSetupError::Unreadable {
                            path: path.display().to_string(),
                            reason: reason.to_owned(),
                        })?;
                        let lines = content.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
                        lines.filter(|line| !line.is_empty()).map(digest).collect()
                    }
                };
                if tokens.is_empty() { Err(AuthSetupError::NoTokens) } else { Ok(tokens) }
            })?;
        Ok(Bearer { header, scheme, tokens })
    }

    pub(super) fn authenticate(&self, headers: &HeaderMap) -> Result<(), AuthError> {
        let value = sole(headers, &self.header)?;
        let token = after_scheme(value.as_bytes(), &self.scheme).ok_or(AuthError::Malformed)?;
        if is_among(&digest(token), &self.tokens.current()) { Ok(()) } else { Err(AuthError::Wrong) }
    }
}
