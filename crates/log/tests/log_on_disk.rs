//! A log with segment files behind its memory tail: durable frames come back, and frames that no
//! reader needs cost nothing.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_log::disk::RealDisk;
use sluice_log::{Keep, Log, Next, OpenOptions, Subscription};
use support::faulty_disk::{FaultyDisk, Operation, Unsynced};
use support::note::*;

#[test]
fn what_is_durable_is_read_again_after_a_power_cut_in_order_with_its_offsets() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let (a, b) = (subscribe(&log, "a"), subscribe(&log, "b"));
    append_durable(&log, 0..1000, 300, &[a, b]);
    assert!(log.stats().segments > 3, "the test is about several segments");
    let disk = disk.cut_power(Unsynced::Lost);
    drop(log);

    let (log, recovered) = open(&disk);
    assert_eq!(recovered.cursors, 2);
    for name in ["a", "b"] {
        let id = subscribe(&log, name);
        assert_eq!(log.held(id).frames, 1000);
        let read = read_all(&log, id);
        assert_eq!(values(&read), (0..1000).collect::<Vec<_>>());
        assert!(read.iter().all(|(offset, value)| offset == value));
        assert_eq!((log.held(id).frames, log.leased(id).frames), (1000, 1000));
    }
}

#[test]
fn while_readers_keep_pace_nothing_is_written_and_no_system_call_made() {
    let disk = FaultyDisk::new(1);
    let options = OpenOptions {
        flush_after: Duration::from_secs(3),
        memory_limit_bytes: 1 << 20,
        ..options(&disk)
    };
    let (log, _) = Log::<Note>::open(options).unwrap();
    let id = subscribe(&log, "a");
    disk.reset_counts();
    let durable = Durable::default();
    for value in 0..20_000 {
        append(&log, value, 100, &[id], &durable);
        let (offset, note) = next(&log, id).unwrap();
        assert_eq!(note.value, value);
        assert!(log.resolve(id, offset));
    }
    assert_eq!(log.close(PATIENCE).frames, 0);
    assert_eq!((disk.counts().total(), durable.lock().len()), (0, 0));
    assert_eq!(log.stats().frames_written, 0);
}

#[test]
fn a_frame_that_waits_is_written_with_its_neighbours_and_once_for_all_its_readers() {
    let disk = FaultyDisk::new(1);
    let options = OpenOptions {
        flush_after: Duration::from_millis(20),
        memory_limit_bytes: 1 << 20,
        ..options(&disk)
    };
    let (log, _) = Log::<Note>::open(options).unwrap();
    let ids = [subscribe(&log, "a"), subscribe(&log, "b"), subscribe(&log, "c")];
    append_durable(&log, 0..100, 100, &ids);
    let stats = log.stats();
    assert_eq!(stats.frames_written, 100);
    // The first commit may have begun while the last frames were appended.
    assert!(stats.commits <= 2, "{stats:?}");
    // The first frame is still in memory.
    assert!(ids.iter().all(|&id| matches!(log.read(id), Next::Entry(0, _))));
}

#[test]
fn what_a_reader_lags_with_is_evicted_from_memory_and_read_from_disk() {
    let disk = FaultyDisk::new(1);
    let options =
        OpenOptions { memory_limit_bytes: 10_000, read_ahead_bytes: 5_000, ..options(&disk) };
    let (log, _) = Log::<Note>::open(options).unwrap();
    let (slow, quick) = (subscribe(&log, "slow"), subscribe(&log, "quick"));
    let durable = Durable::default();
    for value in 0..2000 {
        append(&log, value, 100, &[slow, quick], &durable);
        let (offset, note) = next(&log, quick).unwrap();
        assert_eq!(note.value, value);
        log.resolve(quick, offset);
    }
    wait_durable(&durable, 2000);
    wait_until("memory within its limit", || log.stored_bytes() <= 10_000);
    assert_eq!(log.held(slow).frames, 2000);
    let read = read_all(&log, slow);
    assert_eq!(values(&read), (0..2000).collect::<Vec<_>>());
    assert!(log.stats().frames_read > 1000);
    for (offset, _) in read {
        assert!(log.resolve(slow, offset));
        assert!(!log.resolve(slow, offset));
    }
    assert_eq!(log.held(slow), Default::default());
    wait_until("no full segment left", || log.stats().segments <= 1);
}

