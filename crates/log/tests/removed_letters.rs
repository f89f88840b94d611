//! Another process removes or moves dead letters away while they are in use: it costs no letter
//! that comes afterwards, and is said.

mod support;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sluice_log::dead_letters::{DeadLetter, DeadLetterScan, DeadLetters, directory_of};
use sluice_log::disk::Disk;
use sluice_log::format::Refusal;
use sluice_log::{FileError, RecordFacts};
use support::faulty_disk::{FaultyDisk, Operation, Unsynced, input_output};
use support::note::{self, DIRECTORY, append_durable, subscribe};

const LOG: &str = "/log/traces";
const AWAY: &str = "/away";
const DELIVERY: &str = "traces/otlp_grpc/backend";
const LEN: usize = 20_000;

fn letter(index: u64, len: usize) -> DeadLetter {
    DeadLetter {
        refusal: Refusal { refused_unix_ns: index, code: 400, reason: String::new() },
        facts: RecordFacts::default(),
        items: 3,
        metadata: Vec::new(),
        payload: Bytes::from(vec![7; len]),
    }
}

fn open(disk: &FaultyDisk) -> DeadLetters {
    let disk = Arc::new(disk.clone());
    DeadLetters::open(disk, Path::new(LOG), DELIVERY, 1 << 20).expect("it opens")
}

fn append(letters: &mut DeadLetters, index: u64, len: usize) -> Result<u64, FileError> {
    letters.append(&[letter(index, len)])
}

/// The letters that a replay reads, by the index that they were made of.
fn replayed(disk: &FaultyDisk) -> Vec<u64> {
    let directory = directory_of(Path::new(LOG), DELIVERY);
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut reader = DeadLetterScan::open(disk, &directory, 0).expect("it opens");
    let mut indices = Vec::new();
    while let Some((_, refusal)) = reader.next_letter().expect("read") {
        indices.push(refusal.refused_unix_ns);
    }
    indices
}

/// Seven letters, of which two were replayed. The last file is open, and has room for small ones.
fn with_letters() -> (FaultyDisk, DeadLetters) {
    let disk = FaultyDisk::new(1);
    disk.make_directory(Path::new(LOG));
    disk.make_directory(Path::new(AWAY));
    let mut letters = open(&disk);
    for index in 0..7 {
        assert_eq!(append(&mut letters, index, LEN).expect("stored"), index);
    }
    letters.remove_below(2).expect("removed");
    assert_eq!((letters.letters(), files(&disk)), (5, 3));
    (disk, letters)
}

fn files(disk: &FaultyDisk) -> usize {
    let paths = disk.contents().into_iter().map(|(path, _)| path);
    paths.filter(|path| path.starts_with(LOG)).count()
}

/// Moves all files below a directory away, or none, and removes the directory.
fn take_away(disk: &FaultyDisk, directory: &Path, is_moved: bool) {
    let paths = disk.contents().into_iter().map(|(path, _)| path);
    for path in paths.filter(|path| is_moved && path.starts_with(directory)) {
        let name = path.file_name().expect("a file has a name");
        disk.rename(&path, &Path::new(AWAY).join(name)).expect("moved");
    }
    disk.sync_directory(Path::new(AWAY)).expect("synced");
    disk.remove_tree(directory);
}

/// As a log does when its directory is gone, but nothing is durable.
fn make_anew(disk: &FaultyDisk) {
    if disk.list(Path::new(LOG)).is_err() {
        disk.create_directory(Path::new(LOG)).expect("created");
    }
}

/// Guarantee: after the log's directory, the folder of all letters or that of the delivery was
/// removed or moved, one append fails at most, newer letters are durable with numbers of their own,
/// and those that are gone are said once and not counted.
#[test]
fn letters_go_on_after_their_directory_is_gone() {
    let own = directory_of(Path::new(LOG), DELIVERY);
    for directory in [Path::new(LOG), own.parent().expect("a folder"), &own] {
        for (is_moved, len) in [(false, 100), (false, 100_000), (true, 100), (true, 100_000)] {
            let what = format!("{} moved {is_moved}, {len} bytes", directory.display());
            let (disk, mut letters) = with_letters();
            take_away(&disk, directory, is_moved);
            make_anew(&disk);
            let failed = append(&mut letters, 7, len);
            assert!(failed.is_err(), "{what}: it was not stored");
            let number = append(&mut letters, 7, len).unwrap_or_else(|it| panic!("{what}: {it}"));
            assert!(number >= 7, "{what}: {number}");
            let gone = letters.take_gone();
            assert_eq!((gone.files, gone.letters), (2, 5), "{what}");
            assert_eq!(letters.take_gone().files, 0, "{what}: said once");
            assert_eq!((letters.letters(), letters.dropped().frames), (1, 0), "{what}");
            assert_eq!(append(&mut letters, 8, LEN).expect("stored"), number + 1, "{what}");

            let disk = disk.cut_power(Unsynced::Lost);
            assert_eq!(replayed(&disk), [7, 8], "{what}");
            let mut letters = open(&disk);
            assert!(!letters.found().is_state_lost, "{what}: it was written anew");
            assert_eq!(append(&mut letters, 9, LEN).expect("stored"), number + 2, "{what}");
        }
    }
}

