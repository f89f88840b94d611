//! The surroundings that detectors look at: files, the environment, services over HTTP.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use serde_json::Value as Json;
use sluice_net::client::{Answer, ConnectOptions, HttpClient, HttpOptions, Origin, Target};
use tokio::time::{Instant, timeout_at};

/// Services of metadata are near. Where there is none, packets may be lost without a word.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// From a request to the end of its answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
const ANSWER_LIMIT_BYTES: usize = 1 << 20;
/// Of longer files only the beginning is read.
const FILE_LIMIT_BYTES: u64 = 1 << 20;

const AGENT: &str = concat!("sluice/", env!("CARGO_PKG_VERSION"));
/// Where most clouds have their metadata.
const METADATA: &str = "http://169.254.169.254";

type Variables = dyn Fn(&str) -> Option<OsString> + Send + Sync;

#[derive(Clone)]
pub(super) struct Surroundings {
    /// The root of the file system.
    root: PathBuf,
    variables: Arc<Variables>,
    metadata: String,
    /// No answer is waited for any longer.
    until: Option<Instant>,
}

impl Surroundings {
    pub(super) fn real() -> Surroundings {
        let variables = Arc::new(|name: &str| std::env::var_os(name));
        let (root, metadata) = (PathBuf::from("/"), METADATA.to_owned());
        Surroundings { root, variables, metadata, until: None }
    }

