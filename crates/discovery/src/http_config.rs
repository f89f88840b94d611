//! The options of Prometheus' HTTP clients: of scrapes, and of sources that are asked over HTTP.

use std::path::PathBuf;

use http::HeaderName;
use rustls::ProtocolVersion::{self, TLSv1_2, TLSv1_3};
use sluice_config::{Fields, Secret};
use sluice_net::client::Proxy;
use sluice_net::tls::{ClientTlsOptions, Pem, TlsOptions};

/// How requests are made.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpConfig {
    pub credentials: Option<Credentials>,
    pub tls: ClientTlsOptions,
    pub follow_redirects: bool,
    /// Offer HTTP/2 in TLS handshakes.
    pub http2: bool,
    pub proxy: ProxyConfig,
    /// More headers of each request; a name may be repeated.
    pub headers: Vec<(HeaderName, SecretSource)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProxyConfig {
    #[default]
    None,
    /// `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`.
    Environment,
    Url(Proxy),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Credentials {
    Basic {
        user: SecretSource,
        password: SecretSource,
    },
    /// `authorization`: a scheme, `Bearer` by default, and what follows it.
    Header {
        scheme: String,
        credentials: SecretSource,
    },
    OAuth2(Box<OAuth2>),
}

/// A text of the configuration, or the path of a file that is read when it is needed: its text
/// without white space at both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    Inline(Secret),
    File(PathBuf),
}

/// The grant `client_credentials` of OAuth 2.0.
#[derive(Clone, Debug, PartialEq)]
pub struct OAuth2 {
    pub client_id: String,
    pub client_secret: SecretSource,
    pub token_url: String,
    pub scopes: Vec<String>,
    pub endpoint_params: Vec<(String, Secret)>,
    pub tls: ClientTlsOptions,
    pub proxy: ProxyConfig,
}

impl Default for HttpConfig {
    fn default() -> HttpConfig {
        HttpConfig {
            credentials: None,
            tls: ClientTlsOptions::default(),
            follow_redirects: true,
            http2: true,
            proxy: ProxyConfig::None,
            headers: Vec::new(),
        }
    }
}

/// Headers that requests set themselves.
const RESERVED: [&str; 19] = [
    "authorization",
    "host",
    "content-encoding",
    "content-length",
    "content-type",
    "user-agent",
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "www-authenticate",
    "accept-encoding",
    "transfer-encoding",
    "x-prometheus-remote-write-version",
    "x-prometheus-remote-read-version",
    "x-prometheus-scrape-timeout-seconds",
    "x-amz-date",
    "x-amz-security-token",
    "x-amz-content-sha256",
];

const NO_SECRET_MANAGER: &str = "a secret manager";

impl HttpConfig {
    /// Reads the options, which stand among others of the section.
    pub fn read(fields: &mut Fields<'_>) -> HttpConfig {
        let credentials = Credentials::read(fields);
        let tls = read_tls(fields);
        let doc = "Follow redirects.";
        let follow_redirects = fields.boolean("follow_redirects", true, doc);
        let http2 = fields.boolean("enable_http2", true, "Offer HTTP/2 in TLS handshakes.");
        let proxy = ProxyConfig::read(fields);
        let headers = read_headers(fields);
        HttpConfig { credentials, tls, follow_redirects, http2, proxy, headers }
    }
}

impl Credentials {
    fn read(fields: &mut Fields<'_>) -> Option<Credentials> {
        let basic = fields.section("basic_auth", "A user and a password.", read_basic);
        let doc = "The header `Authorization`.";
        let header = fields.section("authorization", doc, read_authorization);
        let oauth2 = fields.section("oauth2", "Tokens of OAuth 2.0.", OAuth2::read);
        let oauth2 = oauth2.map(|oauth2| Credentials::OAuth2(Box::new(oauth2)));
        let doc = "Token for `Authorization: Bearer`";
        let bearer = SecretSource::read(fields, "bearer_token", doc);
        let bearer = bearer
            .map(|credentials| Credentials::Header { scheme: "Bearer".to_owned(), credentials });
        let given = [("basic_auth", basic.flatten()), ("authorization", header.flatten())];
        let given = given.into_iter().chain([("oauth2", oauth2), ("bearer_token", bearer)]);
        let mut given = given.filter_map(|(key, found)| Some((key, found?)));
        let (first, found) = given.next()?;
        if let Some((second, _)) = given.next() {
            fields.error(&format!("has `{first}` and `{second}`: only one of them can be used"));
        }
        Some(found)
    }
}

