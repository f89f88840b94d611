//! A disk that is full: the oldest segments go that only readers need which may give something up.

mod support;

use sluice_log::{FlushPolicy, GiveUp, Log, OpenOptions};
use support::faulty_disk::FaultyDisk;
use support::note::*;

const FRAMES: u64 = 2_000;

fn log_with(disk: &FaultyDisk, memory_limit_bytes: u64) -> Log<Note> {
    let options = OpenOptions { flush: FlushPolicy::AtOnce, memory_limit_bytes, ..options(disk) };
    Log::open(options).expect("the log opens").0
}

/// Scenario: a dead reader and one that keeps up; more is on disk than there may be; the frames are
/// on disk only, or in memory too. Guarantee: about as much goes as was asked for, the oldest
/// first, counted and said; the other reader loses nothing; the space is free.
#[test]
fn the_oldest_segments_go_for_a_reader_that_may_give_them_up() {
    for memory_limit_bytes in [0, 1 << 30] {
        let disk = FaultyDisk::new(7);
        let log = log_with(&disk, memory_limit_bytes);
        let (healthy, dead) = (subscribe(&log, "healthy"), subscribe(&log, "dead"));
        let durable = Durable::default();
        for value in 0..FRAMES {
            append(&log, value, 1_000, &[healthy, dead], &durable);
        }
        wait_durable(&durable, FRAMES as usize);
        wait_until("sealed", || log.stats().segments > 10);
        log.gauges(healthy).allow(GiveUp::Nothing);
        log.gauges(dead).allow(GiveUp::Taken);
        let before = log.needed_disk_bytes();
        let (freed, given_up) = log.shed_segments(500_000);
        assert_eq!((freed, given_up.len()), (0, 0), "the healthy reader has not come to any of it");
        let read = read_all(&log, healthy);
        assert_eq!(read.len() as u64, FRAMES);
        for (offset, _) in &read {
            log.resolve(healthy, *offset);
        }

        let (freed, given_up) = log.shed_segments(500_000);
        assert!((500_000..600_000).contains(&freed), "{freed}");
        wait_until("dropped", || log.needed_disk_bytes() + freed <= before);
        wait_until("removed", || log.stats().disk_bytes <= log.needed_disk_bytes() + 200_000);
        let dropped = log.dropped_total(dead);
        let told = log.take_dropped(dead).frames + given_up.len() as u64;
        assert!(dropped.frames > 300 && dropped.frames < 600 && told == dropped.frames, "{dropped:?} {told}");
        assert_eq!(log.held(dead).frames, FRAMES - dropped.frames);
        assert_eq!(log.dropped_total(healthy).frames, 0);
        let left = values(&read_all(&log, dead));
        assert_eq!(left, (dropped.frames..FRAMES).collect::<Vec<_>>(), "the oldest went");
    }
}

/// Guarantee: the backlog of a reader without a subscriber is not given up.
#[test]
fn an_orphan_keeps_its_backlog() {
    let disk = FaultyDisk::new(7);
    let log = log_with(&disk, 0);
    let gone = subscribe(&log, "gone");
    let durable = Durable::default();
    for value in 0..FRAMES {
        append(&log, value, 1_000, &[gone], &durable);
    }
    wait_durable(&durable, FRAMES as usize);
    log.unsubscribe(gone, sluice_log::Keep::Backlog);
    assert_eq!(log.shed_segments(u64::MAX).0, 0);
    assert_eq!(log.orphans()[0].held.frames, FRAMES);
}
