//! Which segment files there are, and which readers need them.
//!
//! A reader pins a segment as long as it has an unresolved frame in it. For segments that this
//! process wrote, the log counts these frames by reader: a reader that is far behind pins no
//! segment without frames for it. For segments found at the start the count is not known until the
//! reader has passed them: then only its leases are left.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::time::Instant;

use crate::record::Undecodable;
use crate::types::{Charge, CursorId, Holding, LogStats, Offset};

/// A file is padded if less than one byte in this many is charged.
const PADDED_PART: u64 = 4;

/// Whether a segment is to be given up for its space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Shed {
    #[default]
    No,
    /// The reader thread is to give it up, if all its readers may.
    Asked,
    /// The reader thread found at that time that it has to stay.
    Refused(Instant),
}

/// A change of one frame for one reader.
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

    /// The first segment that ends at or behind `offset`.
    pub(crate) fn at_or_after(&self, offset: Offset) -> Option<&Segment> {
        let (_, here) = self.by_first.range(..=offset).next_back().unzip();
        let behind = || self.by_first.range(offset + 1..).next().map(|(_, segment)| segment);
        here.filter(|segment| segment.last >= offset).or_else(behind)
    }

    /// Number of files and their length.
    pub(crate) fn size(&self) -> (u64, u64) {
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

    pub(crate) fn forget_reader(&mut self, reader: CursorId) {
        for segment in self.by_first.values_mut() {
            segment.pins.remove(&reader);
        }
    }
}
