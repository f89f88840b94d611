//! Disks that fail in one way at a time: no frame that was called durable is lost, and the log goes
//! on when the disk does.

mod support;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluice_log::{FileError, Keep, Log, OpenOptions, Sheds};
use support::faulty_disk::{
    FaultyDisk, Operation, Unsynced, input_output, no_space, too_many_open_files,
};
use support::note::*;

const ERRORS: [fn() -> io::Error; 3] = [no_space, input_output, too_many_open_files];

/// Writes, resolves, rotates and removes segments. Returns the appended values not resolved.
fn work(log: &Log<Note>, durable: &Durable) -> Vec<u64> {
    let id = subscribe(log, "a");
    let mut left = Vec::new();
    for round in 0..6 {
        for index in 0..20 {
            append(log, round * 20 + index, 1500, &[id], durable);
        }
        wait_durable(durable, (round as usize + 1) * 20);
        for (offset, value) in read_all(log, id) {
            if value % 20 == 7 {
                left.push(value);
            } else {
                log.resolve(id, offset);
            }
        }
        // Gives the maintenance thread time to run.
        std::thread::sleep(Duration::from_millis(12));
    }
    left
}

#[test]
fn whichever_call_fails_once_all_goes_on_and_nothing_durable_is_lost() {
    let disk = FaultyDisk::new(7);
    let durable = Durable::default();
    work(&open(&disk).0, &durable);
    let calls = disk.counts().total();
    assert!(disk.counts().of(Operation::Rename) > 1, "segments are written anew, too");
    assert!(calls > 60, "the workload makes {calls} calls");
    let failures = AtomicU64::new(0);
    // Most of the time is waiting, so that threads help.
    std::thread::scope(|scope| {
        for first in 0..8 {
            let failures = &failures;
            scope.spawn(move || {
                for number in (first..calls + 10).step_by(8) {
                    failures.fetch_add(work_while_one_call_fails(number), Ordering::SeqCst);
                }
            });
        }
    });
    assert!(failures.into_inner() > 20, "hardly any failure was seen");
}

/// Returns the number of failures that the log counted.
fn work_while_one_call_fails(number: u64) -> u64 {
    let disk = FaultyDisk::new(number);
    let durable = Durable::default();
    disk.fail_call(number, ERRORS[number as usize % ERRORS.len()]);
    // The process may not start on a disk that fails; it starts at the next try.
    let log = match try_open(&disk) {
        Ok((log, _)) => log,
        Err(_) => try_open(&disk).expect("only one call fails").0,
    };
    let left = work(&log, &durable);
    let failures = log.stats().failures;
    assert_eq!(durable.lock().len(), 120, "call {number}");
    let unsynced = [Unsynced::Lost, Unsynced::Mixed, Unsynced::Garbage][number as usize % 3];
    let disk = disk.cut_power(unsynced);
    drop(log);
    disk.clear_fault();
    let (log, recovered) = open(&disk);
    assert!(recovered.lost_cursors.is_empty());
    let id = subscribe(&log, "a");
    let read = values(&read_all(&log, id));
    for value in &left {
        assert!(read.contains(value), "call {number}: {value} is lost, {read:?}");
    }
    assert!(read.windows(2).all(|pair| pair[0] < pair[1]), "call {number}: once and in order");
    failures
}

/// Recovery reads a segment up to the first frame of the next file: a file that stays behind must
/// not hide frames of another.
#[test]
fn whichever_file_cannot_be_removed_hides_no_frame() {
    // The work that the maintenance thread finds to do differs from run to run.
    for _ in 0..4 {
        std::thread::scope(|scope| {
            for number in 1..=64 {
                scope.spawn(move || work_while_one_removal_fails(number));
            }
        });
    }
}

fn work_while_one_removal_fails(number: u64) {
    let disk = FaultyDisk::new(number);
    let mut removals = 0;
    disk.set_fault(move |call| {
        let is_removal = call.operation == Operation::RemoveFile;
        removals += u64::from(is_removal);
        (is_removal && removals == number).then(input_output)
    });
    let durable = Durable::default();
    let log = open(&disk).0;
    let left = work(&log, &durable);
    let disk = disk.cut_power(Unsynced::Lost);
    drop(log);
    disk.clear_fault();
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    let read = values(&read_all(&log, id));
    assert!(
        left.iter().all(|value| read.contains(value)),
        "removal {number}: {left:?} were left, {read:?}"
    );
}

