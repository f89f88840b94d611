//! The sources of an action's value.

use std::net::SocketAddr;

use sluice_flow::Metadata;
use sluice_otlp::{Attributes, NewValue};

use crate::fingerprint::Fingerprint;

/// The first that yields a value counts: value, sender's context, other attribute, default.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Source {
    /// An encoded `AnyValue`, as is `default_value`.
    pub value: Option<Vec<u8>>,
    pub from_context: Option<ContextKey>,
    pub from_attribute: Option<String>,
    pub default_value: Option<Vec<u8>>,
}

impl Source {
    /// Its value for one set of attributes. `from_context`: the value in the context, encoded.
    pub(super) fn find<'s>(
        &'s self,
        from_context: Option<&'s [u8]>,
        attributes: &Attributes<'_>,
    ) -> Option<NewValue<'s>> {
        if let Some(value) = self.value.as_deref().or(from_context) {
            return Some(NewValue::Encoded(value));
        }
        let attribute =
            self.from_attribute.as_ref().and_then(|key| attributes.find(key.as_bytes()));
        let default_value = self.default_value.as_deref().map(NewValue::Encoded);
        attribute.map(NewValue::CopyOf).or(default_value)
    }

    pub(super) fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.optional(self.value.as_deref());
        let from_context = self.from_context.as_ref();
        fingerprint.optional(from_context.map(|key| match key {
            ContextKey::ClientAddress => "",
            ContextKey::Metadata(name) => name,
            ContextKey::Authenticated => "auth.",
        }));
        fingerprint.optional(self.from_attribute.as_deref());
        fingerprint.optional(self.default_value.as_deref());
    }
}

/// A fact about the sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ContextKey {
    ClientAddress,
    /// Name of a request header (gRPC metadata), in lower case.
    Metadata(String),
    /// An attribute of an authenticated client, of which Sluice has none.
    Authenticated,
}

impl ContextKey {
    /// Reads `client.address`, `metadata.NAME`, or a bare NAME, which older configurations write.
    /// `auth.NAME` is never a header, which senders choose, in any letter case.
    ///
    /// # Errors
    /// Why it is no key.
    pub(crate) fn parse(text: &str) -> Result<ContextKey, String> {
        if text.to_lowercase().starts_with("auth.") {
            return Ok(ContextKey::Authenticated);
        }
        if text == "client.address" {
            return Ok(ContextKey::ClientAddress);
        }
        match text.strip_prefix("metadata.").unwrap_or(text) {
            "" => Err("the name of the metadata is missing".to_owned()),
            name => Ok(ContextKey::Metadata(name.to_lowercase())),
        }
    }

    /// The header that it stands for.
    pub(super) fn metadata_key(&self) -> Option<&str> {
        match self {
            ContextKey::ClientAddress | ContextKey::Authenticated => None,
            ContextKey::Metadata(name) => Some(name),
        }
    }

    /// The address without its port (empty if unknown); all values of a header, joined by `;`.
    pub(crate) fn find(&self, metadata: &Metadata) -> Option<String> {
        match self {
            ContextKey::ClientAddress => {
                let peer = metadata.peer.clone().unwrap_or_default();
                let address = peer.parse::<SocketAddr>().map(|it| it.ip().to_canonical());
                Some(address.map_or(peer, |address| address.to_string()))
            }
            ContextKey::Authenticated => None,
            ContextKey::Metadata(name) => {
                let values = metadata.headers.iter().filter(|(header, _)| header == name);
                let texts: Vec<_> = values.map(|(_, it)| String::from_utf8_lossy(it)).collect();
                (!texts.is_empty()).then(|| texts.join(";"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Metadata {
        let header = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
        Metadata {
            peer: Some("[::ffff:10.0.0.7]:4711".to_owned()),
            headers: vec![header("x-tenant", "a"), header("other", "x"), header("x-tenant", "b")],
        }
    }

    /// The address comes without port, headers are found in any case and joined, a missing one
    /// yields nothing.
    #[test]
    fn context_is_looked_up() {
        let find = |text: &str| ContextKey::parse(text).unwrap().find(&metadata());
        assert_eq!(find("client.address").as_deref(), Some("10.0.0.7"));
        assert_eq!(find("metadata.X-Tenant").as_deref(), Some("a;b"));
        assert_eq!(find("x-tenant").as_deref(), Some("a;b"));
        assert_eq!(find("metadata.absent"), None);
        assert_eq!(ContextKey::ClientAddress.find(&Metadata::default()).as_deref(), Some(""));
        let sent = ("auth.subject".to_owned(), b"forged".to_vec());
        let metadata = Metadata { headers: vec![sent], ..metadata() };
        for name in ["auth.subject", "Auth.subject"] {
            let key = ContextKey::parse(name).unwrap();
            assert_eq!((key.find(&metadata), key.metadata_key()), (None, None), "{name}");
        }
    }
}
