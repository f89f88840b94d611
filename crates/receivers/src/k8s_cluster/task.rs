//! Collections of metrics: one each interval, once the objects are known.

use std::sync::Arc;
use std::time::Duration;

use sluice_flow::fitted;
use sluice_flow::source::Ingress;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::config::Options;
use super::counters::Counters;
use super::record::{Around, record};
use super::recorder::{Frame, Recorder};
use super::tables::{SCHEMA_URL, SCOPE};
use super::watches::Watches;
use crate::large_work::LargeWork;
use crate::scraping::{Admitted, Refused, admit, now_ns};

/// Objects are listed by then, as for the Collector.
const SYNC_TIMEOUT: Duration = Duration::from_secs(600);
/// A request ends with the resource that makes it this long.
const REQUEST_BYTES: usize = 512 << 10;
/// A request's buffer grows by doubling.
const BUFFER_BYTES: usize = 2 * REQUEST_BYTES;

pub(super) struct Task {
    /// The receiver's id.
    pub(super) receiver: Arc<str>,
    pub(super) ingress: Arc<dyn Ingress>,
    pub(super) options: Options,
    pub(super) watches: Arc<Watches>,
    pub(super) counters: Arc<Counters>,
    pub(super) large_work: LargeWork,
    /// Nanoseconds since 1970.
    pub(super) start_ns: u64,
}

impl Task {
    pub(super) async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = self.watches.settled(SYNC_TIMEOUT) => {}
            () = stop.cancelled() => return,
        }
        let (every, mut last) = (self.options.interval, Instant::now());
        let mut interval = interval_at(last + every, every);
        interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let tick = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                tick = interval.tick() => tick,
            };
            let passed = tick.saturating_duration_since(last).as_nanos() / every.as_nanos().max(1);
            self.counters.collected(u64::try_from(passed).unwrap_or(u64::MAX).saturating_sub(1));
            last = tick;
            tokio::select! {
                done = self.collect() => {
                    if let Err(refused) = done {
                        self.counters.taken.refuse(&self.receiver, 0, &refused);
                    }
                }
                () = stop.cancelled() => return,
            }
        }
    }

    /// Sends the metrics of all objects, as requests of limited length. If the engine has no room,
    /// the rest of the collection is lost.
    async fn collect(&self) -> Result<(), Refused> {
        let frame = Frame {
            choice: &self.options.choice,
            scope: SCOPE,
            version: env!("CARGO_PKG_VERSION"),
            schema_url: SCHEMA_URL,
            start_ns: self.start_ns,
            time_ns: now_ns(),
        };
        let endpoints = self.watches.endpoints();
        let around = Around { nodes: &self.options.nodes, endpoints: &endpoints };
        let mut recorder = Recorder::new(frame);
        let mut room = None;
        for objects in self.watches.objects() {
            for object in objects {
                if room.is_none() {
                    room = Some(admit(&*self.ingress, BUFFER_BYTES).await?);
                }
                record(&object, &around, &mut recorder);
                if recorder.len() >= REQUEST_BYTES {
                    self.submit(&mut recorder, room.take()).await;
                }
            }
        }
        self.submit(&mut recorder, room).await;
        Ok(())
    }

    /// Hands over a request, and waits while deliveries are behind.
    async fn submit(&self, recorder: &mut Recorder<'_>, room: Option<Admitted>) {
        let (bytes, items) = recorder.take();
        let Some(mut admitted) = room.filter(|_| items > 0) else { return };
        let payload = fitted(bytes);
        let submitted = match admitted.permit.grow_to(payload.len()) {
            Ok(()) => {
                admitted.permit.shrink_to(payload.len());
                admitted.submit(payload, items, &self.large_work).await
            }
            Err(refusal) => Err(refusal.into()),
        };
        match submitted {
            Ok(mut receipt) => {
                self.counters.taken.accept(items);
                receipt.paced().await;
            }
            Err(refused) => self.counters.taken.refuse(&self.receiver, items, &refused),
        }
    }
}
