//! Where a client connects to, as configurations write it.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// A host and port to resolve, or a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Host { host: String, port: u16 },
    Unix(PathBuf),
}

/// What the endpoint's prefix says about TLS.
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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("the endpoint is empty")]
    Empty,
    #[error("the endpoint {0:?} has no port")]
    NoPort(String),
    #[error(
        "the endpoint {endpoint:?} has the port {port:?}, which is not a number from 1 to 65535"
    )]
    BadPort { endpoint: String, port: String },
    #[error("the endpoint {0:?} has no host")]
    NoHost(String),
    #[error("the endpoint {endpoint:?} has a path ({path:?}), which gRPC does not know")]
    Path { endpoint: String, path: String },
    #[error(
        "the endpoint {endpoint:?} starts with {scheme:?}; http, https, dns, passthrough and unix \
         are known"
    )]
    Scheme { endpoint: String, scheme: String },
    #[error("the endpoint {0:?} has an IPv6 address without brackets")]
    Brackets(String),
}

impl Endpoint {
    pub fn parse(text: &str) -> Result<Endpoint, EndpointError> {
        let (rest, security) = match split_scheme(text) {
            ("unix", rest) => return unix(text, rest),
            ("http", rest) => (rest, Security::Plain),
            ("https", rest) => (rest, Security::Tls),
            ("dns" | "passthrough", rest) => (rest.trim_start_matches('/'), Security::Unset),
            ("", rest) => (rest, Security::Unset),
            (scheme, _) => {
                return Err(EndpointError::Scheme {
                    endpoint: text.to_owned(),
                    scheme: scheme.to_owned(),
                });
            }
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if let Some(at) = rest.find('/') {
            return Err(EndpointError::Path {
                endpoint: text.to_owned(),
                path: rest[at..].to_owned(),
            });
        }
        let (host, port) = split_host_port(rest).map_err(|problem| problem.at(text))?;
        let port = port.ok_or_else(|| EndpointError::NoPort(text.to_owned()))?;
        Ok(Endpoint { target: Target::Host { host, port }, security })
    }
}

fn split_scheme(text: &str) -> (&str, &str) {
    if let Some((scheme, rest)) = text.split_once("://") {
        return (scheme, rest);
    }
    for scheme in ["unix", "dns", "passthrough"] {
        // `dns:host:port` and `unix:path` have no slashes. A host that is called "dns" has a number
        // behind its colon.
        if let Some(rest) = text.strip_prefix(scheme).and_then(|rest| rest.strip_prefix(':'))
            && (scheme == "unix" || rest.contains(':'))
        {
            return (scheme, rest);
        }
    }
    ("", text)
}

fn unix(text: &str, path: &str) -> Result<Endpoint, EndpointError> {
    if path.is_empty() {
        return Err(EndpointError::NoHost(text.to_owned()));
    }
    Ok(Endpoint { target: Target::Unix(PathBuf::from(path)), security: Security::Unset })
}

pub(crate) enum HostPortProblem {
    Empty,
    NoHost,
    BadPort(String),
    Brackets,
}

impl HostPortProblem {
    pub(crate) fn at(self, endpoint: &str) -> EndpointError {
        let endpoint = endpoint.to_owned();
        match self {
            HostPortProblem::Empty => EndpointError::Empty,
            HostPortProblem::NoHost => EndpointError::NoHost(endpoint),
            HostPortProblem::BadPort(port) => EndpointError::BadPort { endpoint, port },
            HostPortProblem::Brackets => EndpointError::Brackets(endpoint),
        }
    }
}

/// Splits `host:port`, `[v6]:port`, `host` and `[v6]`. The host comes back without brackets.
pub(crate) fn split_host_port(text: &str) -> Result<(String, Option<u16>), HostPortProblem> {
    if text.is_empty() {
        return Err(HostPortProblem::Empty);
    }
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => {
            (host, Some(rest.strip_prefix(':').ok_or(HostPortProblem::Brackets)?))
        }
        None => match text.split_once(':') {
            Some((_, rest)) if rest.contains(':') => return Err(HostPortProblem::Brackets),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(HostPortProblem::NoHost);
    }
    let port = match port {
        None => None,
        Some(port) => Some(
            port.parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| HostPortProblem::BadPort(port.to_owned()))?,
        ),
    };
    Ok((host.to_owned(), port))
}

impl Target {
    /// The value of `:authority` and `host` where nothing else is configured.
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

    /// The address itself, where there is nothing to resolve.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn host(host: &str, port: u16, security: Security) -> Result<Endpoint, EndpointError> {
        Ok(Endpoint { target: Target::Host { host: host.to_owned(), port }, security })
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
        assert_eq!(Endpoint::parse(""), Err(EndpointError::Empty));
        assert_eq!(Endpoint::parse("backend"), Err(EndpointError::NoPort("backend".into())));
        assert!(matches!(Endpoint::parse("backend:x"), Err(EndpointError::BadPort { .. })));
        assert!(matches!(Endpoint::parse("backend:70000"), Err(EndpointError::BadPort { .. })));
        assert!(matches!(
            Endpoint::parse("http://backend:4317/v1"),
            Err(EndpointError::Path { .. })
        ));
        assert!(matches!(Endpoint::parse("ftp://backend:4317"), Err(EndpointError::Scheme { .. })));
        assert!(matches!(Endpoint::parse("::1:4317"), Err(EndpointError::Brackets(_))));
        assert!(matches!(Endpoint::parse(":4317"), Err(EndpointError::NoHost(_))));
        assert!(matches!(Endpoint::parse("unix:"), Err(EndpointError::NoHost(_))));
    }
}
