//! Which segment files there are, which readers need them, and giving them up for their space.
//!
//! A reader pins a segment as long as it has an unresolved frame in it. For segments that this
//! process wrote, the log counts these frames by reader: a reader that is far behind pins no
//! segment without frames for it. For segments found at the start the count is not known until the
//! reader has passed them: then only its leases are left.
//!
//! Space is free only when a file is removed, so that frames on disk are given up whole segments at
//! a time. A segment goes if every reader that has not resolved one of its frames may give that
//! frame up and has not leased it. Otherwise all of it stays. The caller looks at frames in memory;
//! only the read-ahead thread looks at those on disk: it reads their headers.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::shed::{GivenUp, LOOKED_AT_ONCE};
use super::{Inner, Log, Shared};
use crate::cursors::Cursor;
use crate::format::FrameHeader;
use crate::segment::{Located, SegmentScan};
use crate::types::{Charge, CursorId, Holding, LogStats, Offset, Sheds, Undecodable, Wake};

/// A file is padded if less than one byte in this many is charged.
const PADDED_PART: u64 = 4;

/// A segment that had to stay is looked at again after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Whether a segment is to be given up for its space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Shed {
    #[default]
    No,
    /// The read-ahead thread is to give it up, if all its readers may.
    Asked,
    /// The read-ahead thread found at that time that it has to stay.
    Refused(Instant),
}

/// A change of one frame for one reader.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    /// It became durable.
    Written,
    /// It was read back and given to the reader.
    Leased,
    /// Its lease was given back unresolved.
    GivenBack,
    /// It was resolved, and the reader had leased it.
    Resolved,
    /// It was resolved, and the reader had not leased it.
    Dropped,
}

/// The frames of a segment that a reader needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pin {
    /// Its unresolved frames; if `may_be_more`, its leased frames only.
    pub(crate) held: Holding,
    /// Unread frames in the segment may be for the reader: they are not counted.
    pub(crate) may_be_more: bool,
}

impl Pin {
    pub(crate) fn holds(&self) -> bool {
        self.may_be_more || self.held.frames > 0
    }
}

/// The default is a segment that is not open and that no reader is known to need.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    /// No frame in it has a lower offset.
    pub(crate) first: Offset,
    /// No frame in it that counts has a higher offset.
    pub(crate) last: Offset,
    /// Whether its name is right is not known yet.
    pub(crate) has_unproven_name: bool,
    /// The file's epoch, if it is known.
    pub(crate) epoch: Option<u64>,
    /// Length of the file, reserved space included.
    pub(crate) len_bytes: u64,
    /// Charge of the frames that commits of this process wrote to it. 0 for a rewritten file.
    pub(crate) committed_bytes: u64,
    /// Position behind the last durable frame, where reading ends. None: its footer or length says.
    pub(crate) end: Option<u64>,
    /// The writer may still append to it.
    pub(crate) is_open: bool,
    /// From 1 on. A file that replaces this one gets another generation.
    pub(crate) generation: u64,
    pub(crate) shed: Shed,
    pub(crate) pins: BTreeMap<CursorId, Pin>,
    /// Places that readers passed because nothing could be made of them, by position in the file.
    pub(crate) passed: BTreeMap<u64, Passed>,
}

/// Why nothing could be made of a place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    Undecodable(Undecodable),
    /// A crash left it of a write, behind all that was known to be durable.
    LeftByCrash,
}

impl Passed {
    pub(crate) const DAMAGED: Passed = Passed::Undecodable(Undecodable::Damaged);
}

#[derive(Debug, Default)]
pub(crate) struct Segments {
    pub(crate) by_first: BTreeMap<Offset, Segment>,
    generations: u64,
}

impl Segment {
    /// True if the segment may have frames that the reader has not read, or has leased.
    pub(crate) fn is_pinned_by(&self, reader: CursorId) -> bool {
        self.pins.get(&reader).is_some_and(Pin::holds)
    }

