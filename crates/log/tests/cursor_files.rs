//! A reader's position survives torn writes, lost syncs, flipped bits and full disks: the newest
//! state that was stored comes back, or the one before it.

mod support;

use std::path::{Path, PathBuf};

use fastrand::Rng;
use sluice_log::cursors::{CursorFile, damaged_slots, file_name};
use sluice_log::format::{
    CursorState, DROPPED_RANGES_LIMIT, DroppedRange, RANGES_LIMIT, SLOT_LEN_BYTES,
    UNTAKEN_RANGES_LIMIT, decode_slot, encode_slot,
};
use sluice_log::{FileError, Holding};
use support::faulty_disk::{FaultyDisk, Operation, Unsynced, input_output, no_space};

const DIRECTORY: &str = "/log/traces/cursors";

fn disk(seed: u64) -> FaultyDisk {
    let disk = FaultyDisk::new(seed);
    disk.make_directory(Path::new(DIRECTORY));
    disk
}

/// A state that is identified by its floor.
fn state(floor: u64) -> CursorState {
    let holding = |frames| Holding { frames, items: frames * 10, bytes: frames * 1000 };
    CursorState {
        id: 3,
        name: "traces/otlp_grpc/backend".to_owned(),
        log_id: 99,
        floor,
        resolved: (0..floor % 7)
            .map(|index| (floor + 10 * index + 1, floor + 10 * index + 4))
            .collect(),
        untaken: (0..floor % 5).map(|index| (10 * index, 10 * index + 3)).collect(),
        head: floor + 100,
        held: holding(floor % 50),
        dropped: holding(floor / 3),
        dropped_ranges: vec![
            DroppedRange {
                start: 1,
                end: 5,
                dropped: holding(2),
                dropped_unix_ns: 17
            };
            (floor % 3) as usize
        ],
        written_unix_ns: floor * 1000,
    }
}

fn path() -> PathBuf {
    Path::new(DIRECTORY).join(file_name(&state(0).name))
}

#[test]
fn the_newest_state_is_read_back_whole() {
    let disk = disk(1);
    let mut file = CursorFile::create(&disk, &path(), &state(0)).unwrap();
    assert_eq!(file.path(), path());
    for floor in 1..20 {
        file.store(&disk, &state(floor)).unwrap();
        let (reopened, read) = CursorFile::open(&disk, &path()).unwrap();
        assert_eq!(read, state(floor));
        file = reopened;
    }
    assert_eq!(damaged_slots(&disk, &path()).unwrap(), 0);
}

#[test]
fn a_store_is_one_write_and_one_sync() {
    let disk = disk(1);
    let mut file = CursorFile::create(&disk, &path(), &state(0)).unwrap();
    disk.reset_counts();
    file.store(&disk, &state(6)).unwrap();
    let counts = disk.counts();
    assert_eq!(
        (counts.of(Operation::Write), counts.of(Operation::SyncData), counts.total()),
        (1, 1, 2)
    );
}

#[test]
fn what_exceeds_the_bounds_is_left_out_and_the_rest_is_kept() {
    let mut large = state(5);
    large.resolved =
        (0..RANGES_LIMIT as u64 + 500).map(|index| (10 * index + 6, 10 * index + 8)).collect();
    large.dropped_ranges = (0..40)
        .map(|start| DroppedRange { start, end: start + 1, ..DroppedRange::default() })
        .collect();
    large.untaken =
        (0..UNTAKEN_RANGES_LIMIT as u64 + 2).map(|index| (10 * index, 10 * index + 3)).collect();
    large.name = "é".repeat(2000);
    let slot = encode_slot(&large, 7);
    assert!(slot.len() as u64 <= SLOT_LEN_BYTES);
    let (sequence, read) = decode_slot(&slot).unwrap();
    assert_eq!(sequence, 7);
    assert_eq!(read.resolved, large.resolved[..RANGES_LIMIT]);
    assert_eq!(read.untaken[0], (0, 23), "the lowest are one: too much rather than too little");
    assert_eq!(read.untaken[1..], large.untaken[3..]);
    assert_eq!(read.dropped_ranges, large.dropped_ranges[40 - DROPPED_RANGES_LIMIT..]);
    assert_eq!(read.name, "é".repeat(512));
}

#[test]
fn any_flipped_bit_costs_at_most_the_last_store() {
    let disk = disk(1);
    let mut file = CursorFile::create(&disk, &path(), &state(1)).unwrap();
    file.store(&disk, &state(6)).unwrap();
    let used = encode_slot(&state(6), 1).len() as u64;
    for bit in (0..(used + 8) * 8).chain(SLOT_LEN_BYTES * 8..(SLOT_LEN_BYTES + used + 8) * 8) {
        disk.flip_bit(&path(), bit);
        let read = CursorFile::read(&disk, &path()).unwrap();
        assert!([state(1), state(6)].contains(&read), "bit {bit}: {read:?}");
        disk.flip_bit(&path(), bit);
    }
}

#[test]
fn both_slots_damaged_is_an_error_and_not_a_new_reader() {
    let disk = disk(1);
    CursorFile::create(&disk, &path(), &state(1)).unwrap();
    disk.flip_bit(&path(), 300);
    assert_eq!(damaged_slots(&disk, &path()).unwrap(), 1);
    disk.flip_bit(&path(), SLOT_LEN_BYTES * 8 + 300);
    assert_eq!(damaged_slots(&disk, &path()).unwrap(), 2);
    assert!(matches!(CursorFile::open(&disk, &path()), Err(FileError::DamagedCursor { .. })));
}

