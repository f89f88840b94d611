//! Where the load of a turn comes from: requests that are sent to the subject, targets that it
//! scrapes, files that it tails.
//!
//! A source is opened before the subject starts, because the subject's configuration names what it
//! scrapes or tails, and starts when the subject is ready. All sources come to one
//! report, so that what judges a turn need not know which it was.

use std::time::Duration;

use anyhow::ensure;

use super::definition::Setting;
use crate::backend::Backend;
use crate::generate::{Load, LoadError, OpenFarm, OpenLogFiles, RunningLoad};

/// Besides the scrape interval.
const SCRAPED_WITHIN: Duration = Duration::from_secs(20);

/// A source that waits for its subject.
pub(super) enum Source {
    Otlp(Load),
    Farm(OpenFarm),
    LogFiles(OpenLogFiles),
}

impl Source {
    /// Says what the subject is to scrape, or where the files are that it is to tail.
    pub(super) fn tell(&self, setting: &mut Setting) {
        match self {
            Source::Otlp(_) => {}
            Source::Farm(farm) => {
                setting.scrape_targets = farm.addrs().to_vec();
                setting.scrape_interval = Some(farm.scrape_interval());
            }
            Source::LogFiles(files) => setting.log_root = Some(files.root().to_owned()),
        }
    }

    /// Waits until the subject begins to fetch what it is offered, where it is one that fetches by
    /// a clock of its own.
    pub(super) async fn wait_until_wanted(&self) -> anyhow::Result<()> {
        // A file waits for its reader.
        let Source::Farm(farm) = self else { return Ok(()) };
        let limit = farm.scrape_interval() + SCRAPED_WITHIN;
        let is_wanted = farm.wait_for_scraper(limit).await;
        let limit_s = limit.as_secs();
        ensure!(is_wanted, "no target was scraped within {limit_s} s: see the subject's template");
        Ok(())
    }

    /// Without a rate of its own, a source goes as fast as its items arrive at these backends.
    pub(super) fn start(self, backends: &[Backend]) -> Result<RunningLoad, LoadError> {
        Ok(match self {
            Source::Otlp(load) => load.start()?,
            Source::Farm(farm) => farm.start(),
            Source::LogFiles(files) => {
                files.start(backends.iter().map(Backend::arrivals).collect())
            }
        })
    }
}