/// Scenario: the backends of many readers are down, and each frame exceeds a reader's limits.
/// Guarantee: after a start a frame is in memory once, none is read ahead of it, and each reader
/// goes on.
#[test]
fn readers_that_are_down_together_hold_a_large_frame_once() {
    const READERS: usize = 30;
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let names: Vec<String> = (0..READERS).map(|index| index.to_string()).collect();
    let ids: Vec<_> = names.iter().map(|name| subscribe(&log, name)).collect();
    append_durable(&log, 0..5, 200_000, &ids);

    let disk = disk.kill_process();
    let options = OpenOptions { read_ahead_bytes: 1_000, ..options(&disk) };
    let (log, _) = Log::<Note>::open(options).unwrap();
    let subscribe =
        |name| log.subscribe(Subscription { lease_limit_bytes: 1_000, ..Subscription::new(name) });
    let ids: Vec<_> = names.iter().map(subscribe).collect();
    disk.reset_counts();
    let held: Vec<_> = ids.iter().map(|&id| next(&log, id).expect("the first one").1).collect();
    assert!(held.iter().all(|note| Arc::ptr_eq(note, &held[0])));
    // Gives the reader thread time to run.
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(log.stats().frames_read, READERS as u64);
    let read_bytes = disk.counts().read_bytes;
    assert!(read_bytes < READERS as u64 * 200_000, "{read_bytes} bytes were read");
    drop(held);
    for id in ids {
        assert!(log.resolve(id, 0));
        for value in 1..5 {
            let (offset, note) = next(&log, id).expect("it goes on");
            assert_eq!(note.value, value);
            assert!(log.resolve(id, offset));
        }
    }
}

#[test]
fn how_much_is_read_ahead_can_be_changed_while_a_reader_lags() {
    let disk = FaultyDisk::new(1);
    let options =
        OpenOptions { memory_limit_bytes: 10_000, read_ahead_bytes: 100_000, ..options(&disk) };
    let (log, _) = Log::<Note>::open(options).unwrap();
    let slow = subscribe(&log, "slow");
    append_durable(&log, 0..2000, 100, &[slow]);
    wait_until("memory within its limit", || log.stored_bytes() <= 10_000);
    log.set_disk_limits(Duration::ZERO, 10_000, 1_000);
    assert_eq!(next(&log, slow).unwrap().1.value, 0);
    std::thread::sleep(Duration::from_millis(20));
    assert!(log.stats().frames_read <= 20, "{:?}", log.stats());
    log.set_disk_limits(Duration::ZERO, 10_000, 100_000);
    assert_eq!(next(&log, slow).unwrap().1.value, 1);
    wait_until("more is read ahead", || log.stats().frames_read > 100);
}

#[test]
fn what_was_resolved_and_stored_does_not_come_back() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    let durable = Durable::default();
    for value in 0..300 {
        append(&log, value, 300, &[id], &durable);
    }
    wait_durable(&durable, 300);
    let read = read_all(&log, id);
    for (offset, value) in &read {
        if value % 3 != 0 {
            log.resolve(id, *offset);
        }
    }
    log.rewind(id);
    assert_eq!(log.close(PATIENCE).frames, 0);
    drop(log);
    let (log, recovered) = open(&disk.kill_process());
    assert_eq!(
        recovered.bytes_scanned, 0,
        "after a clean end nothing has to be looked at but the newest: {recovered:?}"
    );
    let id = subscribe(&log, "a");
    assert_eq!(log.held(id).frames, 100);
    assert_eq!(
        values(&read_all(&log, id)),
        (0..300).filter(|value| value % 3 == 0).collect::<Vec<_>>()
    );
    assert_eq!(append(&log, 1, 1, &[id], &durable), 300, "offsets go on");
}

