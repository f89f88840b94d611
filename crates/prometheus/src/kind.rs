//! The types of metrics.

/// The types of Prometheus and OpenMetrics, with the numbers that remote write has for them in both
/// versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    #[default]
    Unknown,
    Counter,
    Gauge,
    Histogram,
    GaugeHistogram,
    Summary,
    Info,
    StateSet,
}

impl Kind {
    /// Unknown, if no type has the number.
    pub fn of(number: u64) -> Kind {
        use Kind::*;
        let types = [Unknown, Counter, Gauge, Histogram, GaugeHistogram, Summary, Info, StateSet];
        usize::try_from(number).ok().and_then(|at| types.get(at).copied()).unwrap_or_default()
    }

    /// As Prometheus names it.
    pub fn as_str(self) -> &'static str {
        const NAMES: [&str; 8] = [
            "unknown",
            "counter",
            "gauge",
            "histogram",
            "gaugehistogram",
            "summary",
            "info",
            "stateset",
        ];
        NAMES[self as usize]
    }
}
