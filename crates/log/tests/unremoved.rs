//! Files that no reader needs and that the disk refuses to remove: their bytes count as used until
//! they are gone, and they are tried again, now and then.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluice_log::Log;
use sluice_log::repair::{apply, examine};
use support::faulty_disk::{Call, FaultyDisk, Operation, input_output};
use support::note::*;

fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "seg")
}

fn removes_segment(call: &Call<'_>) -> bool {
    call.operation == Operation::RemoveFile && is_segment(call.path)
}

fn bytes_of_segments(disk: &FaultyDisk) -> u64 {
    let files = disk.contents().into_iter().filter(|(path, _)| is_segment(path));
    files.map(|(_, bytes)| bytes.len() as u64).sum()
}

/// Appends frames and resolves all of them.
fn fill_and_resolve(log: &Log<Note>) {
    let id = subscribe(log, "a");
    append_durable(log, 0..1_000, 1_000, &[id]);
    for (offset, _) in read_all(log, id) {
        log.resolve(id, offset);
    }
}

/// Guarantee: what the log says it uses is what its files take, while files cannot be removed and
/// afterwards. They are named with the reason, and not tried at each interval.
#[test]
fn what_cannot_be_removed_counts_as_used_until_it_is_gone() {
    let disk = FaultyDisk::new(7);
    let (log, _) = open(&disk);
    disk.set_fault(|call| removes_segment(call).then(input_output));
    fill_and_resolve(&log);
    let is_counted = || log.stats().disk_bytes == bytes_of_segments(&disk);
    let all_stay = || log.needed_disk_bytes() == log.stats().disk_bytes;
    wait_until("all stay", || log.stats().unremoved_files > 10 && is_counted() && all_stay());
    assert!(log.stats().disk_bytes > 1_000_000, "the test is about many bytes");
    let unremoved = log.unremoved();
    assert_eq!(unremoved.len() as u64, log.stats().unremoved_files);
    for file in &unremoved {
        assert!(is_segment(&file.path) && file.why.contains("cannot remove"), "{file:?}");
    }
    // Hundreds of intervals. Each file is tried once in five seconds.
    let tried = disk.counts().of(Operation::RemoveFile);
    std::thread::sleep(std::time::Duration::from_secs(2));
    let tried = disk.counts().of(Operation::RemoveFile) - tried;
    assert!(tried <= 2 * unremoved.len() as u64, "{tried}");
    disk.clear_fault();
    wait_until("gone", || log.stats().unremoved_files == 0 && is_counted());
    assert!(log.stats().disk_bytes < 200_000 && log.unremoved().is_empty());
}

/// Scenario: a file that a start or a failed write leaves cannot be removed. Guarantee: the same.
#[test]
fn what_is_left_of_earlier_processes_and_of_failed_writes_counts_too() {
    let disk = FaultyDisk::new(7);
    disk.make_directory(Path::new(DIRECTORY));
    let left = Path::new(DIRECTORY).join("0000000000000000.seg");
    disk.put(&left, &[0; 40_960]);
    disk.set_fault(|call| removes_segment(call).then(input_output));
    let (log, _) = open(&disk);
    wait_until("it is counted", || log.stats().unremoved_files == 1);
    assert_eq!(log.stats().disk_bytes, 40_960);
    assert_eq!(log.unremoved()[0].path, left);
    // No header can be synced: the file is left when it cannot be removed either.
    disk.set_fault(|call| {
        let syncs = call.operation == Operation::SyncData && is_segment(call.path);
        (syncs || removes_segment(call)).then(input_output)
    });
    let (id, durable) = (subscribe(&log, "a"), Durable::default());
    append(&log, 0, 1_000, &[id], &durable);
    wait_until("they are counted", || {
        log.stats().unremoved_files > 1 && log.stats().disk_bytes == bytes_of_segments(&disk)
    });
    disk.clear_fault();
    wait_durable(&durable, 1);
    wait_until("gone", || log.stats().unremoved_files == 0);
    assert_eq!(log.stats().disk_bytes, bytes_of_segments(&disk));
    let (log, _) = open(&disk.kill_process());
    assert_eq!(values(&read_all(&log, subscribe(&log, "a"))), [0]);
}

