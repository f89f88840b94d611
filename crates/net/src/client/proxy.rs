//! HTTP proxies: `CONNECT` tunnels, and which proxy the environment names for a target.
//!
//! `NO_PROXY` is read as Go reads it, because the Collector's files rely on that: rules with a
//! port, `*.suffix`, and `.suffix` without the name itself. `hyper_util::client::proxy` reads it as
//! curl does. It also ignores a proxy's URL that it cannot read, which would send data past the
//! proxy, and its tunnel does not return the proxy's answer.

use std::net::IpAddr;

use percent_encoding::percent_decode_str;
use sluice_config::Secret;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::connect::BoxIo;
use super::endpoint::{Target, split_host_port};
use super::error::{Result, TransportError};
use super::secrets::Secrets;
use crate::auth::client::basic_credentials;

/// The answer to `CONNECT` must end within this many bytes.
const ANSWER_LIMIT_BYTES: usize = 8 * 1024;

/// A proxy that tunnels with `CONNECT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    pub target: Target,
    /// The value of `proxy-authorization`, if the URL has credentials.
    pub(super) authorization: Option<Secret>,
}

impl Proxy {
    /// Reads `http://[user:password@]host[:port]`; the scheme may be missing. TLS to the proxy
    /// itself is not supported.
    pub fn parse(url: &str) -> Result<Proxy, String> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        // The scheme is not shown: if the URL has none, all before `://` may be a password.
        if scheme != "http" {
            return Err("a proxy URL can start only with http://".to_owned());
        }
        if rest.rfind('@').is_some_and(|at| rest[..at].contains(['/', '?', '#'])) {
            let reason = "a proxy URL has `/`, `?` or `#` before its `@`: in a user or a password, \
                          write %2F, %3F or %23";
            return Err(reason.to_owned());
        }
        let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (credentials, address) = rest
            .rsplit_once('@')
            .map_or((None, rest), |(credentials, address)| (Some(credentials), address));
        let (host, port) = split_host_port(address, address).map_err(|error| error.to_string())?;
        let authorization = credentials.map(|credentials| {
            let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
            let plain: Vec<u8> = percent_decode_str(user)
                .chain(std::iter::once(b':'))
                .chain(percent_decode_str(password))
                .collect();
            Secret::new(basic_credentials(plain))
        });
        Ok(Proxy { target: Target::Host { host, port: port.unwrap_or(80) }, authorization })
    }

    /// The proxy that `HTTPS_PROXY` or `HTTP_PROXY` (in either case) names for the target, unless
    /// `NO_PROXY` excludes it. Loopback is never proxied, as in the Collector.
    pub fn from_environment(target: &Target, tls: bool) -> Result<Option<Proxy>, String> {
        Proxy::from_variables(target, tls, |name| std::env::var(name).ok())
    }

    fn from_variables(
        target: &Target,
        tls: bool,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Proxy>, String> {
        let read = |name: &str| {
            variable(name)
                .or_else(|| variable(&name.to_lowercase()))
                .filter(|value| !value.trim().is_empty())
        };
        let name = if tls { "HTTPS_PROXY" } else { "HTTP_PROXY" };
        let (Target::Host { host, port }, Some(url)) = (target, read(name)) else {
            return Ok(None);
        };
        let local = host == "localhost" || target.ip().is_some_and(|ip| ip.is_loopback());
        if local || read("NO_PROXY").is_some_and(|rules| excluded(host, *port, &rules)) {
            return Ok(None);
        }
        Proxy::parse(url.trim()).map(Some).map_err(|error| format!("{name}: {error}"))
    }
}

/// `NO_PROXY` as Go reads it: `*`, host names (with all below them), `.suffix` (only names below
/// it), addresses, CIDR ranges, each with an optional port.
fn excluded(host: &str, port: u16, rules: &str) -> bool {
    let host = host.to_ascii_lowercase();
    let ip: Option<IpAddr> = host.parse().ok();
    rules
        .split(',')
        .map(|rule| rule.trim().to_ascii_lowercase())
        .filter(|rule| !rule.is_empty())
        .any(|rule| {
            if rule == "*" {
                return true;
            }
            if let (Some(ip), Some((network, bits))) = (ip, rule.split_once('/')) {
                return in_network(ip, network, bits);
            }
            let (name, rule_port) = split_host_port(&rule, &rule).unwrap_or((rule.clone(), None));
            if rule_port.is_some_and(|rule_port| rule_port != port) {
                return false;
            }
            let suffix = name.strip_prefix("*.").or_else(|| name.strip_prefix('.'));
            let above = host.strip_suffix(suffix.unwrap_or(&name));
            above.is_some_and(|above| above.ends_with('.') || above.is_empty() && suffix.is_none())
        })
}

