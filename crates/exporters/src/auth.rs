//! The extensions that authenticate requests to backends, and `headers_setter`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use sluice_config::{Fields, Secret};
use sluice_flow::Metadata;
use sluice_net::auth::client::{AuthError, BasicAuth, BearerAuth, ClientAuth, SecretSource};
use sluice_net::auth::oauth2::{OAuth2, OAuth2Options};
use sluice_net::client::{ConnectOptions, HttpClient, HttpOptions, Proxy, Target};

use crate::BuildError;
use crate::settings::TlsSection;

/// An extension that changes requests before they are sent.
#[derive(Clone, Debug)]
pub enum RequestAuth {
    Credentials(ClientAuth),
    HeadersSetter(Arc<HeadersSetter>),
}

impl RequestAuth {
    /// Puts headers into a request. `metadata` is what its senders' requests bore.
    pub async fn apply(&self, headers: &mut HeaderMap, metadata: &Metadata) -> Result<(), AuthError> {
        match self {
            RequestAuth::Credentials(auth) => auth.authenticate(headers).await,
            RequestAuth::HeadersSetter(setter) => {
                if let Some(auth) = &setter.additional {
                    auth.authenticate(headers).await?;
                }
                setter.apply(headers, metadata);
                Ok(())
            }
        }
    }

    /// The backend did not take the credentials.
    pub async fn refused(&self) {
        match self {
            RequestAuth::Credentials(auth) => auth.refused().await,
            RequestAuth::HeadersSetter(setter) => {
                if let Some(auth) = &setter.additional {
                    auth.refused().await;
                }
            }
        }
    }

    /// Names of the request metadata that it reads, in lower case.
    pub fn metadata_keys(&self) -> &[String] {
        match self {
            RequestAuth::Credentials(_) => &[],
            RequestAuth::HeadersSetter(setter) => &setter.metadata_keys,
        }
    }
}

/// What the configuration of such an extension says.
#[derive(Clone, Debug)]
pub enum AuthConfig {
    Basic(BasicConfig),
    Bearer(BearerConfig),
    OAuth2(Box<OAuth2Config>),
    HeadersSetter(HeadersSetterConfig),
}

/// `basicauth.client_auth`.
#[derive(Clone, Debug, Default)]
pub struct BasicConfig {
    pub username: String,
    pub username_file: Option<String>,
    pub password: Secret,
    pub password_file: Option<String>,
}

/// `bearertokenauth`. The receiving side uses the same options.
#[derive(Clone, Debug)]
pub struct BearerConfig {
    pub header: String,
    pub scheme: String,
    pub tokens: Vec<Secret>,
    pub filename: Option<String>,
}

/// `oauth2client`.
#[derive(Clone, Debug)]
pub struct OAuth2Config {
    pub token_url: String,
    pub client_id: String,
    pub client_id_file: Option<String>,
    pub client_secret: Secret,
    pub client_secret_file: Option<String>,
    pub scopes: Vec<String>,
    pub endpoint_params: Vec<(String, String)>,
    pub expiry_buffer: Duration,
    pub timeout: Duration,
    pub tls: TlsSection,
}

