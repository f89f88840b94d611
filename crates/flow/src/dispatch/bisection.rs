//! The search for the items at fault in a batch that a backend refused for good.
//!
//! The batch is halved, and the halves go out ahead of everything else, the first half first, down
//! to single items; the batch that was refused first is searched first. An item that is refused
//! alone is at fault if the backend takes anything else. If it takes nothing else, all data is at
//! fault (a schema, a quota), and none of it may be given up for that. So a refused item is kept
//! until the backend takes something, or no data is left to send, or the refused items leave no
//! room to read more of it. A run of refused items without anything taken is a fault of all data:
//! see [`FAULT_ITEMS`].
//!
//! One sender may send many items in a row that are all at fault. So during a run, parts go out in
//! turn with single units from elsewhere: the newest that was read, and units from places that are
//! spread over all that waits. If one of a part is taken, the rest of that part goes next: the
//! neighbours of a good one mostly are good. With each refused item twice as much is read ahead for
//! that, so that a long run is left behind after a few requests. Before the run counts as a fault
//! of all data, every batch in flight is answered, and the first and the last unit of each that was
//! refused is tried: good data ends, or begins, in one of them.
//!
//! `docs/decisions/003-rejected-batches-are-searched-depth-first.md` has the measured effect.

use std::collections::VecDeque;

use super::batcher::Batcher;
use super::retry::run_beyond_chance;
use super::{Batch, Cause, Unit};
use crate::taken_share::TakenShare;

/// A run of refused items from the first length on is a fault of all data. If the backend takes so
/// little that such a run comes by chance, the run must be longer, up to the second length.
const FAULT_ITEMS: (u32, u32) = (64, 1024);
/// The share that a backend takes is averaged over this many answers: batches that were taken and
/// single items that were refused. A few that were taken in a row must not make a run look long.
const SHARE_ANSWERS: u32 = 128;
/// At most this many units and parts wait in a delivery to be looked at.
const AHEAD_MAX: usize = 32 << 10;

/// The places of a batch's parts: it can be halved 64 times until two share one.
const BATCH_WIDTH: u128 = 1 << 64;

/// Where a part belongs among all that is searched, in the order in which batches were refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    start: u128,
    width: u128,
}

impl Place {
    /// A unit that is sent to look elsewhere. Its parts precede all other ones.
    pub(super) const LOOK: Place = Place { start: 0, width: BATCH_WIDTH };

    /// Number of the search that the part belongs to, from 1 on; 0: of a look.
    fn search(self) -> u128 {
        self.start / BATCH_WIDTH
    }
}

/// The first or the last unit of what is left of a refused batch.
#[derive(Clone, Copy, Debug)]
struct Edge {
    /// Number of the batch's search.
    search: u128,
    is_last: bool,
}

/// Multiples of its fraction are spread evenly over 0 to 1, however many there are.
const GOLDEN_RATIO: f64 = 1.618_033_988_749_895;

/// An item that was refused alone.
#[derive(Debug)]
pub struct Refused<L> {
    pub units: Vec<Unit<L>>,
    pub cause: Cause,
    pub reason: String,
}

pub(super) struct Bisection<L> {
    /// Parts of refused batches by their places, the first one last: it goes next.
    suspects: VecDeque<Batch<L>>,
    /// Refused items of the present run.
    refused: Vec<Refused<L>>,
    /// Refused items that are known to be at fault.
    at_fault: Vec<Refused<L>>,
    items_in_a_row: u32,
    taken_share: TakenShare<SHARE_ANSWERS>,
    /// Share that the backend took before the present run, 0 to 1.
    share_before: f64,
    /// Number of units from elsewhere to be sent before the next part.
    looks_elsewhere: u32,
    /// Number of places so far at which units were looked at.
    places: u32,
    /// The last look was at the newest unit.
    was_newest: bool,
    has_just_looked: bool,
    /// The start of the part of which a unit was taken by the backend.
    good_part: Option<u128>,
    /// Edges of batches that were not tried since an answer about a part of the batch.
    edges: VecDeque<Edge>,
    /// A unit that was sent to look elsewhere was refused and is searched for a single item.
    searches_look: bool,
    /// Number of searches so far.
    searches: u128,
}

impl<L> Default for Bisection<L> {
    fn default() -> Self {
        Bisection {
            suspects: VecDeque::new(),
            refused: Vec::new(),
            at_fault: Vec::new(),
            items_in_a_row: 0,
            taken_share: TakenShare::default(),
            share_before: 1.0,
            looks_elsewhere: 0,
            places: 0,
            was_newest: false,
            has_just_looked: false,
            good_part: None,
            edges: VecDeque::new(),
            searches_look: false,
            searches: 0,
        }
    }
}

impl<L> Bisection<L> {
    pub(super) fn len(&self) -> usize {
        self.suspects.len()
    }

