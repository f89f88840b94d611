//! A disk that refuses reads, for a while or for good: what was not read is not taken for damaged,
//! nothing of it is removed, and readers that do not need it notice nothing.

mod support;

use std::ops::Range;
use std::time::{Duration, Instant};

use sluice_log::{Log, OpenOptions, Recovered};
use support::faulty_disk::{FaultyDisk, Operation, Unsynced, input_output};
use support::note::*;

const FRAMES: u64 = 200;

fn open_with(disk: &FaultyDisk, read_patience: Duration) -> (Log<Note>, Recovered) {
    Log::open(OpenOptions { read_patience, ..options(disk) }).expect("the log opens")
}

/// A disk with what a process left that was killed: frames in several segments, none delivered.
fn disk_with_backlog(readers: &[&str]) -> FaultyDisk {
    let disk = FaultyDisk::new(7);
    let (log, _) = open(&disk);
    let ids: Vec<_> = readers.iter().map(|name| subscribe(&log, name)).collect();
    let durable = Durable::default();
    for value in 0..FRAMES {
        append(&log, value, 1_000, &ids, &durable);
    }
    wait_durable(&durable, FRAMES as usize);
    assert!(log.stats().segments > 3, "the test is about several segments");
    disk.cut_power(Unsynced::Lost)
}

/// Scenario: a start on a disk that refuses to read headers, all behind them, or something in the
/// middle. Guarantee: nothing is removed or cut; all is there when the disk can be read, in the
/// same life and in the next, and so is what was written meanwhile.
#[test]
fn what_cannot_be_read_at_the_start_stays_until_it_can() {
    let unreadable: [Range<u64>; 4] =
        [0..u64::MAX, 4096..u64::MAX, 20_000..u64::MAX, 20_000..24_000];
    for positions in unreadable {
        for is_restarted in [false, true] {
            let mut disk = disk_with_backlog(&["a"]);
            disk.set_unreadable(".seg", positions.clone());
            let (mut log, recovered) = open_with(&disk, Duration::ZERO);
            assert!(!recovered.unread.is_empty(), "{positions:?}: it is said");
            let mut id = subscribe(&log, "a");
            let durable = Durable::default();
            append(&log, FRAMES, 1_000, &[id], &durable);
            wait_durable(&durable, 1);
            // The maintenance thread has its turn.
            std::thread::sleep(Duration::from_millis(50));
            if is_restarted {
                disk = disk.kill_process();
                disk.clear_fault();
                log = open(&disk).0;
                id = subscribe(&log, "a");
            }
            disk.clear_fault();
            let read = values(&read_all(&log, id));
            assert_eq!(read, (0..=FRAMES).collect::<Vec<_>>(), "{positions:?} {is_restarted}");
            assert_eq!(log.stats().frames_damaged, 0);
        }
    }
}

/// Guarantee: an error that passes costs nothing but time.
#[test]
fn a_start_waits_a_while_for_the_disk() {
    let disk = disk_with_backlog(&["a"]);
    let until = Instant::now() + Duration::from_millis(300);
    disk.set_fault(move |call| {
        (call.operation == Operation::Read && Instant::now() < until).then(input_output)
    });
    let (log, recovered) = open(&disk);
    assert_eq!((recovered.unread, recovered.cursors), (Vec::new(), 1));
    assert_eq!(log.orphans()[0].held.frames, FRAMES);
}
