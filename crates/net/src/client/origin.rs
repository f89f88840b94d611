//! The server that a URL leads to.

use http::Uri;

use super::Target;

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
#[error("the URL {url:?} cannot be used: {reason}")]
pub struct UrlError {
    pub url: String,
    pub reason: &'static str,
}

impl Origin {
    pub fn of(url: &str) -> Result<Origin, UrlError> {
        let wrong = |reason: &'static str| UrlError { url: url.to_owned(), reason };
        let uri: Uri = url.parse().map_err(|_| wrong("it is not a URL"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("it must start with http:// or https://")),
        };
        let host =
            uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("it has no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Ok(Origin { uri, target: Target::Host { host, port }, tls })
    }
}
