//! Looks at the logs now and then: says when a disk is in trouble and when it is well again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sluice_log::Log;
use sluice_otlp::Signal;

use crate::backlog::Backlog;
use crate::entry::Entry;

/// A disk that works again sooner is worth waiting for.
const LASTING: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(200);
/// How often trouble that lasts is said again.
const REMINDER: Duration = Duration::from_secs(60);

/// What is known of the disk under a log.
#[derive(Default)]
pub(crate) struct LogWatch {
    is_lasting: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    trouble: Option<String>,
    since: Option<Instant>,
    /// When it was last logged.
    logged_at: Option<Instant>,
    frames_damaged: u64,
}

impl LogWatch {
    /// The disk has not worked for so long that senders should not wait for it.
    pub(crate) fn has_lasting_trouble(&self) -> bool {
        self.is_lasting.load(Ordering::Relaxed)
    }

    /// Why the disk does not work at the moment.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.seen.lock().trouble.clone()
    }

    fn look(&self, signal: Signal, log: &Log<Entry>, now: Instant) {
        let trouble = log.trouble().map(|trouble| match trouble.out_of_space {
            true => format!("the disk is full: {}", trouble.reason),
            false => format!("the disk fails: {}", trouble.reason),
        });
        let damaged = log.stats().frames_damaged;
        let mut seen = self.seen.lock();
        seen.since = trouble.as_ref().map(|_| seen.since.unwrap_or(now));
        let is_lasting = seen.since.is_some_and(|since| now.duration_since(since) >= LASTING);
        self.is_lasting.store(is_lasting, Ordering::Relaxed);
        match (&trouble, seen.logged_at) {
            (Some(reason), at) if at.is_none_or(|at| now.duration_since(at) >= REMINDER) => {
                seen.logged_at = Some(now);
                tracing::error!(
                    %signal, reason,
                    "telemetry cannot be held on disk: nothing is acknowledged but what was \
                     delivered, until the disk works again"
                );
            }
            (None, Some(_)) => {
                seen.logged_at = None;
                tracing::info!(%signal, "the disk works again");
            }
            _ => {}
        }
        if damaged > seen.frames_damaged {
            let frames = damaged - seen.frames_damaged;
            tracing::error!(%signal, frames, "damaged frames on disk were passed over");
        }
        seen.frames_damaged = damaged;
        seen.trouble = trouble;
    }
}

/// Runs until it is aborted.
pub(crate) async fn watch(
    logs: [Arc<Log<Entry>>; 3],
    watches: [Arc<LogWatch>; 3],
    backlog: Arc<Backlog>,
) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let now = Instant::now();
        for signal in Signal::ALL {
            watches[signal as usize].look(signal, &logs[signal as usize], now);
        }
        backlog.tick(now);
    }
}
