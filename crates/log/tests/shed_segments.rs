//! A full disk: the oldest segments are removed if every reader that needs them may give them up.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use sluice_log::format::{BLOCK_LEN_BYTES, UNTAKEN_RANGES_LIMIT};
use sluice_log::{CursorId, Keep, Log, OpenOptions, Sheds, Subscription};
use support::faulty_disk::FaultyDisk;
use support::note::*;

const FRAMES: u64 = 2_000;

fn log_with(disk: &FaultyDisk, memory_limit_bytes: u64) -> Log<Note> {
    let options = OpenOptions { flush_after: Duration::ZERO, memory_limit_bytes, ..options(disk) };
    Log::open(options).expect("the log opens").0
}

/// Appends durable frames, each for the readers that `readers_of` returns.
fn append_all(log: &Log<Note>, readers_of: impl Fn(u64) -> Vec<CursorId>) {
    let durable = Durable::default();
    for value in 0..FRAMES {
        append(log, value, 1_000, &readers_of(value), &durable);
    }
    wait_durable(&durable, FRAMES as usize);
}

/// A log of frames for a reader that has left without resolving any.
fn log_with_orphan() -> Log<Note> {
    let log = log_with(&FaultyDisk::new(7), 0);
    let gone = subscribe(&log, "gone");
    append_all(&log, |_| vec![gone]);
    wait_evicted(&log, FRAMES);
    log.unsubscribe(gone, Keep::Backlog);
    log
}

/// Scenario: a dead reader and one that keeps up; too much is on disk, and maybe in memory too.
/// Guarantee: about as much is given up as was asked for, the oldest first, and it is counted; the
/// other reader loses nothing; the space is freed.
#[test]
fn the_oldest_segments_go_for_a_reader_that_may_give_them_up() {
    for memory_limit_bytes in [0, 1 << 30] {
        let disk = FaultyDisk::new(7);
        let log = log_with(&disk, memory_limit_bytes);
        let (healthy, dead) = (subscribe(&log, "healthy"), subscribe(&log, "dead"));
        append_all(&log, |_| vec![healthy, dead]);
        wait_until("sealed", || log.stats().segments > 10);
        if memory_limit_bytes == 0 {
            wait_evicted(&log, FRAMES);
        }
        log.gauges(healthy).allow(Sheds::Nothing);
        log.gauges(dead).allow(Sheds::Taken);
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
        // A segment is counted when the reader thread has finished with it.
        let is_counted = || log.held(dead).frames + log.dropped_total(dead).frames == FRAMES;
        wait_until("counted", is_counted);
        let dropped = log.dropped_total(dead);
        let told = log.take_dropped(dead).frames + given_up.len() as u64;
        // A frame that is committed alone takes a block. A tenth is for headers and footers.
        let frames = freed / BLOCK_LEN_BYTES * 9 / 10..=freed / 1_000;
        assert!(frames.contains(&dropped.frames) && told == dropped.frames, "{dropped:?} {told}");
        assert_eq!(log.dropped_total(healthy).frames, 0);
        let left = values(&read_all(&log, dead));
        assert_eq!(left, (dropped.frames..FRAMES).collect::<Vec<_>>(), "the oldest went");
    }
}

/// Guarantee: the backlog of a reader without a subscriber is not given up.
#[test]
fn an_orphan_keeps_its_backlog() {
    let log = log_with_orphan();
    assert_eq!(log.shed_segments(u64::MAX).0, 0);
    assert_eq!(log.orphans()[0].held.frames, FRAMES);
}

/// Scenario: a delivery of two receivers lags; another one has taken the frames of one of them.
/// Guarantee: under [`Sheds::Taken`] only these frames are given up, for the disk and for the
/// reader's own budget.
#[test]
fn frames_that_no_other_reader_of_theirs_has_taken_stay() {
    for memory_limit_bytes in [0, 1 << 30] {
        let disk = FaultyDisk::new(7);
        let log = log_with(&disk, memory_limit_bytes);
        let (behind, other) = (subscribe(&log, "behind"), subscribe(&log, "other"));
        // In the first half every other frame is for both; in the second half all are.
        let is_for_both = |value: u64| value >= FRAMES / 2 || value.is_multiple_of(2);
        append_all(&log, |value| match is_for_both(value) {
            true => vec![behind, other],
            false => vec![behind],
        });
        for (offset, _) in read_all(&log, other) {
            log.resolve(other, offset);
        }
        log.gauges(other).allow(Sheds::Nothing);
        log.gauges(behind).allow(Sheds::Taken);
        wait_until("all that may go has gone", || {
            log.shed_segments(u64::MAX);
            log.dropped_total(behind).frames > FRAMES / 2 - 200
        });

        log.set_limits(behind, 1_100 * (FRAMES / 4 + 10), u64::MAX);
        wait_until("over its budget", || {
            log.drop_oldest_unread(behind);
            !log.gauges(behind).is_over_budget()
        });
        log.set_limits(behind, u64::MAX, u64::MAX);
        let left = values(&read_all(&log, behind));
        let own = |value: &&u64| !is_for_both(**value);
        assert_eq!(
            left.iter().filter(own).count() as u64,
            FRAMES / 4,
            "all that no other reader took"
        );
    }
}

