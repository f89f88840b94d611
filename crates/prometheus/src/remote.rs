//! A request of OTLP metrics as one of remote write.

use std::collections::{HashMap, HashSet};

use sluice_otlp::Malformed;
use sluice_otlp::text::plain_double_text;

use crate::custom;
use crate::exponential::{self, Native};
use crate::kind::Kind;
use crate::labels::{Attribute, Encoded, Labels};
use crate::layout::Extra;
use crate::names::{Suffix, metric_name, target_name, unit_name};
use crate::point::{Metric, Point, Shape};
use crate::series::{About, Exemplar, STALE, SeriesWriter, Times};
use crate::settings::{CustomBuckets, Settings, TARGET_HELP, Version};
use crate::walk::{self, Target, Visit};

/// Longest labels of an exemplar, in characters: beyond it only the ids stay (OpenMetrics).
const EXEMPLAR_CHARS: usize = 128;
/// The message of one point may exceed the limit by this factor: it cannot be cut.
const SINGLE_POINT_FACTOR: usize = 16;
/// Names whose metadata is written once are remembered up to this number.
const NAMES_KEPT: usize = 64 * 1024;

/// The content of a message, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Points of the request.
    pub points: u64,
    /// Of these, points that remote write cannot express: no cumulative temporality, no name, a
    /// histogram whose buckets do not fit, too many attributes.
    pub dropped: u64,
    pub samples: u64,
    pub histograms: u64,
    pub exemplars: u64,
}

/// A message of remote write, before compression.
#[derive(Debug, Default)]
pub struct Written {
    /// The parts of the message, in order. Empty: nothing is to be sent.
    pub parts: Vec<Vec<u8>>,
    pub counts: Counts,
}

/// Why a request cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    #[error("more than {limit_bytes} bytes as remote write")]
    TooLarge { limit_bytes: usize },
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Writes an encoded request of metrics as a message of remote write.
///
/// # Errors
/// [`WriteError::TooLarge`] if the message would exceed the settings' limit, unless the request has
/// one point.
pub fn write(settings: &Settings, request: &[u8]) -> Result<Written, WriteError> {
    let capacity = request.len().saturating_add(request.len() / 2).min(settings.limit_bytes);
    let mut remote = Remote {
        settings,
        labels: Labels::default(),
        series: SeriesWriter::new(settings.version, capacity),
        counts: Counts::default(),
        metric: OfMetric::default(),
        exemplars: Vec::new(),
        bound: Vec::new(),
        told: HashSet::new(),
        targets: HashMap::new(),
    };
    walk::walk(settings, request, &mut remote)?;
    let Remote { series, mut counts, .. } = remote;
    (counts.samples, counts.histograms) = (series.samples, series.histograms);
    counts.exemplars = series.exemplars;
    let parts = match settings.version {
        _ if counts.samples + counts.histograms == 0 => Vec::new(),
        Version::V1 => vec![series.out],
        Version::V2 => vec![series.symbols.into_encoded(), series.out],
    };
    Ok(Written { parts, counts })
}

/// The series of a metric.
#[derive(Clone, Copy)]
enum Name {
    Base,
    Sum,
    Count,
    Bucket,
}

const SUFFIXES: [&str; 4] = ["", "_sum", "_count", "_bucket"];

/// The metric whose points are being written.
#[derive(Default)]
struct OfMetric {
    shape: Option<Shape>,
    /// Empty: it has none, or its points cannot be expressed.
    name: String,
    /// Its names as labels, by [`Name`].
    labels: [Vec<u8>; 4],
    about: About,
}

struct Remote<'s> {
    settings: &'s Settings,
    labels: Labels,
    series: SeriesWriter,
    counts: Counts,
    metric: OfMetric,
    exemplars: Vec<Exemplar>,
    /// The extra label of a series.
    bound: Vec<u8>,
    /// Names whose metadata is written.
    told: HashSet<String>,
    /// Labels of `target_info` with the time of the last sample: two of a time would be refused.
    targets: HashMap<Vec<u8>, i64>,
}

