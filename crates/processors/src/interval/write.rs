//! Points of a bucket as a request.

use std::collections::BTreeMap;

use bytes::Bytes;
use sluice_influx::metadata::FIELD;
use sluice_otlp::wire::{FIXED64, VARINT, write_len_field};

use super::aggregate::Span;
use super::cell::{Cell, Fate, Group, NUMBER_LEN, State};
use super::fields;
use super::numbers::{Number, Numbers};
use super::options::{Statistic, Statistics};
use super::walk::{GAUGE, SUM};

/// Bytes of a point beside its attributes, at most.
const POINT_BYTES: usize = 48;
/// Metadata of a metric of quantiles: `exact` or `estimate`.
const QUANTILES: &str = "sluice.quantiles";

/// Bytes that the points of a series take, about.
pub(super) fn estimate(cell: &Cell) -> usize {
    let points = match (&cell.state, &cell.group.fate) {
        (State::Last { point, .. }, _) => return point.len() + POINT_BYTES,
        (_, Fate::Numbers(it)) => it.kinds.len() + it.quantiles.len(),
        _ => 0,
    };
    points * (cell.key.len() + POINT_BYTES)
}

/// Cells of a scope by metric.
type Metrics<'a> = BTreeMap<u64, Vec<&'a Cell>>;

/// Points by measurement, which may come several times.
pub(super) type Made = Vec<(Box<[u8]>, u64)>;

/// A request with these series, the number of its points, and these by measurement.
pub(super) fn request(span: Span, cells: &[Cell]) -> (Bytes, u32, Made) {
    let mut resources: BTreeMap<&[u8], BTreeMap<&[u8], Metrics<'_>>> = BTreeMap::new();
    for cell in cells {
        let Group { resource, scope, number, .. } = &*cell.group;
        let scopes = resources.entry(resource).or_default();
        scopes.entry(scope).or_default().entry(*number).or_default().push(cell);
    }
    let (mut out, mut items, mut made) = (Vec::new(), 0, Made::new());
    for (resource, scopes) in resources {
        let mut content = resource.to_vec();
        for (scope, groups) in scopes {
            let mut metrics = scope.to_vec();
            for cells in groups.values() {
                let (out, items, made) = (&mut metrics, &mut items, &mut made);
                let mut writer = Writer { span, cells, out, items, made };
                writer.group(&cells[0].group);
            }
            write_len_field(&mut content, 2, &metrics);
        }
        write_len_field(&mut out, 1, &content);
    }
    (out.into(), items, made)
}

/// The metrics that are made of one.
struct Writer<'w> {
    span: Span,
    cells: &'w [&'w Cell],
    out: &'w mut Vec<u8>,
    items: &'w mut u32,
    made: &'w mut Made,
}

impl Writer<'_> {
    fn group(&mut self, group: &Group) {
        let statistics = match &group.fate {
            Fate::Numbers(statistics) => statistics.clone(),
            Fate::KeepsLast | Fate::Passes => return self.last_points(group),
        };
        for kind in &statistics.kinds {
            let field = statistics.field.as_deref();
            let (ending, data) = shape(*kind, group, field.is_some());
            let metric = Derived { group, field, ending, data, note: None };
            self.numbers(&metric, |numbers| Some(numbers.statistic(*kind)));
        }
        for is_exact in [true, false] {
            self.quantiles(group, &statistics, is_exact);
        }
    }

    fn last_points(&mut self, group: &Group) {
        let mut data = group.data_rest.to_vec();
        let before = *self.items;
        for cell in self.cells {
            if let State::Last { point, .. } = &cell.state {
                write_len_field(&mut data, 1, point);
                *self.items += 1;
            }
        }
        let mut metric = Vec::new();
        write_len_field(&mut metric, 1, &group.name);
        for part in [&group.rest, &group.unit, &group.metadata] {
            metric.extend_from_slice(part);
        }
        write_len_field(&mut metric, group.data, &data);
        write_len_field(self.out, 2, &metric);
        self.made.push((group.measurement.clone(), u64::from(*self.items - before)));
    }

    fn quantiles(&mut self, group: &Group, statistics: &Statistics, is_exact: bool) {
        let has = |cell: &Cell| quantiles_are_exact(cell) == Some(is_exact);
        if !self.cells.iter().any(|cell| has(cell)) {
            return;
        }
        let all = || statistics.quantiles.iter().map(|(quantile, _)| *quantile);
        let values = self.cells.iter().map(|cell| match &cell.state {
            State::Numbers(numbers) if has(cell) => numbers.quantiles(all()),
            _ => Vec::new(),
        });
        let values: Vec<Vec<f64>> = values.collect();
        for (index, (_, ending)) in statistics.quantiles.iter().enumerate() {
            let note = Some(if is_exact { "exact" } else { "estimate" });
            let field = statistics.field.as_deref();
            let metric = Derived { group, field, ending: Some(ending), data: Data::Gauge, note };
            let mut of_cells = values.iter();
            self.numbers(&metric, |_| {
                let value = of_cells.next().and_then(|values| values.get(index));
                value.map(|value| Number::Double(*value))
            });
        }
    }

    /// A metric with a number of each series that has one.
    fn numbers(
        &mut self,
        metric: &Derived<'_>,
        mut number: impl FnMut(&Numbers) -> Option<Number>,
    ) {
        let (mut data, mut point, before) = (Vec::new(), Vec::new(), *self.items);
        for cell in self.cells {
            let State::Numbers(numbers) = &cell.state else { continue };
            let Some(value) = number(numbers) else { continue };
            point.clear();
            point.extend_from_slice(&cell.key[NUMBER_LEN..]);
            if metric.data != Data::Gauge {
                fixed64(2, self.span.start, &mut point);
            }
            fixed64(3, self.span.time(numbers.newest()), &mut point);
            match value {
                // As Telegraf has them: a field cannot be a float and later an integer.
                Number::Int(value) if metric.field.is_some() => {
                    fixed64(4, (value as f64).to_bits(), &mut point);
                }
                Number::Double(value) => fixed64(4, value.to_bits(), &mut point),
                Number::Int(value) => fixed64(6, value as u64, &mut point),
            }
            write_len_field(&mut data, 1, &point);
            *self.items += 1;
        }
        let points = u64::from(*self.items - before);
        if points > 0 {
            let (number, rest): (u32, &[u8]) = match metric.data {
                Data::Gauge => (GAUGE, &[]),
                // Deltas, of which some never fall.
                Data::Sum { is_monotonic: false } => (SUM, &[2 << 3 | VARINT, 1]),
                Data::Sum { is_monotonic: true } => {
                    (SUM, &[2 << 3 | VARINT, 1, 3 << 3 | VARINT, 1])
                }
            };
            data.extend_from_slice(rest);
            let mut content = metric.header();
            let name = sluice_influx::measurement(&content).unwrap_or_default();
            self.made.push((name.into(), points));
            write_len_field(&mut content, number, &data);
            write_len_field(self.out, 2, &content);
        }
    }
}