#[test]
fn a_failed_sync_is_never_tried_again_on_the_same_file_and_what_it_lost_is_written_anew() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    let durable = Durable::default();
    append(&log, 0, 100, &[id], &durable);
    wait_durable(&durable, 1);
    let again = Arc::new(AtomicU64::new(0));
    let seen_again = again.clone();
    let mut failed: BTreeSet<PathBuf> = BTreeSet::new();
    let mut failures = 0;
    disk.set_fault(move |call| {
        match call.operation {
            // Another file may get the name of one that failed.
            Operation::CreateNew => drop(failed.remove(call.path)),
            Operation::SyncData
                if call.path.extension().is_some_and(|extension| extension == "seg") =>
            {
                seen_again.fetch_add(u64::from(failed.contains(call.path)), Ordering::SeqCst);
                if failures < 3 {
                    failures += 1;
                    failed.insert(call.path.to_owned());
                    return Some(input_output());
                }
            }
            _ => {}
        }
        None
    });
    for value in 1..10 {
        append(&log, value, 100, &[id], &durable);
    }
    wait_durable(&durable, 10);
    assert_eq!(log.stats().failures, 3);
    assert_eq!(
        again.load(Ordering::SeqCst),
        0,
        "a file was synced again after a sync of it had failed"
    );
    wait_until("no trouble", || log.trouble().is_none());
    let disk = disk.cut_power(Unsynced::Garbage);
    drop(log);
    let (log, _) = open(&disk);
    assert_eq!(values(&read_all(&log, subscribe(&log, "a"))), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_reader_whose_disk_cannot_be_read_waits_and_gets_all_when_it_can() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    append_durable(&log, 0..200, 1000, &[id]);
    wait_until("nothing in memory", || log.stored_bytes() == 0);
    disk.set_fault(|call| {
        let is_read = matches!(call.operation, Operation::Read | Operation::Open);
        (is_read && call.number % 3 != 0).then(input_output)
    });
    let _ = log.read(id);
    wait_until("trouble", || log.trouble().is_some());
    disk.clear_fault();
    assert_eq!(values(&read_all(&log, id)), (0..200).collect::<Vec<_>>());
    assert_eq!((log.trouble(), log.stats().frames_damaged), (None, 0));
}

#[test]
fn crashes_during_recovery_ten_times_in_a_row_change_nothing() {
    let mut disk = FaultyDisk::new(3);
    {
        let (log, _) = open(&disk);
        let id = subscribe(&log, "a");
        append_durable(&log, 0..150, 1000, &[id]);
        disk = disk.cut_power(Unsynced::Garbage);
    }
    for round in 0..10 {
        disk.reset_counts();
        let crash_at = round * 4;
        disk.set_fault(move |call| (call.number >= crash_at).then(input_output));
        let read_patience = Duration::ZERO;
        drop(Log::<Note>::open(OpenOptions { read_patience, ..options(&disk) }));
        disk.clear_fault();
        disk = disk
            .cut_power([Unsynced::Lost, Unsynced::Mixed, Unsynced::Garbage][round as usize % 3]);
    }
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    assert_eq!(values(&read_all(&log, id)), (0..150).collect::<Vec<_>>());
}

#[test]
fn a_disk_whose_syncs_do_nothing_is_seen_to_lose_what_was_durable() {
    let disk = FaultyDisk::new(1);
    disk.set_ignores_syncs(true);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    append_durable(&log, 0..50, 100, &[id]);
    let disk = disk.cut_power(Unsynced::Lost);
    drop(log);
    let read = open_fresh(&disk);
    assert!(read.len() < 50, "or these tests could not see any loss");
}

fn open_fresh(disk: &FaultyDisk) -> Vec<u64> {
    match try_open(disk) {
        Ok((log, _)) => values(&read_all(&log, subscribe(&log, "a"))),
        Err(_) => Vec::new(),
    }
}

/// Scenario: the directory of a reader's new file cannot be synced, the process is killed, and the
/// next one finds the file. Guarantee: frames that the next one calls durable survive a power cut.
#[test]
fn a_cursor_file_that_was_found_counts_when_its_name_is_durable() {
    let disk = FaultyDisk::new(1);
    let durable = Durable::default();
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    disk.fail_operation(Operation::SyncDirectory, input_output);
    append(&log, 0, 100, &[id], &durable);
    wait_until("the directory was refused", || log.trouble().is_some());
    let disk = disk.kill_process();
    drop(log);
    assert!(is_in(&disk, ".cursor") && durable.lock().is_empty());
    // If the directory cannot be synced now either, frames for its readers are not durable.
    let (log, recovered) = open(&disk);
    assert_eq!(recovered.cursors, 1);
    let id = subscribe(&log, "a");
    append(&log, 1, 100, &[id], &durable);
    wait_until("the directory was refused", || log.trouble().is_some());
    assert!(durable.lock().is_empty());
    disk.clear_fault();
    wait_durable(&durable, 1);
    let disk = disk.cut_power(Unsynced::Lost);
    drop(log);
    assert_eq!(open_fresh(&disk), [1]);
}

