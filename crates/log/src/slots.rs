//! The slots of a log by offset, in chunks. A chunk is freed when everything in it is resolved,
//! wherever it lies: one frame that waits for minutes pins its chunk and not all later ones.

use std::collections::VecDeque;

const CHUNK: u64 = 128;

struct Chunk<S> {
    slots: Vec<Option<S>>,
    live: usize,
}

/// Slots from the oldest live one to the head. A freed chunk costs a pointer.
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
mod tests {
    use super::*;

    impl<S> Slots<S> {
        /// Slots in memory, resolved ones in live chunks included.
        pub(crate) fn kept(&self) -> usize {
            self.chunks.iter().flatten().map(|chunk| chunk.slots.len()).sum()
        }
    }

    #[test]
    fn a_slot_that_lives_long_pins_its_chunk_and_nothing_after_it() {
        let mut slots = Slots::starting_at(0);
        slots.push(Some("waits"));
        for _ in 0..100_000 {
            let offset = slots.push(Some("passes"));
            assert_eq!(slots.remove(offset), Some("passes"));
        }
        assert!(slots.kept() <= 2 * CHUNK as usize, "{} slots kept", slots.kept());
        assert_eq!((slots.get(0), slots.base), (Some(&"waits"), 0));
        assert_eq!(
            slots.next_live(CHUNK + 1),
            slots.head() / CHUNK * CHUNK,
            "what was let go is skipped"
        );
        assert_eq!(slots.remove(0), Some("waits"));
        assert!(slots.kept() <= CHUNK as usize);
        assert_eq!(slots.base, slots.head() / CHUNK * CHUNK);
    }
}
