//! What both transports do with a request, from its credentials to its acceptance.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use sluice_flow::Metadata;
use sluice_flow::source::{Ingress, IngressRoute, Permit, Request};
use sluice_net::auth::server::{AuthError, ServerAuth};
use sluice_net::compress::Packing;
use sluice_net::headers;
use sluice_net::server::{BodyReader, BodyTimeouts, RequestBody, ServerResources};
use sluice_otlp::Signal;

use super::counters::{Counters, SignalCounters};
use super::inspect::{Inspected, Inspector, Work};
use super::refusal::{Refused, RefusedReason};
use super::senders::Sender;
use super::waiting::Body;

/// How the bytes of a request are to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Protobuf,
    Json,
}

pub(super) struct Ingest {
    pub ingress: Arc<dyn Ingress>,
    pub authenticator: Option<Arc<dyn ServerAuth>>,
    pub counters: Arc<Counters>,
    /// Of a request as sent, and again after decompression.
    pub limit_bytes: usize,
    pub body_timeouts: BodyTimeouts,
    pub include_metadata: bool,
    pub resources: ServerResources,
    pub inspector: Inspector,
}

/// A request that has arrived whole, with the snapshot of the routes that it began with.
pub(super) struct Arrived {
    pub route: Arc<dyn IngressRoute>,
    pub signal: Signal,
    pub format: Format,
    pub packing: Packing,
    pub body: Bytes,
    pub metadata: Arc<Metadata>,
    pub permit: Permit,
}

/// What the request says of its content. `None`: nothing, or several things that differ.
pub(super) fn media_type(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers::sole(headers, &CONTENT_TYPE).ok()??;
    value.as_bytes().split(|byte| *byte == b';').next().map(<[u8]>::trim_ascii)
}

impl Ingest {
    /// Steps 1 and 2: may this sender send this signal here, and where does it go?
    pub(super) async fn let_in(
        &self,
        signal: Signal,
        headers: &HeaderMap,
        body: &mut Body,
    ) -> Result<Arc<dyn IngressRoute>, Refused> {
        if let Some(authenticator) = &self.authenticator {
            let pool = || self.ingress.waiting(false);
            let verdict = body.read_while(authenticator.authenticate(headers), pool).await?;
            verdict.unwrap_or(Err(AuthError::Busy))?;
        }
        self.ingress.route(signal).ok_or_else(|| {
            let message = format!("no pipeline takes {signal} from this receiver");
            Refused::new(RefusedReason::Unrouted, message)
        })
    }

    /// A request whose path is known. h2 leaves path and authority in the buffer that they came in,
    /// which may be a frame of the longest kind: of both only what metadata may need is kept.
    pub(super) fn parts_of(&self, request: http::Request<RequestBody>) -> (Parts, Body) {
        let (mut head, body) = request.into_parts();
        let authority = head.uri.authority().filter(|_| self.include_metadata);
        head.uri = authority.and_then(|it| it.as_str().parse().ok()).unwrap_or_default();
        (head, Body::new(BodyReader::new(body, self.body_timeouts)))
    }

    /// What is kept of the sender, charged to the request.
    pub(super) fn metadata(
        &self,
        route: &dyn IngressRoute,
        sender: &Sender,
        head: &Parts,
        permit: &mut Permit,
    ) -> Result<Arc<Metadata>, Refused> {
        let keys = if self.include_metadata { route.metadata_keys() } else { &[] };
        Ok(sender.metadata(head, keys, permit)?)
    }

    /// Steps 5 to 7, unless the request was refused by then. Counts what becomes of it.
    pub(super) async fn receive(
        &self,
        counters: &SignalCounters,
        arrived: Result<Arrived, Refused>,
    ) -> Result<(), Refused> {
        let arrived = arrived.inspect_err(|refused| counters.count_refused(refused, 0))?;
        let len_bytes = arrived.body.len();
        match self.submit(arrived).await {
            Ok(items) => {
                counters.count_accepted(items, len_bytes);
                Ok(())
            }
            Err((refused, items)) => {
                counters.count_refused(&refused, items);
                Err(refused)
            }
        }
    }

    /// Steps 5 to 7: inspects the body and submits it. Returns the items accepted; with an error,
    /// the items refused as far as they were counted.
    async fn submit(&self, arrived: Arrived) -> Result<u32, (Refused, u32)> {
        let Arrived { route, signal, format, packing, body, metadata, permit } = arrived;
        let work = Work::new(&*route, signal, format, packing, body, self.limit_bytes);
        let (inspected, permit) =
            self.inspector.inspect(work, permit).await.map_err(|refused| (refused, 0))?;
        let Inspected { items, payload } = inspected;
        if items == 0 {
            return Ok(0);
        }
        let request = Request { payload, items, metadata, position: None };
        let accepted = match route.submit(request, permit) {
            Ok(receipt) => receipt.accepted().await,
            Err(refusal) => Err(refusal),
        };
        accepted.map(|()| items).map_err(|refusal| (refusal.into(), items))
    }
}
