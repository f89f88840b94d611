//! How requests to a backend are authenticated: basic, bearer token, OAuth2 client credentials.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;

use super::oauth2::OAuth2;

/// A file with a secret is looked at again after this time.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Larger files are no secrets.
const SECRET_LIMIT_BYTES: u64 = 64 * 1024;

/// Why a request could not be authenticated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// Somebody has to change something: a file cannot be read, the token endpoint refuses the client.
    #[error("{reason}")]
    Misconfigured { reason: String },
    /// The token endpoint cannot be reached or is overloaded.
    #[error("{reason}")]
    Unavailable { reason: String },
}

impl AuthError {
    pub(crate) fn misconfigured(reason: impl Into<String>) -> AuthError {
        AuthError::Misconfigured { reason: reason.into() }
    }

    pub(crate) fn unavailable(reason: impl Into<String>) -> AuthError {
        AuthError::Unavailable { reason: reason.into() }
    }
}

/// Puts credentials into requests. Cheap to clone; clones share tokens.
#[derive(Clone, Debug)]
pub enum ClientAuth {
    Basic(Arc<BasicAuth>),
    Bearer(Arc<BearerAuth>),
    OAuth2(Arc<OAuth2>),
}

impl ClientAuth {
    /// Adds the header. Waits only where a token has to be fetched or a changed file to be read.
    pub async fn authenticate(&self, headers: &mut HeaderMap) -> Result<(), AuthError> {
        let (name, value) = match self {
            ClientAuth::Basic(basic) => (AUTHORIZATION, basic.header().await?),
            ClientAuth::Bearer(bearer) => (bearer.header.clone(), bearer.value().await?),
            ClientAuth::OAuth2(oauth2) => (AUTHORIZATION, oauth2.header().await?),
        };
        headers.insert(name, value);
        Ok(())
    }

    /// The backend did not take the credentials: a cached token is not used again.
    pub async fn refused(&self) {
        if let ClientAuth::OAuth2(oauth2) = self {
            oauth2.forget().await;
        }
    }
}

/// A secret that is written in the configuration, or lies in a file that may change at any time. `Debug` does not show it.
pub struct SecretSource {
    fixed: String,
    file: Option<SecretFile>,
}

struct SecretFile {
    path: PathBuf,
    cached: Mutex<Option<Cached>>,
}

struct Cached {
    checked: Instant,
    stamp: Stamp,
    text: Arc<str>,
}

/// What changes when a file is replaced, through Kubernetes' symbolic links, too.
type Stamp = (Option<SystemTime>, u64, u64);

impl fmt::Debug for SecretSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(formatter, "SecretSource({})", file.path.display()),
            None => formatter.write_str("SecretSource(hidden)"),
        }
    }
}

impl SecretSource {
    pub fn fixed(secret: impl Into<String>) -> SecretSource {
        SecretSource { fixed: secret.into(), file: None }
    }

    /// The file's content without white space around it, read again when it changes.
    pub fn file(path: impl Into<PathBuf>) -> SecretSource {
        SecretSource { fixed: String::new(), file: Some(SecretFile { path: path.into(), cached: Mutex::new(None) }) }
    }

    pub(crate) async fn read(&self) -> Result<Arc<str>, AuthError> {
        match &self.file {
            None => Ok(Arc::from(self.fixed.as_str())),
            Some(file) => file.read().await,
        }
    }
}

impl SecretFile {
    async fn read(&self) -> Result<Arc<str>, AuthError> {
        if let Some(cached) = self.cached.lock().as_ref()
            && cached.checked.elapsed() < FILE_CHECK_INTERVAL
        {
            return Ok(cached.text.clone());
        }
        let failed = |error: std::io::Error| {
            AuthError::misconfigured(format!("cannot read the secret file {}: {error}", self.path.display()))
        };
        let metadata = tokio::fs::metadata(&self.path).await.map_err(failed)?;
        let stamp = stamp(&metadata);
        if let Some(cached) = self.cached.lock().as_mut()
            && cached.stamp == stamp
        {
            cached.checked = Instant::now();
            return Ok(cached.text.clone());
        }
        if metadata.len() > SECRET_LIMIT_BYTES {
            let path = self.path.display();
            return Err(AuthError::misconfigured(format!("{path} exceeds {SECRET_LIMIT_BYTES} bytes: no secret")));
        }
        let text = tokio::fs::read_to_string(&self.path).await.map_err(failed)?;
        let text: Arc<str> = Arc::from(text.trim());
        *self.cached.lock() = Some(Cached { checked: Instant::now(), stamp, text: text.clone() });
        Ok(text)
    }
}

fn stamp(metadata: &std::fs::Metadata) -> Stamp {
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(metadata);
    #[cfg(not(unix))]
    let inode = 0;
    (metadata.modified().ok(), metadata.len(), inode)
}

