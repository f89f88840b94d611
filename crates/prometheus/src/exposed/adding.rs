//! The points of a request, one after the other, into the last values.

use std::time::Duration;

use sluice_otlp::Malformed;

use super::text::labels_bytes;
use super::value::{Next, Series};
use super::{Added, Exposed, Family, Room};
use crate::exponential::SCALES;
use crate::kind::Kind;
use crate::labels::Labels;
use crate::layout::Extra;
use crate::names::{Suffix, metric_name, target_name};
use crate::point::{Metric, Point, Shape};
use crate::remote::{text, type_of};
use crate::settings::TARGET_HELP;
use crate::symbols::Symbols;
use crate::walk::{Target, Visit};

/// Separates job and instance, as in Prometheus.
const SEPARATOR: u8 = 0xff;

pub(super) struct Adding<'e> {
    exposed: &'e mut Exposed,
    now: Duration,
    added: Added,
    labels: Labels,
    /// Of remote write 2.0; labels of 1.0 have none.
    symbols: Symbols,
    scratch: String,
    metric: Option<OfMetric>,
    /// A point of this resource is on a page.
    has_added: bool,
}

/// The metric whose points come. Its family is taken out of the table meanwhile.
struct OfMetric {
    name: String,
    family: Family,
    shape: Shape,
    is_delta: bool,
    /// Why none of its points can be on a page.
    refusal: Option<String>,
}

