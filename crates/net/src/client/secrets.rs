//! The secrets that a request shows its peer, and that must not come back in the texts of answers:
//! a backend that refuses credentials may name them.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use percent_encoding::percent_decode_str;

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

/// Words before credentials, which are no secrets themselves.
const SCHEMES: &str = "basic bearer digest token apikey api-key key negotiate ntlm hmac dpop oauth \
                       splunk ssws geniekey sharedkey sharedaccesssignature aws4-hmac-sha256";

/// The letters behind a backslash in a JSON string.
const ESCAPES: [(char, char); 8] = [
    ('"', '"'),
    ('\\', '\\'),
    ('/', '/'),
    ('b', '\u{8}'),
    ('f', '\u{c}'),
    ('n', '\n'),
    ('r', '\r'),
    ('t', '\t'),
];

/// The secrets of one request. They are only looked at when there is a text.
#[derive(Clone, Default)]
pub struct Secrets<'a> {
    headers: Option<&'a HeaderMap>,
    texts: Vec<Cow<'a, str>>,
    queries: Vec<&'a str>,
}

impl<'a> Secrets<'a> {
    /// All values that are marked as sensitive.
    pub fn of(headers: &'a HeaderMap) -> Secrets<'a> {
        Secrets { headers: Some(headers), ..Secrets::default() }
    }

    #[must_use]
    pub fn and(mut self, text: impl Into<Cow<'a, str>>) -> Secrets<'a> {
        self.texts.push(text.into());
        self
    }

    /// With the query of the request's URL, whose parameters may be keys.
    #[must_use]
    pub fn and_query(mut self, query: Option<&'a str>) -> Secrets<'a> {
        self.queries.extend(query);
        self
    }

    /// With the credentials that the proxy gets.
    #[must_use]
    pub fn and_proxy(mut self, proxy: Option<&'a Proxy>) -> Secrets<'a> {
        let authorization = proxy.and_then(|proxy| proxy.authorization.as_ref());
        self.texts.extend(authorization.map(|secret| secret.expose().into()));
        self
    }

    /// A peer's text as it may be kept and shown: without secrets, short, on one line, printable.
    pub fn peer_text(&self, text: &str) -> String {
        let text = &text[..char_boundary(text, LOOK_BYTES)];
        if text.is_empty() {
            return String::new();
        }
        let secrets = self.all();
        let mut kept = String::with_capacity(text.len());
        let mut hidden_to = 0;
        for (at, character) in text.char_indices() {
            let shown = secrets.iter().map(|secret| shown_bytes(&text[at..], secret)).max();
            let shown = shown.unwrap_or(0);
            if shown > 0 && at >= hidden_to {
                kept.push_str(REDACTED);
            }
            hidden_to = hidden_to.max(at + shown);
            if at >= hidden_to {
                kept.push(character);
            }
        }
        peer_text(&kept)
    }

    fn all(&self) -> Vec<String> {
        let mut all = Vec::new();
        let headers = self.headers.into_iter().flatten();
        for (name, value) in headers.filter(|(_, value)| value.is_sensitive()) {
            if let Ok(text) = std::str::from_utf8(value.as_bytes()) {
                add(text, shortest(name.as_str()), &mut all);
            }
        }
        for text in &self.texts {
            add(text, SHORTEST_BYTES, &mut all);
        }
        for query in &self.queries {
            add_query(query, &mut all);
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}

fn shortest(name: &str) -> usize {
    if is_credential(name) { SHORTEST_BYTES } else { SHORTEST_OTHER_BYTES }
}

/// Adds a text and its parts, as those of a cookie. Of `Bearer token` the token, of
/// `Basic base64` also the password.
fn add(text: &str, shortest: usize, all: &mut Vec<String>) {
    let text = text.trim();
    let known = text.split_once(' ').filter(|(scheme, _)| is_scheme(scheme));
    let (scheme, credentials) = known.map_or(("", text), |(first, rest)| (first, rest.trim()));
    let mut add = |text: &str| {
        if text.len() >= shortest {
            all.push(text.to_owned());
        }
    };
    add(credentials);
    for part in credentials.split([' ', '\t', ';', ',']).filter(|part| !is_scheme(part)) {
        let value = part.split_once('=').map_or(part, |(_, value)| value);
        // A value of base64 ends with `=`.
        let value = if value.trim_matches('=').is_empty() { part } else { value };
        add(value.trim_matches('"'));
        // A JWT, of which a server may name the payload or the signature.
        value.split('.').filter(|_| value.starts_with("eyJ")).for_each(&mut add);
    }
    let decoded = scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(credentials));
    let decoded = decoded.and_then(|decoded| String::from_utf8(decoded.ok()?).ok());
    if let Some((_, password)) = decoded.as_deref().and_then(|it| it.split_once(':')) {
        add(password);
    }
}

fn is_scheme(word: &str) -> bool {
    SCHEMES.split(' ').any(|scheme| scheme.eq_ignore_ascii_case(word))
}

/// Adds the query and the values of its parameters, as they are sent and decoded.
fn add_query(query: &str, all: &mut Vec<String>) {
    let mut add = |text: &str, shortest: usize| {
        if text.len() >= shortest {
            all.push(text.to_owned());
        }
    };
    add(query, SHORTEST_BYTES);
    for parameter in query.split(['&', ';']) {
        let (name, value) = parameter.split_once('=').unwrap_or(("", parameter));
        let shortest = shortest(name);
        add(value, shortest);
        for value in [value.to_owned(), value.replace('+', " ")] {
            add(&percent_decode_str(&value).decode_utf8_lossy(), shortest);
        }
    }
}

/// The bytes at the start of the text that show the secret, or enough of its beginning: as it is,
/// or as JSON has it.
fn shown_bytes(text: &str, secret: &str) -> usize {
    let shown = |next: fn(&str) -> Option<(char, usize)>| {
        let (mut in_text, mut in_secret) = (0, 0);
        for expected in secret.chars() {
            match next(&text[in_text..]) {
                Some((character, bytes)) if character == expected => in_text += bytes,
                _ => break,
            }
            in_secret += expected.len_utf8();
        }
        match in_secret {
            _ if in_secret == secret.len() => in_text,
            BEGINNING_BYTES.. => text[..in_text].trim_end().len(),
            _ => 0,
        }
    };
    shown(first_char).max(shown(first_of_json))
}

fn first_char(text: &str) -> Option<(char, usize)> {
    text.chars().next().map(|character| (character, character.len_utf8()))
}

/// The first character of the text of a JSON string, and its bytes there.
fn first_of_json(text: &str) -> Option<(char, usize)> {
    let Some(escaped) = text.strip_prefix('\\') else { return first_char(text) };
    let unit = |text: &str| {
        let digits = text.strip_prefix('u')?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let (high, low) =
        (unit(escaped), escaped.get(5..).and_then(|rest| unit(rest.strip_prefix('\\')?)));
    let Some(high) = high else {
        let character = first_char(escaped)?.0;
        let meant = ESCAPES.iter().find(|(letter, _)| *letter == character);
        return meant.map(|(_, meant)| (*meant, 2));
    };
    let units = [high, low.unwrap_or(0)];
    let first = char::decode_utf16(units).next()?.ok()?;
    Some((first, 6 * first.len_utf16()))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

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

    /// Scenario: values of several parts: cookies, two words without a scheme, a JWT's parts, an
    /// answer in JSON, which escapes. Guarantee: no part that may be a secret is kept.
    #[test]
    fn all_parts_of_a_secret_are_masked() {
        let shown =
            |name, value, text: &str| Secrets::of(&headers(&[(name, value)])).peer_text(text);
        let cookie = "session=5e551042; theme=dark";
        for (name, value, text, expected) in [
            ("cookie", cookie, "no session 5e551042, dark", "no session [redacted], [redacted]"),
            ("cookie", cookie, "cookie session=5e551042; theme=dark", "cookie [redacted]"),
            ("x-api-key", "k123456 tenant", "no k123456 of tenant", "no [redacted] of [redacted]"),
            ("x-api-key", "ab cd", "no key ab cd", "no key [redacted]"),
            ("authorization", "hunter22", "no hunter22", "no [redacted]"),
            ("authorization", "hunter22 b", "no hunter22", "no [redacted]"),
            ("authorization", "Bearer eyJhbGciOiJ.c3ViamVjdA.c2lnbg", "c2lnbg", "[redacted]"),
            (
                "authorization",
                "Digest username=\"observer\", response=\"6629fae4\"",
                "Digest 6629fae4 of observer",
                "Digest [redacted] of [redacted]",
            ),
            ("x-api-key", "pa\"ss\\/w", r#"{"error":"pa\"ss\\/w"}"#, r#"{"error":"[redacted]"}"#),
            ("x-api-key", "pa\"ss\\/w", r"is pa\u0022ss\\\/w?", "is [redacted]?"),
            ("x-api-key", "pa\"ss\\/w", r#"is pa"ss\/w?"#, "is [redacted]?"),
            ("x-api-key", "abc\"defghijk", r#"is abc\"defgh"#, "is [redacted]"),
            ("x-api-key", "k123", r"\uzzzz \u00 k123 \", r"\uzzzz \u00 [redacted] \"),
        ] {
            assert_eq!(shown(name, value, text), expected, "{value}");
        }
        let wide =
            Secrets::default().and("🔑ключ").peer_text(r"\ud83d\uDD11\u043a\u043b\u044e\u0447");
        assert_eq!(wide, "[redacted]");
    }

    /// Guarantee: the parameters of a query are secrets like headers: whole, each, as sent and
    /// decoded.
    #[test]
    fn parameters_of_a_query_are_secrets() {
        let secrets =
            Secrets::default().and_query(Some("x=1&api_key=a%2Bb%20c&team=prod&v=secret+12"));
        for (text, expected) in [
            ("invalid API key a+b c", "invalid API key [redacted]"),
            ("invalid API key a%2Bb%20c", "invalid API key [redacted]"),
            ("v is secret 12, secret+12", "v is [redacted], [redacted]"),
            ("team prod, x=1", "team prod, x=1"),
            ("POST /a?x=1&api_key=a%2Bb%20c&team=prod&v=secret+12", "POST /a?[redacted]"),
        ] {
            assert_eq!(secrets.peer_text(text), expected);
        }
        assert_eq!(Secrets::default().and_query(None).peer_text("a"), "a");
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
