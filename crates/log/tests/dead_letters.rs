//! Dead letters are kept with their reasons, durably and within a bound. Letters that made room for
//! newer ones are counted.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rustix::io::Errno;
use sluice_log::dead_letters::{DeadLetter, DeadLetterScan, DeadLetters, directory_of};
use sluice_log::disk::Disk;
use sluice_log::format::{REASON_LIMIT_BYTES, Refusal, SLOT_LEN_BYTES};
use sluice_log::inspect::{self, Finding};
use sluice_log::{FileError, RecordFacts, StoredRecord};
use support::faulty_disk::{FaultyDisk, Operation, Trouble, Unsynced, input_output, no_space};

const LOG: &str = "/log/traces";
const DELIVERY: &str = "traces/otlp_grpc/backend";

fn open(disk: &FaultyDisk, limit_bytes: u64) -> DeadLetters {
    disk.make_directory(Path::new(LOG));
    DeadLetters::open(Arc::new(disk.clone()), Path::new(LOG), DELIVERY, limit_bytes).unwrap()
}

fn refusal(index: u64) -> Refusal {
    Refusal {
        refused_unix_ns: 1000 + index,
        code: 400,
        reason: format!("field {index} has the wrong type"),
    }
}

fn letter(index: u64, payload: &[u8]) -> DeadLetter {
    DeadLetter {
        refusal: refusal(index),
        facts: RecordFacts {
            received_unix_ns: 500 + index,
            encoding: 1,
            flags: 2,
            uncompressed_len_bytes: 2 * payload.len() as u32,
        },
        items: 3,
        metadata: b"peer".to_vec(),
        payload: Bytes::copy_from_slice(payload),
    }
}

fn read(disk: &FaultyDisk, from: u64) -> Vec<(StoredRecord, Refusal)> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut reader =
        DeadLetterScan::open(disk, &directory_of(Path::new(LOG), DELIVERY), from).unwrap();
    assert_eq!(reader.delivery("traces%2fotlp_grpc%2fbackend"), DELIVERY);
    let mut letters = Vec::new();
    while let Some(letter) = reader.next_letter().unwrap() {
        letters.push(letter);
    }
    assert!(reader.damaged().is_empty());
    letters
}