fn in_network(ip: IpAddr, network: &str, bits: &str) -> bool {
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else {
        return false;
    };
    let (differing, width) = match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => (u128::from(ip.to_bits() ^ network.to_bits()), 32),
        (IpAddr::V6(ip), IpAddr::V6(network)) => (ip.to_bits() ^ network.to_bits(), 128),
        _ => return false,
    };
    bits <= width && differing.checked_shr(width - bits).is_none_or(|differing| differing == 0)
}

/// Asks the proxy for a tunnel to the target. The caller bounds the time.
pub(crate) async fn tunnel(mut io: BoxIo, proxy: &Proxy, target: &Target) -> Result<BoxIo> {
    let failed = |reason: String| TransportError::Proxy { proxy: proxy.target.to_string(), reason };
    let authority = target.authority();
    let authorization = proxy.authorization.as_ref();
    let authorization = authorization
        .map_or(String::new(), |value| format!("proxy-authorization: {}\r\n", value.expose()));
    let request =
        format!("CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n{authorization}\r\n");
    let broken = |error: std::io::Error| failed(error.to_string());
    io.write_all(request.as_bytes()).await.map_err(broken)?;

    // Byte by byte, a few hundred in all: bytes after the empty line belong to the tunnel.
    let mut answer = Vec::with_capacity(256);
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() == ANSWER_LIMIT_BYTES {
            return Err(failed(format!("its answer exceeds {ANSWER_LIMIT_BYTES} bytes")));
        }
        answer.push(io.read_u8().await.map_err(broken)?);
    }
    let line = String::from_utf8_lossy(&answer);
    let line = line.lines().next().unwrap_or_default();
    match line.split(' ').nth(1) {
        Some(code) if code.len() == 3 && code.starts_with('2') => Ok(io),
        _ => Err(failed(Secrets::default().and_proxy(Some(proxy)).peer_text(line))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Target {
        Target::Host { host: name.to_owned(), port: 4318 }
    }

    fn chosen(target: &str, tls: bool, variables: &[(&str, &str)]) -> Option<Proxy> {
        let read = |name: &str| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        Proxy::from_variables(&host(target), tls, read).expect("a valid proxy")
    }

    /// Scenario: the variables in both cases and for both schemes.
    /// Guarantee: the right one is used, credentials are decoded, and nothing shows them.
    #[test]
    fn the_environment_names_the_proxy() {
        let proxy = chosen("backend", true, &[("https_proxy", "http://me:p%40ss@proxy:3128/")])
            .expect("a proxy");
        assert_eq!(proxy.target.to_string(), "proxy:3128");
        let expected = "Basic bWU6cEBzcw==";
        assert_eq!(proxy.authorization.as_ref().map(Secret::expose), Some(expected));
        let shown = format!("{proxy:?}");
        assert!(shown.contains("3128") && !shown.contains("Basic"), "{shown}");
        assert_eq!(chosen("backend", false, &[("HTTPS_PROXY", "http://proxy:3128")]), None);
        assert_eq!(chosen("localhost", true, &[("HTTPS_PROXY", "http://proxy:3128")]), None);
        assert_eq!(chosen("127.0.0.1", true, &[("HTTPS_PROXY", "http://proxy:3128")]), None);
        for url in ["socks5://s3cret:1080", "me:s3cret://@proxy", "http://me:1/s3cret@proxy:1"] {
            let error = Proxy::parse(url).expect_err(url);
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    /// Scenario: every form of `NO_PROXY`. Guarantee: it excludes the same targets as in Go, and no
    /// other.
    #[test]
    fn no_proxy_excludes() {
        for rules in ["*", "a.example", "example", ".example", "*.example", "x, a.example:4318"] {
            assert!(excluded("a.example", 4318, rules), "{rules}");
        }
        for rules in ["b.example", "a.example:1", ".a.example", "ample", ""] {
            assert!(!excluded("a.example", 4318, rules), "{rules}");
        }
        assert!(excluded("10.1.2.3", 1, "10.0.0.0/8"));
        assert!(!excluded("11.1.2.3", 1, "10.0.0.0/8"));
        assert!(excluded("fd00::1", 1, "fd00::/8"));
        assert!(excluded("1.2.3.4", 1, "0.0.0.0/0"));
    }
}
