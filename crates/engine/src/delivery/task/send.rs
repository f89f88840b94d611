//! A batch on its way: packed in its turn, sent, and awaited for no longer than the timeout.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use futures_util::future::OptionFuture;
use sluice_flow::dispatch::{Batch, State};
use sluice_flow::hop::RangesTooLong;
use sluice_flow::overload::STILL;
use sluice_flow::{Outcome, Packed};
use sluice_otlp::Encoding;

use super::Task;
use crate::delivery::content::Content;
use crate::delivery::naming;
use crate::delivery::prepare::{Lease, contents, pack};
use crate::delivery::sending::{packing_bytes, work_of};
use crate::private_memory::ChargedCopy;

/// The end of an attempt.
pub(super) struct Sent {
    /// None if the request could not be packed.
    pub(super) packed: Option<Packed>,
    pub(super) outcome: Outcome,
    /// There was no answer within the exporter's timeout.
    pub(super) is_late: bool,
}

impl Task {
    pub(super) fn send_or_cut(&mut self, batch: Batch<Lease>, now: Instant) {
        match naming::header(&batch, &*self.preparer.exporter) {
            Ok(ranges) => self.send(batch, ranges),
            Err(RangesTooLong) => {
                let reason = "its ranges do not fit into a header".to_owned();
                let verdict = self.dispatcher.note_unpackable(batch, reason, now);
                self.apply(verdict);
            }
        }
    }

    fn send(&mut self, mut batch: Batch<Lease>, ranges: Option<Arc<str>>) {
        let exporter = self.preparer.exporter.clone();
        let packed = batch.packed.take();
        self.packed_waiting.give_back(packed.as_ref().map_or(0, |it| it.copied_bytes));
        let (mut sources, taken_bytes) = match &packed {
            Some(packed) => (Vec::new(), packed.copied_bytes),
            None => (contents(&batch), packing_bytes(&batch, exporter.as_ref())),
        };
        let (delivery, mut charged) =
            (self.delivery.clone(), self.delivery.sending.charge(taken_bytes));
        let metadata = batch.units[0].lease.leased.entry.frame.metadata.clone();
        let (signal, items) = (self.delivery.signal, batch.items as u32);
        let ([bytes, len], large_work) = (work_of(&batch.units), self.preparer.large_work.clone());
        let share_bytes = self.delivery.sending_limit_bytes.load(Ordering::Relaxed);
        let is_open = *self.dispatcher.state() == State::Open;
        // Until many requests have failed in a row, a backend that hangs is open.
        let is_healthy = is_open && !delivery.health.judge(Instant::now(), false).stands_still;
        // A probe is no sign of progress.
        let is_first = self.in_flight.is_empty() && is_open;
        let handle = self.sending.spawn(async move {
            let is_large = taken_bytes as u64 > share_bytes;
            let takes_turn = is_large || sources.iter().any(Content::is_let_go);
            let turn = takes_turn.then(|| large_work.hold(taken_bytes, is_healthy));
            let mut turn = OptionFuture::from(turn).await.flatten();
            if is_first {
                delivery.health.note_begun(Instant::now());
            }
            let mut made = Vec::<Arc<ChargedCopy>>::new();
            let pack = || {
                for source in &mut sources {
                    made.extend(source.restore()?);
                }
                pack(exporter.as_ref(), signal, items, sources, metadata)
            };
            let pack = || large_work.on(bytes, len, pack);
            let mut packed = match packed.map_or_else(pack, Ok) {
                Ok(packed) => Packed { ranges, ..packed },
                Err(error) => {
                    return Sent { packed: None, outcome: error.into(), is_late: false };
                }
            };
            made.dedup_by(|one, other| Arc::ptr_eq(one, other));
            if !made.is_empty() && packed.encoding == Encoding::Identity {
                // It may refer to what was made, of which it does not know that it is a copy.
                packed.copied_bytes = made.iter().map(|copy| copy.bytes.len()).sum();
            }
            drop(made);
            delivery.lower(&mut charged, packed.copied_bytes);
            turn.iter_mut().for_each(|turn| turn.lower(packed.copied_bytes));
            let timeout = exporter.timeout();
            let outcome = {
                let mut answer = pin!(tokio::time::timeout(timeout, exporter.send(&packed)));
                match &mut turn {
                    None => answer.await,
                    Some(turn) => match tokio::time::timeout(STILL, &mut answer).await {
                        Ok(outcome) => outcome,
                        Err(_) => {
                            turn.give_way(&large_work);
                            answer.await
                        }
                    },
                }
            };
            let is_late = outcome.is_err();
            let outcome = outcome.unwrap_or_else(|_| {
                let reason = format!("no answer within {timeout:?} (timeout)");
                Outcome::RetryAfter { delay: None, reason }
            });
            Sent { packed: Some(packed), outcome, is_late }
        });
        self.delivery.stats.sent_at.lock().insert(handle.id(), Instant::now());
        self.in_flight.insert(handle.id(), batch);
    }
}
