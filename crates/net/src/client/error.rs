//! Why a request got no answer that could be read.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use crate::text::cut;

/// Nothing usable came back. Cheap to clone: all calls that waited for a connection get it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    #[error("cannot resolve {host}: {reason}")]
    Resolve { host: String, reason: String },
    #[error("cannot connect to {address}: {reason}")]
    Connect { address: String, reason: String },
    #[error("cannot connect to {address} within {timeout:?}")]
    ConnectTimeout { address: String, timeout: Duration },
    /// The handshake failed because of certificates, versions or settings, not the network.
    #[error("TLS with {address} failed: {reason}")]
    Tls { address: String, reason: String },
    /// Our own certificates, keys or trust anchors cannot be used.
    #[error("TLS settings cannot be used: {reason}")]
    TlsSettings { reason: String },
    /// The peer said that it has not begun to process the request; its connection serves on.
    #[error("the peer refused the request unprocessed: {reason}")]
    Refused { reason: String },
    /// The connection takes no more requests (GOAWAY), and this one was not processed.
    #[error("the connection was going away: {reason}")]
    GoingAway { reason: String },
    #[error("the peer reset the request: {reason}")]
    Reset { reason: String },
    #[error("the connection was lost: {reason}")]
    Lost { reason: String },
    #[error("the peer's answer cannot be understood: {reason}")]
    Garbage { reason: String },
    #[error("the peer's answer exceeds {limit_bytes} bytes")]
    AnswerTooLarge { limit_bytes: usize },
    /// There is no [`super::Room`] for the answer, which says why.
    #[error("there is no room for the peer's answer")]
    Unwanted,
    #[error("the peer does not speak gRPC: {reason}")]
    NotGrpc { reason: String },
    /// The handshake of the forward protocol failed: one side does not know the other.
    #[error("the handshake failed: {reason}")]
    Unauthenticated { reason: String },
    #[error("{reason}")]
    RequestTooLarge { reason: String },
    #[error("the proxy {proxy} refused to connect: {reason}")]
    Proxy { proxy: String, reason: String },
    #[error("the client was shut down")]
    ShutDown,
}

pub type Result<T, E = TransportError> = std::result::Result<T, E>;

impl TransportError {
    /// True if waiting does not help: a certificate or a setting has to change.
    pub fn is_configuration(&self) -> bool {
        use TransportError::{NotGrpc, Tls, TlsSettings, Unauthenticated};
        matches!(self, Tls { .. } | TlsSettings { .. } | NotGrpc { .. } | Unauthenticated { .. })
    }

    /// True if the peer cannot have processed the request: it may be sent again.
    pub fn is_unprocessed(&self) -> bool {
        matches!(self, TransportError::Refused { .. } | TransportError::GoingAway { .. })
    }

    /// True if the connection is still good for other requests.
    pub(crate) fn spares_connection(&self) -> bool {
        use TransportError::{AnswerTooLarge, Refused, Reset, Unwanted};
        matches!(self, Refused { .. } | Reset { .. } | AnswerTooLarge { .. } | Unwanted)
    }

    /// Sorts an error of an established HTTP/2 connection or stream.
    pub(crate) fn from_h2(error: &h2::Error, address: impl Display) -> TransportError {
        if let Some(io) = error.get_io() {
            return TransportError::from_io(io, address);
        }
        let reason = peer_text(&error.to_string());
        match error.reason() {
            _ if error.is_library() => TransportError::Garbage { reason },
            _ if !error.is_remote() => TransportError::Lost { reason },
            Some(h2::Reason::REFUSED_STREAM) => TransportError::Refused { reason },
            _ if error.is_go_away() => TransportError::GoingAway { reason },
            _ if error.is_reset() => TransportError::Reset { reason },
            _ => TransportError::Lost { reason },
        }
    }

    /// Sorts an I/O error of an established connection: a TLS alert arrives as one.
    pub(crate) fn from_io(error: &io::Error, address: impl Display) -> TransportError {
        match rustls_reason(error) {
            Some(reason) => TransportError::Tls { address: address.to_string(), reason },
            None => TransportError::Lost { reason: error.to_string() },
        }
    }
}

/// The text of the TLS error inside an I/O error, if there is one.
pub(crate) fn rustls_reason(error: &io::Error) -> Option<String> {
    error.get_ref()?.downcast_ref::<rustls::Error>().map(ToString::to_string)
}

/// Shortens a peer's text and makes it one line of printable characters. It may have secrets of the
/// request: only [`super::Secrets::peer_text`] makes texts that may be shown.
pub(crate) fn peer_text(text: &str) -> String {
    cut(text).replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::TEXT_LIMIT_BYTES;

    /// Scenario: a hostile backend answers with a megabyte of multi-byte text and control
    /// characters. Guarantee: the kept text is bounded, valid and one line.
    #[test]
    fn peer_text_is_bounded_and_printable() {
        let text = peer_text(&"ä\n".repeat(500_000));
        assert!(text.len() <= TEXT_LIMIT_BYTES);
        assert!(!text.contains('\n'));
    }

    /// Scenario: a TLS alert and a broken pipe both surface as I/O errors.
    /// Guarantee: only the alert counts as a matter of configuration.
    #[test]
    fn tls_alerts_are_told_from_broken_connections() {
        let alert = io::Error::new(
            io::ErrorKind::InvalidData,
            rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired),
        );
        assert!(TransportError::from_io(&alert, "a:1").is_configuration());
        assert!(
            !TransportError::from_io(&io::ErrorKind::BrokenPipe.into(), "a:1").is_configuration()
        );
    }
}
