//! The common part of exporters over the network: credentials, and the use of [`ClientOptions`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use sluice_flow::hop;
use sluice_flow::{BoxFuture, Exporter, ItemNames, Metadata, Outcome, PackError, Packed};
use sluice_net::auth::client::ClientAuth;
use sluice_net::client::{Secrets, TransportError};
use sluice_otlp::{Encoding, Signal};

use crate::client_options::ClientOptions;
use crate::exporter::{BuildContext, BuildError};
use crate::outcome;

const RANGE: HeaderName = HeaderName::from_static(hop::HEADER);

/// The outcome of an answer, and whether the backend did not take the credentials.
pub(crate) type Answered = Result<(Outcome, bool), TransportError>;

pub(crate) type Built<P> = Result<NetworkExporter<P>, BuildError>;

/// The part of an exporter that differs by protocol.
pub(crate) trait Protocol: Send + Sync + 'static {
    fn pack(&self, signal: Signal, chunks: Vec<Bytes>)
    -> Result<(Vec<Bytes>, Encoding), PackError>;

    /// See [`Exporter::packing_bytes`].
    fn packing_bytes(&self, request_bytes: usize, _items: usize) -> usize {
        request_bytes
    }

    /// See [`Exporter::item_names`].
    fn item_names(&self) -> Option<&dyn ItemNames> {
        None
    }

    /// Keys (lower case) of request metadata that it reads.
    fn metadata_keys(&self) -> &[String] {
        &[]
    }

    /// The secrets of a request, which its answer may have.
    fn secrets<'a>(&'a self, signal: Signal, headers: &'a HeaderMap) -> Secrets<'a>;

    fn send(&self, request: &Packed, headers: &HeaderMap) -> impl Future<Output = Answered> + Send;

    fn shut_down(&self);
}

pub(crate) struct NetworkExporter<P> {
    pub(crate) protocol: P,
    /// Payloads of this encoding go out as they are stored.
    passes_through: Option<Encoding>,
    /// By the encoding of a request.
    headers: HashMap<Encoding, HeaderMap>,
    options: ClientOptions,
    auth: Option<Arc<dyn ClientAuth>>,
    metadata_keys: Vec<String>,
}

impl<P: Protocol> NetworkExporter<P> {
    /// `headers`: those of all requests of an encoding.
    pub(crate) fn new(
        protocol: P,
        passes_through: Option<Encoding>,
        headers: impl Fn(Encoding) -> HeaderMap,
        options: &ClientOptions,
        context: &BuildContext<'_>,
    ) -> Built<P> {
        let find = |name: &String| {
            context.authenticators.get(name).cloned().ok_or_else(|| {
                format!(
                    "there is no authentication extension {name:?} among the extensions of the \
                     service"
                )
            })
        };
        let auth = options.authenticator.as_ref().map(find).transpose()?;
        let headers = Encoding::ALL.map(|encoding| (encoding, headers(encoding))).into();
        let options = options.clone();
        let of_auth = auth.as_ref().map_or(&[][..], |auth| auth.metadata_keys());
        let mut metadata_keys = of_auth.to_vec();
        let own = protocol.metadata_keys().iter().filter(|key| !of_auth.contains(key));
        metadata_keys.extend(own.cloned());
        Ok(NetworkExporter { protocol, passes_through, headers, options, auth, metadata_keys })
    }

    async fn deliver(&self, request: &Packed) -> Outcome {
        // Without credentials nothing is copied.
        let mut headers = Cow::Borrowed(&self.headers[&request.encoding]);
        if let Some(auth) = &self.auth
            && let Err(error) = auth.authenticate(headers.to_mut(), &request.metadata.headers).await
        {
            return outcome::of_auth_error(error);
        }
        if let Some(ranges) = &request.ranges
            && let Ok(value) = HeaderValue::try_from(&**ranges)
        {
            headers.to_mut().insert(RANGE, value);
        }
        match self.protocol.send(request, &headers).await {
            Err(error) => {
                let secrets = self.protocol.secrets(request.signal, &headers);
                outcome::of_transport_error(&error, &secrets)
            }
            Ok((outcome, is_unauthorized)) => {
                if let Some(auth) = self.auth.as_ref().filter(|_| is_unauthorized) {
                    auth.refused().await;
                }
                outcome
            }
        }
    }
}

impl<P: Protocol> Exporter for NetworkExporter<P> {
    fn passes_through(&self) -> Option<Encoding> {
        self.passes_through
    }

    fn pass_through_limit_bytes(&self) -> usize {
        self.options.max_request_bytes
    }

    fn pack(
        &self,
        signal: Signal,
        chunks: Vec<Bytes>,
    ) -> Result<(Vec<Bytes>, Encoding), PackError> {
        self.protocol.pack(signal, chunks)
    }

    fn packing_bytes(&self, request_bytes: usize, items: usize) -> usize {
        self.protocol.packing_bytes(request_bytes, items)
    }

    fn send<'a>(&'a self, request: &'a Packed) -> BoxFuture<'a, Outcome> {
        Box::pin(self.deliver(request))
    }

    fn timeout(&self) -> Duration {
        self.options.timeout
    }

    fn metadata_keys(&self) -> &[String] {
        &self.metadata_keys
    }

    fn item_names(&self) -> Option<&dyn ItemNames> {
        self.protocol.item_names()
    }

    fn names_ranges(&self) -> bool {
        self.options.is_idempotent
    }

    fn refuses(&self, metadata: &Metadata) -> Option<String> {
        self.auth.as_ref()?.refuses(&metadata.headers)
    }

    fn shutdown(&self) {
        self.protocol.shut_down();
    }
}
