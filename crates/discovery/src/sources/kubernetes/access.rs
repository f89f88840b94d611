//! The API server that the options name.

use sluice_kubernetes::{Access, BoxFuture, Credentials, Pem, Server, ServerSource};
use sluice_net::tls;

use crate::http_config::{self, HttpConfig, SecretSource};
use crate::scrape_config::KubernetesSd;

pub(super) fn of(config: &KubernetesSd) -> Access {
    if let Some(origin) = &config.api_server {
        let url = origin.uri.to_string();
        return Access::Server(std::sync::Arc::new(Configured { url, http: config.http.clone() }));
    }
    match &config.kubeconfig_file {
        Some(file) => Access::Kubeconfig { file: Some(file.into()), context: None },
        None => Access::ServiceAccount,
    }
}

#[derive(Debug)]
struct Configured {
    url: String,
    http: HttpConfig,
}

impl ServerSource for Configured {
    fn server(&self) -> BoxFuture<'_, Result<Server, String>> {
        Box::pin(self.read())
    }
}

impl Configured {
    async fn read(&self) -> Result<Server, String> {
        let HttpConfig { credentials, tls, headers, .. } = &self.http;
        let mut more = Vec::new();
        for (name, source) in headers {
            more.push((name.clone(), header(&source.text().await?)?));
        }
        let credentials = match credentials {
            None => Credentials::None,
            Some(http_config::Credentials::Basic { user, password }) => {
                Credentials::Basic { user: user.text().await?, password: password.text().await? }
            }
            Some(http_config::Credentials::Header { scheme, credentials }) => match credentials {
                // The token of a service account, which changes every hour.
                SecretSource::File(path) if scheme == "Bearer" => {
                    Credentials::TokenFile(path.clone())
                }
                source => {
                    Credentials::Header(header(&format!("{scheme} {}", source.text().await?))?)
                }
            },
            Some(http_config::Credentials::OAuth2(_)) => {
                return Err("tokens of OAuth 2.0 cannot be used here".to_owned());
            }
        };
        let common = &tls.common;
        let identity = common.certificate.as_ref().zip(common.key.as_ref());
        Ok(Server {
            url: self.url.clone(),
            authorities: common.authorities.as_ref().map(pem),
            identity: identity.map(|(certificate, key)| (pem(certificate), pem(key))),
            insecure_skip_verify: tls.insecure_skip_verify,
            server_name: tls.server_name_override.clone(),
            credentials,
            headers: more,
        })
    }
}

fn pem(source: &tls::Pem) -> Pem {
    match source {
        tls::Pem::File(path) => Pem::File(path.clone()),
        tls::Pem::Inline(text) => Pem::Text(text.expose().as_bytes().to_vec()),
    }
}

fn header(text: &str) -> Result<http::HeaderValue, String> {
    let value = http::HeaderValue::from_str(text);
    let mut value =
        value.map_err(|_| "a header has characters that no header may have".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}