/// Guarantee: a failure is a try that was refused. Files that wait for their next try do not count.
#[test]
fn each_refusal_counts_once() {
    let disk = FaultyDisk::new(7);
    let (log, _) = open(&disk);
    let refused = Arc::new(AtomicU64::new(0));
    let counted = refused.clone();
    disk.set_fault(move |call| {
        // The folder of files that are being rewritten is left out.
        let is_of_log = call.path.parent() == Some(Path::new(DIRECTORY));
        (is_of_log && removes_segment(call)).then(|| {
            counted.fetch_add(1, Ordering::Relaxed);
            input_output()
        })
    });
    let id = subscribe(&log, "a");
    for round in 0..5 {
        let stay = log.stats().unremoved_files;
        append_durable(&log, round * 1_000..(round + 1) * 1_000, 1_000, &[id]);
        read_all(&log, id).iter().for_each(|(offset, _)| assert!(log.resolve(id, *offset)));
        wait_until("more files stay", || log.stats().unremoved_files > stay + 5);
    }
    let all_are_counted = || log.stats().failures == refused.load(Ordering::Relaxed);
    wait_until("refusals and failures are the same number", all_are_counted);
    assert!(refused.load(Ordering::Relaxed) > 25, "{refused:?}");
}

/// Guarantee: a file that cannot be set aside is named with the disk's error, and tried now and
/// then, as one that cannot be removed.
#[test]
fn what_cannot_be_set_aside_is_tried_now_and_then() {
    let disk = FaultyDisk::new(7);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    append_durable(&log, 0..10, 1_000, &[id]);
    log.close(PATIENCE);
    let disk = disk.kill_process();
    let path = Path::new(DIRECTORY).join("0000000000000000.seg");
    disk.flip_bit(&path, (4_096 + 500) * 8);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    let renames = Arc::new(AtomicU64::new(0));
    let counted = renames.clone();
    disk.set_fault(move |call| {
        let is_of_segment = call.path.to_string_lossy().contains(".seg");
        (call.operation == Operation::Rename && is_of_segment).then(|| {
            counted.fetch_add(1, Ordering::Relaxed);
            input_output()
        })
    });
    for (offset, _) in read_all(&log, id) {
        log.resolve(id, offset);
    }
    wait_until("it is named", || log.stats().unremoved_files == 1);
    let file = log.unremoved().remove(0);
    let why = format!("{}: cannot set aside: {}", path.display(), input_output());
    assert_eq!((file.path, file.why), (path, why));
    // Hundreds of intervals.
    let tried = renames.load(Ordering::Relaxed);
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(renames.load(Ordering::Relaxed) <= tried + 1, "{renames:?}");
    assert_eq!(log.stats().failures, renames.load(Ordering::Relaxed));
    disk.clear_fault();
    wait_until("it is set aside", || log.stats().set_aside_files == 1);
    assert!(log.unremoved().is_empty());
}

/// Scenario: the disk refuses for a while to set a damaged file aside. Guarantee: what was lost in
/// it counts again once it was made whole and put back.
#[test]
fn what_waits_to_be_set_aside_keeps_its_counts() {
    let disk = FaultyDisk::new(7);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    append_one_by_one(&log, 0..28, 1_000, &[id]);
    log.close(PATIENCE);
    let disk = disk.kill_process();
    let path = Path::new(DIRECTORY).join("0000000000000000.seg");
    let hurt = disk.rot(&path, 4_096 * 3 + 500, 1).expect("it is there");
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    disk.set_fault(|call| {
        let is_of_segment = call.path.to_string_lossy().contains(".seg");
        (call.operation == Operation::Rename && is_of_segment).then(input_output)
    });
    // Something stays for the reader.
    let read = read_all(&log, id).into_iter().filter(|(offset, _)| *offset < 20);
    read.for_each(|(offset, _)| assert!(log.resolve(id, offset)));
    wait_until("it is refused", || !log.unremoved().is_empty());
    // Gives the maintenance thread some turns.
    std::thread::sleep(Duration::from_millis(200));
    disk.clear_fault();
    wait_until("set aside", || log.stats().set_aside_files == 1);
    log.rewind(id);
    log.close(PATIENCE);
    let disk = disk.kill_process();
    disk.restore(hurt);
    let [file] = &examine(&disk, Path::new(DIRECTORY), &|_| true).unwrap()[..] else {
        panic!("one file is set aside")
    };
    assert_eq!(file.waiting.frames, 1);
    apply(&disk, file).unwrap();
    let (log, _) = open(&disk.kill_process());
    let id = subscribe(&log, "a");
    let held = log.held(id).frames;
    assert_eq!((held, read_all(&log, id).len()), (9, 9));
}

