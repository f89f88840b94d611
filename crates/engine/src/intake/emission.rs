//! Points that a processor gives out by itself: they go through the steps behind it into the log,
//! after the same admission as a receiver's data (docs/decisions/050).

use std::iter::once;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluice_flow::source::{ArrivedBody, MemoryPool, Permit, Request};
use sluice_flow::{Payload, Refusal};
use sluice_otlp::Signal;
use sluice_processors::{Emission, Emitter};

use super::ReceiverRoute;
use crate::steps::{self, Step};

/// Bytes that are given out at a time.
const EMITTED_BYTES: usize = 256 << 10;
/// A request of fewer bytes is not made smaller when it is refused for good.
const LEAST_BYTES: usize = 1 << 10;
/// The pause after a refusal that names none.
const PAUSE: Duration = Duration::from_secs(1);

/// A processor that gives out points, and their way into the log.
pub(crate) struct Emitting {
    step: Arc<Step>,
    /// Its steps are those behind the processor.
    route: Arc<ReceiverRoute>,
}

/// Memory for a writing at the end: what is written is in the processor already.
struct Granted;

impl MemoryPool for Granted {
    fn take(&self, _: usize, _: usize) -> Result<(), Refusal> {
        Ok(())
    }

    fn give_back(&self, _: usize) {}
}

impl Emitting {
    pub(super) fn new(step: Arc<Step>, route: ReceiverRoute) -> Self {
        Emitting { step, route: Arc::new(route) }
    }

    pub(crate) fn step(&self) -> &Arc<Step> {
        &self.step
    }

    pub(crate) fn signal(&self) -> Signal {
        self.route.signal
    }

    fn emitter(&self) -> Option<Arc<dyn Emitter>> {
        self.step.processor.emitter()
    }

    /// Writes what is due, until the task is aborted: at an await, where nothing is half done.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut limit_bytes = EMITTED_BYTES;
        while let Some(emitter) = self.emitter() {
            emitter.waits().await;
            while emitter.is_due() {
                match self.emit_due(limit_bytes).await {
                    Ok(true) => limit_bytes = EMITTED_BYTES,
                    Ok(false) => break,
                    Err(refusal) => {
                        limit_bytes = self.smaller(&refusal, limit_bytes);
                        tokio::time::sleep(pause(&refusal)).await;
                    }
                }
            }
        }
    }

    /// Waits for admission, as receivers do. True if something was written.
    async fn emit_due(&self, limit_bytes: usize) -> Result<bool, Refusal> {
        let mut permit = self.route.admit_or_wait(limit_bytes, &ArrivedBody::default()).await?;
        let emitted = self.emit(Emission::Due, limit_bytes, &mut permit)?;
        drop(permit);
        if emitted == Some(true) {
            self.route.delay_answer().await;
        }
        Ok(emitted.is_some())
    }

    /// Writes all that the processor keeps, without admission: it is in memory already, and what
    /// it is in is about to end. Points that come from now on pass as they are.
    pub(crate) fn end(&self) {
        let Some(emitter) = self.emitter() else { return };
        emitter.keeps_back(false);
        let mut limit_bytes = EMITTED_BYTES;
        // A permit that never has to grow.
        let Ok(mut permit) = Permit::take(Arc::new(Granted), usize::MAX / 2) else { return };
        loop {
            match self.emit(Emission::All, limit_bytes, &mut permit) {
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(_) if limit_bytes > LEAST_BYTES => limit_bytes /= 2,
                Err(refusal) => {
                    let series = self.step.processor.series().map(|it| it.usage().series);
                    tracing::error!(
                        processor = self.step.id,
                        series,
                        reason = reason(&refusal),
                        "aggregated points cannot be stored at the end: they are lost"
                    );
                    return;
                }
            }
        }
    }

    /// The processor keeps points back again, after an end that was none.
    pub(crate) fn begin(&self) {
        self.emitter().iter().for_each(|emitter| emitter.keeps_back(true));
    }

    /// Writes one request in its turn. Nothing if there is none; true if senders should slow down.
    fn emit(
        &self,
        which: Emission,
        limit_bytes: usize,
        permit: &mut Permit,
    ) -> Result<Option<bool>, Refusal> {
        let Some(emitter) = self.emitter() else { return Ok(None) };
        let behind = self.route.route.prefix.iter();
        let steps: Vec<Arc<Step>> = once(&self.step).chain(behind).cloned().collect();
        let (is_tight, items) = steps::in_turn(&steps, || {
            let Some((bytes, items)) = emitter.emit(which, limit_bytes) else {
                return (true, Ok((None, 0)));
            };
            let appended = permit.grow_to(bytes.len()).and_then(|()| {
                self.route.append(Request::new(Payload::identity(bytes), items), permit)
            });
            // A request that is refused is back in its bucket.
            (appended.is_ok(), appended.map(|(_, is_tight)| (Some(is_tight), items)))
        })?;
        let counters = self.step.counters.load();
        counters.outgoing.fetch_add(u64::from(items), Ordering::Relaxed);
        Ok(is_tight)
    }

    /// The size of the next attempt: a request that steps behind the processor make too large is
    /// cut.
    fn smaller(&self, refusal: &Refusal, limit_bytes: usize) -> usize {
        if matches!(refusal, Refusal::Retry { .. } | Refusal::Unconfirmed { .. }) {
            return limit_bytes;
        }
        tracing::warn!(
            processor = self.step.id,
            reason = reason(refusal),
            "aggregated points are refused and stay in memory: they are tried again in smaller \
             requests"
        );
        (limit_bytes / 2).max(LEAST_BYTES)
    }
}

fn pause(refusal: &Refusal) -> Duration {
    match refusal {
        Refusal::Retry { delay, .. } | Refusal::Unconfirmed { delay, .. } => *delay,
        _ => PAUSE,
    }
}

fn reason(refusal: &Refusal) -> &str {
    match refusal {
        Refusal::Retry { reason, .. }
        | Refusal::Unconfirmed { reason, .. }
        | Refusal::TooLarge { reason }
        | Refusal::Invalid { reason }
        | Refusal::Rejected { reason }
        | Refusal::Failed { reason } => reason,
        Refusal::Overlaps => "it overlaps another one",
    }
}
