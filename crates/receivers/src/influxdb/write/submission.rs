//! A request of a write goes to the engine, until it is accepted or refused for good.

use std::sync::Arc;

use bytes::Bytes;
use sluice_flow::source::{Permit, Request};
use sluice_flow::{Payload, Refusal};

use super::{BASE_CUT_BYTES, Writing};
use crate::influxdb::counters::{Counted, add};
use crate::influxdb::refused::{Reason, Refused};

impl Writing<'_> {
    /// Submits the request, if there is one, and waits until it is accepted.
    pub(super) async fn submit_chunk(&mut self) -> Result<(), Refused> {
        let Some(mut permit) = self.permit.take() else { return Ok(()) };
        let points = self.chunk.builder.points();
        let lines_before = std::mem::replace(&mut self.lines_before, self.reader.lines());
        let counted = self.chunk.builder.counts();
        let payload = Bytes::from(self.chunk.builder.take(&self.resource));
        self.chunk.begin();
        let cut = self.reader.held_bytes().saturating_sub(BASE_CUT_BYTES);
        self.cut = (cut > 0).then(|| permit.split_off(cut));
        if points == 0 {
            return Ok(());
        }
        permit.shrink_to(payload.len());
        match self.submit(&payload, (points, &counted), permit).await {
            Ok(()) => {
                add(&self.writer.counters.accepted_items, u64::from(points));
                Ok(())
            }
            // The other lines of the body may be better.
            Err(refused) if is_for_good(&refused) => {
                self.outcome.dropped.add(points, lines_before + 1, self.lines_before);
                let first = self.outcome.refused.get_or_insert(refused);
                first.items = first.items.saturating_add(points);
                Ok(())
            }
            Err(refused) => Err(Refused { items: points, ..refused }),
        }
    }

    async fn submit(
        &mut self,
        payload: &Bytes,
        (points, counted): (u32, &[Counted]),
        mut permit: Permit,
    ) -> Result<(), Refused> {
        loop {
            let route = self.writer.route()?;
            let keys = match self.writer.config.shared.include_metadata {
                true => route.metadata_keys(),
                false => &[],
            };
            let metadata = self.sender.metadata(self.head, keys, &mut permit);
            let payload_of = || Payload::identity(payload.clone());
            let accepted = match metadata {
                Ok(metadata) => {
                    let request = Request { metadata, ..Request::new(payload_of(), points) };
                    let large_work = &self.writer.large_work;
                    let turn = large_work.to_submit(payload.len(), points as usize).await;
                    let submitted = Arc::clone(&route).submit(request, permit);
                    drop(turn);
                    match submitted {
                        Ok(receipt) => {
                            // Whatever its answer will be: it is in the log.
                            self.writer.counters.note_received(counted);
                            receipt.accepted().await
                        }
                        Err(refusal) => Err(refusal),
                    }
                }
                Err(refusal) => Err(refusal),
            };
            let delay = match accepted {
                Ok(()) => return Ok(()),
                // The engine has nothing of it.
                Err(Refusal::Retry { delay, .. }) => delay,
                Err(refusal) => return Err(refusal.into()),
            };
            let _kept = self.writer.base(payload.len(), &mut self.body).await?;
            self.writer.pause(delay).await?;
            let cut = self.cut.take();
            permit = self.admitted(payload.len(), payload.len(), 0).await?;
            self.cut = cut;
        }
    }
}

/// The engine would refuse it again.
fn is_for_good(refused: &Refused) -> bool {
    use Reason::*;
    matches!(refused.reason, Invalid | Rejected | Failed | NeverFits) && refused.delay.is_none()
}
