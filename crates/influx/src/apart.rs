//! Points of a request that InfluxDB would take for one are told apart by their times.
//!
//! InfluxDB stores one value a series, field and time; a later one replaces it. Of two increments
//! the first would be lost. So the later ones are moved to the next free time, which is the same
//! each time for the same request: it depends on nothing else. Only the eight bytes of a time
//! change, so that a request keeps its length
//! (docs/decisions/049-increments-of-one-time.md).

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use sluice_otlp::wire::{Fields, Malformed};

use crate::outward::{Tag, resource_tags, scope_tags, sorted};
use crate::point::{Metric, Point};
use crate::precision::{FIRST_NS, LAST_NS, Precision};

/// The points that are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Those of sums and histograms of deltas: each of them adds to the others.
    Deltas,
    /// Those of all metrics.
    All,
}

/// More memory is needed than there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// A point that may be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    /// Hash of measurement, tags and field. Two series with one hash are told apart in vain.
    series: u64,
    /// Since 1970, in the unit.
    time: i64,
    /// The place of the time in the request. Earlier points come first.
    at: usize,
}

/// The request with other times where points of one series and field have the same, if there are
/// such. A time is taken to be the same within a unit of `precision`, and moved by such units.
///
/// `limit_bytes`: of the memory that this takes, the result included.
pub fn set_apart(
    request: &[u8],
    moved: Moved,
    precision: Precision,
    limit_bytes: usize,
) -> Result<Result<Option<Vec<u8>>, NoRoom>, Malformed> {
    let most = limit_bytes / size_of::<Entry>();
    let mut found = Found { request, moved, precision, entries: Vec::new(), most };
    let mut resources = Fields::of(request);
    while let Some(resource) = resources.next_message(1)? {
        if found.resource(&request[resource.content()])? == Some(NoRoom) {
            return Ok(Err(NoRoom));
        }
    }
    let mut entries = found.entries;
    entries.sort_unstable();
    let is_same = |pair: &[Entry]| (pair[0].series, pair[0].time) == (pair[1].series, pair[1].time);
    if !entries.windows(2).any(is_same) {
        return Ok(Ok(None));
    }
    let needed = entries.capacity() * size_of::<Entry>() + request.len();
    if needed > limit_bytes {
        return Ok(Err(NoRoom));
    }
    let mut out = request.to_vec();
    for series in entries.chunk_by(|one, other| one.series == other.series) {
        move_later(series, precision.step_ns(), &mut out);
    }
    Ok(Ok(Some(out)))
}

/// Moves the points of a series to free times. The first one of a time stays.
fn move_later(series: &[Entry], step_ns: i64, out: &mut [u8]) {
    // All times between a point that is moved and the place that it gets are taken, so that no
    // later one finds a place before it.
    let mut last = i64::MIN;
    for pair in series.windows(2) {
        let [before, entry] = [pair[0], pair[1]];
        if before.time != entry.time {
            continue;
        }
        let mut free = last.max(entry.time) + 1;
        let mut next = series.partition_point(|it| it.time < free);
        while series.get(next).is_some_and(|it| it.time == free) {
            free += 1;
            next += series[next..].partition_point(|it| it.time < free);
        }
        let Some(time_ns) = free.checked_mul(step_ns).filter(|time_ns| *time_ns <= LAST_NS) else {
            continue;
        };
        last = free;
        out[entry.at..entry.at + 8].copy_from_slice(&time_ns.to_le_bytes());
    }
}

struct Found<'r> {
    request: &'r [u8],
    moved: Moved,
    precision: Precision,
    entries: Vec<Entry>,
    /// Entries for which there is room.
    most: usize,
}

impl<'r> Found<'r> {
    fn resource(&mut self, bytes: &'r [u8]) -> Result<Option<NoRoom>, Malformed> {
        let mut tags: Option<Vec<Tag<'_>>> = None;
        let mut scopes = Fields::of(bytes);
        while let Some(scope) = scopes.next_message(2)? {
            let content = &bytes[scope.content()];
            let mut own = None;
            let mut metrics = Fields::of(content);
            while let Some(metric) = metrics.next_message(2)? {
                let metric = Metric::read(&content[metric.content()])?;
                if self.moved == Moved::Deltas && !metric.is_delta()? {
                    continue;
                }
                if tags.is_none() {
                    tags = Some(resource_tags(bytes)?);
                }
                let tags = tags.get_or_insert_default();
                if own.is_none() {
                    own = Some(tags.len());
                    scope_tags(content, tags)?;
                }
                if self.metric(&metric, tags)?.is_some() {
                    return Ok(Some(NoRoom));
                }
            }
            if let (Some(tags), Some(own)) = (&mut tags, own) {
                tags.truncate(own);
            }
        }
        Ok(None)
    }

    fn metric(
        &mut self,
        metric: &Metric<'r>,
        tags: &[Tag<'_>],
    ) -> Result<Option<NoRoom>, Malformed> {
        let Some(shape) = metric.shape else { return Ok(None) };
        let (measurement, field) = metric.names();
        let mut point = Point::default();
        for data in &metric.data {
            let mut points = Fields::of(data);
            while let Some(encoded) = points.next_message(1)? {
                let encoded = &data[encoded.content()];
                point.read(shape, encoded)?;
                let (Some(time_ns), Some(at)) = (point.time_ns, point.time_at) else { continue };
                if point.is_stale || !(FIRST_NS..=LAST_NS).contains(&(time_ns as i64)) {
                    continue;
                }
                // A series is what InfluxDB takes for one: without the texts, which are fields.
                let mut hasher = DefaultHasher::new();
                (measurement, field).hash(&mut hasher);
                sorted(metric, &point, tags).2.hash(&mut hasher);
                let at = encoded.as_ptr().addr() - self.request.as_ptr().addr() + at;
                let time = self.precision.count(time_ns as i64);
                if self.entries.len() >= self.most {
                    return Ok(Some(NoRoom));
                }
                self.entries.push(Entry { series: hasher.finish(), time, at });
            }
        }
        Ok(None)
    }
}