/// A header value made from secrets, made again only when they change.
#[derive(Default)]
struct MadeValue(Mutex<Option<(Vec<Arc<str>>, HeaderValue)>>);

impl MadeValue {
    fn get(&self, secrets: &[Arc<str>], make: impl FnOnce() -> String) -> Result<HeaderValue, AuthError> {
        let mut made = self.0.lock();
        if let Some((from, value)) = made.as_ref()
            && from == secrets
        {
            return Ok(value.clone());
        }
        let value = sensitive(&make())?;
        *made = Some((secrets.to_vec(), value.clone()));
        Ok(value)
    }
}

pub(crate) fn sensitive(text: &str) -> Result<HeaderValue, AuthError> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| AuthError::misconfigured("the credentials contain characters that no header may have"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// User name and password (RFC 7617).
pub struct BasicAuth {
    username: SecretSource,
    password: SecretSource,
    made: MadeValue,
}

impl fmt::Debug for BasicAuth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("BasicAuth(hidden)")
    }
}

impl BasicAuth {
    pub fn new(username: SecretSource, password: SecretSource) -> BasicAuth {
        BasicAuth { username, password, made: MadeValue::default() }
    }

    async fn header(&self) -> Result<HeaderValue, AuthError> {
        let secrets = [self.username.read().await?, self.password.read().await?];
        self.made.get(&secrets, || basic(&secrets[0], &secrets[1]))
    }
}

pub(crate) fn basic(username: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{username}:{password}")))
}

/// A token that somebody else provides (RFC 6750).
pub struct BearerAuth {
    header: HeaderName,
    /// `Bearer`, or what the backend wants in its place; may be empty.
    scheme: String,
    token: SecretSource,
    made: MadeValue,
}

impl fmt::Debug for BearerAuth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "BearerAuth({})", self.header)
    }
}

impl BearerAuth {
    pub fn new(header: HeaderName, scheme: impl Into<String>, token: SecretSource) -> BearerAuth {
        BearerAuth { header, scheme: scheme.into(), token, made: MadeValue::default() }
    }

    async fn value(&self) -> Result<HeaderValue, AuthError> {
        let token = self.token.read().await?;
        self.made.get(std::slice::from_ref(&token), || match self.scheme.as_str() {
            "" => token.to_string(),
            scheme => format!("{scheme} {token}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn header(auth: &ClientAuth) -> String {
        let mut headers = HeaderMap::new();
        auth.authenticate(&mut headers).await.expect("authenticates");
        let value = headers.get(AUTHORIZATION).expect("a header");
        assert!(value.is_sensitive());
        value.to_str().expect("ASCII").to_owned()
    }

    /// Scenario: fixed credentials. Guarantee: the header of RFC 7617, and nothing of it in `Debug`.
    #[tokio::test]
    async fn basic_credentials() {
        let auth = BasicAuth::new(SecretSource::fixed("me"), SecretSource::fixed("open sesame"));
        let auth = ClientAuth::Basic(Arc::new(auth));
        assert_eq!(header(&auth).await, format!("Basic {}", BASE64_STANDARD.encode("me:open sesame")));
        assert!(!format!("{auth:?}").contains("sesame"));
    }

    /// Scenario: a token file that is replaced by renaming, as Kubernetes does, then vanishes.
    /// Guarantee: the new token within seconds; then an error that names the file.
    #[tokio::test]
    async fn a_bearer_token_follows_its_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        std::fs::write(&path, "first\n").expect("writes");
        let auth = BearerAuth::new(AUTHORIZATION, "Bearer", SecretSource::file(&path));
        let auth = ClientAuth::Bearer(Arc::new(auth));
        assert_eq!(header(&auth).await, "Bearer first");

        let next = directory.path().join("next");
        std::fs::write(&next, "other\n").expect("writes");
        std::fs::rename(&next, &path).expect("renames");
        let deadline = Instant::now() + Duration::from_secs(20);
        while header(&auth).await != "Bearer other" {
            assert!(Instant::now() < deadline, "the new token was never used");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }

        std::fs::remove_file(&path).expect("removes");
        let error = loop {
            if let Err(error) = auth.authenticate(&mut HeaderMap::new()).await {
                break error;
            }
            assert!(Instant::now() < deadline, "the missing file was never noticed");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert!(matches!(&error, AuthError::Misconfigured { reason } if reason.contains("token")), "{error}");
    }

    /// Scenario: a token with a line break inside. Guarantee: an error, no second header.
    #[tokio::test]
    async fn a_token_cannot_smuggle_headers() {
        let auth = BearerAuth::new(AUTHORIZATION, "Bearer", SecretSource::fixed("a\r\nx: y"));
        let mut headers = HeaderMap::new();
        let result = ClientAuth::Bearer(Arc::new(auth)).authenticate(&mut headers).await;
        assert!(matches!(result, Err(AuthError::Misconfigured { .. })));
        assert!(headers.is_empty());
    }
}
