//! Work on large requests, which takes milliseconds: it must not hold up what else the threads of
//! the runtime serve.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// A request of more bytes or items is large. Processing, cutting or packing it takes some
/// milliseconds or more, and handing the other tasks over some microseconds.
const LARGE_BYTES: usize = 1 << 20;
const LARGE_ITEMS: usize = 10_000;

/// Works on this much. If it is large, another thread runs the other tasks of this one meanwhile.
pub(crate) fn work_on<R>(bytes: usize, items: usize, work: impl FnOnce() -> R) -> R {
    let is_large = bytes > LARGE_BYTES || items > LARGE_ITEMS;
    // A runtime of one thread, as most tests have, has no other one.
    let has_threads = |it: Handle| it.runtime_flavor() == RuntimeFlavor::MultiThread;
    match is_large && Handle::try_current().is_ok_and(has_threads) {
        true => block_in_place(work),
        false => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Scenario: one thread has two tasks, and the first waits for the second in large work.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn large_work_does_not_hold_up_other_tasks() {
        let (say, heard) = mpsc::channel();
        let wait = move || heard.recv_timeout(Duration::from_secs(60));
        let large = tokio::spawn(async move {
            tokio::spawn(async move { say.send(()) });
            work_on(0, LARGE_ITEMS + 1, wait)
        });
        assert_eq!(large.await.expect("ends"), Ok(()));
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_does_large_work_itself() {
        assert_eq!(work_on(LARGE_BYTES + 1, 1, || 7), 7);
    }
}