#[test]
fn a_newer_format_is_refused_and_its_files_stay_as_they_are() {
    let disk = FaultyDisk::new(1);
    {
        let (log, _) = open(&disk);
        let id = subscribe(&log, "a");
        append(&log, 0, 100, &[id], &Durable::default());
        wait_until("durable", || log.stats().frames_written == 1);
        log.close(PATIENCE);
    }
    let files = disk.contents();
    for (path, bytes) in &files {
        let mut newer = bytes.clone();
        match path.ends_with("cursors.list") {
            true => newer = newer_list(),
            false => make_newer(&mut newer),
        }
        disk.put(path, &newer);
        let before = disk.contents();
        assert!(matches!(try_open(&disk), Err(FileError::NewerVersion { .. })), "{path:?}");
        assert_eq!(disk.contents(), before);
        disk.put(path, bytes);
    }
    assert_eq!(open(&disk).0.orphans().len(), 1);
}

fn newer_list() -> Vec<u8> {
    let text = "sluice cursors 2\nsomething else\n";
    format!("{text}crc32c {:08x}\n", crc32c::crc32c(text.as_bytes())).into()
}

/// Raises the major version in every copy of a header and corrects its checksum.
fn make_newer(file: &mut [u8]) {
    let is_segment = file.starts_with(b"SLUICSEG");
    let copies: &[usize] = if is_segment { &[0, 2048] } else { &[0, 32 << 10] };
    for &at in copies {
        let len = u32::from_le_bytes(file[at + 12..at + 16].try_into().unwrap()) as usize;
        file[at + 8] = 2;
        let checksum_at = at + if is_segment { 124 } else { 16 };
        let (before, after) = (&file[at..checksum_at], &file[checksum_at + 4..at + len]);
        let checksum = crc32c::crc32c_append(crc32c::crc32c(before), after);
        file[checksum_at..checksum_at + 4].copy_from_slice(&checksum.to_le_bytes());
    }
}

#[test]
fn a_slow_disk_is_asked_for_one_sync_for_all_that_waits() {
    let disk = FaultyDisk::new(1);
    let options =
        OpenOptions { flush_after: Duration::ZERO, segment_bytes: 1 << 20, ..options(&disk) };
    let (log, _) = Log::<Note>::open(options).unwrap();
    let id = subscribe(&log, "a");
    let durable = Durable::default();
    append(&log, 0, 100, &[id], &durable);
    wait_durable(&durable, 1);
    disk.set_sync_delay(Duration::from_millis(20));
    for value in 1..500 {
        append(&log, value, 100, &[id], &durable);
    }
    wait_durable(&durable, 500);
    let commits = log.stats().commits;
    assert!(commits <= 6, "{commits} commits");
}

#[test]
fn any_bit_of_any_file_may_flip_at_the_cost_of_one_frame_for_which_there_is_a_count() {
    let disk = FaultyDisk::new(1);
    {
        let (log, _) = open(&disk);
        let id = subscribe(&log, "a");
        for value in 0..4 {
            append(&log, value, 20, &[id], &Durable::default());
        }
        assert_eq!(log.close(PATIENCE).frames, 0);
    }
    let mut lost_at_all = 0;
    for (path, bytes) in disk.contents() {
        // Most zeros are unused space; some of them are enough.
        let is_looked_at = |&index: &usize| bytes[index] != 0 || index % 97 == 0;
        for index in (0..bytes.len()).filter(is_looked_at) {
            let copy = FaultyDisk::new(1);
            disk.contents().iter().for_each(|(path, bytes)| copy.put(path, bytes));
            copy.flip_bit(&path, index as u64 * 8 + (index as u64 * 5) % 8);
            let (log, recovered) = open(&copy);
            let read = values(&read_all(&log, subscribe(&log, "a")));
            assert!(
                read.len() >= 3 && read.windows(2).all(|pair| pair[0] < pair[1]),
                "{path:?} {index}: {read:?}"
            );
            let damaged = recovered.frames_damaged + log.stats().frames_damaged;
            assert!(read.len() == 4 || damaged > 0, "{path:?} {index}: {damaged} {recovered:?}");
            lost_at_all += 4 - read.len();
        }
    }
    assert!(lost_at_all > 50, "{lost_at_all}");
}

