//! `cumulative_to_delta`: monotonic sums and histograms since the start become those since the
//! point before.

mod convert;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sluice_config::{ComponentKind, Fields, Kind};
use sluice_flow::Metadata;
use sluice_otlp::wire::Malformed;
use sluice_otlp::{
    Attributes, MetricView, Point, PointEditor, PointKind, Signal, edit_points_within,
};

use crate::fingerprint::Fingerprint;
use crate::matching::{MatchType, Strings};
use crate::processor::{Built, Edited, Processor, ProcessorConfig, Remembered, RunningState};
use crate::series::identity::Identity;
use crate::series::point::{Measure, Measured};
use crate::series::{Bounds, Memory, Table, now_nanos, read_memory};

const NAME: &str = "cumulative_to_delta";
const DELTA: u8 = 1;
const CUMULATIVE: u64 = 2;

pub(crate) const KIND: ComponentKind<ProcessorConfig> = ComponentKind::new(
    Kind {
        signals: &[Signal::Metrics],
        ..Kind::new(NAME, "Turns cumulative sums and histograms into deltas")
            .aliases(&["cumulativetodelta"])
    },
    |fields| {
        let options = read(fields);
        ProcessorConfig::Edits(Box::new(move |_| {
            let (options, series) = (options.clone(), Memory::new(NAME));
            let processor = Box::new(CumulativeToDelta { options, series });
            Ok(Built { processor, warnings: Vec::new() })
        }))
    },
);

/// The fate of the first point of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InitialValue {
    Auto,
    Keep,
    Drop,
}

#[derive(Clone, Debug)]
struct Options {
    include: Option<Metrics>,
    exclude: Option<Metrics>,
    initial: InitialValue,
    max_staleness: Duration,
    bounds: Bounds,
}

/// Metrics by their names and kinds. Both must match, where they are given.
#[derive(Clone, Debug)]
struct Metrics {
    names: Option<Strings>,
    kinds: Vec<PointKind>,
}

fn read(fields: &mut Fields<'_>) -> Options {
    let doc = "Only these metrics are converted.";
    let include = fields.section_unless_empty("include", doc, read_metrics);
    let doc = "Of those, these are not converted.";
    let exclude = fields.section_unless_empty("exclude", doc, read_metrics);
    let doc = "The first point of a series: `auto` passes it on if the series began after this \
               processor was started and before the point, `keep` always, `drop` never.";
    let choices =
        [("auto", InitialValue::Auto), ("keep", InitialValue::Keep), ("drop", InitialValue::Drop)];
    let initial = fields.choice("initial_value", InitialValue::Auto, &choices, doc);
    let doc = "A series is forgotten when the time of its latest point is so long ago. 0: never.";
    let max_staleness = fields.duration("max_staleness", Duration::from_secs(3600), doc);
    let bounds = Bounds { series: usize::MAX, bytes: read_memory(fields) };
    Options { include, exclude, initial, max_staleness, bounds }
}

fn read_metrics(fields: &mut Fields<'_>) -> Metrics {
    let match_type = MatchType::read(fields);
    let doc = "Names of metrics, of which one is enough.";
    let names = fields.string_list("metrics", &[], doc);
    if names.is_empty() && match_type.is_set() {
        fields.error_at("match_type", "needs `metrics`, to which it applies");
    }
    let names = (!names.is_empty()).then(|| match_type.compile(fields, "metrics", names));
    let doc = "Kinds of metrics, of which one is enough: `sum`, `histogram`, \
               `exponentialhistogram`.";
    let mut kinds = Vec::new();
    for name in fields.string_list("metric_types", &[], doc) {
        match name.to_lowercase().as_str() {
            "sum" => kinds.push(PointKind::Sum),
            "histogram" => kinds.push(PointKind::Histogram),
            "exponentialhistogram" => kinds.push(PointKind::Exponential),
            _ => {
                let message = format!("has the unknown type `{name}`");
                let hint = "possible are sum, histogram, exponentialhistogram";
                fields.error_at_with_hint("metric_types", &message, hint);
            }
        }
    }
    Metrics { names, kinds }
}

impl Metrics {
    fn has_name(&self, name: &[u8]) -> Option<bool> {
        Some(self.names.as_ref()?.match_text(name))
    }

