//! Segments that were removed, emptied or cut while no process had them open: a start, the listing,
//! `verify` and the figures of the log say the same.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_log::disk::Disk;
use sluice_log::inspect::{Finding, overview, verify};
use sluice_log::{Log, Missing, OpenOptions};
use support::faulty_disk::FaultyDisk;
use support::note::*;

/// Twelve files, each with room for 14.
const FRAMES: u64 = 12 * 14;
const RESOLVED: u64 = 70;

/// A disk after an orderly end: frames in several segments that two readers wait for, one for all
/// of them, the other for those from `RESOLVED` on.
fn disk_with_backlog() -> FaultyDisk {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let (a, b) = (subscribe(&log, "a"), subscribe(&log, "b"));
    append_one_by_one(&log, 0..FRAMES, 1_000, &[a, b]);
    for _ in 0..RESOLVED {
        let (offset, _) = next(&log, b).expect("a frame");
        log.resolve(b, offset);
    }
    log.close(PATIENCE);
    disk.kill_process()
}

fn segments(disk: &FaultyDisk) -> Vec<(PathBuf, Vec<u8>)> {
    let is_segment = |path: &Path| path.extension().is_some_and(|it| it == "seg");
    disk.contents().into_iter().filter(|(path, _)| is_segment(path)).collect()
}

/// The missing frames by `verify` and by the listing, which say the same.
fn said(disk: &FaultyDisk, what: &str) -> Missing {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let [listed] = &overview(&shared, Path::new("/log")).expect("listed")[..] else {
        panic!("one log")
    };
    let mut verified = Missing::default();
    for finding in verify(disk, Path::new("/log"), &mut |_, _| {}).expect("verified").findings {
        match finding {
            Finding::MissingBacklog { reader, frames, .. } => {
                verified.by_reader.push((reader, frames));
            }
            Finding::EmptiedSegment { path } => verified.empty_files.push(path),
            _ => {}
        }
    }
    assert_eq!(verified, listed.missing, "{what}");
    verified
}

type Loss = (&'static str, fn(&FaultyDisk, &Path, &[u8]), bool);

const LOSSES: [Loss; 4] = [
    (
        "removed",
        |disk, path, _| {
            disk.remove_file(path).expect("removed");
            disk.sync_directory(Path::new(DIRECTORY)).expect("synced");
        },
        false,
    ),
    ("emptied", |disk, path, _| disk.put(path, &[]), true),
    ("zeros", |disk, path, bytes| disk.put(path, &vec![0; bytes.len()]), true),
    ("cut in the middle", |disk, path, bytes| disk.put(path, &bytes[..30_000]), false),
];

/// Guarantee: a start, the listing, `verify` and the figures say the same, which is what the
/// readers find missing in the end. Then it is lost, and not missing any more.
#[test]
fn all_say_the_same_of_segments_that_are_gone_or_emptied() {
    for (what, lose, is_empty) in LOSSES {
        for is_newest in [true, false] {
            let disk = disk_with_backlog();
            let files = segments(&disk);
            let index = if is_newest { files.len() - 1 } else { files.len() / 2 };
            let (path, bytes) = &files[index];
            assert!(said(&disk, what).is_none(), "nothing is missing before");
            lose(&disk, path, bytes);
            let missing = said(&disk, what);
            let (log, found) = open(&disk);
            assert_eq!(found.missing, missing, "{what}");
            assert_eq!(missing.empty_files.contains(path), is_empty, "{what}");
            assert_eq!(log.missing(), missing.by_reader, "{what}");
            assert_eq!(log.stats().missing_frames, missing.frames(), "{what}");
            for name in ["a", "b"] {
                let id = subscribe(&log, name);
                let read = read_all(&log, id);
                read.iter().for_each(|(offset, _)| assert!(log.resolve(id, *offset)));
                let waited = if name == "a" { FRAMES } else { FRAMES - RESOLVED };
                let lost = waited - read.len() as u64;
                assert!(lost > 5, "{what}: the test is about missing frames");
                let of_reader = missing.by_reader.iter().find(|(reader, _)| reader == name);
                assert_eq!(of_reader, Some(&(name.to_owned(), lost)), "{what} {is_newest}");
                assert_eq!(log.lost_total(id).frames, lost, "{what}");
            }
            assert_eq!((log.stats().missing_frames, log.missing()), (0, Vec::new()));
            log.close(PATIENCE);
            assert!(said(&disk, what).is_none(), "{what}: it is settled");
        }
    }
}

/// Scenario: a process ends while it creates a segment. Guarantee: a file without content from
/// which nothing is missing is no loss.
#[test]
fn a_segment_that_was_never_finished_is_no_loss() {
    for bytes in [Vec::new(), vec![0; 64 << 10]] {
        let disk = disk_with_backlog();
        disk.put(&Path::new(DIRECTORY).join(format!("{FRAMES:016x}.seg")), &bytes);
        assert!(said(&disk, "unfinished").is_none());
        assert!(open(&disk).1.missing.is_none());
    }
}

/// Scenario: there are more segments than a start looks at, and one of them is gone. Guarantee: the
/// start says that it does not know, but not where no reader waits; the listing looks.
#[test]
fn a_start_says_that_it_did_not_look_at_many_segments() {
    for waits in [true, false] {
        let disk = FaultyDisk::new(1);
        let many = |disk: &FaultyDisk| {
            Log::<Note>::open(OpenOptions { segment_bytes: 12 << 10, ..options(disk) }).unwrap()
        };
        let (log, found) = many(&disk);
        assert!(!found.missing.is_incomplete, "nothing is on disk");
        let id = subscribe(&log, "a");
        append_one_by_one(&log, 0..80, 1_000, &[id]);
        assert!(log.stats().segments > 32, "{}", log.stats().segments);
        if !waits {
            for (offset, _) in read_all(&log, id) {
                log.resolve(id, offset);
            }
        }
        log.close(PATIENCE);
        let disk = disk.kill_process();
        if waits {
            disk.remove_file(&segments(&disk)[20].0).expect("removed");
            assert!(!said(&disk, "one is gone").is_none());
        }
        let found = many(&disk).1;
        assert_eq!((found.missing.is_incomplete, found.missing.is_none()), (waits, true));
    }
}
