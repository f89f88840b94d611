//! Dead letters on a disk with troubles that come and go: what an append has stored is read again,
//! whatever happens between, once the troubles are over.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use fastrand::Rng;
use rustix::io::Errno;
use sluice_log::dead_letters::{DeadLetter, DeadLetterScan, DeadLetters, directory_of};
use sluice_log::disk::Disk;
use sluice_log::format::Refusal;
use sluice_log::{FileError, RecordFacts};
use support::faulty_disk::{FaultyDisk, Operation, Trouble, Unsynced};
use support::troubles::Lasts;

const LOG: &str = "/log/traces";
const DELIVERY: &str = "traces/a → otlp/b";
/// More than a case writes: nothing is dropped to make room.
const LIMIT_BYTES: u64 = 16 << 20;

fn letter(value: u64, len: usize) -> DeadLetter {
    DeadLetter {
        refusal: Refusal { refused_unix_ns: value, code: 400, reason: String::new() },
        facts: RecordFacts::default(),
        items: 1,
        metadata: Vec::new(),
        payload: Bytes::from(vec![value as u8; len]),
    }
}

fn try_open(disk: &FaultyDisk) -> Result<DeadLetters, FileError> {
    DeadLetters::open(Arc::new(disk.clone()), Path::new(LOG), DELIVERY, LIMIT_BYTES)
}

fn open(disk: &FaultyDisk) -> DeadLetters {
    try_open(disk).unwrap_or_else(|_| {
        disk.clear_fault();
        try_open(disk).expect("it opens once the troubles are over")
    })
}

fn trouble(random: &mut Rng) -> Trouble {
    use Operation::*;
    let operations = [
        Read,
        Open,
        Len,
        List,
        Write,
        SyncData,
        SyncDirectory,
        Allocate,
        CreateNew,
        Rename,
        RemoveFile,
        SetLen,
        Linked,
    ];
    let errors = [Errno::IO, Errno::NOSPC, Errno::MFILE, Errno::INTR, Errno::ROFS];
    let from = random.u64(..6);
    let lasts = [Lasts::Calls(from..from + random.u64(1..6)), Lasts::Chance(random.u32(50..500))];
    let (operation, error) = (random.choice(operations), random.choice(errors));
    let trouble = Trouble::new(operation.as_slice(), error.unwrap_or(Errno::IO));
    let all = Trouble { operations: Vec::new(), ..trouble.clone() };
    let trouble = if random.u8(..8) == 0 { all } else { trouble };
    Trouble { lasts: random.choice(lasts).unwrap_or(Lasts::On), ..trouble }
}

fn case(seed: u64) {
    let mut random = Rng::with_seed(seed);
    let mut disk = FaultyDisk::new(seed);
    disk.set_short_calls(seed.is_multiple_of(2));
    disk.make_directory(Path::new(LOG));
    let mut letters = open(&disk);
    // Values by number. Those below may have been removed.
    let (mut stored, mut removed_below) = (BTreeMap::new(), 0);
    let mut value = 0;
    for _ in 0..random.usize(5..80) {
        match random.u8(..20) {
            0..10 => {
                let new: Vec<u64> = (value..value + random.u64(1..5)).collect();
                value += new.len() as u64;
                let lens = random.usize(..20_000);
                let batch: Vec<_> = new.iter().map(|value| letter(*value, lens)).collect();
                if let Ok(first) = letters.append(&batch) {
                    stored.extend((first..).zip(new));
                }
            }
            10..13 => disk.trouble(trouble(&mut random)),
            13..16 => disk.clear_fault(),
            16 => {
                let (first, head) = letters.range();
                let number = random.u64(first..=head);
                removed_below = removed_below.max(number);
                // After an error they may be removed or not.
                let _ = letters.remove_below(number);
            }
            17 => letters = open(&disk),
            end => {
                let cut = [Unsynced::Lost, Unsynced::Mixed, Unsynced::Garbage];
                disk = match random.choice(cut).filter(|_| end == 18) {
                    Some(unsynced) => disk.cut_power(unsynced),
                    None => disk.kill_process(),
                };
                letters = open(&disk);
            }
        }
    }
    disk.clear_fault();
    let first = letters.append(&[letter(value, 100)]).expect("the troubles are over");
    stored.insert(first, value);
    let disk = disk.cut_power(Unsynced::Lost);
    let letters = open(&disk);
    assert_eq!((letters.dropped().frames, letters.range().1 > first), (0, true), "seed {seed}");
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let directory = directory_of(Path::new(LOG), DELIVERY);
    let mut reader = DeadLetterScan::open(shared, &directory, 0).expect("it opens");
    let mut read = BTreeMap::new();
    loop {
        match reader.next_letter() {
            Ok(Some((letter, refusal))) => {
                let number = letter.offset;
                let before = read.insert(number, refusal.refused_unix_ns);
                assert_eq!(before, None, "seed {seed}: {number} twice");
            }
            Ok(None) => break,
            // A power cut left the name of a file that was never synced.
            Err(FileError::NoSegment { .. }) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    for (number, value) in stored.range(removed_below..) {
        assert!(read.get(number) == Some(value), "seed {seed}: {number} of {stored:?}");
    }
}

/// The cases from this seed on.
fn run(cases: u64) {
    let first = fastrand::u64(..u64::MAX / 2);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || (first + thread..first + cases).step_by(2).for_each(case));
        }
    });
}

#[test]
fn letters_that_were_stored_are_read_whatever_the_disk_does() {
    run(2_000);
}

#[test]
#[ignore = "minutes long"]
fn torture_letters_that_were_stored_are_read_whatever_the_disk_does() {
    run(200_000);
}