    fn has_kind(&self, kind: PointKind) -> Option<bool> {
        (!self.kinds.is_empty()).then(|| self.kinds.contains(&kind))
    }

    fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        Strings::fingerprint(self.names.as_ref(), fingerprint);
        fingerprint.list(&self.kinds, |out, kind| out.add(format!("{kind:?}")));
    }
}

impl Options {
    /// Of names and kinds, each is included if no list says otherwise.
    fn selects(&self, metric: &MetricView<'_>) -> bool {
        let (name, kind) = (metric.name, metric.kind);
        let include = self.include.as_ref().is_none_or(|include| {
            include.has_name(name) != Some(false) && include.has_kind(kind) != Some(false)
        });
        let exclude = self.exclude.as_ref().is_some_and(|exclude| {
            exclude.has_name(name) == Some(true) || exclude.has_kind(kind) == Some(true)
        });
        include && !exclude
    }
}

struct CumulativeToDelta {
    options: Options,
    series: Memory,
}

/// The conversion of one request.
struct Converting<'p> {
    options: &'p Options,
    table: &'p mut Table,
    identity: Identity,
    kind: PointKind,
}

impl PointEditor for Converting<'_> {
    fn resource(&mut self, attributes: &Attributes<'_>) {
        self.identity.resource(attributes);
    }

    fn scope(&mut self, name: &[u8], version: &[u8], _: &Attributes<'_>) {
        self.identity.scope(name, version, None);
    }

    fn metric(&mut self, metric: &MetricView<'_>) -> Option<u8> {
        let converts = metric.temporality == CUMULATIVE
            && match metric.kind {
                PointKind::Sum => metric.is_monotonic,
                PointKind::Histogram | PointKind::Exponential => metric.has_points,
            };
        if !converts || !self.options.selects(metric) {
            return None;
        }
        self.kind = metric.kind;
        self.identity.metric(metric.name, metric.unit, [metric.kind as u8, 1]);
        Some(DELTA)
    }

    fn point(
        &mut self,
        content: &[u8],
        attributes: &Attributes<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Point, Malformed> {
        let point = Measured::read(self.kind, content)?;
        if point.has_no_value() {
            return Ok(Point::Removed);
        }
        let value_kind = match &point.value {
            Measure::Double(value) if value.is_nan() => return Ok(Point::Kept),
            Measure::Double(_) => 2,
            Measure::Empty => 0,
            _ => 1,
        };
        let mut own = [value_kind; 9];
        own[1..].copy_from_slice(&point.start.to_le_bytes());
        let key = self.identity.point(&own, attributes);
        let Options { initial, bounds, .. } = *self.options;
        match convert::convert(self.table, key, point, initial, bounds) {
            None => Ok(Point::Removed),
            Some(delta) => {
                delta.write(content, out)?;
                Ok(Point::Replaced)
            }
        }
    }
}

impl Processor for CumulativeToDelta {
    fn process(&self, _: Signal, request: &Bytes, _: &Metadata, limit_bytes: usize) -> Edited {
        let (options, series) = (&self.options, self.series.get());
        let table = &mut *series.table();
        let stale = u64::try_from(options.max_staleness.as_nanos()).unwrap_or(u64::MAX);
        if stale > 0 {
            let older_than = now_nanos().saturating_sub(stale);
            table.sweep(older_than, options.max_staleness, options.bounds);
        }
        let (identity, kind) = (Identity::new(&series.keys), PointKind::Sum);
        let mut converting = Converting { options, table, identity, kind };
        edit_points_within(request, limit_bytes, &mut converting)
    }

    fn series(&self) -> Option<Arc<dyn Remembered>> {
        Some(self.series.get())
    }

    fn take_over(&self, running: RunningState, _: bool) {
        self.series.take_over(running);
    }

    fn fingerprint(&self) -> u64 {
        let mut fingerprint = Fingerprint::new(NAME);
        for metrics in [&self.options.include, &self.options.exclude] {
            fingerprint.add(if metrics.is_some() { "given" } else { "absent" });
            metrics.iter().for_each(|metrics| metrics.fingerprint(&mut fingerprint));
        }
        let Options { initial, max_staleness, bounds, .. } = &self.options;
        fingerprint.add(format!("{initial:?} {max_staleness:?} {bounds:?}"));
        fingerprint.finish()
    }
}

#[cfg(test)]
mod tests;