/// Guarantee: a letter that comes while the log's directory is away is stored once it is back, and
/// nothing is said to be lost.
#[test]
fn a_directory_that_comes_back_has_lost_nothing() {
    let (disk, mut letters) = with_letters();
    let before = disk.contents();
    take_away(&disk, Path::new(LOG), false);
    for _ in 0..3 {
        assert!(append(&mut letters, 7, LEN).is_err());
        assert!(disk.list(Path::new(LOG)).is_err(), "only the log makes its directory");
    }
    disk.make_directory(&directory_of(Path::new(LOG), DELIVERY));
    before.into_iter().for_each(|(path, bytes)| disk.put(&path, &bytes));
    append(&mut letters, 7, LEN).expect("stored");
    assert_eq!((letters.take_gone().files, letters.letters()), (0, 6));
    assert_eq!(replayed(&disk), [2, 3, 4, 5, 6, 7]);
}

/// Scenario: the log's directory was a mount, which is missing. Guarantee: no letter goes to the
/// file system below it.
#[test]
fn letters_do_not_go_to_another_file_system() {
    let (disk, mut letters) = with_letters();
    take_away(&disk, Path::new(LOG), false);
    make_anew(&disk);
    disk.set_device(2);
    assert!(append(&mut letters, 7, LEN).is_err());
    for _ in 0..3 {
        let refused = append(&mut letters, 7, LEN);
        assert!(matches!(refused, Err(FileError::OtherFileSystem { .. })), "{refused:?}");
    }
    assert_eq!((files(&disk), letters.take_gone().files), (0, 0));
    disk.set_device(1);
    append(&mut letters, 7, LEN).expect("stored");
}

/// Guarantee: one file that is gone costs only the letters in it.
#[test]
fn one_file_that_is_gone_costs_no_letter_of_another() {
    let (disk, mut letters) = with_letters();
    let is_open = |path: &Path| path.to_string_lossy().ends_with("06.seg");
    let (path, _) =
        disk.contents().into_iter().find(|(path, _)| is_open(path)).expect("it is open");
    disk.remove_file(&path).expect("removed");
    assert!(append(&mut letters, 7, 100).is_err(), "it would be in no file");
    append(&mut letters, 7, 100).expect("stored");
    let gone = letters.take_gone();
    assert_eq!((gone.files, gone.letters, letters.letters()), (1, 1, 5));
    assert_eq!(replayed(&disk.cut_power(Unsynced::Lost)), [2, 3, 4, 5, 7]);
}

/// Guarantee: whichever call fails while the directory is made anew, the next append does it, and
/// what is gone is counted once.
#[test]
fn making_it_anew_is_tried_again() {
    for number in 0..40 {
        let (disk, mut letters) = with_letters();
        take_away(&disk, Path::new(LOG), false);
        make_anew(&disk);
        assert!(append(&mut letters, 7, LEN).is_err());
        disk.reset_counts();
        disk.fail_call(number, input_output);
        let stored = append(&mut letters, 7, LEN).is_ok();
        let calls = disk.counts().total();
        disk.clear_fault();
        if !stored {
            append(&mut letters, 7, LEN).unwrap_or_else(|error| panic!("call {number}: {error}"));
        }
        assert_eq!(letters.take_gone().letters, 5, "call {number}");
        assert_eq!(letters.letters(), 1, "call {number}");
        let disk = disk.cut_power(Unsynced::Lost);
        assert_eq!(replayed(&disk).last(), Some(&7), "call {number}");
        if calls <= number {
            assert!(number > 10 && disk.counts().of(Operation::CreateDirectory) > 0);
            return;
        }
    }
    panic!("it makes more calls than the test knows");
}

/// Guarantee: letters go on in the directory that their log makes anew, and survive a power cut
/// with it.
#[test]
fn letters_go_on_in_the_directory_that_the_log_makes_anew() {
    let disk = FaultyDisk::new(1);
    let (log, _) = note::open(&disk);
    let id = subscribe(&log, "a");
    append_durable(&log, 0..1, 100, &[id]);
    assert_eq!(DIRECTORY, LOG);
    let mut letters = open(&disk);
    append(&mut letters, 0, LEN).expect("stored");
    disk.remove_tree(Path::new(LOG));
    append_durable(&log, 1..2, 100, &[id]);
    assert!(append(&mut letters, 1, LEN).is_err() && append(&mut letters, 1, LEN).is_ok());
    let disk = disk.cut_power(Unsynced::Lost);
    drop(log);
    assert_eq!(replayed(&disk), [1]);
    let (log, found) = note::open(&disk);
    assert!(found.lost_cursors.is_empty(), "{found:?}");
    assert_eq!(note::values(&note::read_all(&log, subscribe(&log, "a"))), [1]);
}
