//! A disk that refuses reads, for a while or for good: unread data does not count as damaged, none
//! of it is removed, and readers that do not need it are not affected.

mod support;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sluice_log::format::{SLOT_LEN_BYTES, decode_slot};
use sluice_log::{Keep, Log, LogStats, Next, OpenOptions, Recovered, Sheds, Subscription};
use support::faulty_disk::{Call, FaultyDisk, Operation, Unsynced, input_output};
use support::note::*;

const FRAMES: u64 = 200;
const SHORT: Duration = Duration::from_millis(50);
const FIRST: &str = "/0000000000000000.seg";

fn open_with(disk: &FaultyDisk, read_patience: Duration) -> (Log<Note>, Recovered) {
    Log::open(OpenOptions { read_patience, ..options(disk) }).expect("the log opens")
}

/// A disk after a process was killed: frames in several segments, none delivered.
fn disk_with_backlog(readers: &[&str]) -> FaultyDisk {
    let disk = FaultyDisk::new(7);
    let (log, _) = open(&disk);
    let ids: Vec<_> = readers.iter().map(|name| subscribe(&log, name)).collect();
    append_durable(&log, 0..FRAMES, 1_000, &ids);
    assert!(log.stats().segments > 3, "the test is about several segments");
    disk.cut_power(Unsynced::Lost)
}

/// Scenario: a start on a disk that refuses to read headers, everything behind them, or a range in
/// the middle. Guarantee: nothing is removed or cut. All frames, also those written meanwhile, are
/// there when the disk can be read, in the same process and in the next.
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
            // Gives the maintenance thread time to run.
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

/// Scenario: all readers are forgotten, and at the next start the disk refuses the segments. A new
/// reader gets a file, and the process dies. Guarantee: its file is not of another log.
#[test]
fn a_log_whose_id_cannot_be_read_stays_the_same_log() {
    let disk = FaultyDisk::new(7);
    let keep_segments = |call: &Call<'_>| {
        let is_segment = call.path.to_string_lossy().ends_with(".seg");
        let is_refused = matches!(call.operation, Operation::RemoveFile | Operation::CreateNew);
        (is_segment && is_refused).then(input_output)
    };
    let cursor = |name: &str| PathBuf::from(format!("{DIRECTORY}/cursors/{name}.cursor"));
    let is_there = |disk: &FaultyDisk, path: &Path| {
        disk.contents().iter().any(|(there, bytes)| there == path && !bytes.is_empty())
    };
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    append_durable(&log, 0..1, 1_000, &[id]);
    disk.set_fault(keep_segments);
    log.unsubscribe(id, Keep::Nothing);
    wait_until("the reader's file is gone", || !is_there(&disk, &cursor("a")));
    let disk = disk.kill_process();

    disk.set_fault(keep_segments);
    disk.set_unreadable(FIRST, 0..u64::MAX);
    let (log, _) = open_with(&disk, Duration::ZERO);
    let id = subscribe(&log, "b");
    append(&log, 1, 1_000, &[id], &Durable::default());
    wait_until("the new reader has a file", || is_there(&disk, &cursor("b")));
    let disk = disk.kill_process();
    drop(log);

    disk.clear_fault();
    let (log, _) = open(&disk);
    append_durable(&log, 2..3, 1_000, &[subscribe(&log, "b")]);
}

/// Guarantee: an error that passes costs only time.
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

/// A disk after a process was killed, without a backlog, on which the two slots of the cursor have
/// different heads; with the position of the newer slot.
fn disk_without_backlog() -> (FaultyDisk, u64) {
    // Which states were stored last depends on timing.
    (0..100).find_map(|_| try_disk_without_backlog()).expect("one slot is stale")
}

fn try_disk_without_backlog() -> Option<(FaultyDisk, u64)> {
    let disk = FaultyDisk::new(7);
    let (log, _) = open(&disk);
    let (id, durable) = (subscribe(&log, "a"), Durable::default());
    let slots = |disk: &FaultyDisk| {
        let (_, bytes) =
            disk.contents().into_iter().find(|(path, _)| path.ends_with("a.cursor")).unwrap();
        [0, SLOT_LEN_BYTES].map(|at| decode_slot(&bytes[at as usize..]).unwrap())
    };
    for value in 0..20 {
        append(&log, value, 1_000, &[id], &durable);
        wait_durable(&durable, value as usize + 1);
        for (offset, _) in read_all(&log, id) {
            log.resolve(id, offset);
        }
    }
    wait_until("all is stored", || slots(&disk).iter().any(|slot| slot.1.floor == 20));
    let is_segment = |path: &Path| path.extension().is_some_and(|it| it == "seg");
    // Segments are forgotten a moment before they are removed.
    wait_until("no segment is left", || !disk.contents().iter().any(|(path, _)| is_segment(path)));
    let disk = disk.kill_process();
    let slots = slots(&disk);
    let newer = usize::from(slots[1].0 > slots[0].0);
    (slots[1 - newer].1.head < 20).then_some((disk, newer as u64 * SLOT_LEN_BYTES))
}

