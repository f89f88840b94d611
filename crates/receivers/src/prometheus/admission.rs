//! Memory for a page, from the engine: asked for when the target has answered, and as its bytes
//! come. A target that is slow or silent holds none.

use std::sync::Arc;

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, StatusCode};
use sluice_flow::BoxFuture;
use sluice_flow::source::{ArrivedBody, Ingress, IngressRoute, Permit};
use sluice_net::client::{Room, TransportError};
use sluice_otlp::Signal;

use super::failure::{Failure, Refused, Trouble};

/// The body of an answer that is no page is read up to here, so that its connection is kept.
const OTHER_BODY_BYTES: usize = 16 << 10;
/// Asked for at first, at least.
const LEAST_BYTES: usize = 16 << 10;

/// A part of the engine's memory, and the route whose it is.
pub(super) struct Admitted {
    pub(super) route: Arc<dyn IngressRoute>,
    pub(super) permit: Permit,
}

/// Waits for memory, for a bounded time.
pub(super) async fn admit(ingress: &dyn Ingress, bytes: usize) -> Result<Admitted, Refused> {
    let route = ingress.route(Signal::Metrics).ok_or_else(Refused::unrouted)?;
    let permit = route.admit(bytes, &ArrivedBody::default()).await?;
    Ok(Admitted { route, permit })
}

/// The room for one page.
pub(super) struct Admission {
    ingress: Arc<dyn Ingress>,
    /// Of the last page, in all.
    expected_bytes: usize,
    /// The longest body.
    limit_bytes: usize,
    admitted: Option<Admitted>,
    /// The engine is asked, and has not answered.
    is_waiting: bool,
    trouble: Option<Trouble>,
}

impl Admission {
    pub(super) fn new(
        ingress: Arc<dyn Ingress>,
        expected_bytes: usize,
        limit_bytes: usize,
    ) -> Admission {
        let (admitted, is_waiting, trouble) = (None, false, None);
        Admission { ingress, expected_bytes, limit_bytes, admitted, is_waiting, trouble }
    }

    /// Why the body was not read, if that is not for the network.
    pub(super) fn trouble(&mut self) -> Option<Trouble> {
        self.trouble.take()
    }

    /// True if time ran out while the engine was asked: the target is not to blame.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    pub(super) fn admitted(&mut self) -> Option<Admitted> {
        self.admitted.take()
    }

    fn fail(&mut self, trouble: impl Into<Trouble>) -> TransportError {
        self.trouble = Some(trouble.into());
        TransportError::Unwanted
    }

    async fn ask(&mut self, announced_bytes: usize) -> Result<(), TransportError> {
        if announced_bytes > self.limit_bytes {
            return Err(self.fail(Failure::body_size(self.limit_bytes)));
        }
        let bytes = body_memory(announced_bytes).max(self.expected_bytes).max(LEAST_BYTES);
        self.is_waiting = true;
        let admitted = admit(&*self.ingress, bytes).await;
        self.is_waiting = false;
        match admitted {
            Ok(admitted) => self.admitted = Some(admitted),
            Err(refused) => return Err(self.fail(Trouble::Refused(refused))),
        }
        Ok(())
    }
}

/// Memory of a body of this many bytes while it comes: its buffer grows by doubling.
pub(super) fn body_memory(bytes: usize) -> usize {
    bytes.saturating_mul(2)
}

impl Room for Admission {
    fn open<'a>(
        &'a mut self,
        status: StatusCode,
        headers: &'a HeaderMap,
    ) -> Option<BoxFuture<'a, Result<(), TransportError>>> {
        if status != StatusCode::OK {
            return None;
        }
        let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        Some(Box::pin(self.ask(length)))
    }

    fn grow(&mut self, bytes: usize) -> Result<(), TransportError> {
        let Some(admitted) = &mut self.admitted else {
            let is_short = bytes <= OTHER_BODY_BYTES;
            return if is_short { Ok(()) } else { Err(TransportError::Unwanted) };
        };
        if bytes > self.limit_bytes {
            return Err(self.fail(Failure::body_size(self.limit_bytes)));
        }
        match admitted.permit.grow_to(body_memory(bytes)) {
            Ok(()) => Ok(()),
            Err(refusal) => Err(self.fail(refusal)),
        }
    }
}
