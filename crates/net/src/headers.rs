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

/// A part of a header's name that has one of these has credentials, as in `x-secretkey`.
const ANYWHERE: [&str; 7] =
    ["authorization", "cookie", "token", "secret", "password", "apikey", "assertion"];

/// Unless it goes on so: it is another word, as in `secretary`, `tokenizer` or `passwordless`.
const OTHER_WORDS: [&str; 7] = ["ary", "ari", "iz", "ise", "isi", "isa", "less"];

/// With one of these `tokens` are counted, as in `max-tokens`.
const AMOUNTS: [&str; 12] = [
    "max",
    "min",
    "num",
    "number",
    "total",
    "used",
    "remaining",
    "input",
    "output",
    "prompt",
    "completion",
    "ratelimit",
];

/// The same of a part that ends with one of these.
const AT_THE_END: [&str; 9] = [
    "passwd",
    "passphrase",
    "credential",
    "credentials",
    "signature",
    "session",
    "sessionid",
    "jwt",
    "pwd",
];

/// Unless one of these follows: it is about them, as in `token-count`.
const ABOUT: [&str; 14] = [
    "count", "limit", "length", "size", "type", "rate", "usage", "budget", "bucket", "ttl",
    "expiry", "version", "status", "name",
];

/// A key behind one of these gives access. Other keys are for routing, partitions and the like.
const ACCESS_KEYS: [&str; 12] = [
    "api",
    "access",
    "secret",
    "private",
    "license",
    "ingest",
    "ingestion",
    "insert",
    "write",
    "app",
    "auth",
    "subscription",
];

/// Names that do not tell it.
const OTHERS: [&str; 3] = ["x-honeycomb-team", "x-honeycomb-key", "uptrace-dsn"];

/// Whether a header of this name is likely to have credentials.
pub fn is_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let parts: Vec<&str> = name.split(|it: char| !it.is_ascii_alphanumeric()).collect();
    let is_at = |index: usize| {
        let (part, next) = (parts[index], parts.get(index + 1).copied().unwrap_or_default());
        // As `x-token2`.
        let part = part.trim_end_matches(|it: char| it.is_ascii_digit());
        let has_end = AT_THE_END.iter().any(|word| part.ends_with(word));
        let is_word = (has_end || has_word(part, &parts)) && !ABOUT.contains(&next);
        let is_access = |it: &&str| ACCESS_KEYS.contains(it) || it.ends_with("api");
        let is_key = matches!(part, "key" | "keys") && parts[..index].iter().any(is_access);
        let is_auth = part == "auth" && next.is_empty();
        is_word || is_key || is_auth
    };
    OTHERS.contains(&name.as_str()) || (0..parts.len()).any(is_at)
}

/// Whether a part of a name has a word that means credentials, and not as a part of another word.
fn has_word(part: &str, parts: &[&str]) -> bool {
    let means_it = |(at, word): (usize, &str)| {
        let (before, after) = (&part[..at], &part[at + word.len()..]);
        let is_other = OTHER_WORDS.iter().any(|other| after.starts_with(other));
        let is_amount = word == "token"
            && after == "s"
            && parts.iter().chain([&before]).any(|it| AMOUNTS.contains(it));
        !is_other && !is_amount && !ABOUT.contains(&after)
    };
    ANYWHERE.iter().flat_map(|word| part.match_indices(word)).any(means_it)
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

    /// Guarantee: names that backends and proxies use for credentials are known in any case, and
    /// names that only have one of the words are not.
    #[test]
    fn credentials_are_known_by_their_names() {
        for name in "authorization Proxy-Authorization x-forwarded-authorization cookie set-cookie \
                     x-api-key api-key api_key apikey X-ApiKey dd-api-key x-auth-token \
                     x-authtoken token access_token x-access-token x-amz-security-token \
                     x-xsrf-token secret client-secret x-secret-key password passwd \
                     x-user-password session session-id x-session jsessionid signature \
                     x-hub-signature-256 x-honeycomb-team x-insert-key license-key \
                     lightstep-access-token ocp-apim-subscription-key x-sentry-auth x-jwt \
                     x-amz-credential x-secretkey x-tokens x-token2 x-tokenid x-tokenauth \
                     x-passwords cookies cookie2 x-secretvalue x-apikeys x-api-keys x-api-key2 \
                     x-myapi-key x-authorizations client_assertion"
            .split_whitespace()
        {
            assert!(is_credential(name), "{name}");
        }
        for name in "x-tenant x-scope-orgid token_count x-token-limit max-tokens token-type \
                     x-partition-key idempotency-key x-request-id traceparent user-agent \
                     x-secretary author authority x-auth-request-user x-cookie-count key \
                     x-signatures password-ttl x-sessions x-keyboard-api x-monkey \
                     keyboard-layout x-tokenizer x-tokenised maxtokens x-ratelimit-tokens \
                     x-remaining-tokens tokencount x-secretariat passwordless x-api-keyboard \
                     client_assertion_type"
            .split_whitespace()
        {
            assert!(!is_credential(name), "{name}");
        }
    }

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
