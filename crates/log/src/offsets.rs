//! Two collections by offset: a set of ranges, and the slots of the memory tail in chunks.

use std::collections::{BTreeMap, VecDeque};

/// A set of offsets, kept as ranges: the offsets above a cursor's floor that are resolved already.
/// Disjoint, non-adjacent half-open ranges `start..end`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    end_by_start: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Adds one offset. Returns false if it was in the set already.
    pub fn insert(&mut self, offset: u64) -> bool {
        let is_new = !self.contains(offset);
        if is_new {
            self.insert_run(offset, offset + 1);
        }
        is_new
    }

    /// Adds every offset of `start..end`.
    pub fn insert_run(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        // Backwards: ranges that touch the run become part of it.
        while let Some((first, last)) = self.starting_by(end).filter(|&(_, last)| last >= start) {
            self.end_by_start.remove(&first);
            start = start.min(first);
            end = end.max(last);
        }
        self.end_by_start.insert(start, end);
    }

    /// Removes every offset of `start..end`.
    pub fn remove_run(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        while let Some((first, last)) = self.starting_by(end - 1).filter(|&(_, last)| last > start)
        {
            self.end_by_start.remove(&first);
            if last > end {
                self.end_by_start.insert(end, last);
            }
            if first < start {
                self.end_by_start.insert(first, start);
            }
        }
    }

    /// The last range that starts at or before an offset.
    fn starting_by(&self, offset: u64) -> Option<(u64, u64)> {
        self.end_by_start.range(..=offset).next_back().map(|(&start, &end)| (start, end))
    }

    pub fn contains(&self, offset: u64) -> bool {
        self.end_of_run_at(offset).is_some()
    }

    /// The end of the range that `offset` lies in.
    pub fn end_of_run_at(&self, offset: u64) -> Option<u64> {
        self.starting_by(offset).map(|(_, end)| end).filter(|&end| offset < end)
    }

    /// Forgets every offset below `floor`; returns the first one from `floor` on that is not in it.
    pub fn forget_below(&mut self, floor: u64) -> u64 {
        let mut lifted = floor;
        while let Some(lowest) = self.end_by_start.first_entry()
            && *lowest.key() <= lifted
        {
            lifted = lifted.max(lowest.remove());
        }
        lifted
    }

    /// Forgets the ranges that end at or below an offset.
    pub fn forget_ended(&mut self, below: u64) {
        while let Some(lowest) = self.end_by_start.first_entry()
            && *lowest.get() <= below
        {
            lowest.remove();
        }
    }

    /// Joins the two lowest ranges into one, which includes all offsets between them.
    pub fn join_lowest(&mut self) {
        let (lowest, next) = (self.end_by_start.pop_first(), self.end_by_start.pop_first());
        if let Some((start, end)) = lowest {
            self.end_by_start.insert(start, next.map_or(end, |(_, end)| end));
        }
    }

    /// Number of separate ranges. The set takes memory in proportion to it.
    pub fn len(&self) -> usize {
        self.end_by_start.len()
    }

    pub fn is_empty(&self) -> bool {
        self.end_by_start.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.end_by_start.iter().map(|(&start, &end)| (start, end))
    }
}

const CHUNK: u64 = 128;

/// Slots of neighbouring offsets.
struct Chunk<S> {
    slots: Vec<Option<S>>,
    live: usize,
}

/// Slots from the oldest live one to the head. A chunk is freed when everything in it is resolved,
/// wherever it lies, and costs a pointer then: one frame that waits for minutes pins its chunk and
/// not all later ones.
pub(crate) struct Slots<S> {
    /// Offset of the first slot of the first chunk; a multiple of `CHUNK`.
    base: u64,
    head: u64,
    chunks: VecDeque<Option<Box<Chunk<S>>>>,
}

impl<S> Slots<S> {
    /// Without any slot. The first one gets the offset `head`.
    pub(crate) fn starting_at(head: u64) -> Self {
        let base = head / CHUNK * CHUNK;
        let mut slots = Slots { base, head: base, chunks: VecDeque::new() };
        while slots.head < head {
            slots.push(None);
        }
        slots
    }

    /// The offset that the next slot gets.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// Adds a slot at the head; None for a frame that is resolved from the start.
    pub(crate) fn push(&mut self, slot: Option<S>) -> u64 {
        if self.head.is_multiple_of(CHUNK) {
            self.chunks.push_back(Some(Box::new(Chunk {
                slots: Vec::with_capacity(CHUNK as usize),
                live: 0,
            })));
        }
        let offset = self.head;
        self.head += 1;
        if let Some(Some(chunk)) = self.chunks.back_mut() {
            chunk.live += usize::from(slot.is_some());
            chunk.slots.push(slot);
        }
        self.let_go(offset);
        offset
    }

    pub(crate) fn get(&self, offset: u64) -> Option<&S> {
        let chunk = self.chunks.get(self.index(offset)?)?.as_ref()?;
        chunk.slots.get((offset % CHUNK) as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, offset: u64) -> Option<&mut S> {
        let index = self.index(offset)?;
        let chunk = self.chunks.get_mut(index)?.as_mut()?;
        chunk.slots.get_mut((offset % CHUNK) as usize)?.as_mut()
    }

    pub(crate) fn remove(&mut self, offset: u64) -> Option<S> {
        let index = self.index(offset)?;
        let chunk = self.chunks.get_mut(index)?.as_mut()?;
        let slot = chunk.slots.get_mut((offset % CHUNK) as usize)?.take()?;
        chunk.live -= 1;
        self.let_go(offset);
        Some(slot)
    }

    /// The first offset from `offset` on that may have a slot: skips freed chunks.
    pub(crate) fn next_live(&self, offset: u64) -> u64 {
        let mut offset = offset.max(self.base);
        let is_gone = |offset| self.index(offset).is_some_and(|index| self.chunks[index].is_none());
        while offset < self.head && is_gone(offset) {
            offset = (offset / CHUNK + 1) * CHUNK;
        }
        offset.min(self.head)
    }

    /// The slots from an offset on, each with its offset.
    pub(crate) fn live_from(&self, offset: u64) -> impl Iterator<Item = (u64, &S)> {
        let mut next = offset;
        std::iter::from_fn(move || {
            loop {
                let offset = self.next_live(next);
                if offset >= self.head {
                    return None;
                }
                next = offset + 1;
                if let Some(slot) = self.get(offset) {
                    return Some((offset, slot));
                }
            }
        })
    }

    fn index(&self, offset: u64) -> Option<usize> {
        let distance = offset.checked_sub(self.base)?;
        usize::try_from(distance / CHUNK).ok()
    }

    /// Frees the chunk of an offset if nothing in it is left, and freed chunks at the tail.
    fn let_go(&mut self, offset: u64) {
        let Some(index) = self.index(offset) else { return };
        let is_done = |chunk: &Option<Box<Chunk<S>>>| {
            chunk.as_ref().is_none_or(|chunk| chunk.live == 0 && chunk.slots.len() as u64 == CHUNK)
        };
        if self.chunks.get(index).is_some_and(is_done) {
            self.chunks[index] = None;
        }
        while self.chunks.front().is_some_and(Option::is_none) {
            self.chunks.pop_front();
            self.base += CHUNK;
        }
    }
}

#[cfg(test)]
mod tests;