fn read_basic(fields: &mut Fields<'_>) -> Option<Credentials> {
    let user = SecretSource::read(fields, "username", "The user");
    let password = SecretSource::read(fields, "password", "The password");
    let empty = || SecretSource::Inline(Secret::default());
    let (user, password) = (user.unwrap_or_else(empty), password.unwrap_or_else(empty));
    Some(Credentials::Basic { user, password })
}

fn read_authorization(fields: &mut Fields<'_>) -> Option<Credentials> {
    let scheme = fields.string("type", "Bearer", "The scheme.").trim().to_owned();
    let scheme = if scheme.is_empty() { "Bearer".to_owned() } else { scheme };
    if scheme.eq_ignore_ascii_case("basic") {
        fields.error_at_with_hint("type", "cannot be `basic`", "use `basic_auth`");
    }
    let credentials = SecretSource::read(fields, "credentials", "What follows the scheme");
    if credentials.is_none() {
        fields.error("needs `credentials` or `credentials_file`");
    }
    Some(Credentials::Header { scheme, credentials: credentials? })
}

impl SecretSource {
    /// Reads `key` and `key_file`; `key_ref` is a secret manager's.
    fn read(fields: &mut Fields<'_>, key: &str, what: &str) -> Option<SecretSource> {
        let inline = fields.secret(key, &format!("{what}."));
        let doc = format!("{what}, in a file. It is read for each request.");
        let file = fields.non_empty_string(&format!("{key}_file"), &doc);
        fields.not_yet(&format!("{key}_ref"), NO_SECRET_MANAGER);
        let inline = inline.filter(|inline| !inline.expose().is_empty());
        if inline.is_some() && file.is_some() {
            let message = format!("is there together with `{key}_file`: only one can be used");
            fields.error_at(key, &message);
        }
        let file = file.map(|path| SecretSource::File(path.into()));
        inline.map(SecretSource::Inline).or(file)
    }
}

impl OAuth2 {
    fn read(fields: &mut Fields<'_>) -> OAuth2 {
        let client_id = fields.required_string("client_id", "Who we are.");
        let client_secret = SecretSource::read(fields, "client_secret", "The client's secret");
        let grant = |text: &str| match text {
            "" | "client_credentials" => Ok(()),
            _ => Err("this build of Sluice has only `client_credentials`".to_owned()),
        };
        fields.text("grant_type", "a grant", None, "`client_credentials`.", grant);
        for key in [
            "client_certificate_key_id",
            "client_certificate_key",
            "client_certificate_key_file",
            "client_certificate_key_ref",
            "signature_algorithm",
            "iss",
            "audience",
            "claims",
        ] {
            fields.not_yet(key, "the grant `jwt-bearer`");
        }
        let scopes = fields.string_list("scopes", &[], "Scopes of the token.");
        let token_url = fields.required_string("token_url", "URL that gives tokens.");
        let doc = "More parameters of the request for a token.";
        let endpoint_params = fields.secret_map("endpoint_params", doc);
        let tls = read_tls(fields);
        let proxy = ProxyConfig::read(fields);
        let client_secret =
            client_secret.unwrap_or_else(|| SecretSource::Inline(Secret::default()));
        OAuth2 { client_id, client_secret, token_url, scopes, endpoint_params, tls, proxy }
    }
}

impl ProxyConfig {
    fn read(fields: &mut Fields<'_>) -> ProxyConfig {
        let doc = "Proxy: `http://host:port`, with user and password if it wants them.";
        let url = fields.secret("proxy_url", doc);
        let doc = "Use the proxy that `HTTPS_PROXY` or `HTTP_PROXY` name, unless `NO_PROXY` \
                   excludes the target.";
        let from_environment = fields.boolean("proxy_from_environment", false, doc);
        let only_environment = "exceptions from a proxy are those of the environment: \
                                `proxy_from_environment`";
        fields.not_yet("no_proxy", only_environment);
        fields.not_yet("proxy_connect_header", "headers for proxies");
        let proxy = ProxyConfig::of(fields, url);
        if from_environment && proxy != ProxyConfig::None {
            fields.error_at("proxy_url", "is there together with `proxy_from_environment`");
        }
        if from_environment { ProxyConfig::Environment } else { proxy }
    }

