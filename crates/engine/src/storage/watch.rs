//! Looks at the logs at intervals: logs when a disk is in trouble and when it works again.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sluice_log::{DiskTrouble, LogStats, Unremoved};
use sluice_otlp::Signal;
use tokio::task::JoinHandle;

use super::Storage;
use crate::backlog::Backlog;

/// A disk that works again sooner is worth waiting for.
const LASTING: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(200);
/// Trouble that lasts is logged again after this time.
const REMINDER: Duration = Duration::from_secs(60);
/// A disk that has worked for this long works again. Before, trouble is still the same one.
const SETTLED: Duration = Duration::from_secs(5);

/// The state of the disk under a log.
#[derive(Default)]
pub(crate) struct LogWatch {
    is_lasting: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    trouble: Option<String>,
    /// Since when frames cannot be written.
    since: Option<Instant>,
    spell: Spell,
    stats: LogStats,
    unremoved: HashSet<PathBuf>,
}

/// Trouble that comes and goes, as the log tells of it.
#[derive(Default)]
struct Spell {
    /// When it was last logged, and whether frames could not be written then.
    logged: Option<(Instant, bool)>,
    /// Since when the disk has worked.
    works_since: Option<Instant>,
}

/// A message on the state of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    Trouble,
    WorksAgain,
}

impl Spell {
    /// `trouble`: whether it stops writing, if there is any.
    fn note(&mut self, trouble: Option<bool>, now: Instant) -> Option<Message> {
        let Some(stops_writing) = trouble else {
            let since = *self.works_since.get_or_insert(now);
            self.logged.filter(|_| now.duration_since(since) >= SETTLED)?;
            self.logged = None;
            return Some(Message::WorksAgain);
        };
        self.works_since = None;
        let is_said = self.logged.is_some_and(|(at, has_stopped_writing)| {
            now.duration_since(at) < REMINDER && (has_stopped_writing || !stops_writing)
        });
        if is_said {
            return None;
        }
        self.logged = Some((now, stops_writing));
        Some(Message::Trouble)
    }
}

impl LogWatch {
    /// The disk has taken nothing for so long that senders should not wait for it.
    pub(crate) fn has_lasting_trouble(&self) -> bool {
        self.is_lasting.load(Ordering::Relaxed)
    }

    /// Why the disk does not work at the moment.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.seen.lock().trouble.clone()
    }

    /// Names each file that cannot be removed once.
    fn note_unremoved(&self, signal: Signal, unremoved: &[Unremoved]) {
        for file in self.new_of(unremoved) {
            tracing::error!(
                %signal, file = %file.path.display(), bytes = file.len_bytes, reason = file.why,
                "a file that no delivery needs cannot be removed: it is tried again, and counts \
                 as used disk until it is gone"
            );
        }
    }

    /// Those that were not among the last ones.
    fn new_of<'a>(&self, unremoved: &'a [Unremoved]) -> Vec<&'a Unremoved> {
        let paths = unremoved.iter().map(|file| file.path.clone()).collect();
        let before = std::mem::replace(&mut self.seen.lock().unremoved, paths);
        unremoved.iter().filter(|file| !before.contains(&file.path)).collect()
    }

    fn note(&self, signal: Signal, trouble: Option<DiskTrouble>, stats: LogStats, now: Instant) {
        let mut seen = self.seen.lock();
        let before = std::mem::replace(&mut seen.stats, stats);
        // The disk has worked meanwhile.
        seen.since = seen.since.filter(|_| stats.commits == before.commits);
        let stops_writing = trouble.as_ref().is_some_and(|trouble| trouble.stops_writing);
        let without_answer = trouble.as_ref().map(|trouble| trouble.without_answer);
        let began = now - without_answer.unwrap_or_default();
        seen.since = stops_writing.then(|| seen.since.unwrap_or(now).min(began));
        let trouble = trouble.map(|trouble| match trouble.out_of_space {
            true => format!("the disk is full: {}", trouble.reason),
            false if !trouble.without_answer.is_zero() => {
                format!("the disk hangs: {}", trouble.reason)
            }
            false => format!("the disk fails: {}", trouble.reason),
        });
        let is_lasting = seen.since.is_some_and(|since| now.duration_since(since) >= LASTING);
        self.is_lasting.store(is_lasting, Ordering::Relaxed);
        let reason = trouble.as_deref().unwrap_or_default();
        match seen.spell.note(trouble.is_some().then_some(stops_writing), now) {
            Some(Message::Trouble) => {
                let effect = if stops_writing {
                    "cannot write to disk: until it works again, what is not delivered is in \
                     memory only"
                } else {
                    "telemetry is stored on disk, but some of it cannot be read, or what was \
                     delivered cannot be noted; this is tried again until the disk works"
                };
                tracing::error!(%signal, reason, "{effect}");
            }
            Some(Message::WorksAgain) => tracing::info!(%signal, "the disk works again"),
            None => {}
        }
        let frames = stats.frames_damaged - before.frames_damaged;
        if frames > 0 {
            tracing::error!(%signal, frames, "damaged frames on disk were passed over");
        }
        let frames = stats.frames_of_newer_release - before.frames_of_newer_release;
        if frames > 0 {
            tracing::error!(
                %signal, frames,
                "frames on disk were passed over that only a newer release can read"
            );
        }
        let (frames, items) =
            (stats.lost.frames - before.lost.frames, stats.lost.items - before.lost.items);
        if frames > 0 {
            tracing::error!(
                %signal, frames, items,
                "telemetry that waited on disk could not be read or was not there"
            );
        }
        if stats.set_aside_files > before.set_aside_files {
            tracing::error!(
                %signal, files = stats.set_aside_files, bytes = stats.set_aside_bytes,
                "files in which telemetry could not be read are kept as `….seg.damaged`: \
                 `sluice log ls` lists them, docs/log.md says how to put them back"
            );
        }
        seen.trouble = trouble;
    }
}

