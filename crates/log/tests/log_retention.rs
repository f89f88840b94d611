//! Space on disk is freed, whatever pins it, and a start looks at a small part of it.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluice_log::{Keep, Log, OpenOptions, Recovered};
use support::faulty_disk::{FaultyDisk, Operation, Unsynced};
use support::note::*;

#[test]
fn a_few_frames_that_wait_pin_about_their_own_size_and_survive_being_written_anew() {
    for seed in 0..6 {
        let disk = FaultyDisk::new(seed);
        let (log, _) = open(&disk);
        let id = subscribe(&log, "a");
        let durable = Durable::default();
        let mut waits = BTreeSet::new();
        for round in 0..30 {
            for index in 0..50 {
                append(&log, round * 50 + index, 1000, &[id], &durable);
            }
            wait_durable(&durable, (round as usize + 1) * 50);
            for (offset, value) in read_all(&log, id) {
                if value % 75 == 0 {
                    waits.insert(value);
                } else {
                    log.resolve(id, offset);
                }
            }
        }
        assert_eq!(waits.len(), 20);
        // 20 frames of 1.1 kB, and the open segment.
        wait_until("little space", || log.stats().disk_bytes <= 3 * (64 << 10));
        assert!(log.stats().rewrites > 0);
        let disk = if seed % 2 == 0 {
            log.rewind(id);
            log.close(PATIENCE);
            disk
        } else {
            disk.cut_power(if seed == 1 { Unsynced::Lost } else { Unsynced::Garbage })
        };
        drop(log);
        let (log, _) = open(&disk);
        let id = subscribe(&log, "a");
        let read: BTreeSet<u64> = values(&read_all(&log, id)).into_iter().collect();
        assert!(read.is_superset(&waits), "{waits:?} {read:?}");
        if seed % 2 == 0 {
            assert_eq!(read, waits);
        }
    }
}

#[test]
fn a_reader_that_is_dead_pins_its_own_frames_and_not_those_of_others() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let (dead, alive) = (subscribe(&log, "dead"), subscribe(&log, "alive"));
    let durable = Durable::default();
    let mut for_dead = Vec::new();
    for round in 0..40u64 {
        append(&log, round * 50, 100, &[dead], &durable);
        for_dead.push(round * 50);
        for index in 1..50 {
            append(&log, round * 50 + index, 1000, &[alive], &durable);
        }
        wait_durable(&durable, (round as usize + 1) * 50);
        for (offset, _) in read_all(&log, alive) {
            log.resolve(alive, offset);
        }
    }
    // 2.1 MB were written, of which 8 kB are wanted.
    wait_until("little space", || log.stats().disk_bytes <= 4 * (64 << 10));
    assert_eq!(values(&read_all(&log, dead)), for_dead);
}

/// Scenario: each commit has one small frame and fills a block; one reader resolves hardly any,
/// and memory has room for all. Guarantee: the backlog soon takes little more disk than its charge,
/// and is all there after a restart.
#[test]
fn small_commits_of_a_backlog_take_little_more_than_their_charge() {
    const FRAMES: u64 = 1_000;
    for seed in 0..4 {
        let disk = FaultyDisk::new(seed);
        let in_memory = OpenOptions { memory_limit_bytes: 64 << 20, ..options(&disk) };
        let (log, _) = Log::<Note>::open(in_memory).expect("the log opens");
        let (dead, alive) = (subscribe(&log, "dead"), subscribe(&log, "alive"));
        let durable = Durable::default();
        let mut taken = 0;
        for value in 0..FRAMES {
            append(&log, value, 100, &[dead, alive], &durable);
            wait_durable(&durable, value as usize + 1);
            for (offset, _) in read_all(&log, alive) {
                log.resolve(alive, offset);
            }
            if value % 7 == 0 {
                let (offset, _) = next(&log, dead).expect("it waits");
                log.resolve(dead, offset);
                taken += 1;
            }
        }
        let held = log.held(dead);
        assert_eq!((log.stats().frames_evicted, held.frames), (0, FRAMES - taken));
        // Each commit wrote a block. Each file that took the place of others has a header; how many
        // there are depends on when files were rewritten.
        assert_eq!(log.stats().bytes_written, FRAMES * 4096);
        wait_until("little space", || log.stats().disk_bytes <= 4 * held.bytes);
        assert!(log.stats().rewrites > 0, "{:?}", log.stats());
        let disk = if seed % 2 == 0 {
            log.close(PATIENCE);
            disk
        } else {
            disk.cut_power(Unsynced::Lost)
        };
        drop(log);
        let (log, _) = open(&disk);
        let dead = subscribe(&log, "dead");
        let read = read_all(&log, dead);
        let waiting = |(_, value): &&(u64, u64)| *value >= taken;
        let values = values(&read.iter().filter(waiting).copied().collect::<Vec<_>>());
        assert_eq!(values, (taken..FRAMES).collect::<Vec<_>>());
        // The last progress of the other one may be forgotten.
        let alive = subscribe(&log, "alive");
        let read_again = read_all(&log, alive);
        for (id, offset) in read
            .iter()
            .map(|(offset, _)| (dead, *offset))
            .chain(read_again.iter().map(|(offset, _)| (alive, *offset)))
        {
            log.resolve(id, offset);
        }
        wait_until("no files", || log.stats().segments <= 1);
    }
}

