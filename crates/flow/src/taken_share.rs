//! The share of its requests that a backend takes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Share of the latest requests that a backend has taken, 0 to 1, as bits: a moving average over
/// about `REQUESTS` of them. The task that sends the requests writes it; other tasks read it.
#[derive(Debug)]
pub(crate) struct TakenShare<const REQUESTS: u32>(AtomicU64);

impl<const REQUESTS: u32> Default for TakenShare<REQUESTS> {
    /// A backend is assumed to take everything before the first request.
    fn default() -> Self {
        TakenShare(AtomicU64::new(1.0_f64.to_bits()))
    }
}

impl<const REQUESTS: u32> TakenShare<REQUESTS> {
    /// Counts the answer to a request. Only one task may call it.
    pub(crate) fn note(&self, is_taken: bool) {
        let share = self.get() + (f64::from(is_taken) - self.get()) / f64::from(REQUESTS);
        self.0.store(share.to_bits(), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_the_window_the_steadier_the_share() {
        fn check<const REQUESTS: u32>(scatter: f64) {
            let share = TakenShare::<REQUESTS>::default();
            assert_eq!(share.get(), 1.0);
            (0..4_000).for_each(|request| share.note(request % 10 < 3));
            assert!((share.get() - 0.3).abs() < scatter, "{}", share.get());
            (0..4_000).for_each(|_| share.note(false));
            assert!(share.get() < 1e-6);
        }
        check::<32>(0.25);
        check::<256>(0.05);
    }
}
