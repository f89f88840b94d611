//! Segments that were renamed or copied by hand: all say so, and a repair gives them their names.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sluice_log::disk::Disk;
use sluice_log::inspect::{Finding, overview, verify};
use sluice_log::repair::{Examined, Remedy, apply, examine};
use sluice_log::{FileError, Log, OpenOptions};
use support::faulty_disk::{FaultyDisk, Operation, input_output};
use support::note::*;

const FRAMES: u64 = 40;

/// A file has room for 14 frames, each in a block of its own.
const FILES: [(u64, std::ops::Range<u64>); 3] = [(0, 0..14), (14, 14..28), (28, 28..FRAMES)];

fn disk_with_backlog() -> FaultyDisk {
    let disk = FaultyDisk::new(7);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    append_one_by_one(&log, 0..FRAMES, 1_000, &[id]);
    log.close(PATIENCE);
    disk.kill_process()
}

fn path_of(first: u64) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{first:016x}.seg"))
}

fn content(disk: &FaultyDisk, path: &Path) -> Vec<u8> {
    let mut files = disk.contents().into_iter();
    files.find(|(file, _)| file == path).expect("the file").1
}

fn names(disk: &FaultyDisk) -> Vec<String> {
    let files = disk.list(Path::new(DIRECTORY)).unwrap().into_iter();
    files.map(|file| file.name).filter(|name| name.contains(".seg")).collect()
}

fn examined(disk: &FaultyDisk) -> Vec<Examined> {
    examine(disk, Path::new(DIRECTORY), &|_| true).unwrap()
}

/// Gives the only file that is wrong its name, and returns how many frames wait in it.
fn repair(disk: &FaultyDisk, own: &Path) -> u64 {
    let [file] = &examined(disk)[..] else { panic!("one file: {:?}", examined(disk)) };
    assert!(matches!(&file.remedy, Remedy::PutBack(to) if to == own), "{file:?}");
    apply(disk, file).unwrap();
    file.waiting.frames
}