    /// No part waits to be sent, and every refused item was handed out.
    pub(super) fn is_over(&self) -> bool {
        self.suspects.is_empty() && self.refused.is_empty() && self.at_fault.is_empty()
    }

    pub(super) fn units_mut(&mut self) -> impl Iterator<Item = &mut Unit<L>> {
        let parts = self.suspects.iter_mut().flat_map(|part| &mut part.units);
        let refused = self.refused.iter_mut().chain(&mut self.at_fault);
        parts.chain(refused.flat_map(|it| &mut it.units))
    }

    /// The next part to send.
    pub(super) fn pop(&mut self) -> Option<Batch<L>> {
        self.has_just_looked = false;
        if let Some(start) = self.good_part.take() {
            let is_it = |part: &Batch<L>| part.place.is_some_and(|it| it.start == start);
            let index = self.suspects.iter().position(is_it);
            if let Some(part) = index.and_then(|index| self.suspects.remove(index)) {
                return Some(part);
            }
        }
        self.suspects.pop_back()
    }

    /// The unit of the parts that has so many before it, counted from the part to be sent last.
    fn pop_unit(&mut self, mut before: usize) -> Option<Batch<L>> {
        let has_it = |part: &Batch<L>| {
            let is_here = before < part.units.len();
            before -= if is_here { 0 } else { part.units.len() };
            is_here
        };
        let index = self.suspects.iter().position(has_it)?;
        self.pop_unit_of(index, before)
    }

    /// This unit of a part, or its last one.
    fn pop_unit_of(&mut self, index: usize, unit: usize) -> Option<Batch<L>> {
        let part = self.suspects.get_mut(index)?;
        let looked_at = part.place.map(|it| it.start);
        let taken = part.take_unit(unit.min(part.units.len().saturating_sub(1)))?;
        if part.units.is_empty() {
            self.suspects.remove(index);
        }
        Some(Batch { looked_at, ..taken })
    }

    /// A unit at the edge of a batch that was refused, if one was not tried yet.
    pub(super) fn pop_edge(&mut self) -> Option<Batch<L>> {
        while let Some(Edge { search, is_last }) = self.edges.pop_front() {
            let is_it = |part: &Batch<L>| part.place.is_some_and(|it| it.search() == search);
            // Later parts come first.
            let (index, unit) = match is_last {
                true => (self.suspects.iter().position(is_it), usize::MAX),
                false => (self.suspects.iter().rposition(is_it), 0),
            };
            if let Some(index) = index {
                self.has_just_looked = true;
                return self.pop_unit_of(index, unit);
            }
        }
        None
    }

    /// A part of this search was refused or taken. Parts that are in flight are not known here.
    fn add_edges(&mut self, search: u128) {
        // The earliest search comes last, and is over before a later one mostly.
        let mut searches = self.suspects.iter().rev().filter_map(|it| Some(it.place?.search()));
        let earliest = searches.find(|&it| it > 0).unwrap_or(search);
        self.edges.retain(|edge| edge.search >= earliest && edge.search != search);
        if search > 0 {
            self.edges.extend([false, true].map(|is_last| Edge { search, is_last }));
        }
    }

    /// An edge of a refused batch was not tried yet.
    pub(super) fn has_edges(&self) -> bool {
        !self.edges.is_empty()
    }

    /// One unit from elsewhere, unsent or part of what is searched, if there is any.
    /// `newest`: not one from another place.
    pub(super) fn pop_elsewhere(
        &mut self,
        unsent: &mut Batcher<L>,
        newest: bool,
    ) -> Option<Batch<L>> {
        self.looks_elsewhere = self.looks_elsewhere.saturating_sub(1);
        self.has_just_looked = true;
        unsent.close_all();
        self.was_newest = newest || !self.was_newest;
        if self.was_newest {
            let newest = |part: &Batch<L>| part.units.len().saturating_sub(1);
            return unsent.pop_unit(1.0).or_else(|| {
                let newest = self.suspects.front().map(newest)?;
                self.pop_unit(newest)
            });
        }
        // Of any number of such places, the largest gap is about twice the mean one.
        self.places = self.places.wrapping_add(1);
        let place = (f64::from(self.places) * GOLDEN_RATIO).fract();
        let searched: usize = self.suspects.iter().map(|part| part.units.len()).sum();
        let before = (place * (searched + unsent.units_len()) as f64) as usize;
        match before.checked_sub(searched) {
            None => self.pop_unit(before),
            Some(before) => unsent.pop_unit(before as f64 / unsent.units_len().max(1) as f64),
        }
    }

