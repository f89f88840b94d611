use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue};
use sluice_net::auth::client::{ClientAuth, ClientAuths, CredentialsError, MetadataHeader};

use super::{Config, HeaderAction, HeaderRule};
use crate::extension::BuildError;

/// Sets headers by rules, after those of the extension that it builds on.
pub(super) struct HeadersSetter {
    rules: Vec<HeaderRule>,
    metadata_keys: Vec<String>,
    additional: Option<Arc<dyn ClientAuth>>,
}

impl HeadersSetter {
    pub(super) fn new(config: &Config, others: &ClientAuths) -> Result<Self, BuildError> {
        let find = |name: &String| {
            others.get(name).cloned().ok_or_else(|| {
                format!("there is no authentication extension {name:?} among those of the service")
            })
        };
        let additional = config.additional_auth.as_ref().map(find).transpose()?;
        let keys = config.headers.iter().filter_map(|rule| rule.from_context.clone());
        let metadata_keys = keys.collect::<BTreeSet<_>>().into_iter().collect();
        Ok(HeadersSetter { rules: config.headers.clone(), metadata_keys, additional })
    }

    fn apply(&self, headers: &mut HeaderMap, metadata: &[MetadataHeader]) {
        for rule in &self.rules {
            match (rule.action, headers.contains_key(&rule.key)) {
                (HeaderAction::Delete, _) => drop(headers.remove(&rule.key)),
                (HeaderAction::Insert, true) | (HeaderAction::Update, false) => {}
                _ => {
                    // As in the Collector, a missing value still makes the header, an empty one.
                    let value = rule.value(metadata).unwrap_or(HeaderValue::from_static(""));
                    headers.insert(rule.key.clone(), value);
                }
            }
        }
    }
}

impl ClientAuth for HeadersSetter {
    fn authenticate<'a>(
        &'a self,
        headers: &'a mut HeaderMap,
        metadata: &'a [MetadataHeader],
    ) -> BoxFuture<'a, Result<(), CredentialsError>> {
        Box::pin(async move {
            if let Some(auth) = &self.additional {
                auth.authenticate(headers, metadata).await?;
            }
            self.apply(headers, metadata);
            Ok(())
        })
    }

    fn refused(&self) -> BoxFuture<'_, ()> {
        match &self.additional {
            Some(auth) => auth.refused(),
            None => Box::pin(std::future::ready(())),
        }
    }

    /// Several values are refused: choosing one of them may choose a tenant.
    fn refuses(&self, metadata: &[MetadataHeader]) -> Option<String> {
        let is_repeated =
            |name: &&String| metadata.iter().filter(|(header, _)| header == *name).nth(1).is_some();
        let name = self.metadata_keys.iter().find(is_repeated)?;
        Some(format!("headers_setter: the sender's request has several values of `{name}`"))
    }

    fn metadata_keys(&self) -> &[String] {
        &self.metadata_keys
    }
}

impl HeaderRule {
    fn value(&self, metadata: &[MetadataHeader]) -> Option<HeaderValue> {
        let bytes: &[u8] = match (&self.value, &self.from_context) {
            (Some(value), _) => value.expose().as_bytes(),
            (None, Some(name)) => match metadata.iter().find(|(header, _)| header == name) {
                Some((_, value)) => value,
                None => self.default_value.as_ref()?.expose().as_bytes(),
            },
            (None, None) => return None,
        };
        let mut value = HeaderValue::from_bytes(bytes).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}
