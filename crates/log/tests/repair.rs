//! Files that were set aside go back, or go for good, by an explicit decision only.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sluice_log::disk::Disk;
use sluice_log::inspect::overview;
use sluice_log::repair::{Examined, Remedy, apply, examine};
use sluice_log::{CursorId, Holding, Log, OpenOptions, StoredRecord, Subscription};
use support::faulty_disk::FaultyDisk;
use support::note::*;

const FIRST: &str = "/log/traces/0000000000000000.seg";
const ASIDE: &str = "/log/traces/0000000000000000.seg.damaged";

/// Ten frames in one file that a reader waits for; each begins a block.
fn disk_with_frames(values: std::ops::Range<u64>) -> FaultyDisk {
    let disk = FaultyDisk::new(7);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    for value in values {
        let durable = Durable::default();
        append(&log, value, 1_000, &[id], &durable);
        wait_durable(&durable, 1);
    }
    log.close(PATIENCE);
    disk.kill_process()
}

fn content(disk: &FaultyDisk, path: &str) -> Vec<u8> {
    let mut files = disk.contents().into_iter();
    files.find(|(file, _)| file == Path::new(path)).expect("the file").1
}

/// Sets the only file aside with a damaged frame. Returns the whole file.
fn set_aside(disk: &FaultyDisk) -> Vec<u8> {
    let whole = content(disk, FIRST);
    disk.flip_bit(Path::new(FIRST), (4_096 * 3 + 500) * 8);
    assert_eq!(deliver_all(disk).len(), 9);
    whole
}

fn is_known(record: &StoredRecord) -> bool {
    u64::from_le_bytes(record.metadata[..].try_into().unwrap()) < OF_NEWER_RELEASE
}

fn examined(disk: &FaultyDisk) -> Vec<Examined> {
    let before = disk.contents();
    let examined = examine(disk, Path::new(DIRECTORY), &is_known).unwrap();
    assert!(disk.contents() == before, "examining changes nothing");
    examined
}

fn names(disk: &FaultyDisk) -> Vec<PathBuf> {
    let files = disk.contents().into_iter().map(|(path, _)| path);
    files.filter(|path| path.to_string_lossy().contains(".seg")).collect()
}

/// Guarantee: a file with something that is waited for goes back, and exactly that is delivered. A
/// file without may be given up, and the log goes on.
#[test]
fn what_can_be_read_goes_back_and_the_rest_may_go() {
    let disk = disk_with_frames(0..10);
    let whole = set_aside(&disk);
    let [file] = &examined(&disk)[..] else { panic!("one file") };
    assert!(matches!(file.remedy, Remedy::GiveUp), "{file:?}");
    assert_eq!(file.damage.frames, 1);

    disk.put(Path::new(ASIDE), &whole);
    let [file] = &examined(&disk)[..] else { panic!("one file") };
    assert!(matches!(&file.remedy, Remedy::PutBack(to) if to == Path::new(FIRST)), "{file:?}");
    assert_eq!(file.waiting.frames, 1);
    apply(&disk, file).unwrap();
    let disk = disk.kill_process();
    assert_eq!(deliver_all(&disk), [2]);
    assert!(examined(&disk).is_empty() && names(&disk).is_empty());

    let disk = disk_with_frames(0..10);
    set_aside(&disk);
    apply(&disk, &examined(&disk)[0]).unwrap();
    let disk = disk.kill_process();
    assert!(names(&disk).is_empty());
    assert!(deliver_all(&disk).is_empty());
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    assert!(append(&log, 10, 1_000, &[id], &Durable::default()) >= 10);
    assert_eq!(log.lost_total(id).frames, 0, "it was counted before");
}

/// The frames that, as a list says, wait for the reader.
fn listed(disk: &FaultyDisk) -> Holding {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    overview(&disk, Path::new("/log")).unwrap()[0].cursors[0].held
}

/// Guarantee: frames of a file that was put back are counted as what waits, by a list and by the
/// log, and not as lost; as long as they cannot be read they are not.
#[test]
fn what_was_put_back_counts_as_waiting() {
    let mut disk = disk_with_frames(0..10);
    let one = Holding::from(Note::new(2, 1_000, &Durable::default()).charge());
    let whole = set_aside(&disk);
    for is_repaired in [false, true] {
        if is_repaired {
            disk.put(Path::new(ASIDE), &whole);
        }
        disk.rename(Path::new(ASIDE), Path::new(FIRST)).unwrap();
        disk = disk.kill_process();
        let held = if is_repaired { one } else { Holding::default() };
        assert_eq!(listed(&disk), held);
        let (log, _) = open(&disk);
        let id = subscribe(&log, "a");
        assert_eq!(log.held(id), held);
        // A frame that waits behind it keeps its own count.
        append(&log, 10, 1_000, &[id], &Durable::default());
        let read = read_all(&log, id);
        assert_eq!(values(&read), if is_repaired { &[2, 10][..] } else { &[10] });
        assert_eq!(log.held(id).frames, read.len() as u64);
        read.iter().for_each(|(offset, _)| assert!(log.resolve(id, *offset)));
        assert_eq!((log.held(id), log.lost_total(id)), Default::default());
        wait_until("delivered", || log.stats().segments == 0);
        log.close(PATIENCE);
    }
}