#[test]
fn a_letter_comes_back_with_its_reason_after_a_power_cut() {
    let disk = FaultyDisk::new(1);
    let mut letters = open(&disk, 1 << 20);
    assert_eq!(letters.append(&[letter(0, b"first"), letter(1, b"second")]).unwrap(), 0);
    assert_eq!(letters.append(&[letter(2, b"third")]).unwrap(), 2);
    let disk = disk.cut_power(Unsynced::Lost);
    let found = read(&disk, 0);
    assert_eq!(found.iter().map(|(letter, _)| letter.offset).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(found[1].1, refusal(1));
    assert_eq!((&found[1].0.payload[..], &found[1].0.metadata[..]), (&b"second"[..], &b"peer"[..]));
    assert_eq!(
        (
            found[1].0.charge.items,
            found[1].0.facts.encoding,
            found[1].0.facts.flags,
            found[1].0.facts.received_unix_ns
        ),
        (3, 1, 2, 501)
    );
    assert_eq!(read(&disk, 2).len(), 1);
    // The numbers continue after the restart.
    assert_eq!(open(&disk, 1 << 20).append(&[letter(3, b"fourth")]).unwrap(), 3);
    assert_eq!(read(&disk, 0).len(), 4);
}

#[test]
fn a_restart_gives_back_the_space_that_was_reserved_and_not_used() {
    let disk = FaultyDisk::new(1);
    open(&disk, 1 << 20).append(&[letter(0, b"first")]).unwrap();
    let used = disk.used_bytes();
    let disk = disk.kill_process();
    let letters = open(&disk, 1 << 20);
    assert!(
        letters.len_bytes() <= 8192 && disk.used_bytes() < used - 50_000,
        "{}",
        disk.used_bytes()
    );
    assert_eq!(read(&disk, 0).len(), 1);
}

#[test]
fn the_oldest_make_room_and_are_counted_across_restarts() {
    let payload = vec![7; 10_000];
    let limit_bytes = 512 << 10;
    let mut disk = FaultyDisk::new(1);
    let mut kept_least = u64::MAX;
    for run in 0..5 {
        let mut letters = open(&disk, limit_bytes);
        for index in 0..40 {
            let number = letters.append(&[letter(run * 40 + index, &payload)]).unwrap();
            assert_eq!(number, run * 40 + index);
            assert!(letters.len_bytes() <= limit_bytes);
        }
        let (first, next) = letters.range();
        assert_eq!(next, (run + 1) * 40);
        assert_eq!(letters.dropped().frames, first);
        assert_eq!(letters.dropped().items, 3 * first);
        assert_eq!(letters.dropped().bytes, 10_000 * first);
        kept_least = kept_least.min(next - first);
        disk = if run % 2 == 0 { disk.cut_power(Unsynced::Mixed) } else { disk.kill_process() };
        let numbers = read(&disk, 0).iter().map(|(letter, _)| letter.offset).collect::<Vec<_>>();
        assert_eq!(numbers, (first..next).collect::<Vec<_>>());
    }
    assert!(kept_least >= 30, "{kept_least} letters of 10 kB in 512 KiB");
}

#[test]
fn a_letter_that_exceeds_the_whole_bound_counts_as_dropped_and_the_others_stay() {
    let disk = FaultyDisk::new(1);
    let mut letters = open(&disk, 64 << 10);
    letters.append(&[letter(0, b"small")]).unwrap();
    let large = vec![0; 70_000];
    let new = [letter(1, b"small"), letter(2, &large), letter(2, b"small")];
    assert_eq!(letters.append(&new).unwrap(), 1);
    assert_eq!((letters.range(), letters.dropped().items), ((0, 3), 3));
    assert_eq!(read(&disk, 0).len(), 3);
    assert_eq!(open(&disk.cut_power(Unsynced::Lost), 64 << 10).dropped().items, 3);
}

/// Guarantee: a letter that exceeds the bound is counted once, however often storing the letters
/// beside it fails.
#[test]
fn a_letter_that_exceeds_the_whole_bound_counts_once() {
    let disk = FaultyDisk::new(1);
    let mut letters = open(&disk, 64 << 10);
    let new = [letter(0, &[0; 70_000]), letter(1, b"small")];
    disk.fail_operation(Operation::CreateNew, no_space);
    (0..3).for_each(|_| assert!(letters.append(&new).is_err()));
    disk.clear_fault();
    letters.append(&new).unwrap();
    assert_eq!((letters.letters(), letters.dropped().frames), (1, 1));
}

/// Scenario: a state was rewritten, its directory cannot be synced, the process is killed, and the
/// next one finds the state. Guarantee: letters that it removes do not come back after a power cut.
#[test]
fn a_state_that_was_found_counts_when_its_name_is_durable() {
    let disk = FaultyDisk::new(1);
    let mut letters = open(&disk, 1 << 20);
    letters.append(&[letter(0, b"payload"), letter(1, b"payload")]).unwrap();
    for operation in [Operation::SyncData, Operation::SyncDirectory] {
        disk.fail_operation(operation, input_output);
        assert!(letters.remove_below(1).is_err());
    }
    let disk = disk.kill_process();
    disk.clear_fault();
    open(&disk, 1 << 20).remove_below(2).unwrap();
    let disk = disk.cut_power(Unsynced::Lost);
    assert_eq!((open(&disk, 1 << 20).range(), read(&disk, 0).len()), ((2, 2), 0));
}

#[test]
fn what_was_replayed_is_gone_for_good_and_numbers_are_not_used_again() {
    let disk = FaultyDisk::new(1);
    let mut letters = open(&disk, 1 << 20);
    (0..10).for_each(|index| assert!(letters.append(&[letter(index, b"payload")]).is_ok()));
    letters.remove_below(4).unwrap();
    assert_eq!(read(&disk, 0).first().unwrap().0.offset, 4);
    letters.remove_below(u64::MAX).unwrap();
    assert_eq!((letters.range(), letters.len_bytes()), ((10, 10), 0));
    let disk = disk.cut_power(Unsynced::Mixed);
    let mut letters = open(&disk, 1 << 20);
    assert_eq!(read(&disk, 0), []);
    assert_eq!(letters.append(&[letter(10, b"payload")]).unwrap(), 10);
    assert_eq!(letters.dropped().frames, 0, "what was removed on purpose was not dropped");
}

#[test]
fn whichever_call_fails_no_stored_letter_is_lost_and_the_next_append_succeeds() {
    for number in 0..60 {
        for error in [no_space, input_output] {
            let disk = FaultyDisk::new(number);
            let mut letters = open(&disk, 200 << 10);
            let payload = vec![1; 30_000];
            disk.reset_counts();
            disk.fail_call(number, error);
            let mut stored = Vec::new();
            for index in 0..8 {
                stored.extend(letters.append(&[letter(index, &payload)]));
            }
            disk.clear_fault();
            stored.push(letters.append(&[letter(8, &payload)]).unwrap());
            assert!(stored.len() >= 8, "call {number}: one failing call fails one append at most");
            let first = letters.range().0;
            let read = read(&disk.cut_power(Unsynced::Mixed), 0);
            let numbers = read.iter().map(|(letter, _)| letter.offset).collect::<Vec<_>>();
            let missing = stored
                .iter()
                .filter(|number| **number >= first && !numbers.contains(number))
                .count();
            assert_eq!(missing, 0, "call {number}: {numbers:?} of {stored:?} from {first}");
        }
    }
}

/// Scenario: the power fails while a start cuts the unused end of a file. Guarantee: no block with
/// letters is written again, since a torn one would lose them.
#[test]
fn a_start_writes_no_block_with_letters() {
    for seed in 0..60 {
        let disk = FaultyDisk::new(seed);
        open(&disk, 1 << 20).append(&[letter(7, b"kept")]).unwrap();
        let disk = disk.kill_process();
        disk.reset_counts();
        disk.set_ignores_syncs(true);
        open(&disk, 1 << 20);
        assert_eq!(disk.counts().of(Operation::SetLen), 1);
        let read = read(&disk.cut_power(Unsynced::Garbage), 0);
        assert_eq!(read.len(), 1, "seed {seed}");
    }
}

#[test]
fn a_full_disk_is_an_error_that_passes() {
    let disk = FaultyDisk::new(1);
    let mut letters = open(&disk, 1 << 20);
    disk.set_capacity(Some(disk.used_bytes()));
    assert!(letters.append(&[letter(0, b"payload")]).is_err());
    // Less than half of a usual segment is free.
    disk.set_capacity(Some(disk.used_bytes() + (64 << 10)));
    letters.append(&[letter(0, b"payload")]).unwrap();
    disk.set_capacity(None);
    letters.append(&[letter(1, b"payload")]).unwrap();
    assert_eq!(read(&disk, 0).len(), 2);
}

/// Scenario: the state is removed, or damaged, of a store with letters, of which one was replayed.
/// Guarantee: it is said by the commands and by the next start, the letters are all there, and the
/// delivery keeps its name. A store without letters misses nothing.
#[test]
fn a_state_that_is_lost_is_said() {
    let directory = directory_of(Path::new(LOG), DELIVERY);
    let state = directory.join("state.cursor");
    for is_damaged in [false, true] {
        let disk = FaultyDisk::new(1);
        let mut letters = open(&disk, 1 << 20);
        assert!(!letters.found().is_state_lost, "a new store");
        letters.append(&[letter(0, b"payload"), letter(1, b"payload")]).unwrap();
        letters.remove_below(1).unwrap();
        drop(letters);
        let disk = disk.kill_process();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let look = || {
            let dead_letters = inspect::overview(&shared, Path::new("/log")).unwrap().remove(0);
            let one = &dead_letters.dead_letters[0];
            let mut verified = inspect::verify(&*shared, Path::new("/log"), &mut |_, _| {});
            let findings = std::mem::take(&mut verified.as_mut().unwrap().findings);
            (one.is_state_lost, one.delivery.clone(), one.held.frames, findings)
        };
        let (is_lost, name, held, findings) = look();
        assert_eq!((is_lost, name.as_str(), held, findings.len()), (false, DELIVERY, 1, 0));
        match is_damaged {
            true => disk.put(&state, &vec![0xee; 1 << 16]),
            false => disk.remove_file(&state).unwrap(),
        }
        let (is_lost, name, held, findings) = look();
        assert_eq!((is_lost, name.as_str(), held), (true, DELIVERY, 2));
        let is_named = |finding: &Finding| match finding {
            Finding::LostState { path } => !is_damaged && *path == state,
            Finding::DamagedCursor { path, slots: 2 } => is_damaged && *path == state,
            _ => false,
        };
        assert!(findings.len() == 1 && is_named(&findings[0]), "{findings:?}");
        let letters = open(&disk, 1 << 20);
        assert!(letters.found().is_state_lost);
        assert_eq!((letters.letters(), letters.range()), (2, (0, 2)));
        drop(letters);
        assert!(!open(&disk.kill_process(), 1 << 20).found().is_state_lost, "it is new");
    }
}

/// Scenario: one file of letters has nothing that can be read. Guarantee: the start and `ls` name
/// it, it is kept, and it makes room for newer letters in its turn.
#[test]
fn a_file_without_a_readable_letter_is_said_and_makes_room_in_its_turn() {
    let directory = directory_of(Path::new(LOG), DELIVERY);
    for zeros_from in [0, 1] {
        let disk = FaultyDisk::new(1);
        let mut letters = open(&disk, 256 << 10);
        for index in 0..8 {
            letters.append(&[letter(index, &[7; 20_000])]).unwrap();
        }
        drop(letters);
        let disk = disk.kill_process();
        let first = directory.join("0000000000000000.seg");
        let (_, mut bytes) = disk.contents().into_iter().find(|(path, _)| *path == first).unwrap();
        // All but the last bytes, or all but the first one.
        bytes[zeros_from..30_000].fill(0);
        disk.put(&first, &bytes);
        let mut letters = open(&disk, 256 << 10);
        let unreadable: Vec<_> =
            letters.found().unreadable.iter().map(ToString::to_string).collect();
        assert!(
            unreadable.len() == 1 && unreadable[0].contains("0000000000000000.seg"),
            "{unreadable:?}"
        );
        assert_eq!(letters.unreadable_files(), 1);
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let overview = inspect::overview(&shared, Path::new("/log")).unwrap().remove(0);
        assert_eq!(overview.dead_letters[0].unreadable.len(), 1);
        assert!(files(&disk).contains(&first), "it is kept");
        for index in 8..30 {
            letters.append(&[letter(index, &[7; 20_000])]).unwrap();
        }
        assert!(!files(&disk).contains(&first), "newer letters needed its room");
        assert_eq!((letters.unreadable_files(), letters.take_uncounted()), (0, 1));
    }
}

#[test]
fn a_store_whose_state_is_damaged_loses_no_letter() {
    let disk = FaultyDisk::new(1);
    let mut letters = open(&disk, 1 << 20);
    letters.append(&[letter(0, b"payload")]).unwrap();
    let state = directory_of(Path::new(LOG), DELIVERY).join("state.cursor");
    disk.put(&state, &vec![0xee; 1 << 16]);
    assert_eq!(read(&disk, 0).len(), 1);
    let disk = disk.kill_process();
    assert_eq!(open(&disk, 1 << 20).append(&[letter(1, b"payload")]).unwrap(), 1);
    assert_eq!(read(&disk, 0).len(), 2);
}

#[test]
fn an_append_is_one_sync_however_many_letters() {
    let disk = FaultyDisk::new(1);
    let mut letters = open(&disk, 1 << 20);
    letters.append(&[letter(0, b"payload")]).unwrap();
    disk.reset_counts();
    letters.append(&(1..50).map(|index| letter(index, b"payload")).collect::<Vec<_>>()).unwrap();
    assert_eq!(disk.counts().of(Operation::SyncData), 1);
    assert_eq!(disk.counts().total(), 3, "a write, a sync, and a look at the length");
}

#[test]
fn a_long_reason_is_cut() {
    let disk = FaultyDisk::new(1);
    let mut letters = open(&disk, 1 << 20);
    let mut long = letter(0, b"payload");
    long.refusal.reason = "ü".repeat(5000);
    letters.append(&[long]).unwrap();
    assert_eq!(read(&disk, 0)[0].1.reason, "ü".repeat(REASON_LIMIT_BYTES / 2));
}

/// The store's segments, in order.
fn files(disk: &FaultyDisk) -> Vec<PathBuf> {
    let paths = disk.contents().into_iter().map(|(path, _)| path);
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "seg")).collect()
}