/// `headers_setter`.
#[derive(Clone, Debug, Default)]
pub struct HeadersSetterConfig {
    pub headers: Vec<HeaderRule>,
    /// Another extension whose headers are set first.
    pub additional_auth: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderAction {
    /// Only if the request does not have the header.
    Insert,
    /// Only if it has.
    Update,
    Upsert,
    Delete,
}

#[derive(Clone, Debug)]
pub struct HeaderRule {
    pub action: HeaderAction,
    pub key: HeaderName,
    pub value: Option<Secret>,
    pub from_context: Option<String>,
    pub default_value: Option<Secret>,
}

/// Kinds of extensions that this module reads. `basicauth` has a receiving side as well: read `client_auth` with
/// [`read_basic_client`] beside it.
pub const KINDS: [&str; 4] = ["basicauth", "bearertokenauth", "oauth2client", "headers_setter"];

/// Reads the options of an extension. `None` for kinds that are not among [`KINDS`].
pub fn read(kind: &str, fields: &mut Fields<'_>) -> Option<AuthConfig> {
    match kind {
        "basicauth" => Some(AuthConfig::Basic(read_basic_client(fields).unwrap_or_default())),
        "bearertokenauth" => Some(AuthConfig::Bearer(read_bearer(fields))),
        "oauth2client" => Some(AuthConfig::OAuth2(Box::new(read_oauth2(fields)))),
        "headers_setter" => Some(AuthConfig::HeadersSetter(read_headers_setter(fields))),
        _ => None,
    }
}

/// Reads `client_auth` of `basicauth`.
pub fn read_basic_client(fields: &mut Fields<'_>) -> Option<BasicConfig> {
    fields.section("client_auth", "How requests to backends are authenticated.", |fields| {
        let config = BasicConfig {
            username: fields.string("username", "", "User name."),
            username_file: file(fields, "username_file", "File with the user name; read again when it changes."),
            password: fields.secret("password", "Password.").unwrap_or_default(),
            password_file: file(fields, "password_file", "File with the password; read again when it changes."),
        };
        if config.username.is_empty() && config.username_file.is_none() {
            fields.error_missing("username");
        }
        config
    })
}

/// Reads `bearertokenauth`.
pub fn read_bearer(fields: &mut Fields<'_>) -> BearerConfig {
    let token = fields.secret("token", "The token.");
    let tokens =
        fields.secret_list("tokens", "More tokens: senders may show any, requests to backends show the first.");
    let filename = file(fields, "filename", "File with the token; read again when it changes. It wins over `token`.");
    let config = BearerConfig {
        header: fields.string("header", "Authorization", "The header that bears the token."),
        scheme: fields.string("scheme", "Bearer", "What stands before the token; may be empty."),
        tokens: token.into_iter().chain(tokens).collect(),
        filename,
    };
    if HeaderName::try_from(config.header.as_str()).is_err() {
        fields.error_at("header", "is no header name");
    }
    if config.tokens.is_empty() && config.filename.is_none() {
        fields.error_missing("token");
    }
    config
}

fn read_oauth2(fields: &mut Fields<'_>) -> OAuth2Config {
    let config = OAuth2Config {
        token_url: fields.required_string("token_url", "URL of the token endpoint."),
        client_id: fields.string("client_id", "", "The client's id."),
        client_id_file: file(fields, "client_id_file", "File with the client's id; read again when it changes."),
        client_secret: fields.secret("client_secret", "The client's secret.").unwrap_or_default(),
        client_secret_file: file(
            fields,
            "client_secret_file",
            "File with the client's secret; read again when it changes.",
        ),
        scopes: fields.string_list("scopes", &[], "Scopes to ask for."),
        endpoint_params: fields
            .string_map("endpoint_params", "Further parameters of the token request, such as `audience`."),
        expiry_buffer: fields.duration(
            "expiry_buffer",
            Duration::from_secs(300),
            "A token is replaced so long before its end.",
        ),
        timeout: fields.duration("timeout", Duration::from_secs(10), "For one request to the token endpoint."),
        tls: TlsSection::read(fields),
    };
    fields.not_yet("grant_type", "grants other than client credentials");
    if config.client_id.is_empty() && config.client_id_file.is_none() {
        fields.error_missing("client_id");
    }
    if !fields.is_describing() && !config.token_url.is_empty() && origin(&config.token_url).is_err() {
        fields.error_at("token_url", "is not a URL that starts with http:// or https://");
    }
    config
}

fn read_headers_setter(fields: &mut Fields<'_>) -> HeadersSetterConfig {
    const ACTIONS: [(&str, HeaderAction); 4] = [
        ("insert", HeaderAction::Insert),
        ("update", HeaderAction::Update),
        ("upsert", HeaderAction::Upsert),
        ("delete", HeaderAction::Delete),
    ];
    let headers = fields.sections("headers", "What is done with which headers, in this order.", |fields| {
        let action = fields.choice(
            "action",
            HeaderAction::Upsert,
            &ACTIONS,
            "`insert`: only if absent; `update`: only if there; `upsert`: either way; `delete`.",
        );
        let key = fields.required_string("key", "Name of the header.");
        let value = fields.secret("value", "A fixed value.");
        let from_context =
            fields.optional_string("from_context", "The request metadata of the sender that has the value.");
        let default_value = fields.secret("default_value", "The value where the sender's request did not have it.");
        fields.not_yet("value_file", "header values from files");
        fields.not_yet("from_attribute", "header values from authentication attributes");
        let sources = usize::from(value.is_some()) + usize::from(from_context.is_some());
        if action != HeaderAction::Delete && sources != 1 && !fields.is_describing() {
            fields.error("needs exactly one of `value` and `from_context`");
        }
        let name = HeaderName::try_from(key.as_str()).ok();
        if name.is_none() && !key.is_empty() {
            fields.error_at("key", "is no header name");
        }
        let from_context = from_context.map(|name| name.to_ascii_lowercase());
        name.map(|key| HeaderRule { action, key, value, from_context, default_value })
    });
    let additional_auth =
        fields.optional_string("additional_auth", "Another authentication extension whose headers are set first.");
    HeadersSetterConfig { headers: headers.into_iter().flatten().collect(), additional_auth }
}

fn file(fields: &mut Fields<'_>, key: &str, doc: &str) -> Option<String> {
    fields.optional_string(key, doc).filter(|path| !path.is_empty())
}

impl AuthConfig {
    /// Makes the extension. `others` are those made before, for `additional_auth`.
    pub fn build(&self, others: &HashMap<String, RequestAuth>) -> Result<RequestAuth, BuildError> {
        let auth = match self {
            AuthConfig::Basic(config) => ClientAuth::Basic(Arc::new(BasicAuth::new(
                source(config.username_file.as_ref(), &config.username),
                source(config.password_file.as_ref(), config.password.expose()),
            ))),
            AuthConfig::Bearer(config) => {
                let header = HeaderName::try_from(config.header.as_str()).unwrap_or(AUTHORIZATION);
                let token = config.tokens.first().map(Secret::expose).unwrap_or_default();
                let token = source(config.filename.as_ref(), token);
                ClientAuth::Bearer(Arc::new(BearerAuth::new(header, config.scheme.clone(), token)))
            }
            AuthConfig::OAuth2(config) => ClientAuth::OAuth2(Arc::new(config.build()?)),
            AuthConfig::HeadersSetter(config) => {
                let setter = HeadersSetter::new(config, others)?;
                return Ok(RequestAuth::HeadersSetter(Arc::new(setter)));
            }
        };
        Ok(RequestAuth::Credentials(auth))
    }
}

fn source(file: Option<&String>, fixed: &str) -> SecretSource {
    match file {
        Some(path) => SecretSource::file(path),
        None => SecretSource::fixed(fixed),
    }
}

/// The target of an `http://` or `https://` URL, and whether it is the latter.
pub(crate) fn origin(url: &str) -> Result<(Uri, Target, bool), BuildError> {
    let wrong = |reason: &str| BuildError::Url { url: url.to_owned(), reason: reason.to_owned() };
    let uri: Uri = url.parse().map_err(|_| wrong("it is not a URL"))?;
    let tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(wrong("it must start with http:// or https://")),
    };
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("it has no host"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
    Ok((uri, Target::Host { host, port }, tls))
}

impl OAuth2Config {
    fn build(&self) -> Result<OAuth2, BuildError> {
        let (token_url, target, tls) = origin(&self.token_url)?;
        let mut connect = ConnectOptions { connect_timeout: self.timeout, ..ConnectOptions::default() };
        if tls {
            connect.tls = Some(self.tls.build()?);
            connect.server_name = self.tls.options.server_name_override.clone();
        }
        connect.proxy = Proxy::from_environment(&target, tls).map_err(|reason| BuildError::Proxy { reason })?;
        let client = HttpClient::new(target, HttpOptions { connect, idle_connections: 1, ..HttpOptions::default() });
        let options = OAuth2Options {
            token_url,
            client_id: source(self.client_id_file.as_ref(), &self.client_id),
            client_secret: source(self.client_secret_file.as_ref(), self.client_secret.expose()),
            scopes: self.scopes.clone(),
            endpoint_params: self.endpoint_params.clone(),
            expiry_buffer: self.expiry_buffer,
            timeout: self.timeout,
        };
        Ok(OAuth2::new(options, client))
    }
}

/// Sets headers from fixed values and from the metadata of the requests that the data came with.
#[derive(Debug)]
pub struct HeadersSetter {
    rules: Vec<HeaderRule>,
    metadata_keys: Vec<String>,
    additional: Option<ClientAuth>,
}

impl HeadersSetter {
    fn new(config: &HeadersSetterConfig, others: &HashMap<String, RequestAuth>) -> Result<HeadersSetter, BuildError> {
        let additional = match &config.additional_auth {
            None => None,
            Some(name) => match others.get(name) {
                Some(RequestAuth::Credentials(auth)) => Some(auth.clone()),
                _ => return Err(BuildError::Authenticator { name: name.clone() }),
            },
        };
        let mut metadata_keys: Vec<String> =
            config.headers.iter().filter_map(|rule| rule.from_context.clone()).collect();
        metadata_keys.sort();
        metadata_keys.dedup();
        Ok(HeadersSetter { rules: config.headers.clone(), metadata_keys, additional })
    }

