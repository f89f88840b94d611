//! The target of a client's connections, as configurations write it.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use http::Uri;
use sluice_config::shown_url;

/// A host and port to resolve, or a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Host { host: String, port: u16 },
    Unix(PathBuf),
}

/// An endpoint of a gRPC client: `host:port`, `http(s)://host:port`, `dns:///host:port`,
/// `passthrough:///host:port`, `unix:/path` or `unix:///path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub target: Target,
    /// Whether its prefix says to use TLS, if it says anything.
    pub tls: Option<bool>,
}

/// The endpoint itself is not shown: all before the `@` may be a password.
const NOT_SENT: &str =
    "has a user or a password, which Sluice does not send: set them in the extension `basicauth`";

/// Why an endpoint cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the endpoint {0}")]
pub struct EndpointError(String);

impl Endpoint {
    pub fn parse(text: &str) -> Result<Endpoint, EndpointError> {
        // Errors show it.
        let shown = shown_url(text);
        let (rest, tls) = match split_scheme(text) {
            ("unix", "") => return Err(EndpointError(format!("{shown:?} has no host"))),
            ("unix", path) => {
                let target = Target::Unix(PathBuf::from(path));
                return Ok(Endpoint { target, tls: None });
            }
            _ if text.contains('@') => return Err(EndpointError(NOT_SENT.to_owned())),
            ("http", rest) => (rest, Some(false)),
            ("https", rest) => (rest, Some(true)),
            ("dns" | "passthrough", rest) => (rest.trim_start_matches('/'), None),
            ("", rest) => (rest, None),
            (scheme, _) => {
                return Err(EndpointError(format!(
                    "{shown:?} starts with {scheme:?}; http, https, dns, passthrough and unix are \
                     known"
                )));
            }
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if let Some(at) = rest.find('/') {
            let path = shown_url(&rest[at..]);
            return Err(EndpointError(format!(
                "{shown:?} has a path ({path:?}), which gRPC does not know"
            )));
        }
        let (host, port) = split_host_port(rest, &shown)?;
        let port = port.ok_or_else(|| EndpointError(format!("{shown:?} has no port")))?;
        Ok(Endpoint { target: Target::Host { host, port }, tls })
    }
}

fn split_scheme(text: &str) -> (&str, &str) {
    if let Some((scheme, rest)) = text.split_once("://") {
        return (scheme, rest);
    }
    // `dns:host:port` and `unix:path` have no slashes. A host called "dns" has a port instead.
    match text.split_once(':') {
        Some(("unix", path)) => ("unix", path),
        Some((scheme @ ("dns" | "passthrough"), rest)) if rest.contains(':') => (scheme, rest),
        _ => ("", text),
    }
}

/// Splits `host:port`, `[v6]:port`, `host` and `[v6]`. The host comes back without brackets.
/// `endpoint` is for error messages.
pub(crate) fn split_host_port(
    text: &str,
    endpoint: &str,
) -> Result<(String, Option<u16>), EndpointError> {
    let brackets = || EndpointError(format!("{endpoint:?} has an IPv6 address without brackets"));
    if text.is_empty() {
        return Err(EndpointError("is empty".to_owned()));
    }
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or_else(brackets)?)),
        None => match text.split_once(':') {
            Some((_, rest)) if rest.contains(':') => return Err(brackets()),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(EndpointError(format!("{endpoint:?} has no host")));
    }
    let number = |port: &str| match port.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(EndpointError(format!(
            "{endpoint:?} has the port {:?}, which is not a number from 1 to 65535",
            shown_url(port)
        ))),
    };
    Ok((host.to_owned(), port.map(number).transpose()?))
}

