//! Headers that may have only one value, and those that the configuration adds.

use http::{HeaderMap, HeaderName, HeaderValue};
use sluice_config::{Fields, Secret};

/// There are several different values. It is unknown which of them a proxy before Sluice has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differing;

/// The value of a header, which may be repeated. `None`: it is not there.
pub fn sole<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a HeaderValue>, Differing> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.all(|other| Some(other) == value) { Ok(value) } else { Err(Differing) }
}

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

/// Parts of the names of headers that have credentials.
const CREDENTIALS: [&str; 8] =
    ["authorization", "cookie", "token", "secret", "password", "api-key", "apikey", "api_key"];

/// Whether a header of this name, in lower case, is likely to have credentials.
pub fn is_credential(name: &str) -> bool {
    CREDENTIALS.iter().any(|part| name.contains(part))
}

/// Reads a client's `headers`: fixed headers of every request. Their values are never shown.
pub fn read_headers(fields: &mut Fields<'_>) -> HeaderMap {
    let doc = "Headers added to every request. Their values are treated as secrets.";
    let mut headers = read(fields, "headers", doc, &RESERVED);
    headers.values_mut().for_each(|value| value.set_sensitive(true));
    headers
}

/// Reads a map of headers, whose values are secrets. Names and values that HTTP does not allow, and
/// reserved names, are errors.
pub fn read(fields: &mut Fields<'_>, key: &str, doc: &str, reserved: &[&str]) -> HeaderMap {
    let given = fields.secret_map(key, doc);
    let (headers, problems) = checked(&given, reserved);
    problems.iter().for_each(|problem| fields.error_at(key, problem));
    headers
}

/// A client's fixed headers, which are never shown, and what is wrong with the rest.
pub fn client_headers(given: &[(String, Secret)]) -> (HeaderMap, Vec<String>) {
    let (mut headers, problems) = checked(given, &RESERVED);
    headers.values_mut().for_each(|value| value.set_sensitive(true));
    (headers, problems)
}

/// The headers that can be sent, and what is wrong with the rest. Those that the protocol sets
/// itself, which are `reserved` or begin with a colon, are errors, and so are two names that differ
/// only in case: over HTTP the Collector sends one of their values.
fn checked(given: &[(String, Secret)], reserved: &[&str]) -> (HeaderMap, Vec<String>) {
    let mut headers = HeaderMap::with_capacity(given.len());
    let mut problems = Vec::new();
    for (index, (name, value)) in given.iter().enumerate() {
        let lower = name.to_ascii_lowercase();
        let problem = match (HeaderName::try_from(&lower), HeaderValue::from_str(value.expose())) {
            _ if reserved.contains(&lower.as_str()) || lower.starts_with(':') => {
                format!("cannot set `{name}`: the protocol does")
            }
            (Ok(header), Ok(value)) if !headers.contains_key(&header) => {
                headers.insert(header, value);
                continue;
            }
            (Ok(_), Ok(_)) => {
                let is_same = |(other, _): &&(String, Secret)| other.eq_ignore_ascii_case(name);
                let first = given[..index].iter().find(is_same).map_or("", |(first, _)| first);
                format!("has `{first}` and `{name}`, which are the same header")
            }
            (Err(_), _) => format!("has `{name}`, which is no header name"),
            (_, Err(_)) => {
                format!("has a value for `{name}` with characters that no header may have")
            }
        };
        problems.push(problem);
    }
    (headers, problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a header twice, in two spellings. Guarantee: an error names both, and no value is
    /// dropped or shown.
    #[test]
    fn two_spellings_of_a_header_are_an_error() {
        let text = "h: {X-A: one, x-b: three, x-a: two}";
        let read = |fields: &mut Fields<'_>| read(fields, "h", "", &[]);
        let (headers, diagnostics) = sluice_config::read_text("x", text, read);
        assert_eq!(headers.len(), 2);
        let said = diagnostics.render(false);
        assert!(said.contains("`x.h` has `X-A` and `x-a`"), "{said}");
        assert!(!said.contains("one") && !said.contains("two"), "{said}");
    }
}
