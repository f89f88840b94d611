use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use sha1::{Digest, Sha1};
use sluice_net::auth::server::{AuthError, ServerAuth};
use sluice_net::reload::{Reloading, Snapshot};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

use super::ServerConfig;
use crate::digest::{CREDENTIALS_RELOAD_INTERVAL, Sha256Digest, Unreadable, after_scheme, digest, sole};

/// bcrypt takes a core for tens of milliseconds a check. Guessed passwords must not take all cores.
const CHECKS_AT_ONCE: usize = 1;
const CHECK_WAIT: Duration = Duration::from_secs(5);

/// Credentials that were found good are not checked with bcrypt again.
const REMEMBERED_MAX: usize = 4096;

enum Password {
    Bcrypt(String),
    Sha1([u8; 20]),
    Plain(Sha256Digest),
}

/// The users of one reading of the files.
struct Users {
    passwords: HashMap<String, Password>,
    /// Digests of whole credentials.
    good: Mutex<HashSet<Sha256Digest>>,
}

/// Why htpasswd lines cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsersError {
    #[error("there is no user")]
    NoUsers,
    #[error("line {line} is not `user:password-hash`")]
    NotAUser { line: usize },
    #[error(
        "the password hash of user `{user}` is of a kind that is not supported: \
         use bcrypt (htpasswd -B) or {{SHA}} (htpasswd -s)"
    )]
    UnsupportedHash { user: String },
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// Lets in the users of htpasswd lines.
pub struct BasicServer {
    users: Arc<Reloading<Arc<Users>>>,
    checks: Semaphore,
    challenge: HeaderValue,
}

impl ServerAuth for BasicServer {
    fn authenticate<'a>(&'a self, headers: &'a HeaderMap) -> BoxFuture<'a, Result<(), AuthError>> {
        Box::pin(self.check(headers))
    }

    fn challenge(&self) -> &HeaderValue {
        &self.challenge
    }
}

impl BasicServer {
    pub fn new(config: &ServerConfig) -> Result<Self, UsersError> {
        let config = config.clone();
        let users = Reloading::start(
            "the users for basic authentication",
            config.file.clone().into_iter().collect(),
            Some(CREDENTIALS_RELOAD_INTERVAL),
            move |snapshot: &Snapshot| read_users(&config, snapshot).map(Arc::new),
        )?;
        let challenge = HeaderValue::from_static("Basic realm=\"telemetry\", charset=\"UTF-8\"");
        Ok(BasicServer { users, checks: Semaphore::new(CHECKS_AT_ONCE), challenge })
    }

    async fn check(&self, headers: &HeaderMap) -> Result<(), AuthError> {
        let value = sole(headers, &AUTHORIZATION)?;
        let encoded = after_scheme(value.as_bytes(), "Basic").ok_or(AuthError::Malformed)?;
        let credentials = STANDARD.decode(encoded).map_err(|_| AuthError::Malformed)?;
        let colon = credentials.iter().position(|byte| *byte == b':').ok_or(AuthError::Malformed)?;
        let user = std::str::from_utf8(&credentials[..colon]).map_err(|_| AuthError::Malformed)?;
        let password = &credentials[colon + 1..];
        if password.is_empty() {
            return Err(AuthError::Wrong);
        }

        let users = Arc::clone(&self.users.current());
        let is_good = match users.passwords.get(user).ok_or(AuthError::Wrong)? {
            Password::Plain(expected) => digest(password).ct_eq(expected).into(),
            Password::Sha1(expected) => Sha1::digest(password).as_slice().ct_eq(expected).into(),
            Password::Bcrypt(hash) => self.check_bcrypt(&users, hash, &credentials, password).await?,
        };
        if is_good { Ok(()) } else { Err(AuthError::Wrong) }
    }

    async fn check_bcrypt(
        &self,
        users: &Users,
        hash: &str,
        credentials: &[u8],
        password: &[u8],
    ) -> Result<bool, AuthError> {
        let key = digest(credentials);
        if users.good.lock().contains(&key) {
            return Ok(true);
        }
        let acquired = tokio::time::timeout(CHECK_WAIT, self.checks.acquire()).await;
        let Ok(Ok(_permit)) = acquired else { return Err(AuthError::Busy) };
        // The same credentials may have been checked while this request waited.
        if users.good.lock().contains(&key) {
            return Ok(true);
        }
        let (hash, password) = (hash.to_owned(), password.to_vec());
        let checked = tokio::task::spawn_blocking(move || bcrypt::verify(password, &hash).unwrap_or(false)).await;
        let is_good = checked.map_err(|_| AuthError::Busy)?;
        let mut good = users.good.lock();
        if is_good && good.len() < REMEMBERED_MAX {
            good.insert(key);
        }
        Ok(is_good)
    }
}

fn read_users(config: &ServerConfig, snapshot: &Snapshot) -> Result<Users, UsersError> {
    let mut passwords = HashMap::new();
    if let Some(path) = &config.file {
        let unreadable = |reason: String| Unreadable { path: path.display().to_string(), reason };
        let content = snapshot.content(path).map_err(|reason| unreadable(reason.to_owned()))?;
        let text = std::str::from_utf8(content).map_err(|error| unreadable(error.to_string()))?;
        read_lines(text, &mut passwords)?;
    }
    read_lines(config.inline.expose(), &mut passwords)?;
    if passwords.is_empty() {
        return Err(UsersError::NoUsers);
    }
    Ok(Users { passwords, good: Mutex::new(HashSet::new()) })
}

/// Whether a text can be used as an htpasswd file.
pub(super) fn check_lines(text: &str) -> Result<(), UsersError> {
    read_lines(text, &mut HashMap::new())
}

fn read_lines(text: &str, passwords: &mut HashMap<String, Password>) -> Result<(), UsersError> {
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let not_a_user = UsersError::NotAUser { line: index + 1 };
        let (user, hash) =
            line.split_once(':').filter(|(user, hash)| !user.is_empty() && !hash.is_empty()).ok_or(not_a_user)?;
        passwords.insert(user.to_owned(), read_hash(user, hash)?);
    }
    Ok(())
}

fn read_hash(user: &str, hash: &str) -> Result<Password, UsersError> {
    let unsupported = || UsersError::UnsupportedHash { user: user.to_owned() };
    if let Some(encoded) = hash.strip_prefix("{SHA}") {
        let decoded = STANDARD.decode(encoded).map_err(|_| unsupported())?;
        return decoded.try_into().map(Password::Sha1).map_err(|_| unsupported());
    }
    if ["$2y$", "$2b$", "$2a$"].iter().any(|prefix| hash.starts_with(prefix)) {
        return match hash.parse::<bcrypt::HashParts>() {
            Ok(_) => Ok(Password::Bcrypt(hash.to_owned())),
            Err(_) => Err(unsupported()),
        };
    }
    // `$apr1$` (MD5), `{SSHA}`, crypt: anything that looks like a hash is not a plain password.
    if hash.starts_with('$') || hash.starts_with('{') {
        return Err(unsupported());
    }
    Ok(Password::Plain(digest(hash.as_bytes())))
}
