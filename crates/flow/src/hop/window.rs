//! The ranges that a log has had, in a bounded window.
//!
//! A range arrives, and is known from the time on at which its sender may be answered OK. It is
//! kept across a crash once a crash cannot lose it: it is on disk, or resolved. A copy of the
//! window on disk has what is kept, and says from which offset on frames on disk have more.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::range_map::{Cover, RangeMap};
use super::{Place, Ranges, Source};

/// Beyond one of these, what was heard of longest ago is forgotten: it would be stored again.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub sources: usize,
    /// Of all sources together.
    pub ranges: usize,
    /// Of one source. The lowest are forgotten.
    pub ranges_of_source: usize,
}

/// A source, with its places in the maps and room for its first ranges.
const SOURCE_BYTES: u64 = 400;
/// A range, with the room that its list may have beside it.
const RANGE_BYTES: u64 = 2 * size_of::<Range<Place>>() as u64;

impl Limits {
    /// Of a window that takes this memory, half of it for many sources and half for many ranges.
    pub fn within(bytes: u64) -> Limits {
        let ranges = (bytes / 2 / RANGE_BYTES) as usize;
        Limits {
            sources: (bytes / 2 / SOURCE_BYTES) as usize,
            ranges,
            ranges_of_source: ranges / 4,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits::within(4 << 20)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is in the window from now on, until [`Window::keep`] or [`Window::forget`].
    New(Floor),
    /// All of it is known.
    Known,
    /// Some of it is arriving in another request, whose end is not known.
    Arriving,
    /// Some of it is known, and some is new.
    Overlaps,
}

/// A lower bound of the offset that a request's frame gets, if its frame keeps the ranges on disk.
pub type Floor = Option<u64>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests that were known.
    pub repeated_requests: u64,
    /// Ranges that were forgotten.
    pub evicted_ranges: u64,
    pub sources: u64,
    pub ranges: u64,
}

#[derive(Default)]
struct Heard {
    /// Answered OK, or to be answered so.
    known: RangeMap,
    /// Not answered.
    arriving: RangeMap,
    /// The part of `known` that a crash would lose.
    unsafe_ranges: RangeMap,
    used: u64,
}

#[derive(Default)]
pub struct Window {
    limits: Limits,
    sources: HashMap<Source, Heard>,
    /// Sources by the time of their last use, in uses.
    by_use: BTreeMap<u64, Source>,
    uses: u64,
    /// Of `known` in all sources.
    ranges: usize,
    /// Above all offsets that are known to be given.
    next_offset: u64,
    /// The number of requests by their floors, of those whose frames may be on disk and are not
    /// kept yet.
    floors: BTreeMap<u64, usize>,
    /// Changes with what is kept.
    version: u64,
    repeated_requests: u64,
    evicted_ranges: u64,
}

impl Window {
    /// For a log whose next offset is at least this.
    pub fn new(limits: Limits, next_offset: u64) -> Self {
        Window { limits, next_offset, ..Window::default() }
    }

    /// Looks for the ranges of a request. `is_stored`: its frame has the ranges on disk.
    pub fn arrive(&mut self, ranges: &Ranges, is_stored: bool) -> Found {
        let (mut covers, mut is_arriving) = ([false; 2], false);
        for (source, range) in ranges.iter() {
            let heard = self.sources.get(&source);
            is_arriving |= heard.is_some_and(|it| it.arriving.cover(range) != Cover::Nothing);
            match heard.map_or(Cover::Nothing, |it| it.known.cover(range)) {
                Cover::Nothing => covers[0] = true,
                Cover::All => covers[1] = true,
                Cover::Some => covers = [true, true],
            }
        }
        for source in ranges.0.keys() {
            // A source that is not known may be made up.
            if self.sources.contains_key(source) {
                self.note_use(*source);
            }
        }
        match covers {
            _ if is_arriving => Found::Arriving,
            [false, true] => {
                self.repeated_requests += 1;
                Found::Known
            }
            [true, true] => Found::Overlaps,
            [_, false] => {
                self.add(ranges);
                let floor = is_stored.then_some(self.next_offset);
                floor.into_iter().for_each(|floor| *self.floors.entry(floor).or_default() += 1);
                Found::New(floor)
            }
        }
    }

    fn add(&mut self, ranges: &Ranges) {
        for (source, range) in ranges.iter() {
            self.sources.entry(source).or_default().arriving.insert(range.clone());
        }
        ranges.0.keys().for_each(|source| self.note_use(*source));
        self.evict_sources();
    }