    fn apply(&self, headers: &mut HeaderMap, metadata: &Metadata) {
        for rule in &self.rules {
            if rule.action == HeaderAction::Delete {
                headers.remove(&rule.key);
                continue;
            }
            // As in the Collector, a value that is not there still makes the header, with an empty value.
            let value = rule.value(metadata).unwrap_or_else(|| HeaderValue::from_static(""));
            match (rule.action, headers.contains_key(&rule.key)) {
                (HeaderAction::Insert, true) | (HeaderAction::Update, false) => {}
                _ => {
                    headers.insert(rule.key.clone(), value);
                }
            }
        }
    }
}

impl HeaderRule {
    fn value(&self, metadata: &Metadata) -> Option<HeaderValue> {
        let bytes: &[u8] = match (&self.value, &self.from_context) {
            (Some(value), _) => value.expose().as_bytes(),
            (None, Some(name)) => match metadata.headers.iter().find(|(header, _)| header == name) {
                Some((_, value)) => value,
                None => self.default_value.as_ref()?.expose().as_bytes(),
            },
            (None, None) => return None,
        };
        let mut value = HeaderValue::from_bytes(bytes).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use sluice_config::read_text;

    use super::*;

    async fn applied(
        text: &str,
        headers: &[(&'static str, &'static str)],
        metadata: &[(&str, &str)],
    ) -> Vec<(String, String)> {
        let (config, diagnostics) =
            read_text("extensions.headers_setter", text, |fields| read("headers_setter", fields));
        assert!(diagnostics.errors().next().is_none(), "{text}");
        let auth = config.expect("a known kind").build(&HashMap::new()).expect("builds");
        let mut map: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let headers = metadata.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect();
        auth.apply(&mut map, &Metadata { peer: None, headers }).await.expect("applies");
        let mut found: Vec<_> =
            map.iter().map(|(name, value)| (name.to_string(), value.to_str().expect("ASCII").to_owned())).collect();
        found.sort();
        found
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    /// Scenario: the four actions, on headers that are there and that are not.
    /// Guarantee: each does what its name says, with the sender's value, the default, or the fixed value.
    #[tokio::test]
    async fn headers_are_set_as_configured() {
        let text = "headers: [{action: insert, key: a, value: new}, {action: update, key: b, value: new}, {action: upsert, key: X-Scope-OrgID, from_context: Tenant, default_value: nobody}, {action: delete, key: gone}]";
        let existing = [("a", "old"), ("gone", "x")];
        let found = applied(text, &existing, &[("tenant", "blue")]).await;
        assert_eq!(found, [pair("a", "old"), pair("x-scope-orgid", "blue")]);
        let found = applied(text, &[("b", "old")], &[]).await;
        assert_eq!(found, [pair("a", "new"), pair("b", "new"), pair("x-scope-orgid", "nobody")]);
    }

    /// Scenario: `tokens` as the Collector has them, alone and beside `token`.
    /// Guarantee: all are known, in their order; what is no list is an error.
    #[test]
    fn bearer_tokens_are_a_list() {
        for (text, expected) in
            [("tokens: [a, b]", &["a", "b"][..]), ("{token: t, tokens: [a]}", &["t", "a"]), ("token: t", &["t"])]
        {
            let (config, diagnostics) = read_text("extensions.bearertokenauth", text, read_bearer);
            assert!(diagnostics.errors().next().is_none(), "{text}");
            assert_eq!(config.tokens.iter().map(Secret::expose).collect::<Vec<_>>(), expected, "{text}");
        }
    }

    /// Scenario: mistakes in every extension. Guarantee: each is an error.
    #[test]
    fn mistakes_are_errors() {
        for (kind, text) in [
            ("headers_setter", "headers: [{action: upsert, key: a}]"),
            ("headers_setter", "headers: [{key: a, value: x, from_context: y}]"),
            ("headers_setter", "headers: [{key: 'a b', value: x}]"),
            ("bearertokenauth", "{}"),
            ("bearertokenauth", "tokens: []"),
            ("bearertokenauth", "tokens: {a: b}"),
            ("bearertokenauth", "{token: x, header: 'a b'}"),
            ("basicauth", "client_auth: {password: x}"),
            ("oauth2client", "{token_url: 'ftp://x', client_id: a}"),
            ("oauth2client", "{token_url: 'https://x/token'}"),
            ("oauth2client", "{client_id: a}"),
        ] {
            let (_, diagnostics) = read_text("extensions.x", text, |fields| read(kind, fields));
            assert!(diagnostics.errors().next().is_some(), "{kind}: {text}");
        }
    }
}
