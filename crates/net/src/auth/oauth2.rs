//! OAuth 2.0 client credentials (RFC 6749, section 4.4): tokens are fetched when needed and kept until they end.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use tokio::sync::Mutex;

use super::client::{AuthError, SecretSource, basic, sensitive};
use crate::client::{Answer, HttpClient, peer_text};

/// A failed fetch is not repeated sooner, however many requests ask for a token.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

pub struct OAuth2Options {
    pub token_url: Uri,
    pub client_id: SecretSource,
    pub client_secret: SecretSource,
    pub scopes: Vec<String>,
    pub endpoint_params: Vec<(String, String)>,
    /// A token is replaced so long before its end.
    pub expiry_buffer: Duration,
    /// For one request to the token endpoint.
    pub timeout: Duration,
}

/// Fetches tokens and keeps the last one. Requests that need a token at the same time share one fetch.
pub struct OAuth2 {
    options: OAuth2Options,
    client: HttpClient,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    token: Option<Token>,
    failure: Option<(Instant, AuthError)>,
    /// The endpoint took the credentials in the form, not in a header.
    credentials_in_form: bool,
}

struct Token {
    header: HeaderValue,
    /// Fetch another from then on. `None`: the token does not end.
    renew_at: Option<Instant>,
    ends_at: Option<Instant>,
}

impl fmt::Debug for OAuth2 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "OAuth2({})", self.options.token_url)
    }
}

impl OAuth2 {
    /// `client` must lead to the origin of `token_url`.
    pub fn new(options: OAuth2Options, client: HttpClient) -> OAuth2 {
        OAuth2 { options, client, state: Mutex::default() }
    }

    pub(crate) async fn header(&self) -> Result<HeaderValue, AuthError> {
        // Held while a token is fetched: whoever comes meanwhile waits for the same outcome.
        let mut state = self.state.lock().await;
        let now = Instant::now();
        if let Some(token) = &state.token
            && token.renew_at.is_none_or(|at| now < at)
        {
            return Ok(token.header.clone());
        }
        let recent =
            state.failure.as_ref().filter(|(at, _)| at.elapsed() < FAILURE_PAUSE).map(|(_, error)| error.clone());
        let error = match recent {
            Some(error) => error,
            None => match self.fetch(&mut state).await {
                Ok(token) => {
                    let header = token.header.clone();
                    state.failure = None;
                    state.token = Some(token);
                    return Ok(header);
                }
                Err(error) => {
                    tracing::warn!(token_url = %self.options.token_url, %error, "cannot get an access token");
                    state.failure = Some((Instant::now(), error.clone()));
                    error
                }
            },
        };
        // The token that should be replaced is good for a while yet.
        match &state.token {
            Some(token) if token.ends_at.is_none_or(|at| Instant::now() < at) => Ok(token.header.clone()),
            _ => Err(error),
        }
    }

    pub(crate) async fn forget(&self) {
        self.state.lock().await.token = None;
    }

    async fn fetch(&self, state: &mut State) -> Result<Token, AuthError> {
        let id = self.options.client_id.read().await?;
        let secret = self.options.client_secret.read().await?;
        let answer = self.ask(&id, &secret, state.credentials_in_form).await?;
        // RFC 6749 wants the header to be understood; many endpoints only read the form. Whichever works is kept.
        if matches!(answer.status, StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED) {
            let other = self.ask(&id, &secret, !state.credentials_in_form).await?;
            if other.status.is_success() {
                state.credentials_in_form = !state.credentials_in_form;
                return self.token(&other);
            }
        }
        self.token(&answer)
    }

    async fn ask(&self, id: &str, secret: &str, in_form: bool) -> Result<Answer, AuthError> {
        let mut form = Form::default();
        form.add("grant_type", "client_credentials");
        if !self.options.scopes.is_empty() {
            form.add("scope", &self.options.scopes.join(" "));
        }
        self.options.endpoint_params.iter().for_each(|(name, value)| form.add(name, value));
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if in_form {
            form.add("client_id", id);
            form.add("client_secret", secret);
        } else {
            headers.insert(AUTHORIZATION, sensitive(&basic(&encode(id), &encode(secret)))?);
        }
        let body: Arc<[Bytes]> = Arc::from([Bytes::from(form.0)]);
        let timeout = self.options.timeout;
        match tokio::time::timeout(timeout, self.client.post(&self.options.token_url, &headers, &body)).await {
            Err(_) => Err(AuthError::unavailable(format!("no answer of the token endpoint within {timeout:?}"))),
            Ok(Err(error)) if error.is_configuration() => {
                Err(AuthError::misconfigured(format!("token endpoint: {error}")))
            }
            Ok(Err(error)) => Err(AuthError::unavailable(format!("token endpoint: {error}"))),
            Ok(Ok(answer)) => Ok(answer),
        }
    }

