//! Where the load of a turn comes from: requests that are sent to the subject, targets that it scrapes, files that it
//! tails.
//!
//! A source is opened before the subject starts, because the subject's configuration names what it scrapes or tails,
//! and starts when the subject is ready. All sources come to a [`LoadReport`], so that what judges a turn need not
//! know which it was.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;

use crate::backend::Backend;
use crate::generate::{
    Load, LoadError, LoadReport, OpenFarm, OpenLogFiles, Progress, RunningFarm, RunningLoad, RunningLogFiles,
};

/// Besides the scrape interval.
const SCRAPED_WITHIN: Duration = Duration::from_secs(20);

/// A source that waits for its subject.
pub(super) enum Source {
    Otlp(Load),
    Farm(OpenFarm),
    LogFiles(OpenLogFiles),
}

/// A source on its way. What it offers is there until it is dropped: files that are not read yet outlive the load.
pub(super) enum RunningSource {
    Otlp(RunningLoad),
    Farm(RunningFarm),
    LogFiles(RunningLogFiles),
}

impl Source {
    /// What the subject is to scrape.
    pub(super) fn scrape_targets(&self) -> &[SocketAddr] {
        match self {
            Source::Farm(farm) => farm.addrs(),
            Source::Otlp(_) | Source::LogFiles(_) => &[],
        }
    }

    pub(super) fn scrape_interval(&self) -> Option<Duration> {
        match self {
            Source::Farm(farm) => Some(farm.scrape_interval()),
            Source::Otlp(_) | Source::LogFiles(_) => None,
        }
    }

    /// Where the files are that the subject is to tail.
    pub(super) fn log_root(&self) -> Option<&Path> {
        match self {
            Source::LogFiles(files) => Some(files.root()),
            Source::Otlp(_) | Source::Farm(_) => None,
        }
    }

    /// Waits until the subject begins to fetch what it is offered, where it is one that fetches by a clock of its own.
    pub(super) async fn wait_until_wanted(&self) -> anyhow::Result<()> {
        match self {
            Source::Farm(farm) => {
                let limit = farm.scrape_interval() + SCRAPED_WITHIN;
                let is_wanted = farm.wait_for_scraper(limit).await;
                ensure!(is_wanted, "no target was scraped within {} s: see the subject's template", limit.as_secs());
                Ok(())
            }
            // A file waits for its reader.
            Source::Otlp(_) | Source::LogFiles(_) => Ok(()),
        }
    }

    /// Without a rate of its own, a source goes as fast as its items arrive at these backends.
    pub(super) fn start(self, backends: &[Backend]) -> Result<RunningSource, LoadError> {
        Ok(match self {
            Source::Otlp(load) => RunningSource::Otlp(load.start()?),
            Source::Farm(farm) => RunningSource::Farm(farm.start()),
            Source::LogFiles(files) => {
                RunningSource::LogFiles(files.start(backends.iter().map(Backend::arrivals).collect()))
            }
        })
    }
}

impl RunningSource {
    pub(super) fn progress(&self) -> &Arc<Progress> {
        match self {
            RunningSource::Otlp(load) => load.progress(),
            RunningSource::Farm(farm) => farm.progress(),
            RunningSource::LogFiles(files) => files.progress(),
        }
    }

    /// Offers nothing more.
    pub(super) fn stop(&self) {
        match self {
            RunningSource::Otlp(load) => load.stop(),
            RunningSource::Farm(farm) => farm.stop(),
            RunningSource::LogFiles(files) => files.stop(),
        }
    }

    /// Waits until what is under way has ended. To be called once.
    pub(super) async fn finish(&mut self) -> Result<LoadReport, LoadError> {
        match self {
            RunningSource::Otlp(load) => load.join().await,
            RunningSource::Farm(farm) => Ok(farm.finish().await),
            RunningSource::LogFiles(files) => files.finish().await,
        }
    }
}
