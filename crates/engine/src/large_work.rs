//! Work on large requests, which takes milliseconds and memory: it must not hold up what else the
//! threads of the runtime serve, and waits its turn while there is no memory for it.

use std::future::poll_fn;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::{Condvar, Mutex};
use sluice_flow::source::is_large_work;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::block_in_place;

/// Returns the memory that work on large requests may take now, in bytes.
type Room = dyn Fn() -> u64 + Send + Sync;

/// While it waits, work looks at the room again after this time.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Takes turns, first come first served, among all work on large requests of the process. As much
/// as there is room for goes on at a time, one at least.
#[derive(Default)]
pub(crate) struct LargeWork {
    turns: Mutex<Queue>,
    ended: Condvar,
    /// None: there is room for all.
    room: OnceLock<Box<Room>>,
    copies: ArcSwapOption<CopyTurns>,
}

/// Memory for large copies of requests in flight. Those of backends that take requests have some
/// of their own: the other ones hold it until their timeouts.
struct CopyTurns {
    healthy: Arc<Semaphore>,
    sick: Arc<Semaphore>,
    /// Permits of each, for [`PERMIT_BYTES`].
    permits: u32,
}

const PERMIT_BYTES: u64 = 1 << 10;

#[derive(Default)]
struct Queue {
    used_bytes: u64,
    next_ticket: u64,
    /// The ticket whose turn is next.
    next_turn: u64,
}

/// Memory that work on a request takes beside it: it is inflated, and changed.
fn needed_bytes(len_bytes: usize) -> u64 {
    (len_bytes as u64).saturating_mul(3).saturating_add(1 << 20)
}

impl LargeWork {
    /// Bounds the memory of all work. Once, at the start.
    pub(crate) fn set_room(&self, room: impl Fn() -> u64 + Send + Sync + 'static) {
        let _ = self.room.set(Box::new(room));
    }

    /// Bounds the memory of large copies that are sent. Those that hold some keep it (reload).
    pub(crate) fn set_copies(&self, copies_bytes: u64) {
        let permits = u32::try_from(copies_bytes / PERMIT_BYTES).unwrap_or(u32::MAX).max(1);
        let permits = permits.min(Semaphore::MAX_PERMITS as u32);
        if self.copies.load().as_ref().is_some_and(|it| it.permits == permits) {
            return;
        }
        let [healthy, sick] = [(); 2].map(|()| Arc::new(Semaphore::new(permits as usize)));
        self.copies.store(Some(Arc::new(CopyTurns { healthy, sick, permits })));
    }

    /// Waits for memory for a large copy that is sent, until it is dropped. First come, first
    /// served; what is larger than all of it goes alone.
    pub(crate) async fn hold(&self, bytes: usize, is_healthy: bool) -> Option<CopyTurn> {
        let copies = self.copies.load_full()?;
        let turns = if is_healthy { &copies.healthy } else { &copies.sick };
        let permits = permits_of(bytes).min(copies.permits);
        // It is never closed.
        let permit = turns.clone().acquire_many_owned(permits).await.ok()?;
        Some(CopyTurn(permit))
    }

    /// Works on this much. If it is large, another thread runs the other tasks of this one
    /// meanwhile: handing them over takes some microseconds. Must not be called by `work`.
    pub(crate) fn on<R>(&self, bytes: usize, items: usize, work: impl FnOnce() -> R) -> R {
        // A runtime of one thread, as in most tests and on one core, has no other one.
        let has_threads = |it: Handle| it.runtime_flavor() == RuntimeFlavor::MultiThread;
        if !is_large_work(bytes, items) || !Handle::try_current().is_ok_and(has_threads) {
            return work();
        }
        block_in_place(|| {
            let _turn = self.wait(needed_bytes(bytes));
            work()
        })
    }

    fn wait(&self, bytes: u64) -> Turn<'_> {
        let mut turns = self.turns.lock();
        let ticket = turns.next_ticket;
        turns.next_ticket += 1;
        let room_bytes = || self.room.get().map_or(u64::MAX, |room| room());
        while turns.next_turn != ticket
            || turns.used_bytes > 0 && turns.used_bytes.saturating_add(bytes) > room_bytes()
        {
            // There may also be more room meanwhile.
            self.ended.wait_for(&mut turns, LOOK_AGAIN);
        }
        turns.next_turn += 1;
        turns.used_bytes = turns.used_bytes.saturating_add(bytes);
        drop(turns);
        self.ended.notify_all();
        Turn { work: self, bytes }
    }
}

fn permits_of(bytes: usize) -> u32 {
    u32::try_from(bytes as u64 / PERMIT_BYTES).unwrap_or(u32::MAX)
}

/// Memory for a copy, until this is dropped.
pub(crate) struct CopyTurn(OwnedSemaphorePermit);