/// Scenario: the disk refuses the newer slot of a cursor at a start, for a moment or for good, and
/// the segments that it names are gone. Guarantee: frames that become durable then are delivered
/// after the next start, at which the disk works.
#[test]
fn no_offset_is_given_twice_when_a_slot_of_a_cursor_cannot_be_read() {
    for is_for_good in [false, true] {
        let (disk, newer) = disk_without_backlog();
        let unreadable = newer..newer + 1;
        let patience = if is_for_good { SHORT } else { Duration::from_secs(5) };
        disk.set_unreadable(".cursor", unreadable);
        let healed = disk.clone();
        let healing = std::thread::spawn(move || {
            std::thread::sleep(4 * SHORT);
            if !is_for_good {
                healed.clear_fault();
            }
        });
        // The cursor is not written in this process.
        let keep_interval = Duration::from_secs(3_600);
        let options = OpenOptions { read_patience: patience, keep_interval, ..options(&disk) };
        let (log, recovered): (Log<Note>, _) = Log::open(options).expect("the log opens");
        healing.join().unwrap();
        assert_eq!(recovered.cursors_refused.len(), usize::from(is_for_good));
        assert_eq!(log.trouble().is_some(), is_for_good, "it is said");
        let id = subscribe(&log, "a");
        append_durable(&log, 0..20, 1_000, &[id]);
        let disk = disk.kill_process();
        disk.clear_fault();
        let (log, recovered) = open(&disk);
        assert!(recovered.cursors_refused.is_empty());
        assert_eq!(values(&read_all(&log, subscribe(&log, "a"))), (0..20).collect::<Vec<_>>());
    }
}

/// Guarantee: a cursor file with a slot that can never be read is soon replaced.
#[test]
fn a_cursor_with_a_slot_that_cannot_be_read_is_written_anew() {
    let (disk, newer) = disk_without_backlog();
    disk.set_unreadable(".cursor", newer..newer + 1);
    let (log, _) = open_with(&disk, SHORT);
    let (id, durable) = (subscribe(&log, "a"), Durable::default());
    disk.reset_counts();
    append(&log, 0, 1_000, &[id], &durable);
    wait_until("written anew", || disk.counts().of(Operation::Rename) == 1);
    wait_until("the trouble ends", || log.trouble().is_none());
    disk.clear_fault();
    let (log, _) = open(&disk.kill_process());
    assert_eq!(values(&read_all(&log, subscribe(&log, "a"))), [0]);
}

/// Scenario: one reader needs a file that cannot be read at all, for longer than the log is
/// patient. Guarantee: it stays, and is read as soon as it can be; the other reader does not wait.
#[test]
fn a_file_of_which_nothing_can_be_read_is_waited_for_by_those_that_need_it() {
    for positions in [0..u64::MAX, 4096..u64::MAX] {
        let disk = disk_with_backlog(&["waits"]);
        disk.set_unreadable(FIRST, positions);
        let (log, _) = open_with(&disk, SHORT);
        let (waits, healthy) = (subscribe(&log, "waits"), subscribe(&log, "healthy"));
        append_durable(&log, 0..FRAMES, 1_000, &[healthy]);
        wait_until("nothing in memory", || log.stored_bytes() == 0);
        assert!(log.read(waits).entry().is_none());
        wait_until("trouble", || log.trouble().is_some());
        let began = Instant::now();
        assert_eq!(read_all(&log, healthy).len() as u64, FRAMES);
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        std::thread::sleep(10 * SHORT);
        assert!(log.read(waits).entry().is_none() && log.trouble().is_some());
        disk.clear_fault();
        assert_eq!(values(&read_all(&log, waits)), (0..FRAMES).collect::<Vec<_>>());
        wait_until("the trouble ends", || log.trouble().is_none());
        assert_eq!(log.stats().frames_damaged, 0);
    }
}

