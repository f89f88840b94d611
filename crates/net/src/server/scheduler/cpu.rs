//! Whether the CPU is the bottleneck: the threads of this process run, or wait to run, nearly all the time. Waiting includes
//! what a CPU quota makes them wait, which no measure of CPU time alone would show.

use std::fs;
use std::num::NonZero;
use std::time::{Duration, Instant};

/// Looked at no more often than this: shorter than a period of the kernel's CPU quota (100 ms) tells little.
const WINDOW: Duration = Duration::from_millis(25);
/// From this share of the time on it is the bottleneck.
const BOUND_SHARE: f64 = 0.9;
/// It is no longer if its share was smaller for so many windows: under a quota a process that is short of CPU time comes by some
/// now and then, and whoever were called then would all be under way at once.
const UNBOUND_WINDOWS: u32 = 8;
/// Below this share one window is enough: requests wait for something else, a disk or a backend.
const IDLE_SHARE: f64 = 0.5;

/// What was found of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CpuLoad {
    /// The CPU is the bottleneck.
    Full,
    /// It was lately, and has not had time to spare for long.
    High,
    Low,
}

#[derive(Debug)]
pub(super) struct CpuShare {
    since: Instant,
    busy: Option<Duration>,
    threads: f64,
    /// How many windows ago it was the bottleneck.
    windows_since_bound: u32,
}

impl CpuShare {
    pub(super) fn start() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get) as f64;
        CpuShare { since: Instant::now(), busy: busy(), threads, windows_since_bound: UNBOUND_WINDOWS }
    }

    /// What was so since the last answer. `None`: it is too early, or the kernel does not tell.
    pub(super) fn look(&mut self) -> Option<CpuLoad> {
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
            _ => CpuLoad::Low,
        }
    }
}

/// Time that threads of this process have run or waited to run, since each began.
fn busy() -> Option<Duration> {
    let mut sum = Duration::ZERO;
    for thread in fs::read_dir("/proc/self/task").ok()? {
        // A thread may end while its folder is looked at.
        let Ok(text) = fs::read_to_string(thread.ok()?.path().join("schedstat")) else { continue };
        sum += parse(&text)?;
    }
    Some(sum)
}

/// Nanoseconds on a CPU and nanoseconds in a run queue (the kernel's `Documentation/scheduler/sched-stats.rst`).
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
            [CpuLoad::Full, CpuLoad::Low],
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
