//! All targets of the receiver: follows discovery, starts and ends their tasks, and hands over what
//! is known of them to the receiver that takes this one's place.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use sluice_discovery::Discovery;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::budget::Share;
use super::client::JobClient;
use super::task::{Common, Job, Kept, Key, TargetTask};

/// All targets of a receiver that ends, with their series.
pub(super) type Handed = Vec<Kept>;

/// Targets without memory are tried again, and targets that are not found again end.
const LOOK: Duration = Duration::from_secs(5);
/// The receiver before has this time to hand over what it knows.
const HANDOVER: Duration = Duration::from_secs(15);
/// After a reload, targets that are not found again end after this time, and two intervals.
const FOUND_AGAIN: Duration = Duration::from_secs(30);
/// The time for the ends of series when the receiver ends.
const LAST_ENDS: Duration = Duration::from_secs(5);

pub(super) struct Targets {
    common: Arc<Common>,
    discovery: Discovery,
    jobs: Vec<Arc<Job>>,
    running: HashMap<Key, Running>,
    /// Of the receiver before, until their targets are found again or this time has come.
    handed: HashMap<Key, (Kept, Instant)>,
    ending: JoinSet<()>,
    /// Targets for which there is no memory.
    unscraped: usize,
}

struct Running {
    job: Arc<Job>,
    stop: CancellationToken,
    task: JoinHandle<Kept>,
}

/// A target as its last task left it, or will leave it.
enum Before {
    Task(JoinHandle<Kept>),
    Kept(Kept),
}

impl Targets {
    pub(super) fn new(common: Arc<Common>, discovery: Discovery) -> Targets {
        let (running, handed) = (HashMap::new(), HashMap::new());
        let (jobs, ending, unscraped) = (Vec::new(), JoinSet::new(), 0);
        Targets { common, discovery, jobs, running, handed, ending, unscraped }
    }

    /// Scrapes until `stop`, from when the receiver `before` has ended.
    pub(super) async fn run(
        mut self,
        before: Option<oneshot::Receiver<Handed>>,
        stop: CancellationToken,
    ) {
        if let Some(before) = before {
            tokio::select! {
                handed = timeout(HANDOVER, before) => {
                    self.take_over(handed.ok().and_then(Result::ok).unwrap_or_default());
                }
                () = stop.cancelled() => {}
            }
        }
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = self.discovery.next() => self.follow(),
                _ = looks.tick() => self.look(),
            }
        }
        self.end().await;
    }

    fn take_over(&mut self, handed: Handed) {
        let now = Instant::now();
        let keyed = handed.into_iter().map(|kept| {
            let until = now + kept.key.target.interval.saturating_mul(2) + FOUND_AGAIN;
            (kept.key.clone(), (kept, until))
        });
        self.handed = keyed.collect();
    }

    fn look(&mut self) {
        while self.ending.try_join_next().is_some() {}
        if self.unscraped > 0 {
            self.follow();
        }
        let now = Instant::now();
        let gone = self.handed.extract_if(|_, (_, until)| *until <= now);
        for (_, (mut kept, _)) in gone {
            let common = self.common.clone();
            self.ending.spawn(async move { kept.end(&common).await });
        }
    }

    /// Makes tasks of the targets that are known.
    fn follow(&mut self) {
        let (mut jobs, mut wanted) = (Vec::new(), Vec::new());
        for found in self.discovery.jobs() {
            let known = self.jobs.iter().find(|job| Arc::ptr_eq(&job.config, &found.config));
            let job = known.cloned().unwrap_or_else(|| {
                let client = JobClient::new(&found.config, self.common.user_agent);
                let (config, client) = (found.config.clone(), Arc::new(client));
                Arc::new(Job { config, client, exceeds_limit: AtomicBool::new(false) })
            });
            job.exceeds_limit.store(found.targets.exceeds_limit, Ordering::Relaxed);
            for target in &found.targets.targets {
                let key = Key { job: job.config.job.clone(), target: target.clone() };
                wanted.push((key, job.clone()));
            }
            jobs.push(job);
        }
        self.jobs = jobs;
        let keys: HashSet<&Key> = wanted.iter().map(|(key, _)| key).collect();
        let gone = self.running.extract_if(|key, _| !keys.contains(key));
        for (_, Running { stop, task, .. }) in gone {
            stop.cancel();
            let common = self.common.clone();
            self.ending.spawn(async move {
                if let Ok(mut kept) = task.await {
                    kept.end(&common).await;
                }
            });
        }
        let without_memory = self.unscraped;
        self.unscraped = 0;
        for (key, job) in wanted {
            self.scrape(key, job);
        }
        if self.unscraped > 0 && without_memory == 0 {
            tracing::warn!(
                receiver = %self.common.receiver,
                targets = self.unscraped,
                "targets are not scraped: the memory for targets and series is spent. Raise \
                 buffer.memory.limit_mib, or scrape less"
            );
        }
        let targets = self.running.len();
        self.common.counters.note_targets(targets, self.unscraped);
    }

    /// Scrapes a target, unless it is scraped so already.
    fn scrape(&mut self, key: Key, job: Arc<Job>) {
        if self.running.get(&key).is_some_and(|running| Arc::ptr_eq(&running.job, &job)) {
            return;
        }
        let before = match self.running.remove(&key) {
            Some(Running { stop, task, .. }) => {
                stop.cancel();
                Some(Before::Task(task))
            }
            None => self.handed.remove(&key).map(|(kept, _)| Before::Kept(kept)),
        };
        let share = if before.is_none() {
            let Some(share) = Share::of_target(&self.common.budget) else {
                self.unscraped += 1;
                return;
            };
            Some(share)
        } else {
            None
        };
        let stop = CancellationToken::new();
        let (common, of, own) = (self.common.clone(), job.clone(), key.clone());
        let until = stop.clone();
        let task = tokio::spawn(async move {
            let kept = match before {
                Some(Before::Task(task)) => task.await.ok(),
                Some(Before::Kept(kept)) => Some(kept),
                None => None,
            };
            TargetTask::start(common, of, own, kept, share).await.run(until).await
        });
        self.running.insert(key, Running { job, stop, task });
    }

    async fn end(mut self) {
        let successor = self.common.counters.end();
        let is_last = self.common.scrape_on_shutdown && successor.is_none();
        self.common.is_last.store(is_last, Ordering::Relaxed);
        self.running.values().for_each(|running| running.stop.cancel());
        let tasks = join_all(self.running.into_values().map(|running| running.task)).await;
        let handed = self.handed.into_values().map(|(kept, _)| kept);
        let mut all: Handed = tasks.into_iter().flatten().chain(handed).collect();
        if let Some(successor) = successor {
            match successor.send(all) {
                Ok(()) => all = Vec::new(),
                Err(back) => all = back,
            }
        }
        let (common, targets) = (self.common, all.len());
        let ends = async {
            for kept in &mut all {
                kept.end(&common).await;
            }
            while self.ending.join_next().await.is_some() {}
        };
        if timeout(LAST_ENDS, ends).await.is_err() {
            let receiver = &common.receiver;
            tracing::warn!(%receiver, targets, "the ends of some series could not be told in time");
        }
        common.counters.note_targets(0, 0);
    }
}
