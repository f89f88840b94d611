//! One target from scrape to scrape.

use std::borrow::Cow;

use crate::collate::Collation;
use crate::error::{ScrapeError, excerpt};
use crate::labels::{Labels, NAME, Relabel};
use crate::metadata::{Metadata, Role};
use crate::number::{format_float, is_stale, parse_float};
use crate::points::Points;
use crate::protobuf;
use crate::report::{Extra, Report};
use crate::series::{AllSeries, End, Use};
use crate::target::{Format, Page, Target};
use crate::text::{Item, Reader, Sample};
use crate::value::{Found, Value};
use sluice_prometheus::Kind;

const TARGET_INFO: &str = "target_info";

/// Buckets of all native histograms of a page, with the empty ones between: 64 MiB.
const NATIVE_BUCKETS_LIMIT: u64 = 1 << 23;

/// Samples that are this far ahead of the scrape are not taken.
const AHEAD_MS: i64 = 10 * 60 * 1000;

/// Samples of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All, up to the mistake of a page that has one.
    pub scraped: u64,
    /// Those that relabelling did not drop.
    pub kept: u64,
    /// Those of series that were not known.
    pub new_series: u64,
    /// Kept, but not in the request: a series twice, parts of a point at several times, a bucket
    /// without its bound, a time more than ten minutes ahead. With them the classic histograms that
    /// make no native one.
    pub discarded: u64,
}

/// The result of reading a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub counts: Counts,
    /// The error says why nothing of the page was taken.
    pub result: Result<(), ScrapeError>,
}

/// An encoded `ExportMetricsServiceRequest`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Empty if there is no item.
    pub bytes: Vec<u8>,
    /// Data points.
    pub items: u32,
}

/// The memory of one target.
#[derive(Debug, Default)]
pub struct Scraper {
    target: Target,
    metadata: Metadata,
    series: AllSeries,
    points: Points,
    /// To be released when the request is written.
    freed: Vec<Use>,
    /// The points of the report, and how many of them the last request had.
    report: Vec<u32>,
    reported: usize,
    format: Option<Format>,
    time_ms: i64,
    /// Length of the last request.
    last_len: usize,
    /// No metadata is to be known when the request is written.
    forgets: bool,
}

/// A page that is being read.
pub(crate) struct Reading<'s, 'r> {
    scraper: &'s mut Scraper,
    relabel: &'s mut Relabel<'r>,
    counts: Counts,
    /// Samples that `sample_limit` counts.
    limited: u64,
    native_buckets: u64,
    /// The metric of a histogram that has too many buckets.
    crowded: Option<String>,
}

impl Scraper {
    pub fn new(target: Target) -> Self {
        Scraper { target, ..Scraper::default() }
    }

    /// Takes a page: [`Scraper::finish`] writes what it says. `relabel` is called once for each
    /// series that is new.
    pub fn scrape(&mut self, page: Page<'_>, relabel: &mut Relabel<'_>) -> Outcome {
        self.begin(page.time_ms);
        self.series.begin(self.format == Some(page.format));
        self.format = Some(page.format);
        let counts = Counts::default();
        let (limited, native_buckets, crowded) = (0, 0, None);
        let mut reading =
            Reading { scraper: self, relabel, counts, limited, native_buckets, crowded };
        let result = reading.page(page);
        let counts = reading.counts;
        let end = match &result {
            Ok(()) if page.body.is_empty() => End::Failed,
            Ok(()) => End::Taken,
            Err(ScrapeError::Memory { .. }) => End::Forget,
            Err(_) => End::Failed,
        };
        if result.is_err() {
            self.points.drop_natives();
            self.points.begin();
        }
        self.end_page(end);
        Outcome { counts, result }
    }

    /// Notes that the target had no page to give: all of its series end.
    pub fn absent(&mut self, time_ms: i64) {
        self.begin(time_ms);
        self.end_page(End::Failed);
    }

    /// The request with all that the last call found, and the report on it.
    pub fn finish(&mut self, report: &Report) -> Request {
        self.reported = 0;
        for ((_, value), point) in report.samples().zip(&self.report) {
            self.points.set_value(*point, Some(value), self.time_ms);
            self.reported += 1;
        }
        self.write()
    }