    /// The proxy that the option `proxy_url` names.
    pub(crate) fn of(fields: &mut Fields<'_>, url: Option<Secret>) -> ProxyConfig {
        let url = url.filter(|url| !url.expose().is_empty());
        match url.map(|url| Proxy::parse(url.expose())) {
            None => ProxyConfig::None,
            Some(Ok(proxy)) => ProxyConfig::Url(proxy),
            Some(Err(reason)) => {
                fields.error_at("proxy_url", &format!("cannot be used: {reason}"));
                ProxyConfig::None
            }
        }
    }
}

fn read_tls(fields: &mut Fields<'_>) -> ClientTlsOptions {
    fields.section_or_default("tls_config", "TLS of connections.", |fields| {
        let doc = "Authorities that may sign the server's certificate (by default the system's)";
        let authorities = Pem::read(fields, "ca_file", "ca", doc);
        let certificate = Pem::read(fields, "cert_file", "cert", "Our certificate and its chain");
        let key = Pem::read(fields, "key_file", "key", "The private key of our certificate");
        for key in ["ca_ref", "cert_ref", "key_ref"] {
            fields.not_yet(key, NO_SECRET_MANAGER);
        }
        let doc = "Name that the server's certificate must have, instead of the target's host.";
        let server_name_override = fields.non_empty_string("server_name", doc);
        let doc = "Accept any certificate: the server may be an impostor.";
        let insecure_skip_verify = fields.boolean("insecure_skip_verify", false, doc);
        let min_version = read_version(fields, "min_version", TLSv1_2, "Lowest TLS version.");
        let max_version = read_version(fields, "max_version", TLSv1_3, "Highest TLS version.");
        if u16::from(min_version) > u16::from(max_version) {
            fields.error_at("min_version", "is above `max_version`");
        }
        match (&certificate, &key) {
            (Some(_), None) => fields.error("has `cert_file` without `key_file`"),
            (None, Some(_)) => fields.error("has `key_file` without `cert_file`"),
            _ => {}
        }
        let common = TlsOptions {
            certificate,
            key,
            authorities,
            min_version,
            max_version,
            ..TlsOptions::default()
        };
        let insecure = false;
        ClientTlsOptions { common, insecure, insecure_skip_verify, server_name_override }
    })
}

fn read_version(
    fields: &mut Fields<'_>,
    key: &str,
    default: ProtocolVersion,
    doc: &str,
) -> ProtocolVersion {
    let doc = format!("{doc} `TLS10` and `TLS11` count as `TLS12`, with a warning.");
    let versions =
        [("TLS12", Some(TLSv1_2)), ("TLS13", Some(TLSv1_3)), ("TLS11", None), ("TLS10", None)];
    match fields.optional_choice(key, &versions, &doc) {
        Some(Some(version)) => version,
        Some(None) => {
            fields.warn_at(key, "counts as `TLS12`: Sluice has no older version of TLS");
            TLSv1_2
        }
        None => default,
    }
}

fn read_headers(fields: &mut Fields<'_>) -> Vec<(HeaderName, SecretSource)> {
    let doc = "More headers of each request, with `values`, `secrets`, and `files` that have \
               the value.";
    let headers = fields.named_sections("http_headers", doc, |name, fields| {
        let values = fields.texts("values", "Values.");
        let secrets = fields.secret_list("secrets", "Values that are not shown.");
        let files = fields.texts("files", "Files with a value each, read for each request.");
        let header = HeaderName::try_from(name).ok();
        let header = header.filter(|header| !RESERVED.contains(&header.as_str()));
        if header.is_none() {
            fields.error("is not the name of a header that can be set");
        }
        let Some(header) = header else { return Vec::new() };
        let values = values.into_iter().map(|value| SecretSource::Inline(Secret::new(value)));
        let secrets = secrets.into_iter().map(SecretSource::Inline);
        let files = files.into_iter().map(|path| SecretSource::File(path.into()));
        values.chain(secrets).chain(files).map(|value| (header.clone(), value)).collect()
    });
    headers.into_iter().flatten().collect()
}
