//! The cost of ten thousand files: a process of its own, so that its memory is that of the files.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sluice_tail::{Boundary, Charset, Compression, Glob, Options, Splitter, Tail, Turn};

const FILES: usize = 10_000;
const WINDOW_BYTES: usize = sluice_tail::WINDOW_BYTES;
/// Bytes of a file that is read to its end, with its path of 96 bytes and two directories.
const FILE_BYTES: usize = 500;
/// Bytes of a file more while all files are looked at.
const LOOK_BYTES: usize = 160;

/// The allocator counts for one test at a time.
static ALONE: Mutex<()> = Mutex::new(());
/// Bytes that are allocated, and the most since that was set.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counted;

#[global_allocator]
static ALLOCATOR: Counted = Counted;

// SAFETY: the system's allocator does all of it.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(live, Ordering::Relaxed);
        // SAFETY: as the caller assures.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller assures.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Bytes that are allocated, beyond those before.
fn live_since(before: usize) -> usize {
    LIVE.load(Ordering::Relaxed).saturating_sub(before)
}

fn options(folder: &Path) -> Options {
    Options {
        include: vec![Glob::new(&format!("{}/*/*/*.log", folder.display())).expect("a pattern")],
        exclude: Vec::new(),
        exclude_older_than: None,
        ordering: None,
        starts_at_end: false,
        head_bytes: 1000,
        max_open: 512,
        poll_interval: Duration::from_millis(200),
        watches: true,
        flush_after: Duration::from_millis(500),
        splitter: Splitter {
            boundary: Boundary::LineFeed,
            charset: Charset::Utf8,
            max_bytes: 1 << 20,
            truncates: false,
            keeps_leading: false,
            keeps_trailing: false,
        },
        compression: Compression::None,
        deletes_after: None,
        locks: false,
    }
}

/// Reads what there is. Returns lines and bytes.
fn read(tail: &mut Tail) -> (usize, usize) {
    let now = Instant::now();
    tail.look(now);
    let (mut lines, mut bytes) = (0, 0);
    while let Some(id) = tail.next(now) {
        let Some(id) = tail.turn(id, now) else { continue };
        while tail.fill(id, WINDOW_BYTES, now) == Turn::Lines {
            tail.begin_range(id);
            while let Some(line) = tail.line(id) {
                (lines, bytes) = (lines + 1, bytes + line.text.len() + 1);
            }
            let end = tail.end_range(id);
            tail.resolved(id, end);
        }
        tail.end_turn(id, true);
    }
    (lines, bytes)
}

/// The directory of a container, as the kubelet names it.
fn directory(folder: &Path, index: usize) -> PathBuf {
    folder.join(format!("namespace_pod-{index}_0f3c8a52-7d1e-4f60-9b1a-{index:012}/container"))
}

/// Scenario: ten thousand files with a few lines each, each in directories of its own; later one
/// grows. Guarantee: each takes few bytes, also while all are looked at, few files are open, and
/// while nothing changes there is nothing to do.
#[test]
fn ten_thousand_files_take_little_memory_and_no_time() {
    let _alone = ALONE.lock();
    // In memory: a disk may take a minute to remove as many directories that were watched.
    let in_memory = tempfile::tempdir_in("/dev/shm");
    let folder = in_memory.or_else(|_| tempfile::tempdir()).expect("a folder");
    for index in 0..FILES {
        let directory = directory(folder.path(), index);
        fs::create_dir_all(&directory).expect("is made");
        let text = format!("file {index}\n").repeat(20);
        fs::write(directory.join("0.log"), text).expect("is written");
    }
    let before = LIVE.load(Ordering::Relaxed);
    let mut tail = Tail::new(options(folder.path()), None, Instant::now());
    assert_eq!(read(&mut tail).0, FILES * 20);
    // The directories' watches are new: files are looked for once more.
    std::thread::sleep(Duration::from_millis(300));
    MOST.store(0, Ordering::Relaxed);
    assert_eq!(read(&mut tail).0, 0);
    let live = live_since(before);
    let most = MOST.load(Ordering::Relaxed).saturating_sub(before + live);
    println!("{} bytes for a file, {} more for a look", live / FILES, most / FILES);
    assert!(live <= FILES * FILE_BYTES, "{} bytes for a file", live / FILES);
    assert!(most <= FILES * LOOK_BYTES, "{} more for a look", most / FILES);
    assert!(tail.open_files() <= 512 && tail.present_files() == FILES);
    let idle = tail.next_due().saturating_duration_since(Instant::now());
    assert!(idle > Duration::from_secs(10), "something to do in {idle:?}");
    let text = "file 500\n".repeat(20) + "one more\n";
    fs::write(directory(folder.path(), 500).join("0.log"), text).expect("is written");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(read(&mut tail).0, 1, "only what is new");
    assert_eq!(tail.known().len(), FILES);
}

/// Says how fast lines are cut off. Of interest in a release build only.
#[test]
#[ignore = "measures"]
fn measure_reading() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().expect("a folder");
    let line =
        "2026-01-01T00:00:00Z INFO request handled path=/api/items status=200 duration=12ms\n";
    fs::write(folder.path().join("a.log"), line.repeat(5_000_000)).expect("is written");
    for _ in 0..3 {
        let mut tail = Tail::new(options(folder.path()), None, Instant::now());
        let start = Instant::now();
        let (lines, bytes) = read(&mut tail);
        let seconds = start.elapsed().as_secs_f64();
        println!("{lines} lines, {:.2} GB/s", bytes as f64 / seconds / 1e9);
    }
}