    /// The request that ends all series: the target is gone for good.
    pub fn end(&mut self, time_ms: i64) -> Request {
        self.begin(time_ms);
        self.end_page(End::Forget);
        for point in self.report.iter().take(self.reported) {
            self.points.set_value(*point, None, time_ms);
        }
        self.reported = 0;
        self.write()
    }

    /// Changes `memory_bytes` of the limits for the pages to come.
    pub fn set_memory_limit(&mut self, bytes: usize) {
        self.target.limits.memory_bytes = bytes;
    }

    /// Bytes that it takes, about, from one scrape to the next.
    pub fn memory(&self) -> usize {
        self.series.memory() + self.points.memory() + self.metadata.memory()
    }

    fn begin(&mut self, time_ms: i64) {
        self.release();
        self.time_ms = time_ms;
        self.points.begin();
        if self.report.is_empty() {
            self.place_report();
        }
    }

    fn end_page(&mut self, end: End) {
        let (points, freed, time_ms) = (&mut self.points, &mut self.freed, self.time_ms);
        self.series.end(end, |used| points.add_end(used, time_ms), |used| freed.push(used));
        self.metadata.end_scrape(self.series.len(), end == End::Taken);
        self.forgets = end == End::Forget || end == End::Failed && self.metadata.is_swollen();
    }

    /// Gives the report its points: first of all, so that they are not in the way of others.
    fn place_report(&mut self) {
        let all = Report { extra: Some(Extra::default()), ..Report::default() };
        for (name, _) in all.samples() {
            let mut labels = Labels::default();
            labels.set(NAME, name);
            for (name, value) in self.target.labels.iter().chain(&self.target.external_labels) {
                labels.set(&**name, &**value);
            }
            labels.sort();
            let metric = self.metadata.metric(name);
            let used = self.points.place(&labels, metric, &self.target);
            if let Some(Use::Sample { group, .. }) = used {
                self.report.push(group);
            }
        }
    }

    fn write(&mut self) -> Request {
        let mut bytes = Vec::with_capacity(self.last_len + self.last_len / 16 + 512);
        let items = self.points.write(&self.metadata, self.target.trim_suffixes, &mut bytes);
        self.last_len = bytes.len();
        self.release();
        Request { bytes, items }
    }

    fn release(&mut self) {
        for used in self.freed.drain(..) {
            match used {
                Use::Sample { group, .. } => self.points.release(group),
                Use::TargetInfo { resource, .. } => self.points.release_resource(resource),
                Use::Dropped | Use::Unusable => {}
            }
        }
        self.points.trim();
        if std::mem::take(&mut self.forgets) {
            self.metadata.forget();
        }
    }
}

