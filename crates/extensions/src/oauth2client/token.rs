//! The answer of a token endpoint, and the form of the request.

use std::time::Duration;

use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};
use serde::Deserialize;
use serde::de::IgnoredAny;
use sluice_net::auth::client::CredentialsError;

use crate::secret::sensitive;

/// A token endpoint's grant (RFC 6749, section 5.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The value of `authorization`; marked as sensitive.
    pub header: HeaderValue,
    /// `None`: the endpoint does not say when it ends.
    pub lives: Option<Duration>,
}

impl Granted {
    /// Reads the body of a successful answer: JSON, or a form where its type says so.
    pub fn read(
        content_type: Option<&HeaderValue>,
        body: &[u8],
    ) -> Result<Granted, CredentialsError> {
        let unusable =
            |what| CredentialsError::unavailable(format!("the token endpoint's answer {what}"));
        if body.len() > ANSWER_BYTES {
            return Err(unusable("is longer than 64 KiB"));
        }
        let answer = match (content_type.and_then(media_type).as_deref(), body) {
            (Some("application/x-www-form-urlencoded"), form) => Answer::of_form(form),
            (media_type, body) => match serde_json::from_slice(body) {
                Ok(answer) => answer,
                Err(_) if media_type == Some("text/plain") => Answer::of_form(body),
                Err(_) => return Err(unusable("is not JSON")),
            },
        };
        let token = answer.access_token.text().filter(|token| !token.is_empty());
        let token = token.ok_or_else(|| unusable("has no access_token"))?;
        let scheme = match answer.token_type.text() {
            // RFC 6750: the type is compared without case; many endpoints write "bearer".
            Some(scheme) if !scheme.is_empty() && !scheme.eq_ignore_ascii_case("bearer") => scheme,
            _ => "Bearer",
        };
        Ok(Granted {
            header: sensitive(&format!("{scheme} {token}"))?,
            lives: seconds(&answer.expires_in),
        })
    }
}

/// The largest tokens in use have some ten kilobytes.
const ANSWER_BYTES: usize = 64 * 1024;

#[derive(Default, Deserialize)]
struct Answer {
    #[serde(default)]
    access_token: Scalar,
    #[serde(default)]
    token_type: Scalar,
    #[serde(default)]
    expires_in: Scalar,
}

impl Answer {
    /// The first field of a name counts.
    fn of_form(form: &[u8]) -> Answer {
        let mut answer = Answer::default();
        for pair in form.trim_ascii().split(|byte| *byte == b'&') {
            let mut parts = pair.splitn(2, |byte| *byte == b'=');
            let field = match parts.next() {
                Some(b"access_token") => &mut answer.access_token,
                Some(b"token_type") => &mut answer.token_type,
                Some(b"expires_in") => &mut answer.expires_in,
                _ => continue,
            };
            if matches!(field, Scalar::None) {
                *field = Scalar::Text(decode(parts.next().unwrap_or_default()));
            }
        }
        answer
    }
}

#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Scalar {
    Text(String),
    Number(f64),
    Other(IgnoredAny),
    #[default]
    None,
}

impl Scalar {
    fn text(&self) -> Option<&str> {
        if let Scalar::Text(text) = self { Some(text) } else { None }
    }
}

/// When to replace a token. A buffer beyond its life must not mean a fetch with every request.
pub(super) fn renewal(lives: Duration, buffer: Duration) -> Duration {
    lives.checked_sub(buffer).filter(|left| !left.is_zero()).unwrap_or(lives / 2)
}

/// A number or a string of seconds; zero and nonsense mean "does not say".
fn seconds(value: &Scalar) -> Option<Duration> {
    let number = match value {
        Scalar::Text(text) => text.parse().ok()?,
        Scalar::Number(number) => *number,
        Scalar::Other(_) | Scalar::None => return None,
    };
    (number > 0.0 && number < 1e9).then(|| Duration::from_secs_f64(number))
}

