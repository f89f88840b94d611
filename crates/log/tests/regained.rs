//! A frame that a reader passed, and that can be read again after all, counts once.

mod support;

use std::path::Path;

use sluice_log::{CursorId, Log};
use support::at_rest::Damaged;
use support::faulty_disk::FaultyDisk;
use support::note::*;

const FRAMES: u64 = 6;
/// A place in the body of the second frame.
const IN_A_BODY: u64 = 2 * 4_096 + 500;

/// A disk after an orderly end, with a frame of which a byte rots. Each frame has its own block.
fn disk_with_damage() -> (FaultyDisk, Damaged) {
    let disk = FaultyDisk::new(3);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    append_one_by_one(&log, 0..FRAMES, 1_000, &[id]);
    log.close(PATIENCE);
    let disk = disk.kill_process();
    let first = Path::new("/log/traces/0000000000000000.seg");
    let damaged = disk.rot(first, IN_A_BODY, 1).expect("the frame is there");
    (disk, damaged)
}

/// Opens the log. Returns it with its reader.
fn next_life(disk: &FaultyDisk) -> (Log<Note>, CursorId) {
    let (log, _) = open(disk);
    let id = subscribe(&log, "a");
    (log, id)
}

fn end(log: &Log<Note>, disk: &FaultyDisk) -> FaultyDisk {
    assert_eq!(log.close(PATIENCE).frames, 0);
    disk.kill_process()
}

/// All frames come, and as many count as held, in this life and in the next one.
fn assert_all_count_once(log: Log<Note>, id: CursorId, disk: &FaultyDisk) {
    assert_eq!(values(&read_all(&log, id)), (0..FRAMES).collect::<Vec<_>>());
    assert_eq!((log.held(id).frames, log.lost_total(id).frames), (FRAMES, 0));
    log.rewind(id);
    let disk = end(&log, disk);
    let (log, id) = next_life(&disk);
    assert_eq!(log.held(id).frames, FRAMES, "counted by the cursor's file");
    assert_eq!(read_all(&log, id).len() as u64, FRAMES);
    assert_eq!(log.lost_total(id).frames, 0);
}

#[test]
fn what_counted_as_lost_in_an_earlier_life_counts_once_when_it_comes() {
    let (disk, damaged) = disk_with_damage();
    let (log, id) = next_life(&disk);
    assert_eq!(read_all(&log, id).len() as u64, FRAMES - 1);
    assert_eq!(log.lost_total(id).frames, 1);
    log.rewind(id);
    let disk = end(&log, &disk);

    let (log, id) = next_life(&disk);
    assert_eq!(log.held(id).frames, FRAMES - 1, "the start could not read it either");
    disk.restore(damaged);
    assert_all_count_once(log, id, &disk);
}

#[test]
fn what_was_read_ahead_in_vain_is_not_lost_if_it_can_be_read_in_time() {
    let (disk, damaged) = disk_with_damage();
    let (log, id) = next_life(&disk);
    // The first read makes the log read ahead, past the damage. The reader has not come there.
    while next(&log, id).is_none() {}
    wait_until("the damage is passed", || log.stats().frames_damaged == 1);
    log.rewind(id);
    disk.restore(damaged);
    assert_all_count_once(log, id, &disk);
}
