//! Redirects that keep method and body (307, 308), within the origin that is configured: neither
//! credentials nor telemetry go to a host that an answer names.

use http::header::LOCATION;
use http::{StatusCode, Uri};
use sluice_net::client::Answer;

/// As in Go's client.
pub(super) const REDIRECTS_MAX: usize = 10;

/// Where the request has to be sent instead.
pub(super) fn target(uri: &Uri, answer: &Answer) -> Option<Uri> {
    let keeps_body =
        [StatusCode::TEMPORARY_REDIRECT, StatusCode::PERMANENT_REDIRECT].contains(&answer.status);
    if !keeps_body {
        return None;
    }
    let location = Uri::try_from(answer.headers.get(LOCATION)?.as_bytes()).ok()?;
    match location.authority() {
        Some(authority) => {
            let is_same = Some(authority) == uri.authority() && location.scheme() == uri.scheme();
            is_same.then_some(location)
        }
        None => {
            let mut parts = uri.clone().into_parts();
            parts.path_and_query = location.into_parts().path_and_query;
            Uri::from_parts(parts).ok()
        }
    }
}
