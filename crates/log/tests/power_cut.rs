//! Power cuts against a real file system. A process appends to a log and prints durable values;
//! at a random moment it is killed and the power of its disk is cut, again and again.
//!
//! The same on a disk whose syncs do nothing must lose acknowledged values, or this test could not
//! see loss.

mod support;

#[path = "support/mounted.rs"]
mod mounted;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mounted::{FileSystem, Mounted};
use sluice_log::disk::{Disk, RealDisk};
use sluice_log::{Keep, Log, OpenOptions};
use support::no_sync::NoSync;
use support::note::*;

const CHILD: &str = "a_process_whose_power_is_cut";
const CHILD_SETTING: &str = "SLUICE_LOG_CHILD";
/// Values in a row that are treated alike: a cursor stores a bounded number of ranges.
const BLOCK: u64 = 64;
/// Values that are appended and not yet durable.
const IN_FLIGHT: u64 = 64;

/// The child's reader resolves these values. They may come back or not.
fn is_resolved_by_child(value: u64) -> bool {
    (value / BLOCK).is_multiple_of(4)
}

/// Options of the child.
#[derive(Clone, Copy, Debug)]
struct Setting {
    syncs: bool,
    at_once: bool,
    first_value: u64,
}

impl Setting {
    fn to_text(self, directory: &Path) -> String {
        format!("{} {} {} {}", self.syncs, self.at_once, self.first_value, directory.display())
    }

    fn from_text(text: &str) -> Option<(Setting, String)> {
        let mut words = text.splitn(4, ' ');
        let mut next = || words.next();
        let (syncs, at_once) = (next()?.parse().ok()?, next()?.parse().ok()?);
        let setting = Setting { syncs, at_once, first_value: next()?.parse().ok()? };
        Some((setting, next()?.to_owned()))
    }

    fn options(self, directory: &Path) -> OpenOptions {
        let disk: Arc<dyn Disk> =
            if self.syncs { Arc::new(RealDisk) } else { Arc::new(NoSync(RealDisk)) };
        let flush_after = Duration::from_millis(if self.at_once { 0 } else { 20 });
        OpenOptions {
            segment_bytes: 256 << 10,
            memory_limit_bytes: 256 << 10,
            keep_interval: Duration::from_millis(20),
            flush_after,
            ..OpenOptions::new(disk, directory, "traces")
        }
    }
}