/// The files that are misnamed by the listing and by `verify`, which say the same.
fn said(disk: &FaultyDisk) -> Vec<(PathBuf, String)> {
    let is_misnamed = |error: &FileError| match error {
        FileError::Misnamed { path, name, .. } => Some((path.clone(), name.to_string())),
        _ => None,
    };
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let [listed] = &overview(&shared, Path::new("/log")).unwrap()[..] else { panic!("one log") };
    assert!(listed.missing.is_none(), "the file is there: {:?}", listed.missing);
    let segments = listed.segments.iter();
    let listed: Vec<_> = segments.filter_map(|it| is_misnamed(it.info.as_ref().err()?)).collect();
    let findings = verify(disk, Path::new("/log"), &mut |_, _| {}).unwrap().findings;
    let verified: Vec<_> = findings
        .iter()
        .map(|finding| match finding {
            Finding::Unreadable(error) => is_misnamed(error).expect("misnamed"),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(listed, verified);
    listed
}

/// Guarantee: a renamed segment is told of. A repair before or after a start gives it the name of
/// its header, and exactly its frames are delivered then; no other file loses frames by it.
#[test]
fn a_renamed_segment_goes_back_to_its_own_name() {
    for (index, wrong) in [(0, 3), (0, 0xff), (1, 3), (1, 0xff), (2, 5), (2, 0xff)] {
        let (first, frames) = FILES[index].clone();
        let (own, wrong) = (path_of(first), path_of(wrong));
        let renamed = || {
            let disk = disk_with_backlog();
            disk.rename(&own, &wrong).unwrap();
            disk.kill_process()
        };
        let disk = renamed();
        let own_name = own.file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(said(&disk), [(wrong.clone(), own_name.clone())]);
        assert_eq!(repair(&disk, &own), frames.end - frames.start);
        assert_eq!(deliver_all(&disk.kill_process()), (0..FRAMES).collect::<Vec<_>>());

        let disk = renamed();
        let (log, found) = open(&disk);
        assert_eq!((&found.misnamed, found.missing.is_none()), (&vec![wrong.clone()], true));
        log.close(PATIENCE);
        let disk = disk.kill_process();
        assert!(names(&disk).contains(&format!("{own_name}.damaged")), "{:?}", names(&disk));
        let others: Vec<_> = (0..FRAMES).filter(|value| !frames.contains(value)).collect();
        assert_eq!(deliver_all(&disk), others, "{own:?} as {wrong:?}");
        assert_eq!(repair(&disk, &own), frames.end - frames.start);
        let disk = disk.kill_process();
        assert_eq!(deliver_all(&disk), frames.clone().collect::<Vec<_>>());
        assert!(names(&disk).is_empty());
    }
}

/// Scenario: two segments have each other's names. Guarantee: the same.
#[test]
fn segments_whose_names_were_exchanged_go_back() {
    let disk = disk_with_backlog();
    let (one, other, between) = (path_of(0), path_of(14), Path::new(DIRECTORY).join("x"));
    for (from, to) in [(&one, &between), (&other, &one), (&between, &other)] {
        disk.rename(from, to).unwrap();
    }
    let disk = disk.kill_process();
    assert_eq!(said(&disk).len(), 2);
    for file in examined(&disk) {
        assert!(matches!(file.remedy, Remedy::Blocked { .. }), "{file:?}");
    }
    assert_eq!(deliver_all(&disk), (28..FRAMES).collect::<Vec<_>>());
    for file in examined(&disk) {
        assert!(matches!(file.remedy, Remedy::PutBack(_)), "{file:?}");
        apply(&disk, &file).unwrap();
    }
    assert_eq!(deliver_all(&disk.kill_process()), (0..28).collect::<Vec<_>>());
}

/// Scenario: an earlier release has set a file aside under the wrong name. Guarantee: the same.
#[test]
fn a_file_that_was_set_aside_under_a_wrong_name_goes_back_to_its_own() {
    let disk = disk_with_backlog();
    let aside = Path::new(DIRECTORY).join("0000000000000003.seg.damaged");
    disk.rename(&path_of(0), &aside).unwrap();
    assert_eq!(repair(&disk, &path_of(0)), 14);
    assert_eq!(deliver_all(&disk.kill_process()), (0..FRAMES).collect::<Vec<_>>());
}

/// Guarantee: a copy costs no frame and replaces no file: all is delivered once, and then nothing
/// in the copy is waited for.
#[test]
fn a_copy_changes_nothing() {
    for wrong in [3, 20, 0xff] {
        let disk = disk_with_backlog();
        disk.put(&path_of(wrong), &content(&disk, &path_of(14)));
        assert_eq!(said(&disk).len(), 1);
        let [file] = &examined(&disk)[..] else { panic!("one file") };
        assert!(matches!(&file.remedy, Remedy::Blocked { by } if *by == path_of(14)), "{file:?}");
        apply(&disk, file).unwrap();
        assert_eq!(deliver_all(&disk), (0..FRAMES).collect::<Vec<_>>(), "{wrong:#x}");
        let [file] = &examined(&disk)[..] else { panic!("one file") };
        assert!(matches!(file.remedy, Remedy::GiveUp), "{file:?}");
        assert_eq!(file.path, Path::new(DIRECTORY).join("000000000000000e.seg.damaged"));
    }
}

/// Guarantee: a segment of another log ends the start whatever its name is, and nothing is changed.
#[test]
fn a_segment_of_another_log_is_refused_under_each_name() {
    let disk = disk_with_backlog();
    let foreign = content(&disk_with_backlog(), &path_of(14));
    disk.put(&path_of(3), &foreign);
    let before = disk.contents();
    assert!(matches!(try_open(&disk), Err(FileError::Foreign { .. })));
    assert!(disk.contents() == before);
}

/// Scenario: there are so many segments that a start does not look at the name of the oldest.
/// Guarantee: it is set aside under its own name all the same, by its reader.
#[test]
fn readers_find_out_about_the_names_of_old_segments() {
    const OLD: u64 = 100;
    let few_frames = |disk: &FaultyDisk| OpenOptions { segment_bytes: 12 << 10, ..options(disk) };
    let disk = FaultyDisk::new(7);
    let log: Log<Note> = Log::open(few_frames(&disk)).unwrap().0;
    let id = subscribe(&log, "a");
    append_one_by_one(&log, 0..OLD, 1_000, &[id]);
    assert!(log.stats().segments > 32, "{}", log.stats().segments);
    log.close(PATIENCE);
    let disk = disk.kill_process();
    disk.rename(&path_of(0), &path_of(1)).unwrap();
    let (log, found) = Log::<Note>::open(few_frames(&disk)).unwrap();
    assert!(found.misnamed.is_empty());
    let id = subscribe(&log, "a");
    let read = read_all(&log, id);
    read.iter().for_each(|(offset, _)| assert!(log.resolve(id, *offset)));
    wait_until("it is set aside", || log.stats().set_aside_files == 1);
    let aside = Path::new(DIRECTORY).join("0000000000000000.seg.damaged");
    assert_eq!(log.set_aside(), [aside]);
    assert_eq!(log.lost_total(id).frames + read.len() as u64, OLD);
    log.close(Duration::ZERO);
}

/// All that is delivered in two lives. After each, what can be put back is put back.
fn delivered_in_the_end(mut disk: FaultyDisk) -> Vec<u64> {
    let mut all = Vec::new();
    for _ in 0..2 {
        let (log, _) = open(&disk);
        let id = subscribe(&log, "a");
        let read = read_all(&log, id);
        read.iter().for_each(|(offset, _)| assert!(log.resolve(id, *offset)));
        wait_until("all is let go", || log.stats().segments == 0);
        log.close(PATIENCE);
        all.extend(values(&read));
        disk = disk.kill_process();
        let waiting = |file: &Examined| file.waiting.frames > 0;
        while let Some(file) = examined(&disk).into_iter().find(waiting) {
            apply(&disk, &file).unwrap();
        }
    }
    all.sort_unstable();
    all
}

/// Gives the segment from 14 on a name within the first one, which was sealed or not, and refuses
/// to open it for some times.
fn with_wrong_name(frames: u64, is_sealed: bool, refusals: u64) -> FaultyDisk {
    let disk = FaultyDisk::new(7);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    append_one_by_one(&log, 0..14, 1_000, &[id]);
    let disk = match is_sealed {
        true => disk,
        false => disk.kill_process(),
    };
    let (log, id) = match is_sealed {
        true => (log, id),
        false => {
            let log = open(&disk).0;
            let id = subscribe(&log, "a");
            (log, id)
        }
    };
    append_one_by_one(&log, 14..frames, 1_000, &[id]);
    log.close(PATIENCE);
    disk.rename(&path_of(14), &path_of(5)).unwrap();
    let disk = disk.kill_process();
    let mut refused = 0;
    disk.set_fault(move |call| {
        let is_it = call.operation == Operation::Open && call.path == path_of(5);
        refused += u64::from(is_it);
        (is_it && refused <= refusals).then(input_output)
    });
    disk
}

/// Scenario: a segment is renamed to a number within an older one, where a start does not look into
/// it, or the disk refuses that for a moment. Guarantee: the older one is not removed with frames
/// behind its apparent end.
#[test]
fn a_wrong_name_does_not_end_the_file_before_it() {
    for is_sealed in [true, false] {
        for (files, refusals) in [(40, 0), (6, 0), (6, 1)] {
            let frames = 14 * files;
            let delivered = delivered_in_the_end(with_wrong_name(frames, is_sealed, refusals));
            assert_eq!(delivered, (0..frames).collect::<Vec<_>>(), "{files} {refusals}");
        }
    }
}

/// Scenario: the same, and the disk refuses for longer than the start waits. Guarantee: the older
/// file stays until it is known where it ends.
#[test]
fn a_file_stays_while_the_name_of_the_next_one_is_not_known() {
    const FRAMES: u64 = 14 * 6;
    for is_sealed in [true, false] {
        let disk = with_wrong_name(FRAMES, is_sealed, u64::MAX);
        let impatient = OpenOptions { read_patience: Duration::ZERO, ..options(&disk) };
        let log = Log::<Note>::open(impatient).unwrap().0;
        let id = subscribe(&log, "a");
        for value in 0..5 {
            let (offset, note) = next(&log, id).expect("a frame");
            assert_eq!(note.value, value);
            assert!(log.resolve(id, offset));
        }
        // Gives the maintenance some turns.
        std::thread::sleep(Duration::from_millis(100));
        assert!(names(&disk).contains(&"0000000000000000.seg".to_owned()));
        disk.clear_fault();
        let read = read_all(&log, id);
        read.iter().for_each(|(offset, _)| assert!(log.resolve(id, *offset)));
        wait_until("all is let go", || log.stats().segments == 0);
        log.close(PATIENCE);
        let disk = disk.kill_process();
        while let Some(file) = examined(&disk).into_iter().find(|it| it.waiting.frames > 0) {
            apply(&disk, &file).unwrap();
        }
        let mut all = [vec![0, 1, 2, 3, 4], values(&read), delivered_in_the_end(disk)].concat();
        all.sort_unstable();
        assert_eq!(all, (0..FRAMES).collect::<Vec<_>>());
    }
}

/// Scenario: the disk refuses for a moment to open segments while some are given up, or are to go.
/// Guarantee: none of them passes for damaged.
#[test]
fn a_name_that_is_not_known_for_a_moment_is_no_damage() {
    let disk = FaultyDisk::new(7);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    append_one_by_one(&log, 0..140, 1_000, &[id]);
    log.close(PATIENCE);
    let disk = disk.kill_process();
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    disk.set_fault(|call| {
        let is_segment = call.path.to_string_lossy().ends_with(".seg");
        (call.operation == Operation::Open && is_segment).then(input_output)
    });
    for _ in 0..20 {
        log.shed_segments(1_000_000);
        std::thread::sleep(Duration::from_millis(10));
    }
    disk.clear_fault();
    let read = read_all(&log, id);
    assert_eq!(values(&read), (0..140).collect::<Vec<_>>());
    read.iter().for_each(|(offset, _)| assert!(log.resolve(id, *offset)));
    wait_until("all is removed", || log.stats().segments == 0);
    assert_eq!((log.stats().frames_damaged, log.stats().set_aside_files), (0, 0));
}

/// Scenario: a file that is empty or ends early has the name of a later attempt at a segment, and
/// the segment was sealed. Guarantee: the segment counts.
#[test]
fn a_sealed_segment_is_not_given_up_for_a_later_attempt_that_is_not_sealed() {
    for blocks in [0, 1, 5] {
        let disk = disk_with_backlog();
        let copy = content(&disk, &path_of(14))[..blocks * 4_096].to_vec();
        disk.put(&Path::new(DIRECTORY).join("000000000000000e-1.seg"), &copy);
        assert_eq!(delivered_in_the_end(disk), (0..FRAMES).collect::<Vec<_>>(), "{blocks}");
    }
}
