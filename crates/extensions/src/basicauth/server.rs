use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
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
use tokio::sync::{OnceCell, Semaphore};

use super::ServerConfig;
use crate::digest::{
    CREDENTIALS_RELOAD_INTERVAL, Sha256Digest, Unreadable, after_scheme, digest, sole,
};

/// bcrypt takes a core for tens of milliseconds a check. Guessed passwords must not take all cores.
const CHECKS_AT_ONCE: usize = 1;
const CHECK_WAIT: Duration = Duration::from_secs(5);
/// Different credentials that are checked or wait for it.
const WAITING_MAX: usize = 64;

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
    /// The bcrypt hash that takes longest. Whatever is wrong is checked with it, so that the time
    /// does not tell which users there are.
    costliest: Option<String>,
    /// Digests of whole credentials.
    good: Mutex<HashSet<Sha256Digest>>,
}

/// Why htpasswd lines cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UsersError {
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
pub(super) struct BasicServer {
    users: Arc<Reloading<Arc<Users>>>,
    checks: Arc<Semaphore>,
    /// One check serves all requests that show the same credentials meanwhile.
    waiting: Mutex<HashMap<Sha256Digest, Weak<OnceCell<bool>>>>,
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
    pub(super) fn new(config: &ServerConfig) -> Result<Self, UsersError> {
        let config = config.clone();
        let users = Reloading::start(
            "the users for basic authentication",
            config.file.clone().into_iter().collect(),
            Some(CREDENTIALS_RELOAD_INTERVAL),
            move |snapshot: &Snapshot| read_users(&config, snapshot).map(Arc::new),
        )?;
        let challenge = HeaderValue::from_static("Basic realm=\"telemetry\", charset=\"UTF-8\"");
        let checks = Arc::new(Semaphore::new(CHECKS_AT_ONCE));
        Ok(BasicServer { users, checks, waiting: Mutex::default(), challenge })
    }

    async fn check(&self, headers: &HeaderMap) -> Result<(), AuthError> {
        let value = sole(headers, &AUTHORIZATION)?;
        let encoded = after_scheme(value.as_bytes(), "Basic").ok_or(AuthError::Malformed)?;
        let credentials = STANDARD.decode(encoded).map_err(|_| AuthError::Malformed)?;
        let mut parts = credentials.splitn(2, |byte| *byte == b':');
        let (Some(user), Some(password)) = (parts.next(), parts.next()) else {
            return Err(AuthError::Malformed);
        };
        let user = std::str::from_utf8(user).map_err(|_| AuthError::Malformed)?;
        if password.is_empty() {
            return Err(AuthError::Wrong);
        }

        let users = Arc::clone(&self.users.current());
        let key = digest(&credentials);
        let is_good = match users.passwords.get(user) {
            Some(Password::Bcrypt(_)) if users.good.lock().contains(&key) => true,
            Some(Password::Bcrypt(hash)) => {
                let is_good = self.check_bcrypt(key, password, hash, Some(&users)).await?;
                return is_good.then_some(()).ok_or(AuthError::Wrong);
            }
            Some(Password::Plain(expected)) => digest(password).ct_eq(expected).into(),
            Some(Password::Sha1(expected)) => Sha1::digest(password).ct_eq(expected).into(),
            None => false,
        };
        if is_good {
            return Ok(());
        }
        if let Some(hash) = &users.costliest {
            self.check_bcrypt(key, password, hash, None).await?;
        }
        Err(AuthError::Wrong)
    }

    /// `key` is the digest of the whole credentials. Good ones are remembered in `known`.
    async fn check_bcrypt(
        &self,
        key: Sha256Digest,
        password: &[u8],
        hash: &str,
        known: Option<&Arc<Users>>,
    ) -> Result<bool, AuthError> {
        let outcome = {
            let mut waiting = self.waiting.lock();
            match waiting.get(&key).and_then(Weak::upgrade) {
                Some(outcome) => outcome,
                None => {
                    waiting.retain(|_, outcome| outcome.strong_count() > 0);
                    if waiting.len() >= WAITING_MAX {
                        return Err(AuthError::Busy);
                    }
                    let outcome = Arc::new(OnceCell::new());
                    waiting.insert(key, Arc::downgrade(&outcome));
                    outcome
                }
            }
        };
        let checked = outcome.get_or_try_init(|| async {
            let turn = Arc::clone(&self.checks).acquire_owned().await;
            let turn = turn.map_err(|_| AuthError::Busy)?;
            // The same credentials may have been checked while this request waited.
            if known.is_some_and(|users| users.good.lock().contains(&key)) {
                return Ok(true);
            }
            let (hash, password, known) = (hash.to_owned(), password.to_vec(), known.cloned());
            let verify = move || {
                let _turn = turn;
                let is_good = bcrypt::verify(password, &hash).unwrap_or(false);
                if let Some(users) = known.filter(|_| is_good) {
                    let mut good = users.good.lock();
                    if good.len() < REMEMBERED_MAX {
                        good.insert(key);
                    }
                }
                is_good
            };
            tokio::task::spawn_blocking(verify).await.map_err(|_| AuthError::Busy)
        });
        tokio::time::timeout(CHECK_WAIT, checked).await.map_err(|_| AuthError::Busy)?.copied()
    }
}

fn read_users(config: &ServerConfig, snapshot: &Snapshot) -> Result<Users, UsersError> {
    let mut passwords = HashMap::new();
    if let Some(path) = &config.file {
        let content = snapshot.content(path).map_err(|reason| Unreadable::new(path, reason))?;
        let text = std::str::from_utf8(content).map_err(|error| Unreadable::new(path, error))?;
        read_lines(text, &mut passwords)?;
    }
    read_lines(config.inline.expose(), &mut passwords)?;
    if passwords.is_empty() {
        return Err(UsersError::NoUsers);
    }
    let costliest = passwords.values().filter_map(|password| match password {
        Password::Bcrypt(hash) => Some((hash.parse::<bcrypt::HashParts>().ok()?.get_cost(), hash)),
        _ => None,
    });
    let costliest = costliest.max().map(|(_, hash)| hash.clone());
    Ok(Users { passwords, costliest, good: Mutex::default() })
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
        let parts =
            line.split_once(':').filter(|(user, hash)| !user.is_empty() && !hash.is_empty());
        let (user, hash) = parts.ok_or(UsersError::NotAUser { line: index + 1 })?;
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
    let is_bcrypt = ["$2y$", "$2b$", "$2a$"].iter().any(|prefix| hash.starts_with(prefix));
    if is_bcrypt && hash.parse::<bcrypt::HashParts>().is_ok() {
        return Ok(Password::Bcrypt(hash.to_owned()));
    }
    // `$apr1$` (MD5), `{SSHA}`, crypt: anything that looks like a hash is not a plain password.
    match hash.starts_with(['$', '{']) {
        true => Err(unsupported()),
        false => Ok(Password::Plain(digest(hash.as_bytes()))),
    }
}