/// Scenario: one of two readers meets a bad block far behind the start of a file that both need.
/// Guarantee: the frames around it are delivered, and those in it do not count as taken.
#[test]
fn a_bad_block_is_passed_and_what_was_in_it_is_not_given_up_by_others() {
    const MANY: u64 = 3_000;
    let disk = FaultyDisk::new(7);
    let options = OpenOptions { read_patience: SHORT, segment_bytes: 4 << 20, ..options(&disk) };
    let log = Log::open(options).expect("the log opens").0;
    let (a, b) = (subscribe(&log, "a"), subscribe(&log, "b"));
    append_durable(&log, 0..MANY, 1_000, &[a, b]);
    wait_until("nothing in memory", || log.stored_bytes() == 0);
    disk.set_unreadable(FIRST, 2_500_000..2_500_001);
    let read = read_all(&log, a);
    let lost = MANY - read.len() as u64;
    assert!((1..10).contains(&lost) && log.stats().frames_damaged > 0, "{lost}");
    read.iter().for_each(|(offset, _)| assert!(log.resolve(a, *offset)));
    disk.clear_fault();

    log.gauges(b).allow(Sheds::Taken);
    log.set_limits(b, 0, u64::MAX);
    wait_until("all that was taken is dropped", || {
        log.drop_oldest_unread(b);
        log.held(b).frames <= lost + 1
    });
    let taken = values(&read);
    let left = values(&read_all(&log, b));
    assert_eq!(left.iter().filter(|value| !taken.contains(value)).count() as u64, lost);
}

/// Scenario: a reader has gone and left a file that cannot be read. Guarantee: the thread that all
/// readers share does not wait for it.
#[test]
fn what_cannot_be_read_for_a_reader_that_has_gone_slows_no_other() {
    let disk = disk_with_backlog(&["gone"]);
    disk.set_unreadable(FIRST, 4096..u64::MAX);
    let options = OpenOptions { read_patience: SHORT, read_ahead_bytes: 10_000, ..options(&disk) };
    let log = Log::open(options).expect("the log opens").0;
    let healthy = subscribe(&log, "healthy");
    append_durable(&log, 0..FRAMES, 1_000, &[healthy]);
    wait_until("nothing in memory", || log.stored_bytes() == 0);
    let began = Instant::now();
    assert_eq!(read_all(&log, healthy).len() as u64, FRAMES);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(log.orphans().len(), 1);
}

/// Scenario: a reader with a budget is behind, and its oldest file cannot be read. Guarantee: it
/// drops frames behind that file, and keeps the file.
#[test]
fn what_cannot_be_read_does_not_keep_a_reader_from_dropping_the_rest() {
    let disk = disk_with_backlog(&["a"]);
    disk.set_unreadable(FIRST, 0..u64::MAX);
    let (log, _) = open_with(&disk, SHORT);
    let id = subscribe(&log, "a");
    log.set_limits(id, 10_000, u64::MAX);
    wait_until("what lies behind it is dropped", || {
        log.drop_oldest_unread(id);
        log.dropped_total(id).frames > 100
    });
    disk.clear_fault();
    let read = values(&read_all(&log, id));
    assert!(read.len() < 100 && read.starts_with(&[0, 1, 2]) && read.ends_with(&[199]), "{read:?}");
}

/// Scenario: as above, and the budget is lifted while the reader drops behind that file. Guarantee:
/// the file is kept.
#[test]
fn what_cannot_be_read_stays_when_a_drop_behind_it_is_called_off() {
    let disk = disk_with_backlog(&["a"]);
    disk.set_unreadable(FIRST, 0..u64::MAX);
    let (log, _) = open_with(&disk, SHORT);
    let (entered, may_go, woken) = <(Arc<AtomicBool>, Arc<AtomicBool>, Arc<AtomicBool>)>::default();
    let wake = woken.clone();
    let id = log.subscribe(Subscription {
        wake: Arc::new(move || wake.store(true, Ordering::Relaxed)),
        ..Subscription::new("a")
    });
    log.gauges(id).allow(Sheds::Everything);
    let (enter, may_pass) = (entered.clone(), may_go.clone());
    disk.set_read_gate(move |path| {
        // Maintenance reads too.
        let drops = std::thread::current().name().is_some_and(|name| name.starts_with("log-read"));
        if drops && !path.ends_with(&FIRST[1..]) {
            enter.store(true, Ordering::Relaxed);
            wait_until("the gate opens", || may_pass.load(Ordering::Relaxed));
        }
    });
    log.set_limits(id, 10_000, u64::MAX);
    log.drop_oldest_unread(id);
    wait_until("it drops behind the file", || entered.load(Ordering::Relaxed));
    log.set_limits(id, u64::MAX, u64::MAX);
    log.drop_oldest_unread(id);
    woken.store(false, Ordering::Relaxed);
    may_go.store(true, Ordering::Relaxed);
    wait_until("it stops dropping", || woken.load(Ordering::Relaxed));
    disk.clear_fault();
    let expected: Vec<_> = (0..FRAMES).collect();
    assert_eq!(values(&read_all(&log, id)), expected, "nothing was over the budget any more");
}