/// A disk that refuses to read a file.
fn refuse_reads(disk: &FaultyDisk, path: PathBuf) {
    disk.set_fault(move |call| {
        (call.operation == Operation::Read && *call.path == path).then(input_output)
    });
}

/// Scenario: the disk refuses to read the oldest letters, while newer ones come and after a start.
/// Guarantee: the newer ones are stored. The old ones make room when it is their turn and not
/// before, and are counted if their number is known.
#[test]
fn letters_that_cannot_be_read_do_not_hold_up_newer_ones() {
    // Four letters fit into a segment, and three segments into the store.
    let (limit_bytes, payload) = (200 << 10, vec![1; 10_000]);
    for (restarts, replays) in [(false, false), (false, true), (true, false)] {
        let disk = FaultyDisk::new(1);
        let mut letters = open(&disk, limit_bytes);
        for index in 0..9 {
            letters.append(&[letter(index, &payload)]).unwrap();
        }
        if replays {
            letters.remove_below(1).unwrap();
        }
        refuse_reads(&disk, files(&disk)[0].clone());
        if restarts {
            drop(letters);
            letters = open(&disk, limit_bytes);
        }
        let oldest = files(&disk)[0].clone();
        assert_eq!(letters.append(&[letter(9, &payload)]).unwrap(), 9);
        assert_eq!(files(&disk)[0], oldest, "there is room");
        for index in 10..40 {
            assert_eq!(letters.append(&[letter(index, &payload)]).unwrap(), index);
        }
        let left = letters.letters();
        assert!((5..=12).contains(&left), "{left}");
        let replayed = u64::from(replays);
        let uncounted = if restarts { 4 } else { 3 * replayed };
        assert_eq!(letters.dropped().frames, 40 - left - uncounted - replayed);
        assert_eq!(letters.take_uncounted(), u64::from(uncounted > 0));
        assert_eq!(letters.take_uncounted(), 0);
    }
}

