//! The log never takes what it cannot read for what is gone: a file in which readers passed
//! something is set aside, counted, and read again once it was put back.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sluice_log::disk::Disk as _;
use sluice_log::format::{SLOT_LEN_BYTES, decode_slot};
use sluice_log::{CursorId, Holding, Keep, Log, Next, OpenOptions, StoredRecord, Subscription};
use support::faulty_disk::{FaultyDisk, Operation, Unsynced, input_output};
use support::note::*;

const FRAMES: u64 = 200;
const FIRST: &str = "/log/traces/0000000000000000.seg";

/// Where the frame with this number begins in its file, if each was written alone.
const fn block(frame: u64) -> u64 {
    4_096 * (1 + frame)
}

/// A place in a frame of the oldest file.
const IN_A_FRAME: std::ops::Range<u64> = block(4) + 20..block(4) + 30;

/// A disk after an orderly end: frames in several segments, none delivered.
fn disk_with_backlog() -> FaultyDisk {
    let disk = FaultyDisk::new(7);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    append_one_by_one(&log, 0..FRAMES, 1_000, &[id]);
    assert!(log.stats().segments > 3, "the test is about several segments");
    log.close(PATIENCE);
    disk.kill_process()
}

fn names(disk: &FaultyDisk) -> Vec<String> {
    let files = disk.list(Path::new(DIRECTORY)).unwrap().into_iter();
    files.map(|file| file.name).filter(|name| name.contains(".seg")).collect()
}

fn put_back(disk: &FaultyDisk) {
    for name in names(disk) {
        if let Some((before, _)) = name.split_once(".damaged") {
            let directory = Path::new(DIRECTORY);
            disk.rename(&directory.join(&name), &directory.join(before)).unwrap();
        }
    }
}

fn resolve_all(log: &Log<Note>, id: CursorId) -> Vec<u64> {
    let read = read_all(log, id);
    read.iter().for_each(|(offset, _)| assert!(log.resolve(id, *offset)));
    values(&read)
}

fn wait_set_aside(log: &Log<Note>, files: u64) {
    wait_until("all is delivered or set aside", || {
        let stats = log.stats();
        (stats.set_aside_files, stats.segments) == (files, 0)
    });
}