fn open_large(disk: &FaultyDisk) -> (Log<Note>, Recovered) {
    Log::open(OpenOptions { segment_bytes: 256 << 10, ..options(disk) }).unwrap()
}

#[test]
fn after_crashes_small_segments_become_few() {
    let mut disk = FaultyDisk::new(1);
    let mut all = Vec::new();
    for round in 0..30 {
        let (log, _) = open_large(&disk);
        let id = subscribe(&log, "a");
        let durable = Durable::default();
        append(&log, round, 100, &[id], &durable);
        all.push(round);
        wait_durable(&durable, 1);
        disk = disk.cut_power(Unsynced::Garbage);
    }
    let (log, recovered) = open_large(&disk);
    assert!(recovered.segments <= 30);
    wait_until("few files", || log.stats().segments <= 4);
    assert_eq!(values(&read_all(&log, subscribe(&log, "a"))), all);
    wait_until("what dead processes reserved is given back", || disk.used_bytes() < 300_000);
}

#[test]
fn a_start_looks_at_the_newest_segments_only_however_many_there_are() {
    let disk = FaultyDisk::new(1);
    let options = OpenOptions { segment_bytes: 16 << 10, ..options(&disk) };
    let (log, _) = Log::<Note>::open(options.clone()).unwrap();
    let (a, _b) = (subscribe(&log, "a"), subscribe(&log, "b"));
    let durable = Durable::default();
    for value in 0..16_000 {
        append(&log, value, 1000, &[a], &durable);
        if value % 100 == 0 {
            wait_durable(&durable, value as usize);
        }
    }
    wait_durable(&durable, 16_000);
    // Gives the maintenance thread time to write the cursors.
    std::thread::sleep(Duration::from_millis(50));
    let segments = log.stats().segments;
    assert!(segments > 1000, "{segments}");
    let disk = disk.cut_power(Unsynced::Lost);
    drop(log);
    disk.reset_counts();
    let started = std::time::Instant::now();
    let (log, recovered) =
        Log::<Note>::open(OpenOptions { disk: std::sync::Arc::new(disk.clone()), ..options })
            .unwrap();
    println!("opened {segments} segments in {:?}: {recovered:?}", started.elapsed());
    assert_eq!(log.held(subscribe(&log, "a")).frames, 16_000);
    assert!(recovered.bytes_scanned <= 20 * (16 << 10), "{recovered:?}");
    let counts = disk.counts();
    let reads = counts.of(Operation::Read) + counts.of(Operation::Open);
    assert!(
        reads < 200 && counts.read_bytes < 2 << 20,
        "{reads} calls, {} bytes",
        counts.read_bytes
    );
}

#[test]
fn the_files_of_an_idle_log_are_given_back_and_an_old_reader_is_dated() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    let durable = Durable::default();
    append(&log, 0, 100, &[id], &durable);
    wait_durable(&durable, 1);
    log.close(PATIENCE);
    drop(log);
    let (log, _) = open(&disk);
    // Every note was received a nanosecond after 1970.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    wait_until("dated", || log.orphans()[0].oldest_age.is_some_and(|age| age >= since));
    let id = subscribe(&log, "a");
    assert!(log.oldest_age(id).is_some_and(|age| age >= since));
    let (offset, _) = next(&log, id).unwrap();
    log.resolve(id, offset);
    append(&log, 1, 100, &[id], &durable);
    wait_durable(&durable, 2);
    let (offset, _) = next(&log, id).unwrap();
    log.resolve(id, offset);
    assert_eq!(log.oldest_age(id), None);
    wait_until("no segment, although the last one is not full", || log.stats().segments == 0);
    let is_cursors = |path: &Path| path.to_string_lossy().contains("cursors");
    wait_until("only files of cursors are left", || {
        disk.contents().iter().all(|(path, _)| is_cursors(path))
    });
}