impl<'e> Adding<'e> {
    pub(super) fn new(exposed: &'e mut Exposed, now: Duration) -> Adding<'e> {
        Adding {
            exposed,
            now,
            added: Added::default(),
            labels: Labels::default(),
            symbols: Symbols::new(),
            scratch: String::new(),
            metric: None,
            has_added: false,
        }
    }

    pub(super) fn end(mut self) -> Added {
        self.put_back();
        self.added
    }

    /// The family of this name, or a new one.
    fn open(&mut self, name: String, kind: Kind, help: &str) -> (String, Family, bool) {
        match self.exposed.families.remove_entry(&name) {
            Some((name, family)) => (name, family, true),
            None => {
                let family = Family { kind, help: help.to_owned(), series: Default::default() };
                self.exposed.room.open(&name, &family);
                (name, family, false)
            }
        }
    }

    fn close(&mut self, name: String, family: Family) {
        match family.series.is_empty() {
            true => self.exposed.room.close(&name, &family),
            false => drop(self.exposed.families.insert(name, family)),
        }
    }

    fn put_back(&mut self) {
        if let Some(OfMetric { name, family, .. }) = self.metric.take() {
            self.close(name, family);
        }
    }

    /// # Errors
    /// Why the point is on no page.
    fn take(&mut self, point: &Point<'_>) -> Result<Result<(), String>, Malformed> {
        let Some(metric) = &mut self.metric else { return Ok(Err("no name".to_owned())) };
        if let Some(refusal) = &metric.refusal {
            return Ok(Err(refusal.clone()));
        }
        if point.has_too_many {
            return Ok(Err("a point has too many attributes".to_owned()));
        }
        if metric.shape == Shape::Exponential && point.exponential.scale < *SCALES.start() {
            let scale = point.exponential.scale;
            return Ok(Err(format!(
                "cannot convert exponential to native histogram: scale must be >= -4, was {scale}"
            )));
        }
        let extra = match metric.shape {
            Shape::Histogram | Shape::Exponential => Extra::Bound,
            Shape::Summary => Extra::Quantile,
            Shape::Gauge | Shape::Sum => Extra::None,
        };
        let settings = &self.exposed.settings;
        self.labels.encode(settings, &mut self.symbols, &point.attributes, extra);
        let labels = &*self.labels.encoded.bytes;
        if point.is_stale {
            if let Some(ended) = metric.family.series.remove(labels) {
                self.exposed.room.give_back(&ended, &metric.name);
            }
            return Ok(Ok(()));
        }
        let before = metric.family.series.get(labels);
        let new = Series::of(metric.shape, point, self.now)?;
        Ok(match new.after(before, metric.is_delta) {
            Next::Older => Ok(()),
            Next::Misaligned => Err(format!(
                "a change of `{}` begins before the end of the one before",
                metric.name
            )),
            Next::Take(series) => {
                let OfMetric { name, family, .. } = metric;
                set(self.exposed, family, name, labels, series, &mut self.scratch)
                    .inspect(|()| self.has_added = true)
            }
        })
    }
}

/// Puts a series in the place of the one before. An error: there is no room for it.
fn set(
    exposed: &mut Exposed,
    family: &mut Family,
    name: &str,
    labels: &[u8],
    mut series: Series,
    scratch: &mut String,
) -> Result<(), String> {
    let Exposed { room, limits, .. } = exposed;
    let place = family.series.get_mut(labels);
    series.labels_bytes = match &place {
        Some(before) => before.labels_bytes,
        None => labels_bytes(labels, scratch),
    };
    let page = Room::weigh(&mut series, name, labels);
    let mut left = *room;
    if let Some(before) = &place {
        left.give_back(before, name);
    }
    let after = Room {
        series: left.series + 1,
        bytes: left.bytes + series.cost_bytes,
        page_bytes: left.page_bytes + page,
    };
    if after.series > limits.series || after.bytes > limits.bytes {
        return Err(format!(
            "there is no room: {} series take {} of {} bytes, and at most {} series are kept",
            room.series, room.bytes, limits.bytes, limits.series
        ));
    }
    *room = after;
    match place {
        Some(before) => *before = series,
        None => drop(family.series.insert(labels.to_vec(), series)),
    }
    Ok(())
}

/// As the Collector names types in its messages.
fn shown(kind: Kind) -> String {
    match kind {
        Kind::Unknown => "UNTYPED".to_owned(),
        kind => kind.as_str().to_ascii_uppercase(),
    }
}

/// Why no page can have points of this metric.
fn refusal(metric: &Metric<'_>, shape: Shape) -> Option<&'static str> {
    match shape {
        _ if !metric.is_cumulative && !metric.is_delta => {
            Some("no aggregation temporality is told")
        }
        Shape::Sum if metric.is_delta && !metric.is_monotonic => {
            Some("non-monotonic sum with delta aggregation temporality is not supported")
        }
        _ => None,
    }
}

impl<'a> Visit<'a> for Adding<'_> {
    type Error = Malformed;

    fn labels(&mut self) -> &mut Labels {
        &mut self.labels
    }

    fn metric(&mut self, metric: &Metric<'a>, shape: Shape) {
        self.put_back();
        let suffix = match shape {
            Shape::Gauge => Suffix::Gauge,
            Shape::Sum if metric.is_monotonic => Suffix::Counter,
            _ => Suffix::Other,
        };
        let settings = &self.exposed.settings;
        let (name, unit) = (text(metric.name), text(metric.unit));
        let name = metric_name(settings.strategy, &settings.namespace, &name, &unit, suffix);
        let Some(name) = name else { return };
        let kind = match type_of(metric, shape) {
            Kind::GaugeHistogram => Kind::Histogram,
            Kind::Info | Kind::StateSet => Kind::Gauge,
            kind => kind,
        };
        let (name, family, is_known) = self.open(name, kind, &text(metric.help));
        let mut refusal = refusal(metric, shape).map(|it| format!("`{name}`: {it}"));
        if is_known && family.kind != kind {
            refusal = Some(format!(
                "instrument type conflict, using existing type definition. instrument: {name}, \
                 existing: {}, dropped: {}",
                shown(family.kind),
                shown(kind)
            ));
        }
        let is_delta = metric.is_delta;
        self.metric = Some(OfMetric { name, family, shape, is_delta, refusal });
    }

    fn point(&mut self, point: &Point<'a>) -> Result<(), Malformed> {
        self.added.points += 1;
        if let Err(reason) = self.take(point)? {
            self.added.refused += 1;
            if self.added.refused == 1 {
                self.added.reason = reason;
            }
        }
        Ok(())
    }

    /// As in the Collector, only resources that have both names.
    fn wants_target(&mut self, target: Target) -> bool {
        std::mem::take(&mut self.has_added) && target.names == 2
    }

    fn target(&mut self, _: u64) -> Result<(), Malformed> {
        self.put_back();
        let mut key = Vec::new();
        for label in self.labels.service() {
            key.extend_from_slice(&label.value);
            key.push(SEPARATOR);
        }
        let Some(name) = target_name(&self.exposed.settings) else { return Ok(()) };
        self.labels.encode(&self.exposed.settings, &mut self.symbols, &[], Extra::None);
        let labels = std::mem::take(&mut self.labels.encoded.bytes);
        let (name, mut family, _) = self.open(name, Kind::Gauge, TARGET_HELP);
        if family.kind == Kind::Gauge {
            let point = Point { value: 1.0, ..Point::default() };
            let series = Series::of(Shape::Gauge, &point, self.now)?;
            let before = self.exposed.targets.get(&key).filter(|before| **before != labels);
            if let Some(ended) = before.and_then(|before| family.series.remove(before)) {
                self.exposed.room.give_back(&ended, &name);
            }
            let (exposed, scratch) = (&mut *self.exposed, &mut self.scratch);
            // Without room the page lacks it; the points are counted, it is none.
            if set(exposed, &mut family, &name, &labels, series, scratch).is_ok() {
                exposed.targets.insert(key, labels);
            }
        }
        self.close(name, family);
        Ok(())
    }
}
