//! Which segment files there are, and who needs them.
//!
//! A reader pins a segment as long as it has an unresolved frame in it. Of segments that this
//! process wrote it is known how many such frames each reader has, so that a reader which is far
//! behind pins nothing that holds nothing for it. Of segments that were found at the start it is
//! not known until the reader has passed them: then what it has leased is all that is left.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use crate::types::{Charge, CursorId, Holding, Offset};

/// Whether the space of a segment is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Shed {
    #[default]
    No,
    /// The reader thread is to give it up, if it may go.
    Asked,
    /// It had to stay at that time.
    Refused(Instant),
}

/// What becomes of a frame for one reader.
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

/// What a reader needs of a segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pin {
    /// What it has not resolved or, if there may be more, what it has leased.
    pub(crate) held: Holding,
    /// It is not known whether something unread is for the reader.
    pub(crate) may_be_more: bool,
}

impl Pin {
    pub(crate) fn holds(&self) -> bool {
        self.may_be_more || self.held.frames > 0
    }
}

/// By default one that is not written and that no reader is known to need.
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
    /// Where reading ends: behind the last durable frame. None where the file itself says so.
    pub(crate) end: Option<u64>,
    /// The writer may still append to it.
    pub(crate) is_open: bool,
    /// From 1 on; another one when another file takes the place of this one.
    pub(crate) generation: u64,
    pub(crate) shed: Shed,
    pub(crate) pins: BTreeMap<CursorId, Pin>,
}

#[derive(Debug, Default)]
pub(crate) struct Segments {
    pub(crate) by_first: BTreeMap<Offset, Segment>,
    generations: u64,
}

impl Segment {
    /// True if something in here may be unread by or leased to the reader.
    pub(crate) fn is_pinned_by(&self, reader: CursorId) -> bool {
        self.pins.get(&reader).is_some_and(Pin::holds)
    }

    pub(crate) fn pinning(&self) -> impl Iterator<Item = CursorId> + '_ {
        self.pins.iter().filter(|(_, pin)| pin.holds()).map(|(reader, _)| *reader)
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pinning().next().is_some()
    }

    /// At most so many bytes of charge are unresolved, if that is known.
    pub(crate) fn pinned_bytes(&self) -> Option<u64> {
        let known = self.pins.values().map(|pin| (!pin.may_be_more).then_some(pin.held.bytes));
        known.sum()
    }
}

impl Segments {
    /// Gives it a generation of its own.
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

    /// The lowest offset that the two newest files can hold.
    pub(crate) fn first_of_newest(&self) -> Option<Offset> {
        self.by_first.keys().rev().nth(1).or_else(|| self.by_first.keys().next()).copied()
    }

    /// Takes note of what became of a durable frame for a reader.
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