    fn token(&self, answer: &Answer) -> Result<Token, AuthError> {
        let status = answer.status;
        if !status.is_success() {
            let text = peer_text(&String::from_utf8_lossy(&answer.body[..answer.body.len().min(4096)]));
            let reason = format!("the token endpoint answered {}: {text}", status.as_u16());
            let temporary = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
            return Err(if temporary { AuthError::unavailable(reason) } else { AuthError::misconfigured(reason) });
        }
        let granted = Granted::read(&answer.body)?;
        let now = Instant::now();
        Ok(Token {
            header: granted.header,
            renew_at: granted.lives.map(|lives| now + renewal(lives, self.options.expiry_buffer)),
            ends_at: granted.lives.map(|lives| now + lives),
        })
    }
}

/// What a token endpoint grants (RFC 6749, section 5.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The value of `authorization`; marked as sensitive.
    pub header: HeaderValue,
    /// `None`: the endpoint does not say when it ends.
    pub lives: Option<Duration>,
}

impl Granted {
    /// Reads the body of a successful answer.
    pub fn read(body: &[u8]) -> Result<Granted, AuthError> {
        let body: serde_json::Value = serde_json::from_slice(body)
            .map_err(|_| AuthError::unavailable("the token endpoint's answer is not JSON"))?;
        let token = body.get("access_token").and_then(serde_json::Value::as_str).filter(|token| !token.is_empty());
        let token = token.ok_or_else(|| AuthError::unavailable("the token endpoint's answer has no access_token"))?;
        let scheme = match body.get("token_type").and_then(serde_json::Value::as_str) {
            // RFC 6750: the type is compared without case; "bearer" is what many write.
            Some(scheme) if !scheme.is_empty() && !scheme.eq_ignore_ascii_case("bearer") => scheme,
            _ => "Bearer",
        };
        Ok(Granted { header: sensitive(&format!("{scheme} {token}"))?, lives: seconds(body.get("expires_in")) })
    }
}

/// When to replace a token that lives so long. A buffer beyond its life must not mean a fetch with every request.
fn renewal(lives: Duration, buffer: Duration) -> Duration {
    lives.checked_sub(buffer).filter(|left| !left.is_zero()).unwrap_or(lives / 2)
}

/// A number or a string of seconds; zero and nonsense mean "does not say".
fn seconds(value: Option<&serde_json::Value>) -> Option<Duration> {
    let number = match value? {
        serde_json::Value::String(text) => text.parse().ok()?,
        value => value.as_f64()?,
    };
    (number > 0.0 && number < 1e9).then(|| Duration::from_secs_f64(number))
}

#[derive(Default)]
struct Form(String);

impl Form {
    fn add(&mut self, name: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        self.0.push_str(&encode(name));
        self.0.push('=');
        self.0.push_str(&encode(value));
    }
}

/// application/x-www-form-urlencoded.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' => encoded.push(byte as char),
            b' ' => encoded.push('+'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: secrets with every special character. Guarantee: they survive the form.
    #[test]
    fn forms_are_encoded() {
        let mut form = Form::default();
        form.add("scope", "a b");
        form.add("client_secret", "p&=+%ä");
        assert_eq!(form.0, "scope=a+b&client_secret=p%26%3D%2B%25%C3%A4");
    }

    /// Scenario: a buffer longer than the token's life. Guarantee: the token is used for half of it, not fetched each time.
    #[test]
    fn a_long_buffer_does_not_disable_the_cache() {
        assert_eq!(renewal(Duration::from_secs(3600), Duration::from_secs(300)), Duration::from_secs(3300));
        assert_eq!(renewal(Duration::from_secs(60), Duration::from_secs(300)), Duration::from_secs(30));
    }
}
