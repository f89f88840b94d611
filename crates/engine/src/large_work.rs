//! Work on large requests, which takes milliseconds: it must not hold up what else the threads of
//! the runtime serve.

use std::future::poll_fn;
use std::task::Poll;

use sluice_flow::source::is_large_work;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// Works on this much. If it is large, another thread runs the other tasks of this one meanwhile:
/// handing them over takes some microseconds.
pub(crate) fn work_on<R>(bytes: usize, items: usize, work: impl FnOnce() -> R) -> R {
    // A runtime of one thread, as most tests have, has no other one.
    let has_threads = |it: Handle| it.runtime_flavor() == RuntimeFlavor::MultiThread;
    match is_large_work(bytes, items) && Handle::try_current().is_ok_and(has_threads) {
        true => block_in_place(work),
        false => work(),
    }
}

/// Lets the tasks run that are ready. `yield_now` would wait until hardly any is: a task that it
/// defers gets its turn when its thread has nothing else to do.
pub(crate) async fn requeue() {
    let mut is_queued = false;
    poll_fn(|context| {
        if is_queued {
            return Poll::Ready(());
        }
        is_queued = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    const LARGE_ITEMS: usize = 1_000_000;

    /// Scenario: one thread has two tasks, and the first waits for the second in large work.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn large_work_does_not_hold_up_other_tasks() {
        let (say, heard) = mpsc::channel();
        let wait = move || heard.recv_timeout(Duration::from_secs(60));
        let large = tokio::spawn(async move {
            tokio::spawn(async move { say.send(()) });
            work_on(0, LARGE_ITEMS, wait)
        });
        assert_eq!(large.await.expect("ends"), Ok(()));
    }

    /// Scenario: a task that requeues itself has neighbours that are always ready. Guarantee: it
    /// gets as many turns as each of them.
    #[tokio::test]
    async fn a_task_that_requeues_gets_its_turns_beside_busy_neighbours() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
        const TURNS: usize = 1000;
        let turns = Arc::<AtomicUsize>::default();
        let counted = turns.clone();
        let requeued = tokio::spawn(async move {
            loop {
                requeue().await;
                counted.fetch_add(1, Relaxed);
            }
        });
        let busy = || async {
            for _ in 0..TURNS {
                requeue().await;
            }
        };
        for neighbour in [tokio::spawn(busy()), tokio::spawn(busy())] {
            neighbour.await.expect("ends");
        }
        requeued.abort();
        assert!(turns.load(Relaxed) >= TURNS - 10, "{turns:?}");
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_does_large_work_itself() {
        assert_eq!(work_on(0, LARGE_ITEMS, || 7), 7);
    }
}
