//! Observations that every turn shares: CPU and memory of subject and bench, and the wait until
//! everything has arrived.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::backend::Backend;
use crate::generate::LoadReport;
use crate::subject::{Subject, Usage, usage_of_process};

/// How often it is looked whether everything has arrived.
const DRAIN_LOOK_EVERY: Duration = Duration::from_millis(20);

/// One look at the processes.
#[derive(Clone, Copy, Debug)]
pub struct Processes {
    pub at: Instant,
    /// `None`: the subject has ended.
    pub subject: Option<Usage>,
    /// Generator and backends.
    pub bench: Option<Usage>,
}

impl Processes {
    pub fn look(subject: &Subject) -> Processes {
        Processes {
            at: Instant::now(),
            subject: subject.usage(),
            bench: usage_of_process(std::process::id()),
        }
    }

    pub fn seconds_since(&self, before: &Processes) -> f64 {
        (self.at - before.at).as_secs_f64().max(1e-3)
    }

    /// CPU time of the subject since then, in seconds. `None`: it had ended.
    pub fn subject_cpu_s_since(&self, before: &Processes) -> Option<f64> {
        cpu_s(self.subject, before.subject)
    }

    pub fn bench_cpu_s_since(&self, before: &Processes) -> Option<f64> {
        cpu_s(self.bench, before.bench)
    }
}

fn cpu_s(now: Option<Usage>, then: Option<Usage>) -> Option<f64> {
    Some(now?.cpu.saturating_sub(then?.cpu).as_secs_f64())
}

/// Waits until these backends have everything that was acknowledged, for `limit` at most or until
/// `is_interrupted`. How long that took; `None`: they have not.
pub async fn drained<'a>(
    report: &LoadReport,
    backends: impl Iterator<Item = &'a Backend> + Clone,
    limit: Duration,
    mut is_interrupted: impl FnMut() -> bool,
) -> Option<Duration> {
    let began = Instant::now();
    loop {
        if backends.clone().all(|backend| report.missing_at(backend) == 0) {
            return Some(began.elapsed());
        }
        if began.elapsed() >= limit || is_interrupted() {
            return None;
        }
        sleep(DRAIN_LOOK_EVERY).await;
    }
}