/// Scenario: a reader has passed a damaged frame, whose file is set aside, and has not come to the
/// end when the log closes. Guarantee: the frame is in the count of what waits, once, whether the
/// file is put back or not; if not, it counts as lost, once.
#[test]
fn what_was_passed_before_a_restart_counts_once() {
    for is_put_back in [false, true] {
        let mut disk = disk_with_frames(0..20);
        let whole = content(&disk, FIRST);
        disk.flip_bit(Path::new(FIRST), (4_096 * 3 + 500) * 8);
        let (log, _) = open(&disk);
        let id = log.subscribe(Subscription { lease_limit_bytes: 1, ..Subscription::new("a") });
        for value in (0..14).filter(|value| *value != 2) {
            let (offset, note) = read_one(&log, id);
            assert_eq!(note.value, value);
            assert!(log.resolve(id, offset));
        }
        read_one(&log, id);
        wait_until("set aside", || log.stats().set_aside_files == 1);
        assert_eq!((log.held(id).frames, log.lost_total(id).frames), (7, 0));
        log.close(PATIENCE);
        if is_put_back {
            disk.put(Path::new(ASIDE), &whole);
            disk.rename(Path::new(ASIDE), Path::new(FIRST)).unwrap();
        }
        let lost = u64::from(!is_put_back);
        for is_first in [true, false] {
            disk = disk.kill_process();
            let (log, _) = open(&disk);
            let id = subscribe(&log, "a");
            assert_eq!(log.held(id).frames, if is_first { 7 } else { 0 });
            let read = read_all(&log, id);
            assert_eq!(read.len() as u64, if is_first { 7 - lost } else { 0 });
            read.iter().for_each(|(offset, _)| assert!(log.resolve(id, *offset)));
            let lost = if is_first { lost } else { 0 };
            assert_eq!((log.lost_total(id).frames, log.stats().lost.frames), (lost, lost));
            assert_eq!(log.held(id), Holding::default());
            log.close(PATIENCE);
        }
    }
}

/// The next frame, as soon as it is in memory.
fn read_one(log: &Log<Note>, id: CursorId) -> (u64, Arc<Note>) {
    let mut read = None;
    wait_until("read", || {
        read = log.read(id).entry();
        read.is_some()
    });
    read.expect("read")
}

/// Guarantee: no file is replaced, neither one of the log nor another that goes back.
#[test]
fn no_file_goes_back_over_another() {
    let disk = disk_with_frames(0..10);
    let whole = set_aside(&disk);
    disk.put(Path::new(ASIDE), &whole);
    disk.put(Path::new(&format!("{ASIDE}-2")), &whole);
    let remedies: Vec<_> = examined(&disk).into_iter().map(|file| file.remedy).collect();
    let [Remedy::PutBack(_), Remedy::Blocked { by }] = &remedies[..] else {
        panic!("{remedies:?}")
    };
    assert_eq!(by, Path::new(FIRST));
    disk.put(Path::new(FIRST), b"of the operator");
    for file in examined(&disk) {
        assert!(matches!(file.remedy, Remedy::Blocked { .. }), "{file:?}");
        apply(&disk, &file).unwrap();
    }
    assert_eq!(names(&disk).len(), 3);
    assert_eq!(content(&disk, FIRST), b"of the operator");
}

/// Guarantee: what a lost cursor or a newer release may need is not given up.
#[test]
fn what_somebody_else_may_need_is_kept() {
    let disk = disk_with_frames(0..10);
    set_aside(&disk);
    disk.put(&Path::new(DIRECTORY).join("cursors/b.cursor"), &[7; 1_000]);
    let [file] = &examined(&disk)[..] else { panic!("one file") };
    assert!(matches!(file.remedy, Remedy::KeepForLostCursor), "{file:?}");
    apply(&disk, file).unwrap();
    assert_eq!(names(&disk).len(), 1);

    let disk = disk_with_frames(OF_NEWER_RELEASE..OF_NEWER_RELEASE + 10);
    assert!(deliver_all(&disk).is_empty());
    let [file] = &examined(&disk)[..] else { panic!("one file") };
    let Remedy::KeepForNewerRelease(waiting) = &file.remedy else { panic!("{file:?}") };
    assert_eq!(waiting.frames, 10);
}

