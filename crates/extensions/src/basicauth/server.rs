//! Passwords that senders show. bcrypt is slow, so checks wait in line, each user's apart.
//!
//! A refusal must not tell whether there is such a user: every name has a line of its own, in which
//! a password takes as long whether it is checked or not, and refusals are sent at multiples of a
//! time that is longer than a check. Only passwords of users cost CPU time.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

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
use tokio::time::{Instant as Deadline, sleep, timeout_at};

use super::ServerConfig;
use crate::digest::{
    CREDENTIALS_RELOAD_INTERVAL, Sha256Digest, after_scheme, digest, sole, unreadable, unusable,
};

/// bcrypt takes a core for tens of milliseconds a check. Guessed passwords must not take all cores.
const CHECKS_AT_ONCE: usize = 1;
/// No check begins later: its sender has given up. One that has begun is used.
const CHECK_WAIT: Duration = Duration::from_secs(5);
/// The line of a name is as long as checks fit into this part of the wait: senders with good
/// passwords get an answer in time, among any number with wrong ones.
const LINE_PART: u32 = 2;
/// Refusals are sent at multiples of this many times the length of a check, which varies.
const REFUSAL_CHECKS: u32 = 4;

pub(super) enum Password {
    Bcrypt(Arc<Account>),
    Sha1([u8; 20]),
    Plain(Sha256Digest),
}

/// The users of one reading of the files.
struct Users {
    passwords: HashMap<String, Password>,
    costliest: Option<Costliest>,
}

/// The bcrypt hash that takes longest, and how long.
struct Costliest {
    hash: String,
    takes: OnceCell<Duration>,
}

/// A name with its bcrypt hash, or with none: then there is no such user, or another kind of hash.
type AccountKey = (String, Option<String>);

/// All accounts in use. A reload finds those of unchanged users, with the passwords that they know.
static ACCOUNTS: Mutex<BTreeMap<AccountKey, Weak<Account>>> = Mutex::new(BTreeMap::new());

/// The line of one name: of a user with a bcrypt hash, or of another name while its requests wait.
pub(super) struct Account {
    key: AccountKey,
    /// Digests of the passwords that were last found wrong and right.
    known: Mutex<[Option<Sha256Digest>; 2]>,
    /// One check serves all requests that show the same password meanwhile.
    waiting: Mutex<HashMap<Sha256Digest, Weak<OnceCell<bool>>>>,
    turn: tokio::sync::Mutex<()>,
}

impl Account {
    fn of(name: &str, hash: Option<&str>) -> Arc<Account> {
        let key = (name.to_owned(), hash.map(str::to_owned));
        let mut accounts = ACCOUNTS.lock();
        if let Some(account) = accounts.get(&key).and_then(Weak::upgrade) {
            return account;
        }
        let account = Arc::new(Account {
            key: key.clone(),
            known: Mutex::default(),
            waiting: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        });
        accounts.insert(key, Arc::downgrade(&account));
        account
    }

    fn knows(&self, password: &Sha256Digest, is_right: bool) -> bool {
        self.known.lock()[usize::from(is_right)].is_some_and(|known| known == *password)
    }

    /// The verdict on a password, shared by all requests that wait for it. `None`: so many others
    /// are waited for that this one would come too late.
    fn verdict(&self, password: Sha256Digest, places: usize) -> Option<Arc<OnceCell<bool>>> {
        let mut waiting = self.waiting.lock();
        waiting.retain(|_, verdict| verdict.strong_count() > 0);
        if let Some(verdict) = waiting.get(&password).and_then(Weak::upgrade) {
            return Some(verdict);
        }
        let verdict = (waiting.len() < places).then(Arc::<OnceCell<bool>>::default)?;
        waiting.insert(password, Arc::downgrade(&verdict));
        Some(verdict)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut accounts = ACCOUNTS.lock();
        // Another account may have taken its place meanwhile.
        if accounts.get(&self.key).is_some_and(|account| account.strong_count() == 0) {
            accounts.remove(&self.key);
        }
    }
}

/// Lets in the users of htpasswd lines.
pub(super) struct BasicServer {
    users: Arc<Reloading<Users>>,
    checks: Arc<Semaphore>,
    pub(super) check_wait: Duration,
}

