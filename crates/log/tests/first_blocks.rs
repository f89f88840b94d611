//! The first blocks of a segment are damaged or refused: both copies of its header, and the frame
//! behind them. Every later frame tells the file's epoch, by which the others are found.

mod support;

use std::path::Path;
use std::time::Duration;

use sluice_log::repair::examine;
use sluice_log::{Log, OpenOptions};
use support::faulty_disk::FaultyDisk;
use support::note::*;

const SECOND: &str = "/log/traces/000000000000000e.seg";

/// Three files of 14 frames, each in a block of its own.
const FRAMES: u64 = 3 * 14;

fn disk_with_backlog() -> FaultyDisk {
    let disk = FaultyDisk::new(7);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    append_one_by_one(&log, 0..FRAMES, 1_000, &[id]);
    log.close(PATIENCE);
    disk.kill_process()
}

/// Values that are lost with the first blocks of the second file, and its disk. `spoils` gets the
/// positions to be hit: one in each copy of the header, and one in the first frame.
fn lost_with(spoils: impl Fn(&FaultyDisk, u64)) -> (Vec<u64>, FaultyDisk) {
    let disk = disk_with_backlog();
    [20, 2_048 + 20, 4_096 + 20].into_iter().for_each(|position| spoils(&disk, position));
    let read_patience = Duration::from_millis(50);
    let log = Log::<Note>::open(OpenOptions { read_patience, ..options(&disk) }).unwrap().0;
    let id = subscribe(&log, "a");
    let read = read_all(&log, id);
    read.iter().for_each(|(offset, _)| assert!(log.resolve(id, *offset)));
    wait_until("set aside", || log.stats().set_aside_files == 1);
    let read = values(&read);
    let lost: Vec<_> = (0..FRAMES).filter(|value| !read.contains(value)).collect();
    assert_eq!(log.lost_total(id).frames, lost.len() as u64);
    log.close(PATIENCE);
    (lost, disk.kill_process())
}

#[test]
fn the_frames_behind_first_blocks_that_are_refused_are_delivered() {
    let (lost, _) = lost_with(|disk, position| {
        disk.spoil(Path::new(SECOND), position);
    });
    assert_eq!(lost, [14]);
}

#[test]
fn the_frames_behind_first_blocks_that_are_damaged_are_delivered() {
    let (lost, disk) = lost_with(|disk, position| {
        disk.rot(Path::new(SECOND), position, 1).expect("it is there");
    });
    assert_eq!(lost, [14]);
    // A repair reads the rest as well, in which no frame waits.
    let [file] = &examine(&disk, Path::new(DIRECTORY), &|_| true).unwrap()[..] else {
        panic!("one file is set aside")
    };
    assert_eq!((file.path.to_str(), file.waiting.frames), (Some(&*format!("{SECOND}.damaged")), 0));
}