/// A host as it stands in URLs: IPv6 addresses have brackets there.
pub(super) fn in_brackets(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

impl Target {
    /// The value of `:authority` and `host` if nothing else is configured.
    pub fn authority(&self) -> String {
        match self {
            Target::Host { host, port } => format!("{}:{port}", in_brackets(host)),
            Target::Unix(_) => "localhost".to_owned(),
        }
    }

    /// The name that the peer's certificate has to bear.
    pub fn server_name(&self) -> &str {
        match self {
            Target::Host { host, .. } => host,
            Target::Unix(_) => "localhost",
        }
    }

    /// The address itself, if there is nothing to resolve.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Target::Host { host, .. } => host.parse().ok(),
            Target::Unix(_) => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Host { .. } => formatter.write_str(&self.authority()),
            Target::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// An `http://` or `https://` URL, and the server that it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub uri: Uri,
    pub target: Target,
    /// The scheme is `https`.
    pub tls: bool,
}

/// Why a URL cannot be used. The URL itself is not shown: it may contain a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("it {NOT_SENT}; an `@` in its path is written `%40`")]
    Credentials,
    #[error("it {0}")]
    Other(&'static str),
}

impl Origin {
    pub fn of(url: &str) -> Result<Origin, UrlError> {
        use UrlError::Other;
        // Wherever the `@` is: a password with `/`, `?` or `#` would make the user the host.
        if url.contains('@') {
            return Err(UrlError::Credentials);
        }
        let uri: Uri = url.parse().map_err(|_| Other("is not a URL"))?;
        let (tls, default_port) = match uri.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            _ => return Err(Other("must start with http:// or https://")),
        };
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let host = uri.host().filter(|host| !host.is_empty()).ok_or(Other("has no host"))?;
        let port = match authority[host.len()..].strip_prefix(':').unwrap_or_default() {
            "" => default_port,
            port => port.parse().map_err(|_| Other("has a port that is not a number"))?,
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Origin { uri, target: Target::Host { host, port }, tls })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(host: &str, port: u16, tls: Option<bool>) -> Result<Endpoint, EndpointError> {
        Ok(Endpoint { target: Target::Host { host: host.to_owned(), port }, tls })
    }

    /// Scenario: passwords with characters that end a host, also without a scheme. Guarantee: they
    /// are an error that hides them, since they would not be sent; none makes the user the host.
    #[test]
    fn credentials_are_refused() {
        for url in [
            "http://user:secret@127.0.0.1:4318",
            "https://secret@backend/v1/traces",
            "http://user:secret^@backend",
            "http://user:1#secret@backend",
            "http://user/secret@backend",
            "http://user?secret@backend",
            "user:secret@backend",
        ] {
            let error = Origin::of(url).expect_err(url).to_string();
            assert!(error.contains("basicauth") && !error.contains("secret"), "{error}");
            let error = Endpoint::parse(url).expect_err(url).to_string();
            assert!(error.contains("basicauth") && !error.contains("secret"), "{error}");
        }
        assert!(Endpoint::parse("unix:/run/user@1/socket").is_ok());
    }

    #[test]
    fn urls_name_host_and_port() {
        for (url, target) in [
            ("http://backend", "backend:80"),
            ("https://backend:/v1", "backend:443"),
            ("http://[::1]:4318/v1", "[::1]:4318"),
            ("https://[::1]", "[::1]:443"),
        ] {
            let shown = Origin::of(url).map(|origin| origin.target.to_string());
            assert_eq!(shown.as_deref(), Ok(target));
        }
        for url in ["http://user:secret", "http://backend:70000", "http://:1", "backend:1", "a b"] {
            let error = Origin::of(url).expect_err(url).to_string();
            assert!(!error.contains(url) && !error.contains("secret"), "{error}");
        }
    }

    /// Scenario: the forms that Collector configurations use. Guarantee: each names the same host,
    /// port and TLS.
    #[test]
    fn endpoints_are_read_as_the_collector_reads_them() {
        assert_eq!(Endpoint::parse("backend:4317"), host("backend", 4317, None));
        assert_eq!(Endpoint::parse("http://backend:4317"), host("backend", 4317, Some(false)));
        assert_eq!(Endpoint::parse("https://backend:4317/"), host("backend", 4317, Some(true)));
        assert_eq!(Endpoint::parse("dns:///backend:4317"), host("backend", 4317, None));
        assert_eq!(Endpoint::parse("dns://backend:4317"), host("backend", 4317, None));
        assert_eq!(Endpoint::parse("dns:backend:4317"), host("backend", 4317, None));
        assert_eq!(Endpoint::parse("dns:4317"), host("dns", 4317, None));
        assert_eq!(Endpoint::parse("[::1]:4317"), host("::1", 4317, None));
        let unix = Endpoint { target: Target::Unix("/run/a.sock".into()), tls: None };
        assert_eq!(Endpoint::parse("unix:/run/a.sock"), Ok(unix.clone()));
        assert_eq!(Endpoint::parse("unix:///run/a.sock"), Ok(unix));
    }

    /// Scenario: mistakes. Guarantee: each is refused and named.
    #[test]
    fn wrong_endpoints_are_refused() {
        for (text, reason) in [
            ("", "the endpoint is empty"),
            ("backend", "the endpoint \"backend\" has no port"),
            ("backend:x", "has the port \"x\", which"),
            ("backend:70000", "has the port \"70000\", which"),
            ("backend:0", "has the port \"0\", which"),
            ("http://backend:4317/v1", "has a path (\"/v1\")"),
            ("ftp://backend:4317", "starts with \"ftp\"; http, https, dns"),
            ("::1:4317", "without brackets"),
            ("[::1]4317", "without brackets"),
            (":4317", "has no host"),
            ("unix:", "has no host"),
            ("backend:4317?key=hunter2", "\"backend:4317?…\" has the port \"4317?…\", which"),
            ("http://a:1/b?key=hunter2", "\"http://a:1/b?…\" has a path (\"/b?…\")"),
        ] {
            let error = Endpoint::parse(text).expect_err(text).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