/// Guarantee: a damaged frame counts once, also if the backlog was dated before it was read.
#[test]
fn a_damaged_frame_of_a_backlog_that_was_dated_counts_once() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    let durable = Durable::default();
    for value in 0..4 {
        append(&log, value, 100, &[id], &durable);
        wait_durable(&durable, value as usize + 1);
    }
    log.close(PATIENCE);
    let disk = disk.kill_process();
    let is_segment = |path: &Path| path.extension() == Some("seg".as_ref());
    let (segment, _) = disk.contents().into_iter().find(|(path, _)| is_segment(path)).unwrap();
    disk.flip_bit(&segment, 8 * (4096 + 20));
    let (log, _) = open(&disk);
    wait_until("dated", || log.orphans()[0].oldest_age.is_some());
    assert_eq!(values(&read_all(&log, subscribe(&log, "a"))), [1, 2, 3]);
    assert_eq!(log.stats().frames_damaged, 1);
}

/// Guarantee: read trouble ends when the disk recovers, even if the reader that met it has gone.
#[test]
fn trouble_of_a_reader_that_has_gone_ends_with_the_disks() {
    let disk = FaultyDisk::new(7);
    let options =
        OpenOptions { flush_after: Duration::ZERO, memory_limit_bytes: 0, ..options(&disk) };
    let log: Log<Note> = Log::open(options).expect("the log opens").0;
    let (gone, stays) = (subscribe(&log, "gone"), subscribe(&log, "stays"));
    let durable = Durable::default();
    for value in 0..200 {
        append(&log, value, 1_000, &[gone, stays], &durable);
    }
    wait_durable(&durable, 200);
    wait_evicted(&log, 200);
    disk.fail_operation(Operation::Read, input_output);
    log.read(gone);
    wait_until("reading fails", || log.trouble().is_some());
    assert!(!log.trouble().expect("there is trouble").stops_writing, "what is written is durable");
    append(&log, 200, 1_000, &[stays], &durable);
    wait_durable(&durable, 201);
    log.unsubscribe(gone, Keep::Backlog);
    disk.clear_fault();
    assert_eq!(read_all(&log, stays).len(), 201);
    wait_until("the trouble ends", || log.trouble().is_none());
}

/// Scenario: the disk gives no answer to a read. Guarantee: the log closes all the same, with all
/// frames written, and says that it left a thread behind.
#[test]
fn a_read_that_hangs_does_not_hold_up_the_end() {
    let disk = FaultyDisk::new(7);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    let durable = Durable::default();
    for value in 0..20 {
        append(&log, value, 1_000, &[id], &durable);
    }
    wait_evicted(&log, 20);
    disk.set_read_delay(Duration::from_secs(3_600));
    log.read(id);
    wait_until("the read hangs", || disk.delayed_reads() == 1);
    assert_eq!(log.close(PATIENCE).frames, 0);
    let trouble = log.trouble().expect("it is said").reason;
    assert_eq!(trouble, "threads that got no answer from it: 1, left behind");
}

/// Guarantee: if only the disk knows which readers took a frame, it is not given up as a frame that
/// another reader has taken.
#[test]
fn what_is_on_disk_alone_does_not_count_as_taken() {
    let disk = FaultyDisk::new(7);
    let options =
        OpenOptions { flush_after: Duration::ZERO, memory_limit_bytes: 0, ..options(&disk) };
    let log: Log<Note> = Log::open(options).expect("the log opens").0;
    let (reader, other) = (subscribe(&log, "reader"), subscribe(&log, "other"));
    append_durable(&log, 0..100, 1_000, &[reader, other]);
    wait_evicted(&log, 100);
    let read = read_all(&log, reader);
    log.gauges(reader).allow(Sheds::Taken);
    assert_eq!(read.len(), 100);
    assert!(read.iter().all(|(offset, _)| !log.may_give_up(reader, *offset)));
}

/// Scenario: the oldest segment can be neither removed nor replaced. Guarantee: the others are
/// rewritten.
#[test]
fn a_segment_that_cannot_be_replaced_keeps_no_other_from_being_written_anew() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    disk.set_fault(|call| {
        let is_it = call.path.ends_with("traces/0000000000000000.seg");
        let fails = [Operation::RemoveFile, Operation::Rename].contains(&call.operation) && is_it;
        fails.then(input_output)
    });
    append_sparse(&log, 0..40);
    wait_until("written anew, all but the first one", || log.stats().disk_bytes < 1_000_000);
    assert!(log.stats().failures > 0);
}

