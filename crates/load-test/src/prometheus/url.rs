//! Where a Prometheus is.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use thiserror::Error;

/// `http://HOST:PORT[/PREFIX]`, without a slash at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrometheusUrl(String);

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    #[error("give the address of a Prometheus, for instance http://127.0.0.1:9090")]
    Malformed,
    #[error(
        "https is not spoken here: give an http address, for instance that of \
         `kubectl port-forward`"
    )]
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
        let (port, prefix) = (uri.port_u16().unwrap_or(80), uri.path().trim_end_matches('/'));
        Ok(PrometheusUrl(format!("http://{host}:{port}{prefix}")))
    }
}

impl PrometheusUrl {
    /// Where an instant query is asked, for a moment in seconds since the epoch.
    pub(super) fn instant_query(&self, query: &str, at_unix_s: f64) -> String {
        let query = utf8_percent_encode(query, NON_ALPHANUMERIC);
        format!("{self}/api/v1/query?query={query}&time={at_unix_s:.3}")
    }
}

impl fmt::Display for PrometheusUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
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
        for text in ["", "127.0.0.1:9090", "prometheus", "ftp://a", "http://a/?query=b", "http://"]
        {
            assert_eq!(text.parse::<PrometheusUrl>(), Err(UrlError::Malformed), "{text}");
        }
        assert_eq!("https://a".parse::<PrometheusUrl>(), Err(UrlError::Https));
        assert_eq!("http://me:secret@a".parse::<PrometheusUrl>(), Err(UrlError::Password));
    }
}
