//! Hands requests to the engine. The senders cannot be told of a refusal: what is refused for the
//! moment waits here, and nothing more is read of its connection meanwhile.

use std::sync::Arc;

use bytes::Bytes;
use sluice_flow::source::{ArrivedBody, Ingress, IngressRoute, Permit, Request};
use sluice_flow::{Metadata, Payload, Refusal};
use sluice_otlp::{Signal, SplitLimits, split};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::counters::Counters;
use super::records::{Made, Records};
use super::refused::{Reason, Refused, by_engine, unrouted};

pub(super) struct Intake {
    /// The receiver's id.
    pub receiver: Arc<str>,
    /// The engine takes nothing more.
    pub closed: CancellationToken,
    pub ingress: Arc<dyn Ingress>,
    pub counters: Arc<Counters>,
    pub records: Records,
}

/// Records on their way. If they do not get in before the receiver is cut off, that is counted.
pub(super) struct OnTheWay<'i> {
    intake: &'i Intake,
    pub items: u32,
}

impl Drop for OnTheWay<'_> {
    fn drop(&mut self) {
        if self.items > 0 {
            let message = "records were cut off on their way";
            let refused = Refused::new(Reason::CutOff, message);
            self.intake.refuse(None, &Refused { items: self.items, ..refused });
        }
    }
}

impl Intake {
    pub(super) fn refuse(&self, peer: Option<&str>, refused: &Refused) {
        self.counters.refuse(&self.receiver, peer, refused);
    }

    pub(super) fn on_the_way(&self, items: u32) -> OnTheWay<'_> {
        OnTheWay { intake: self, items }
    }

    /// Submits what operators have held for their time; at the end all of it.
    pub(super) async fn flush(&self, is_end: bool) {
        let all = self.records.flush(is_end);
        let mut left = self.on_the_way(all.iter().map(|made| made.items).sum());
        for made in all {
            left.items -= made.items;
            self.submit(made, None, &Arc::default(), 0).await;
        }
    }

    /// Memory for this many bytes, once there is some. `is_there`: they are in memory already.
    ///
    /// # Errors
    /// It can never have as much.
    pub(super) async fn admit(
        &self,
        bytes: usize,
        is_there: bool,
        peer: Option<&str>,
    ) -> Result<(Arc<dyn IngressRoute>, Permit), Refused> {
        loop {
            let arrived = ArrivedBody::default();
            if is_there && let Ok(permit) = Permit::take(self.ingress.waiting(true), bytes) {
                arrived.set(permit);
            }
            let refused = match self.ingress.route(Signal::Logs) {
                None => unrouted(),
                Some(route) => match route.admit(bytes, &arrived).await {
                    Ok(permit) => return Ok((route, permit)),
                    Err(refusal) => by_engine(refusal),
                },
            };
            self.wait_after(peer, refused).await?;
        }
    }

    /// Waits if the refusal is for the moment.
    async fn wait_after(&self, peer: Option<&str>, refused: Refused) -> Result<(), Refused> {
        let Some(delay) = refused.delay else { return Err(refused) };
        self.refuse(peer, &refused);
        sleep(delay).await;
        Ok(())
    }

    /// Returns once all records are accepted, or refused for good. `received_bytes`: of which they
    /// were made.
    pub(super) async fn submit(
        &self,
        made: Made,
        mut permit: Option<Permit>,
        metadata: &Arc<Metadata>,
        received_bytes: usize,
    ) {
        let mut on_the_way = self.on_the_way(made.items);
        let mut accepted = 0;
        let mut left = vec![(made.payload, made.items)];
        while let Some((payload, items)) = left.pop() {
            match self.submit_one(&payload, items, permit.take(), metadata).await {
                Ok(()) => {
                    accepted += items;
                    on_the_way.items -= items;
                }
                // A refusal that time does not change is for some of the records.
                Err(refused) => match halves(&payload, items) {
                    Some(halves) => left.extend(halves),
                    None => {
                        on_the_way.items -= items;
                        let refused = Refused { items, ..refused };
                        self.refuse(metadata.peer.as_deref(), &refused);
                    }
                },
            }
        }
        if accepted > 0 {
            self.counters.count_accepted(accepted, received_bytes);
        }
    }

    async fn submit_one(
        &self,
        payload: &Bytes,
        items: u32,
        mut permit: Option<Permit>,
        metadata: &Arc<Metadata>,
    ) -> Result<(), Refused> {
        if items == 0 {
            return Ok(());
        }
        let peer = metadata.peer.as_deref();
        loop {
            let grown = permit.take().and_then(|mut permit| {
                permit.grow_to(payload.len()).ok()?;
                permit.shrink_to(payload.len());
                Some((self.ingress.route(Signal::Logs)?, permit))
            });
            let (route, permit) = match grown {
                Some(grown) => grown,
                None => self.admit(payload.len(), true, peer).await?,
            };
            let (payload, metadata) = (Payload::identity(payload.clone()), Arc::clone(metadata));
            let request = Request { metadata, ..Request::new(payload, items) };
            let accepted = match route.submit(request, permit) {
                Ok(receipt) => receipt.accepted().await,
                Err(refusal) => Err(refusal),
            };
            match accepted {
                // It is in the log or counted as dropped: to submit it again would double it.
                Ok(()) | Err(Refusal::Unconfirmed { .. }) => return Ok(()),
                Err(refusal) => self.wait_after(peer, by_engine(refusal)).await?,
            }
        }
    }
}

/// A request in two, the later records first.
fn halves(payload: &Bytes, items: u32) -> Option<Vec<(Bytes, u32)>> {
    if items <= 1 {
        return None;
    }
    let parts = split(Signal::Logs, payload, SplitLimits::half_of(items)).ok()?;
    let is_cut = parts.len() > 1;
    is_cut.then(|| parts.into_iter().rev().map(|part| (part.bytes, part.items)).collect())
}
