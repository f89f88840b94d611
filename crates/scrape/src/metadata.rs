//! The types, texts and units that pages give, and which metric a sample's name belongs to.

use std::collections::{HashMap, HashSet};

use sluice_prometheus::Kind;

/// The part of its data point that a sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Value,
    Sum,
    Count,
    /// Seconds since 1970 when the data point began.
    Created,
    /// A bucket or a quantile: the labels say which.
    Boundary,
    Native,
    /// A native histogram with custom buckets.
    Custom,
}

/// Where a metric has its description from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum About {
    Nothing,
    Report(&'static str),
    /// The metric of this name on the page.
    Page(Box<str>),
}

/// The metric that a sample belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Metric {
    pub(crate) name: Box<str>,
    pub(crate) kind: Kind,
    pub(crate) role: Role,
    pub(crate) about: About,
}

/// Names, descriptions and units of the report on a scrape: the page's own cannot replace them.
const REPORT: [(&str, &str, &str); 5] = [
    ("up", "The scraping was successful", ""),
    ("scrape_duration_seconds", "Duration of the scrape", "seconds"),
    ("scrape_samples_scraped", "The number of samples the target exposed", ""),
    (
        "scrape_samples_post_metric_relabeling",
        "The number of samples remaining after metric relabeling was applied",
        "",
    ),
    ("scrape_series_added", "The approximate number of new series in this scrape", ""),
];

const SUFFIXES: [&str; 6] = ["_bucket", "_count", "_sum", "_total", "_info", "_created"];

/// Metadata whose metric is gone is kept for this many scrapes.
const KEPT_SCRAPES: u64 = 10;

#[derive(Debug)]
struct Entry {
    kind: Kind,
    help: Box<str>,
    unit: Box<str>,
    seen: u64,
    /// A series was placed by it.
    is_used: bool,
}

/// The metadata of a target.
#[derive(Debug, Default)]
pub(crate) struct Metadata {
    entries: HashMap<Box<str>, Entry>,
    /// Names that were looked for in vain.
    missed: HashSet<Box<str>>,
    /// Length of all names and texts.
    bytes: usize,
    scrape: u64,
    /// Entries after the last scrape that did not fail.
    successful: usize,
    /// Counts the changes after which a series may belong to another metric.
    pub(crate) version: u32,
}

impl Metadata {
    pub(crate) fn set_kind(&mut self, name: &str, kind: Kind) {
        let entry = self.entry(name);
        if entry.kind != kind {
            entry.kind = kind;
            if std::mem::take(&mut entry.is_used) {
                self.version = self.version.wrapping_add(1);
            }
        }
    }

    pub(crate) fn set_help(&mut self, name: &str, help: &str) {
        let entry = self.entry(name);
        if *entry.help != *help {
            let old = std::mem::replace(&mut entry.help, help.into());
            self.bytes = self.bytes + help.len() - old.len();
        }
    }

    pub(crate) fn set_unit(&mut self, name: &str, unit: &str) {
        let entry = self.entry(name);
        if *entry.unit != *unit {
            let old = std::mem::replace(&mut entry.unit, unit.into());
            self.bytes = self.bytes + unit.len() - old.len();
        }
    }

    fn entry(&mut self, name: &str) -> &mut Entry {
        if !self.entries.contains_key(name) {
            self.bytes += name.len();
            if self.missed.contains(name) {
                self.outdate();
            }
            let entry = Entry {
                kind: Kind::Unknown,
                help: "".into(),
                unit: "".into(),
                seen: self.scrape,
                is_used: false,
            };
            self.entries.insert(name.into(), entry);
        }
        let entry = self.entries.get_mut(name).expect("was inserted");
        entry.seen = self.scrape;
        entry
    }

    fn outdate(&mut self) {
        self.version = self.version.wrapping_add(1);
        self.bytes -= self.missed.drain().map(|name| name.len()).sum::<usize>();
    }

    /// Ends a scrape: forgets metrics that are gone for long, and what was missed for `series`.
    pub(crate) fn end_scrape(&mut self, series: usize, is_taken: bool) {
        self.scrape += 1;
        let (scrape, before, mut freed) = (self.scrape, self.entries.len(), 0);
        self.entries.retain(|name, entry| {
            let keep = scrape - entry.seen <= KEPT_SCRAPES;
            if !keep {
                freed += name.len() + entry.help.len() + entry.unit.len();
            }
            keep
        });
        self.bytes -= freed;
        if self.entries.len() < before || self.missed.len() > 2 * series + 1000 {
            self.outdate();
        }
        if is_taken {
            self.successful = self.entries.len();
        }
    }

