//! Why a scrape yields nothing: the target is down, or the engine takes nothing.

use sluice_net::compress::DecompressError;
use sluice_scrape::ScrapeError;

use crate::scraping::{Refused, Unread};

/// Why a target is down: `up` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Connection,
    Timeout,
    Status,
    Credentials,
    BodySize,
    Encoding,
    Page,
    Samples,
    Labels,
    Buckets,
    Targets,
    Memory,
}

impl Reason {
    /// Each as a metric's label, and the remedy.
    pub(super) const ALL: [(Reason, &'static str, &'static str); 12] = {
        use Reason::*;
        [
            (
                Connection,
                "connection",
                "let the target run and be reached from here; look at `scheme`, `tls_config` and \
                 the proxy",
            ),
            (Timeout, "timeout", "mend the target, which is slow, or raise `scrape_timeout`"),
            (
                Status,
                "status",
                "the target has no page there, or does not show it: look at `metrics_path`, \
                 `params` and the credentials",
            ),
            (Credentials, "credentials", "mend the job's credentials, or the server of its tokens"),
            (
                BodySize,
                "body_size",
                "let the target show less, or raise `body_size_limit`, to 64MiB at most",
            ),
            (Encoding, "encoding", "mend the target: its answer cannot be inflated"),
            (Page, "page", "mend the target: its page is not of the format that it names"),
            (Samples, "sample_limit", "let the target show less, or raise `sample_limit`"),
            (
                Labels,
                "label_limit",
                "drop the label with `metric_relabel_configs`, or raise the limit that is named",
            ),
            (
                Buckets,
                "bucket_limit",
                "let the target's histograms have fewer buckets, or raise \
                 `native_histogram_bucket_limit`",
            ),
            (Targets, "target_limit", "raise the job's `target_limit`, or drop targets"),
            (
                Memory,
                "memory",
                "the memory for series is spent: raise `buffer.memory.limit_mib`, or scrape fewer \
                 series",
            ),
        ]
    };

    pub(super) const fn as_str(self) -> &'static str {
        Reason::ALL[self as usize].1
    }

    pub(super) const fn remedy(self) -> &'static str {
        Reason::ALL[self as usize].2
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    /// Without secrets.
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Failure {
        Failure { reason, message: message.into() }
    }

    pub(super) fn body_size(limit_bytes: usize) -> Failure {
        Failure::new(Reason::BodySize, format!("its page is longer than {limit_bytes} bytes"))
    }
}

impl From<DecompressError> for Failure {
    fn from(error: DecompressError) -> Failure {
        match error {
            DecompressError::TooLarge { limit_bytes } => Failure::body_size(limit_bytes),
            error => Failure::new(Reason::Encoding, error.to_string()),
        }
    }
}

impl From<ScrapeError> for Failure {
    fn from(error: ScrapeError) -> Failure {
        let reason = match error {
            ScrapeError::BodySize { .. } => Reason::BodySize,
            ScrapeError::Samples { .. } => Reason::Samples,
            ScrapeError::Labels { .. } => Reason::Labels,
            ScrapeError::Buckets { .. } => Reason::Buckets,
            ScrapeError::Memory { .. } => Reason::Memory,
            ScrapeError::Line { .. }
            | ScrapeError::Message { .. }
            | ScrapeError::PageBuckets
            | ScrapeError::Series { .. } => Reason::Page,
        };
        Failure::new(reason, error.to_string())
    }
}

/// Why there is no page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    Failed(Failure),
    /// The target may be well, and nothing is said of it.
    Refused(Refused),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble::Failed(failure)
    }
}

impl From<Unread> for Trouble {
    fn from(unread: Unread) -> Trouble {
        match unread {
            Unread::TooLong { limit_bytes } => Failure::body_size(limit_bytes).into(),
            Unread::Refused(refused) => Trouble::Refused(refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        for (index, (reason, ..)) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
    }
}