impl ServerAuth for BasicServer {
    fn authenticate<'a>(&'a self, headers: &'a HeaderMap) -> BoxFuture<'a, Result<(), AuthError>> {
        Box::pin(self.check(headers))
    }

    fn challenge(&self) -> &HeaderValue {
        static CHALLENGE: HeaderValue =
            HeaderValue::from_static("Basic realm=\"telemetry\", charset=\"UTF-8\"");
        &CHALLENGE
    }
}

impl BasicServer {
    pub(super) fn new(config: &ServerConfig) -> Result<Self, String> {
        let config = config.clone();
        let users = Reloading::start(
            "the users for basic authentication",
            config.file.clone().into_iter().collect(),
            Some(CREDENTIALS_RELOAD_INTERVAL),
            move |snapshot: &Snapshot| read_users(&config, snapshot),
        )?;
        let checks = Arc::new(Semaphore::new(CHECKS_AT_ONCE));
        Ok(BasicServer { users, checks, check_wait: CHECK_WAIT })
    }

    async fn check(&self, headers: &HeaderMap) -> Result<(), AuthError> {
        let arrived = Instant::now();
        let value = sole(headers, &AUTHORIZATION)?;
        let encoded = after_scheme(value.as_bytes(), "Basic").ok_or(AuthError::Malformed)?;
        let credentials = STANDARD.decode(encoded).map_err(|_| AuthError::Malformed)?;
        let colon = credentials.iter().position(|it| *it == b':').ok_or(AuthError::Malformed)?;
        let (user, password) = (&credentials[..colon], &credentials[colon + 1..]);
        let user = std::str::from_utf8(user).map_err(|_| AuthError::Malformed)?;
        if password.is_empty() {
            return Err(AuthError::Wrong);
        }

        let users = self.users.current();
        let known = users.passwords.get(user);
        let key = digest(password);
        let is_right = match known {
            Some(Password::Bcrypt(account)) => account.knows(&key, true),
            Some(Password::Plain(expected)) => key.ct_eq(expected).into(),
            Some(Password::Sha1(expected)) => Sha1::digest(password).ct_eq(expected).into(),
            None => false,
        };
        if is_right {
            return Ok(());
        }
        let Some(costliest) = &users.costliest else { return Err(AuthError::Wrong) };
        let account = match known {
            Some(Password::Bcrypt(account)) => Arc::clone(account),
            _ => Account::of(user, None),
        };
        let until = Deadline::from_std(arrived + self.check_wait);
        let verdict = account.verdict(key, self.places(costliest)).ok_or(AuthError::Busy)?;
        let is_right = || self.is_right(&account, key, password, costliest, until);
        if *verdict.get_or_try_init(is_right).await? {
            return Ok(());
        }
        // Its place in the line is free.
        drop(verdict);
        let takes = self.check_takes(costliest, until).await?;
        let (step, took) = (takes * REFUSAL_CHECKS, arrived.elapsed());
        let steps = took.div_duration_f64(step).ceil() as u32;
        sleep((step * steps).saturating_sub(took)).await;
        Err(AuthError::Wrong)
    }

    /// The passwords of one name that may wait at a time. Until a check was timed, all may.
    fn places(&self, costliest: &Costliest) -> usize {
        let line = self.check_wait / LINE_PART;
        let places = |takes: &Duration| (line.as_micros() / takes.as_micros().max(1)) as usize;
        costliest.takes.get().map_or(usize::MAX, places).max(1)
    }

    /// Takes the account's next turn, for as long as a check takes, checked or not.
    async fn is_right(
        &self,
        account: &Arc<Account>,
        key: Sha256Digest,
        password: &[u8],
        costliest: &Costliest,
        until: Deadline,
    ) -> Result<bool, AuthError> {
        let turn = timeout_at(until, account.turn.lock());
        let _turn = turn.await.map_err(|_| AuthError::Busy)?;
        match &account.key.1 {
            // It may have been checked for a request that did not wait for it.
            _ if account.knows(&key, true) => Ok(true),
            Some(hash) if !account.knows(&key, false) => {
                let account = Arc::clone(account);
                let note = move |is_right| account.known.lock()[usize::from(is_right)] = Some(key);
                Ok(self.verify(password, hash, note, until).await?.0)
            }
            _ => {
                sleep(self.check_takes(costliest, until).await?).await;
                Ok(false)
            }
        }
    }