fn quantiles_are_exact(cell: &Cell) -> Option<bool> {
    match &cell.state {
        State::Numbers(numbers) => Some(numbers.quantiles.as_ref()?.is_exact()),
        State::Empty | State::Last { .. } => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Data {
    Gauge,
    Sum { is_monotonic: bool },
}

/// The ending of a statistic's name, and its kind of metric. What can be added up later is a sum of
/// deltas. A field always has an ending.
fn shape(kind: Statistic, group: &Group, is_field: bool) -> (Option<&'static str>, Data) {
    let is_sum = group.data == SUM;
    let own = if is_sum { Statistic::Sum } else { Statistic::Last };
    let ending = (is_field || kind != own).then(|| kind.name());
    let data = match kind {
        Statistic::Count => Data::Sum { is_monotonic: true },
        Statistic::Sum => Data::Sum { is_monotonic: is_sum && group.is_monotonic },
        _ => Data::Gauge,
    };
    (ending, data)
}

/// A metric that is made of another.
struct Derived<'g> {
    group: &'g Group,
    /// The field of line protocol that it is a statistic of, unless its metric says another.
    field: Option<&'g str>,
    /// Of its name. Nothing if it keeps its name.
    ending: Option<&'g str>,
    data: Data,
    /// How its quantiles were found.
    note: Option<&'static str>,
}

impl Derived<'_> {
    fn header(&self) -> Vec<u8> {
        let Group { name, rest, unit, metadata, .. } = self.group;
        let (mut out, mut own) = (Vec::new(), name.to_vec());
        let mut field = None;
        if let (Some(default), Some(ending)) = (self.field, self.ending) {
            let names = fields::names(name, metadata, default, ending);
            own = names.metric;
            field = Some(names.field);
        } else if let Some(ending) = self.ending {
            let ending = [&b"_"[..], ending.as_bytes()].concat();
            own.extend_from_slice(&ending);
            // A field stays one: another measurement may have the name of the metric.
            field = fields::own_field(metadata).map(|own| [own, &ending].concat());
        }
        write_len_field(&mut out, 1, &own);
        out.extend_from_slice(rest);
        // A number of points has no unit.
        if self.ending != Some(Statistic::Count.name()) {
            out.extend_from_slice(unit);
        }
        if self.ending.is_none() {
            // They describe the values of the metric that it is made of.
            out.extend_from_slice(metadata);
        }
        if let Some(field) = field {
            fields::write_metadata(&mut out, FIELD, &field);
        }
        if let Some(note) = self.note {
            fields::write_metadata(&mut out, QUANTILES, note.as_bytes());
        }
        out
    }
}

fn fixed64(number: u8, value: u64, out: &mut Vec<u8>) {
    out.push(number << 3 | FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}
