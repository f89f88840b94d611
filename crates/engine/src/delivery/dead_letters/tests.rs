//! Dead letters of a delivery, in memory and on disk.

use std::path::Path;

use sluice_flow::Frame;
use sluice_log::disk::RealDisk;
use sluice_log::format::{SegmentHeader, VERSION, Version};
use sluice_otlp::Signal;
use tempfile::TempDir;

use super::*;
use crate::entry::Origin;
use crate::shared_work::SharedWorkMemory;

fn letter(len: usize, items: u32, reason: &str) -> DeadLetter {
    let frame = Frame {
        signal: Signal::Traces,
        items,
        payload: Payload::identity(Bytes::from(vec![7; len])),
        receiver: 0,
        received_wall: SystemTime::now(),
        metadata: Arc::default(),
    };
    let payload = frame.payload.clone();
    let origin = Origin { receiver: "otlp".to_owned(), prepared: Vec::new() };
    let memory = Arc::new(SharedWorkMemory::new(0, Arc::default()));
    let entry = Entry::new(frame, Arc::new(origin), None, memory);
    dead_letter(&entry, &[1], payload, items, reason.to_owned())
}

fn reasons(letters: &DeadLetters) -> Vec<String> {
    letters.listing(10).newest.into_iter().map(|letter| letter.reason).collect()
}

#[test]
fn the_list_is_bounded_in_bytes_and_counts_what_it_let_go() {
    let one = memory_bytes(&letter(100, 10, "reason 0"));
    let letters = DeadLetters::in_memory(2 * one + 50);
    for index in 0..5 {
        letters.store(&[letter(100, 10, &format!("reason {index}"))]).unwrap();
    }
    assert_eq!(
        letters.totals(),
        DeadLetterTotals { letters: 2, bytes: 2 * one, evicted_items: 30, ..Default::default() }
    );
    assert_eq!(reasons(&letters), ["reason 4", "reason 3"]);
}

#[test]
fn a_letter_does_not_hold_the_request_that_it_was_part_of() {
    let request = Bytes::from(vec![7; 1 << 20]);
    let part = DeadLetter { payload: request.slice(..100), ..letter(100, 1, "poison") };
    let letters = DeadLetters::in_memory(10_000);
    letters.store(&[part]).unwrap();
    assert_eq!(letters.totals().letters, 1);
    assert!(request.is_unique(), "a part of it holds all of it");
}

#[test]
fn what_a_letter_is_made_of_counts() {
    let letters = DeadLetters::in_memory(10_000);
    for _ in 0..100 {
        letters.store(&[letter(0, 1, &"r".repeat(1000))]).unwrap();
    }
    assert!(
        letters.totals().letters < 10 && letters.totals().bytes <= 10_000,
        "{:?}",
        letters.totals()
    );
}

#[test]
fn a_list_whose_limit_is_lowered_lets_go_at_once() {
    let one = memory_bytes(&letter(100, 10, "old"));
    let letters = DeadLetters::in_memory(2 * one + 50);
    letters.store(&[letter(100, 10, "old"), letter(100, 10, "new")]).unwrap();
    letters.set_limit(one + 50);
    assert_eq!(
        letters.totals(),
        DeadLetterTotals { letters: 1, bytes: one, evicted_items: 10, ..Default::default() }
    );
    assert_eq!(reasons(&letters), ["new"]);
}

#[test]
fn a_letter_larger_than_the_list_is_counted_and_not_kept() {
    let letters = DeadLetters::in_memory(10);
    assert!(!letters.takes(&letter(100, 3, "large")));
    letters.store(&[letter(100, 3, "large")]).unwrap();
    assert_eq!(letters.totals(), DeadLetterTotals { evicted_items: 3, ..Default::default() });
}

#[test]
fn letters_on_disk_survive_and_nothing_is_written_before_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let store = OnDisk::open(
            Arc::new(RealDisk),
            directory.path().to_owned(),
            "traces → otlp".to_owned(),
            1 << 20,
        );
        DeadLetters::OnDisk(Box::new(store))
    };
    let letters = open();
    assert_eq!((letters.totals(), reasons(&letters).len()), (DeadLetterTotals::default(), 0));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    letters.store(&[letter(100, 3, "first"), letter(100, 4, "second")]).unwrap();
    assert!(letters.takes(&letter(100, 3, "first")));
    assert!(!letters.takes(&letter(2 << 20, 5, "larger than the store")));
    letters.store(&[letter(2 << 20, 5, "larger than the store")]).unwrap();
    assert_eq!(letters.totals().evicted_items, 5, "counted and not kept");
    drop(letters);
    let letters = open();
    assert_eq!(
        (letters.totals().letters, reasons(&letters)),
        (2, vec!["second".to_owned(), "first".to_owned()])
    );
    letters.store(&[letter(100, 3, "third")]).unwrap();
    assert_eq!(letters.totals().letters, 3);
}

