//! Sends the requests of one destination, one after the other. While its backend takes nothing,
//! they wait in their source, which is bounded, and pauses between tries grow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sluice_flow::{Exporter, Outcome, PackError, Packed};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::stats::PushStats;

/// The log says at most this often that a backend takes nothing.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// Requests that wait.
pub(super) trait Source: Send + Sync + 'static {
    type Kept: Send;

    /// Waits until something should be sent.
    fn ready(&self) -> impl Future<Output = ()> + Send;

    /// The oldest request.
    fn take(&self) -> Option<Request<Self::Kept>>;

    /// Takes back what was not sent. It may be dropped, and is counted then.
    fn put_back(&self, kept: Self::Kept);
}

pub(super) struct Request<K> {
    /// An OTLP request as protobuf.
    pub body: Vec<u8>,
    pub items: u32,
    pub kept: K,
}

/// Between tries of a request that the backend does not take.
#[derive(Clone, Copy)]
pub(super) struct Pauses {
    pub first: Duration,
    pub longest: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Pauses { first: Duration::from_secs(1), longest: Duration::from_secs(30) }
    }
}

pub(super) struct Sender {
    pub exporter: Arc<dyn Exporter>,
    pub timeout: Duration,
    pub stats: Arc<PushStats>,
    pub endpoint: String,
    pub pauses: Pauses,
}

enum Sent {
    Taken,
    Again { delay: Option<Duration>, reason: String },
    Refused { reason: String },
}

impl Sender {
    /// Sends until it is stopped, and then all that waits, up to the first request that fails.
    pub(super) async fn run<S: Source>(self, source: Arc<S>, stop: CancellationToken) {
        let mut trouble = Trouble::default();
        while stop.run_until_cancelled(source.ready()).await.is_some() {
            while let Some(delay) = self.send_waiting(&*source, &mut trouble).await {
                if stop.run_until_cancelled(sleep(delay)).await.is_none() {
                    break;
                }
            }
        }
        self.send_waiting(&*source, &mut trouble).await;
        self.exporter.shutdown();
    }

    /// Sends all that waits. If a request is to be sent again: the pause until then.
    async fn send_waiting<S: Source>(&self, source: &S, trouble: &mut Trouble) -> Option<Duration> {
        while let Some(Request { body, items, kept }) = source.take() {
            match self.send(body, items).await {
                Sent::Taken => self.taken(u64::from(items), trouble),
                Sent::Refused { reason } => {
                    count(&self.stats.refused_requests, 1);
                    count(&self.stats.dropped_items, u64::from(items));
                    self.say(trouble, &reason, "its backend refuses own telemetry, which is lost");
                }
                Sent::Again { delay, reason } => {
                    count(&self.stats.failed_requests, 1);
                    source.put_back(kept);
                    self.say(
                        trouble,
                        &reason,
                        "own telemetry cannot be sent: it waits, as much \
                                                as there is room for",
                    );
                    return Some(trouble.pause(self.pauses, delay));
                }
            }
        }
        None
    }

    async fn send(&self, body: Vec<u8>, items: u32) -> Sent {
        let signal = self.stats.signal;
        let (chunks, encoding) = match self.exporter.pack(signal, vec![Bytes::from(body)]) {
            Ok(packed) => packed,
            Err(PackError::TooLarge(reason) | PackError::Failed(reason)) => {
                return Sent::Refused { reason };
            }
        };
        let request = Packed::new(signal, items, chunks, encoding, Arc::default());
        let Ok(outcome) = timeout(self.timeout, self.exporter.send(&request)).await else {
            let reason = format!("no answer within {:?}", self.timeout);
            return Sent::Again { delay: None, reason };
        };
        match outcome {
            Outcome::Delivered => Sent::Taken,
            Outcome::PartlyRejected { items: refused, reason } => {
                // No backend can refuse more than it was sent.
                let items = refused.min(u64::from(items));
                count(&self.stats.dropped_items, items);
                tracing::warn!(
                    destination = %self.stats.name, endpoint = %self.endpoint, items, %reason,
                    "the backend refuses a part of own telemetry"
                );
                Sent::Taken
            }
            Outcome::RetryAfter { delay, reason } => Sent::Again { delay, reason },
            // It may be corrected while the process runs.
            Outcome::Misconfigured { reason } => Sent::Again { delay: None, reason },
            Outcome::TooLarge { reason }
            | Outcome::Overlaps { reason }
            | Outcome::Rejected { reason }
            | Outcome::Failed { reason } => Sent::Refused { reason },
        }
    }

    fn taken(&self, items: u64, trouble: &mut Trouble) {
        count(&self.stats.taken_requests, 1);
        count(&self.stats.sent_items, items);
        if std::mem::take(trouble).said.is_some() {
            let (destination, endpoint) = (&self.stats.name, &self.endpoint);
            let dropped_items = self.stats.dropped();
            tracing::info!(%destination, %endpoint, dropped_items, "own telemetry is sent again");
        }
    }

    fn say(&self, trouble: &mut Trouble, reason: &str, message: &str) {
        if trouble.said.is_some_and(|said| said.elapsed() < SAID_EVERY) {
            return;
        }
        trouble.said = Some(Instant::now());
        let (destination, endpoint) = (&self.stats.name, &self.endpoint);
        let (waiting, dropped_items) = (self.stats.waiting(), self.stats.dropped());
        tracing::warn!(%destination, %endpoint, reason, waiting, dropped_items, "{message}");
    }
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Since the last request that was taken.
#[derive(Default)]
struct Trouble {
    said: Option<Instant>,
    tries: u32,
}

impl Trouble {
    /// The next pause: the backend's wish, or twice the one before, varied at random.
    fn pause(&mut self, Pauses { first, longest }: Pauses, wish: Option<Duration>) -> Duration {
        let grown = first.saturating_mul(1 << self.tries.min(8)).min(longest);
        self.tries += 1;
        let varied = grown.mul_f64(0.75 + fastrand::f64() / 4.0);
        wish.map_or(varied, |wish| wish.clamp(varied, longest))
    }
}