    /// A request that was new is answered OK, before its frame is safe.
    pub fn answer(&mut self, ranges: &Ranges) {
        for (source, range) in ranges.iter() {
            let heard = self.sources.entry(source).or_default();
            heard.arriving.remove(range);
            heard.unsafe_ranges.insert(range.clone());
            self.insert_known(source, range);
        }
        self.evict_sources();
    }

    /// A frame got this offset.
    pub fn note_appended(&mut self, offset: u64) {
        self.next_offset = self.next_offset.max(offset.saturating_add(1));
    }

    /// The ranges of a request that was new stay known, also after a crash: its frame is on disk,
    /// or resolved.
    pub fn keep(&mut self, ranges: &Ranges, floor: Floor) {
        self.settle(ranges, floor);
        ranges.iter().for_each(|(source, range)| self.insert_known(source, range));
        self.version += 1;
        self.evict_sources();
    }

    /// The frame of a request that was new is gone, or its sender got a refusal.
    pub fn forget(&mut self, ranges: &Ranges, floor: Floor) {
        for (source, range) in ranges.iter() {
            let Some(heard) = self.sources.get_mut(&source) else { continue };
            let before = heard.known.len();
            heard.known.remove(range);
            self.ranges = self.ranges + heard.known.len() - before;
        }
        self.settle(ranges, floor);
        self.evict_sources();
    }

    fn settle(&mut self, ranges: &Ranges, floor: Floor) {
        for (source, range) in ranges.iter() {
            if let Some(heard) = self.sources.get_mut(&source) {
                heard.arriving.remove(range);
                heard.unsafe_ranges.remove(range);
            }
        }
        let Some(floor) = floor else { return };
        if let Some(count) = self.floors.get_mut(&floor) {
            *count -= 1;
            if *count == 0 {
                self.floors.remove(&floor);
            }
        }
    }

    fn insert_known(&mut self, source: Source, range: &Range<Place>) {
        let heard = self.sources.entry(source).or_default();
        let before = heard.known.len();
        heard.known.insert(range.clone());
        while heard.known.len() > self.limits.ranges_of_source {
            heard.known.remove_lowest();
            self.evicted_ranges += 1;
        }
        self.ranges = self.ranges + heard.known.len() - before;
    }

    fn note_use(&mut self, source: Source) {
        self.uses += 1;
        let heard = self.sources.entry(source).or_default();
        self.by_use.remove(&heard.used);
        heard.used = self.uses;
        self.by_use.insert(self.uses, source);
    }

    /// Forgets the sources of longest ago. Those with a request under way stay.
    fn evict_sources(&mut self) {
        while self.sources.len() > self.limits.sources || self.ranges > self.limits.ranges {
            let is_settled = |source: &Source| {
                let heard = self.sources.get(source);
                heard.is_none_or(|it| it.arriving.is_empty() && it.unsafe_ranges.is_empty())
            };
            let oldest = self.by_use.iter().find(|(_, source)| is_settled(source));
            let Some((&used, &source)) = oldest else { return };
            self.by_use.remove(&used);
            let ranges = self.sources.remove(&source).map_or(0, |heard| heard.known.len());
            self.ranges -= ranges;
            self.evicted_ranges += ranges as u64;
            self.version += 1;
        }
    }

    /// Takes ranges that a start found on disk, or in a copy of the window.
    pub fn recover(&mut self, ranges: &Ranges) {
        ranges.0.keys().for_each(|source| self.note_use(*source));
        self.keep(ranges, None);
    }

    /// A copy for the disk: the ranges that are kept, and the offset below which no frame on disk
    /// has others.
    pub fn copy(&self) -> (Ranges, u64) {
        let kept = self.sources.iter().filter_map(|(source, heard)| {
            let mut kept = heard.known.clone();
            heard.unsafe_ranges.iter().for_each(|range| kept.remove(&range));
            (!kept.is_empty()).then(|| (*source, kept.iter().collect()))
        });
        let from = self.floors.keys().next().copied().unwrap_or(self.next_offset);
        (Ranges(kept.collect()), from)
    }

    /// Changes whenever a copy would differ.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn totals(&self) -> Totals {
        Totals {
            repeated_requests: self.repeated_requests,
            evicted_ranges: self.evicted_ranges,
            sources: self.sources.len() as u64,
            ranges: self.ranges as u64,
        }
    }
}