    /// Adds the parts of a batch that was at this place, in order; none for a whole batch.
    pub(super) fn push(&mut self, parts: Vec<Batch<L>>, of: Option<Place>) {
        self.searches += u128::from(of.is_none());
        let of = of.unwrap_or(Place { start: self.searches * BATCH_WIDTH, width: BATCH_WIDTH });
        self.searches_look |= of.start < BATCH_WIDTH;
        let width = of.width / parts.len().max(1) as u128;
        for (part, number) in parts.into_iter().zip(0..) {
            let start = of.start + number * width;
            let is_later = |it: &Batch<L>| it.place.is_some_and(|it| it.start > start);
            let at = self.suspects.partition_point(is_later);
            self.suspects.insert(at, Batch { place: Some(Place { start, width }), ..part });
        }
        self.add_edges(of.search());
    }

    /// A look has found its single item: what is left of it is searched after all other parts.
    fn end_look(&mut self) {
        self.searches_look = false;
        self.searches += 1;
        let first = self.searches * BATCH_WIDTH;
        let is_of_look = |it: &Batch<L>| it.place.is_some_and(|it| it.start < BATCH_WIDTH);
        while self.suspects.back().is_some_and(is_of_look)
            && let Some(part) = self.suspects.pop_back()
        {
            let place = part.place.map(|it| Place { start: first + it.start, ..it });
            self.suspects.push_front(Batch { place, ..part });
        }
    }

    /// Whether a unit from elsewhere should be sent now: while the delivery is open, in turn with
    /// parts.
    pub(super) fn looks_now(&self, is_held: bool) -> bool {
        let is_turn = is_held || !self.has_just_looked || self.suspects.is_empty();
        self.looks_elsewhere() && is_turn && !self.searches_look
    }

    /// Whether a unit from elsewhere should go out before the next part.
    pub(super) fn looks_elsewhere(&self) -> bool {
        self.looks_elsewhere > 0
    }

    /// Whether more units should be read for that, if this many wait. `is_held`: all that there
    /// is room for, as requests are few then.
    pub(super) fn wants_ahead(&self, unsent: usize, waiting: usize, is_held: bool) -> bool {
        let doubled = 1_usize << self.items_in_a_row.min(AHEAD_MAX.ilog2());
        let wanted = if is_held { AHEAD_MAX } else { doubled };
        self.looks_elsewhere()
            && unsent < wanted
            && unsent + waiting + self.suspects.len() < AHEAD_MAX
    }

    /// The backend took a request: the items that it refused are at fault. `looked_at`: the start
    /// of the part that it was taken from, to look elsewhere.
    pub(super) fn note_taken(&mut self, looked_at: Option<u128>, place: Option<Place>) {
        self.good_part = looked_at.or(self.good_part);
        if let Some(start) = looked_at.or(place.map(|it| it.start)) {
            self.add_edges(start / BATCH_WIDTH);
        }
        self.taken_share.note(true);
        self.items_in_a_row = 0;
        self.looks_elsewhere = 0;
        self.end_look();
        self.at_fault.append(&mut self.refused);
    }

    /// A single item was refused.
    pub(super) fn note_refused(&mut self) {
        if self.items_in_a_row == 0 {
            self.share_before = self.taken_share.get();
        }
        self.end_look();
        self.taken_share.note(false);
        self.items_in_a_row = self.items_in_a_row.saturating_add(1);
        self.looks_elsewhere = self.looks_elsewhere.saturating_add(1);
    }

    /// A run of refused items that does not come by chance: all data is at fault, it seems.
    pub(super) fn is_long_run(&self) -> bool {
        self.items_in_a_row >= run_beyond_chance(self.share_before, FAULT_ITEMS)
    }

    /// Number of single items that were refused since the backend last took anything.
    pub(super) fn items_in_a_row(&self) -> u32 {
        self.items_in_a_row
    }

    /// Keeps a refused item until it is known whether it is at fault.
    pub(super) fn keep(&mut self, refused: Refused<L>) {
        self.refused.push(refused);
    }

    /// The items of the run, to be sent again because all data is at fault.
    pub(super) fn take_back(&mut self) -> impl Iterator<Item = Batch<L>> + use<L> {
        let back = |it: Refused<L>| Batch { refused: Some(it.cause), ..Batch::new(it.units) };
        std::mem::take(&mut self.refused).into_iter().map(back)
    }

    /// Items that are at fault. `is_last`: no answer is pending and no other data can be sent.
    pub(super) fn take_at_fault(&mut self, is_last: bool) -> Vec<Refused<L>> {
        if is_last && self.suspects.is_empty() {
            self.at_fault.append(&mut self.refused);
        }
        std::mem::take(&mut self.at_fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_the_longer_the_less_a_backend_takes() {
        assert_eq!(
            [1.0, 0.5, 0.1, 0.001].map(|share| run_beyond_chance(share, FAULT_ITEMS)),
            [64, 64, 197, 1024],
            "at a share of a tenth, 197 in a row come by chance once in 10^9"
        );
    }
}
