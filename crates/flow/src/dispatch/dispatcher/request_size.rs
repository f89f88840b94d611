//! The size of the requests that a backend takes, in bytes or in items: a half of what was too much
//! for it, and more again after a time, because a proxy on the way or another setting may have been
//! the reason.

/// Requests of nearly the present size that are taken before a larger one is tried, and the most
/// after larger ones were too large again and again.
pub(super) const TAKEN_BEFORE_LARGER: (u32, u32) = (32, 4096);

pub(super) struct RequestSize {
    /// The smallest and the largest size.
    least: usize,
    configured: usize,
    present: usize,
    /// Requests of nearly the present size that were taken.
    taken: u32,
    taken_before_larger: u32,
    /// The first value of that, and the largest one.
    before_larger: (u32, u32),
    /// The present size is larger than one that was taken.
    is_tried: bool,
}

impl RequestSize {
    pub(super) fn new(least: usize, configured: usize, before_larger: (u32, u32)) -> RequestSize {
        RequestSize {
            least: least.min(configured),
            configured,
            present: configured,
            taken: 0,
            taken_before_larger: before_larger.0,
            before_larger,
            is_tried: false,
        }
    }

    /// The size that requests may have.
    pub(super) fn present(&self) -> usize {
        self.present
    }

    /// Whether it is the one that is configured.
    pub(super) fn is_full(&self) -> bool {
        self.present >= self.configured
    }

    /// A request of this size is too large.
    pub(super) fn note_too_large(&mut self, size: usize) {
        if std::mem::take(&mut self.is_tried) {
            let (_, most) = self.before_larger;
            self.taken_before_larger = (self.taken_before_larger * 2).min(most);
        }
        self.taken = 0;
        self.present = self.present.min(size / 2).max(self.least);
    }

    /// A request of this size was taken. True if later ones may be larger now.
    pub(super) fn note_taken(&mut self, size: usize) -> bool {
        let is_full = self.is_full();
        if is_full && !self.is_tried || size.saturating_mul(2) < self.present {
            return false;
        }
        self.taken += 1;
        if self.taken < self.taken_before_larger {
            return false;
        }
        self.taken = 0;
        self.is_tried = !is_full;
        if is_full {
            (self.taken_before_larger, _) = self.before_larger;
        }
        self.present = self.present.saturating_mul(2).min(self.configured);
        !is_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether the last of them made later ones larger.
    fn take(size: &mut RequestSize, requests: u32) -> bool {
        (0..requests).fold(false, |_, _| size.note_taken(size.present()))
    }

    #[test]
    fn a_size_is_halved_and_doubled_between_its_bounds() {
        let mut size = RequestSize::new(100, 1_000, TAKEN_BEFORE_LARGER);
        assert!(size.is_full());
        for expected in [400, 200, 100, 100] {
            size.note_too_large(size.present().min(800));
            assert_eq!(size.present(), expected);
        }
        for (expected, is_larger) in
            [(200, true), (400, true), (800, true), (1_000, true), (1_000, false)]
        {
            assert!(!take(&mut size, 31));
            assert!(size.present() < expected || size.is_full());
            assert_eq!((take(&mut size, 1), size.present()), (is_larger, expected));
        }
        assert_eq!(RequestSize::new(100, 7, TAKEN_BEFORE_LARGER).present(), 7);
    }

    /// Guarantee: small requests say nothing of larger ones, and a size that is too large each time
    /// that it is tried is tried ever more rarely.
    #[test]
    fn a_larger_size_is_tried_the_more_rarely_the_more_often_it_was_too_large() {
        let mut size = RequestSize::new(1, 1_000, TAKEN_BEFORE_LARGER);
        size.note_too_large(1_000);
        assert!(!(0..10_000).any(|_| size.note_taken(249)));
        assert_eq!(size.present(), 500);
        let mut waits = Vec::new();
        for _ in 0..9 {
            let wait = (1..).find(|_| take(&mut size, 1));
            waits.extend(wait);
            size.note_too_large(1_000);
        }
        assert_eq!(waits, [32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 4_096]);
    }
}
