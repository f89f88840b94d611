//! A cursor file that is gone or cannot be read is told from one that was removed on purpose:
//! everything on disk is kept for it until it is forgotten.

mod support;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_log::disk::Disk as _;
use sluice_log::inspect::{Finding, lost_cursors, verify};
use sluice_log::{Keep, Log};
use support::faulty_disk::{FaultyDisk, Operation, Unsynced, input_output};
use support::note::*;

const FRAMES: u64 = 200;

fn cursor(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join("cursors").join(format!("{name}.cursor"))
}

fn list() -> PathBuf {
    Path::new(DIRECTORY).join("cursors.list")
}

fn remove(disk: &FaultyDisk, path: &Path) {
    disk.remove_file(path).unwrap();
    disk.sync_directory(path.parent().unwrap()).unwrap();
}

/// A disk after an orderly end: frames in several segments that two readers have not delivered.
fn disk_with_backlog() -> FaultyDisk {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let ids = [subscribe(&log, "a"), subscribe(&log, "b")];
    append_durable(&log, 0..FRAMES, 1_000, &ids);
    log.close(PATIENCE);
    disk.kill_process()
}

fn resolve_all(log: &Log<Note>, name: &str) -> Vec<u64> {
    let id = subscribe(log, name);
    let read = read_all(log, id);
    read.iter().for_each(|(offset, _)| assert!(log.resolve(id, *offset)));
    values(&read)
}

fn orphans(log: &Log<Note>) -> Vec<String> {
    let mut names: Vec<_> = log.orphans().into_iter().map(|orphan| orphan.name).collect();
    names.sort();
    names
}