/// Scenario: the disk will never read a file again. Guarantee: it can be set aside, and deliveries
/// go on without it; when the disk reads it after all, it can go back.
#[test]
fn a_file_that_the_disk_refuses_can_be_set_aside() {
    let disk = disk_with_frames(0..20);
    let segments = names(&disk).len();
    assert!(segments > 1);
    disk.set_unreadable(FIRST, 0..1 << 20);
    let [file] = &examined(&disk)[..] else { panic!("one file") };
    assert!(matches!(file.remedy, Remedy::SetAside { .. }), "{file:?}");
    apply(&disk, file).unwrap();
    disk.clear_fault();
    let disk = disk.kill_process();
    assert_eq!(deliver_all(&disk), (14..20).collect::<Vec<_>>());
    let [file] = &examined(&disk)[..] else { panic!("one file") };
    assert_eq!(file.waiting.frames, 14);
    apply(&disk, file).unwrap();
    assert_eq!(deliver_all(&disk.kill_process()), (0..14).collect::<Vec<_>>());
}

/// Scenario: one block among frames that can be read is bad. Guarantee: in its place the file needs
/// no repair; set aside, it is not given up, and goes back if something else in it is waited for.
#[test]
fn a_bad_block_gives_nothing_up() {
    let bad = 4_096 * 8..4_096 * 8 + 512;
    let disk = disk_with_frames(0..10);
    disk.set_unreadable(FIRST, bad.clone());
    assert!(examined(&disk).is_empty());
    disk.rename(Path::new(FIRST), Path::new(ASIDE)).unwrap();
    disk.set_unreadable(ASIDE, bad.clone());
    let [file] = &examined(&disk)[..] else { panic!("one file") };
    assert!(matches!(file.remedy, Remedy::PutBack(_)), "{file:?}");
    assert_eq!(file.waiting.frames, 9);
    disk.set_unreadable(ASIDE, 0..1 << 20);
    let [file] = &examined(&disk)[..] else { panic!("one file") };
    assert!(matches!(file.remedy, Remedy::KeepUnread(_)), "{file:?}");
    apply(&disk, file).unwrap();
    assert_eq!(names(&disk).len(), 1);
}

/// Scenario: the cursor files and the list are gone or damaged. Guarantee: nothing is given up.
#[test]
fn without_a_list_everything_is_kept() {
    let disk = disk_with_frames(0..10);
    set_aside(&disk);
    disk.flip_bit(&Path::new(DIRECTORY).join("cursors.list"), 20 * 8);
    let [file] = &examined(&disk)[..] else { panic!("one file") };
    assert!(matches!(file.remedy, Remedy::KeepForLostCursor), "{file:?}");
}

/// Scenario: the newest file is set aside before any cursor told of its offsets. Guarantee: they
/// are not given again, so that its frames are still waited for when the disk can read it.
#[test]
fn offsets_of_the_newest_file_are_not_given_again() {
    let disk = FaultyDisk::new(7);
    let keep_interval = Duration::from_secs(3_600);
    let options = OpenOptions { keep_interval, ..options(&disk) };
    let (log, _) = Log::<Note>::open(options).unwrap();
    let (id, durable) = (subscribe(&log, "a"), Durable::default());
    for value in 0..10 {
        append(&log, value, 1_000, &[id], &durable);
    }
    wait_durable(&durable, 10);
    let disk = disk.kill_process();
    disk.set_unreadable(FIRST, 0..1 << 20);
    apply(&disk, &examined(&disk)[0]).unwrap();
    disk.clear_fault();
    let disk = disk.kill_process();
    let (log, _) = open(&disk);
    let (id, durable) = (subscribe(&log, "a"), Durable::default());
    append(&log, 100, 1_000, &[id], &durable);
    wait_durable(&durable, 1);
    log.close(PATIENCE);
    let disk = disk.kill_process();
    assert_eq!(deliver_all(&disk), [100]);
    let [file] = &examined(&disk)[..] else { panic!("one file") };
    assert_eq!(file.waiting.frames, 10);
    apply(&disk, file).unwrap();
    assert_eq!(deliver_all(&disk.kill_process()), (0..10).collect::<Vec<_>>());
}
