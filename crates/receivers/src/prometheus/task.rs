//! The task of one target: scrape after scrape, until it is stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sluice_config::shown_url;
use sluice_discovery::{Labels, ScrapeConfig, Target, Text};
use sluice_flow::fitted;
use sluice_flow::source::Ingress;
use tokio_util::sync::CancellationToken;

use super::budget::{SeriesBudget, Share};
use super::client::JobClient;
use super::counters::Counters;
use super::failure::{Failure, Reason, Trouble};
use super::fetch::{Fetched, Fetcher};
use super::page::{About, Known, Made};
use super::settings;
use crate::large_work::LargeWork;
use crate::scraping::{Admission, Admitted, Refused, Schedule, Tick, admit, millis, now_wall};

/// A longer body is inflated and read on a thread of its own.
const LARGE_BODY_BYTES: usize = 64 << 10;

/// State and settings that all targets of the receiver share.
pub(super) struct Common {
    /// The receiver's id.
    pub(super) receiver: Arc<str>,
    pub(super) ingress: Arc<dyn Ingress>,
    pub(super) counters: Arc<Counters>,
    pub(super) budget: Arc<SeriesBudget>,
    pub(super) large_work: LargeWork,
    pub(super) user_agent: &'static str,
    pub(super) external_labels: Labels,
    pub(super) trim_suffixes: bool,
    /// Before the first scrape of each target.
    pub(super) initial_offset: Duration,
    /// Tells processes that scrape the same targets apart.
    pub(super) seed: u64,
    /// All targets are scraped once more when the receiver ends.
    pub(super) scrape_on_shutdown: bool,
    /// A target that is stopped now is scraped once more.
    pub(super) is_last: AtomicBool,
}

/// Options that all targets of a job share.
pub(super) struct Job {
    pub(super) config: Arc<ScrapeConfig>,
    pub(super) client: Arc<JobClient>,
    /// There are more targets than `target_limit`.
    pub(super) exceeds_limit: AtomicBool,
}

/// A target of a job, as it is known again after a change or a reload.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) job: Text,
    pub(super) target: Arc<Target>,
}

/// A target as its task has left it.
pub(super) struct Kept {
    pub(super) key: Key,
    pub(super) known: Box<Known>,
}

pub(super) struct TargetTask {
    common: Arc<Common>,
    job: Arc<Job>,
    key: Key,
    fetcher: Fetcher,
    known: Option<Box<Known>>,
    /// Memory of the last page.
    page_memory: usize,
    is_up: bool,
}