/// Not a test by itself: the process that the tests start.
#[test]
#[ignore = "started by the others"]
fn a_process_whose_power_is_cut() {
    let setting = std::env::var(CHILD_SETTING).ok();
    let Some((setting, directory)) = setting.as_deref().and_then(Setting::from_text) else {
        return;
    };
    let (log, _) =
        Log::<Note>::open(setting.options(Path::new(&directory))).expect("the log opens");
    // `other` resolves nothing: values that every reader has resolved need not become durable.
    let (reader, other) = (subscribe(&log, "reader"), subscribe(&log, "other"));
    let durable = Durable::default();
    let mut said = BTreeSet::new();
    let mut value = setting.first_value;
    let parent = rustix::process::getppid();
    let mut last_progress = Instant::now();
    // The child does not outlive the process that started it, however that ended.
    while rustix::process::getppid() == parent {
        while value - setting.first_value < said.len() as u64 + IN_FLIGHT {
            append(&log, value, 100 + fastrand::usize(..8000), &[reader, other], &durable);
            value += 1;
        }
        // A closed pipe means that the other process is gone.
        let new: Vec<u64> = durable.lock().difference(&said).copied().collect();
        for value in new {
            said.insert(value);
            writeln!(std::io::stdout(), "durable {value}").expect("the test listens");
            last_progress = Instant::now();
        }
        assert!(
            last_progress.elapsed() < PATIENCE / 2,
            "it stands still: {:?} {:?}",
            log.trouble(),
            log.stats()
        );
        while let Some((offset, note)) = log.read(reader).entry() {
            if is_resolved_by_child(note.value) {
                log.resolve(reader, offset);
            }
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn start_child(setting: Setting, directory: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", CHILD, "--ignored", "--nocapture"]);
    command.env(CHILD_SETTING, setting.to_text(directory)).stdout(Stdio::piped());
    command.spawn().expect("this program starts")
}

/// Runs a child for a random time and cuts the power. Returns the values that it acknowledged.
fn run_until_power_cut(disk: &Mounted, setting: Setting) -> BTreeSet<u64> {
    let mut child = start_child(setting, &disk.path().join("log"));
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut acknowledged = BTreeSet::new();
    let mut note = |line: std::io::Result<String>| {
        let line = line.expect("a line");
        acknowledged.extend(
            line.strip_prefix("durable ").map(|value| value.parse::<u64>().expect("a number")),
        );
        line
    };
    let started = Instant::now();
    let lasts = Duration::from_micros(fastrand::u64(1_000..150_000));
    // The child's lines are read all the time, or it would wait for the pipe.
    let mut until = None;
    while until.is_none_or(|until| Instant::now() < until) {
        let line = note(lines.next().expect("the child lives"));
        if until.is_none() && line.starts_with("durable") {
            until = Some(Instant::now() + lasts);
        }
        assert!(started.elapsed() < PATIENCE, "nothing is durable");
    }
    child.kill().expect("killed");
    child.wait().expect("waited for");
    // Values in the pipe were acknowledged, except on a line that was cut off.
    for line in lines.by_ref() {
        let Ok(text) = &line else { break };
        if text.starts_with("durable ") && text.len() > "durable ".len() {
            note(line);
        }
    }
    disk.cut_power();
    acknowledged
}

/// Results of the cycles, in numbers of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outcome {
    acknowledged: usize,
    lost: usize,
    came_back: usize,
    damaged: u64,
}

/// Cycles of power cuts on one directory. After each the log is read, some values are resolved for
/// good, and the log is closed.
fn cut_power_repeatedly(cycles: usize, syncs: bool) -> Option<Outcome> {
    let disk = Mounted::new(FileSystem::Ext4 { mib: 256 })?;
    let mut outcome = Outcome::default();
    let mut wanted = BTreeSet::new();
    let mut resolved = BTreeSet::new();
    let mut first_value = 0;
    for cycle in 0..cycles {
        let setting = Setting { syncs, at_once: cycle.is_multiple_of(2), first_value };
        let acknowledged = run_until_power_cut(&disk, setting);
        outcome.acknowledged += acknowledged.len();
        first_value = acknowledged.last().map_or(first_value, |last| last + 1 + 2 * IN_FLIGHT);
        wanted.extend(acknowledged.iter().filter(|&&value| !is_resolved_by_child(value)));

        // A disk that does not sync may leave anything behind: only readable values count.
        let opened = Log::<Note>::open(setting.options(&disk.path().join("log")));
        let Ok((log, recovered)) = opened else {
            assert!(!syncs, "cycle {cycle}: {:?}", opened.err());
            outcome.lost += wanted.len();
            return Some(outcome);
        };
        let reader = subscribe(&log, "reader");
        let read = read_all(&log, reader);
        let found: BTreeSet<u64> = values(&read).into_iter().collect();
        assert_eq!(found.len(), read.len(), "cycle {cycle}: nothing is read twice");
        outcome.damaged += recovered.frames_damaged;
        assert!(!syncs || recovered.missing.is_none(), "cycle {cycle}: {:?}", recovered.missing);
        outcome.lost += wanted.difference(&found).count();
        outcome.came_back += resolved.intersection(&found).count();
        // Most values are resolved. The others stay for the next cycle.
        for (offset, value) in read {
            let stays = acknowledged.contains(&value) && value / BLOCK % 4 == 1;
            if !stays {
                log.resolve(reader, offset);
                resolved.insert(value);
                wanted.remove(&value);
            }
        }
        let other = subscribe(&log, "other");
        log.unsubscribe(other, Keep::Nothing);
        log.rewind(reader);
        assert_eq!(log.close(PATIENCE).frames, 0, "cycle {cycle}");
        if !syncs && outcome.lost > 0 {
            break;
        }
    }
    println!("{cycles} power cuts, syncs {syncs}: {outcome:?}");
    Some(outcome)
}

fn nothing_is_lost(cycles: usize) {
    let Some(outcome) = cut_power_repeatedly(cycles, true) else { return };
    assert!(
        outcome.acknowledged > 50 * cycles,
        "the test is about what is acknowledged: {outcome:?}"
    );
    let Outcome { acknowledged, .. } = outcome;
    assert_eq!(outcome, Outcome { acknowledged, ..Outcome::default() }, "lost, came back, damaged");
}

/// Guarantee: acknowledged values are read again after a power cut at any moment, values resolved
/// before a clean end are not, and recovery needs no help.
#[test]
fn a_power_cut_at_any_moment_loses_nothing_that_was_acknowledged() {
    nothing_is_lost(10);
}

#[test]
#[ignore = "minutes long"]
fn torture_power_cuts_at_any_moment() {
    nothing_is_lost(500);
}

/// Guarantee: the test above can see loss.
#[test]
fn a_disk_that_does_not_sync_loses_what_was_acknowledged() {
    let Some(outcome) = cut_power_repeatedly(10, false) else { return };
    assert!(outcome.acknowledged > 0 && outcome.lost > 0, "{outcome:?}");
}
