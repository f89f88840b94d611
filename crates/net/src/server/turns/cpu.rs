//! Whether the CPU is the bottleneck, and how many requests are enough then: the threads of this process run, or wait to run, nearly all
//! the time. Waiting includes what a CPU quota makes them wait, which no measure of CPU time alone would show.

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
/// While it is the bottleneck no more than this many requests are under way, if they keep the CPU busy. Measured: 32 requests of 190 kB
/// are answered as cheaply as 8, and 256 at half to two thirds of that rate.
pub(super) const FEW_REQUESTS: usize = 32;
/// Changes of that number from window to window: more where requests wait for something else as well, so that the CPU has time left.
const MORE: f64 = 1.5;
const LESS: f64 = 0.75;
const MANY_REQUESTS: f64 = 65_536.0;

#[derive(Debug)]
pub(super) struct CpuShare {
    since: Instant,
    busy: Option<Duration>,
    threads: f64,
    /// How many windows ago it was the bottleneck.
    windows_since_bound: u32,
    /// Requests that may be under way while it is.
    enough: f64,
}

impl CpuShare {
    pub(super) fn start() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get) as f64;
        let (windows_since_bound, enough) = (UNBOUND_WINDOWS, FEW_REQUESTS as f64);
        CpuShare { since: Instant::now(), busy: busy(), threads, windows_since_bound, enough }
    }

    /// How many requests may be under way from now on; [`usize::MAX`] if the CPU is not the bottleneck. `None`: it is too early to tell, or
    /// the kernel does not.
    pub(super) fn enough_requests(&mut self) -> Option<usize> {
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

    fn note(&mut self, share: f64) -> usize {
        self.windows_since_bound = match share {
            BOUND_SHARE.. => 0,
            IDLE_SHARE.. => self.windows_since_bound.saturating_add(1),
            _ => UNBOUND_WINDOWS,
        };
        let change = if share < BOUND_SHARE { MORE } else { LESS };
        if self.windows_since_bound < UNBOUND_WINDOWS {
            self.enough = (self.enough * change).clamp(FEW_REQUESTS as f64, MANY_REQUESTS);
            self.enough as usize
        } else {
            self.enough = FEW_REQUESTS as f64;
            usize::MAX
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

    fn is_bound(requests: usize) -> bool {
        requests < usize::MAX
    }

    #[test]
    fn one_window_with_time_to_spare_is_not_the_end_of_a_bottleneck() {
        let mut share = CpuShare::start();
        assert!(!is_bound(share.note(0.8)) && is_bound(share.note(0.95)));
        assert!((1..UNBOUND_WINDOWS).all(|_| is_bound(share.note(0.8))));
        assert!(!is_bound(share.note(0.8)));
        assert!(is_bound(share.note(0.95)) && !is_bound(share.note(0.4)), "it waits for something else");
    }

    #[test]
    fn as_many_requests_are_under_way_as_keep_the_cpu_busy() {
        let mut share = CpuShare::start();
        assert_eq!([0.95, 1.0, 1.0].map(|busy| share.note(busy)), [FEW_REQUESTS; 3]);
        assert_eq!([0.8, 0.7, 0.6].map(|busy| share.note(busy)), [48, 72, 108], "they wait for a disk, too");
        assert_eq!([0.95, 0.95].map(|busy| share.note(busy)), [81, 60]);
        assert_eq!((0..8).map(|_| share.note(1.0)).last(), Some(FEW_REQUESTS), "never fewer");
        assert!(!is_bound(share.note(0.1)));
        assert_eq!(share.note(0.95), FEW_REQUESTS, "the next time begins anew");
    }

    #[test]
    fn running_and_waiting_to_run_are_both_busy() {
        assert_eq!(parse("304809250 2501032356 1813\n"), Some(Duration::from_nanos(2_805_841_606)));
        assert_eq!(parse(""), None);
        assert!(busy().is_some(), "this kernel tells");
    }
}