    pub(crate) fn pinning(&self) -> impl Iterator<Item = CursorId> + '_ {
        self.pins.iter().filter(|(_, pin)| pin.holds()).map(|(reader, _)| *reader)
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pinning().next().is_some()
    }

    /// Records places that were passed. Counts those that no reader has passed before.
    pub(crate) fn note_passed(&mut self, places: &[(u64, Passed)], stats: &mut LogStats) {
        for &(position, why) in places {
            let Entry::Vacant(place) = self.passed.entry(position) else { continue };
            place.insert(why);
            match why {
                Passed::Undecodable(Undecodable::OfNewerRelease) => {
                    stats.frames_of_newer_release += 1;
                }
                Passed::DAMAGED | Passed::LeftByCrash => {
                    stats.frames_damaged += 1;
                }
            }
        }
    }

    /// Whether frames may be in the file that its readers have not got: it is not removed.
    pub(crate) fn may_have_more(&self) -> bool {
        self.passed.values().any(|why| *why != Passed::LeftByCrash)
    }

    /// Whether most of the file is padding: each commit fills its last block, however few bytes
    /// it has. Only known of files that this process wrote.
    pub(crate) fn is_padded(&self) -> bool {
        (1..self.len_bytes / PADDED_PART).contains(&self.committed_bytes)
    }

    /// Bytes of charge that are unresolved, at most; None if some reader's count is not known.
    pub(crate) fn pinned_bytes(&self) -> Option<u64> {
        let known = self.pins.values().map(|pin| (!pin.may_be_more).then_some(pin.held.bytes));
        known.sum()
    }
}

impl Segments {
    /// Adds a segment with a new generation.
    pub(crate) fn insert(&mut self, segment: Segment) {
        self.generations += 1;
        let generation = self.generations;
        self.by_first.insert(segment.first, Segment { generation, ..segment });
    }

    /// Whether a segment was neither removed nor replaced.
    pub(crate) fn is_there(&self, first: Offset, generation: u64) -> bool {
        self.by_first.get(&first).is_some_and(|segment| segment.generation == generation)
    }

    /// Whether a file is one of them.
    pub(crate) fn has_file(&self, path: &Path) -> bool {
        self.by_first.values().any(|segment| segment.path == path)
    }

    /// The segment behind one, if it is not known yet whether its name is right.
    pub(crate) fn next_unproven(&self, first: Offset) -> Option<&Segment> {
        let (_, next) = self.by_first.range(first + 1..).next()?;
        next.has_unproven_name.then_some(next)
    }

    /// The first segment that ends at or behind `offset`.
    pub(crate) fn at_or_after(&self, offset: Offset) -> Option<&Segment> {
        let (_, here) = self.by_first.range(..=offset).next_back().unzip();
        let behind = || self.by_first.range(offset + 1..).next().map(|(_, segment)| segment);
        here.filter(|segment| segment.last >= offset).or_else(behind)
    }

    /// Number of files and their length.
    pub(super) fn size(&self) -> (u64, u64) {
        (self.by_first.len() as u64, self.by_first.values().map(|segment| segment.len_bytes).sum())
    }

    /// The lowest offset that can be in the two newest files.
    pub(crate) fn first_of_newest(&self) -> Option<Offset> {
        self.by_first.keys().rev().nth(1).or_else(|| self.by_first.keys().next()).copied()
    }

    /// Counts a change of a durable frame for a reader.
    pub(crate) fn note(&mut self, change: Change, id: CursorId, offset: Offset, charge: Charge) {
        let here = self.by_first.range_mut(..=offset).next_back().map(|(_, segment)| segment);
        let Some(segment) = here.filter(|segment| segment.last >= offset) else { return };
        let Pin { held, may_be_more } = segment.pins.entry(id).or_default();
        match change {
            Change::Written => held.add(charge),
            Change::Leased if *may_be_more => held.add(charge),
            Change::GivenBack if *may_be_more => held.remove(charge),
            Change::Dropped if !*may_be_more => held.remove(charge),
            Change::Resolved => held.remove(charge),
            Change::Leased | Change::GivenBack | Change::Dropped => {}
        }
    }

    pub(super) fn forget_reader(&mut self, reader: CursorId) {
        for segment in self.by_first.values_mut() {
            segment.pins.remove(&reader);
        }
    }
}

/// The readers of a log by their persistent ids.
pub(crate) type Ids = HashMap<u32, CursorId>;

/// A frame on disk, without its body.
pub(crate) struct DiskFrame {
    pub(crate) header: FrameHeader,
    /// Persistent ids.
    pub(crate) readers: Vec<u32>,
}

impl DiskFrame {
    /// The frame that a scan has just come to.
    pub(crate) fn of(scan: &SegmentScan, located: Located) -> Self {
        DiskFrame { header: located.header, readers: scan.readers().to_vec() }
    }
}

impl<T> Log<T> {
    /// Length of the segments that are needed, open or set aside, or cannot be removed, reserved
    /// space included.
    pub fn needed_disk_bytes(&self) -> u64 {
        let mut inner = self.shared.inner.lock();
        inner.update_pins();
        let Some(store) = &inner.store else { return 0 };
        let is_needed = |segment: &&Segment| segment.is_open || segment.is_pinned();
        let needed = store.segments.by_first.values().filter(is_needed);
        let set_aside = store.set_aside.iter().map(|file| file.len_bytes);
        let unremoved = store.unremoved.iter().map(|file| file.len_bytes);
        needed.map(|segment| segment.len_bytes).chain(set_aside).chain(unremoved).sum()
    }

