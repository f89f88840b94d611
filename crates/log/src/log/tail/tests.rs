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
