//! A gateway that refuses everything for long.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::harness::{Engine, Scene, until};

/// Seconds of the receiver's time in one.
const RATE: u32 = 600;
const OUTAGE: Duration = Duration::from_secs(3600);
/// Half of them are for files that have left.
const OPEN_MAX: usize = 16;
const ROTATIONS: usize = 30;
/// Rotated files that are kept under their last names, beside the file that is written to.
const KEPT: usize = 3;
const LINES: usize = 200;

fn line(number: usize) -> String {
    format!("line {number:07}\n")
}

impl Scene {
    /// Whether the receiver has opened the file that is written to.
    fn is_open(&self) -> bool {
        let open = std::fs::read_dir("/proc/self/fd").expect("can be listed").flatten();
        open.into_iter()
            .any(|it| std::fs::read_link(it.path()).is_ok_and(|to| to == self.path("x")))
    }

    /// Renames the files and removes the oldest, as logrotate does.
    fn rotate(&self) {
        let name = |age: usize| match age {
            0 => self.path("x"),
            age => self.path(&format!("x.{age}")),
        };
        if name(KEPT).exists() {
            std::fs::remove_file(name(KEPT)).expect("is removed");
        }
        for age in (0..KEPT).rev().filter(|age| name(*age).exists()) {
            std::fs::rename(name(age), name(age + 1)).expect("is renamed");
        }
    }
}

/// Scenario: a gateway refuses everything for an hour, while files are rotated and removed.
/// Guarantee: no memory for requests is held, and no more files than configured; then all lines
/// come once, but for files that were removed beyond that number: they are counted, to the byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_hour_of_refusals_costs_only_files_beyond_the_stated_number() {
    let engine = Engine::default();
    engine.is_closed.store(true, Ordering::SeqCst);
    // As many as the longest that the engine lets a request wait for memory.
    engine.refuses_after_ms.store(2, Ordering::SeqCst);
    let options = format!("exclude: ['**/x.*'], max_concurrent_files: {OPEN_MAX}");
    let scene = Scene::start_at(RATE, &options, engine).await;
    let began = Instant::now();
    let (mut total, mut most_open) = (0, 0);
    for rotation in 0..=ROTATIONS {
        let text: String = (total..total + LINES).map(line).collect();
        total += LINES;
        scene.append("x", &text);
        until("the file is open", || scene.is_open()).await;
        most_open = most_open.max(scene.counters.open_files.load(Ordering::Relaxed));
        if rotation < ROTATIONS {
            scene.rotate();
        }
        let due = OUTAGE / RATE * (rotation as u32 + 1) / (ROTATIONS as u32 + 1);
        tokio::time::sleep(due.saturating_sub(began.elapsed())).await;
        assert_eq!(scene.engine.memory_bytes.load(Ordering::SeqCst), 0);
    }
    assert!(began.elapsed() * RATE >= OUTAGE);
    assert_eq!((scene.engine.count(), most_open <= OPEN_MAX as u64), (0, true), "{most_open} open");
    let lost = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed) as usize;
    let lost_files = lost(&scene.counters.lost_files);
    // Those with a name are opened when their turn comes.
    let followed = OPEN_MAX / 2 + KEPT;
    assert!((ROTATIONS - followed..ROTATIONS - OPEN_MAX / 2 + 1).contains(&lost_files));
    scene.engine.is_closed.store(false, Ordering::SeqCst);
    scene.until_lines(total - lost_files * LINES).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let lines = scene.engine.lines();
    assert_eq!(lines.len(), total - lost_files * LINES);
    assert!(lines.values().all(|times| *times == 1), "some are doubled");
    let missing = (0..total).filter(|number| !lines.contains_key(line(*number).trim_end()));
    let missing_bytes: usize = missing.map(|number| line(number).len()).sum();
    assert_eq!(lost(&scene.counters.lost_bytes), missing_bytes);
    assert_eq!(lost(&scene.counters.lost_files), lost_files);
    let peak_bytes = scene.engine.peak_bytes.load(Ordering::SeqCst);
    assert!(peak_bytes < 1 << 20, "{peak_bytes} bytes for one request at a time");
}
