//! Turns for work that takes long, or takes memory that is charged only when its size is known.

use std::sync::Arc;
use std::thread::available_parallelism;

use sluice_flow::source::is_large_work;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A place among the large requests that are worked on. It ends when this is dropped.
pub(crate) type Turn = OwnedSemaphorePermit;

/// As many at a time as there are threads. Clones share them.
#[derive(Clone)]
pub(crate) struct LargeWork(Arc<Semaphore>);

impl LargeWork {
    pub(crate) fn new() -> Self {
        LargeWork::of(available_parallelism().map_or(1, usize::from))
    }

    pub(crate) fn of(turns: usize) -> Self {
        LargeWork(Arc::new(Semaphore::new(turns)))
    }

    pub(crate) async fn turn(&self) -> Option<Turn> {
        // The semaphore is never closed.
        Arc::clone(&self.0).acquire_owned().await.ok()
    }

    /// A turn to submit a request, if processing it takes long.
    pub(crate) async fn to_submit(&self, bytes: usize, items: usize) -> Option<Turn> {
        if is_large_work(bytes, items) { self.turn().await } else { None }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// Guarantee: as many large requests are submitted at a time as there are threads; small ones
    /// do not wait.
    #[tokio::test]
    async fn large_requests_take_turns_to_be_submitted() {
        let work = LargeWork::of(2);
        let large = || work.to_submit(7, 1_000_000).now_or_never();
        let taken = [large().flatten(), large().flatten()];
        assert!(taken.iter().all(Option::is_some));
        assert!(large().is_none(), "it waits");
        assert!(matches!(work.to_submit(7, 1).now_or_never(), Some(None)), "it needs no turn");
        drop(taken);
        assert!(large().flatten().is_some());
    }
}
