//! A disk that is full: the oldest segments go that only readers need which may give something up.

mod support;

use sluice_log::{FlushPolicy, GiveUp, Log, OpenOptions, Subscription};
use support::faulty_disk::FaultyDisk;
use support::note::*;

const FRAMES: u64 = 2_000;

fn log_with(disk: &FaultyDisk, memory_limit_bytes: u64) -> Log<Note> {
    let options = OpenOptions { flush: FlushPolicy::AtOnce, memory_limit_bytes, ..options(disk) };
    Log::open(options).expect("the log opens").0
}

/// Scenario: a dead reader and one that keeps up; too much is on disk, and maybe in memory too.
/// Guarantee: about as much goes as was asked for, the oldest first, counted and said; the other
/// reader loses nothing; the space is free.
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
        assert!(
            dropped.frames > 300 && dropped.frames < 600 && told == dropped.frames,
            "{dropped:?} {told}"
        );
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

/// Scenario: a delivery of two receivers lags; another one has taken the frames of one of them.
/// Guarantee: under [`GiveUp::Taken`] these frames go and no others, for the disk and for the
/// reader's own budget.
#[test]
fn frames_that_no_other_reader_of_theirs_has_taken_stay() {
    for memory_limit_bytes in [0, 1 << 30] {
        let disk = FaultyDisk::new(7);
        let log = log_with(&disk, memory_limit_bytes);
        let (behind, other) = (subscribe(&log, "behind"), subscribe(&log, "other"));
        let durable = Durable::default();
        // The first half is mixed, the second half is for both.
        let is_for_both = |value: u64| value >= FRAMES / 2 || value.is_multiple_of(2);
        for value in 0..FRAMES {
            let ids = [behind, other];
            let ids = if is_for_both(value) { &ids[..] } else { &ids[..1] };
            append(&log, value, 1_000, ids, &durable);
        }
        wait_durable(&durable, FRAMES as usize);
        for (offset, _) in read_all(&log, other) {
            log.resolve(other, offset);
        }
        log.gauges(other).allow(GiveUp::Nothing);
        log.gauges(behind).allow(GiveUp::Taken);
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

/// Scenario: between two segments' worth of frames of a lagging reader stand frames that a reader
/// wants which gives nothing up. Guarantee: nothing goes of a segment that has to stay.
#[test]
fn of_a_segment_that_stays_nothing_is_dropped() {
    let disk = FaultyDisk::new(7);
    let log = log_with(&disk, 0);
    let (behind, wants) = (subscribe(&log, "behind"), subscribe(&log, "wants"));
    let durable = Durable::default();
    for value in 0..FRAMES {
        let ids = [behind, wants];
        // In each segment there are some frames of a reader that wants them, up to the middle.
        let is_wanted = value < FRAMES / 2 && value.is_multiple_of(5);
        append(&log, value, 1_000, if is_wanted { &ids[..] } else { &ids[..1] }, &durable);
    }
    wait_durable(&durable, FRAMES as usize);
    log.gauges(wants).allow(GiveUp::Nothing);
    log.gauges(behind).allow(GiveUp::Everything);
    let before = log.needed_disk_bytes();
    log.shed_segments(200_000);
    wait_until("dropped", || log.needed_disk_bytes() + 200_000 <= before);
    let left = values(&read_all(&log, behind));
    // A segment is counted when the reader thread is through with it.
    wait_until("counted", || left.len() as u64 + log.dropped_total(behind).frames == FRAMES);
    let first_half = left.iter().filter(|&&value| value < FRAMES / 2 - 60).count() as u64;
    assert_eq!(first_half, FRAMES / 2 - 60, "segments with wanted frames stay whole");
}

/// Guarantee: a reader that comes back gives up nothing before it was said what it may.
#[test]
fn a_reader_that_comes_back_keeps_its_backlog_until_it_may_give_it_up() {
    let disk = FaultyDisk::new(7);
    let log = log_with(&disk, 0);
    let gone = subscribe(&log, "gone");
    let durable = Durable::default();
    for value in 0..FRAMES {
        append(&log, value, 1_000, &[gone], &durable);
    }
    wait_durable(&durable, FRAMES as usize);
    log.unsubscribe(gone, sluice_log::Keep::Backlog);
    let back = log.subscribe(Subscription::new("gone"));
    assert_eq!(log.shed_segments(u64::MAX).0, 0);
    assert_eq!(log.held(back).frames, FRAMES);
    log.gauges(back).allow(GiveUp::Everything);
    assert!(log.shed_segments(u64::MAX).0 > 0);
}

/// Scenario: a reader lags behind frames on disk that only it wants; those in memory another one
/// has taken. Guarantee: giving up the latter does not pass over the former.
#[test]
fn giving_up_what_is_in_memory_keeps_what_is_on_disk() {
    let disk = FaultyDisk::new(7);
    let log = log_with(&disk, FRAMES / 2 * 1_000);
    let (behind, other) = (subscribe(&log, "behind"), subscribe(&log, "other"));
    let durable = Durable::default();
    for value in 0..FRAMES {
        let ids = [behind, other];
        let ids = if value < FRAMES / 2 { &ids[..1] } else { &ids[..] };
        append(&log, value, 1_000, ids, &durable);
    }
    wait_durable(&durable, FRAMES as usize);
    wait_until("evicted", || log.stats().frames_evicted >= FRAMES / 2);
    for (offset, _) in read_all(&log, other) {
        log.resolve(other, offset);
    }
    log.gauges(behind).allow(GiveUp::Taken);
    let given_up = log.shed_together(100_000).len() as u64;
    assert!(given_up > 0);
    let left = values(&read_all(&log, behind));
    assert_eq!(left.len() as u64, FRAMES - given_up);
    assert!(left.starts_with(&(0..FRAMES / 2).collect::<Vec<_>>()));
}
