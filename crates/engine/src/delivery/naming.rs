//! Names of units, by which another Sluice knows what it has had. A unit has the same name after a
//! restart, in whatever batch it is sent and however its frame is cut.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use sluice_flow::dispatch::Batch;
use sluice_flow::hop::{Place, Ranges, RangesTooLong, Source};
use sluice_flow::{Exporter, Outcome};

use super::leased::Leased;
use super::prepare::Lease;

/// Where a unit stands among the items that a delivery makes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    source: Source,
    /// Of the frame in its log, or its number in the run of its source.
    offset: u64,
    first_item: u32,
    /// It is all that is made of the frame.
    is_whole: bool,
}

impl Name {
    /// The name of the part of the unit that begins behind this many of its items.
    pub(super) fn part(self, behind_items: u32) -> Name {
        let first_item = self.first_item.saturating_add(behind_items);
        Name { first_item, is_whole: false, ..self }
    }

    fn range(self, items: u32) -> (Source, Range<Place>) {
        let end = match self.is_whole {
            true => Place::behind(self.offset),
            false => Place::new(self.offset, self.first_item.saturating_add(items)),
        };
        (self.source, Place::new(self.offset, self.first_item)..end)
    }
}

/// The names that a delivery gives.
pub(crate) struct Names {
    /// The delivery's name.
    delivery: String,
    /// By the log or run, and a hash of the path and its steps.
    sources: Mutex<HashMap<(u128, u64), Source>>,
}

/// More than there are paths and earlier starts of which a log has frames, but for odd cases.
const SOURCES_KEPT: usize = 256;

impl Names {
    pub(crate) fn of(delivery: String) -> Names {
        Names { delivery, sources: Mutex::default() }
    }

    /// The name of all that a path makes of a frame. None if the frame has no identity.
    pub(super) fn of_whole(
        &self,
        leased: &Leased,
        path: usize,
        steps: impl Iterator<Item = u64>,
    ) -> Option<Name> {
        let (of, offset) = match (&leased.entry.fetched, leased.entry.origin.log) {
            (Some(fetched), _) => (fetched.run, fetched.number),
            (None, Some(log)) => (log, leased.offset),
            (None, None) => return None,
        };
        let source = self.source(of, path, steps);
        Some(Name { source, offset, first_item: 0, is_whole: true })
    }

    /// The name of what the delivery makes of a log or a run: of another path or steps, the items
    /// of a frame may be other ones.
    fn source(&self, of: u128, path: usize, steps: impl Iterator<Item = u64>) -> Source {
        let path = (path as u64).to_le_bytes().into_iter();
        let made = path.chain(steps.flat_map(u64::to_le_bytes)).fold(FNV_BASIS, fowler_noll_vo);
        let mut sources = self.sources.lock();
        if sources.len() >= SOURCES_KEPT {
            sources.clear();
        }
        *sources.entry((of, made)).or_insert_with(|| {
            let bytes = [&of.to_le_bytes()[..], &made.to_le_bytes(), self.delivery.as_bytes()];
            let digest: [u8; 32] = Sha256::digest(bytes.concat()).into();
            Source(u128::from_be_bytes(digest[..16].try_into().expect("16 of 32 bytes")))
        })
    }
}

const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a: the same in every release.
fn fowler_noll_vo(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
}

/// A single item cannot be cut. If it is said to be known in part, the two have other ideas of
/// where its frame ends: it is named more narrowly, at last not at all, and may be stored again.
pub(super) fn narrow(batch: &mut Batch<Lease>, outcome: Outcome) -> Outcome {
    match (outcome, batch.units.as_mut_slice()) {
        (Outcome::Overlaps { reason }, [unit]) if unit.items == 1 => {
            unit.lease.name = unit.lease.name.filter(|name| name.is_whole).map(|it| it.part(0));
            Outcome::RetryAfter { delay: None, reason }
        }
        (outcome, _) => outcome,
    }
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
        Some(name.range(unit.items))
    });
    Ranges::new(ranges).to_header().map(|text| Some(text.into()))
}

#[cfg(test)]
mod tests {
    use sluice_flow::hop::Fetched;
    use sluice_log::Offset;

    use super::*;
    use crate::delivery::tests::frame;
    use crate::entry::{Entry, Origin};
    use crate::shared_work::SharedWorkMemory;

    fn leased(offset: Offset, fetched: Option<Fetched>) -> Arc<Leased> {
        let origin = Origin { log: Some(1), ..Origin::default() };
        let memory = Arc::new(SharedWorkMemory::new(0, Arc::default()));
        let entry = Entry::new(frame(9, b"payload"), Arc::new(origin), None, memory);
        Leased::new(
            Arc::default(),
            offset,
            Arc::new(Entry { fetched: fetched.map(Box::new), ..entry }),
        )
    }

    fn whole(leased: &Leased) -> Name {
        let names = Names::of("a".to_owned());
        names.of_whole(leased, 0, [].into_iter()).expect("it has an identity")
    }

    #[test]
    fn parts_of_a_frame_lie_within_it_and_behind_each_other() {
        let whole = whole(&leased(7, None));
        let (first, second) = (whole.part(0), whole.part(3));
        let ranges = [first.range(3), second.range(2), second.part(2).range(1)];
        let of_parts = Ranges::new(ranges);
        let places = Place::new(7, 0)..Place::new(7, 6);
        assert_eq!(of_parts, Ranges::new([(whole.source, places)]));
        let with_parts = Ranges::new([whole.range(9), first.range(3), second.range(2)]);
        assert_eq!(with_parts, Ranges::new([whole.range(9)]));
        assert_eq!(whole.range(9).1, Place::new(7, 0)..Place::new(8, 0));
    }

    /// Guarantee: a frame that its source has read again is known, whatever offset it has in the
    /// log, and no other frame passes for it.
    #[test]
    fn a_frame_that_its_source_named_has_this_name_at_any_offset() {
        let read = |offset, run, number| leased(offset, Some(Fetched { run, number }));
        let name = whole(&read(9, 5, 3));
        assert_eq!(name.range(9).1, Place::new(3, 0)..Place::new(4, 0));
        assert_eq!(name.part(2).range(1).1, Place::new(3, 2)..Place::new(3, 3));
        assert_eq!(whole(&read(70, 5, 3)), name);
        for other in [read(9, 5, 9), read(9, 6, 3), leased(3, None)] {
            assert_ne!(whole(&other), name);
        }
    }

    #[test]
    fn a_source_differs_by_its_delivery_its_path_and_its_steps_and_stays_the_same() {
        let of = |log, delivery: &str, path, steps: &[u64]| {
            let names = Names::of(delivery.to_owned());
            let first = names.source(log, path, steps.iter().copied());
            assert_eq!(names.source(log, path, steps.iter().copied()), first);
            first
        };
        let a = of(1, "a", 0, &[]);
        let all =
            [a, of(2, "a", 0, &[]), of(1, "b", 0, &[]), of(1, "a", 1, &[]), of(1, "a", 0, &[1])];
        let distinct: std::collections::BTreeSet<_> = all.into_iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(
            a,
            Source(288_040_409_908_036_956_825_038_550_822_993_549_369),
            "a new release knows old ranges"
        );
    }
}