/// A change of the files, the names of what is lost by it, and the readers that are left.
type Loss = (&'static str, fn(&FaultyDisk), &'static [&'static str], &'static [&'static str]);

const LOSSES: [Loss; 5] = [
    ("destroyed", |disk| disk.put(&cursor("a"), &[7; 1_000]), &["a.cursor.damaged"], &["b"]),
    ("removed", |disk| remove(disk, &cursor("a")), &["a.cursor.damaged"], &["b"]),
    (
        "both removed",
        |disk| {
            remove(disk, &cursor("a"));
            remove(disk, &cursor("b"));
        },
        &["a.cursor.damaged", "b.cursor.damaged"],
        &[],
    ),
    (
        "removed after the file of another was set aside",
        |disk| {
            disk.put(&cursor("a"), &[7; 1_000]);
            let (log, _) = open(disk);
            let id = subscribe(&log, "a");
            let durable = Durable::default();
            append(&log, FRAMES, 1_000, &[id], &durable);
            wait_durable(&durable, 1);
            log.unsubscribe(id, Keep::Backlog);
            log.close(PATIENCE);
            remove(disk, &cursor("a"));
        },
        &["a.cursor.damaged"],
        &["b"],
    ),
    (
        "all are gone, and nothing says that there were any",
        |disk| {
            remove(disk, &cursor("a"));
            remove(disk, &cursor("b"));
            remove(disk, &list());
        },
        &["unknown.cursor.damaged"],
        &[],
    ),
];

/// Guarantee: the loss is said at each start, by `verify` and by the listing, with the same count.
/// No segment is removed before it is forgotten, and new frames get new offsets.
#[test]
fn what_a_lost_reader_needs_is_kept_until_it_is_forgotten() {
    for (what, lose, lost, left) in LOSSES {
        let disk = disk_with_backlog();
        lose(&disk);
        let segments = verify(&disk, Path::new("/log"), &mut |_, _| {}).unwrap().segments;
        for start in 0..3 {
            let found = lost_cursors(&disk, Path::new(DIRECTORY)).unwrap();
            assert_eq!(found, lost, "{what}, start {start}");
            let (log, found) = open(&disk);
            assert_eq!(found.lost_cursors, lost, "{what}, start {start}");
            assert_eq!(log.stats().lost_cursors, lost.len() as u64, "{what}");
            for name in left {
                let read = resolve_all(&log, name);
                assert!(start > 0 || read.starts_with(&(0..FRAMES).collect::<Vec<_>>()), "{what}");
            }
            let durable = Durable::default();
            let id = subscribe(&log, "new");
            assert!(append(&log, 1_000, 1_000, &[id], &durable) >= FRAMES, "{what}");
            wait_durable(&durable, 1);
            log.close(PATIENCE);
            assert!(log.stats().segments >= segments, "{what}: {:?}", log.stats());
            let findings = verify(&disk, Path::new("/log"), &mut |_, _| {}).unwrap().findings;
            let is_it = |finding: &&Finding| matches!(finding, Finding::LostCursor { .. });
            assert_eq!(findings.iter().filter(is_it).count(), lost.len(), "{what}: {findings:?}");
        }
        let (log, _) = open(&disk);
        assert!(lost.iter().all(|name| orphans(&log).contains(&(*name).to_owned())), "{what}");
        lost.iter().for_each(|name| assert!(log.forget(name).is_some(), "{what}"));
        orphans(&log).iter().for_each(|name| drop(resolve_all(&log, name)));
        wait_until("nothing left", || log.stats().segments == 0);
        log.close(PATIENCE);
        let (log, found) = open(&disk);
        assert_eq!((found.lost_cursors.len(), log.stats().lost_cursors), (0, 0), "{what}");
    }
}

/// Scenario: a release without the list wrote the directory. Guarantee: the first frame that is
/// stored brings the list, so that a file that is removed afterwards is missed.
#[test]
fn a_directory_without_the_list_gets_one() {
    let disk = disk_with_backlog();
    remove(&disk, &list());
    let (log, found) = open(&disk);
    assert!(found.lost_cursors.is_empty());
    let (a, durable) = (subscribe(&log, "a"), Durable::default());
    append(&log, FRAMES, 1_000, &[a], &durable);
    wait_durable(&durable, 1);
    let disk = disk.cut_power(Unsynced::Lost);
    remove(&disk, &cursor("b"));
    assert_eq!(open(&disk).1.lost_cursors, ["b.cursor.damaged"]);
}

/// Guarantee: damage of the list costs nothing while the cursor files are there. It is named, and
/// the list is written anew.
#[test]
fn a_damaged_list_is_written_anew() {
    let disk = disk_with_backlog();
    disk.flip_bit(&list(), 20 * 8);
    let findings = verify(&disk, Path::new("/log"), &mut |_, _| {}).unwrap().findings;
    assert!(matches!(&findings[..], [Finding::Unreadable(_)]), "{findings:?}");
    let (log, found) = open(&disk);
    assert_eq!(found.damaged_list, Some(list()));
    assert!(found.lost_cursors.is_empty());
    let (a, durable) = (subscribe(&log, "a"), Durable::default());
    append(&log, FRAMES, 1_000, &[a], &durable);
    wait_durable(&durable, 1);
    let disk = disk.cut_power(Unsynced::Lost);
    assert_eq!(open(&disk).1.damaged_list, None);
    assert_eq!(resolve_all(&open(&disk).0, "b").len() as u64, FRAMES);
}

/// Guarantee: no frame is called durable before the list names its reader.
#[test]
fn a_frame_waits_for_the_list() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    disk.set_fault(|call| {
        let is_list = call.path.to_string_lossy().contains("cursors.list");
        (call.operation == Operation::Rename && is_list).then(input_output)
    });
    let (a, durable) = (subscribe(&log, "a"), Durable::default());
    append(&log, 0, 1_000, &[a], &durable);
    wait_until("refused", || log.trouble().is_some_and(|it| it.reason.contains("cursors.list")));
    assert!(durable.lock().is_empty());
    disk.clear_fault();
    wait_durable(&durable, 1);
    let disk = disk.cut_power(Unsynced::Lost);
    remove(&disk, &cursor("a"));
    assert_eq!(open(&disk).1.lost_cursors, ["a.cursor.damaged"]);
}

/// Scenario: readers come and go, and the power fails between any two steps. Guarantee: none that
/// was removed on purpose counts as lost.
#[test]
fn a_reader_that_was_removed_on_purpose_is_never_missed() {
    for seed in 0..20 {
        let mut disk = FaultyDisk::new(seed);
        for round in 0..5 {
            let (log, found) = open(&disk);
            assert!(found.lost_cursors.is_empty(), "{seed} {round}: {found:?}");
            for name in ["a", "b", "c"] {
                let (id, durable) = (subscribe(&log, name), Durable::default());
                append(&log, round, 1_000, &[id], &durable);
                wait_durable(&durable, 1);
                log.unsubscribe(id, if seed % 2 == 0 { Keep::Nothing } else { Keep::Backlog });
                log.forget(name);
            }
            std::thread::sleep(std::time::Duration::from_micros(seed * 500));
            disk = disk.cut_power(Unsynced::Mixed);
        }
    }
}

/// Scenario: the disk refuses everything to a new log, which leaves an empty segment when the disk
/// works again. Guarantee: no cursor counts as lost.
#[test]
fn a_log_in_which_nothing_was_stored_has_lost_nothing() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    disk.set_fault(|call| (call.operation == Operation::CreateNew).then(input_output));
    let id = subscribe(&log, "a");
    append(&log, 0, 100, &[id], &Durable::default());
    wait_until("trouble", || log.trouble().is_some());
    let (offset, _) = next(&log, id).unwrap();
    log.resolve(id, offset);
    disk.clear_fault();
    wait_until("no trouble", || log.trouble().is_none());
    let disk = disk.kill_process();
    assert!(disk.contents().iter().any(|(path, _)| path.to_string_lossy().ends_with(".seg")));
    assert!(lost_cursors(&disk, Path::new(DIRECTORY)).unwrap().is_empty());
    assert!(open(&disk).1.lost_cursors.is_empty());
}

/// Scenario: the file of a delivery that has come back after a loss is destroyed too. Guarantee:
/// both losses are told apart, and forgotten apart.
#[test]
fn two_losses_of_one_name_are_two() {
    let disk = disk_with_backlog();
    remove(&disk, &cursor("a"));
    let (log, _) = open(&disk);
    let (id, durable) = (subscribe(&log, "a"), Durable::default());
    append(&log, FRAMES, 1_000, &[id], &durable);
    wait_durable(&durable, 1);
    log.close(PATIENCE);
    let disk = disk.kill_process();
    disk.put(&cursor("a"), &[7; 1_000]);
    let lost = ["a.cursor.damaged", "a.cursor.damaged-2"];
    assert_eq!(lost_cursors(&disk, Path::new(DIRECTORY)).unwrap(), lost);
    let (log, found) = open(&disk);
    assert_eq!(found.lost_cursors, lost);
    assert!(log.forget(lost[0]).is_some());
    log.close(PATIENCE);
    let (log, found) = open(&disk.kill_process());
    assert_eq!((found.lost_cursors.len(), log.stats().lost_cursors), (1, 1));
}

/// Scenario: a reader is removed while another process looks. Guarantee: it does not look lost.
#[test]
fn a_reader_that_goes_while_somebody_looks_is_not_lost() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let (a, b, durable) = (subscribe(&log, "a"), subscribe(&log, "b"), Durable::default());
    append(&log, 0, 100, &[a, b], &durable);
    wait_durable(&durable, 1);
    let (gate, once) = (disk.clone(), AtomicBool::new(false));
    disk.set_read_gate(move |path| {
        if path.ends_with("cursors.list") && !once.swap(true, Ordering::SeqCst) {
            log.unsubscribe(a, Keep::Nothing);
            let has_gone = || !gate.contents().iter().any(|(path, _)| *path == cursor("a"));
            wait_until("removed", has_gone);
        }
    });
    let lost = lost_cursors(&disk, Path::new(DIRECTORY)).unwrap();
    assert!(lost.is_empty(), "{lost:?}");
    disk.set_read_gate(|_| {});
}

/// Scenario: a lost cursor is forgotten by a short process on a full disk. Guarantee: the space
/// that comes free is enough to note it.
#[test]
fn a_lost_cursor_is_forgotten_on_a_full_disk() {
    let disk = disk_with_backlog();
    remove(&disk, &cursor("a"));
    disk.set_capacity(Some(disk.used_bytes()));
    let (log, _) = open(&disk);
    assert!(log.forget("a.cursor.damaged").is_some() && log.forget("b").is_some());
    log.close(PATIENCE);
    assert!(lost_cursors(&disk, Path::new(DIRECTORY)).unwrap().is_empty());
}
