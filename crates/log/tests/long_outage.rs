//! A backend that is dead for a long outage: 100 GiB in segments of 64 MiB are 1,600 files. Here
//! each has the least length that a segment can have. The cost of opening must depend neither on
//! their number nor on their length.

mod support;

use std::time::{Duration, Instant};

use sluice_log::{Keep, Log, OpenOptions};
use support::calls::{Counts, Operation};
use support::faulty_disk::FaultyDisk;
use support::note::*;

/// The least length: a header, frames, a footer.
const SEGMENT_BYTES: u64 = 3 * 4096;
/// Length of a frame: two of them fill a segment.
const FRAME_LEN: usize = 1500;

fn small_segments(disk: &FaultyDisk) -> OpenOptions {
    OpenOptions {
        segment_bytes: SEGMENT_BYTES,
        keep_interval: Duration::from_secs(1),
        ..options(disk)
    }
}

/// A log with this many segments, of which the reader `dead` has resolved nothing. Returns the
/// number of its frames.
fn fill(disk: &FaultyDisk, segments: u64) -> u64 {
    let (log, _) = Log::<Note>::open(small_segments(disk)).expect("the log opens");
    let (dead, well) = (subscribe(&log, "dead"), subscribe(&log, "well"));
    let durable = Durable::default();
    let mut frames = 0;
    let mut add = |count| {
        for _ in 0..count {
            append(&log, frames, FRAME_LEN, &[dead, well], &durable);
            frames += 1;
        }
        wait_durable(&durable, frames as usize);
        while let Some((offset, _)) = next(&log, well) {
            log.resolve(well, offset);
        }
        frames
    };
    while log.stats().segments < segments {
        add(8);
    }
    // A round that began before may store each of the two cursors as it was then. The third write
    // belongs to a later round.
    for _ in 0..2 {
        let before = log.stats().cursor_writes;
        add(1);
        wait_until("a cursor is stored", || log.stats().cursor_writes > before);
    }
    let before = log.stats().cursor_writes;
    let frames = add(1);
    wait_until("the cursors are stored", || log.stats().cursor_writes > before);
    frames
}

/// Opens a log after a crash. Returns the calls of the disk and the time that it took.
fn open_after_crash(disk: &FaultyDisk) -> (Log<Note>, Counts, Duration) {
    disk.reset_counts();
    let began = Instant::now();
    let (log, _) = Log::<Note>::open(small_segments(disk)).expect("the log opens");
    let took = began.elapsed();
    (log, disk.counts(), took)
}

fn reads(counts: &Counts) -> u64 {
    counts.calls.get(&Operation::Read).copied().unwrap_or(0)
}

/// Guarantee: the reads of a start after a crash do not grow with the backlog. After the start the
/// whole backlog is read, in order.
#[test]
fn opening_a_long_backlog_reads_no_more_than_opening_a_short_one() {
    let short = FaultyDisk::new(1);
    fill(&short, 16);
    let (log, of_short, _) = open_after_crash(&short.kill_process());
    drop(log);

    let long = FaultyDisk::new(2);
    let frames = fill(&long, 1_600);
    let (log, of_long, took) = open_after_crash(&long.kill_process());
    let stats = log.stats();
    println!(
        "{} segments: open after {took:?}, {} reads of {} bytes",
        stats.segments,
        reads(&of_long),
        of_long.read_bytes
    );
    assert!(stats.segments >= 1_600, "{stats:?}");
    // Frames appended since the cursors were last stored are scanned: some segments more or less.
    let slack = 64;
    assert!(
        reads(&of_long) <= reads(&of_short) + slack,
        "{} and {} reads",
        reads(&of_long),
        reads(&of_short)
    );
    assert!(
        of_long.read_bytes <= of_short.read_bytes + slack * SEGMENT_BYTES,
        "{of_long:?} {of_short:?}"
    );

    let (dead, well) = (subscribe(&log, "dead"), subscribe(&log, "well"));
    assert_eq!(log.held(dead).frames, frames);
    assert!(log.held(well).frames < slack, "what it had not stored");
    let mut expected = 0;
    while let Some((offset, note)) = next(&log, dead) {
        assert_eq!(note.value, expected, "in order and whole");
        expected += 1;
        log.resolve(dead, offset);
    }
    assert_eq!(expected, frames);
    log.unsubscribe(well, Keep::Nothing);
    wait_until("the space is free again", || log.stats().segments <= 1);
}

/// Guarantee: a reader that takes nothing costs the log no memory, however long its backlog is.
#[test]
fn a_long_backlog_is_on_disk_only() {
    let disk = FaultyDisk::new(3);
    let memory_limit_bytes = 64 << 10;
    let options = OpenOptions { memory_limit_bytes, ..small_segments(&disk) };
    let (log, _) = Log::<Note>::open(options).expect("the log opens");
    let dead = subscribe(&log, "dead");
    let durable = Durable::default();
    for value in 0..4_000 {
        append(&log, value, FRAME_LEN, &[dead], &durable);
        if value % 32 == 31 {
            wait_durable(&durable, value as usize + 1);
            wait_until("memory within its limit", || log.stored_bytes() <= memory_limit_bytes);
        }
    }
    let charge = Note::new(0, FRAME_LEN, &Durable::default()).charge();
    assert_eq!(log.held(dead).bytes, 4_000 * charge.bytes);
}