#[test]
fn a_power_cut_leaves_the_last_stored_state_or_the_one_that_was_being_stored() {
    for seed in 0..300 {
        let mut disk = disk(seed);
        let mut random = Rng::with_seed(seed);
        let mut stored = 0;
        CursorFile::create(&disk, &path(), &state(0)).unwrap();
        for _ in 0..5 {
            let (mut file, read) = CursorFile::open(&disk, &path()).unwrap();
            stored = read.floor;
            for _ in 0..random.u64(0..4) {
                stored += 1;
                file.store(&disk, &state(stored)).unwrap();
            }
            // The last write is cut before its sync returns.
            disk.fail_operation(Operation::SyncData, input_output);
            assert!(file.store(&disk, &state(stored + 1)).is_err());
            disk.clear_fault();
            disk = disk.cut_power(
                *random.choice(&[Unsynced::Lost, Unsynced::Mixed, Unsynced::Garbage]).unwrap(),
            );
            let read = CursorFile::read(&disk, &path()).unwrap();
            assert!(read == state(stored) || read == state(stored + 1), "seed {seed}: {read:?}");
        }
        assert!(stored <= 20);
    }
}

#[test]
fn whichever_call_fails_the_place_is_kept_and_the_next_store_succeeds() {
    for error in [no_space, input_output] {
        for number in 0.. {
            let disk = disk(number);
            let mut file = CursorFile::create(&disk, &path(), &state(1)).unwrap();
            disk.reset_counts();
            // After the first failure the second store writes a new file: its calls are made to
            // fail too.
            let mut fails_once = true;
            disk.set_fault(move |call| {
                let is_first_sync = fails_once && call.operation == Operation::SyncData;
                fails_once &= !is_first_sync;
                (is_first_sync || call.number == number).then(error)
            });
            let results = [2, 3].map(|floor| file.store(&disk, &state(floor)).is_ok());
            let calls = disk.counts().total();
            disk.clear_fault();
            let newest = if results[1] { 3 } else { 1 };
            let survivor = CursorFile::read(&disk.cut_power(Unsynced::Mixed), &path()).unwrap();
            assert!(
                survivor.floor >= newest,
                "call {number}: {} after {results:?}",
                survivor.floor
            );
            if number >= calls {
                assert_eq!(results, [false, true]);
                break;
            }
        }
        // Without a power cut the next store succeeds.
        for number in 0..12 {
            let disk = disk(number);
            let mut file = CursorFile::create(&disk, &path(), &state(1)).unwrap();
            disk.reset_counts();
            disk.fail_call(number, error);
            let results = [2, 3].map(|floor| file.store(&disk, &state(floor)).is_ok());
            disk.clear_fault();
            // A failing call fails at most one store.
            assert!(results.contains(&true), "call {number}");
            file.store(&disk, &state(4)).unwrap();
            assert_eq!(CursorFile::read(&disk, &path()).unwrap(), state(4), "call {number}");
            let names = disk.contents().into_iter().map(|(path, _)| path).collect::<Vec<_>>();
            assert_eq!(names, [path()], "no temporary file is left");
        }
    }
}

#[test]
fn a_sync_that_failed_is_never_tried_again_on_the_same_file() {
    let disk = disk(1);
    let mut file = CursorFile::create(&disk, &path(), &state(1)).unwrap();
    disk.fail_operation(Operation::SyncData, input_output);
    assert!(file.store(&disk, &state(2)).is_err());
    disk.clear_fault();
    disk.reset_counts();
    file.store(&disk, &state(3)).unwrap();
    assert_eq!(
        (disk.counts().of(Operation::CreateNew), disk.counts().of(Operation::Rename)),
        (1, 1)
    );
    let disk = disk.cut_power(Unsynced::Lost);
    assert_eq!(CursorFile::read(&disk, &path()).unwrap(), state(3));
}

#[test]
fn names_make_different_file_names_that_every_file_system_takes() {
    let long = "a".repeat(300);
    let names = [
        "traces/otlp/a",
        "traces%2fotlp/a",
        ".",
        "..",
        "",
        "é",
        "a b",
        "A",
        "a",
        &long,
        &format!("{long}b"),
        "..cursor",
    ];
    let mut files = names.map(file_name).to_vec();
    for file in &files {
        assert!(file.len() <= 255 && !file.starts_with('.') && !file.contains('/'), "{file}");
        assert!(file.is_ascii());
    }
    files.sort();
    files.dedup();
    assert_eq!(files.len(), names.len());
    assert_eq!(file_name("traces/otlp_grpc/backend"), "traces%2fotlp_grpc%2fbackend.cursor");
}

#[test]
fn a_slot_that_the_disk_refuses_may_be_the_newer_one_and_is_an_error() {
    let disk = disk(1);
    let mut file = CursorFile::create(&disk, &path(), &state(1)).unwrap();
    file.store(&disk, &state(6)).unwrap();
    for slot in [0..1, SLOT_LEN_BYTES..SLOT_LEN_BYTES + 1, 0..u64::MAX] {
        disk.set_unreadable(".cursor", slot);
        let refused = CursorFile::open(&disk, &path()).map(drop);
        assert!(matches!(refused, Err(FileError::Io { .. })), "what may be whole is not set aside");
        assert!(CursorFile::read(&disk, &path()).is_err());
        assert!(damaged_slots(&disk, &path()).is_err());
        disk.clear_fault();
        assert_eq!(CursorFile::read(&disk, &path()).unwrap(), state(6));
    }
}