/// Scenario: a reader filters out some frames, gives up some and takes the rest; another one is
/// behind. The process restarts, with readers that left or not. Guarantee: only taken frames are
/// given up, also if a cursor's file has no room for all ranges of untaken ones.
#[test]
fn what_no_reader_took_stays_after_a_restart() {
    let most_in_a_file = UNTAKEN_RANGES_LIMIT as u64;
    let cases = [(3, FRAMES / 3 + 1, true), (3, FRAMES / 3 + 1, false), (2, most_in_a_file, true)];
    for (every, most_that_goes, leave) in cases {
        let disk = FaultyDisk::new(7);
        let log = log_with(&disk, 0);
        let (behind, other) = (subscribe(&log, "behind"), subscribe(&log, "other"));
        append_all(&log, |_| vec![behind, other]);
        for (offset, value) in read_all(&log, other) {
            match value % every {
                0 => assert!(log.resolve(other, offset)),
                1 => assert!(log.resolve_unwanted(other, offset)),
                _ => assert_eq!(log.give_up(other, offset), Some(false)),
            }
        }
        if leave {
            log.unsubscribe(other, Keep::Backlog);
            log.unsubscribe(behind, Keep::Backlog);
        }
        assert_eq!(log.close(PATIENCE).frames, 0);
        drop(log);

        let log = log_with(&disk, 0);
        let (behind, _) = (subscribe(&log, "behind"), subscribe(&log, "other"));
        log.gauges(behind).allow(Sheds::Taken);
        log.set_limits(behind, 1, u64::MAX);
        wait_until("all that may go has gone", || {
            log.drop_oldest_unread(behind);
            log.dropped_total(behind).frames >= most_that_goes
        });
        let left = values(&read_all(&log, behind));
        assert_eq!(left.len() as u64, FRAMES - most_that_goes);
        let untaken = left.iter().filter(|&value| value % every > 0).count() as u64;
        assert_eq!(untaken, (0..FRAMES).filter(|value| value % every > 0).count() as u64);
    }
}

/// Scenario: a reader has left for good, its cursor is gone, and a new one comes after a restart.
/// Guarantee: the new one counts as a taker of no frame on disk.
#[test]
fn a_new_reader_does_not_pass_for_one_that_has_gone() {
    let disk = FaultyDisk::new(7);
    let log = log_with(&disk, 0);
    let (behind, gone) = (subscribe(&log, "behind"), subscribe(&log, "gone"));
    append_all(&log, |_| vec![behind, gone]);
    log.unsubscribe(gone, Keep::Nothing);
    assert_eq!(log.close(PATIENCE).frames, 0);
    drop(log);

    let log = log_with(&disk, 0);
    let (behind, _) = (subscribe(&log, "behind"), subscribe(&log, "new"));
    log.gauges(behind).allow(Sheds::Taken);
    log.shed_segments(u64::MAX);
    log.set_limits(behind, 1, u64::MAX);
    log.drop_oldest_unread(behind);
    // The frames that are left are read once no more are to be dropped.
    assert_eq!(read_all(&log, behind).len() as u64, FRAMES);
}

/// Scenario: some segments of a lagging reader also have frames of a reader that gives nothing up.
/// Guarantee: no frame of a segment that has to stay is given up.
#[test]
fn of_a_segment_that_stays_nothing_is_dropped() {
    let disk = FaultyDisk::new(7);
    let log = log_with(&disk, 0);
    let (behind, wants) = (subscribe(&log, "behind"), subscribe(&log, "wants"));
    // Up to the middle, each segment has some frames that `wants` needs.
    append_all(&log, |value| match value < FRAMES / 2 && value.is_multiple_of(5) {
        true => vec![behind, wants],
        false => vec![behind],
    });
    wait_evicted(&log, FRAMES);
    log.gauges(wants).allow(Sheds::Nothing);
    log.gauges(behind).allow(Sheds::Everything);
    let before = log.needed_disk_bytes();
    log.shed_segments(200_000);
    wait_until("dropped", || log.needed_disk_bytes() + 200_000 <= before);
    let left = values(&read_all(&log, behind));
    // A segment is counted when the reader thread has finished with it.
    wait_until("counted", || left.len() as u64 + log.dropped_total(behind).frames == FRAMES);
    let first_half = left.iter().filter(|&&value| value < FRAMES / 2 - 60).count() as u64;
    assert_eq!(first_half, FRAMES / 2 - 60, "segments with wanted frames stay whole");
}