impl TargetTask {
    /// Goes on with what another task has left of the same target, if that is of use.
    pub(super) async fn start(
        common: Arc<Common>,
        job: Arc<Job>,
        key: Key,
        kept: Option<Kept>,
        share: Option<Share>,
    ) -> TargetTask {
        let Common { external_labels, trim_suffixes, budget, .. } = &*common;
        let target = settings::scraped(&key.target, &job.config, external_labels, *trim_suffixes);
        let fingerprint = settings::fingerprint(&target, &job.config);
        let known = match kept {
            None => Box::new(Known::new(target, fingerprint, share, budget)),
            Some(kept) if kept.known.is_of(fingerprint) => kept.known,
            Some(mut kept) => {
                kept.end(&common).await;
                kept.known.restart(target, fingerprint);
                kept.known
            }
        };
        let fetcher = Fetcher::new(job.client.clone(), &job.config, key.target.clone());
        let (known, page_memory, is_up) = (Some(known), 0, false);
        TargetTask { common, job, key, fetcher, known, page_memory, is_up }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) -> Kept {
        let target = &self.key.target;
        let wait = self.common.initial_offset + target.offset(now_wall(), self.common.seed);
        let mut schedule = Schedule::new(target.interval, wait);
        loop {
            let Tick { time_ms, missed } = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                tick = schedule.next() => tick,
            };
            self.common.counters.missed(missed);
            self.scrape(time_ms, &stop).await;
        }
        if self.common.is_last.load(Ordering::Relaxed) {
            self.scrape(millis(now_wall()), &CancellationToken::new()).await;
        }
        self.note_up(false);
        let known = self.known.take().unwrap_or_else(|| self.anew());
        Kept { key: self.key, known }
    }

    async fn scrape(&mut self, time_ms: i64, stop: &CancellationToken) {
        let (job, timeout) = (self.job.config.clone(), self.key.target.timeout);
        let about = About { job, timeout, time_ms, started: Instant::now() };
        let fetched = tokio::select! {
            fetched = self.fetch() => fetched,
            () = stop.cancelled() => return,
        };
        let made = match fetched {
            Ok(fetched) => self.take(fetched, &about).await,
            Err(Trouble::Failed(failure)) => self.fail(failure, &about).await,
            Err(Trouble::Refused(refused)) => Err(refused),
        };
        let common = &self.common;
        match made {
            Ok(made) => {
                let failure = made.failure.as_ref();
                let (job, url) = (&self.key.job, self.key.target.origin.uri.to_string());
                common.counters.scraped(&common.receiver, job, &shown_url(&url), failure);
                common.counters.page(&made.counts, made.page_bytes);
                let is_up = failure.is_none();
                self.note_up(is_up);
                self.common.submit(made.payload, made.items, made.admitted, stop).await;
            }
            Err(refused) => common.counters.taken.refuse(&common.receiver, 0, &refused),
        }
    }

    async fn fetch(&mut self) -> Result<Fetched, Trouble> {
        if self.job.exceeds_limit.load(Ordering::Relaxed) {
            let limit = self.job.config.limits.targets;
            let message = format!("the job has more than {limit} targets");
            return Err(Failure::new(Reason::Targets, message).into());
        }
        let limit_bytes = settings::page_limit_bytes(&self.job.config);
        let ingress = self.common.ingress.clone();
        self.fetcher.fetch(Admission::new(ingress, self.page_memory, limit_bytes)).await
    }

    async fn take(&mut self, fetched: Fetched, about: &About) -> Result<Made, Refused> {
        let mut known = self.known.take().unwrap_or_else(|| self.anew());
        let wire_bytes = fetched.body.len();
        let made = if wire_bytes > LARGE_BODY_BYTES {
            let turn = self.common.large_work.turn().await;
            let about = about.clone();
            let work = move || {
                let made = known.take(fetched, &about);
                drop(turn);
                (known, made)
            };
            match tokio::task::spawn_blocking(work).await {
                Ok((back, made)) => {
                    known = back;
                    made
                }
                Err(error) => {
                    tracing::error!(%error, job = %self.key.job, "a page could not be read");
                    return Err(Refused::overloaded("the page could not be read"));
                }
            }
        } else {
            known.take(fetched, about)
        };
        self.known = Some(known);
        if let Ok(made) = &made {
            self.page_memory = wire_bytes + made.page_bytes;
        }
        made
    }

    /// For a target of which all that was known is lost.
    fn anew(&self) -> Box<Known> {
        let Common { external_labels, trim_suffixes, budget, .. } = &*self.common;
        let config = &self.job.config;
        let target = settings::scraped(&self.key.target, config, external_labels, *trim_suffixes);
        let fingerprint = settings::fingerprint(&target, config);
        Box::new(Known::new(target, fingerprint, None, budget))
    }

    async fn fail(&mut self, failure: Failure, about: &About) -> Result<Made, Refused> {
        let mut known = self.known.take().unwrap_or_else(|| self.anew());
        let admitted = admit(&*self.common.ingress, known.end_bytes()).await;
        let made = admitted.and_then(|admitted| known.fail(failure, admitted, about));
        self.known = Some(known);
        made
    }

    fn note_up(&mut self, is_up: bool) {
        if is_up != std::mem::replace(&mut self.is_up, is_up) {
            self.common.counters.note_up(is_up);
        }
    }
}

impl Common {
    async fn submit(
        &self,
        payload: bytes::Bytes,
        items: u32,
        admitted: Admitted,
        stop: &CancellationToken,
    ) {
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
}

impl Kept {
    /// Ends all series of the target.
    pub(super) async fn end(&mut self, common: &Common) {
        let admitted = admit(&*common.ingress, self.known.end_bytes()).await;
        let ended = admitted.and_then(|mut admitted| {
            let request = self.known.end(millis(now_wall()));
            admitted.permit.grow_to(request.bytes.len())?;
            Ok((request, admitted))
        });
        match ended {
            Ok((request, _)) if request.items == 0 => {}
            Ok((request, admitted)) => {
                let stop = CancellationToken::new();
                stop.cancel();
                common.submit(fitted(request.bytes), request.items, admitted, &stop).await;
            }
            Err(refused) => common.counters.taken.refuse(&common.receiver, 0, &refused),
        }
    }
}