    /// Gives up the oldest segments that may go, until about `bytes` of disk are free. Returns the
    /// length of these segments, and the entries that were in memory. Segments on disk only are
    /// left to the read-ahead thread, which may find that they stay ([`Log::take_dropped`]).
    pub fn shed_segments(&self, bytes: u64) -> (u64, Vec<GivenUp<T>>) {
        let (mut freed_bytes, mut given_up) = (0, Vec::new());
        let mut inner = self.shared.inner.lock();
        inner.update_pins();
        let (candidates, evicted_below) = (inner.sheddable_segments(), inner.evicted_below());
        drop(inner);
        for (first, last, len_bytes) in candidates {
            if freed_bytes >= bytes {
                break;
            }
            // A segment that is partly in memory has its turn when it is on disk only.
            let goes = if last < evicted_below {
                self.ask_for_segment(first)
            } else {
                first >= evicted_below && self.shed_slots(first, last, &mut given_up)
            };
            freed_bytes += if goes { len_bytes } else { 0 };
        }
        if !given_up.is_empty() {
            self.shared.note_shed();
        }
        (freed_bytes, given_up)
    }

    fn ask_for_segment(&self, first: Offset) -> bool {
        let mut inner = self.shared.inner.lock();
        let Some(segment) = inner.on_disk().segments.by_first.get_mut(&first) else { return false };
        segment.shed = Shed::Asked;
        self.shared.read_ahead_wake.notify_one();
        true
    }

    /// Gives up a segment whose frames are all in memory. False if it has to stay.
    fn shed_slots(&self, first: Offset, last: Offset, given_up: &mut Vec<GivenUp<T>>) -> bool {
        let may_go = |inner: &Inner<T>, offset| {
            inner.slots.get(offset).is_none_or(|slot| inner.all_may_give_up(slot, offset))
        };
        self.all_slots(first, last, |inner, offset| may_go(inner, offset))
            && self.all_slots(first, last, |inner, offset| {
                if may_go(inner, offset)
                    && let Some(readers) = inner.slots.get(offset).map(|slot| slot.readers.clone())
                {
                    given_up.extend(readers.iter().filter_map(|&id| inner.give_up_of(id, offset)));
                }
                true
            })
    }

    /// Visits slots until `visit` returns false, releasing the lock now and then. Also false if
    /// slots were evicted meanwhile: the read-ahead thread decides about frames on disk.
    fn all_slots(
        &self,
        first: Offset,
        last: Offset,
        mut visit: impl FnMut(&mut Inner<T>, Offset) -> bool,
    ) -> bool {
        let mut offset = first;
        while offset <= last {
            let mut inner = self.shared.inner.lock();
            if first < inner.evicted_below() {
                return false;
            }
            for _ in 0..LOOKED_AT_ONCE {
                offset = inner.slots.next_live(offset);
                if offset > last || offset >= inner.slots.head() {
                    return true;
                }
                if !visit(&mut inner, offset) {
                    return false;
                }
                offset += 1;
            }
        }
        true
    }
}

impl<T> Shared<T> {
    /// Makes maintenance remove the segments that were given up.
    pub(crate) fn note_shed(&self) {
        self.with_store(|store| store.has_shed = true);
        self.maintenance_wake.notify_all();
    }
}

impl<T> Inner<T> {
    /// Counts a change of a durable frame for a reader.
    pub(super) fn note_on_disk(&mut self, it: Change, id: CursorId, at: Offset, charge: Charge) {
        self.store.iter_mut().for_each(|store| store.segments.note(it, id, at, charge));
    }

    /// Updates which readers pin which segment. A reader that has passed one pins its leases there.
    pub(crate) fn update_pins(&mut self) {
        let Some(store) = &mut self.store else { return };
        let evicted_below = store.evicted_below;
        for segment in store.segments.by_first.values_mut().filter(|segment| !segment.is_open) {
            let (first, last) = (segment.first, segment.last);
            // The counts for segments that are still in memory are exact.
            if last >= evicted_below {
                continue;
            }
            segment.pins.retain(|&reader, pin| {
                let cursor = self.cursors[reader.0].as_ref();
                if cursor.is_none_or(|cursor| cursor.next > last) {
                    let held = cursor.map(|cursor| cursor.leased_on_disk(first..=last));
                    *pin = Pin { held: held.unwrap_or_default(), may_be_more: false };
                }
                pin.holds()
            });
        }
    }