impl Reading<'_, '_> {
    fn page(&mut self, page: Page<'_>) -> Result<(), ScrapeError> {
        let limits = self.scraper.target.limits;
        if limits.body_bytes > 0 && page.body.len() > limits.body_bytes {
            return Err(ScrapeError::BodySize { limit: limits.body_bytes });
        }
        if page.body.is_empty() {
            return Ok(());
        }
        match page.format {
            Format::Text => self.text(page.body, false)?,
            Format::OpenMetrics => self.text(page.body, true)?,
            Format::Protobuf => protobuf::read(page.body, self)?,
        }
        if self.is_over() {
            return Err(ScrapeError::Samples { samples: self.limited, limit: limits.samples });
        }
        if let Some(metric) = self.crowded.take() {
            return Err(ScrapeError::Buckets { metric, limit: limits.native_buckets });
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let limit = self.scraper.target.limits.samples;
        limit > 0 && self.limited > limit as u64
    }

    fn text(&mut self, body: &[u8], strict: bool) -> Result<(), ScrapeError> {
        let mut reader = Reader::new(body, strict);
        let mut collation = Collation::of(&self.scraper.target);
        while let Some(item) = reader.next(&self.scraper.series)? {
            if let Item::Sample(sample) = item {
                if let Some(sample) = collation.add(&reader, sample, self)? {
                    self.text_sample(&reader, sample)?;
                }
                continue;
            }
            collation.end(self)?;
            let metadata = &mut self.scraper.metadata;
            match item {
                Item::Kind(name, kind) => {
                    metadata.set_kind(&name, kind);
                    collation.begin(name, kind);
                }
                Item::Help(name, help) => metadata.set_help(&name, &help),
                Item::Unit(name, unit) => metadata.set_unit(&name, &unit),
                Item::Sample(_) => {}
            }
            self.check_memory()?;
        }
        collation.end(self)
    }

    fn text_sample<'p>(
        &mut self,
        reader: &Reader<'p>,
        sample: Sample<'p>,
    ) -> Result<(), ScrapeError> {
        let Sample { series, known, value, time_ms, exemplar } = sample;
        let found = Found { raw: series, known, value: Value::Number(value), time_ms };
        let taken = self.sample(found, || {
            let mut labels = Labels::default();
            let read = reader.labels(series, |name, value| {
                let value = boundary(reader.kind, &name, value);
                labels.push(name, value);
            });
            match read {
                Ok(()) => Ok(labels),
                Err(reason) => Err(ScrapeError::Series { series: excerpt(series), reason }),
            }
        })?;
        if let (Some((group, time_ms)), Some(exemplar)) = (taken, exemplar) {
            let time_ms = exemplar.time_ms.unwrap_or(time_ms);
            self.points().add_exemplar(group, time_ms, exemplar.value, |label| {
                exemplar.visit(label);
            });
        }
        Ok(())
    }

    pub(crate) fn target(&self) -> &Target {
        &self.scraper.target
    }

    pub(crate) fn metadata(&mut self) -> &mut Metadata {
        &mut self.scraper.metadata
    }

    pub(crate) fn points(&mut self) -> &mut Points {
        &mut self.scraper.points
    }

    pub(crate) fn series(&self) -> &AllSeries {
        &self.scraper.series
    }