impl<'a> Visit<'a> for Remote<'_> {
    type Error = WriteError;

    fn labels(&mut self) -> &mut Labels {
        &mut self.labels
    }

    fn metric(&mut self, metric: &Metric<'a>, shape: Shape) {
        self.metric.shape = Some(shape);
        self.metric.name.clear();
        self.metric.labels.iter_mut().for_each(Vec::clear);
        if !metric.is_cumulative {
            return;
        }
        let suffix = match shape {
            Shape::Gauge => Suffix::Gauge,
            Shape::Sum if metric.is_monotonic => Suffix::Counter,
            _ => Suffix::Other,
        };
        let Settings { strategy, namespace, .. } = self.settings;
        let (name, unit) = (text(metric.name), text(metric.unit));
        let Some(name) = metric_name(*strategy, namespace, &name, &unit, suffix) else { return };
        self.metric.name = name;
        let kind = type_of(metric, shape);
        match self.settings.version {
            Version::V1 if self.settings.send_metadata => {
                let OfMetric { name, .. } = &self.metric;
                if self.told.len() < NAMES_KEPT && self.told.insert(name.clone()) {
                    let unit = unit_name(*strategy, &unit);
                    self.series.metadata(kind, name, metric.help, &unit);
                }
            }
            Version::V1 => {}
            Version::V2 => {
                let unit = unit_name(*strategy, &unit);
                let help = self.series.symbols.number(metric.help);
                let unit = self.series.symbols.number(unit.as_bytes());
                self.metric.about = About { kind, help, unit };
            }
        }
    }

    fn point(&mut self, point: &Point<'a>) -> Result<(), WriteError> {
        self.counts.points += 1;
        let is_written = self.write_point(point)?.is_some();
        self.counts.dropped += u64::from(!is_written);
        Ok(())
    }

    fn wants_target(&mut self, target: Target) -> bool {
        target.latest_ns > 0 && target.has_more && target.names > 0
    }

    /// A series that tells the attributes of a resource.
    fn target(&mut self, time_ns: u64) -> Result<(), WriteError> {
        let time = millis(time_ns);
        let Some(name) = target_name(self.settings) else { return Ok(()) };
        self.labels.encode(self.settings, &mut self.series.symbols, &[], Extra::None);
        let last = self.targets.get_mut(&self.labels.encoded.bytes);
        match last {
            Some(last) if *last >= time => return Ok(()),
            Some(last) => *last = time,
            None => {
                self.targets.insert(self.labels.encoded.bytes.clone(), time);
            }
        }
        let mut label = Vec::new();
        self.series.label(&mut label, "__name__", name.as_bytes());
        let mut about = About::default();
        if self.settings.version == Version::V2 {
            let help = self.series.symbols.number(TARGET_HELP.as_bytes());
            about = About { kind: Kind::Gauge, help, unit: 0 };
        }
        let times = Times { time, start: 0 };
        self.series.sample((&self.labels.encoded, &label, &[]), about, 1.0, times, &[]);
        self.check_limit()
    }
}