    async fn check_takes(
        &self,
        Costliest { hash, takes }: &Costliest,
        until: Deadline,
    ) -> Result<Duration, AuthError> {
        let measure = async || Ok(self.verify(b"any", hash, |_| (), until).await?.1);
        takes.get_or_try_init(measure).await.copied()
    }

    /// Whether a password is right, noted even if nothing waits for it any more; how long it took.
    async fn verify(
        &self,
        password: &[u8],
        hash: &str,
        note: impl FnOnce(bool) + Send + 'static,
        until: Deadline,
    ) -> Result<(bool, Duration), AuthError> {
        let turn = timeout_at(until, Arc::clone(&self.checks).acquire_owned());
        let turn = turn.await.ok().and_then(Result::ok).ok_or(AuthError::Busy)?;
        let (hash, password) = (hash.to_owned(), password.to_vec());
        let verify = move || {
            let (_turn, began) = (turn, Instant::now());
            let is_right = bcrypt::verify(password, &hash).unwrap_or(false);
            note(is_right);
            (is_right, began.elapsed())
        };
        tokio::task::spawn_blocking(verify).await.map_err(|_| AuthError::Busy)
    }
}

fn read_users(config: &ServerConfig, snapshot: &Snapshot) -> Result<Users, String> {
    let mut passwords = HashMap::new();
    if let Some(path) = &config.file {
        let content = snapshot.content(path).map_err(|reason| unreadable(path, reason))?;
        let text = std::str::from_utf8(content).map_err(|error| unreadable(path, error))?;
        passwords = read_lines(text).map_err(|reason| unusable(path, reason))?;
    }
    passwords.extend(read_lines(config.inline.expose())?);
    if passwords.is_empty() {
        return Err(match &config.file {
            Some(path) => unusable(path, "it names no user"),
            None => "there is no user".to_owned(),
        });
    }
    let costliest = passwords.values().filter_map(|password| match password {
        Password::Bcrypt(account) => account.key.1.as_ref(),
        _ => None,
    });
    let cost = |hash: &&String| hash.parse().map_or(0, |parts: bcrypt::HashParts| parts.get_cost());
    let costliest = costliest.max_by_key(cost).cloned();
    let costliest = costliest.map(|hash| Costliest { hash, takes: OnceCell::new() });
    Ok(Users { passwords, costliest })
}

pub(super) fn read_lines(text: &str) -> Result<HashMap<String, Password>, String> {
    let mut passwords = HashMap::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parts =
            line.split_once(':').filter(|(user, hash)| !user.is_empty() && !hash.is_empty());
        let not_a_user = || format!("line {} is not `user:password-hash`", index + 1);
        let (user, hash) = parts.ok_or_else(not_a_user)?;
        passwords.insert(user.to_owned(), read_hash(user, hash)?);
    }
    Ok(passwords)
}

fn read_hash(user: &str, hash: &str) -> Result<Password, String> {
    let unsupported = || {
        format!(
            "the password hash of user `{user}` is of a kind that is not supported: use bcrypt \
             (htpasswd -B) or {{SHA}} (htpasswd -s)"
        )
    };
    if let Some(encoded) = hash.strip_prefix("{SHA}") {
        let decoded = STANDARD.decode(encoded).map_err(|_| unsupported())?;
        return decoded.try_into().map(Password::Sha1).map_err(|_| unsupported());
    }
    let is_bcrypt = ["$2y$", "$2b$", "$2a$"].iter().any(|prefix| hash.starts_with(prefix));
    if is_bcrypt && hash.parse::<bcrypt::HashParts>().is_ok() {
        return Ok(Password::Bcrypt(Account::of(user, Some(hash))));
    }
    // `$apr1$` (MD5), `{SSHA}`, crypt: anything that looks like a hash is not a plain password.
    match hash.starts_with(['$', '{']) {
        true => Err(unsupported()),
        false => Ok(Password::Plain(digest(hash.as_bytes()))),
    }
}