/// Scenario: one file cannot be opened once at a start. Guarantee: the next try opens it.
#[test]
fn a_file_that_cannot_be_opened_at_once_is_opened_a_little_later() {
    for what in [".seg", ".cursor"] {
        let disk = disk_with_backlog(&["a"]);
        let mut is_first = true;
        disk.set_fault(move |call| {
            let is_opened = call.operation == Operation::Open
                && call.path.to_string_lossy().ends_with(what)
                && std::mem::take(&mut is_first);
            is_opened.then(input_output)
        });
        let (log, recovered) = open_with(&disk, Duration::from_secs(5));
        assert!(recovered.unread.is_empty(), "{what}");
        let id = subscribe(&log, "a");
        assert_eq!(read_all(&log, id).len() as u64, FRAMES, "{what}");
    }
}

/// Scenario: one call fails once at a start, of each kind that a start makes. Guarantee: the log
/// opens, with all its frames.
#[test]
fn a_call_that_fails_once_does_not_end_a_start() {
    use Operation::{CreateDirectory, Len, List, Open, Read, Rename};
    for operation in [List, CreateDirectory, Open, Read, Len, Rename] {
        // Each call of the kind, up to those that come after the start.
        for number in 0.. {
            let disk = disk_with_backlog(&["a"]);
            disk.put(Path::new("/log/traces/cursors/b.cursor"), &[7; 100]);
            let calls = Arc::new(AtomicU64::new(0));
            let counted = calls.clone();
            disk.set_fault(move |call| {
                let is_of_kind = call.operation == operation;
                (is_of_kind && counted.fetch_add(1, Ordering::SeqCst) == number).then(input_output)
            });
            let (log, found) = try_open(&disk).expect("only one call fails");
            let is_at_start = calls.load(Ordering::SeqCst) > number;
            assert_eq!((found.unread, found.cursors, found.lost_cursors.len()), (Vec::new(), 1, 1));
            let id = subscribe(&log, "a");
            assert_eq!(read_all(&log, id).len() as u64, FRAMES, "{operation:?} {number}");
            if !is_at_start {
                assert!(number > 0, "{operation:?}: it is called");
                break;
            }
        }
    }
}

/// Scenario: the newest file is sealed, and the only frame in it is damaged. Guarantee: the loss is
/// counted, and the file stays until its reader has come to it.
#[test]
fn a_sealed_file_without_a_whole_frame_is_counted_and_stays_until_its_reader_comes() {
    let disk = FaultyDisk::new(7);
    let keep_interval = Duration::from_secs(3_600);
    let log: Log<Note> =
        Log::open(OpenOptions { keep_interval, ..options(&disk) }).expect("the log opens").0;
    let id = subscribe(&log, "a");
    let durable = Durable::default();
    // The second frame needs a file of its own, so that the first file is sealed.
    for value in 0..2 {
        append(&log, value, 50_000, &[id], &durable);
        wait_durable(&durable, value as usize + 1);
    }
    let disk = disk.kill_process();
    let path = Path::new("/log/traces/0000000000000000.seg");
    disk.flip_bit(path, (4096 + 20) * 8);
    let stays = || disk.contents().iter().any(|(file, _)| file == path);
    let (log, recovered) = open(&disk);
    assert_eq!(recovered.frames_damaged, 1);
    // Gives the maintenance thread time to run.
    std::thread::sleep(Duration::from_millis(50));
    assert!(stays());
    assert_eq!(values(&read_all(&log, subscribe(&log, "a"))), [1]);
    wait_until("removed", || !stays());
}