/// Scenario: a reader leaves that has resolved all frames which another one still needs. Guarantee:
/// its cursor stays as long as segments may name it, also over a restart, and no longer. No frame
/// is kept for it.
#[test]
fn what_is_known_of_a_reader_that_left_goes_with_the_segments_that_name_it() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let (stays, goes) = (subscribe(&log, "stays"), subscribe(&log, "goes"));
    let durable = Durable::default();
    append(&log, 0, 100, &[stays, goes], &durable);
    wait_durable(&durable, 1);
    let (offset, _) = next(&log, goes).unwrap();
    log.give_up(goes, offset);
    assert_eq!(log.unsubscribe(goes, Keep::Backlog).frames, 0);
    let file = Path::new(DIRECTORY).join("cursors").join("goes.cursor");
    let has_file = |disk: &FaultyDisk| disk.contents().iter().any(|(path, _)| *path == file);
    for _ in 0..2 {
        let note = Arc::new(Note::new(1, 100, &Durable::default()));
        let charge = note.charge();
        assert_eq!(log.append(note, charge, &readers(&[goes])).gone, [goes]);
    }
    assert!(log.orphans().is_empty());
    log.close(PATIENCE);
    drop(log);

    let (log, recovered) = open(&disk);
    assert_eq!((recovered.cursors, log.orphans().len()), (2, 1));
    let goes = subscribe(&log, "goes");
    assert_eq!(log.dropped_total(goes).frames, 1);
    log.unsubscribe(goes, Keep::Backlog);
    let stays = subscribe(&log, "stays");
    let large = 80_000;
    append(&log, 1, large, &[stays], &durable);
    wait_durable(&durable, 2);
    assert!(has_file(&disk));
    let (offset, _) = next(&log, stays).unwrap();
    log.resolve(stays, offset);
    wait_until("nothing names it any more", || !has_file(&disk));
    assert_eq!(log.stats().segments, 1);
    assert_eq!(log.held(stays).frames, 1);
}

#[test]
fn frames_larger_than_a_segment_get_one_of_their_own() {
    let disk = FaultyDisk::new(1);
    let options = OpenOptions { flush_after: Duration::ZERO, ..options(&disk) };
    let (log, _) = Log::<Note>::open(options).unwrap();
    let id = subscribe(&log, "a");
    let durable = Durable::default();
    let lens = [10, 200_000, 10, 1_000_000, 70_000, 10];
    for (value, len) in lens.into_iter().enumerate() {
        append(&log, value as u64, len, &[id], &durable);
    }
    wait_durable(&durable, lens.len());
    let disk = disk.cut_power(Unsynced::Lost);
    drop(log);
    let (log, _) = open(&disk);
    assert_eq!(values(&read_all(&log, subscribe(&log, "a"))), (0..6).collect::<Vec<_>>());
}

/// Scenario: a reader that left has resolved all frames of a large file but those at its end.
/// Guarantee: the age of its backlog is known.
#[test]
fn a_backlog_deep_in_a_file_is_dated() {
    let disk = FaultyDisk::new(1);
    let options = OpenOptions { segment_bytes: 8 << 20, ..options(&disk) };
    let (log, _) = Log::<Note>::open(options.clone()).unwrap();
    let id = subscribe(&log, "a");
    append_durable(&log, 0..4_000, 1_000, &[id]);
    for (offset, _) in read_all(&log, id) {
        if offset < 3_900 {
            log.resolve(id, offset);
        }
    }
    log.unsubscribe(id, Keep::Backlog);
    log.close(PATIENCE);
    let (log, _) = Log::<Note>::open(options).unwrap();
    // Every note was received a nanosecond after 1970.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    wait_until("dated", || log.orphans()[0].oldest_age.is_some_and(|age| age >= since));
}

/// Guarantee: the count of what was dropped goes on after a restart, also without a backlog.
#[test]
fn the_count_of_what_was_dropped_outlives_a_restart_without_a_backlog() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let (id, durable) = (subscribe(&log, "a"), Durable::default());
    append(&log, 0, 1_000, &[id], &durable);
    wait_durable(&durable, 1);
    let (offset, _) = next(&log, id).unwrap();
    log.give_up(id, offset);
    wait_until("nothing is left", || log.stats().segments == 0);
    log.unsubscribe(id, Keep::Backlog);
    log.close(PATIENCE);
    for _ in 0..3 {
        let (log, _) = open(&disk);
        let id = subscribe(&log, "a");
        assert_eq!(log.dropped_total(id).frames, 1);
        log.unsubscribe(id, Keep::Backlog);
        log.close(PATIENCE);
    }
}
