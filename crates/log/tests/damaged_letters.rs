//! Damage of dead letters is kept and counted, and costs no other letter.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sluice_log::RecordFacts;
use sluice_log::dead_letters::{DeadLetter, DeadLetterScan, DeadLetters, directory_of};
use sluice_log::disk::Disk;
use sluice_log::format::{Refusal, SLOT_LEN_BYTES};
use sluice_log::inspect::{self, DeadLetterOverview, Finding, Verification};
use sluice_log::segment::Damage;
use support::faulty_disk::FaultyDisk;

const LOG: &str = "/log/traces";
const DELIVERY: &str = "traces/otlp_grpc/backend";

fn open(disk: &FaultyDisk) -> DeadLetters {
    disk.make_directory(Path::new(LOG));
    let disk = Arc::new(disk.clone());
    DeadLetters::open(disk, Path::new(LOG), DELIVERY, 1 << 20).expect("it opens")
}

fn letter(index: u64, len: usize) -> DeadLetter {
    DeadLetter {
        refusal: Refusal { refused_unix_ns: index, code: 400, reason: String::new() },
        facts: RecordFacts::default(),
        items: 3,
        metadata: Vec::new(),
        payload: Bytes::from(vec![7; len]),
    }
}

/// The letters that a replay reads, by the index that they were made of, and the damage.
fn replayed(disk: &FaultyDisk) -> (Vec<u64>, u64) {
    let directory = directory_of(Path::new(LOG), DELIVERY);
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut reader = DeadLetterScan::open(disk, &directory, 0).expect("it opens");
    let mut indices = Vec::new();
    while let Some((_, refusal)) = reader.next_letter().expect("read") {
        indices.push(refusal.refused_unix_ns);
    }
    (indices, places(&reader.damaged()))
}

fn places(damaged: &[(PathBuf, Damage)]) -> u64 {
    damaged.iter().map(|(_, damage)| damage.frames + damage.regions).sum()
}

fn listed(disk: &FaultyDisk) -> DeadLetterOverview {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut logs = inspect::overview(&disk, Path::new("/log")).expect("listed");
    logs.remove(0).dead_letters.remove(0)
}

fn verified(disk: &FaultyDisk) -> Verification {
    inspect::verify(disk, Path::new("/log"), &mut |_, _| {}).expect("verified")
}

/// The store's segments, in order.
fn files(disk: &FaultyDisk) -> Vec<PathBuf> {
    let paths = disk.contents().into_iter().map(|(path, _)| path);
    paths.filter(|path| path.to_string_lossy().contains(".seg")).collect()
}

/// A store of eight letters in one file, each in a block of its own; if it is sealed, another one
/// has a ninth letter.
fn with_eight_letters(is_sealed: bool) -> (FaultyDisk, PathBuf) {
    let disk = FaultyDisk::new(1);
    let mut letters = open(&disk);
    for index in 0..8 {
        letters.append(&[letter(index, 2_000)]).unwrap();
    }
    if is_sealed {
        letters.append(&[letter(8, 200_000)]).unwrap();
    }
    assert_eq!(files(&disk).len(), 1 + usize::from(is_sealed));
    let first = files(&disk).remove(0);
    (disk.kill_process(), first)
}

const fn block(letter: u64) -> u64 {
    4_096 * (1 + letter)
}

/// Scenario: letters of a file that was not sealed are damaged, among them the last ones.
/// Guarantee: a start cuts none of their bytes, names the file, and gives their numbers to no other
/// letter; once the damage is undone, they are all read.
#[test]
fn a_start_cuts_no_damage() {
    let damages: [(&str, &[u64], u64); 4] = [
        ("the last header", &[block(7) + 20], 7),
        ("the last headers", &[block(6) + 20, block(7) + 20], 6),
        (
            "all headers",
            &[block(0), block(1), block(2), block(3), block(4), block(5), block(6), block(7)],
            0,
        ),
        ("the last body", &[block(7) + 500], 7),
    ];
    for (what, positions, left) in damages {
        let (disk, path) = with_eight_letters(false);
        positions.iter().for_each(|position| disk.flip_bit(&path, position * 8));
        let letters = open(&disk);
        assert_eq!(letters.letters(), left, "{what}");
        let [(named, damage)] = &letters.found().damaged[..] else { panic!("{what}: one file") };
        assert_eq!((named, damage.frames + damage.regions > 0), (&path, true), "{what}");
        assert_eq!(letters.unreadable_files(), 1, "{what}");
        drop(letters);
        assert_eq!(files(&disk), std::slice::from_ref(&path), "{what}");
        let mut disk = disk.kill_process();
        for index in 8..10 {
            let number = open(&disk).append(&[letter(index, 100)]).unwrap();
            assert!(number >= 8, "{what}: {number}");
            disk = disk.kill_process();
        }
        positions.iter().for_each(|position| disk.flip_bit(&path, position * 8));
        assert_eq!(open(&disk).letters(), 10, "{what}");
        assert_eq!(replayed(&disk), ((0..10).collect(), 0), "{what}");
    }
}