/// Scenario: the disk refuses to read the newest letters at a start, and has recovered at the next.
/// Guarantee: they are all there, and no number is given twice.
#[test]
fn a_start_that_cannot_read_letters_keeps_them() {
    let disk = FaultyDisk::new(1);
    let mut letters = open(&disk, 1 << 20);
    for index in 0..5 {
        letters.append(&[letter(index, b"payload")]).unwrap();
    }
    let disk = disk.kill_process();
    refuse_reads(&disk, files(&disk)[0].clone());
    let mut letters = open(&disk, 1 << 20);
    letters.append(&[letter(5, b"payload")]).unwrap();
    disk.clear_fault();
    let disk = disk.kill_process();
    assert_eq!(open(&disk, 1 << 20).letters(), 6);
    let read = read(&disk, 0);
    assert_eq!(read.len(), 6);
    assert!(read.windows(2).all(|pair| pair[0].0.offset < pair[1].0.offset));
}

/// Scenario: all letters were replayed, and the disk refuses the slot that says so, for a moment or
/// for good. Guarantee: the store does not open as if no letter had been removed, and newer letters
/// stay.
#[test]
fn no_number_is_given_twice_when_a_slot_of_the_state_cannot_be_read() {
    for is_for_good in [false, true] {
        let disk = FaultyDisk::new(1);
        let mut letters = open(&disk, 1 << 20);
        (0..8).for_each(|index| assert!(letters.append(&[letter(index, b"payload")]).is_ok()));
        letters.remove_below(u64::MAX).unwrap();
        assert!(files(&disk).is_empty());
        let disk = disk.kill_process();
        // The state was written once since it was created: the second slot is the newer one.
        disk.set_unreadable("state.cursor", SLOT_LEN_BYTES..SLOT_LEN_BYTES + 1);
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let directory = directory_of(Path::new(LOG), DELIVERY);
        assert!(DeadLetterScan::open(shared.clone(), &directory, 0).is_err());
        let opened = DeadLetters::open(shared.clone(), Path::new(LOG), DELIVERY, 1 << 20);
        assert!(matches!(opened, Err(FileError::Io { .. })));
        if is_for_good {
            DeadLetters::mend_state(&disk, Path::new(LOG), DELIVERY).unwrap();
        }
        // A rewritten file is in another place of the disk.
        disk.clear_fault();
        let mut letters = open(&disk, 1 << 20);
        (0..5).for_each(|index| assert!(letters.append(&[letter(index, b"payload")]).is_ok()));
        let disk = disk.kill_process();
        disk.clear_fault();
        assert_eq!(open(&disk, 1 << 20).letters(), 5);
        assert_eq!(read(&disk, 0).len(), 5);
    }
}

