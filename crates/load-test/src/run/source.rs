//! Where the load of a turn comes from: requests that are sent to the subject, targets that it scrapes, files that it tails.
//!
//! A source is opened before the subject starts, because the subject's configuration names what it scrapes or tails, and starts
//! when the subject is ready. All sources come to a [`LoadReport`], so that what judges a turn need not know which it was.

use std::sync::Arc;

use crate::generate::{Load, LoadError, LoadReport, Progress, RunningLoad};

/// A source that waits for its subject.
pub(super) enum Source {
    Otlp(Load),
}

/// A source on its way.
pub(super) enum RunningSource {
    Otlp(RunningLoad),
}

impl Source {
    pub(super) fn start(self) -> Result<RunningSource, LoadError> {
        match self {
            Source::Otlp(load) => Ok(RunningSource::Otlp(load.start()?)),
        }
    }
}

impl RunningSource {
    pub(super) fn progress(&self) -> &Arc<Progress> {
        match self {
            RunningSource::Otlp(load) => load.progress(),
        }
    }

    /// Offers nothing more.
    pub(super) fn stop(&self) {
        match self {
            RunningSource::Otlp(load) => load.stop(),
        }
    }

    /// Waits until what is under way has ended.
    pub(super) async fn finish(self) -> Result<LoadReport, LoadError> {
        match self {
            RunningSource::Otlp(load) => load.finish().await,
        }
    }
}
