//! A target, and its pages.

use crate::error::Limits;

/// A target, and how its pages are to be taken.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// Of all series: `job`, `instance`, and others that discovery and relabelling leave.
    pub labels: Vec<(String, String)>,
    /// `http` or `https`, for an attribute of the resource.
    pub scheme: String,
    /// More attributes of the resource.
    pub resource: Vec<(String, String)>,
    /// Name and version of the scope of series that name none.
    pub scope: (String, String),
    /// Set on all series, after relabelling.
    pub external_labels: Vec<(String, String)>,
    /// Names have no suffixes of types and units.
    pub trim_suffixes: bool,
    /// Labels of a page win over those of the target.
    pub honor_labels: bool,
    /// Samples have the time that a page says, if it does.
    pub honor_timestamps: bool,
    /// Series whose samples have a time end, too, when they are gone.
    pub track_timestamps_staleness: bool,
    /// Histograms of protobuf pages that are native are taken as such, else as classic ones.
    pub native_histograms: bool,
    /// Native histograms are taken as classic ones, too, if they are both.
    pub always_classic_histograms: bool,
    /// Classic histograms are taken as native ones with custom buckets.
    pub custom_histograms: bool,
    /// The highest resolution of native histograms, if there is one.
    pub native_schema: Option<i32>,
    pub limits: Limits,
}

/// The formats of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text, 0.0.4.
    Text,
    /// OpenMetrics' text, 1.0.
    OpenMetrics,
    /// `io.prometheus.client.MetricFamily`, delimited.
    Protobuf,
}

impl Format {
    /// The format that a `Content-Type` names, if it is a known one.
    pub fn of(content_type: &str) -> Option<Format> {
        let media_type = content_type.split(';').next()?.trim().to_ascii_lowercase();
        match media_type.as_str() {
            "text/plain" => Some(Format::Text),
            "application/openmetrics-text" => Some(Format::OpenMetrics),
            "application/vnd.google.protobuf" => Some(Format::Protobuf),
            _ => None,
        }
    }
}

/// A page, uncompressed.
#[derive(Clone, Copy, Debug)]
pub struct Page<'p> {
    pub body: &'p [u8],
    pub format: Format,
    /// Milliseconds since 1970: of samples for which the page has no time.
    pub time_ms: i64,
}