#[test]
fn letters_that_cannot_be_opened_stop_nothing_and_are_there_when_they_can() {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let (disk, path) = (Arc::new(RealDisk), directory.path().to_owned());
        let store = OnDisk::open(disk, path, "traces".to_owned(), 1 << 20);
        DeadLetters::OnDisk(Box::new(store))
    };
    open().store(&[letter(100, 3, "first")]).unwrap();
    let state = directory_of(directory.path(), "traces").join("state.cursor");
    let aside = state.with_extension("aside");
    std::fs::rename(&state, &aside).unwrap();
    std::fs::create_dir(&state).unwrap();
    let letters = open();
    assert!(letters.store(&[letter(100, 4, "second")]).is_err());
    std::fs::remove_dir(&state).unwrap();
    std::fs::rename(&aside, &state).unwrap();
    letters.store(&[letter(100, 4, "second")]).unwrap();
    assert_eq!((letters.totals().letters, reasons(&letters)[0].as_str()), (2, "second"));
}

/// The letters of a delivery `traces` below a directory.
fn on_disk(directory: &Path) -> DeadLetters {
    let (disk, path) = (Arc::new(RealDisk), directory.to_owned());
    DeadLetters::OnDisk(Box::new(OnDisk::open(disk, path, "traces".to_owned(), 1 << 20)))
}

/// Guarantee: letters go on, and those that are gone are not counted, after the log's directory was
/// removed or moved away and the log made it anew.
#[test]
fn letters_go_on_after_the_directory_of_their_log_is_gone() {
    for is_moved in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let of_log = directory.path().join("traces");
        std::fs::create_dir(&of_log).unwrap();
        let letters = on_disk(&of_log);
        letters.store(&[letter(100, 3, "first"), letter(100, 4, "second")]).unwrap();
        match is_moved {
            true => std::fs::rename(&of_log, directory.path().join("away")).unwrap(),
            false => std::fs::remove_dir_all(&of_log).unwrap(),
        }
        assert!((0..3).all(|_| letters.store(&[letter(100, 5, "third")]).is_err()));
        std::fs::create_dir(&of_log).unwrap();
        letters.store(&[letter(100, 5, "third")]).unwrap();
        let totals = letters.totals();
        assert_eq!((totals.letters, totals.evicted_items, totals.unreadable_files), (1, 0, 0));
        assert_eq!(
            (reasons(&letters), reasons(&on_disk(&of_log))[0].as_str()),
            (vec!["third".to_owned()], "third")
        );
    }
}

fn segment(directory: &Path, first: u64) -> PathBuf {
    directory_of(directory, "traces").join(format!("{first:016x}.seg"))
}

/// A directory with two letters, each in a file of its own.
fn with_two_files() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    on_disk(directory.path()).store(&[letter(100, 3, "first")]).unwrap();
    on_disk(directory.path()).store(&[letter(100, 4, "second")]).unwrap();
    directory
}

/// Guarantee: letters of a newer release end no start. Their file is named and stays as it is, new
/// letters wait, and when the file can be read all are there.
#[test]
fn letters_of_a_newer_release_do_not_end_the_start() {
    let directory = with_two_files();
    let path = segment(directory.path(), 1);
    let whole = std::fs::read(&path).unwrap();
    let mut header = SegmentHeader::decode(&whole).unwrap();
    header.version = Version { major: VERSION.major + 1, minor: 0 };
    let mut newer = whole.clone();
    let header = header.encode();
    newer[..header.len()].copy_from_slice(&header);
    std::fs::write(&path, &newer).unwrap();

    let letters = on_disk(directory.path());
    for _ in 0..2 {
        let refused = letters.store(&[letter(100, 5, "third")]);
        assert!(matches!(refused, Err(FileError::NewerVersion { .. })), "{refused:?}");
    }
    assert!(std::fs::read(&path).unwrap() == newer, "it stays as it is");
    let listing = letters.listing(10);
    assert_eq!((listing.items, listing.newest.len()), (3, 1), "{listing:?}");
    let [problem] = &listing.problems[..] else { panic!("{listing:?}") };
    let path = path.display().to_string();
    assert!(problem.contains(&path) && problem.contains("wait in the log"), "{problem}");

    std::fs::write(path, whole).unwrap();
    letters.store(&[letter(100, 5, "third")]).unwrap();
    assert_eq!(reasons(&letters), ["third", "second", "first"]);
    assert_eq!(letters.listing(10).problems, Vec::<String>::new());
}

/// Guarantee: the list names each file of which something is not in it, and goes on behind it.
#[test]
fn the_list_names_what_it_cannot_read() {
    let says = |letters: &DeadLetters, path: &Path, why: &str| {
        let Listing { letters, items, newest, problems } = letters.listing(10);
        assert_eq!((letters, items, &*newest[0].reason, newest.len()), (1, 4, "second", 1));
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        let is_named = problem.starts_with(&format!("{}: ", path.display()));
        assert!(is_named && problem.contains(why), "{problem}");
    };
    let directory = with_two_files();
    let path = segment(directory.path(), 0);
    let mut damaged = std::fs::read(&path).unwrap();
    let payload = damaged.windows(100).position(|bytes| bytes == [7; 100]).unwrap();
    damaged[payload] = 8;
    std::fs::write(&path, &damaged).unwrap();
    says(&on_disk(directory.path()), &path, "1 letters and 0 places in it are damaged");

    // An open store, too.
    let letters = on_disk(directory.path());
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&path, &path).unwrap();
    says(&letters, &path, "cannot open");
    says(&on_disk(directory.path()), &path, "cannot open");

    std::fs::rename(segment(directory.path(), 1), segment(directory.path(), 7)).unwrap();
    let Listing { newest, problems, .. } = on_disk(directory.path()).listing(10);
    assert!(newest.is_empty() && problems[1].contains("renamed or copied"), "{problems:?}");
}
