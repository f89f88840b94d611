//! The secrets that a request shows its peer, and that must not come back in the texts of answers:
//! a backend that refuses credentials may name them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue};
use sluice_config::Secret;

use super::error::peer_text;
use super::proxy::Proxy;
use crate::headers::is_credential;
use crate::text::char_boundary;

const REDACTED: &str = "[redacted]";

/// As much of a text is looked at. More than is kept, because secrets are replaced by less.
const LOOK_BYTES: usize = 4096;

/// Shorter texts are no secrets, and without them an answer would be unreadable.
const SHORTEST_BYTES: usize = 4;

/// The same, for headers whose names do not tell that they have credentials.
const SHORTEST_OTHER_BYTES: usize = 8;

/// A peer, or a limit of a library, may have cut the secret: this much of it is found too.
const BEGINNING_BYTES: usize = 8;

/// The secrets of one request. They are only looked at when there is a text.
#[derive(Clone, Default)]
pub struct Secrets<'a> {
    headers: Option<&'a HeaderMap>,
    texts: Vec<&'a str>,
}

impl<'a> Secrets<'a> {
    /// All values that are marked as sensitive.
    pub fn of(headers: &'a HeaderMap) -> Secrets<'a> {
        Secrets { headers: Some(headers), texts: Vec::new() }
    }

    #[must_use]
    pub fn and(mut self, text: &'a str) -> Secrets<'a> {
        self.texts.push(text);
        self
    }

    /// With the credentials that the proxy gets.
    #[must_use]
    pub fn and_proxy(mut self, proxy: Option<&'a Proxy>) -> Secrets<'a> {
        let authorization = proxy.and_then(|proxy| proxy.authorization.as_ref());
        self.texts.extend(authorization.map(Secret::expose));
        self
    }

    /// A peer's text as it may be kept and shown: without secrets, short, on one line, printable.
    pub fn peer_text(&self, text: &str) -> String {
        let mut kept = text[..char_boundary(text, LOOK_BYTES)].to_owned();
        if kept.is_empty() {
            return kept;
        }
        for secret in self.all() {
            if kept.contains(&secret) {
                kept = kept.replace(&secret, REDACTED);
            }
            kept = without_beginning(kept, &secret);
        }
        peer_text(&kept)
    }

    /// The longest first: one may contain another.
    fn all(&self) -> Vec<String> {
        let mut all = Vec::new();
        let headers = self.headers.into_iter().flatten();
        for (name, value) in headers.filter(|(_, value)| value.is_sensitive()) {
            let is_telling = is_credential(name.as_str());
            let shortest = if is_telling { SHORTEST_BYTES } else { SHORTEST_OTHER_BYTES };
            add(value, shortest, &mut all);
        }
        for text in &self.texts {
            add_text(text, SHORTEST_BYTES, &mut all);
        }
        all.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        all.dedup();
        all
    }
}

fn add(value: &HeaderValue, shortest: usize, all: &mut Vec<String>) {
    if let Ok(text) = std::str::from_utf8(value.as_bytes()) {
        add_text(text, shortest, all);
    }
}

/// Adds the credentials of `Bearer token`, the password of `Basic base64`, and other texts whole.
fn add_text(text: &str, shortest: usize, all: &mut Vec<String>) {
    let mut add = |text: &str| {
        if text.len() >= shortest {
            all.push(text.to_owned());
        }
    };
    let Some((scheme, credentials)) = text.split_once(' ') else { return add(text) };
    add(credentials.trim());
    let decoded = scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(credentials));
    let decoded = decoded.and_then(|decoded| String::from_utf8(decoded.ok()?).ok());
    if let Some((_, password)) = decoded.as_deref().and_then(|it| it.split_once(':')) {
        add(password);
    }
}

/// Replaces all parts of the text that are the beginning of the secret.
fn without_beginning(text: String, secret: &str) -> String {
    let beginning = &secret[..char_boundary(secret, BEGINNING_BYTES)];
    if beginning.len() < BEGINNING_BYTES || !text.contains(beginning) {
        return text;
    }
    let mut kept = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find(beginning) {
        let same = rest[at..].bytes().zip(secret.bytes()).take_while(|(a, b)| a == b).count();
        kept.push_str(&rest[..at]);
        kept.push_str(REDACTED);
        rest = &rest[char_boundary(rest, at + same)..];
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::TEXT_LIMIT_BYTES;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let marked = |(name, value): &(&'static str, &'static str)| {
            let mut value = HeaderValue::from_static(value);
            value.set_sensitive(true);
            (http::HeaderName::from_static(name), value)
        };
        let mut headers: HeaderMap = pairs.iter().map(marked).collect();
        headers.insert("user-agent", HeaderValue::from_static("Sluice/1.0 (test)"));
        headers
    }

    /// Scenario: answers that have credentials of the request: whole headers, parts, decoded,
    /// often, cut. Guarantee: none is kept, and the rest of the text is.
    #[test]
    fn secrets_of_the_request_do_not_come_back() {
        // "me:hunter22"
        let headers = headers(&[
            ("authorization", "Bearer eyJhbGciOiJub25lIn0.e30."),
            ("proxy-authorization", "Basic bWU6aHVudGVyMjI="),
            ("x-api-key", "k123"),
            ("x-scope-orgid", "prod"),
            ("x-team", "observability"),
        ]);
        let secrets = Secrets::of(&headers).and("form+secret");
        for (text, expected) in [
            ("", ""),
            ("no such tenant prod", "no such tenant prod"),
            ("bad token eyJhbGciOiJub25lIn0.e30.", "bad token [redacted]"),
            (
                "Authorization: Bearer eyJhbGciOiJub25lIn0.e30.\nHost: a",
                "Authorization: Bearer [redacted] Host: a",
            ),
            ("Basic bWU6aHVudGVyMjI= is me:hunter22", "Basic [redacted] is me:[redacted]"),
            ("key k123, k123", "key [redacted], [redacted]"),
            ("client_secret=form+secret&x=1", "client_secret=[redacted]&x=1"),
            ("team observability", "team [redacted]"),
            ("the token eyJhbGciOi… and more", "the token [redacted]… and more"),
            ("Bearer expired, Sluice/1.0 (test)", "Bearer expired, Sluice/1.0 (test)"),
        ] {
            assert_eq!(secrets.peer_text(text), expected);
        }
        let credentials = "Basic bWU6aHVudGVyMjI=";
        let proxy = Secrets::default().and(credentials);
        assert_eq!(proxy.peer_text("407 for hunter22"), "407 for [redacted]");
    }

    /// Scenario: a text of a megabyte with a secret wherever a limit may cut it. Guarantee: no more
    /// of it is kept than may be anyone's, and the text is bounded.
    #[test]
    fn a_secret_is_not_kept_where_the_text_is_cut() {
        let headers = headers(&[("authorization", "Bearer hunter2-hunter2-hunter2")]);
        for limit in [TEXT_LIMIT_BYTES, LOOK_BYTES] {
            for before in limit - 24..=limit {
                let text = ".".repeat(before) + "hunter2-hunter2-hunter2" + &"ä".repeat(500_000);
                let kept = Secrets::of(&headers).peer_text(&text);
                assert!(kept.len() <= TEXT_LIMIT_BYTES && !kept.contains("hunter2-"), "{before}");
            }
        }
    }
}