/// Scenario: the disk refuses a write or a sync, other letters follow, and the power fails before
/// the rest of the failed append is cut for good. Guarantee: no two letters have one number.
#[test]
fn a_letter_that_failed_shares_its_number_with_no_other() {
    let mut came_back = 0;
    for seed in 0..200 {
        let disk = FaultyDisk::new(seed);
        let mut letters = open(&disk, 1 << 20);
        letters.append(&[letter(0, b"first")]).unwrap();
        let operation = if seed % 2 == 0 { Operation::SyncData } else { Operation::Linked };
        disk.trouble(Trouble::new(&[operation], Errno::IO));
        assert!(letters.append(&[letter(1, b"failed"), letter(2, b"failed")]).is_err());
        disk.clear_fault();
        letters.append(&[letter(3, b"second"), letter(4, b"third")]).unwrap();
        let read = read(&disk.cut_power(Unsynced::Mixed), 0);
        let numbers: BTreeSet<_> = read.iter().map(|(letter, _)| letter.offset).collect();
        assert_eq!(numbers.len(), read.len(), "seed {seed}");
        came_back += usize::from(read.len() > 3);
    }
    assert!(came_back > 0, "the test is about failed letters that come back");
}

/// Scenario: a disk refuses to sync for long. Guarantee: failed appends leave no file behind.
#[test]
fn tries_that_fail_leave_nothing_behind() {
    let disk = FaultyDisk::new(1);
    let mut letters = open(&disk, 1 << 20);
    letters.append(&[letter(0, b"first")]).unwrap();
    for _ in 0..10 {
        for operation in [Operation::SyncData, Operation::Write] {
            disk.fail_operation(operation, input_output);
            assert!(letters.append(&[letter(1, b"second"), letter(2, b"third")]).is_err());
        }
    }
    assert_eq!(files(&disk).len(), 1);
    // If the file cannot be removed either, the next start removes it.
    disk.set_fault(|call| {
        let fails = [Operation::SyncData, Operation::RemoveFile].contains(&call.operation);
        fails.then(input_output)
    });
    assert!(letters.append(&[letter(1, b"second")]).is_err());
    assert_eq!((files(&disk).len(), letters.letters()), (2, 1));
    disk.clear_fault();
    let disk = disk.kill_process();
    let mut letters = open(&disk, 1 << 20);
    assert_eq!(files(&disk).len(), 1);
    assert_eq!(letters.append(&[letter(1, b"second"), letter(2, b"third")]).unwrap(), 1);
    assert_eq!((letters.range(), letters.letters()), ((0, 3), 3));
    assert_eq!(files(&disk).len(), 2);
    let disk = disk.cut_power(Unsynced::Mixed);
    assert_eq!(
        read(&disk, 0).iter().map(|(letter, _)| letter.offset).collect::<Vec<_>>(),
        [0, 1, 2]
    );
}

