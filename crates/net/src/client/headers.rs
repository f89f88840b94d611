//! `headers`: fixed headers of every request.

use http::{HeaderMap, HeaderName, HeaderValue};
use sluice_config::Fields;

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
    let given = fields.secret_map(
        "headers",
        "Headers added to every request. Their values are treated as secrets.",
    );
    let mut headers = HeaderMap::with_capacity(given.len());
    for (name, value) in given {
        let lower = name.to_ascii_lowercase();
        if RESERVED.contains(&lower.as_str()) || lower.starts_with(':') {
            fields.error_at("headers", &format!("cannot set `{name}`: the protocol does"));
            continue;
        }
        let problem = match (HeaderName::try_from(&lower), HeaderValue::from_str(value.expose())) {
            (Ok(header), Ok(mut value)) => {
                value.set_sensitive(true);
                headers.insert(header, value);
                continue;
            }
            (Err(_), _) => format!("has `{name}`, which is no header name"),
            (_, Err(_)) => {
                format!("has a value for `{name}` with characters that no header may have")
            }
        };
        fields.error_at("headers", &problem);
    }
    headers
}
