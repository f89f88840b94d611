//! Names of units, by which another Sluice knows what it has had. A unit has the same name after a
//! restart, in whatever batch it is sent and however its frame is cut.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use sluice_flow::dispatch::Batch;
use sluice_flow::hop::{Fetched, Place, Ranges, RangesTooLong, Source};
use sluice_flow::{Exporter, Outcome};

use super::leased::Leased;
use super::prepare::Lease;
use crate::entry::Entry;

/// Where a unit stands among the items that a delivery makes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    source: Source,
    first_item: u32,
    /// It is all that is made of the frame.
    is_whole: bool,
    /// Parts have names, too.
    names_parts: bool,
}

impl Name {
    /// The name of the part of the unit that begins behind this many of its items.
    pub(super) fn part(self, behind_items: u32) -> Option<Name> {
        let first_item = self.first_item.saturating_add(behind_items);
        self.names_parts.then_some(Name { first_item, is_whole: false, ..self })
    }

    fn range(self, leased: &Leased, items: u32) -> (Source, Range<Place>) {
        let behind = self.first_item.saturating_add(items);
        let places = match leased.entry.fetched.as_deref() {
            Some(Fetched { range, .. }) if self.is_whole => {
                Place::new(range.start, 0)..Place::new(range.end, 0)
            }
            Some(it) => it.place(self.first_item as usize)..it.place(behind as usize),
            None if self.is_whole => Place::new(leased.offset, 0)..Place::behind(leased.offset),
            None => Place::new(leased.offset, self.first_item)..Place::new(leased.offset, behind),
        };
        (self.source, places)
    }
}

/// The names that a delivery gives.
pub(crate) struct Names {
    /// The delivery's name.
    delivery: String,
    /// By the log or stream, and a hash of the path and its steps.
    sources: Mutex<HashMap<(u128, u64), Source>>,
}

/// More than there are paths and earlier starts of which a log has frames, but for odd cases.
const SOURCES_KEPT: usize = 256;

impl Names {
    pub(crate) fn of(delivery: String) -> Names {
        Names { delivery, sources: Mutex::default() }
    }

    /// The name of `items` that a path makes of a frame. None if the frame has no identity.
    pub(super) fn of_whole(
        &self,
        leased: &Leased,
        path: usize,
        steps: impl Iterator<Item = u64>,
        items: u32,
    ) -> Option<Name> {
        let Entry { frame, fetched, origin, .. } = &*leased.entry;
        let stream = fetched.as_ref().map(|it| it.stream).or(origin.log)?;
        // Behind steps that leave items out, their numbers are not those of the stream's items.
        let are_all_there =
            |fetched: &Fetched| items == frame.items && fetched.items.len() == frame.items as usize;
        let names_parts = fetched.as_deref().is_none_or(are_all_there);
        let source = self.source(stream, path, steps);
        Some(Name { source, first_item: 0, is_whole: true, names_parts })
    }

    /// The name of what the delivery makes of a log or a stream: of another path or steps, the
    /// items of a frame may be other ones.
    fn source(&self, stream: u128, path: usize, steps: impl Iterator<Item = u64>) -> Source {
        let path = (path as u64).to_le_bytes().into_iter();
        let made = path.chain(steps.flat_map(u64::to_le_bytes)).fold(FNV_BASIS, fowler_noll_vo);
        let mut sources = self.sources.lock();
        if sources.len() >= SOURCES_KEPT {
            sources.clear();
        }
        *sources.entry((stream, made)).or_insert_with(|| {
            let bytes = [&stream.to_le_bytes()[..], &made.to_le_bytes(), self.delivery.as_bytes()];
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
            unit.lease.name = unit.lease.name.filter(|it| it.is_whole).and_then(|it| it.part(0));
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
        Some(name.range(&unit.lease.leased, unit.items))
    });
    Ranges::new(ranges).to_header().map(|text| Some(text.into()))
}

#[cfg(test)]
mod tests {
    use sluice_log::Offset;

    use super::*;
    use crate::delivery::tests::frame;
    use crate::entry::Origin;
    use crate::shared_work::SharedWorkMemory;

    fn leased(offset: Offset, items: u32, fetched: Option<Fetched>) -> Arc<Leased> {
        let origin = Origin { log: Some(1), ..Origin::default() };
        let memory = Arc::new(SharedWorkMemory::new(0, Arc::default()));
        let entry = Entry::new(frame(items, b"payload"), Arc::new(origin), None, memory);
        Leased::new(offset, Arc::new(Entry { fetched: fetched.map(Box::new), ..entry }))
    }

    fn whole(leased: &Leased, items: u32) -> Name {
        let names = Names::of("a".to_owned());
        names.of_whole(leased, 0, [].into_iter(), items).expect("it has an identity")
    }

    #[test]
    fn parts_of_a_frame_lie_within_it_and_behind_each_other() {
        let leased = leased(7, 9, None);
        let whole = whole(&leased, 9);
        let part = |name: Name, behind| name.part(behind).expect("parts have names");
        let (first, second) = (part(whole, 0), part(whole, 3));
        let range = |name: Name, items| name.range(&leased, items);
        let of_parts = Ranges::new([range(first, 3), range(second, 2), range(part(second, 2), 1)]);
        let places = Place::new(7, 0)..Place::new(7, 6);
        assert_eq!(of_parts, Ranges::new([(whole.source, places)]));
        let with_parts = Ranges::new([range(whole, 9), range(first, 3), range(second, 2)]);
        assert_eq!(with_parts, Ranges::new([range(whole, 9)]));
        assert_eq!(range(whole, 9).1, Place::new(7, 0)..Place::new(8, 0));
    }

    /// Guarantee: an item of a file has the same places in whatever frame it is read.
    #[test]
    fn items_that_were_read_from_a_file_have_their_places_in_it() {
        let read = |range: Range<u64>, items: &[u32]| {
            leased(9, items.len() as u32, Some(Fetched { stream: 5, range, items: items.into() }))
        };
        // The line at 130 gives two items. One that ends at 100 was filtered out.
        let (one, other) = (read(90..150, &[10, 40, 40, 50]), read(130..200, &[0, 0, 10, 40]));
        let of = |leased: &Leased, first: u32, items| {
            let part = whole(leased, 4).part(first).expect("parts have names");
            part.range(leased, items)
        };
        assert_eq!(whole(&one, 4).range(&one, 4).1, Place::new(90, 0)..Place::new(150, 0));
        assert_eq!(of(&one, 0, 1).1, Place::new(100, 0)..Place::new(130, 0));
        assert_eq!(of(&one, 1, 1).1, Place::new(130, 0)..Place::new(130, 1));
        assert_eq!(of(&one, 3, 1).1, Place::new(140, 0)..Place::new(150, 0));
        assert_eq!(of(&one, 1, 2), of(&other, 0, 2));
        assert_eq!(whole(&one, 3).part(0), None, "steps have left an item out");
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
