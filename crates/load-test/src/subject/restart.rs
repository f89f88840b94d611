//! Restarts as a pod has them: a subject that ends is started again, at once the first time, later
//! and later after that.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::Signal;

use super::SubjectSpec;
use super::limits::ControlGroup;
use super::process::Process;
use super::reaper::Reaper;
use super::usage::{Usage, has_ended, usage_of_group, usage_of_group_and_ended, usage_of_process};

/// The longest that a kubelet waits.
const DELAY_MAX: Duration = Duration::from_secs(300);
/// After a life as long as this a kubelet begins anew with its delays.
const LONG_LIFE: Duration = Duration::from_secs(600);
/// How often the supervisor looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Memory can be read while it lives only: at every so many looks.
const LOOKS_AT_MEMORY: u64 = 5;

/// How long after its end a subject is started again: at once, then after a delay that doubles each
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartPolicy {
    delay: Duration,
}

impl RestartPolicy {
    /// `delay` before the second restart. A kubelet has 10 s.
    pub fn backing_off_from(delay: Duration) -> Self {
        RestartPolicy { delay }
    }

    /// Before the restart that follows this many in a row.
    fn delay_after(self, restarts: u32) -> Duration {
        let Some(doublings) = restarts.checked_sub(1) else { return Duration::ZERO };
        self.delay.saturating_mul(2_u32.saturating_pow(doublings)).min(DELAY_MAX.max(self.delay))
    }
}

/// What became of a subject so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lives {
    /// How often it was started again.
    pub restarts: u64,
    /// How its last finished life ended.
    pub last_end: Option<ExitStatus>,
    /// It does not run at the moment.
    pub is_down: bool,
}

/// All lives of a subject.
#[derive(Debug)]
pub(super) struct Supervised {
    spec: SubjectSpec,
    folder: PathBuf,
    process: Option<Process>,
    /// Of the present process, else of the last.
    pid: u32,
    began: Instant,
    /// When the next life begins.
    next: Option<Instant>,
    in_a_row: u32,
    lives: Lives,
    /// CPU of the lives before; the highest memory of all.
    past: Usage,
    group: Arc<ControlGroup>,
    reaper: Option<Reaper>,
}

impl Supervised {
    pub(super) fn new(
        spec: SubjectSpec,
        folder: PathBuf,
        process: Process,
        group: Arc<ControlGroup>,
        reaper: Option<Reaper>,
    ) -> Self {
        Supervised {
            spec,
            folder,
            pid: process.pid(),
            process: Some(process),
            began: Instant::now(),
            next: None,
            in_a_row: 0,
            lives: Lives::default(),
            past: Usage::default(),
            group,
            reaper,
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// How the present life ended, or the last one where there is none; `None` while it lasts.
    pub(super) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match &mut self.process {
            Some(process) => process.0.try_wait(),
            None => Ok(self.lives.last_end),
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            process.signal(signal);
        }
    }

    /// Kills it, and what keeps watch over it.
    pub(super) fn end(&mut self) {
        self.process = None;
        self.reaper = None;
    }

    pub(super) fn lives(&mut self) -> Lives {
        // Where nothing supervises it, its end is noticed here first.
        let ended = self.process.as_mut().and_then(|process| process.0.try_wait().ok().flatten());
        let last_end = ended.or(self.lives.last_end);
        Lives { is_down: self.process.is_none() || ended.is_some(), last_end, ..self.lives }
    }

    /// No life after this one.
    pub(super) fn end_with_this_life(&mut self) {
        (self.spec.restart, self.next) = (None, None);
    }

    /// Of all lives; `None` when it is gone for good.
    pub(super) fn usage(&mut self) -> Option<Usage> {
        let now = match &self.process {
            Some(process) => usage_of_group(process.pid()),
            None => None,
        };
        // Between two lives it takes nothing.
        let now = now.or((self.spec.restart.is_some()).then(Usage::default))?;
        self.past.peak_rss_bytes = self.past.peak_rss_bytes.max(now.peak_rss_bytes);
        Some(Usage {
            cpu: self.past.cpu + now.cpu,
            peak_rss_bytes: self.past.peak_rss_bytes,
            ..now
        })
    }

    fn remember_memory(&mut self) {
        let peak = usage_of_process(self.pid).map_or(0, |usage| usage.peak_rss_bytes);
        self.past.peak_rss_bytes = self.past.peak_rss_bytes.max(peak);
    }

    /// Notices an end, and begins the next life when it is time.
    fn look(&mut self, policy: RestartPolicy) {
        if self.process.as_ref().is_some_and(|process| has_ended(process.pid())) {
            self.reap(policy);
        }
        if self.process.is_none() && self.next.is_some_and(|next| Instant::now() >= next) {
            self.begin(policy);
        }
    }

    fn reap(&mut self, policy: RestartPolicy) {
        let Some(mut process) = self.process.take() else { return };
        if let Some(last) = usage_of_group_and_ended(process.pid()) {
            self.past.cpu += last.cpu;
            self.past.peak_rss_bytes = self.past.peak_rss_bytes.max(last.peak_rss_bytes);
        }
        // As with a container: what it started ends with it.
        process.signal(Signal::KILL);
        self.lives.last_end = process.0.wait().ok();
        if self.began.elapsed() >= LONG_LIFE {
            self.in_a_row = 0;
        }
        self.next = Some(Instant::now() + policy.delay_after(self.in_a_row));
    }

    fn begin(&mut self, policy: RestartPolicy) {
        self.in_a_row = self.in_a_row.saturating_add(1);
        match Process::begin(&self.spec, &self.folder, &self.group) {
            Ok(process) => {
                // An error was a warning at the first start already.
                let _ = self.group.add_again(process.pid());
                if let Some(reaper) = &mut self.reaper {
                    reaper.watch(process.pid());
                }
                (self.pid, self.next, self.began) = (process.pid(), None, Instant::now());
                self.process = Some(process);
                self.lives.restarts += 1;
            }
            // Its file may be about to be replaced.
            Err(_) => self.next = Some(Instant::now() + policy.delay_after(self.in_a_row)),
        }
    }
}

/// Starts it again whenever it ends, until this task is aborted.
pub(super) async fn supervise(supervised: Arc<Mutex<Supervised>>, policy: RestartPolicy) {
    for number in 0_u64.. {
        tokio::time::sleep(LOOK_EVERY).await;
        let mut supervised = supervised.lock();
        supervised.look(policy);
        if number.is_multiple_of(LOOKS_AT_MEMORY) {
            supervised.remember_memory();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_kubelets_longest() {
        let policy = RestartPolicy::backing_off_from(Duration::from_secs(10));
        let seconds = [0, 1, 2, 3, 6, 40].map(|restarts| policy.delay_after(restarts).as_secs());
        assert_eq!(seconds, [0, 10, 20, 40, 300, 300]);
    }
}
