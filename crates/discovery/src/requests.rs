//! Connections and headers of requests, as [`HttpConfig`] says.

use std::path::Path;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use sluice_net::auth::client::basic_credentials;
use sluice_net::client::{ConnectOptions, Origin, Proxy};
use sluice_net::reload::read_bounded;
use sluice_net::tls::{ClientTls, ClientTlsOptions};

use crate::http_config::{Credentials, HttpConfig, OAuth2, ProxyConfig, SecretSource};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl HttpConfig {
    /// TLS of its connections, for all servers. Reads the files of certificates.
    ///
    /// # Errors
    /// The files cannot be used.
    pub fn client_tls(&self) -> Result<ClientTls, String> {
        client_tls(&self.tls)
    }

    /// Connections to a server. `tls`: of [`HttpConfig::client_tls`], if the server wants it.
    ///
    /// # Errors
    /// The environment names a proxy that cannot be used.
    pub fn connect(
        &self,
        origin: &Origin,
        tls: Option<ClientTls>,
    ) -> Result<ConnectOptions, String> {
        connect(&self.proxy, origin, tls)
    }

    /// Adds `http_headers`, and the header `Authorization` unless that takes a token of OAuth 2.0,
    /// which the caller has to fetch. Values are marked as sensitive.
    ///
    /// # Errors
    /// A file cannot be read, or its content is no header.
    pub async fn add_headers(&self, headers: &mut HeaderMap) -> Result<(), String> {
        for (name, source) in &self.headers {
            headers.append(name, header(&source.text().await?)?);
        }
        let authorization = match &self.credentials {
            None | Some(Credentials::OAuth2(_)) => return Ok(()),
            Some(Credentials::Basic { user, password }) => {
                basic_credentials(format!("{}:{}", user.text().await?, password.text().await?))
            }
            Some(Credentials::Header { scheme, credentials }) => {
                format!("{scheme} {}", credentials.text().await?)
            }
        };
        headers.insert(AUTHORIZATION, header(&authorization)?);
        Ok(())
    }
}

impl OAuth2 {
    /// Connections to the server of tokens. Reads the files of certificates.
    ///
    /// # Errors
    /// These files, or the proxy that the environment names, cannot be used.
    pub fn connect(&self, origin: &Origin) -> Result<ConnectOptions, String> {
        let tls = if origin.tls { Some(client_tls(&self.tls)?) } else { None };
        connect(&self.proxy, origin, tls)
    }
}

fn client_tls(options: &ClientTlsOptions) -> Result<ClientTls, String> {
    ClientTls::new(options.clone()).map_err(|error| format!("tls: {error}"))
}

fn connect(
    proxy: &ProxyConfig,
    origin: &Origin,
    tls: Option<ClientTls>,
) -> Result<ConnectOptions, String> {
    let proxy = match proxy {
        ProxyConfig::None => Ok(None),
        ProxyConfig::Environment => Proxy::from_environment(&origin.target, origin.tls),
        ProxyConfig::Url(proxy) => Ok(Some(proxy.clone())),
    };
    let proxy = proxy.map_err(|reason| format!("the proxy cannot be used: {reason}"))?;
    Ok(ConnectOptions { connect_timeout: CONNECT_TIMEOUT, tls, proxy, ..ConnectOptions::default() })
}

/// A value that is not shown.
fn header(text: &str) -> Result<HeaderValue, String> {
    let value = HeaderValue::from_str(text);
    let mut value =
        value.map_err(|_| "a header has characters that no header may have".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

impl SecretSource {
    /// The text; that of a file is without white space at both ends.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn text(&self) -> Result<String, String> {
        let path = match self {
            SecretSource::Inline(secret) => return Ok(secret.expose().to_owned()),
            SecretSource::File(path) => path.clone(),
        };
        let read = move || secret_in(&path);
        tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?
    }
}

fn secret_in(path: &Path) -> Result<String, String> {
    let failed = |why: &dyn std::fmt::Display| format!("cannot read {}: {why}", path.display());
    let bytes = read_bounded(path).map_err(|error| failed(&error))?;
    let text = String::from_utf8(bytes).map_err(|_| failed(&"it is not UTF-8 text"))?;
    Ok(text.trim().to_owned())
}
