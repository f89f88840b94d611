//! Where the API server is, and who we are.

use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderName, HeaderValue, Uri};
use kube::Config;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};

use crate::session::{Session, shown};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The namespace of the pod that a process is in.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// Larger files are no certificates, tokens or kubeconfigs.
const FILE_LIMIT_BYTES: u64 = 4 << 20;

/// How to find the API server, and credentials for it.
#[derive(Clone, Debug)]
pub enum Access {
    /// The service account of the pod that the process is in.
    ServiceAccount,
    /// The API server of the cluster that the process is in, without credentials. Its certificate
    /// is not checked, as in the Collector.
    Anonymous,
    /// `None`: the files that `KUBECONFIG` names, or `~/.kube/config`, and its current context.
    Kubeconfig {
        file: Option<PathBuf>,
        context: Option<String>,
    },
    Server(Arc<dyn ServerSource>),
}

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An API server that options name, whose secrets are read for each connection.
pub trait ServerSource: Send + Sync + fmt::Debug {
    /// # Errors
    /// A file cannot be read.
    fn server(&self) -> BoxFuture<'_, Result<Server, String>>;
}

/// PEM data.
#[derive(Clone, Debug)]
pub enum Pem {
    /// Read again now and then.
    File(PathBuf),
    Text(Vec<u8>),
}

/// An API server as options name it, and credentials for it.
#[derive(Clone)]
pub struct Server {
    pub url: String,
    /// The authorities that may sign its certificate. `None`: the system's.
    pub authorities: Option<Pem>,
    /// Our certificate and its key.
    pub identity: Option<(Pem, Pem)>,
    pub insecure_skip_verify: bool,
    /// The name that its certificate must have, instead of the URL's host.
    pub server_name: Option<String>,
    pub credentials: Credentials,
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// Credentials for an API server.
#[derive(Clone)]
pub enum Credentials {
    None,
    Basic {
        user: String,
        password: String,
    },
    /// A token in a file, which is read again at least once a minute.
    TokenFile(PathBuf),
    /// The whole value of the header `Authorization`.
    Header(HeaderValue),
}

impl Access {
    /// A client of the API server.
    ///
    /// # Errors
    /// A file or a variable of the environment cannot be used.
    pub(crate) async fn connect(&self) -> Result<Session, String> {
        let mut config = match self {
            Access::ServiceAccount => {
                Config::incluster().map_err(|error| in_cluster(&shown(&error)))?
            }
            Access::Anonymous => {
                let host = std::env::var("KUBERNETES_SERVICE_HOST").unwrap_or_default();
                let port = std::env::var("KUBERNETES_SERVICE_PORT").unwrap_or_default();
                if host.is_empty() || port.is_empty() {
                    return Err(in_cluster(
                        "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set",
                    ));
                }
                let host = if host.contains(':') { format!("[{host}]") } else { host };
                let mut config = Config::new(uri(&format!("https://{host}:{port}"))?);
                config.accept_invalid_certs = true;
                config
            }
            Access::Kubeconfig { file, context } => {
                let context = context.clone().filter(|context| !context.is_empty());
                let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
                let read = match file {
                    Some(file) => {
                        let read = Kubeconfig::read_from(file);
                        let read = read.map_err(|error| first_line(&shown(&error)))?;
                        Config::from_custom_kubeconfig(read, &options).await
                    }
                    None => Config::from_kubeconfig(&options).await,
                };
                read.map_err(|error| {
                    format!("the kubeconfig cannot be used: {}", first_line(&shown(&error)))
                })?
            }
            Access::Server(source) => source.server().await?.config()?,
        };
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        // `watch` waits as long as the API server asks, and says why.
        config.default_retry = false;
        Session::new(config)
    }
}

impl Server {
    fn config(self) -> Result<Config, String> {
        let mut config = Config::new(uri(&self.url)?);
        config.accept_invalid_certs = self.insecure_skip_verify;
        config.tls_server_name = self.server_name;
        config.headers = self.headers;
        match self.authorities {
            None => {}
            Some(Pem::File(path)) => config.root_cert_file = Some(path),
            Some(Pem::Text(text)) => config.root_cert = Some(certificates(&text)?),
        }
        // The verifier that follows the file needs no list; kube asks for one all the same.
        if config.root_cert_file.is_some() {
            config.root_cert = Some(Vec::new());
        }
        let mut who = AuthInfo::default();
        if let Some((certificate, key)) = self.identity {
            who.client_certificate_data = Some(BASE64_STANDARD.encode(certificate.bytes()?));
            who.client_key_data = Some(BASE64_STANDARD.encode(key.bytes()?).into());
        }
        match self.credentials {
            Credentials::None => {}
            Credentials::Basic { user, password } => {
                who.username = Some(user);
                who.password = Some(password.into());
            }
            Credentials::TokenFile(path) => {
                let text = String::from_utf8(read(&path)?);
                let text = text.map_err(|_| format!("{} is not UTF-8 text", path.display()))?;
                // kube takes the file as it is: a line's end would not be a header's.
                if text.trim() == text {
                    who.token_file = Some(path.to_string_lossy().into_owned());
                } else {
                    who.token = Some(text.trim().to_owned().into());
                }
            }
            Credentials::Header(mut value) => {
                value.set_sensitive(true);
                config.headers.push((http::header::AUTHORIZATION, value));
            }
        }
        config.auth_info = who;
        Ok(config)
    }
}

impl Pem {
    fn bytes(&self) -> Result<Vec<u8>, String> {
        match self {
            Pem::Text(text) => Ok(text.clone()),
            Pem::File(path) => read(path),
        }
    }
}

/// The namespace of the pod that the process is in.
///
/// # Errors
/// It is in none.
pub fn own_namespace() -> Result<String, String> {
    let bytes = read(Path::new(NAMESPACE_FILE)).map_err(|error| in_cluster(&error))?;
    let name = String::from_utf8_lossy(&bytes).trim().to_owned();
    if name.is_empty() { Err(in_cluster("the name of its namespace is empty")) } else { Ok(name) }
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(FILE_LIMIT_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_LIMIT_BYTES {
        return Err(format!("cannot read {}: it is too large", path.display()));
    }
    Ok(bytes)
}

/// The certificates in PEM text.
fn certificates(text: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let text = String::from_utf8_lossy(text);
    let blocks = text.split(BEGIN).skip(1).map(|block| {
        let body = block.split_once(END).map(|(body, _)| body);
        let packed: String = body?.split_ascii_whitespace().collect();
        BASE64_STANDARD.decode(packed).ok()
    });
    let found: Option<Vec<Vec<u8>>> = blocks.collect();
    let found = found.filter(|found| !found.is_empty());
    found.ok_or_else(|| "the authorities' certificates are not PEM text".to_owned())
}

fn uri(text: &str) -> Result<Uri, String> {
    text.parse().map_err(|error| format!("the URL of the API server cannot be used: {error}"))
}

fn in_cluster(reason: &str) -> String {
    format!(
        "the process has no service account of a pod ({reason}): run it in a pod, or name a \
         kubeconfig"
    )
}

/// Behind it, errors of YAML show lines of the file, which may have secrets.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