/// Scenario: few frames of each segment wait for a dead reader, and one segment cannot be read.
/// Guarantee: the other segments are rewritten all the same.
#[test]
fn a_segment_that_cannot_be_read_keeps_no_other_from_being_written_anew() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let (dead, alive) = (subscribe(&log, "dead"), subscribe(&log, "alive"));
    let durable = Durable::default();
    for round in 0..40 {
        append(&log, round * 50, 100, &[dead], &durable);
        for index in 1..50 {
            append(&log, round * 50 + index, 1_000, &[alive], &durable);
        }
        wait_durable(&durable, (round as usize + 1) * 50);
        if round == 1 {
            disk.set_unreadable(FIRST, 8192..u64::MAX);
        }
        if round > 0 {
            for (offset, _) in read_all(&log, alive) {
                log.resolve(alive, offset);
            }
        }
    }
    let is_done = |stats: LogStats| stats.rewrites > 0 && stats.disk_bytes < 1_000_000;
    wait_until("written anew, all but the first one", || is_done(log.stats()));
    assert!(disk.contents().iter().any(|(file, _)| file.to_string_lossy().ends_with(FIRST)));
}

/// Scenario: no file can be removed for a while. Guarantee: unneeded files are removed afterwards.
#[test]
fn segments_that_could_not_be_removed_go_later() {
    let disk = FaultyDisk::new(7);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    disk.set_fault(|call| {
        let is_segment = call.path.to_string_lossy().ends_with(".seg");
        (call.operation == Operation::RemoveFile && is_segment).then(input_output)
    });
    append_durable(&log, 0..1_000, 1_000, &[id]);
    for (offset, _) in read_all(&log, id) {
        log.resolve(id, offset);
    }
    wait_until("tried", || log.stats().failures > 0);
    assert!(disk.used_bytes() > 1_000_000);
    disk.clear_fault();
    wait_until("gone", || disk.used_bytes() < 200_000);
}

/// Scenario: the disk takes its time to refuse each block of a bad region. Guarantee: the reader
/// whose frames are there waits; between any few refusals frames are read for the other reader.
#[test]
fn a_bad_region_that_is_refused_slowly_slows_no_other_reader() {
    // Four blocks, with a frame in each.
    const BAD: Range<u64> = 20_480..36_864;
    let disk = FaultyDisk::new(7);
    let read_ahead_bytes = 64 << 10;
    let options = OpenOptions { read_ahead_bytes, read_patience: Duration::ZERO, ..options(&disk) };
    let log: Log<Note> = Log::open(options).expect("the log opens").0;
    let (slow, healthy) = (subscribe(&log, "slow"), subscribe(&log, "healthy"));
    append_one_by_one(&log, 0..FRAMES, 1_000, &[slow]);
    append_durable(&log, FRAMES..6_000, 1_000, &[healthy]);
    wait_until("nothing in memory", || log.stored_bytes() == 0);
    let (in_a_row, longest) = (AtomicU64::new(0), AtomicU64::new(0));
    let (refused, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let counts = Arc::new((in_a_row, longest, refused, is_over));
    let counted = counts.clone();
    disk.set_fault(move |call| {
        let (in_a_row, longest, refused, is_over) = &*counted;
        let (path, positions) = (call.path.to_string_lossy(), &call.positions);
        if call.operation != Operation::Read || !path.ends_with(".seg") {
            return None;
        }
        if !path.ends_with(FIRST) {
            in_a_row.store(0, Ordering::SeqCst);
        } else if positions.start < BAD.end && BAD.start < positions.end {
            std::thread::sleep(Duration::from_millis(120));
            refused.fetch_add(1, Ordering::SeqCst);
            let in_a_row = in_a_row.fetch_add(1, Ordering::SeqCst) + 1;
            if !is_over.load(Ordering::SeqCst) {
                longest.fetch_max(in_a_row, Ordering::SeqCst);
            }
            return Some(input_output());
        }
        None
    });
    let (_, longest, refused, is_over) = &*counts;
    std::thread::scope(|scope| {
        // It has always more to read, and always takes it.
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                for _ in 0..2 {
                    match log.read(healthy) {
                        Next::Entry(offset, _) => _ = log.resolve(healthy, offset),
                        Next::Empty => is_over.store(true, Ordering::SeqCst),
                        Next::Loading | Next::Full => {}
                    }
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let read = values(&read_all(&log, slow));
        is_over.store(true, Ordering::SeqCst);
        let missing: Vec<u64> = (0..FRAMES).filter(|value| !read.contains(value)).collect();
        assert_eq!(missing, [4, 5, 6, 7], "only those in the region");
        assert_eq!(log.lost_total(slow).frames, missing.len() as u64);
    });
    let refused = refused.load(Ordering::SeqCst);
    assert!((8..=14).contains(&refused), "each block twice, and reads of several: {refused}");
    let longest = longest.load(Ordering::SeqCst);
    assert!(longest <= 4, "the other reader waited for {longest} refusals");
}
