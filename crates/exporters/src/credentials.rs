//! The credentials of an exporter's requests, whatever the protocol.

use std::borrow::Cow;
use std::sync::Arc;

use http::HeaderMap;
use sluice_flow::{Metadata, Outcome};
use sluice_net::auth::client::ClientAuth;

use crate::outcome;

/// The authentication extension of an exporter, if it has one.
pub(crate) struct Credentials(Option<Arc<dyn ClientAuth>>);

impl Credentials {
    pub(crate) const fn none() -> Credentials {
        Credentials(None)
    }

    pub(crate) const fn of(auth: Arc<dyn ClientAuth>) -> Credentials {
        Credentials(Some(auth))
    }

    /// The headers of one request: those that all have, and its credentials. Without credentials
    /// nothing is copied.
    pub(crate) async fn headers<'a>(
        &self,
        fixed: &'a HeaderMap,
        metadata: &Metadata,
    ) -> Result<Cow<'a, HeaderMap>, Outcome> {
        let Some(auth) = &self.0 else { return Ok(Cow::Borrowed(fixed)) };
        let mut headers = fixed.clone();
        match auth.authenticate(&mut headers, &metadata.headers).await {
            Ok(()) => Ok(Cow::Owned(headers)),
            Err(error) => Err(outcome::of_auth_error(error)),
        }
    }

    /// The backend did not take them.
    pub(crate) async fn refused(&self) {
        if let Some(auth) = &self.0 {
            auth.refused().await;
        }
    }

    pub(crate) fn refuses(&self, metadata: &Metadata) -> Option<String> {
        self.0.as_ref()?.refuses(&metadata.headers)
    }

    pub(crate) fn metadata_keys(&self) -> &[String] {
        self.0.as_ref().map_or(&[], |auth| auth.metadata_keys())
    }
}