impl Remote<'_> {
    /// Comes after each series: those of one point may be many.
    fn check_limit(&self) -> Result<(), WriteError> {
        let limit_bytes = match self.counts.points {
            0 | 1 => self.settings.limit_bytes.saturating_mul(SINGLE_POINT_FACTOR),
            _ => self.settings.limit_bytes,
        };
        match self.series.out.len() + self.series.symbols.len_bytes() > limit_bytes {
            true => Err(WriteError::TooLarge { limit_bytes }),
            false => Ok(()),
        }
    }

    /// `None`: the point cannot be expressed.
    fn write_point(&mut self, point: &Point<'_>) -> Result<Option<()>, WriteError> {
        let Some(shape) = self.metric.shape else { return Ok(None) };
        if self.metric.name.is_empty() || point.has_too_many {
            return Ok(None);
        }
        let times = Times { time: millis(point.time_ns), start: millis(point.start_ns) };
        match shape {
            Shape::Gauge | Shape::Sum => {
                self.encode(point, Extra::None);
                let is_counter = shape == Shape::Sum;
                self.read_exemplars(if is_counter { &point.exemplars } else { &[] })?;
                self.emit(Name::Base, or_stale(point, point.value), times)?;
            }
            Shape::Summary => self.write_summary(point, times)?,
            Shape::Exponential => {
                let native = match point.is_stale {
                    true => Some(stale(0)),
                    false => exponential::native(point.count, point.sum, &point.exponential),
                };
                let Some(native) = native else { return Ok(None) };
                self.write_native(point, &native, times)?;
            }
            Shape::Histogram => {
                let custom = self.settings.custom_buckets;
                let mut is_written = custom != CustomBuckets::Native;
                if custom != CustomBuckets::Classic {
                    let native = match point.is_stale {
                        true => Some(stale(custom::SCHEMA)),
                        false => custom::native(point),
                    };
                    if let Some(native) = native {
                        self.write_native(point, &native, times)?;
                        is_written = true;
                    }
                }
                if custom != CustomBuckets::Native {
                    self.write_classic(point, times)?;
                }
                return Ok(is_written.then_some(()));
            }
        }
        Ok(Some(()))
    }

    fn encode(&mut self, point: &Point<'_>, extra: Extra) {
        let symbols = &mut self.series.symbols;
        self.labels.encode(self.settings, symbols, &point.attributes, extra);
    }

    fn write_native(
        &mut self,
        point: &Point<'_>,
        native: &Native,
        times: Times,
    ) -> Result<(), WriteError> {
        self.encode(point, Extra::None);
        self.read_exemplars(&point.exemplars)?;
        self.name(Name::Base);
        let OfMetric { labels, about, .. } = &self.metric;
        let labels = (&self.labels.encoded, &*labels[Name::Base as usize], &[][..]);
        self.series.histogram(labels, *about, native, times, &self.exemplars);
        self.check_limit()
    }

    fn write_summary(&mut self, point: &Point<'_>, times: Times) -> Result<(), WriteError> {
        self.exemplars.clear();
        self.encode(point, Extra::Quantile);
        self.emit(Name::Sum, or_stale(point, point.sum.unwrap_or_default()), times)?;
        self.emit(Name::Count, or_stale(point, point.count as f64), times)?;
        for (quantile, value) in &point.quantiles {
            self.set_extra(Extra::Quantile, &plain_double_text(*quantile));
            self.emit(Name::Base, or_stale(point, *value), times)?;
        }
        self.bound.clear();
        Ok(())
    }

    fn write_classic(&mut self, point: &Point<'_>, times: Times) -> Result<(), WriteError> {
        self.exemplars.clear();
        self.encode(point, Extra::Bound);
        if let Some(sum) = point.sum {
            self.emit(Name::Sum, or_stale(point, sum), times)?;
        }
        self.emit(Name::Count, or_stale(point, point.count as f64), times)?;
        self.read_exemplars(&point.exemplars)?;
        let mut exemplars = std::mem::take(&mut self.exemplars);
        exemplars.retain(|exemplar| !exemplar.value.is_nan());
        let mut cumulative = 0_u64;
        for (bound, count) in point.bounds.iter().zip(&point.counts) {
            if *bound == f64::INFINITY {
                break;
            }
            cumulative = cumulative.saturating_add(*count);
            self.set_extra(Extra::Bound, &plain_double_text(*bound));
            self.exemplars = exemplars.extract_if(.., |it| it.value <= *bound).collect();
            self.emit(Name::Bucket, or_stale(point, cumulative as f64), times)?;
        }
        self.set_extra(Extra::Bound, "+Inf");
        self.exemplars = exemplars;
        self.emit(Name::Bucket, or_stale(point, point.count as f64), times)?;
        self.bound.clear();
        Ok(())
    }

    fn set_extra(&mut self, extra: Extra, value: &str) {
        self.bound.clear();
        self.series.label(&mut self.bound, extra.name(), value.as_bytes());
    }

    /// Makes the label of a metric's series, once.
    fn name(&mut self, name: Name) {
        let label = &mut self.metric.labels[name as usize];
        if label.is_empty() {
            let whole = format!("{}{}", self.metric.name, SUFFIXES[name as usize]);
            self.series.label(label, "__name__", whole.as_bytes());
        }
    }

    fn emit(&mut self, name: Name, value: f64, times: Times) -> Result<(), WriteError> {
        self.name(name);
        let OfMetric { labels, about, .. } = &self.metric;
        let labels: (&Encoded, _, _) =
            (&self.labels.encoded, &*labels[name as usize], &*self.bound);
        self.series.sample(labels, *about, value, times, &self.exemplars);
        self.check_limit()
    }

    fn read_exemplars(&mut self, encoded: &[&[u8]]) -> Result<(), Malformed> {
        self.exemplars.clear();
        for encoded in encoded {
            let exemplar = read_exemplar(&mut self.series, encoded)?;
            self.exemplars.push(exemplar);
        }
        Ok(())
    }
}