    pub(crate) fn ids_by_persistent_id(&self) -> Ids {
        let cursors = self.cursors.iter().enumerate();
        cursors
            .filter_map(|(index, cursor)| Some((cursor.as_ref()?.persistent_id, CursorId(index))))
            .collect()
    }

    /// First offset, last offset and length of the segments that all their readers may shed.
    fn sheddable_segments(&self) -> Vec<(Offset, Offset, u64)> {
        let Some(store) = &self.store else { return Vec::new() };
        let may_give_up = |segment: &Segment, id: CursorId| {
            self.cursors[id.0].as_ref().is_none_or(|cursor| {
                let mut leased = cursor.disk_leases.range(segment.first..=segment.last);
                cursor.gauges.may_shed() != Sheds::Nothing && leased.next().is_none()
            })
        };
        let had_to_stay = |shed| matches!(shed, Shed::Refused(at) if at.elapsed() < LOOK_AGAIN);
        let segments = store.segments.by_first.values().filter(|segment| {
            !segment.is_open
                && !segment.may_have_more()
                && segment.is_pinned()
                && !had_to_stay(segment.shed)
                && segment.pinning().all(|id| may_give_up(segment, id))
        });
        segments.map(|segment| (segment.first, segment.last, segment.len_bytes)).collect()
    }

    /// Whether some reader is known to have taken a frame on disk.
    pub(crate) fn is_taken(&self, frame: &DiskFrame, ids: &Ids) -> bool {
        let has_taken = |id: &u32| {
            let cursor = ids.get(id).and_then(|id| self.cursors[id.0].as_ref());
            cursor.is_some_and(|cursor| cursor.has_taken(frame.header.offset))
        };
        frame.header.is_taken || frame.readers.iter().any(has_taken)
    }

    /// Whether a reader that has not resolved a frame on disk may give it up.
    pub(crate) fn may_drop(&self, cursor: &Cursor<T>, frame: &DiskFrame, ids: &Ids) -> bool {
        let is_taken = || self.is_taken(frame, ids);
        frame.header.offset >= cursor.next && cursor.gauges.may_shed().allows(is_taken)
    }

    /// Whether every reader that waits for a frame on disk may give it up.
    pub(crate) fn all_may_drop(&self, frame: &DiskFrame, ids: &Ids) -> bool {
        self.waiting_for(frame, ids).iter().all(|id| self.may_drop(self.cursor(*id), frame, ids))
    }

    /// The readers that have not resolved a frame on disk.
    pub(crate) fn waiting_for(&self, frame: &DiskFrame, ids: &Ids) -> Vec<CursorId> {
        let known = frame.readers.iter().filter_map(|id| ids.get(id).copied());
        let waits = |cursor: &Cursor<T>| !cursor.is_resolved(frame.header.offset);
        known.filter(|id| self.cursors[id.0].as_ref().is_some_and(waits)).collect()
    }

    /// Gives a frame up for every reader that waits for it. False if one of them keeps it.
    pub(crate) fn drop_for_all(
        &mut self,
        frame: &DiskFrame,
        ids: &Ids,
        dropped: &mut HashMap<CursorId, Holding>,
    ) -> bool {
        if !self.all_may_drop(frame, ids) {
            return false;
        }
        for id in self.waiting_for(frame, ids) {
            self.drop_on_disk(id, frame.header.offset, frame.header.charge);
            dropped.entry(id).or_default().add(frame.header.charge);
        }
        true
    }

    /// Records what the read-ahead thread gave up in a segment. If another file has taken its place
    /// meanwhile, not every frame of that file was looked at. Returns the wakes of the readers.
    pub(crate) fn end_shed(
        &mut self,
        asked: &Segment,
        is_free: bool,
        dropped: HashMap<CursorId, Holding>,
    ) -> Vec<Wake> {
        let (first, last) = (asked.first, asked.last);
        let segment = self.store.as_mut().and_then(|store| store.segments.by_first.get_mut(&first));
        if let Some(segment) = segment.filter(|it| it.generation == asked.generation) {
            segment.shed = if is_free { Shed::No } else { Shed::Refused(Instant::now()) };
            if is_free {
                // Each frame was looked at: none is left for any reader.
                let readers: Vec<CursorId> = segment.pinning().collect();
                segment.pins.clear();
                for id in readers {
                    if let Some(cursor) = &mut self.cursors[id.0] {
                        cursor.resolve_run(first, last + 1);
                    }
                }
            }
        }
        let mut wakes = Vec::new();
        for (id, dropped) in dropped {
            let Some(cursor) = &mut self.cursors[id.0] else { continue };
            cursor.dropped_unseen.add(dropped);
            cursor.note_dropped_range(first, last + 1, dropped);
            cursor.publish();
            wakes.push(cursor.wake.clone());
        }
        wakes
    }
}
