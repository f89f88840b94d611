use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _, Shared};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use parking_lot::Mutex;
use sluice_config::shown_url;
use sluice_net::auth::client::{ClientAuth, CredentialsError, MetadataHeader, basic_credentials};
use sluice_net::client::{Answer, ConnectOptions, HttpClient, HttpOptions, Origin, Secrets};
use sluice_net::headers::is_credential;

use super::Config;
use super::token::{Granted, encode, form, renewal};
use crate::extension::BuildError;
use crate::secret::{MadeFromSecrets, sensitive};

/// A failed fetch is not repeated sooner, however many requests ask for a token.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

type Fetched = Result<HeaderValue, CredentialsError>;

/// Fetches tokens and keeps the last one. Requests that need one at the same time share a fetch.
pub struct OAuth2Client(Arc<Endpoint>);

struct Endpoint {
    config: Config,
    token_url: Uri,
    /// Id and secret.
    client: MadeFromSecrets<[String; 2]>,
    http: HttpClient,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    token: Option<Token>,
    failure: Option<(Instant, CredentialsError)>,
    /// The last one; a task of its own drives it, since requests that ask are cut off sooner.
    fetch: Option<Shared<BoxFuture<'static, Fetched>>>,
    /// Whether the endpoint took the credentials in the form, not in a header. `None`: neither yet.
    credentials_in_form: Option<bool>,
}

struct Token {
    header: HeaderValue,
    /// Fetch another from then on. `None`: the token does not end.
    renew_at: Option<Instant>,
    ends_at: Option<Instant>,
}

impl ClientAuth for OAuth2Client {
    fn authenticate<'a>(
        &'a self,
        headers: &'a mut HeaderMap,
        _: &'a [MetadataHeader],
    ) -> BoxFuture<'a, Result<(), CredentialsError>> {
        Box::pin(async move {
            headers.insert(AUTHORIZATION, self.0.clone().header().await?);
            Ok(())
        })
    }

    fn refused(&self) -> BoxFuture<'_, ()> {
        self.0.state.lock().token = None;
        Box::pin(std::future::ready(()))
    }
}

impl OAuth2Client {
    pub fn new(config: &Config) -> Result<OAuth2Client, BuildError> {
        let origin = Origin::of(&config.token_url)?;
        let connect = ConnectOptions::to(&origin, &config.tls, config.timeout)?;
        let options = HttpOptions { connect, idle_connections: 1, ..HttpOptions::default() };
        let sources = [config.client_id.clone(), config.client_secret.clone()];
        let copied = |secrets: [&str; 2]| Ok(secrets.map(str::to_owned));
        Ok(OAuth2Client(Arc::new(Endpoint {
            token_url: origin.uri,
            client: MadeFromSecrets::new("an OAuth 2.0 client", sources, copied),
            http: HttpClient::new(origin.target, options),
            config: config.clone(),
            state: Mutex::default(),
        })))
    }
}

impl Endpoint {
    async fn header(self: Arc<Self>) -> Fetched {
        let fetch = {
            let mut state = self.state.lock();
            let now = Instant::now();
            let is_before = |at: Option<Instant>| at.is_none_or(|at| now < at);
            let good = state.token.as_ref().filter(|token| is_before(token.ends_at));
            let header = good.map(|token| token.header.clone());
            if let Some(header) = &header
                && good.is_some_and(|token| is_before(token.renew_at))
            {
                return Ok(header.clone());
            }
            let under_way = state.fetch.as_ref().filter(|fetch| fetch.peek().is_none()).cloned();
            let fetch = match (under_way, &state.failure) {
                (Some(fetch), _) => fetch,
                (None, Some((at, error))) if at.elapsed() < FAILURE_PAUSE => {
                    return header.ok_or(error.clone());
                }
                (None, _) => {
                    let fetch = self.clone().renew().boxed().shared();
                    tokio::spawn(fetch.clone());
                    state.fetch.insert(fetch).clone()
                }
            };
            // The token that should be replaced is good for a while yet.
            if let Some(header) = header {
                return Ok(header);
            }
            fetch
        };
        fetch.await
    }