    /// Whether pages that failed have left more than it is worth to keep.
    pub(crate) fn is_swollen(&self) -> bool {
        self.entries.len() > 2 * self.successful + 1000
    }

    /// Forgets all: series that are known are to be placed anew.
    pub(crate) fn forget(&mut self) {
        let Metadata { scrape, version, .. } = *self;
        *self = Metadata { scrape, version: version.wrapping_add(1), ..Metadata::default() };
    }

    /// Bytes that it takes, about.
    pub(crate) fn memory(&self) -> usize {
        self.bytes + self.entries.len() * 96 + self.missed.len() * 32
    }

    /// Description and unit, as the page has it.
    pub(crate) fn describe<'m>(&'m self, about: &'m About) -> (&'m str, &'m str) {
        match about {
            About::Nothing => ("", ""),
            About::Report(name) => REPORT
                .iter()
                .find(|(known, ..)| known == name)
                .map_or(("", ""), |(_, help, unit)| (help, unit)),
            About::Page(name) => {
                self.entries.get(name).map_or(("", ""), |entry| (&entry.help, &entry.unit))
            }
        }
    }

    fn kind(&mut self, name: &str) -> Option<Kind> {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.is_used = true;
            return Some(entry.kind);
        }
        if self.missed.insert(name.into()) {
            self.bytes += name.len();
        }
        None
    }

    /// The metric of a native histogram.
    pub(crate) fn native(&self, name: &str, role: Role) -> Metric {
        let about = About::Page(name.into());
        Metric { name: name.into(), kind: Kind::Histogram, role, about }
    }

    /// The metric of a sample of this name.
    pub(crate) fn metric(&mut self, name: &str) -> Metric {
        let metric =
            |name: &str, kind, role, about| Metric { name: name.into(), kind, role, about };
        if let Some((report, ..)) = REPORT.iter().find(|(known, ..)| *known == name) {
            return metric(name, Kind::Gauge, Role::Value, About::Report(report));
        }
        if let Some(kind) = self.kind(name) {
            let role = match kind {
                Kind::Histogram | Kind::Summary if name.ends_with("_sum") => Role::Sum,
                Kind::Histogram | Kind::Summary if name.ends_with("_count") => Role::Count,
                Kind::Histogram | Kind::Summary => Role::Boundary,
                _ => Role::Value,
            };
            return metric(name, kind, role, About::Page(name.into()));
        }
        let stem = SUFFIXES.iter().find_map(|suffix| {
            let stem = name.strip_suffix(suffix).filter(|stem| !stem.is_empty())?;
            Some((stem, *suffix))
        });
        if let Some((stem, suffix)) = stem
            && let Some(kind) = self.kind(stem)
        {
            let found = match (kind, suffix) {
                (Kind::Histogram | Kind::Summary, "_sum") => Some((stem, Role::Sum)),
                (Kind::Histogram | Kind::Summary, "_count") => Some((stem, Role::Count)),
                (Kind::Histogram | Kind::Summary, "_created") => Some((stem, Role::Created)),
                (Kind::Histogram, "_bucket") => Some((stem, Role::Boundary)),
                (Kind::Counter, "_total") => Some((name, Role::Value)),
                (Kind::Info, "_info") => Some((stem, Role::Value)),
                (Kind::GaugeHistogram, "_bucket") => Some((stem, Role::Value)),
                (Kind::GaugeHistogram, "_count" | "_sum") => Some((name, Role::Value)),
                _ => None,
            };
            if let Some((name, role)) = found {
                return metric(name, kind, role, About::Page(stem.into()));
            }
            if (kind, suffix) == (Kind::Counter, "_created") {
                let total = format!("{stem}_total");
                return metric(&total, kind, Role::Created, About::Page(stem.into()));
            }
        }
        metric(name, Kind::Unknown, Role::Value, About::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(kinds: &[(&str, Kind)]) -> Metadata {
        let mut metadata = Metadata::default();
        for (name, kind) in kinds {
            metadata.set_kind(name, *kind);
        }
        metadata
    }

    /// Guarantee: the suffixes of a type lead to its metric, all others to one of their own.
    #[test]
    fn a_sample_belongs_to_the_metric_whose_type_has_its_suffix() {
        let mut metadata = metadata(&[
            ("h", Kind::Histogram),
            ("s", Kind::Summary),
            ("c", Kind::Counter),
            ("old_total", Kind::Counter),
            ("i", Kind::Info),
            ("g", Kind::Gauge),
            ("gh", Kind::GaugeHistogram),
            ("st", Kind::StateSet),
        ]);
        for (sample, name, kind, role) in [
            ("h_bucket", "h", Kind::Histogram, Role::Boundary),
            ("h_sum", "h", Kind::Histogram, Role::Sum),
            ("h_count", "h", Kind::Histogram, Role::Count),
            ("h_created", "h", Kind::Histogram, Role::Created),
            ("h", "h", Kind::Histogram, Role::Boundary),
            ("h_total", "h_total", Kind::Unknown, Role::Value),
            ("s", "s", Kind::Summary, Role::Boundary),
            ("s_sum", "s", Kind::Summary, Role::Sum),
            ("s_count", "s", Kind::Summary, Role::Count),
            ("s_bucket", "s_bucket", Kind::Unknown, Role::Value),
            ("c_total", "c_total", Kind::Counter, Role::Value),
            ("c_created", "c_total", Kind::Counter, Role::Created),
            ("c", "c", Kind::Counter, Role::Value),
            ("old_total", "old_total", Kind::Counter, Role::Value),
            ("i_info", "i", Kind::Info, Role::Value),
            ("g", "g", Kind::Gauge, Role::Value),
            ("g_sum", "g_sum", Kind::Unknown, Role::Value),
            ("gh_bucket", "gh", Kind::GaugeHistogram, Role::Value),
            ("gh_count", "gh_count", Kind::GaugeHistogram, Role::Value),
            ("gh_gsum", "gh_gsum", Kind::Unknown, Role::Value),
            ("st", "st", Kind::StateSet, Role::Value),
            ("_sum", "_sum", Kind::Unknown, Role::Value),
            ("up", "up", Kind::Gauge, Role::Value),
        ] {
            let metric = metadata.metric(sample);
            assert_eq!((&*metric.name, metric.kind, metric.role), (name, kind, role), "{sample}");
        }
    }

    /// Guarantee: only a change that concerns known series makes them be placed anew.
    #[test]
    fn metadata_in_time_outdates_nothing() {
        let mut metadata = metadata(&[("a", Kind::Counter)]);
        metadata.metric("a_total");
        let version = metadata.version;
        metadata.set_help("b", "help");
        metadata.set_kind("b", Kind::Gauge);
        metadata.set_kind("a", Kind::Counter);
        metadata.set_help("a", "changed");
        let after_help = metadata.version;
        assert_eq!(after_help, version);
        metadata.set_kind("a_total", Kind::Gauge);
        assert_ne!(metadata.version, version);
        let version = metadata.version;
        metadata.set_kind("a", Kind::Gauge);
        assert_ne!(metadata.version, version);
    }

    /// Guarantee: metadata outlives its metric for ten scrapes, and its memory is given back.
    #[test]
    fn metadata_is_forgotten_after_a_while() {
        let mut metadata = metadata(&[]);
        metadata.set_help("a", "some help");
        metadata.set_unit("a", "seconds");
        metadata.metric("b");
        assert_eq!(metadata.describe(&About::Page("a".into())), ("some help", "seconds"));
        for _ in 0..10 {
            metadata.end_scrape(1, true);
        }
        assert!(metadata.memory() > 0);
        metadata.end_scrape(1, true);
        assert_eq!(metadata.memory(), 0);
        assert_eq!(metadata.describe(&About::Page("a".into())), ("", ""));
    }

    /// Scenario: each scrape has other names. Guarantee: memory does not grow with them.
    #[test]
    fn names_without_metadata_are_bounded() {
        let mut metadata = metadata(&[]);
        for round in 0..100 {
            for name in 0..100 {
                metadata.metric(&format!("m_{round}_{name}"));
            }
            metadata.end_scrape(100, true);
        }
        assert!(metadata.memory() < 100_000, "{}", metadata.memory());
    }
}