/// Scenario: the rewriting of a segment fails, and the new file cannot be removed, or the process
/// ends at that moment. Guarantee: the file is removed later.
#[test]
fn a_file_that_was_written_anew_in_vain_does_not_stay() {
    for ends in [false, true] {
        let disk = FaultyDisk::new(1);
        let (log, _) = open(&disk);
        disk.set_fault(move |call| {
            let is_rewritten = call.path.starts_with("/log/traces/rewrite");
            let is_replaced = call.operation == Operation::Rename
                && call.path.extension().is_some_and(|extension| extension == "seg");
            let stays = ends && is_rewritten && call.operation == Operation::RemoveFile;
            (is_replaced || stays).then(input_output)
        });
        append_sparse(&log, 0..5);
        wait_until("tried", || log.stats().failures > 0);
        if ends {
            wait_until("left", || is_in(&disk, "/rewrite/"));
            let disk = disk.kill_process();
            // Makes every rewriting fail from now on.
            disk.fail_operation(Operation::CreateNew, input_output);
            drop(log);
            let keep_interval = Duration::from_secs(3_600);
            let options = OpenOptions { keep_interval, ..options(&disk) };
            let _log: Log<Note> = Log::open(options).expect("the log opens").0;
            wait_until("removed by the start", || !is_in(&disk, "/rewrite/"));
        } else {
            // Longer than the writing takes.
            let mut times = 0;
            wait_until("removed", || {
                std::thread::sleep(Duration::from_millis(1));
                times = if is_in(&disk, "/rewrite/") { 0 } else { times + 1 };
                times > 100
            });
        }
    }
}

/// Scenario: writes failed and their files stayed; at the next start one of them cannot be removed.
/// Guarantee: the file of later frames is the last of its offset, so that no start takes it for an
/// earlier attempt.
#[test]
fn a_file_that_stays_never_passes_for_a_later_attempt() {
    let disk = FaultyDisk::new(1);
    disk.make_directory(Path::new(DIRECTORY));
    let files = ["0000000000000000.seg", "0000000000000000-1.seg"];
    let [first, second] = files.map(|name| Path::new(DIRECTORY).join(name));
    disk.put(&first, &[]);
    disk.put(&second, &[]);
    let stays = second.clone();
    disk.set_fault(move |call| {
        (call.operation == Operation::RemoveFile && call.path == stays).then(input_output)
    });
    let (log, _) = open(&disk);
    let durable = Durable::default();
    let id = subscribe(&log, "a");
    wait_until("the other file goes", || disk.contents().iter().all(|(path, _)| *path != first));
    append(&log, 0, 1_000, &[id], &durable);
    wait_durable(&durable, 1);
    let disk = disk.kill_process();
    disk.clear_fault();
    drop(log);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    assert_eq!(values(&read_all(&log, id)), [0]);
}

/// Scenario: a cursor cannot be written when the last segment goes. Guarantee: it is written once
/// the disk takes it, although nothing is on disk any more: the trouble ends, and after a crash
/// nothing counts as lost.
#[test]
fn a_cursor_that_could_not_be_written_is_written_when_nothing_is_left_on_disk() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let (id, durable) = (subscribe(&log, "a"), Durable::default());
    (0..3).for_each(|value| _ = append(&log, value, 1_000, &[id], &durable));
    wait_durable(&durable, 3);
    let (offset, _) = next(&log, id).expect("a frame");
    log.resolve(id, offset);
    wait_until("the backlog is counted", || log.stats().cursor_writes >= 2);
    disk.set_fault(|call| {
        let writes = matches!(call.operation, Operation::Write | Operation::CreateNew);
        (writes && call.path.to_string_lossy().contains("a.cursor")).then(input_output)
    });
    read_all(&log, id).iter().for_each(|(offset, _)| _ = log.resolve(id, *offset));
    wait_until("the file goes", || log.stats().segments == 0);
    wait_until("it is said", || log.trouble().is_some());
    disk.clear_fault();
    wait_until("the trouble ends", || log.trouble().is_none());
    let disk = disk.kill_process();
    drop(log);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    assert!(read_all(&log, id).is_empty());
    assert_eq!(log.lost_total(id).frames, 0);
}