/// Runs until it is aborted.
pub(crate) async fn watch(storage: Arc<Storage>, backlog: Arc<Backlog>) {
    let mut ticking = None;
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let now = Instant::now();
        for signal in Signal::ALL {
            let log = storage.log(signal);
            let watch = &storage.watches[signal as usize];
            watch.note(signal, log.trouble(), log.stats(), now);
            watch.note_unremoved(signal, &log.unremoved());
            for reason in log.take_disturbances() {
                tracing::error!(
                    %signal, reason,
                    "a file that was being written was removed, moved away or cut by another \
                     process: new data goes to another file, and what was only in that one is lost"
                );
            }
        }
        // Asks the file system, which may give no answer.
        if ticking.as_ref().is_none_or(JoinHandle::is_finished) {
            let (storage, backlog) = (storage.clone(), backlog.clone());
            let tick = move || backlog.tick(storage.free_bytes(), Instant::now());
            ticking = Some(tokio::task::spawn_blocking(tick));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_removed_is_named_once() {
        let watch = LogWatch::default();
        let file = |path: &str| Unremoved { path: path.into(), len_bytes: 1, why: String::new() };
        let (one, two) = ([file("/a.seg")], [file("/a.seg"), file("/b.seg")]);
        let named = |files: &[Unremoved]| watch.new_of(files).len();
        assert_eq!([named(&one), named(&one), named(&two), named(&two)], [1, 0, 1, 0]);
        assert_eq!([named(&[]), named(&one)], [0, 1], "it is a new one");
    }

    /// Guarantee: senders are not refused because reads fail; they are because writes fail, once
    /// that has lasted.
    #[test]
    fn only_what_stops_writing_is_a_reason_to_refuse_senders() {
        let start = Instant::now();
        for stops_writing in [true, false] {
            let (watch, mut stats) = (LogWatch::default(), LogStats::default());
            let trouble =
                DiskTrouble { reason: "EIO".to_owned(), stops_writing, ..DiskTrouble::default() };
            for since in [Duration::ZERO, LASTING] {
                assert!(!watch.has_lasting_trouble());
                watch.note(Signal::Logs, Some(trouble.clone()), stats, start + since);
                assert_eq!(watch.trouble().as_deref(), Some("the disk fails: EIO"));
            }
            assert_eq!(watch.has_lasting_trouble(), stops_writing);
            stats.commits += 1;
            watch.note(Signal::Logs, Some(trouble), stats, start + LASTING);
            assert!(!watch.has_lasting_trouble(), "it has worked meanwhile");
            watch.note(Signal::Logs, None, stats, start + LASTING);
            assert_eq!((watch.has_lasting_trouble(), watch.trouble()), (false, None));
        }
    }

    /// Guarantee: a disk that fails and works in turn is logged once a minute, not at each change,
    /// and works again once it has worked for a while.
    #[test]
    fn trouble_that_comes_and_goes_is_one() {
        let (start, mut spell) = (Instant::now(), Spell::default());
        let mut said = Vec::new();
        let mut note = |at_ms: u64, trouble: Option<bool>| {
            let message = spell.note(trouble, start + Duration::from_millis(at_ms));
            said.extend(message.map(|message| (at_ms, message)));
        };
        for at_ms in (0..=90_000).step_by(200) {
            note(at_ms, (at_ms / 200 % 2 == 0).then_some(true));
        }
        // It ended with trouble. A short time without it changes nothing.
        note(90_200, None);
        note(95_000, None);
        note(95_100, Some(true));
        note(95_300, None);
        note(100_300, None);
        note(100_500, None);
        // Another one, which stops writing later.
        for at_ms in [200_000, 200_200, 200_600] {
            note(at_ms, Some(false));
        }
        note(200_800, Some(true));
        note(201_000, Some(false));
        note(201_200, Some(true));
        use Message::{Trouble, WorksAgain};
        let expected = [
            (0, Trouble),
            (60_000, Trouble),
            (100_300, WorksAgain),
            (200_000, Trouble),
            (200_800, Trouble),
        ];
        assert_eq!(said, expected);
    }

    /// Guarantee: health and metrics follow the disk at once, also while the log waits.
    #[test]
    fn the_state_follows_the_disk_at_once() {
        let (start, watch) = (Instant::now(), LogWatch::default());
        let trouble = DiskTrouble { reason: "EIO".to_owned(), ..DiskTrouble::default() };
        for tick in 0..10 {
            let now = start + INTERVAL * tick;
            let trouble = (tick % 2 == 0).then(|| trouble.clone());
            watch.note(Signal::Logs, trouble.clone(), LogStats::default(), now);
            assert_eq!(watch.trouble().is_some(), trouble.is_some());
        }
    }
}
