//! Secrets that requests show: written in the configuration, or in a file, which may change.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue};
use sluice_config::Secret;
use sluice_net::auth::client::{ClientAuth, CredentialsError, MetadataHeader};
use sluice_net::reload::{Reloading, Snapshot};

use crate::digest::CREDENTIALS_RELOAD_INTERVAL;
use crate::extension::CredentialsFile;

/// Larger files are no secrets.
const SECRET_LIMIT_BYTES: usize = 64 * 1024;

#[derive(Clone, Debug)]
pub(crate) struct SecretSource {
    fixed: Secret,
    /// Its content without white space around it is the secret.
    file: Option<PathBuf>,
}

impl SecretSource {
    /// The secret of an option and its `_file` sibling: the file, if there is one, wins.
    pub(crate) fn of(file: Option<String>, fixed: Secret) -> SecretSource {
        SecretSource { fixed, file: file.map(PathBuf::from) }
    }

    pub(crate) fn is_unset(&self) -> bool {
        self.fixed.expose().is_empty() && self.file.is_none()
    }

    /// Its file, if it has one, which this option names.
    pub(crate) fn credentials_file(&self, option: &'static str) -> Option<CredentialsFile> {
        let (path, source) = (self.file.clone()?, self.clone());
        let check = move || {
            let (files, source) = (source.file.iter().cloned().collect(), source.clone());
            let read = move |snapshot: &Snapshot| source.read(snapshot).map(drop);
            let read = Reloading::start("a secret", files, None, read);
            read.map(drop).map_err(|error| error.to_string())
        };
        let otherwise = Some("until it can be used, nothing is sent that needs it");
        Some(CredentialsFile { option, path, otherwise, check: Box::new(check) })
    }

    fn read<'a>(&'a self, snapshot: &'a Snapshot) -> Result<&'a str, CredentialsError> {
        let Some(path) = &self.file else { return Ok(self.fixed.expose()) };
        let failed = |reason: &str| {
            let path = path.display();
            CredentialsError::misconfigured(format!("cannot read the secret file {path}: {reason}"))
        };
        let content = snapshot.content(path).map_err(failed)?;
        if content.len() > SECRET_LIMIT_BYTES {
            return Err(failed(&format!("it exceeds {SECRET_LIMIT_BYTES} bytes")));
        }
        match std::str::from_utf8(content).map(str::trim) {
            // A file that is truncated and then written is empty for a moment.
            Ok("") => Err(failed("it is empty")),
            Ok(secret) => Ok(secret),
            Err(error) => Err(failed(&error.to_string())),
        }
    }
}

/// A value made from secrets, made again when their files change. The last good one stays in use
/// while they cannot be used; an error until there is one.
pub(crate) struct MadeFromSecrets<T>(pub(crate) Arc<Reloading<Result<T, CredentialsError>>>);

impl<T: Clone + Send + Sync + 'static> MadeFromSecrets<T> {
    /// `what` names it in logs.
    pub(crate) fn new<const N: usize>(
        what: &str,
        sources: [SecretSource; N],
        make: impl Fn([&str; N]) -> Result<T, CredentialsError> + Send + Sync + 'static,
    ) -> Self {
        let files = sources.iter().filter_map(|source| source.file.clone()).collect();
        let read = move |snapshot: &Snapshot| {
            let mut secrets = [""; N];
            for (secret, source) in secrets.iter_mut().zip(&sources) {
                *secret = source.read(snapshot)?;
            }
            make(secrets)
        };
        let was_good = AtomicBool::new(false);
        let build = move |snapshot: &Snapshot| {
            let made = read(snapshot);
            if was_good.load(Relaxed) {
                // An error keeps the value that was made before.
                return made.map(Ok);
            }
            match &made {
                Ok(_) => was_good.store(true, Relaxed),
                Err(error) => tracing::error!(%error, "credentials for requests cannot be used"),
            }
            Ok(made)
        };
        let made = Reloading::start(what, files, Some(CREDENTIALS_RELOAD_INTERVAL), build);
        MadeFromSecrets(made.expect("the first error is a value"))
    }

    pub(crate) fn get(&self) -> Result<T, CredentialsError> {
        (*self.0.current()).clone()
    }
}

pub(crate) struct SecretHeader {
    pub(crate) name: HeaderName,
    pub(crate) value: MadeFromSecrets<HeaderValue>,
}

impl ClientAuth for SecretHeader {
    fn authenticate<'a>(
        &'a self,
        headers: &'a mut HeaderMap,
        _: &'a [MetadataHeader],
    ) -> BoxFuture<'a, Result<(), CredentialsError>> {
        let shown = self.value.get().map(|value| drop(headers.insert(self.name.clone(), value)));
        Box::pin(std::future::ready(shown))
    }
}

/// A header value that is never shown.
pub(crate) fn sensitive(text: &str) -> Result<HeaderValue, CredentialsError> {
    let reason = "the credentials contain characters that no header may have";
    let unfit = |_| CredentialsError::misconfigured(reason);
    let mut value = HeaderValue::from_str(text).map_err(unfit)?;
    value.set_sensitive(true);
    Ok(value)
}