#[test]
fn the_end_writes_what_is_unresolved_and_says_what_it_could_not() {
    let disk = FaultyDisk::new(1);
    let options = OpenOptions {
        flush_after: Duration::from_secs(3600),
        memory_limit_bytes: 1 << 20,
        ..options(&disk)
    };
    let (log, _) = Log::<Note>::open(options.clone()).unwrap();
    let id = subscribe(&log, "a");
    let durable = Durable::default();
    for value in 0..10 {
        append(&log, value, 300, &[id], &durable);
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(log.stats().frames_written, 0);
    assert_eq!(log.close(PATIENCE).frames, 0);
    assert_eq!(durable.lock().len(), 10);
    drop(log);

    let (log, _) = Log::<Note>::open(options).unwrap();
    let id = subscribe(&log, "a");
    // The frame may be due at once: its reader lags.
    disk.fail_operation(Operation::Allocate, support::faulty_disk::no_space);
    append(&log, 10, 300, &[id], &Durable::default());
    assert_eq!(log.close(Duration::from_millis(300)).frames, 1);
    assert!(log.trouble().is_some_and(|trouble| trouble.out_of_space));
}

#[test]
fn a_reader_that_is_gone_keeps_its_backlog_as_an_orphan_until_it_comes_back_or_is_forgotten() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let (stays, goes, ends) =
        (subscribe(&log, "stays"), subscribe(&log, "goes"), subscribe(&log, "ends"));
    append_durable(&log, 0..100, 100, &[stays, goes, ends]);
    let (first, _) = next(&log, goes).unwrap();
    log.resolve(goes, first);
    assert_eq!(log.unsubscribe(goes, Keep::Backlog).frames, 0);
    assert_eq!(log.unsubscribe(ends, Keep::Nothing).frames, 100);
    let orphans = log.orphans();
    assert_eq!(orphans.len(), 1);
    assert_eq!((orphans[0].name.as_str(), orphans[0].held.frames), ("goes", 99));
    log.close(PATIENCE);
    drop(log);

    let (log, _) = open(&disk);
    let names: Vec<_> =
        log.orphans().into_iter().map(|orphan| (orphan.name, orphan.held.frames)).collect();
    assert_eq!(names, [("goes".to_owned(), 99), ("stays".to_owned(), 100)]);
    let goes = subscribe(&log, "goes");
    assert_eq!(values(&read_all(&log, goes)), (1..100).collect::<Vec<_>>());
    assert_eq!(log.forget("goes"), None, "it has a subscriber");
    assert_eq!(log.forget("stays").map(|held| held.frames), Some(100));
    assert_eq!(log.unsubscribe(goes, Keep::Nothing).frames, 99);
    wait_until("no segments", || log.stats().segments == 0);
    log.close(PATIENCE);
    drop(log);
    let (log, recovered) = open(&disk);
    assert_eq!((recovered.cursors, log.orphans().len()), (0, 0));
}

#[test]
fn frames_on_disk_only_are_dropped_to_the_budget_with_exact_counts_and_a_gap_that_survives() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let woken = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let wake = woken.clone();
    let id = log.subscribe(Subscription {
        wake: Arc::new(move || {
            wake.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }),
        ..Subscription::new("a")
    });
    let other = subscribe(&log, "other");
    let durable = Durable::default();
    for value in 0..1000 {
        let for_both = [other, id];
        append(&log, value, 100, &for_both[..1 + usize::from(value % 2 == 0)], &durable);
    }
    wait_durable(&durable, 1000);
    wait_until("nothing in memory", || log.stored_bytes() == 0);
    let leased = next(&log, id).unwrap();
    // Each frame is charged 200 bytes.
    log.set_limits(id, 100 * 200, u64::MAX);
    let (mut dropped, entries) = log.drop_oldest_unread(id);
    assert!(entries.iter().all(|given_up| given_up.entry.value > 0));
    wait_until("within the budget", || !log.gauges(id).is_over_budget());
    dropped.add(log.take_dropped(id));
    assert!(woken.load(std::sync::atomic::Ordering::SeqCst) > 0);
    assert_eq!((dropped.frames, log.held(id).frames, log.held(id).bytes), (400, 100, 20_000));
    assert_eq!(log.dropped_total(id), dropped);
    assert_eq!(log.held(other).frames, 1000);
    log.resolve(id, leased.0);
    let read = read_all(&log, id);
    assert_eq!(values(&read), (401..500).map(|index| index * 2).collect::<Vec<_>>());
    log.rewind(id);
    log.close(PATIENCE);
    drop(log);

    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    assert_eq!(log.dropped_total(id), dropped);
    let dropped_ranges = log.dropped_ranges(id);
    assert_eq!(dropped_ranges.iter().map(|range| range.dropped.frames).sum::<u64>(), 400);
    assert_eq!((dropped_ranges[0].start, dropped_ranges[dropped_ranges.len() - 1].end), (1, 801));
    assert_eq!(values(&read_all(&log, id)), (401..500).map(|index| index * 2).collect::<Vec<_>>());
}