    /// Takes one sample; answers its point and its time if it is in the request. `labels` reads the
    /// labels as the page has them.
    pub(crate) fn sample<'p>(
        &mut self,
        found: Found<'_>,
        labels: impl FnOnce() -> Result<Labels<'p>, ScrapeError>,
    ) -> Result<Option<(u32, i64)>, ScrapeError> {
        self.counts.scraped += 1;
        let Found { raw, known, mut value, time_ms } = found;
        let scraper = &mut *self.scraper;
        let is_current = |id: &u32| scraper.series.get(*id).version == scraper.metadata.version;
        let id = match known.filter(is_current) {
            Some(id) => id,
            None => {
                let Some(used) = self.place(labels()?, value.role())? else {
                    return Ok(None);
                };
                self.keep(raw, known, used)?
            }
        };
        let scraper = &mut *self.scraper;
        let is_first = scraper.series.see(id);
        let time_ms = time_ms.filter(|_| scraper.target.honor_timestamps);
        let (group, role, boundary) = match &scraper.series.get(id).used {
            Use::Dropped => return Ok(None),
            Use::Unusable => {
                self.counts.discarded += 1;
                return self.count(known.is_none(), false);
            }
            Use::TargetInfo { resource, attributes } => {
                let info = &mut scraper.points.resources.get_mut(*resource).info;
                if is_first {
                    info.extend(attributes.iter().cloned());
                }
                return self.count(known.is_none(), false);
            }
            Use::Sample { group, role, boundary } => (*group, *role, *boundary),
        };
        if !is_first && time_ms.is_none() {
            self.counts.discarded += 1;
            self.counts.kept += 1;
            return Ok(None);
        }
        if !value.limit(&scraper.target) {
            let metric = || excerpt(scraper.points.metric_name(group).as_bytes());
            self.crowded.get_or_insert_with(metric);
            self.counts.kept += 1;
            return Ok(None);
        }
        let is_end = matches!(value, Value::Number(value) if is_stale(value));
        let time = time_ms.unwrap_or(scraper.time_ms);
        if time > scraper.time_ms.saturating_add(AHEAD_MS) {
            self.counts.discarded += 1;
            return self.count(known.is_none(), is_end);
        }
        if time_ms.is_none() || scraper.target.track_timestamps_staleness {
            scraper.series.keep_live(id);
        }
        let taken = match value {
            Value::Number(value) => scraper.points.add(group, role, boundary, value, time),
            Value::Native(native) => scraper.points.add_native(group, native, time),
            Value::Custom(custom) => scraper.points.add_custom(group, &custom, time),
        };
        self.counts.discarded += u64::from(!taken);
        self.count(known.is_none(), is_end)?;
        Ok(taken.then_some((group, time)))
    }

    fn count(&mut self, is_new: bool, is_end: bool) -> Result<Option<(u32, i64)>, ScrapeError> {
        self.counts.kept += 1;
        self.limited += u64::from(!is_end);
        self.counts.new_series += u64::from(is_new && !self.is_over() && self.crowded.is_none());
        Ok(None)
    }

    /// Counts a histogram that makes no sample.
    pub(crate) fn discard(&mut self) {
        self.counts.discarded += 1;
    }

    /// The use of a series with these labels. None if there are too many already.
    fn place(
        &mut self,
        labels: Labels<'_>,
        histogram: Option<Role>,
    ) -> Result<Option<Use>, ScrapeError> {
        let mut labels = labels;
        let Scraper { target, metadata, points, .. } = &mut *self.scraper;
        labels.add_target(&target.labels, target.honor_labels);
        if !(self.relabel)(&mut labels) {
            return Ok(Some(Use::Dropped));
        }
        if labels.is_empty() {
            // Prometheus takes it for dropped.
            return Ok(Some(Use::Dropped));
        }
        labels.check(&target.limits)?;
        if !target.external_labels.is_empty() {
            for (name, value) in &target.external_labels {
                labels.set(&**name, &**value);
            }
            labels.sort();
        }
        let limit = target.limits.samples;
        if limit > 0 && self.limited >= limit as u64 {
            // Counted, but not kept: the page fails.
            self.limited += 1;
            self.counts.kept += 1;
            return Ok(None);
        }
        let name = labels.get(NAME);
        if name == TARGET_INFO && histogram.is_none() {
            let resource = points.resource(&labels, target);
            let attributes = labels
                .iter()
                .filter(|(name, _)| ![NAME, "job", "instance"].contains(name))
                .map(|(name, value)| (name.into(), value.into()))
                .collect();
            return Ok(Some(Use::TargetInfo { resource, attributes }));
        }
        let metric = match histogram {
            Some(role) => metadata.native(name, role),
            None => metadata.metric(name),
        };
        Ok(Some(points.place(&labels, metric, target).unwrap_or(Use::Unusable)))
    }

    /// Remembers the use of a series.
    fn keep(&mut self, raw: &[u8], known: Option<u32>, used: Use) -> Result<u32, ScrapeError> {
        let scraper = &mut *self.scraper;
        let version = scraper.metadata.version;
        let id = match known {
            Some(id) => {
                let before = scraper.series.change(id, used, version);
                scraper.freed.push(before);
                id
            }
            None => scraper.series.add(raw, used, version),
        };
        self.check_memory()?;
        Ok(id)
    }

    pub(crate) fn check_memory(&self) -> Result<(), ScrapeError> {
        let limit = self.scraper.target.limits.memory_bytes;
        if limit > 0 && self.scraper.memory() > limit {
            return Err(ScrapeError::Memory { limit });
        }
        Ok(())
    }

    /// Whether the page may have so many more buckets of native histograms.
    pub(crate) fn takes_buckets(&mut self, buckets: u64) -> bool {
        self.native_buckets = self.native_buckets.saturating_add(buckets);
        self.native_buckets <= NATIVE_BUCKETS_LIMIT
    }
}

/// The value of a label, in the one form that a boundary has.
fn boundary<'v>(kind: Kind, name: &str, value: Cow<'v, str>) -> Cow<'v, str> {
    if (kind, name) != (Kind::Histogram, "le") && (kind, name) != (Kind::Summary, "quantile") {
        return value;
    }
    parse_float(value.as_bytes()).map_or(value, |boundary| format_float(boundary).into())
}
