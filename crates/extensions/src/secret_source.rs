//! Secrets that requests show: written in the configuration, or in a file that may change at any time.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::HeaderValue;
use parking_lot::Mutex;
use sluice_net::auth::client::AuthError;

/// A file with a secret is looked at again after this time.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Larger files are no secrets.
const SECRET_LIMIT_BYTES: u64 = 64 * 1024;

/// One secret. `Debug` does not show it.
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
    /// What an option and its `_file` sibling say: the file, if there is one, wins.
    pub(crate) fn of(file: Option<&String>, fixed: &str) -> SecretSource {
        match file {
            Some(path) => SecretSource::file(path),
            None => SecretSource::fixed(fixed),
        }
    }

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
pub(crate) struct MadeValue(Mutex<Option<(Vec<Arc<str>>, HeaderValue)>>);

impl MadeValue {
    pub(crate) fn get(&self, secrets: &[Arc<str>], make: impl FnOnce() -> String) -> Result<HeaderValue, AuthError> {
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

/// A header value that is never shown.
pub(crate) fn sensitive(text: &str) -> Result<HeaderValue, AuthError> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| AuthError::misconfigured("the credentials contain characters that no header may have"))?;
    value.set_sensitive(true);
    Ok(value)
}
