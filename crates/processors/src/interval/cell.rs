//! A series in a bucket, and its metric.

use std::sync::Arc;

use bytes::Bytes;

use super::numbers::{Number, Numbers};
use super::options::Statistics;
use super::sketch::Quantiles;

/// Memory of a series in a bucket beside its attributes: its state, its place in two tables.
pub(super) const CELL_BYTES: usize = size_of::<Cell>() + size_of::<Numbers>() + 96;
/// The same of a metric, which is there once for all of its series.
const GROUP_BYTES: usize = size_of::<Group>() + 128;
/// The key of a series begins with the number of its metric.
pub(super) const NUMBER_LEN: usize = size_of::<u64>();

/// The treatment of a metric.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fate {
    Passes,
    /// Of each series the last point.
    KeepsLast,
    Numbers(Arc<Statistics>),
}

/// A metric of a scope of a resource, by the encoded fields around its points.
#[derive(Debug)]
pub(super) struct Group {
    pub number: u64,
    pub fate: Fate,
    /// Fields of the resource's part of a request without its scopes.
    pub resource: Box<[u8]>,
    pub scope: Box<[u8]>,
    pub name: Box<[u8]>,
    /// That of the lines that the metric becomes, for the ledger.
    pub measurement: Box<[u8]>,
    /// Fields of the metric but for its name, unit, metadata and points.
    pub rest: Box<[u8]>,
    /// Whole fields.
    pub unit: Box<[u8]>,
    pub metadata: Box<[u8]>,
    /// Number of the field with the points, and what it has beside them.
    pub data: u32,
    pub data_rest: Box<[u8]>,
    pub is_monotonic: bool,
}

impl Group {
    pub(super) fn bytes(&self) -> usize {
        let parts = [&self.resource, &self.scope, &self.name, &self.rest, &self.unit];
        let parts = parts.into_iter().chain([&self.metadata, &self.data_rest]);
        // Once more as the key of the table.
        let parts = parts.map(|part| part.len()).sum::<usize>();
        GROUP_BYTES + self.measurement.len() + 2 * parts
    }

    /// Its points pass too: they are added up, but not taken out of their requests.
    pub(super) fn keeps_points(&self) -> bool {
        matches!(&self.fate, Fate::Numbers(statistics) if statistics.keeps_points)
    }
}

/// A point as it is staged.
#[derive(Clone, Debug)]
pub(super) enum Sample {
    Number(Number),
    /// The encoded point.
    Whole(Bytes),
}

/// A series in a bucket.
#[derive(Debug)]
pub(super) struct Cell {
    pub group: Arc<Group>,
    /// The metric's number and the encoded attributes, in order.
    pub key: Arc<[u8]>,
    pub state: State,
    /// Memory that its longest point takes.
    pub point_bytes: usize,
    /// Points that it was made of.
    pub points: u64,
}

#[derive(Debug)]
pub(super) enum State {
    /// Nothing has arrived, or only of requests that were refused.
    Empty,
    Last {
        time: u64,
        point: Vec<u8>,
    },
    Numbers(Box<Numbers>),
}

impl Cell {
    pub(super) fn bytes(&self) -> usize {
        let heap = match &self.state {
            State::Numbers(numbers) => numbers.heap_bytes(),
            // The memory of its quantiles is reserved.
            State::Empty => heap_of_new(&self.group.fate),
            State::Last { .. } => 0,
        };
        CELL_BYTES + self.key.len() + heap + self.point_bytes
    }

    /// `most` and `room_bytes` as for [`Quantiles::add`].
    pub(super) fn add(&mut self, time: u64, sample: &Sample, most: usize, room_bytes: usize) {
        self.points += 1;
        match sample {
            // A copy: a slice would keep all of its request in memory.
            Sample::Whole(new) => match &mut self.state {
                State::Last { time: before, .. } if time < *before => {}
                State::Last { time: before, point } => {
                    *before = time;
                    point.clear();
                    point.extend_from_slice(new);
                }
                state => *state = State::Last { time, point: new.to_vec() },
            },
            Sample::Number(number) => {
                if let State::Empty = self.state
                    && let Fate::Numbers(statistics) = &self.group.fate
                {
                    self.state = State::Numbers(Box::new(Numbers::new(statistics)));
                }
                if let State::Numbers(numbers) = &mut self.state {
                    numbers.add(time, *number, most, room_bytes);
                }
            }
        }
    }
}

/// Memory that is reserved for the quantiles of an empty series.
pub(super) fn heap_of_new(fate: &Fate) -> usize {
    match fate {
        Fate::Numbers(it) if !it.quantiles.is_empty() => Quantiles::first_bytes(),
        _ => 0,
    }
}
