//! `delta_to_cumulative`: sums and histograms since the point before are added up to those since
//! the start.

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
use crate::processor::{Built, Edited, Processor, ProcessorConfig, Remembered, RunningState};
use crate::series::identity::Identity;
use crate::series::point::{Histogram, Measure, Measured};
use crate::series::{Bounds, Memory, Slot, Table, now_nanos, read_memory};

const NAME: &str = "delta_to_cumulative";
const DELTA: u64 = 1;
const CUMULATIVE: u8 = 2;

/// The Collector looks for stale series this often.
const SWEEP: Duration = Duration::from_secs(60);

pub(crate) const KIND: ComponentKind<ProcessorConfig> = ComponentKind::new(
    Kind {
        signals: &[Signal::Metrics],
        ..Kind::new(NAME, "Adds up delta sums and histograms to cumulative ones")
            .aliases(&["deltatocumulative"])
    },
    |fields| {
        let options = read(fields);
        ProcessorConfig::Edits(Box::new(move |_| {
            let processor = Box::new(DeltaToCumulative { options, series: Memory::new(NAME) });
            Ok(Built { processor, warnings: Vec::new() })
        }))
    },
);

#[derive(Clone, Copy, Debug)]
struct Options {
    max_stale: Duration,
    bounds: Bounds,
}

fn read(fields: &mut Fields<'_>) -> Options {
    let doc = "A series is forgotten when its latest point arrived so long ago.";
    let range = Duration::from_nanos(1)..=Duration::MAX;
    let max_stale = fields.duration_in("max_stale", Duration::from_secs(300), range, doc);
    let doc = "Most series at a time: points of further ones are dropped. `memory_limit_mib` \
               bounds them in any case.";
    let series: u64 = fields.integer("max_streams", i64::MAX as u64, 0..=i64::MAX as u64, doc);
    let series = usize::try_from(series).unwrap_or(usize::MAX);
    Options { max_stale, bounds: Bounds { series, bytes: read_memory(fields) } }
}

struct DeltaToCumulative {
    options: Options,
    series: Memory,
}

/// The conversion of one request, at a time in nanoseconds since 1970.
struct Adding<'p> {
    bounds: Bounds,
    table: &'p mut Table,
    now: u64,
    identity: Identity,
    kind: PointKind,
}

impl PointEditor for Adding<'_> {
    fn resource(&mut self, attributes: &Attributes<'_>) {
        self.identity.resource(attributes);
    }

    fn scope(&mut self, name: &[u8], version: &[u8], attributes: &Attributes<'_>) {
        self.identity.scope(name, version, Some(attributes));
    }

    fn metric(&mut self, metric: &MetricView<'_>) -> Option<u8> {
        if metric.temporality != DELTA {
            return None;
        }
        self.kind = metric.kind;
        let kind = [metric.kind as u8, u8::from(metric.is_monotonic)];
        self.identity.metric(metric.name, metric.unit, kind);
        Some(CUMULATIVE)
    }

    fn point(
        &mut self,
        content: &[u8],
        attributes: &Attributes<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Point, Malformed> {
        let point = Measured::read(self.kind, content)?;
        let key = self.identity.point(&[], attributes);
        let state = match self.table.get(key).map(|slot| &slot.state) {
            None => point,
            // The Collector takes a series at the time 0 for one without a state.
            Some(state) if state.time == 0 => point,
            Some(state) if point.start < state.start || point.time <= state.time => {
                let state = state.clone();
                self.table.put(key, Slot { state, seen: self.now }, self.bounds);
                return Ok(Point::Removed);
            }
            Some(state) => add(state, point),
        };
        let written = out.len();
        state.write(content, out)?;
        if !self.table.put(key, Slot { state, seen: self.now }, self.bounds) {
            out.truncate(written);
            return Ok(Point::Removed);
        }
        Ok(Point::Replaced)
    }
}

/// The state of a series with a later point.
fn add(state: &Measured, point: Measured) -> Measured {
    let mut sum = state.clone();
    sum.time = point.time;
    match (&mut sum.value, point.value) {
        (Measure::Histogram(own), Measure::Histogram(other)) => {
            if own.bounds != other.bounds {
                // No way to add them: the series begins anew.
                let (start, time, flags) = (point.start, point.time, point.flags);
                return Measured { start, time, flags, value: Measure::Histogram(other) };
            }
            add_histogram(own, &other);
        }
        (Measure::Exponential(own), Measure::Exponential(other)) => own.add(*other),
        (_, Measure::Empty) => {}
        (Measure::Int(own), Measure::Int(other)) => *own = own.wrapping_add(other),
        (Measure::Double(own), Measure::Double(other)) => *own += other,
        // A series that changes from integers to floating point, or back, begins at 0.
        (own, other) => *own = other,
    }
    sum
}

fn add_histogram(own: &mut Histogram, other: &Histogram) {
    for (own, other) in own.counts.iter_mut().zip(&other.counts) {
        *own = own.wrapping_add(*other);
    }
    own.all.add(&other.all);
}

impl Processor for DeltaToCumulative {
    fn process(&self, _: Signal, request: &Bytes, _: &Metadata, limit_bytes: usize) -> Edited {
        let (Options { max_stale, bounds }, series) = (self.options, self.series.get());
        let (table, now) = (&mut *series.table(), now_nanos());
        let stale = u64::try_from(max_stale.as_nanos()).unwrap_or(u64::MAX);
        table.sweep(now.saturating_sub(stale), SWEEP, bounds);
        let (identity, kind) = (Identity::new(&series.keys), PointKind::Sum);
        let mut adding = Adding { bounds, table, now, identity, kind };
        edit_points_within(request, limit_bytes, &mut adding)
    }

    fn series(&self) -> Option<Arc<dyn Remembered>> {
        Some(self.series.get())
    }

    fn take_over(&self, running: RunningState, _: bool) {
        self.series.take_over(running);
    }

    fn fingerprint(&self) -> u64 {
        let mut fingerprint = Fingerprint::new(NAME);
        fingerprint.add(format!("{:?}", self.options));
        fingerprint.finish()
    }
}