    /// Those that a test has made.
    #[cfg(test)]
    pub(super) fn of(root: &Path, variables: &[(&str, &str)], metadata: &str) -> Surroundings {
        let variables: Vec<(String, OsString)> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), value.into())).collect();
        let variables = move |name: &str| {
            let found = variables.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone())
        };
        let (root, metadata) = (root.to_owned(), metadata.to_owned());
        Surroundings { root, variables: Arc::new(variables), metadata, until: None }
    }

    /// The same, for an attempt that ends then.
    pub(super) fn until(&self, until: Option<Instant>) -> Surroundings {
        Surroundings { until, ..self.clone() }
    }

    /// Waits for an answer no longer than `limit`, nor than the attempt may take.
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = T>,
    ) -> Result<T, String> {
        let own = Instant::now() + limit;
        let end = self.until.map_or(own, |until| until.min(own));
        let started = Instant::now();
        let answered = timeout_at(end, answer).await;
        answered.map_err(|_| format!("there is no answer within {:.1?}", started.elapsed()))
    }

    /// A variable of the environment. Bytes that are no UTF-8 become replacement characters.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.variables)(name).map(|value| value.to_string_lossy().into_owned())
    }

    /// The same, if it is not empty.
    pub(super) fn given(&self, name: &str) -> Option<String> {
        self.variable(name).filter(|value| !value.is_empty())
    }

    /// The URL of the service of metadata, without a path.
    pub(super) fn metadata(&self) -> &str {
        &self.metadata
    }

    /// A file of the system, which an absolute path names.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The text of a file; nothing if there is none. Blocks for as long as the file system does.
    pub(super) fn read_now(&self, path: &str) -> Result<Option<String>, String> {
        read(&self.path(path)).map_err(|error| format!("{path} cannot be read: {error}"))
    }

    /// The same on a thread of its own.
    pub(super) async fn read(&self, path: &str) -> Result<Option<String>, String> {
        let (around, path) = (self.clone(), path.to_owned());
        let read = tokio::task::spawn_blocking(move || around.read_now(&path)).await;
        read.map_err(|error| error.to_string())?
    }

    /// The name of the host, as its kernel has it.
    pub(super) async fn host_name(&self) -> Result<String, String> {
        let name = self.read("/proc/sys/kernel/hostname").await?.unwrap_or_default();
        match name.trim() {
            "" => Err("the kernel does not say the name of the host".to_owned()),
            name => Ok(name.to_owned()),
        }
    }

    /// The answer to a GET, if its status is 200. `headers`: names in lower case.
    ///
    /// # Errors
    /// The reason, with the URL.
    pub(super) async fn get(&self, url: &str, headers: &[(&str, &str)]) -> Result<Answer, String> {
        let answer = self.ask(url, headers, ANSWER_TIMEOUT, false).await;
        let answer = answer.map_err(|reason| format!("{url}: {reason}"))?;
        match answer.status {
            StatusCode::OK => Ok(answer),
            status => Err(format!("{url} answers {status}")),
        }
    }

    pub(super) async fn text(&self, url: &str, headers: &[(&str, &str)]) -> Result<String, String> {
        let answer = self.get(url, headers).await?;
        let text = String::from_utf8(answer.body.to_vec());
        text.map_err(|_| format!("{url} does not answer with a text"))
    }

    pub(super) async fn json(&self, url: &str, headers: &[(&str, &str)]) -> Result<Json, String> {
        json_of(url, &self.get(url, headers).await?)
    }

    /// The answer to a PUT of nothing, whatever its status.
    pub(super) async fn put(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        limit: Duration,
    ) -> Result<Answer, String> {
        self.ask(url, headers, limit, true).await
    }

    async fn ask(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        limit: Duration,
        puts: bool,
    ) -> Result<Answer, String> {
        let origin = Origin::of(url).map_err(|error| format!("the URL: {error}"))?;
        if origin.tls {
            return Err("TLS is not in this build for detectors".to_owned());
        }
        let headers = headers_of(headers)?;
        let client = client(origin.target);
        let answer = async {
            match puts {
                true => client.put(&origin.uri, &headers).await,
                false => client.get(&origin.uri, &headers).await,
            }
        };
        self.within(limit, answer).await?.map_err(|error| error.to_string())
    }

    /// The answer of a service at a socket of the file system, in JSON. `path`: with a slash.
    pub(super) async fn json_at(&self, socket: &Path, path: &str) -> Result<Json, String> {
        let shown = socket.display();
        let uri = format!("http://localhost{path}").parse::<Uri>();
        let uri = uri.map_err(|_| format!("{path:?} is no path"))?;
        let (client, headers) = (client(Target::Unix(socket.to_owned())), headers_of(&[])?);
        let answer = self.within(ANSWER_TIMEOUT, client.get(&uri, &headers)).await;
        let answer = answer.and_then(|answer| answer.map_err(|error| error.to_string()));
        let answer = answer.map_err(|reason| format!("{shown}: {reason}"))?;
        if answer.status != StatusCode::OK {
            return Err(format!("{shown} answers {} to {path}", answer.status));
        }
        json_of(shown, &answer)
    }
}

fn json_of(place: impl Display, answer: &Answer) -> Result<Json, String> {
    let read = serde_json::from_slice(&answer.body);
    read.map_err(|error| format!("{place} does not answer in JSON: {error}"))
}

/// Text that a JSON object has under a path of keys.
pub(super) fn text_in<'a>(json: &'a Json, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(json, |at, key| at.get(key))?.as_str()
}

fn client(target: Target) -> HttpClient {
    // No proxy reaches these services.
    let connect = ConnectOptions { connect_timeout: CONNECT_TIMEOUT, ..ConnectOptions::default() };
    let options = HttpOptions {
        connect,
        idle_connections: 0,
        keep_alive: false,
        http2: false,
        answer_limit_bytes: ANSWER_LIMIT_BYTES,
        ..HttpOptions::default()
    };
    HttpClient::new(target, options)
}

fn headers_of(pairs: &[(&str, &str)]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    for (name, value) in pairs {
        let name = HeaderName::from_bytes(name.as_bytes());
        let pair = name.ok().zip(HeaderValue::from_str(value).ok());
        let (name, value) = pair.ok_or("a header has characters that headers cannot have")?;
        headers.insert(name, value);
    }
    Ok(headers)
}

fn read(path: &Path) -> std::io::Result<Option<String>> {
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    // A device may not end.
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_LIMIT_BYTES).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}
