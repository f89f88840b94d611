//! The target of a client's connections, as configurations write it.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use http::Uri;

/// A host and port to resolve, or a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Host { host: String, port: u16 },
    Unix(PathBuf),
}

/// With TLS or without, by the endpoint's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// `http://`
    Plain,
    /// `https://`
    Tls,
    /// No prefix, `dns:` or `unix:`: other settings decide.
    Unset,
}

/// An endpoint of a gRPC client: `host:port`, `http(s)://host:port`, `dns:///host:port`,
/// `passthrough:///host:port`, `unix:/path` or `unix:///path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub target: Target,
    pub security: Security,
}

/// Why an endpoint cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the endpoint {0}")]
pub struct EndpointError(String);

impl Endpoint {
    pub fn parse(text: &str) -> Result<Endpoint, EndpointError> {
        let (rest, security) = match split_scheme(text) {
            ("unix", "") => return Err(EndpointError(format!("{text:?} has no host"))),
            ("unix", path) => {
                let target = Target::Unix(PathBuf::from(path));
                return Ok(Endpoint { target, security: Security::Unset });
            }
            ("http", rest) => (rest, Security::Plain),
            ("https", rest) => (rest, Security::Tls),
            ("dns" | "passthrough", rest) => (rest.trim_start_matches('/'), Security::Unset),
            ("", rest) => (rest, Security::Unset),
            (scheme, _) => {
                return Err(EndpointError(format!(
                    "{text:?} starts with {scheme:?}; http, https, dns, passthrough and unix are \
                     known"
                )));
            }
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if let Some(at) = rest.find('/') {
            let path = &rest[at..];
            return Err(EndpointError(format!(
                "{text:?} has a path ({path:?}), which gRPC does not know"
            )));
        }
        let (host, port) = split_host_port(rest, text)?;
        let port = port.ok_or_else(|| EndpointError(format!("{text:?} has no port")))?;
        Ok(Endpoint { target: Target::Host { host, port }, security })
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
            "{endpoint:?} has the port {port:?}, which is not a number from 1 to 65535"
        ))),
    };
    Ok((host.to_owned(), port.map(number).transpose()?))
}

impl Target {
    /// The value of `:authority` and `host` if nothing else is configured.
    pub fn authority(&self) -> String {
        match self {
            Target::Host { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Target::Host { host, port } => format!("{host}:{port}"),
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

/// Why a URL cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the URL {0:?} cannot be used: {1}")]
pub struct UrlError(String, &'static str);

impl Origin {
    pub fn of(url: &str) -> Result<Origin, UrlError> {
        let wrong = |reason: &'static str| UrlError(url.to_owned(), reason);
        let uri: Uri = url.parse().map_err(|_| wrong("it is not a URL"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("it must start with http:// or https://")),
        };
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            // Not shown as a whole: it may be in a log.
            let shown = url.rsplit('@').next().unwrap_or_default();
            let reason =
                "a user and a password before its host belong into the extension `basicauth`";
            return Err(UrlError(shown.to_owned(), reason));
        }
        let host =
            uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("it has no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Ok(Origin { uri, target: Target::Host { host, port }, tls })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(host: &str, port: u16, security: Security) -> Result<Endpoint, EndpointError> {
        Ok(Endpoint { target: Target::Host { host: host.to_owned(), port }, security })
    }

    /// Guarantee: credentials in a URL, which would not be sent, are an error that hides them.
    #[test]
    fn urls_with_credentials_are_refused() {
        for url in ["http://user:secret@127.0.0.1:4318", "https://secret@backend/v1/traces"] {
            let error = Origin::of(url).expect_err("has credentials").to_string();
            assert!(error.contains("basicauth") && !error.contains("secret"), "{error}");
        }
    }

    /// Scenario: the forms that Collector configurations use. Guarantee: each names the same host,
    /// port and security.
    #[test]
    fn endpoints_are_read_as_the_collector_reads_them() {
        assert_eq!(Endpoint::parse("backend:4317"), host("backend", 4317, Security::Unset));
        assert_eq!(Endpoint::parse("http://backend:4317"), host("backend", 4317, Security::Plain));
        assert_eq!(Endpoint::parse("https://backend:4317/"), host("backend", 4317, Security::Tls));
        assert_eq!(Endpoint::parse("dns:///backend:4317"), host("backend", 4317, Security::Unset));
        assert_eq!(Endpoint::parse("dns://backend:4317"), host("backend", 4317, Security::Unset));
        assert_eq!(Endpoint::parse("dns:backend:4317"), host("backend", 4317, Security::Unset));
        assert_eq!(Endpoint::parse("dns:4317"), host("dns", 4317, Security::Unset));
        assert_eq!(Endpoint::parse("[::1]:4317"), host("::1", 4317, Security::Unset));
        let unix =
            Endpoint { target: Target::Unix("/run/a.sock".into()), security: Security::Unset };
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
        ] {
            let error = Endpoint::parse(text).expect_err(text).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