/// Scenario: bodies of letters are damaged, in a sealed file and in one that was not sealed.
/// Guarantee: the store, `ls`, `verify` and replay count the same letters as readable.
#[test]
fn all_count_the_same_letters_as_readable() {
    for is_sealed in [false, true] {
        let (disk, path) = with_eight_letters(is_sealed);
        disk.flip_bit(&path, (block(2) + 500) * 8);
        disk.flip_bit(&path, (block(5) + 500) * 8);
        let (read, damage) = replayed(&disk);
        let (listed, verified, letters) = (listed(&disk), verified(&disk), open(&disk));
        let readable = read.len() as u64;
        assert_eq!((readable, damage), (6 + u64::from(is_sealed), 2));
        let damaged: Vec<_> = listed.damaged.iter().map(|(path, it)| (path, it.frames)).collect();
        assert_eq!((listed.held.frames, damaged), (readable, vec![(&path, 2)]));
        assert_eq!((verified.frames, verified.findings.len()), (readable, 1));
        assert_eq!((letters.letters(), letters.unreadable_files()), (readable, 1));
    }
}

/// Scenario: the disk refuses one slot of the state, or the file. Guarantee: all logs are listed,
/// with the letters that can be read, and the file is named.
#[test]
fn a_state_that_the_disk_refuses_is_listed_as_such() {
    // The state was written once since it was created: the second slot is the newer one.
    let newer = SLOT_LEN_BYTES..SLOT_LEN_BYTES + 1;
    for (refused, left) in [(newer, 8), (0..1, 6), (0..2 * SLOT_LEN_BYTES, 8)] {
        let (disk, _) = with_eight_letters(false);
        open(&disk).remove_below(2).expect("removed");
        assert_eq!(listed(&disk).held.frames, 6);
        disk.set_unreadable("state.cursor", refused);
        let listed = listed(&disk);
        assert_eq!((listed.delivery.as_str(), listed.held.frames), (DELIVERY, left));
        let unreadable: Vec<_> = listed.unreadable.iter().map(ToString::to_string).collect();
        assert!(unreadable.len() == 1 && unreadable[0].contains("state.cursor"), "{unreadable:?}");
        assert!(listed.is_state_lost);
    }
}

/// Scenario: the disk refuses a block of a file. Guarantee: letters of other files are listed, and
/// `ls` and a start name the file and count the same.
#[test]
fn a_file_with_a_bad_block_is_listed_as_such() {
    let (disk, path) = with_eight_letters(true);
    disk.spoil(&path, block(5)).expect("a block");
    let listed = listed(&disk);
    let letters = open(&disk);
    assert!(listed.held.frames > 0);
    assert_eq!(listed.held.frames, letters.letters());
    for unreadable in [&listed.unreadable, &letters.found().unreadable] {
        let unreadable: Vec<_> = unreadable.iter().map(ToString::to_string).collect();
        assert!(
            unreadable.len() == 1 && unreadable[0].contains("0000000000000000.seg"),
            "{unreadable:?}"
        );
    }
}

/// Scenario: letters are removed after a replay, which could not read all of a file. Guarantee: the
/// file is set aside and named, and comes back whole; letters that are dropped go with all of it.
#[test]
fn a_damaged_file_is_set_aside_when_its_letters_are_removed() {
    for is_dropped in [false, true] {
        let (disk, path) = with_eight_letters(true);
        disk.flip_bit(&path, (block(2) + 500) * 8);
        let damaged = disk.contents().into_iter().find(|(file, _)| *file == path).expect("it").1;
        open(&disk).remove_below(8).expect("removed");
        let left = listed(&disk);
        assert_eq!((left.held.frames, left.set_aside.len()), (1, 1));
        let aside = left.set_aside[0].path.clone();
        assert_eq!(aside.to_string_lossy(), format!("{}.damaged", path.display()));
        let is_named = |finding: &Finding| match finding {
            Finding::LettersSetAside { path } => *path == aside,
            _ => false,
        };
        assert!(verified(&disk).findings.iter().all(is_named));
        assert_eq!(verified(&disk).findings.len(), 1);
        assert!(disk.contents().contains(&(aside, damaged)), "not a byte is missing");
        if is_dropped {
            open(&disk).drop_all().expect("dropped");
            assert_eq!(files(&disk), <[PathBuf; 0]>::default());
        }
    }
    let (disk, path) = with_eight_letters(false);
    disk.flip_bit(&path, (block(2) + 500) * 8);
    open(&disk).drop_all().expect("dropped");
    assert_eq!(files(&disk), <[PathBuf; 0]>::default(), "it was not set aside before");
}
