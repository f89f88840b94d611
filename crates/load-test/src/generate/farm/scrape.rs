//! One scrape: its samples' identities, and what became of them.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::Shared;
use crate::identity::{Identity, SequenceSet};

/// The samples of one page as it was served once.
#[derive(Clone, Debug)]
pub(super) struct Scrape {
    sequences: Range<u64>,
}

impl Shared {
    /// The next scrape of a target. `None`: the farm has no identities left.
    pub(super) fn begin_scrape(&self, target: usize) -> Option<Scrape> {
        let number = u64::from(self.scrapes[target].fetch_add(1, Ordering::Relaxed));
        let series = self.farm.series_per_target();
        let first = (number * self.farm.targets as u64 + target as u64) * series;
        if first + series > SequenceSet::LIMIT {
            return None;
        }
        self.progress.offered.fetch_add(series, Ordering::Relaxed);
        self.progress.requests.fetch_add(1, Ordering::Relaxed);
        Some(Scrape { sequences: first..first + series })
    }

    /// It was written to its end.
    pub(super) fn complete(&self, scrape: &Scrape, bytes: usize) {
        self.progress.bytes_sent.fetch_add(bytes as u64, Ordering::Relaxed);
        self.progress.accepted.fetch_add(scrape.len(), Ordering::Relaxed);
        self.acknowledged.lock().insert_range(scrape.sequences.clone());
    }

    /// The scraper went away before it had read all: before the page's end, or (`was_complete`) with the rest unread in its
    /// socket.
    pub(super) fn cut_off(&self, scrape: &Scrape, was_complete: bool) {
        if was_complete {
            self.progress.accepted.fetch_sub(scrape.len(), Ordering::Relaxed);
            self.acknowledged.lock().remove_range(scrape.sequences.clone());
        }
        self.progress.failed.fetch_add(scrape.len(), Ordering::Relaxed);
    }
}

impl Scrape {
    pub(super) fn len(&self) -> u64 {
        self.sequences.end - self.sequences.start
    }

    pub(super) fn first(&self, generator: u16) -> Identity {
        Identity::new(generator, self.sequences.start)
    }
}