/// A change of the oldest file, and the number of damaged places or of files that are set aside.
type Destruction = (&'static str, fn(&FaultyDisk), u64);

const DESTRUCTIONS: [Destruction; 8] = [
    ("several frames", |disk| overwrite(disk, block(4) + 20..block(6) + 500), 1),
    ("a frame's body", |disk| disk.flip_bit(Path::new(FIRST), (block(4) + 500) * 8), 1),
    ("both headers and the first frame", |disk| overwrite(disk, 0..6_000), 1),
    ("zeros: both headers and frames", |disk| fill(disk, 0..block(3), 0), 1),
    ("zeros: whole frames", |disk| fill(disk, block(4)..block(6), 0), 1),
    ("zeros: the last frames", |disk| fill(disk, block(12)..block(14), 0), 1),
    ("everything", |disk| overwrite(disk, 0..u64::MAX), 1),
    (
        "two places",
        |disk| {
            overwrite(disk, IN_A_FRAME);
            overwrite(disk, block(7)..block(7) + 10);
        },
        2,
    ),
];

fn overwrite(disk: &FaultyDisk, positions: std::ops::Range<u64>) {
    fill(disk, positions, 7);
}

fn fill(disk: &FaultyDisk, positions: std::ops::Range<u64>, byte: u8) {
    let path = Path::new(FIRST);
    let (_, mut bytes) = disk.contents().into_iter().find(|(file, _)| file == path).unwrap();
    let end = bytes.len().min(positions.end as usize);
    bytes[positions.start as usize..end].fill(byte);
    disk.put(path, &bytes);
}

/// Guarantee: damage is counted once and its frames exactly; the file is not removed, and counts as
/// used disk. Once it was repaired and put back, exactly the lost frames are delivered.
#[test]
fn a_damaged_file_is_set_aside_and_what_was_lost_comes_when_it_is_put_back() {
    for (what, destroy, places) in DESTRUCTIONS {
        let disk = disk_with_backlog();
        let path = Path::new(FIRST);
        let (_, whole) = disk.contents().into_iter().find(|(file, _)| file == path).unwrap();
        destroy(&disk);
        let (log, _) = open(&disk);
        let id = subscribe(&log, "a");
        let read = resolve_all(&log, id);
        let lost = FRAMES - read.len() as u64;
        assert!(lost > 0 && read.ends_with(&[FRAMES - 1]), "{what}: {lost}");
        wait_set_aside(&log, 1);
        let stats = log.stats();
        assert_eq!((log.lost_total(id).frames, stats.frames_damaged), (lost, places), "{what}");
        assert_eq!(stats.disk_bytes, stats.set_aside_bytes, "{what}");
        assert_eq!(log.held(id), Holding::default(), "{what}");
        wait_until("the others are removed", || names(&disk) == ["0000000000000000.seg.damaged"]);
        append(&log, FRAMES, 1_000, &[id], &Durable::default());
        log.unsubscribe(id, Keep::Backlog);
        log.close(PATIENCE);

        // A start changes nothing.
        let (log, found) = open(&disk);
        assert_eq!(found.set_aside, [PathBuf::from(format!("{FIRST}.damaged"))], "{what}");
        let id = subscribe(&log, "a");
        assert_eq!(resolve_all(&log, id), [FRAMES], "{what}");
        assert_eq!(log.lost_total(id), Holding::default(), "{what}: it was counted before");
        log.unsubscribe(id, Keep::Backlog);
        log.close(PATIENCE);

        put_back(&disk);
        disk.put(path, &whole);
        let (log, found) = open(&disk);
        assert!(found.set_aside.is_empty(), "{what}");
        let id = subscribe(&log, "a");
        let late = resolve_all(&log, id);
        assert!((0..FRAMES).all(|value| read.contains(&value) != late.contains(&value)), "{what}");
        wait_set_aside(&log, 0);
        assert_eq!(log.stats().frames_damaged, 0, "{what}");
    }
}

/// Scenario: nothing of the newest file can be read. Guarantee: the same as for older files.
#[test]
fn the_newest_file_is_set_aside_too() {
    let disk = FaultyDisk::new(7);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    append_one_by_one(&log, 0..10, 1_000, &[id]);
    let disk = disk.kill_process();
    let path = Path::new(FIRST);
    let (_, whole) = disk.contents().into_iter().find(|(file, _)| file == path).unwrap();
    overwrite(&disk, 0..u64::MAX);
    let (log, found) = open(&disk);
    assert_eq!(found.frames_damaged, 1);
    let id = subscribe(&log, "a");
    append(&log, 10, 1_000, &[id], &Durable::default());
    assert_eq!(resolve_all(&log, id), [10]);
    wait_until("set aside", || log.stats().set_aside_files == 1);
    log.close(PATIENCE);
    put_back(&disk);
    disk.put(path, &whole);
    let (log, _) = open(&disk);
    assert_eq!(resolve_all(&log, subscribe(&log, "a")), (0..10).collect::<Vec<_>>());
}

/// Scenario: a process is killed in the middle of a write, which leaves a part of a frame that was
/// never acknowledged. Guarantee: no start takes this for damage of the file.
#[test]
fn what_a_kill_left_of_a_write_sets_no_file_aside() {
    let disk = FaultyDisk::new(7);
    let (log, _) = open(&disk);
    let (a, b) = (subscribe(&log, "a"), subscribe(&log, "b"));
    append_one_by_one(&log, 0..10, 1_000, &[a, b]);
    let mut disk = disk.kill_process();
    let path = Path::new(FIRST);
    let (_, mut bytes) = disk.contents().into_iter().find(|(file, _)| file == path).unwrap();
    let end = bytes.iter().rposition(|&byte| byte != 0).unwrap().next_multiple_of(8);
    bytes[end + 8..end + 100].fill(7);
    disk.put(path, &bytes);
    for _ in 0..3 {
        let (log, _) = open(&disk);
        let (a, b) = (subscribe(&log, "a"), subscribe(&log, "b"));
        resolve_all(&log, a);
        assert_eq!(read_all(&log, b).len(), 10);
        log.close(PATIENCE);
        assert!(log.set_aside().is_empty(), "{:?}", log.stats());
        disk = disk.kill_process();
    }
    let (log, _) = open(&disk);
    assert_eq!(resolve_all(&log, subscribe(&log, "b")).len(), 10);
    subscribe(&log, "a");
    wait_set_aside(&log, 0);
}

/// Scenario: a file between small ones, which are worth a rewrite, is set aside. Guarantee: no
/// later start takes frames of the others for those of that file.
#[test]
fn what_is_beside_a_file_that_was_set_aside_is_not_passed_with_it() {
    let mut disk = disk_with_small_files();
    let third = Path::new(DIRECTORY).join(names(&disk)[2].clone());
    let (_, whole) = disk.contents().into_iter().find(|(file, _)| *file == third).unwrap();
    disk.put(&third, &vec![7; whole.len()]);
    let expected: Vec<u64> = (10..60).filter(|value| value / 10 != 2).collect();
    for _ in 0..3 {
        let log: Log<Note> = Log::open(large_segments(&disk)).expect("the log opens").0;
        let id = subscribe(&log, "keeper");
        assert_eq!(values(&read_all(&log, id)), expected);
        assert_eq!(read_all(&log, subscribe(&log, "dead")).len(), 10);
        wait_until("set aside", || log.stats().set_aside_files == 1);
        // Gives the maintenance thread time to rewrite.
        std::thread::sleep(Duration::from_millis(50));
        disk = disk.kill_process();
    }
    put_back(&disk);
    disk.put(&third, &whole);
    let log: Log<Note> = Log::open(large_segments(&disk)).expect("the log opens").0;
    let id = subscribe(&log, "keeper");
    assert_eq!(resolve_all(&log, id), (10..60).collect::<Vec<_>>());
}

/// Scenario: no reader is left beside files that were set aside. Guarantee: their offsets are not
/// given again, and a file that is put back does not stop the start.
#[test]
fn files_that_were_set_aside_stay_files_of_the_log() {
    let disk = disk_with_backlog();
    overwrite(&disk, IN_A_FRAME);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    resolve_all(&log, id);
    wait_set_aside(&log, 1);
    log.unsubscribe(id, Keep::Nothing);
    log.close(PATIENCE);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    let durable = Durable::default();
    assert!(append(&log, 0, 1_000, &[id], &durable) > FRAMES);
    wait_durable(&durable, 1);
    log.close(PATIENCE);
    put_back(&disk);
    let (log, _) = open(&disk);
    assert_eq!(resolve_all(&log, subscribe(&log, "a")), [0]);
}

/// Scenario: the file that is put back is as damaged as before, and another one has been set aside
/// under its name meanwhile. Guarantee: it is set aside again, and no file is replaced.
#[test]
fn a_file_that_is_put_back_too_early_is_set_aside_again() {
    let disk = disk_with_backlog();
    overwrite(&disk, IN_A_FRAME);
    for _ in 0..2 {
        let (log, _) = open(&disk);
        resolve_all(&log, subscribe(&log, "a"));
        wait_set_aside(&log, 1);
        log.close(PATIENCE);
        put_back(&disk);
    }
    disk.put(&Path::new(DIRECTORY).join("0000000000000000.seg.damaged"), b"of the operator");
    let (log, _) = open(&disk);
    resolve_all(&log, subscribe(&log, "a"));
    wait_set_aside(&log, 2);
    let aside = ["0000000000000000.seg.damaged", "0000000000000000.seg.damaged-2"];
    assert_eq!(names(&disk), aside);
}

/// Scenario: a bad block is passed after the disk has refused it for long, and can be read some
/// time later. Guarantee: the file has stayed, and what was in the block is delivered.
#[test]
fn what_was_in_a_bad_block_is_delivered_when_the_disk_can_read_it_again() {
    let disk = disk_with_backlog();
    disk.set_unreadable(FIRST, IN_A_FRAME);
    let options = OpenOptions { read_patience: Duration::from_millis(50), ..options(&disk) };
    let log: Log<Note> = Log::open(options).expect("the log opens").0;
    let id = subscribe(&log, "a");
    let read = resolve_all(&log, id);
    wait_set_aside(&log, 1);
    assert_eq!(log.lost_total(id).frames, FRAMES - read.len() as u64);
    log.close(PATIENCE);
    disk.clear_fault();
    put_back(&disk);
    let (log, _) = open(&disk);
    let late = resolve_all(&log, subscribe(&log, "a"));
    assert!(!late.is_empty() && late.iter().all(|value| !read.contains(value)), "{late:?}");
    wait_set_aside(&log, 0);
}

/// Scenario: a newer release wrote some of the frames, and an older one runs for a while.
/// Guarantee: the older one delivers what it knows, and the newer one the rest.
#[test]
fn frames_of_a_newer_release_stay_for_it() {
    let disk = FaultyDisk::new(7);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    let durable = Durable::default();
    for value in 0..10 {
        let newer = if value % 2 == 0 { OF_NEWER_RELEASE } else { 0 };
        append(&log, newer + value, 1_000, &[id], &durable);
    }
    wait_durable(&durable, 10);
    log.close(PATIENCE);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    assert!(resolve_all(&log, id).iter().all(|value| value % 2 == 1));
    wait_set_aside(&log, 1);
    assert_eq!((log.lost_total(id).frames, log.stats().frames_of_newer_release), (5, 5));
    assert_eq!(log.stats().frames_damaged, 0);
    log.close(PATIENCE);
    put_back(&disk);
    let options = OpenOptions { disk: Arc::new(disk.clone()), ..options(&disk) };
    let log: Log<StoredRecord> = Log::open(options).expect("the log opens").0;
    let id = log.subscribe(Subscription::new("a"));
    let mut read = 0;
    wait_until("all are delivered", || {
        if let Next::Entry(offset, entry) = log.read(id) {
            assert_eq!(entry.metadata[0] % 2, 0);
            log.resolve(id, offset);
            read += 1;
        }
        read == 5
    });
    wait_until("removed", || {
        assert!(log.read(id).entry().is_none());
        log.stats().segments == 0
    });
}

/// Scenario: a file disappears, is emptied, or has another one's name. Guarantee: what is missing
/// is counted exactly when the delivery has come to its end, and a file with frames is kept.
#[test]
fn missing_frames_are_counted() {
    let changes: [Destruction; 3] = [
        ("removed", |disk| disk.remove_file(Path::new(FIRST)).unwrap(), 0),
        ("emptied", |disk| disk.put(Path::new(FIRST), b""), 1),
        (
            "renamed",
            |disk| {
                let other = Path::new(DIRECTORY).join("0000000000000003.seg");
                disk.rename(Path::new(FIRST), &other).unwrap();
            },
            1,
        ),
    ];
    for (what, change, aside) in changes {
        let disk = disk_with_backlog();
        change(&disk);
        let (log, _) = open(&disk);
        let id = subscribe(&log, "a");
        let read = resolve_all(&log, id).len() as u64;
        assert!(read < FRAMES, "{what}");
        let lost = log.lost_total(id);
        assert_eq!((lost.frames, log.held(id).frames), (FRAMES - read, 0), "{what}");
        assert!(lost.items >= lost.frames && lost.bytes > 1_000 * lost.frames, "{what}");
        wait_set_aside(&log, aside);
    }
}

/// Scenario: the process is killed, or the power fails, between any two steps of a log that removes
/// and rewrites segments. Guarantee: nothing counts as lost.
#[test]
fn after_a_crash_nothing_counts_as_lost() {
    for unsynced in [Unsynced::Lost, Unsynced::Mixed] {
        let disk = FaultyDisk::new(1);
        let (log, _) = open(&disk);
        append_sparse(&log, 0..40);
        wait_until("some are rewritten", || log.stats().rewrites > 0);
        for _ in 0..20 {
            let disk = disk.cut_power(unsynced);
            let (log, _) = open(&disk);
            for name in ["dead", "alive"] {
                let id = subscribe(&log, name);
                read_all(&log, id);
                assert_eq!(log.lost_total(id), Holding::default(), "{name}");
            }
            assert_eq!(log.stats().set_aside_files, 0);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Scenario: a file cannot be renamed for a while. Guarantee: it stays, and is set aside later.
#[test]
fn a_file_that_cannot_be_set_aside_stays() {
    let disk = disk_with_backlog();
    overwrite(&disk, IN_A_FRAME);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    disk.set_fault(|call| {
        let is_segment = call.path.to_string_lossy().contains(".seg");
        (call.operation == Operation::Rename && is_segment).then(input_output)
    });
    resolve_all(&log, id);
    wait_until("tried", || log.stats().failures > 0);
    assert!(disk.contents().iter().any(|(file, _)| file == Path::new(FIRST)));
    disk.clear_fault();
    wait_set_aside(&log, 1);
}

/// The floor and the head of the log as a cursor's file tells them.
fn stored(disk: &FaultyDisk, name: &str) -> (u64, u64) {
    let files = disk.contents();
    let (_, bytes) = files.iter().find(|(path, _)| path.ends_with(name)).expect("a cursor");
    let slots = bytes.chunks(SLOT_LEN_BYTES as usize).filter_map(|slot| decode_slot(slot).ok());
    slots
        .max_by_key(|(sequence, _)| *sequence)
        .map_or((0, 0), |(_, state)| (state.floor, state.head))
}

/// Scenario: the process is killed, and headers at the end of its newest file are damaged: the last
/// ones, or all. A cursor tells that these frames were durable. Guarantee: nothing of the file is
/// cut or removed. What can be read is delivered, and the file is set aside.
#[test]
fn damage_at_the_end_of_what_was_durable_is_kept() {
    const FRAMES: u64 = 6;
    for damaged in [5..6, 3..6, 0..6] {
        let disk = FaultyDisk::new(1);
        let (log, _) = open(&disk);
        let (id, durable) = (subscribe(&log, "a"), Durable::default());
        for value in 0..FRAMES {
            append(&log, value, 3_900, &[id], &durable);
            wait_durable(&durable, value as usize + 1);
        }
        let (offset, _) = next(&log, id).expect("a frame");
        log.resolve(id, offset);
        let resolved = (offset + 1, FRAMES);
        wait_until("the cursor is written", || stored(&disk, "a.cursor") == resolved);
        let disk = disk.kill_process();
        drop(log);
        let (path, _) = disk
            .contents()
            .into_iter()
            .find(|(path, _)| path.extension().is_some_and(|extension| extension == "seg"))
            .expect("a segment");
        damaged.clone().for_each(|frame| disk.flip_bit(&path, (4_096 * (frame + 1) + 20) * 8));
        let damaged_bytes: Vec<u8> = disk.contents().into_iter().find(|it| it.0 == path).unwrap().1;
        let (log, found) = open(&disk);
        assert_eq!((found.frames_damaged, found.cut.len()), (1, 0), "{damaged:?}");
        let id = subscribe(&log, "a");
        let read = read_all(&log, id);
        let readable: Vec<u64> = (1..damaged.start.max(1)).collect();
        assert_eq!(values(&read), readable, "{damaged:?}");
        read.iter().for_each(|(offset, _)| _ = log.resolve(id, *offset));
        wait_until("it is set aside", || log.stats().set_aside_files == 1);
        let aside = log.set_aside().remove(0);
        let kept = disk.contents().into_iter().find(|(path, _)| *path == aside).expect("a file").1;
        // Reserved space behind the damage may go.
        assert!(kept.len() as u64 >= 4_096 * damaged.end && damaged_bytes.starts_with(&kept));
    }
}

/// Scenario: a frame is damaged in a file that was not sealed when the process ended, before any
/// cursor told of it; a later sync shows that it was durable. Guarantee: the file is set aside.
#[test]
fn damage_before_a_later_sync_is_not_what_a_crash_left() {
    for is_power_cut in [false, true] {
        let disk = FaultyDisk::new(7);
        let keep_interval = Duration::from_secs(3_600);
        let log: Log<Note> = Log::open(OpenOptions { keep_interval, ..options(&disk) }).unwrap().0;
        let id = subscribe(&log, "a");
        append_one_by_one(&log, 0..10, 1_000, &[id]);
        let disk = match is_power_cut {
            true => disk.cut_power(Unsynced::Lost),
            false => disk.kill_process(),
        };
        disk.flip_bit(Path::new(FIRST), (block(4) + 500) * 8);
        let (log, found) = open(&disk);
        assert_eq!((found.frames_damaged, found.cut), (1, Vec::new()), "{is_power_cut}");
        let id = subscribe(&log, "a");
        assert_eq!(resolve_all(&log, id).len(), 9, "{is_power_cut}");
        wait_set_aside(&log, 1);
        assert_eq!(log.stats().frames_damaged, 1);
    }
}
