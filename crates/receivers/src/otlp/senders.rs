//! What is kept of a request's sender.

use std::sync::Arc;

use http::HeaderMap;
use sluice_flow::Metadata;
use sluice_net::server::Peer;

/// Headers that describe the transfer and not the request. What is passed on would be wrong about the next transfer.
const OF_THE_TRANSFER: [&str; 12] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "grpc-accept-encoding",
    "grpc-encoding",
    "grpc-timeout",
    "keep-alive",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// A connection's part of the metadata: made once, shared by its requests where headers are not kept.
pub(super) struct Sender {
    metadata: Arc<Metadata>,
}

impl Sender {
    pub(super) fn new(peer: &Peer) -> Self {
        let peer = peer.address.map(|address| address.to_string());
        Sender { metadata: Arc::new(Metadata { peer, headers: Vec::new() }) }
    }

    /// The metadata of a request. Names are in lower case already; values may be any bytes.
    pub(super) fn metadata(&self, headers: &HeaderMap, include_metadata: bool) -> Arc<Metadata> {
        if !include_metadata {
            return Arc::clone(&self.metadata);
        }
        let kept = headers.iter().filter(|(name, _)| !OF_THE_TRANSFER.contains(&name.as_str()));
        let headers = kept.map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect();
        Arc::new(Metadata { peer: self.metadata.peer.clone(), headers })
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn headers_are_kept_only_when_asked_for_and_never_those_of_the_transfer() {
        let address = "192.0.2.1:5000".parse().expect("an address");
        let sender = Sender::new(&Peer { address: Some(address), is_tls: false });
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/grpc"));
        headers.append("x-tenant", HeaderValue::from_static("a"));
        headers.append("x-tenant", HeaderValue::from_static("b"));
        let without = sender.metadata(&headers, false);
        assert_eq!((without.peer.as_deref(), without.headers.len()), (Some("192.0.2.1:5000"), 0));
        let with = sender.metadata(&headers, true);
        let tenant = |value: &[u8]| ("x-tenant".to_owned(), value.to_vec());
        assert_eq!(with.headers, [tenant(b"a"), tenant(b"b")]);
    }
}
