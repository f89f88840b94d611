//! Where a Prometheus is.

use std::fmt::{Display, Formatter, Result as FormatResult};
use std::str::FromStr;

use http::Uri;
use thiserror::Error;

/// `http://HOST[:PORT][/PREFIX]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrometheusUrl {
    host: String,
    port: u16,
    /// Without a slash at its end.
    prefix: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    #[error("give the address of a Prometheus, for instance http://127.0.0.1:9090")]
    Malformed,
    #[error("https is not spoken here: give an http address, for instance that of `kubectl port-forward`")]
    Https,
    #[error("names and passwords are not supported: give an address that needs none")]
    Password,
}

impl FromStr for PrometheusUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let uri: Uri = text.parse().map_err(|_| UrlError::Malformed)?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(UrlError::Https),
            _ => return Err(UrlError::Malformed),
        }
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(UrlError::Password);
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or(UrlError::Malformed)?;
        if uri.query().is_some() {
            return Err(UrlError::Malformed);
        }
        Ok(PrometheusUrl {
            host: host.to_owned(),
            port: uri.port_u16().unwrap_or(80),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

impl PrometheusUrl {
    /// `host:port`.
    pub(super) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl Display for PrometheusUrl {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> FormatResult {
        write!(formatter, "http://{}:{}{}", self.host, self.port, self.prefix)
    }
}

/// Percent-encodes all but the characters that RFC 3986 calls unreserved.
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(3 * text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_port_and_a_prefix() {
        for (text, expected) in [
            ("http://127.0.0.1:9090", "http://127.0.0.1:9090"),
            ("http://prometheus.monitoring/", "http://prometheus.monitoring:80"),
            ("http://[::1]:9090/a/b/", "http://[::1]:9090/a/b"),
        ] {
            assert_eq!(text.parse::<PrometheusUrl>().unwrap().to_string(), expected);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_helps() {
        for text in ["", "127.0.0.1:9090", "prometheus", "ftp://a", "http://a/?query=b", "http://"] {
            assert_eq!(text.parse::<PrometheusUrl>(), Err(UrlError::Malformed), "{text}");
        }
        assert_eq!("https://a".parse::<PrometheusUrl>(), Err(UrlError::Https));
        assert_eq!("http://me:secret@a".parse::<PrometheusUrl>(), Err(UrlError::Password));
    }
}
