//! Where the load of a turn comes from: requests that are sent to the subject, targets that it scrapes, files that it tails.
//!
//! A source is opened before the subject starts, because the subject's configuration names what it scrapes or tails, and starts
//! when the subject is ready. All sources come to a [`LoadReport`], so that what judges a turn need not know which it was.

use std::sync::Arc;

use crate::backend::Backend;
use crate::generate::{
    Load, LoadError, LoadReport, OpenFarm, OpenLogFiles, Progress, RunningFarm, RunningLoad, RunningLogFiles,
};

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
