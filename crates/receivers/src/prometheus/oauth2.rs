//! Tokens of OAuth 2.0 (RFC 6749, section 4.4), which all targets of a job share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use sluice_discovery::OAuth2;
use sluice_net::auth::client::basic_credentials;
use sluice_net::client::{Answer, HttpClient, HttpOptions, Origin, Secrets};
use tokio::sync::Mutex;

const TIMEOUT: Duration = Duration::from_secs(10);
/// After a failure no token is asked for, however many targets want one.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// A token is replaced this long before its end.
const EARLY: Duration = Duration::from_secs(10);

/// Characters of a form that are written as codes.
const FORM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

pub(super) struct Tokens {
    config: OAuth2,
    user_agent: &'static str,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    server: Option<(Origin, HttpClient)>,
    /// A token, and when it is replaced. `None`: it does not end.
    token: Option<(HeaderValue, Option<Instant>)>,
    failure: Option<(Instant, String)>,
    /// The server took the credentials in the form, not in a header.
    in_form: bool,
}

impl Tokens {
    pub(super) fn new(config: OAuth2, user_agent: &'static str) -> Tokens {
        Tokens { config, user_agent, state: Mutex::default() }
    }

    /// The value of `Authorization`.
    ///
    /// # Errors
    /// The reason, without secrets.
    pub(super) async fn header(&self) -> Result<HeaderValue, String> {
        // Those who wait meanwhile use the same token.
        let mut state = self.state.lock().await;
        if let Some((header, ends)) = &state.token
            && ends.is_none_or(|ends| Instant::now() < ends)
        {
            return Ok(header.clone());
        }
        if let Some((at, reason)) = &state.failure
            && at.elapsed() < FAILURE_PAUSE
        {
            return Err(reason.clone());
        }
        let fetched = tokio::time::timeout(TIMEOUT, self.fetch(&mut state)).await;
        let fetched = fetched.unwrap_or_else(|_| Err(format!("no token within {TIMEOUT:?}")));
        match fetched {
            Ok(token) => Ok(state.token.insert(token).0.clone()),
            Err(reason) => {
                state.failure = Some((Instant::now(), reason.clone()));
                Err(reason)
            }
        }
    }

    /// A target did not take the token.
    pub(super) async fn refused(&self, header: &HeaderValue) {
        let mut state = self.state.lock().await;
        state.token.take_if(|(known, _)| known == header);
    }

    async fn fetch(&self, state: &mut State) -> Result<(HeaderValue, Option<Instant>), String> {
        let secret = self.config.client_secret.text().await?;
        let (origin, client) = match &state.server {
            Some(server) => server.clone(),
            None => state.server.insert(self.connect().await?).clone(),
        };
        let mut answer = self.ask(&origin, &client, &secret, state.in_form).await?;
        // RFC 6749 wants the header to be understood; many servers only read the form.
        if matches!(answer.status, StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED) {
            let other = self.ask(&origin, &client, &secret, !state.in_form).await?;
            if other.status.is_success() {
                (answer, state.in_form) = (other, !state.in_form);
            }
        }
        if !answer.status.is_success() {
            return Err(format!("the server of tokens answers with {}", answer.status));
        }
        token(&answer.body)
    }

    async fn connect(&self) -> Result<(Origin, HttpClient), String> {
        let unusable = |error| format!("`token_url` cannot be used: {error}");
        let origin = Origin::of(&self.config.token_url).map_err(unusable)?;
        let (config, of) = (self.config.clone(), origin.clone());
        let connect = tokio::task::spawn_blocking(move || config.connect(&of)).await;
        let connect = connect.map_err(|error| error.to_string())??;
        let options = HttpOptions { connect, idle_connections: 1, ..HttpOptions::default() };
        Ok((origin.clone(), HttpClient::new(origin.target, options)))
    }

    async fn ask(
        &self,
        origin: &Origin,
        client: &HttpClient,
        secret: &str,
        in_form: bool,
    ) -> Result<Answer, String> {
        let OAuth2 { client_id, scopes, endpoint_params, .. } = &self.config;
        let scopes = scopes.join(" ");
        let mut fields = vec![("grant_type", "client_credentials")];
        fields.extend((!scopes.is_empty()).then_some(("scope", scopes.as_str())));
        let params = endpoint_params.iter();
        fields.extend(params.map(|(name, value)| (name.as_str(), value.expose())));
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(self.user_agent));
        if in_form {
            fields.extend([("client_id", client_id.as_str()), ("client_secret", secret)]);
        } else {
            let header = basic_credentials(format!("{}:{}", encoded(client_id), encoded(secret)));
            headers.insert(AUTHORIZATION, sensitive(&header)?);
        }
        let pair = |(name, value): &(&str, &str)| format!("{}={}", encoded(name), encoded(value));
        let form = fields.iter().map(pair).collect::<Vec<_>>().join("&");
        let body: Arc<[Bytes]> = Arc::from([Bytes::from(form)]);
        client.post(&origin.uri, &headers, &body).await.map_err(|error| {
            let secrets = Secrets::of(&headers).and(secret);
            secrets.peer_text(&format!("the server of tokens: {error}"))
        })
    }
}

/// Reads a grant (RFC 6749, section 5.1).
fn token(body: &[u8]) -> Result<(HeaderValue, Option<Instant>), String> {
    let unusable = |what| format!("the answer of the server of tokens {what}");
    let answer: Value = serde_json::from_slice(body).map_err(|_| unusable("is not JSON"))?;
    let text = |key: &str| answer[key].as_str().filter(|text| !text.is_empty());
    let token = text("access_token").ok_or_else(|| unusable("has no `access_token`"))?;
    // RFC 6750: the type is compared without case; many servers write "bearer".
    let scheme = text("token_type").filter(|scheme| !scheme.eq_ignore_ascii_case("bearer"));
    let lives = &answer["expires_in"];
    let lives = lives.as_f64().or_else(|| lives.as_str()?.parse().ok());
    let lives = lives.filter(|lives| (1.0..1e9).contains(lives)).map(Duration::from_secs_f64);
    let ends = lives.map(|lives| lives.checked_sub(EARLY).unwrap_or(lives / 2));
    let header = sensitive(&format!("{} {token}", scheme.unwrap_or("Bearer")))?;
    Ok((header, ends.map(|ends| Instant::now() + ends)))
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, FORM).to_string()
}

fn sensitive(text: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| "a credential has characters that no header may have".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}