/// Scenario: a reader has leased the oldest frame. Guarantee: another segment is given up, and its
/// space is freed.
#[test]
fn a_segment_with_a_leased_frame_counts_as_no_space() {
    let log = log_with(&FaultyDisk::new(7), 0);
    let behind = subscribe(&log, "behind");
    append_all(&log, |_| vec![behind]);
    wait_evicted(&log, FRAMES);
    wait_until("leased", || next(&log, behind).is_some());
    log.gauges(behind).allow(Sheds::Everything);
    let before = log.needed_disk_bytes();
    let (freed, _) = log.shed_segments(1);
    assert!(freed > 0);
    wait_until("given up", || log.needed_disk_bytes() + freed <= before);
}

/// Guarantee: a reader that comes back gives up nothing before it is told what it may give up.
#[test]
fn a_reader_that_comes_back_keeps_its_backlog_until_it_may_give_it_up() {
    let log = log_with_orphan();
    let back = log.subscribe(Subscription::new("gone"));
    assert_eq!(log.shed_segments(u64::MAX).0, 0);
    assert_eq!(log.held(back).frames, FRAMES);
    log.gauges(back).allow(Sheds::Everything);
    assert!(log.shed_segments(u64::MAX).0 > 0);
}

/// Scenario: a reader lags behind frames on disk that only it needs; another reader has taken those
/// in memory. Guarantee: giving up the frames in memory does not skip those on disk.
#[test]
fn giving_up_what_is_in_memory_keeps_what_is_on_disk() {
    let disk = FaultyDisk::new(7);
    let log = log_with(&disk, FRAMES / 2 * 1_000);
    let (behind, other) = (subscribe(&log, "behind"), subscribe(&log, "other"));
    append_all(&log, |value| match value < FRAMES / 2 {
        true => vec![behind],
        false => vec![behind, other],
    });
    wait_until("evicted", || log.stats().frames_evicted >= FRAMES / 2);
    for (offset, _) in read_all(&log, other) {
        log.resolve(other, offset);
    }
    log.gauges(behind).allow(Sheds::Taken);
    let given_up = log.shed_together(100_000).len() as u64;
    assert!(given_up > 0);
    let left = values(&read_all(&log, behind));
    assert_eq!(left.len() as u64, FRAMES - given_up);
    assert!(left.starts_with(&(0..FRAMES / 2).collect::<Vec<_>>()));
}

/// Scenario: while the reader thread checks a segment, maintenance joins it with its neighbours,
/// which a reader needs that gives nothing up. Guarantee: the neighbours stay.
#[test]
fn a_segment_that_took_the_place_of_one_that_may_go_stays() {
    let disk = disk_with_small_files();
    let keep_interval = Duration::from_millis(300);
    let options = OpenOptions { keep_interval, ..large_segments(&disk) };
    let log: Log<Note> = Log::open(options).expect("the log opens").0;
    wait_until("nothing else is read", || {
        log.orphans().iter().all(|orphan| orphan.oldest_age.is_some())
    });
    let dead = subscribe(&log, "dead");
    let keeper = log.subscribe(Subscription::new("keeper"));
    let (is_held, may_go_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (held, go_on) = (is_held.clone(), may_go_on.clone());
    disk.set_read_gate(move |path| {
        let is_reader = std::thread::current().name().is_some_and(|it| it.starts_with("log-read"));
        while is_reader && path.ends_with("0000000000000000.seg") && !go_on.load(SeqCst) {
            held.store(true, SeqCst);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    assert!(log.shed_segments(1).0 > 0);
    wait_until("looked at", || is_held.load(SeqCst));
    wait_until("written anew", || log.stats().rewrites > 0);
    may_go_on.store(true, SeqCst);
    wait_until("given up", || log.dropped_total(dead).frames == 10);
    // Gives the maintenance thread time to run.
    std::thread::sleep(3 * keep_interval);
    assert_eq!(values(&read_all(&log, keeper)), (10..60).collect::<Vec<_>>());
    assert_eq!(log.dropped_total(keeper).frames, 0);
}