impl CopyTurn {
    /// The backend does not answer: the copy moves to those of sick ones, if they leave it room.
    pub(crate) fn give_way(&mut self, work: &LargeWork) {
        let Some(copies) = work.copies.load_full() else { return };
        let permits = self.0.num_permits() as u32;
        if let Ok(permit) = copies.sick.clone().try_acquire_many_owned(permits) {
            self.0 = permit;
        }
    }

    /// Gives back all but these bytes.
    pub(crate) fn lower(&mut self, bytes: usize) {
        let more = self.0.num_permits().saturating_sub(permits_of(bytes) as usize);
        drop(self.0.split(more));
    }
}

/// Memory that is used until this is dropped.
struct Turn<'a> {
    work: &'a LargeWork,
    bytes: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.work.turns.lock().used_bytes -= self.bytes;
        self.work.ended.notify_all();
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
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;

    const LARGE_ITEMS: usize = 1_000_000;

    /// Scenario: one thread has two tasks, and the first waits for the second in large work.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn large_work_does_not_hold_up_other_tasks() {
        let (say, heard) = mpsc::channel();
        let wait = move || heard.recv_timeout(Duration::from_secs(60));
        let large = tokio::spawn(async move {
            tokio::spawn(async move { say.send(()) });
            LargeWork::default().on(0, LARGE_ITEMS, wait)
        });
        assert_eq!(large.await.expect("ends"), Ok(()));
    }

    /// Scenario: many large requests at once, and one that is larger than all room. Guarantee: all
    /// are worked on, none takes more than there is room for, unless it is alone.
    #[tokio::test(flavor = "multi_thread", worker_threads = 8)]
    async fn large_work_takes_turns_for_memory() {
        const LEN_BYTES: usize = 2 << 20;
        let needed_bytes = super::needed_bytes(LEN_BYTES);
        let large = Arc::<LargeWork>::default();
        large.set_room(move || 2 * needed_bytes);
        let (at_once, most) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let work = |len_bytes: usize| {
            let (large, at_once, most) = (large.clone(), at_once.clone(), most.clone());
            tokio::spawn(async move {
                large.on(len_bytes, 1, || {
                    let own = super::needed_bytes(len_bytes);
                    let used = at_once.fetch_add(own, Relaxed) + own;
                    most.fetch_max(used, Relaxed);
                    std::thread::sleep(Duration::from_millis(2));
                    at_once.fetch_sub(own, Relaxed);
                });
            })
        };
        for _ in 0..20 {
            let all = [LEN_BYTES; 12].map(work);
            for one in all {
                one.await.expect("ends");
            }
        }
        assert_eq!(most.swap(0, Relaxed), 2 * needed_bytes);
        let all = [LEN_BYTES, 9 * LEN_BYTES, LEN_BYTES, 9 * LEN_BYTES].map(work);
        for one in all {
            one.await.expect("ends");
        }
        assert_eq!(most.load(Relaxed), super::needed_bytes(9 * LEN_BYTES), "it was alone");
    }

    /// Scenario: a task that requeues itself has neighbours that are always ready. Guarantee: it
    /// gets as many turns as each of them.
    #[tokio::test]
    async fn a_task_that_requeues_gets_its_turns_beside_busy_neighbours() {
        const TURNS: u64 = 1000;
        let turns = Arc::<AtomicU64>::default();
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
    async fn large_copies_take_turns_for_memory() {
        let large = LargeWork::default();
        assert!(large.hold(1 << 40, true).await.is_none(), "there is no bound");
        large.set_copies(10 << 10);
        let mut first = large.hold(6 << 10, true).await.expect("there is room");
        let beyond = large.hold(1 << 40, true);
        tokio::pin!(beyond);
        assert!(beyond.as_mut().now_or_never().is_none());
        assert!(large.hold(2 << 10, true).now_or_never().is_none(), "it comes after that");
        assert!(large.hold(10 << 10, false).now_or_never().is_some(), "that of sick ones");
        first.lower(1 << 10);
        assert!(beyond.as_mut().now_or_never().is_none());
        first.lower(0);
        let beyond = beyond.await.expect("there is room");
        assert!(large.hold(1 << 10, true).now_or_never().is_none());
        large.set_copies(20 << 10);
        let after_reload = large.hold(20 << 10, true).now_or_never().flatten();
        assert!(after_reload.as_ref().is_some_and(|it| it.0.num_permits() == 20));
        drop((beyond, after_reload));
        let mut hangs = large.hold(20 << 10, true).await.expect("there is room");
        assert!(large.hold(1 << 10, true).now_or_never().is_none());
        hangs.give_way(&large);
        assert!(large.hold(20 << 10, true).now_or_never().is_some());
        assert!(large.hold(1 << 10, false).now_or_never().is_none(), "it counts as a sick one");
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_does_large_work_itself() {
        assert_eq!(LargeWork::default().on(0, LARGE_ITEMS, || 7), 7);
    }
}