#[test]
fn a_real_disk_keeps_what_a_faulty_one_keeps() {
    let directory = tempfile::tempdir().unwrap();
    let options = || OpenOptions {
        segment_bytes: 1 << 20,
        memory_limit_bytes: 0,
        flush_after: Duration::ZERO,
        ..OpenOptions::new(Arc::new(RealDisk), directory.path().join("traces"), "traces")
    };
    let (log, _) = Log::<Note>::open(options()).unwrap();
    let id = subscribe(&log, "a");
    append_durable(&log, 0..3000, 1000, &[id]);
    drop(log);
    let (log, _) = Log::<Note>::open(options()).unwrap();
    let id = subscribe(&log, "a");
    let read = read_all(&log, id);
    assert_eq!(values(&read), (0..3000).collect::<Vec<_>>());
    for (offset, _) in read {
        log.resolve(id, offset);
    }
    wait_until("no segment left", || log.stats().segments == 0);
    log.close(PATIENCE);
    let left = std::fs::read_dir(directory.path().join("traces")).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| name == "cursors" || name == "cursors.list"), "{left:?}");
}

/// Guarantee: a write of a cursor is a sync, which delays acknowledgements. The cursor of a dead
/// backend, which only falls behind, is written once two segments have begun since the last write.
#[test]
fn a_reader_that_only_falls_behind_is_written_where_segments_begin() {
    let disk = FaultyDisk::new(1);
    let (log, _) =
        Log::<Note>::open(OpenOptions { segment_bytes: 1 << 20, ..options(&disk) }).unwrap();
    let (dead, durable) = (subscribe(&log, "dead"), Durable::default());
    let mut value = 0;
    let mut add = |len| {
        append(&log, value, len, &[dead], &durable);
        value += 1;
        wait_durable(&durable, value as usize);
    };
    add(100);
    wait_until("the new cursor is written", || log.stats().cursor_writes >= 1);
    let (began, before) = (Instant::now(), log.stats().cursor_writes);
    while began.elapsed() < 30 * options(&disk).keep_interval {
        add(100);
        std::thread::sleep(options(&disk).keep_interval / 2);
    }
    assert_eq!(log.stats().segments, 1, "the test is about one segment");
    let written = log.stats().cursor_writes - before;
    assert!(written <= 2, "{written} times in about 30 rounds");
    let before = log.stats().cursor_writes;
    while log.stats().segments < 3 {
        add(100_000);
    }
    wait_until("it is written in the third segment", || log.stats().cursor_writes > before);
}

/// Guarantee: a segment that no reader needs takes no space: none of them has it open.
#[cfg(target_os = "linux")]
#[test]
fn a_removed_segment_is_not_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("traces");
    let options = OpenOptions {
        memory_limit_bytes: 0,
        flush_after: Duration::ZERO,
        keep_interval: Duration::from_millis(5),
        ..OpenOptions::new(Arc::new(RealDisk), &path, "traces")
    };
    let log: Log<Note> = Log::open(options).unwrap().0;
    let id = subscribe(&log, "a");
    append_durable(&log, 0..10, 1_000, &[id]);
    wait_evicted(&log, 10);
    let read = read_all(&log, id);
    let open_files = || {
        let files = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
        let files = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        files
            .filter(|file| file.starts_with(&path) && file.to_string_lossy().contains(".seg"))
            .count()
    };
    assert!(open_files() > 1, "the writer and the reader have it open");
    read.iter().for_each(|(offset, _)| assert!(log.resolve(id, *offset)));
    wait_until("it is closed", || open_files() == 0);
}
