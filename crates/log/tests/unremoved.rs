//! Files that no reader needs and that the disk refuses to remove: their bytes count as used until
//! they are gone, and they are tried again, now and then.

mod support;

use std::path::Path;

use sluice_log::Log;
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
    wait_until("all stay", || log.stats().unremoved_files > 10 && is_counted());
    assert!(log.stats().disk_bytes > 1_000_000, "the test is about many bytes");
    assert_eq!(log.needed_disk_bytes(), log.stats().disk_bytes);
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
