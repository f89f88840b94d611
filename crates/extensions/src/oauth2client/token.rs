//! The answer of a token endpoint, and the form of the request.

use std::time::Duration;

use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
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
    /// Reads the body of a successful answer.
    pub fn read(body: &[u8]) -> Result<Granted, CredentialsError> {
        let unusable =
            |what| CredentialsError::unavailable(format!("the token endpoint's answer {what}"));
        if body.len() > ANSWER_BYTES {
            return Err(unusable("is longer than 64 KiB"));
        }
        let answer: Answer = serde_json::from_slice(body).map_err(|_| unusable("is not JSON"))?;
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

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    access_token: Scalar,
    #[serde(default)]
    token_type: Scalar,
    #[serde(default)]
    expires_in: Scalar,
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

#[cfg(test)]
mod tests {
    use super::*;

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
            Granted::read(&[&answer[..], &vec![b' '; len - answer.len()]].concat())
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
