//! `headers`: fixed headers of every request.

use http::HeaderMap;
use sluice_config::Fields;

use crate::headers;

/// Headers that gRPC and HTTP set themselves: the configuration's would break the request.
const RESERVED: [&str; 8] = [
    "content-type",
    "content-encoding",
    "content-length",
    "transfer-encoding",
    "te",
    "connection",
    "grpc-encoding",
    "grpc-timeout",
];

/// Reads `headers`. Their values are never shown.
pub fn read_headers(fields: &mut Fields<'_>) -> HeaderMap {
    let doc = "Headers added to every request. Their values are treated as secrets.";
    let mut headers = headers::read(fields, "headers", doc, &RESERVED);
    headers.values_mut().for_each(|value| value.set_sensitive(true));
    headers
}