/// Scenario: the oldest file cannot be removed, or it was removed although the disk said no.
/// Guarantee: newer letters are stored and counted, the store opens, and the file goes when it can.
/// Appends fail when such files take as much space as the limit.
#[test]
fn an_old_file_that_cannot_be_removed_does_not_hold_up_newer_letters() {
    // Four letters fit into a segment, and three segments into the store.
    let (limit_bytes, payload) = (200 << 10, vec![1; 10_000]);
    for is_removed in [false, true] {
        let disk = FaultyDisk::new(1);
        let mut letters = open(&disk, limit_bytes);
        let append = |letters: &mut DeadLetters, index| letters.append(&[letter(index, &payload)]);
        assert_eq!(append(&mut letters, 0).unwrap(), 0);
        let oldest = files(&disk)[0].clone();
        let refused = oldest.clone();
        disk.set_fault(move |call| {
            (call.operation == Operation::RemoveFile && *call.path == refused).then(input_output)
        });
        for index in 1..17 {
            assert_eq!(append(&mut letters, index).unwrap(), index);
        }
        assert!(files(&disk).contains(&oldest) && letters.range().0 >= 4);
        if is_removed {
            disk.clear_fault();
            disk.remove_file(&oldest).unwrap();
        } else {
            letters = open(&disk, limit_bytes);
            disk.clear_fault();
        }
        for index in 17..25 {
            assert_eq!(append(&mut letters, index).unwrap(), index);
        }
        assert!(!files(&disk).contains(&oldest) && letters.len_bytes() <= limit_bytes);
        assert_eq!(letters.dropped().frames, letters.range().0);

        disk.fail_operation(Operation::RemoveFile, input_output);
        let stored = (25..100).take_while(|&index| append(&mut letters, index).is_ok()).count();
        assert!((12..30).contains(&stored), "{stored}");
        assert!(letters.len_bytes() <= 2 * limit_bytes + (64 << 10));
        disk.clear_fault();
        append(&mut letters, 25 + stored as u64).unwrap();
        assert!(letters.len_bytes() <= limit_bytes);
    }
}