/// Scenario: for a long time the disk neither syncs new segments nor removes them. Guarantee: it is
/// not filled with them, and all is written afterwards.
#[test]
fn a_disk_that_neither_keeps_nor_removes_is_not_filled() {
    let disk = FaultyDisk::new(7);
    let (log, _) = open(&disk);
    let (id, durable) = (subscribe(&log, "a"), Durable::default());
    append(&log, 0, 1_000, &[id], &durable);
    wait_durable(&durable, 1);
    let tries = Arc::new(AtomicU64::new(0));
    let counted = tries.clone();
    disk.set_fault(move |call| {
        let is_removed = call.operation == Operation::RemoveFile;
        counted.fetch_add(u64::from(is_removed && is_segment(call.path)), Ordering::Relaxed);
        let is_it = is_removed || call.operation == Operation::SyncData;
        (is_it && is_segment(call.path)).then(input_output)
    });
    append(&log, 1, 1_000, &[id], &durable);
    // The writer tries to remove each twice: when it leaves it, and before it begins another one.
    wait_until("tried often", || tries.load(Ordering::Relaxed) > 20);
    let segments = disk.contents().iter().filter(|(path, _)| is_segment(path)).count();
    assert!((5..=7).contains(&segments), "{segments} files");
    // One of them stays for good, which is no reason not to write.
    let stays = disk.contents().into_iter().map(|(path, _)| path).filter(|path| is_segment(path));
    let stays = stays.max().expect("a file");
    disk.set_fault(move |call| {
        (call.operation == Operation::RemoveFile && call.path == stays).then(input_output)
    });
    wait_durable(&durable, 2);
}

/// Scenario: six segments were rewritten as one, and an old file cannot be removed, once or for
/// good. Guarantee: its removal is tried again and counted, the old files behind it stay as long as
/// it does, and other segments are rewritten.
#[test]
fn an_old_file_that_cannot_be_removed_is_tried_again_and_holds_up_no_rewriting() {
    const SECOND: &str = "/log/traces/000000000000000a.seg";
    const LAST: &str = "/log/traces/0000000000000032.seg";
    for most_failures in [1, u64::MAX] {
        let disk = disk_with_small_files();
        let mut failures = 0;
        disk.set_fault(move |call| {
            let is_it = call.operation == Operation::RemoveFile && call.path == Path::new(SECOND);
            let fails = is_it && failures < most_failures;
            failures += u64::from(fails);
            fails.then(input_output)
        });
        let log: Log<Note> = Log::open(large_segments(&disk)).expect("the log opens").0;
        wait_until("counted", || log.stats().failures > 0);
        if most_failures == 1 {
            wait_until("removed", || !is_in(&disk, SECOND) && !is_in(&disk, LAST));
        }
        append_sparse(&log, 2..150);
        wait_until("written anew", || disk.used_bytes() < 3_000_000);
        assert_eq!(is_in(&disk, SECOND), most_failures > 1);
        assert_eq!(is_in(&disk, LAST), most_failures > 1);
        // A frame that is in both files is read once, also by the next process.
        log.close(PATIENCE);
        drop(log);
        let log: Log<Note> = Log::open(large_segments(&disk.kill_process())).unwrap().0;
        let keeper = subscribe(&log, "keeper");
        let read = read_all(&log, keeper);
        assert_eq!(values(&read), (10..60).collect::<Vec<_>>());
        // A file that has more than the name behind it lets expect is no damage.
        read.iter().for_each(|(offset, _)| assert!(log.resolve(keeper, *offset)));
        std::thread::sleep(Duration::from_millis(100));
        let stats = log.stats();
        assert_eq!((stats.frames_damaged, stats.set_aside_files), (0, 0));
    }
}
