//! Names of units, by which another Sluice knows what it has had. A unit has the same name after a
//! restart, in whatever batch it is sent and however its frame is cut.

use std::sync::Arc;

use sluice_flow::Exporter;
use sluice_flow::dispatch::Batch;
use sluice_flow::hop::{Place, Ranges, RangesTooLong, Source};
use sluice_log::Offset;

use super::prepare::Lease;

/// Where a unit stands among the items that a delivery makes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    source: Source,
    first_item: u32,
    /// It is all that is made of the frame.
    is_whole: bool,
}

impl Name {
    pub(super) fn of_whole(source: Source) -> Name {
        Name { source, first_item: 0, is_whole: true }
    }

    pub(super) fn of_part(source: Source, first_item: u32) -> Name {
        Name { source, first_item, is_whole: false }
    }

    /// The name of a part of the unit, which begins behind this many of its items.
    pub(super) fn part(self, behind_items: u32) -> Name {
        Name::of_part(self.source, self.first_item.saturating_add(behind_items))
    }

    fn range(self, offset: Offset, items: u32) -> (Source, std::ops::Range<Place>) {
        let end = match self.is_whole {
            true => Place::behind(offset),
            false => Place::new(offset, self.first_item.saturating_add(items)),
        };
        (self.source, Place::new(offset, self.first_item)..end)
    }
}

/// The name of what a delivery makes of a log: of another delivery, path or steps, the items of a
/// frame may be other ones.
pub(super) fn source(
    log: u128,
    delivery: &str,
    path: usize,
    steps: impl Iterator<Item = u64>,
) -> Source {
    let path = (path as u64).to_le_bytes();
    let steps = steps.flat_map(u64::to_le_bytes);
    let bytes = delivery.bytes().chain([0]).chain(path).chain(steps);
    Source { log, delivery: bytes.fold(0xcbf2_9ce4_8422_2325, fowler_noll_vo) }
}

/// FNV-1a: the same in every release.
fn fowler_noll_vo(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
}

/// The text of a request's ranges, if its exporter sends it and all its units have names: those
/// without one never merge with others.
pub(super) fn header(
    batch: &Batch<Lease>,
    exporter: &dyn Exporter,
) -> Result<Option<Arc<str>>, RangesTooLong> {
    if !exporter.names_ranges() || batch.units.iter().any(|unit| unit.lease.name.is_none()) {
        return Ok(None);
    }
    let ranges = batch.units.iter().filter_map(|unit| {
        let name = unit.lease.name?;
        Some(name.range(unit.lease.leased.offset, unit.items))
    });
    Ranges::new(ranges).to_header().map(|text| Some(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_frame_lie_within_it_and_behind_each_other() {
        let source = source(1, "traces → otlp", 0, [5, 6].into_iter());
        let whole = Name::of_whole(source);
        let (first, second) = (whole.part(0), whole.part(3));
        let ranges = [first.range(7, 3), second.range(7, 2), second.part(2).range(7, 1)];
        let of_parts = Ranges::new(ranges);
        let places = Place::new(7, 0)..Place::new(7, 6);
        assert_eq!(of_parts, Ranges::new([(source, places)]));
        let with_parts = Ranges::new([whole.range(7, 9), first.range(7, 3), second.range(7, 2)]);
        assert_eq!(with_parts, Ranges::new([whole.range(7, 9)]));
        assert_eq!(whole.range(7, 9).1, Place::new(7, 0)..Place::new(8, 0));
    }

    #[test]
    fn a_source_differs_by_its_delivery_its_path_and_its_steps_and_stays_the_same() {
        let of = |delivery: &str, path, steps: &[u64]| {
            source(1, delivery, path, steps.iter().copied()).delivery
        };
        let all = [of("a", 0, &[]), of("b", 0, &[]), of("a", 1, &[]), of("a", 0, &[1])];
        let distinct: std::collections::BTreeSet<_> = all.into_iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(of("a", 0, &[]), 0x65d2_0739_07ab_1664, "a new release knows old ranges");
    }
}
