//! How much of what it is sent a backend takes.

use std::sync::atomic::{AtomicU64, Ordering};

/// What of the requests that it was sent lately a backend has taken, 0 to 1: a moving average over
/// about as many of them as `over` says. Who sends the requests writes it; others may read.
#[derive(Debug)]
pub struct TakenShare {
    requests: f64,
    /// The bits of the share.
    share: AtomicU64,
}

impl TakenShare {
    /// Before anything was sent, a backend is thought to take everything.
    pub fn over(requests: u32) -> Self {
        TakenShare { requests: f64::from(requests), share: AtomicU64::new(1.0_f64.to_bits()) }
    }

    /// A request was answered. Only one task may write.
    pub fn note(&self, is_taken: bool) {
        let share = self.get() + (f64::from(is_taken) - self.get()) / self.requests;
        self.share.store(share.to_bits(), Ordering::Relaxed);
    }

    pub fn get(&self) -> f64 {
        f64::from_bits(self.share.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_the_window_the_steadier_the_share() {
        for (requests, scatter) in [(32, 0.25), (256, 0.05)] {
            let share = TakenShare::over(requests);
            assert_eq!(share.get(), 1.0);
            (0..4_000).for_each(|request| share.note(request % 10 < 3));
            assert!((share.get() - 0.3).abs() < scatter, "{}", share.get());
            (0..4_000).for_each(|_| share.note(false));
            assert!(share.get() < 1e-6);
        }
    }
}
