//! Memory for an answer, from the engine: asked for when the target has answered, and as its bytes
//! come. A target that is slow or silent holds none.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, StatusCode};
use sluice_flow::source::{ArrivedBody, Ingress, IngressRoute, Permit, Receipt, Request};
use sluice_flow::{BoxFuture, Payload};
use sluice_net::client::{Room, TransportError};
use sluice_otlp::Signal;

use super::refused::Refused;
use crate::large_work::LargeWork;

/// The body of an answer that is no page is read up to here, so that its connection is kept.
const OTHER_BODY_BYTES: usize = 16 << 10;
/// Asked for at first, at least.
const LEAST_BYTES: usize = 16 << 10;

/// A part of the engine's memory, and the route whose it is.
pub(crate) struct Admitted {
    pub(crate) route: Arc<dyn IngressRoute>,
    pub(crate) permit: Permit,
}

impl Admitted {
    /// Hands a request over. A large one takes turns with others.
    pub(crate) async fn submit(
        self,
        payload: Bytes,
        items: u32,
        large_work: &LargeWork,
    ) -> Result<Receipt, Refused> {
        let Admitted { route, permit } = self;
        let _turn = large_work.to_submit(payload.len(), items as usize).await;
        let request = Request::new(Payload::identity(payload), items);
        Ok(route.submit(request, permit)?)
    }
}

/// Why the body of an answer was not read, if that is not for the network.
#[derive(Debug)]
pub(crate) enum Unread {
    TooLong { limit_bytes: usize },
    Refused(Refused),
}

/// Waits for memory, for a bounded time.
pub(crate) async fn admit(ingress: &dyn Ingress, bytes: usize) -> Result<Admitted, Refused> {
    let route = ingress.route(Signal::Metrics).ok_or_else(Refused::unrouted)?;
    let permit = route.admit(bytes, &ArrivedBody::default()).await?;
    Ok(Admitted { route, permit })
}

/// The room for one page.
pub(crate) struct Admission {
    ingress: Arc<dyn Ingress>,
    /// Of the last page, in all.
    expected_bytes: usize,
    /// The longest body.
    limit_bytes: usize,
    admitted: Option<Admitted>,
    /// The engine is asked, and has not answered.
    is_waiting: bool,
    unread: Option<Unread>,
}

impl Admission {
    pub(crate) fn new(
        ingress: Arc<dyn Ingress>,
        expected_bytes: usize,
        limit_bytes: usize,
    ) -> Admission {
        let (admitted, is_waiting, unread) = (None, false, None);
        Admission { ingress, expected_bytes, limit_bytes, admitted, is_waiting, unread }
    }

    /// Why the body was not read, if that is not for the network.
    pub(crate) fn unread(&mut self) -> Option<Unread> {
        self.unread.take()
    }

    /// True if time ran out while the engine was asked: the target is not to blame.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    pub(crate) fn admitted(&mut self) -> Option<Admitted> {
        self.admitted.take()
    }

    fn fail(&mut self, unread: Unread) -> TransportError {
        self.unread = Some(unread);
        TransportError::Unwanted
    }

    fn too_long(&mut self) -> TransportError {
        self.fail(Unread::TooLong { limit_bytes: self.limit_bytes })
    }

    async fn ask(&mut self, announced_bytes: usize) -> Result<(), TransportError> {
        if announced_bytes > self.limit_bytes {
            return Err(self.too_long());
        }
        let bytes = body_memory(announced_bytes).max(self.expected_bytes).max(LEAST_BYTES);
        self.is_waiting = true;
        let admitted = admit(&*self.ingress, bytes).await;
        self.is_waiting = false;
        match admitted {
            Ok(admitted) => self.admitted = Some(admitted),
            Err(refused) => return Err(self.fail(Unread::Refused(refused))),
        }
        Ok(())
    }
}

/// Memory of a body of this many bytes while it comes: its buffer grows by doubling.
pub(crate) fn body_memory(bytes: usize) -> usize {
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
            return Err(self.too_long());
        }
        match admitted.permit.grow_to(body_memory(bytes)) {
            Ok(()) => Ok(()),
            Err(refusal) => Err(self.fail(Unread::Refused(refusal.into()))),
        }
    }
}
