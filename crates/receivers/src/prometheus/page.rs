//! From a page to a request, and all that is known of a target in between: the part of a scrape
//! that takes the CPU, not the network.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use memchr::memchr_iter;
use sluice_discovery::ScrapeConfig;
use sluice_flow::fitted;
use sluice_net::compress::{Ask, InflateError, Packing, decompress_admitted};
use sluice_otlp::Encoding;
use sluice_scrape::{Counts, Extra, Page, Report, Request, ScrapeError, Scraper, Target};

use super::budget::{SeriesBudget, Share};
use super::failure::{Failure, Reason};
use super::fetch::Fetched;
use super::settings;
use crate::scraping::{Admitted, Refused, body_memory};

/// Memory of a series beside the bytes that it has on the page, about.
const SERIES_BYTES: usize = 512;
/// As often as it has on the page, a series has its bytes in memory, about.
const COPIES: usize = 8;
/// A page asks for memory for this much growth, at least.
const LEAST_GROWTH_BYTES: usize = 64 << 10;
/// A page that needed more than it asked for asks for twice as much next time, up to here.
const GROWTH_LIMIT: usize = 64;
/// Memory of a request that has only the report.
const REPORT_BYTES: usize = 4 << 10;

/// A target from scrape to scrape.
pub(super) struct Known {
    scraper: Scraper,
    share: Share,
    /// Of the settings with which the series were read.
    fingerprint: u64,
    /// Length of the last request.
    request_bytes: usize,
    growth: usize,
}

/// One scrape.
#[derive(Clone)]
pub(super) struct About {
    pub(super) job: Arc<ScrapeConfig>,
    pub(super) timeout: Duration,
    /// Milliseconds since 1970.
    pub(super) time_ms: i64,
    pub(super) started: Instant,
}

/// A request, and what is to be said of the scrape.
pub(super) struct Made {
    pub(super) payload: Bytes,
    pub(super) items: u32,
    pub(super) admitted: Admitted,
    pub(super) counts: Counts,
    /// Length of the page, inflated.
    pub(super) page_bytes: usize,
    pub(super) failure: Option<Failure>,
}

impl Known {
    /// Without a share, the target's memory counts all the same.
    pub(super) fn new(
        target: Target,
        fingerprint: u64,
        share: Option<Share>,
        budget: &Arc<SeriesBudget>,
    ) -> Known {
        let mut share = share.unwrap_or_else(|| Share::empty(budget));
        share.settle(0);
        let scraper = Scraper::new(target);
        Known { scraper, share, fingerprint, request_bytes: 0, growth: 1 }
    }

    /// Begins anew if the series would be others than before. Its end has to be told first.
    pub(super) fn restart(&mut self, target: Target, fingerprint: u64) {
        self.scraper = Scraper::new(target);
        self.share.settle(0);
        (self.fingerprint, self.request_bytes, self.growth) = (fingerprint, 0, 1);
    }

    pub(super) fn is_of(&self, fingerprint: u64) -> bool {
        self.fingerprint == fingerprint
    }

    /// Memory for the request that ends the series, or says that the target is down.
    pub(super) fn end_bytes(&self) -> usize {
        self.request_bytes.max(REPORT_BYTES)
    }

    /// Takes a page. What the engine refuses before the page is read leaves all as it was.
    pub(super) fn take(&mut self, fetched: Fetched, about: &About) -> Result<Made, Refused> {
        let Fetched { body, packing, format, mut admitted } = fetched;
        let limit_bytes = settings::page_limit_bytes(&about.job);
        let inflated = match packing {
            Packing::Known(Encoding::Identity) => Ok(body),
            packing => {
                let held_bytes = body_memory(body.len());
                let mut ask = |ask: Ask| match ask {
                    Ask::Hold { bytes } => admitted.permit.grow_to(held_bytes + bytes),
                    Ask::Measure => Ok(()),
                };
                let inflated = decompress_admitted(packing, &body, limit_bytes, &mut ask);
                drop(body);
                inflated
            }
        };
        let page = match inflated {
            Ok(page) => page,
            Err(InflateError::Refused(refusal)) => return Err(refusal.into()),
            Err(InflateError::Failed(error)) => return self.fail(error.into(), admitted, about),
        };
        let page_bytes = page.len();
        admitted.permit.grow_to(page_bytes + self.request_bytes.max(page_bytes))?;
        let lines = memchr_iter(b'\n', &page).count();
        let whole = (lines * SERIES_BYTES + page_bytes * COPIES).saturating_mul(self.growth);
        let growth = whole.saturating_sub(self.scraper.memory()).max(LEAST_GROWTH_BYTES);
        let limit_bytes = self.share.grow(growth);
        // Zero would be no limit.
        self.scraper.set_memory_limit(limit_bytes.max(1));
        let read = Page { body: &page, format, time_ms: about.time_ms };
        let relabel =
            &mut |labels: &mut sluice_scrape::Labels<'_>| settings::relabel(&about.job, labels);
        let outcome = self.scraper.scrape(read, relabel);
        drop(page);
        self.share.settle(self.scraper.memory());
        self.growth = match &outcome.result {
            Err(ScrapeError::Memory { .. }) => (self.growth * 2).min(GROWTH_LIMIT),
            _ => 1,
        };
        let failure = outcome.result.err().map(Failure::from);
        self.finish(admitted, about, outcome.counts, page_bytes, failure)
    }

    /// The target is down, and has no page.
    pub(super) fn fail(
        &mut self,
        failure: Failure,
        admitted: Admitted,
        about: &About,
    ) -> Result<Made, Refused> {
        self.scraper.absent(about.time_ms);
        self.finish(admitted, about, Counts::default(), 0, Some(failure))
    }

    /// The request that ends all series.
    pub(super) fn end(&mut self, time_ms: i64) -> Request {
        self.scraper.end(time_ms)
    }

    fn finish(
        &mut self,
        mut admitted: Admitted,
        about: &About,
        counts: Counts,
        page_bytes: usize,
        failure: Option<Failure>,
    ) -> Result<Made, Refused> {
        let job = &about.job;
        let is_too_long = failure.as_ref().is_some_and(|it| it.reason == Reason::BodySize);
        let extra = job.extra_scrape_metrics.then(|| Extra {
            timeout: about.timeout,
            sample_limit: job.limits.samples,
            body_bytes: (!is_too_long).then_some(page_bytes as u64),
        });
        let (healthy, duration) = (failure.is_none(), about.started.elapsed());
        let Request { bytes, items } =
            self.scraper.finish(&Report { healthy, duration, counts, extra });
        self.request_bytes = bytes.len();
        admitted.permit.grow_to(bytes.len())?;
        admitted.permit.shrink_to(bytes.len());
        Ok(Made { payload: fitted(bytes), items, admitted, counts, page_bytes, failure })
    }
}