/// A series that ends.
fn stale(schema: i32) -> Native {
    Native { schema, sum: STALE, count: STALE.to_bits(), ..Native::default() }
}

fn or_stale(point: &Point<'_>, value: f64) -> f64 {
    if point.is_stale { STALE } else { value }
}

fn millis(nanos: u64) -> i64 {
    (nanos / 1_000_000) as i64
}

pub(crate) fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

pub(crate) fn type_of(metric: &Metric<'_>, shape: Shape) -> Kind {
    match (shape, &*metric.told_type) {
        (Shape::Gauge, b"unknown") => Kind::Unknown,
        (Shape::Gauge, _) => Kind::Gauge,
        (Shape::Sum, _) if metric.is_monotonic => Kind::Counter,
        (Shape::Sum, b"info") => Kind::Info,
        (Shape::Sum, b"stateset") => Kind::StateSet,
        (Shape::Sum, _) => Kind::Gauge,
        (Shape::Histogram | Shape::Exponential, b"gaugehistogram") => Kind::GaugeHistogram,
        (Shape::Histogram | Shape::Exponential, _) => Kind::Histogram,
        (Shape::Summary, _) => Kind::Summary,
    }
}

fn read_exemplar(series: &mut SeriesWriter, encoded: &[u8]) -> Result<Exemplar, Malformed> {
    use sluice_otlp::wire::{Fields, LEN};

    let (mut exemplar, mut labels) = (Exemplar::default(), Vec::<(String, Vec<u8>)>::new());
    let mut ids = Vec::new();
    let mut fields = Fields::of(encoded);
    while let Some(field) = fields.next_field()? {
        let content = &encoded[field.content()];
        match (field.number, field.wire_type) {
            (2, _) => exemplar.time = millis(crate::bytes::fixed64(encoded, &field)),
            (3, _) => exemplar.value = crate::bytes::double(encoded, &field),
            (6, _) => exemplar.value = crate::bytes::fixed64(encoded, &field) as i64 as f64,
            (4 | 5, LEN) if content.iter().any(|byte| *byte != 0) => {
                let name = if field.number == 4 { "span_id" } else { "trace_id" };
                let digits = content.iter().flat_map(|byte| [byte >> 4, byte & 15]);
                let digits = digits.map(|digit| b"0123456789abcdef"[usize::from(digit)]);
                ids.push((name.to_owned(), digits.collect()));
            }
            (7, LEN) => {
                let Attribute { key, value } = Attribute::read(content)?;
                labels.push((text(key).into_owned(), value.into_owned()));
            }
            _ => {}
        }
    }
    labels.retain(|(name, _)| !ids.iter().any(|(id, _)| id == name));
    let chars =
        |(name, value): &(String, Vec<u8>)| name.chars().count() + text(value).chars().count();
    let total: usize = labels.iter().chain(&ids).map(chars).sum();
    if total > EXEMPLAR_CHARS {
        labels.clear();
    }
    labels.append(&mut ids);
    labels.sort();
    labels.dedup_by(|next, before| next.0 == before.0);
    for (name, value) in labels {
        series.label(&mut exemplar.labels, &name, &value);
    }
    Ok(exemplar)
}
