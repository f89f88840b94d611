//! Scrape after scrape, until it is stopped.

use std::sync::Arc;
use std::time::Duration;

use sluice_flow::fitted;
use sluice_flow::source::Ingress;
use sluice_net::client::Secrets;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::{Asking, Fetched, Kubelet};
use super::cluster::Cluster;
use super::convert::{Claims, Encoded, Moment, Scrape, Settings, read_bytes};
use super::counters::Counters;
use super::failure::{Failure, Reason, Trouble};
use crate::large_work::LargeWork;
use crate::scraping::{Admitted, Refused, Schedule, Tick, now_ns};

/// Longer answers are read on a thread of their own.
const LARGE_ANSWER_BYTES: usize = 64 << 10;

const SUMMARY: &str = "/stats/summary";
const PODS: &str = "/pods";

pub(super) struct Task {
    /// The receiver's id.
    pub(super) receiver: Arc<str>,
    pub(super) ingress: Arc<dyn Ingress>,
    pub(super) counters: Arc<Counters>,
    pub(super) large_work: LargeWork,
    pub(super) settings: Arc<Settings>,
    pub(super) kubelet: Kubelet,
    pub(super) cluster: Option<Cluster>,
    pub(super) interval: Duration,
    pub(super) initial_delay: Duration,
    /// Of a scrape.
    pub(super) timeout: Duration,
    pub(super) started_ns: u64,
    /// Memory that the last answers took.
    pub(super) answer_bytes: [usize; 2],
    /// The reason for which scrapes fail, as the log was told.
    pub(super) told: Option<Reason>,
}

/// The kubelet's answers.
struct Answers {
    summary: Fetched,
    pods: Option<Fetched>,
}

/// A request, and the memory for it.
struct Made {
    encoded: Encoded,
    admitted: Admitted,
}

impl Task {
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut schedule = Schedule::new(self.interval, self.initial_delay);
        loop {
            let Tick { missed, .. } = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                tick = schedule.next() => tick,
            };
            self.counters.missed(missed);
            let made = tokio::select! {
                made = self.scrape() => made,
                () = stop.cancelled() => return,
            };
            match made {
                Ok(made) => {
                    self.tell(None);
                    self.submit(made, &stop).await;
                }
                Err(Trouble::Failed(failure)) => self.tell(Some(failure)),
                Err(Trouble::Refused(refused)) => {
                    self.counters.taken.refuse(&self.receiver, 0, &refused);
                }
            }
        }
    }

    async fn scrape(&mut self) -> Result<Made, Trouble> {
        let until = Instant::now() + self.timeout;
        let summary = self.get(SUMMARY, 0, until).await?;
        // The API server may take as long as a scrape may.
        let now_ns = now_ns();
        let pods = match self.settings.needs_pods() {
            true => Some(self.get(PODS, 1, until).await?),
            false => None,
        };
        let answers = Answers { summary, pods };
        let bytes = answers.bytes();
        self.counters.answered(bytes);
        let read = self.work(bytes, move || answers.read()).await??;
        let (scrape, mut admitted) = read;
        let claims = match &mut self.cluster {
            Some(cluster) => cluster.claims(scrape.claims(&self.settings), until).await,
            None => Claims::new(),
        };
        let settings = self.settings.clone();
        let node = self.cluster.as_ref().map(Cluster::capacity).unwrap_or_default();
        let started_ns = self.started_ns;
        let encode = move || {
            let moment = Moment { now_ns, started_ns, node, claims: &claims };
            let held_bytes = admitted.permit.bytes();
            let mut room = |bytes: usize| admitted.permit.grow_to(held_bytes + bytes);
            let encoded = scrape.encode(&settings, &moment, &mut room);
            encoded.map(|encoded| Made { encoded, admitted }).map_err(Refused::from)
        };
        Ok(self.work(bytes, encode).await??)
    }

    async fn get(&mut self, path: &str, at: usize, until: Instant) -> Result<Fetched, Trouble> {
        let expected_bytes = self.answer_bytes[at];
        let asking = Asking { ingress: &self.ingress, expected_bytes, until };
        let mut fetched = self.kubelet.get(path, asking).await?;
        let bytes = read_bytes(&fetched.body);
        fetched.admitted.permit.grow_to(bytes).map_err(Refused::from)?;
        self.answer_bytes[at] = bytes;
        Ok(fetched)
    }

    /// Does work that takes as long as answers are long.
    async fn work<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refused> {
        if bytes <= LARGE_ANSWER_BYTES {
            return Ok(work());
        }
        let _turn = self.large_work.turn().await;
        tokio::task::spawn_blocking(work).await.map_err(|error| {
            tracing::error!(%error, "the kubelet's answer could not be read");
            Refused::overloaded("the answer could not be read")
        })
    }

    async fn submit(&self, made: Made, stop: &CancellationToken) {
        let Made { encoded, mut admitted } = made;
        self.counters.skipped(&self.receiver, &encoded);
        let Encoded { bytes, items, .. } = encoded;
        if items == 0 {
            return;
        }
        let payload = fitted(bytes);
        admitted.permit.shrink_to(payload.len());
        match admitted.submit(payload, items, &self.large_work).await {
            Ok(mut receipt) => {
                self.counters.taken.accept(items);
                tokio::select! {
                    () = receipt.paced() => {}
                    () = stop.cancelled() => {}
                }
            }
            Err(refused) => self.counters.taken.refuse(&self.receiver, items, &refused),
        }
    }

    /// Counts a scrape. Logs the first failure of each kind, and that there is none any more.
    fn tell(&mut self, failure: Option<Failure>) {
        self.counters.scraped(failure.as_ref());
        let receiver = &*self.receiver;
        let told = std::mem::replace(&mut self.told, failure.as_ref().map(|it| it.reason));
        match failure {
            Some(Failure { reason, message }) if told != Some(reason) => {
                let (why, remedy) = (message, reason.remedy());
                let reason = reason.as_str();
                tracing::warn!(receiver, reason, why, "the kubelet gives no metrics: {remedy}");
            }
            Some(Failure { message, .. }) => tracing::debug!(receiver, why = message),
            None if told.is_some() => tracing::info!(receiver, "the kubelet gives metrics again"),
            None => {}
        }
    }
}

impl Answers {
    fn bytes(&self) -> usize {
        self.summary.body.len() + self.pods.as_ref().map_or(0, |pods| pods.body.len())
    }

    /// Reads them. Their memory is that of what is read, from here on.
    fn read(self) -> Result<(Scrape, Admitted), Trouble> {
        let Answers { summary, pods } = self;
        let scrape = Scrape::read(&summary.body, pods.as_ref().map(|pods| &*pods.body));
        let scrape = scrape.map_err(|(path, error)| {
            // It may quote the answer.
            let error = Secrets::default().peer_text(&error.to_string());
            let message = format!("the answer to {path} cannot be understood: {error}");
            Failure::new(Reason::Page, message)
        })?;
        let mut admitted = summary.admitted;
        let pods_bytes = pods.map_or(0, |pods| pods.admitted.permit.bytes());
        admitted.permit.grow(pods_bytes).map_err(Refused::from)?;
        Ok((scrape, admitted))
    }
}
