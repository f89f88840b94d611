//! Why a scrape failed: a target whose page breaks a rule or a limit is down, as in Prometheus.

/// Bounds of one scrape. Zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Length of a page, uncompressed.
    pub body_bytes: usize,
    /// Samples of a page, without those that relabelling drops.
    pub samples: usize,
    /// Labels of a series, with its name and those of the target.
    pub labels: usize,
    /// Length of a label's name.
    pub label_name_bytes: usize,
    /// Length of a label's value.
    pub label_value_bytes: usize,
    /// Buckets of a native histogram that are not empty.
    pub native_buckets: usize,
    /// All that is kept from one scrape to the next.
    pub memory_bytes: usize,
}

/// Told of pages of text and of protobuf.
pub(crate) const TOO_MANY_BUCKETS: &str = "the native histograms of the page have too many buckets";

/// Why nothing of a page was taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScrapeError {
    #[error("the page is longer than body_size_limit allows: {limit} bytes")]
    BodySize { limit: usize },
    /// The page has more samples than `sample_limit` allows.
    #[error("the page has {samples} samples, sample_limit allows {limit}")]
    Samples { samples: u64, limit: usize },
    /// A series breaks one of the limits of labels, which `limit` names.
    #[error("the series {series} exceeds {limit}: {found}, at most {allowed}")]
    Labels { series: String, limit: &'static str, found: usize, allowed: usize },
    /// A native histogram has more buckets than its resolution can be lowered for.
    #[error("the histogram {metric} has more buckets than native_histogram_bucket_limit: {limit}")]
    Buckets { metric: String, limit: usize },
    #[error("{}", TOO_MANY_BUCKETS)]
    PageBuckets,
    #[error("the target's series take more memory than a target may: {limit} bytes")]
    Memory { limit: usize },
    /// A line of a text page is not of its format.
    #[error("line {line}: {reason}: {excerpt}")]
    Line { line: usize, reason: &'static str, excerpt: String },
    /// A protobuf page is not of its format.
    #[error("byte {offset}: {reason}")]
    Message { offset: usize, reason: &'static str },
    /// A series cannot be one, with its labels as they are after relabelling.
    #[error("the series {series} {reason}")]
    Series { series: String, reason: &'static str },
}

/// The first characters of `bytes`, for a message.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    const LEN: usize = 60;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * LEN)]);
    text.chars().take(LEN).flat_map(char::escape_debug).collect()
}
