//! Whether the CPU is the bottleneck: the threads of this process run, or wait to run, nearly all
//! the time. Time spent waiting shows a CPU quota, which no measure of CPU time alone would.

use std::fs;
use std::num::NonZero;
use std::time::{Duration, Instant};

/// The load is measured over windows of at least this length.
const WINDOW: Duration = Duration::from_millis(25);
/// From this share of the time on the CPU is the bottleneck.
const BOUND_SHARE: f64 = 0.9;
/// It no longer is after this many windows below that share. Under a quota single windows have time
/// to spare, and every queued connection would be read from in one of them.
const UNBOUND_WINDOWS: u32 = 8;
/// Below this share one window is enough: requests wait for a disk or a backend.
const IDLE_SHARE: f64 = 0.5;

/// The load in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CpuLoad {
    /// The CPU is the bottleneck.
    Full,
    /// It was the bottleneck lately.
    High,
    Low,
    /// Most of its time is to spare.
    Idle,
}

#[derive(Debug)]
pub(super) struct CpuShare {
    since: Instant,
    busy: Option<Duration>,
    threads: f64,
    /// Windows since it was the bottleneck.
    windows_since_bound: u32,
}

impl CpuShare {
    pub(super) fn start() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get) as f64;
        CpuShare {
            since: Instant::now(),
            busy: busy(),
            threads,
            windows_since_bound: UNBOUND_WINDOWS,
        }
    }

    /// The load since the last window. `None`: the window has not ended, or the kernel does not
    /// tell.
    pub(super) fn measure(&mut self) -> Option<CpuLoad> {
        let elapsed = self.since.elapsed();
        if elapsed < WINDOW {
            return None;
        }
        let now = busy();
        let (before, now) = (std::mem::replace(&mut self.busy, now)?, now?);
        self.since += elapsed;
        let share = now.saturating_sub(before).as_secs_f64() / elapsed.as_secs_f64() / self.threads;
        Some(self.note(share))
    }

    fn note(&mut self, share: f64) -> CpuLoad {
        self.windows_since_bound = match share {
            BOUND_SHARE.. => 0,
            IDLE_SHARE.. => self.windows_since_bound.saturating_add(1),
            _ => UNBOUND_WINDOWS,
        };
        match self.windows_since_bound {
            0 => CpuLoad::Full,
            1..UNBOUND_WINDOWS => CpuLoad::High,
            _ if share < IDLE_SHARE => CpuLoad::Idle,
            _ => CpuLoad::Low,
        }
    }
}

/// The time that the threads of this process have run or waited to run, since each began.
fn busy() -> Option<Duration> {
    let mut sum = Duration::ZERO;
    for thread in fs::read_dir("/proc/self/task").ok()? {
        // A thread may end while its folder is read.
        let Ok(text) = fs::read_to_string(thread.ok()?.path().join("schedstat")) else { continue };
        sum += parse(&text)?;
    }
    Some(sum)
}

/// Nanoseconds on a CPU and nanoseconds in a run queue (the kernel's
/// `Documentation/scheduler/sched-stats.rst`).
fn parse(schedstat: &str) -> Option<Duration> {
    let mut numbers = schedstat.split_ascii_whitespace().map(str::parse);
    let (ran, waited): (u64, u64) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(Duration::from_nanos(ran.saturating_add(waited)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_window_with_time_to_spare_is_not_the_end_of_a_bottleneck() {
        let mut share = CpuShare::start();
        assert_eq!([0.8, 0.95].map(|value| share.note(value)), [CpuLoad::Low, CpuLoad::Full]);
        assert!((1..UNBOUND_WINDOWS).all(|_| share.note(0.8) == CpuLoad::High));
        assert_eq!(share.note(0.8), CpuLoad::Low);
        assert_eq!(
            [0.95, 0.4].map(|value| share.note(value)),
            [CpuLoad::Full, CpuLoad::Idle],
            "it waits for something else"
        );
    }

    #[test]
    fn running_and_waiting_to_run_are_both_busy() {
        assert_eq!(parse("304809250 2501032356 1813\n"), Some(Duration::from_nanos(2_805_841_606)));
        assert_eq!(parse(""), None);
        assert!(busy().is_some(), "this kernel tells");
    }
}
