//! Runs the sources of all jobs, and makes targets of what they find.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::allocator::{self, AllocatorConfig, Jobs};
use crate::index::Index;
use crate::scrape_config::{ScrapeConfig, ScrapeConfigs};
use crate::sources::{self, Outlet};
use crate::targets::{Targets, targets};

/// Finds the targets of all jobs for as long as it lives.
pub struct Discovery {
    jobs: Vec<Job>,
    /// Told when groups of any job change.
    changed: Arc<Notify>,
    allocated: Option<watch::Receiver<Jobs>>,
    pause: Duration,
    not_before: Option<Instant>,
    /// There is a change that `next` has not returned.
    is_pending: bool,
    _allocator: JoinSet<()>,
}

/// A job, and its targets as they are known.
pub struct Job {
    pub config: Arc<ScrapeConfig>,
    pub targets: Arc<Targets>,
    index: Arc<Index>,
    /// Of the groups of which `targets` are made.
    version: u64,
    /// The name and the fingerprint of a job that an allocator gave.
    allocated: Option<(String, u64)>,
    _sources: JoinSet<()>,
}

impl Discovery {
    /// Starts all sources, within a tokio runtime. `pause`: at least this long from one change that
    /// [`Discovery::next`] returns to the next, so that many at a time cost little.
    pub fn start(
        configs: ScrapeConfigs,
        allocator: Option<AllocatorConfig>,
        pause: Duration,
    ) -> Discovery {
        let changed = Arc::new(Notify::new());
        let start = |config| Job::start(Arc::new(config), None, &changed);
        let jobs = configs.jobs.into_iter().map(start).collect();
        let mut task = JoinSet::new();
        let allocated = allocator.map(|allocator| {
            let (sender, receiver) = watch::channel(Jobs::new());
            task.spawn(allocator::run(allocator, configs.global, sender));
            receiver
        });
        Discovery {
            jobs,
            changed,
            allocated,
            pause,
            not_before: None,
            is_pending: true,
            _allocator: task,
        }
    }

    /// Waits until a job has other targets, then returns all jobs; the first time without waiting.
    /// Targets that stay are the same allocation. A call that is dropped loses no change.
    pub async fn next(&mut self) -> &[Job] {
        loop {
            while !self.is_pending && !self.has_changes() {
                self.wait().await;
            }
            if let Some(at) = self.not_before {
                tokio::time::sleep_until(at).await;
            }
            self.follow_allocator();
            for job in &mut self.jobs {
                self.is_pending |= job.refresh().await;
            }
            if std::mem::take(&mut self.is_pending) {
                self.not_before = Some(Instant::now() + self.pause);
                return &self.jobs;
            }
        }
    }

    /// All jobs, as [`Discovery::next`] returned them last.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    fn has_changes(&self) -> bool {
        let allocated = self.allocated.as_ref().map(|allocated| allocated.has_changed());
        allocated.is_some_and(|has_changed| has_changed.unwrap_or(false))
            || self.jobs.iter().any(|job| job.index.version() != job.version)
    }

    async fn wait(&self) {
        let Some(allocated) = &self.allocated else { return self.changed.notified().await };
        // A clone of its own: jobs that it has seen are not seen by `follow_allocator` yet.
        let mut allocated = allocated.clone();
        tokio::select! {
            () = self.changed.notified() => {}
            Ok(()) = allocated.changed() => {}
        }
    }

    /// Starts the allocator's jobs that are new or changed, and ends those that it no longer has.
    fn follow_allocator(&mut self) {
        let Some(allocated) = &mut self.allocated else { return };
        if !allocated.has_changed().unwrap_or(false) {
            return;
        }
        let allocated = allocated.borrow_and_update().clone();
        let is_there = |(name, fingerprint): &(String, u64)| {
            allocated.get(name).is_some_and(|job| job.fingerprint == *fingerprint)
        };
        self.jobs.retain(|job| job.allocated.as_ref().is_none_or(is_there));
        for (name, job) in &allocated {
            let id = (name.clone(), job.fingerprint);
            if !self.jobs.iter().any(|known| known.allocated.as_ref() == Some(&id)) {
                self.jobs.push(Job::start(job.config.clone(), Some(id), &self.changed));
            }
        }
        self.is_pending = true;
    }
}

impl Job {
    fn start(
        config: Arc<ScrapeConfig>,
        allocated: Option<(String, u64)>,
        changed: &Arc<Notify>,
    ) -> Job {
        let index = Index::new(changed.clone());
        let mut tasks = JoinSet::new();
        for source in &config.sources {
            let outlet = Outlet::new(config.job.clone(), index.reporter());
            sources::start(source.clone(), outlet, &mut tasks);
        }
        Job { config, targets: Arc::default(), index, version: 0, allocated, _sources: tasks }
    }

    /// Makes targets of groups that have changed. True if there were such.
    async fn refresh(&mut self) -> bool {
        let (groups, version) = self.index.groups();
        if version == self.version {
            return false;
        }
        let (config, before) = (self.config.clone(), self.targets.clone());
        // Rules for very many targets take a while.
        let make = move || targets(&config, groups.iter().map(|group| &**group), &before.targets);
        let made = tokio::task::spawn_blocking(make).await;
        self.version = version;
        let Ok(found) = made.inspect_err(|reason| {
            tracing::error!(job = %self.config.job, %reason, "its groups make no targets");
        }) else {
            return false;
        };
        if found.failures != self.targets.failures {
            for reason in &found.failures {
                tracing::warn!(job = %self.config.job, %reason, "a target cannot be scraped");
            }
        }
        if found.exceeds_limit && !self.targets.exceeds_limit {
            let (job, targets) = (&self.config.job, found.targets.len());
            tracing::warn!(%job, targets, "more targets than `target_limit`: all scrapes fail");
        }
        self.targets = Arc::new(found);
        true
    }
}

#[cfg(test)]
mod tests;