    async fn renew(self: Arc<Self>) -> Fetched {
        let fetched = self.fetch().await;
        let mut state = self.state.lock();
        match fetched {
            Ok(token) => {
                state.failure = None;
                Ok(state.token.insert(token).header.clone())
            }
            Err(error) => {
                let token_url = shown_url(&self.config.token_url);
                tracing::warn!(%token_url, %error, "cannot get an access token");
                state.failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn fetch(&self) -> Result<Token, CredentialsError> {
        let [id, secret] = self.client.get()?;
        let known = self.state.lock().credentials_in_form;
        let in_form = known.unwrap_or(false);
        let answer = self.ask(&id, &secret, in_form).await?;
        let (mut token, mut taken) = (self.token(&answer, &id, &secret), in_form);
        // RFC 6749 wants the header to be understood; many endpoints only read the form, and some
        // of these fail in another way than they should.
        let is_refused =
            matches!(answer.status, StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED);
        if token.is_err() && (is_refused || known.is_none()) {
            let other = self.ask(&id, &secret, !in_form).await?;
            if other.status.is_success() {
                (token, taken) = (self.token(&other, &id, &secret), !in_form);
            }
        }
        if token.is_ok() {
            self.state.lock().credentials_in_form = Some(taken);
        }
        token
    }

    async fn ask(&self, id: &str, secret: &str, in_form: bool) -> Result<Answer, CredentialsError> {
        let Config { scopes, endpoint_params, timeout, .. } = &self.config;
        let scope = scopes.join(" ");
        let mut fields = vec![("grant_type", "client_credentials")];
        fields.extend((!scopes.is_empty()).then_some(("scope", scope.as_str())));
        fields.extend(endpoint_params.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if in_form {
            fields.extend([("client_id", id), ("client_secret", secret)]);
        } else {
            let credentials = basic_credentials(format!("{}:{}", encode(id), encode(secret)));
            headers.insert(AUTHORIZATION, sensitive(&credentials)?);
        }
        let body: Arc<[Bytes]> = Arc::from([Bytes::from(form(&fields))]);
        let answer = self.http.post(&self.token_url, &headers, &body);
        let answer = tokio::time::timeout(*timeout, answer).await.map_err(|_| {
            CredentialsError::unavailable(format!(
                "no answer of the token endpoint within {timeout:?}"
            ))
        })?;
        answer.map_err(|error| CredentialsError {
            reason: self.text(&format!("token endpoint: {error}"), id, secret),
            is_temporary: !error.is_configuration(),
        })
    }

    /// A text that is the endpoint's, without the secrets that it got.
    fn text(&self, text: &str, id: &str, secret: &str) -> String {
        let (id, encoded) = (encode(id), encode(secret));
        let basic = basic_credentials(format!("{id}:{encoded}"));
        let secrets = Secrets::default().and(secret).and(encoded).and(basic);
        let secrets = secrets.and_query(self.token_url.query());
        let params = self.config.endpoint_params.iter();
        let params = params.filter(|(name, _)| is_credential(name));
        let values = params.flat_map(|(_, value)| [value.clone(), encode(value)]);
        values.fold(secrets, Secrets::and).peer_text(text)
    }

    fn token(&self, answer: &Answer, id: &str, secret: &str) -> Result<Token, CredentialsError> {
        let status = answer.status;
        if !status.is_success() {
            let text = String::from_utf8_lossy(&answer.body[..answer.body.len().min(4096)]);
            let (code, text) = (status.as_u16(), self.text(&text, id, secret));
            let is_temporary = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
            let reason = format!("the token endpoint answered {code}: {text}");
            return Err(CredentialsError { reason, is_temporary });
        }
        let granted = Granted::read(answer.headers.get(CONTENT_TYPE), &answer.body)?;
        let now = Instant::now();
        Ok(Token {
            header: granted.header,
            renew_at: granted.lives.map(|lives| now + renewal(lives, self.config.expiry_buffer)),
            ends_at: granted.lives.map(|lives| now + lives),
        })
    }
}
