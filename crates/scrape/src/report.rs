//! The report on a scrape, which a target's own metrics are accompanied by.

use std::time::Duration;

use crate::scraper::Counts;

/// The result of a scrape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The target answered, and its page was taken.
    pub healthy: bool,
    /// From the request to here.
    pub duration: Duration,
    pub counts: Counts,
    /// Only with `extra_scrape_metrics`.
    pub extra: Option<Extra>,
}

/// More about a scrape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extra {
    pub timeout: Duration,
    /// Zero is none.
    pub sample_limit: u64,
    /// Uncompressed length of the page; `None` if it was longer than allowed.
    pub body_bytes: Option<u64>,
}

impl Report {
    /// Names and values.
    pub(crate) fn samples(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let counts = &self.counts;
        let always = [
            ("up", f64::from(u8::from(self.healthy))),
            ("scrape_duration_seconds", self.duration.as_secs_f64()),
            ("scrape_samples_scraped", counts.scraped as f64),
            ("scrape_samples_post_metric_relabeling", counts.kept as f64),
            ("scrape_series_added", counts.new_series as f64),
        ];
        let extra = self.extra.as_ref().map(|extra| {
            let body_bytes = extra.body_bytes.map_or(-1.0, |bytes| bytes as f64);
            [
                ("scrape_timeout_seconds", extra.timeout.as_secs_f64()),
                ("scrape_sample_limit", extra.sample_limit as f64),
                ("scrape_body_size_bytes", body_bytes),
            ]
        });
        always.into_iter().chain(extra.into_iter().flatten())
    }
}