/// A body of application/x-www-form-urlencoded.
pub(super) fn form(fields: &[(&str, &str)]) -> String {
    let pair = |(name, value): &(&str, &str)| format!("{}={}", encode(name), encode(value));
    fields.iter().map(pair).collect::<Vec<_>>().join("&")
}

/// Characters that application/x-www-form-urlencoded changes, but for the space.
const CHANGED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'*').remove(b' ');

pub(super) fn encode(text: &str) -> String {
    utf8_percent_encode(text, CHANGED).to_string().replace(' ', "+")
}

fn decode(value: &[u8]) -> String {
    let spaced: Vec<u8> = value.iter().map(|it| if *it == b'+' { b' ' } else { *it }).collect();
    percent_decode(&spaced).decode_utf8_lossy().into_owned()
}

/// In lower case, without parameters.
fn media_type(content_type: &HeaderValue) -> Option<String> {
    let media_type = content_type.to_str().ok()?.split(';').next()?;
    Some(media_type.trim().to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: endpoints answer with JSON, or with a form. Guarantee: both are read, by the type
    /// of the answer; a text may be either.
    #[test]
    fn forms_are_read_where_the_type_says_so() {
        const FORM: &str = "scope=a&access_token=t%2F1+%3D&token_type=bearer&expires_in=60\n";
        const JSON: &str = r#"{"access_token":"t/1 =","token_type":"bearer","expires_in":60}"#;
        for (content_type, body, is_read) in [
            ("application/x-www-form-urlencoded", FORM, true),
            ("Application/X-WWW-Form-Urlencoded; charset=utf-8", FORM, true),
            ("text/plain; charset=utf-8", FORM, true),
            ("text/plain", JSON, true),
            ("application/json", JSON, true),
            ("", JSON, true),
            ("application/json", FORM, false),
            ("text/html", FORM, false),
            ("application/x-www-form-urlencoded", JSON, false),
            ("text/plain", "token_type=bearer", false),
        ] {
            let content_type = HeaderValue::from_static(content_type);
            let granted = Granted::read(Some(&content_type), body.as_bytes());
            let granted = granted.ok().map(|it| (it.header.as_bytes().to_vec(), it.lives));
            let expected = is_read.then(|| (b"Bearer t/1 =".to_vec(), Duration::from_secs(60)));
            let expected = expected.map(|(header, lives)| (header, Some(lives)));
            assert_eq!(granted, expected, "{content_type:?} {body}");
        }
    }

    /// Scenario: secrets with every special character. Guarantee: they survive the form.
    #[test]
    fn forms_are_encoded() {
        let form = form(&[("scope", "a b"), ("client_secret", "p&=+%ä")]);
        assert_eq!(form, "scope=a+b&client_secret=p%26%3D%2B%25%C3%A4");
    }

    /// Scenario: an answer that is far longer than a token. Guarantee: it is refused unread.
    #[test]
    fn long_answers_are_refused() {
        let grant = |len: usize| {
            let answer = br#"{"access_token":"t","expires_in":"60","token_type":7,"x":[{"a":0}]}"#;
            Granted::read(None, &[&answer[..], &vec![b' '; len - answer.len()]].concat())
        };
        let granted = grant(ANSWER_BYTES).expect("is read");
        assert_eq!(
            (granted.header.as_bytes(), granted.lives),
            (&b"Bearer t"[..], Some(Duration::from_secs(60)))
        );
        let refused = grant(ANSWER_BYTES + 1).expect_err("is refused");
        assert!(refused.reason.contains("64 KiB"), "{}", refused.reason);
    }

    /// Scenario: a buffer longer than the token's life. Guarantee: the token is used for half of
    /// it, not fetched each time.
    #[test]
    fn a_long_buffer_does_not_disable_the_cache() {
        assert_eq!(
            renewal(Duration::from_secs(3600), Duration::from_secs(300)),
            Duration::from_secs(3300)
        );
        assert_eq!(
            renewal(Duration::from_secs(60), Duration::from_secs(300)),
            Duration::from_secs(30)
        );
    }
}
