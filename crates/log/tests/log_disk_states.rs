//! Disks that are full or nearly full, that hang, and whose directories vanish or are not durable.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sluice_log::dead_letters::DeadLetters;
use sluice_log::disk::Disk as _;
use sluice_log::{DiskTrouble, Log, OpenOptions};
use support::faulty_disk::{Answer, FaultyDisk, Operation, Trouble, Unsynced, input_output};
use support::note::*;

#[test]
fn a_full_disk_acknowledges_nothing_says_so_and_goes_on_when_there_is_space() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    let durable = Durable::default();
    // There is room for the cursor's file and two segments.
    disk.set_capacity(Some((64 << 10) * 3 + (32 << 10)));
    for value in 0..200 {
        append(&log, value, 1000, &[id], &durable);
    }
    let is_full = |trouble: DiskTrouble| trouble.out_of_space && trouble.stops_writing;
    wait_until("trouble", || log.trouble().is_some_and(is_full));
    std::thread::sleep(Duration::from_millis(150));
    let durable_now = durable.lock().len();
    assert!(durable_now > 20 && durable_now < 200, "{durable_now}");
    assert!(log.unwritten_bytes() > 0);
    // Reading makes room.
    let mut read = 0;
    wait_until("all delivered and durable", || {
        while let Some((offset, note)) = next(&log, id) {
            assert_eq!(note.value, read);
            read += 1;
            log.resolve(id, offset);
        }
        read == 200
    });
    for value in 200..220 {
        append(&log, value, 1000, &[id], &durable);
    }
    wait_until("durable again", || (200..220).all(|value| durable.lock().contains(&value)));
    wait_until("no trouble", || log.trouble().is_none());
}

#[test]
fn without_inodes_or_file_descriptors_nothing_is_acknowledged_until_there_are_some() {
    for limit in [FaultyDisk::set_file_limit, FaultyDisk::set_open_files_limit] {
        let disk = FaultyDisk::new(1);
        let (log, _) = open(&disk);
        let id = subscribe(&log, "a");
        let durable = Durable::default();
        limit(&disk, Some(disk.open_files()));
        append(&log, 0, 100, &[id], &durable);
        wait_until("trouble", || log.trouble().is_some());
        assert_eq!(durable.lock().len(), 0);
        limit(&disk, None);
        wait_durable(&durable, 1);
        wait_until("no trouble", || log.trouble().is_none());
    }
}

/// Guarantee: a disk that gives no answer is in trouble, as one that answers with errors; nothing
/// is called durable meanwhile, and nothing is lost.
#[test]
fn a_disk_that_hangs_is_in_trouble() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let (id, durable) = (subscribe(&log, "a"), Durable::default());
    append(&log, 0, 100, &[id], &durable);
    wait_durable(&durable, 1);
    assert_eq!(log.trouble(), None);
    disk.set_sync_delay(Duration::from_secs(3));
    append(&log, 1, 100, &[id], &durable);
    wait_until("trouble", || log.trouble().is_some());
    let trouble = log.trouble().expect("it lasts for two seconds more");
    assert!(
        trouble.stops_writing && trouble.reason.contains("no answer to a write"),
        "{trouble:?}"
    );
    assert!(trouble.without_answer >= Duration::from_secs(1), "{trouble:?}");
    assert_eq!(durable.lock().len(), 1);
    disk.set_sync_delay(Duration::ZERO);
    wait_durable(&durable, 2);
    wait_until("no trouble", || log.trouble().is_none());
    assert_eq!(log.stats().failures, 0);
}

/// Scenario: the disk gives no answer to a look that the writer takes at its file after a sync, or
/// at the directory before it makes a new one. Guarantee: the log says that it cannot write.
#[test]
fn a_look_of_the_writer_that_hangs_stops_writing() {
    for operation in [Operation::Linked, Operation::Len, Operation::List] {
        let disk = FaultyDisk::new(1);
        let (log, _) = open(&disk);
        let (id, durable) = (subscribe(&log, "a"), Durable::default());
        append(&log, 0, 100, &[id], &durable);
        wait_durable(&durable, 1);
        let hangs = Trouble::new(&[operation], rustix::io::Errno::IO);
        disk.trouble(Trouble { path_part: "traces".into(), answer: Answer::Hang, ..hangs });
        (1..80).for_each(|value| _ = append(&log, value, 1_000, &[id], &durable));
        wait_until("it cannot write", || log.trouble().is_some_and(|it| it.stops_writing));
        assert!(durable.lock().len() < 80, "{operation:?}");
        disk.clear_fault();
        wait_durable(&durable, 80);
    }
}

/// Scenario: the directory of a log is removed while the log is in use. Guarantee: no frame is
/// called durable that is in a file without a name, and the log goes on in a new directory.
#[test]
fn a_directory_that_was_removed_is_made_anew() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let (id, durable) = (subscribe(&log, "a"), Durable::default());
    append(&log, 0, 100, &[id], &durable);
    wait_durable(&durable, 1);
    disk.remove_tree(Path::new(DIRECTORY));
    for value in 1..20 {
        append(&log, value, 100, &[id], &durable);
    }
    wait_durable(&durable, 20);
    wait_until("no trouble", || log.trouble().is_none());
    let disk = disk.cut_power(Unsynced::Lost);
    let (log, found) = open(&disk);
    assert_eq!((found.cursors, found.lost_cursors.len()), (1, 0));
    assert_eq!(values(&read_all(&log, subscribe(&log, "a"))), (1..20).collect::<Vec<_>>());

    // Not the directory above: it may be a file system that is not mounted.
    disk.remove_tree(Path::new("/log"));
    let id = subscribe(&log, "b");
    append(&log, 20, 100, &[id], &durable);
    wait_until("trouble", || log.trouble().is_some());
    let letters = DeadLetters::open(Arc::new(disk.clone()), Path::new(DIRECTORY), "a", 1 << 20);
    assert!(letters.is_err() && disk.contents().is_empty());
}

/// Scenario: the directory was removed, and the file of a reader, or the list, cannot be written in
/// the new one. Guarantee: no frame is called durable before it is.
#[test]
fn frames_in_a_new_directory_wait_for_all_files_of_readers() {
    for refused in ["b.cursor", "cursors.list"] {
        let disk = FaultyDisk::new(1);
        let (log, _) = open(&disk);
        let ids = ["a", "b"].map(|name| subscribe(&log, name));
        let durable = Durable::default();
        append(&log, 0, 100, &ids, &durable);
        wait_durable(&durable, 1);
        disk.set_fault(move |call| {
            let is_it = call.operation == Operation::Rename && call.path.ends_with(refused);
            is_it.then(input_output)
        });
        disk.remove_tree(Path::new(DIRECTORY));
        for value in 1..20 {
            append(&log, value, 100, &ids, &durable);
        }
        wait_until("trouble", || log.trouble().is_some_and(|it| it.reason.contains(refused)));
        assert_eq!(durable.lock().len(), 1, "{refused}");
        disk.clear_fault();
        wait_durable(&durable, 20);
        let (log, found) = open(&disk.cut_power(Unsynced::Lost));
        assert!(found.lost_cursors.is_empty());
        assert_eq!(read_all(&log, subscribe(&log, "b")).len(), 19, "{refused}");
    }
}

/// Scenario: the file system is unmounted, or another one is in its place. Guarantee: nothing is
/// created on what is there now.
#[test]
fn another_file_system_is_left_alone() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let (id, durable) = (subscribe(&log, "a"), Durable::default());
    append(&log, 0, 100, &[id], &durable);
    wait_durable(&durable, 1);
    disk.set_device(2);
    disk.remove_tree(Path::new(DIRECTORY));
    append(&log, 1, 100, &[id], &durable);
    let says = |trouble: DiskTrouble| trouble.reason.contains("another file system");
    wait_until("trouble", || log.trouble().is_some_and(says));
    assert!(durable.lock().len() == 1 && disk.contents().is_empty());
    disk.set_device(1);
    wait_durable(&durable, 2);
}

/// Scenario: the file system is unmounted for a while and mounted again, while a backlog is read.
/// Guarantee: nothing of it counts as lost; all of it is delivered afterwards.
#[test]
fn what_is_not_mounted_is_not_gone() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "a");
    append_durable(&log, 0..200, 1000, &[id]);
    wait_evicted(&log, 200);
    disk.trouble(Trouble::unmounted());
    assert!(log.read(id).entry().is_none());
    wait_until("trouble", || log.trouble().is_some());
    // Gives the threads time for more.
    std::thread::sleep(Duration::from_millis(300));
    assert!(log.read(id).entry().is_none());
    disk.clear_fault();
    let read = read_all(&log, id);
    assert_eq!(values(&read), (0..200).collect::<Vec<_>>());
    assert_eq!((log.lost_total(id).frames, log.stats().set_aside_files), (0, 0));
    wait_until("no trouble", || log.trouble().is_none());
}

/// Guarantee: directories above that cannot be synced stop nothing, if they are not the log's.
#[test]
fn a_root_that_cannot_be_synced_stops_nothing() {
    let disk = FaultyDisk::new(1);
    disk.set_fault(|call| {
        let is_root = call.operation == Operation::SyncDirectory && call.path == Path::new("/");
        is_root.then(|| std::io::Error::from_raw_os_error(22))
    });
    let (log, _) = open(&disk);
    let (id, durable) = (subscribe(&log, "a"), Durable::default());
    append(&log, 0, 100, &[id], &durable);
    wait_durable(&durable, 1);
}

/// Scenario: the file system is read-only for a moment while a log's directory is new. Guarantee:
/// no frame is called durable before the directory's name is.
#[test]
fn a_name_that_could_not_be_synced_is_synced_later() {
    let disk = FaultyDisk::new(1);
    disk.make_directory(Path::new("/log"));
    let (log, _) = open(&disk);
    let mut is_first = true;
    disk.set_fault(move |call| {
        let is_it = call.operation == Operation::SyncDirectory && call.path == Path::new("/log");
        let read_only = || std::io::ErrorKind::ReadOnlyFilesystem.into();
        (is_it && std::mem::take(&mut is_first)).then(read_only)
    });
    let durable = Durable::default();
    append(&log, 0, 100, &[subscribe(&log, "a")], &durable);
    wait_durable(&durable, 1);
    let disk = disk.cut_power(Unsynced::Lost);
    disk.clear_fault();
    let (log, _) = open(&disk);
    assert_eq!(values(&read_all(&log, subscribe(&log, "a"))), [0]);
}

/// Guarantee: many answers that come late, but come, are no trouble.
#[test]
fn a_slow_disk_does_not_hang() {
    let disk = FaultyDisk::new(1);
    disk.set_sync_delay(Duration::from_millis(30));
    let (log, _) = open(&disk);
    let ids: Vec<_> = (0..60).map(|number| subscribe(&log, &number.to_string())).collect();
    let (durable, mut seen) = (Durable::default(), None);
    append(&log, 0, 100, &ids, &durable);
    wait_until("durable", || {
        seen = seen.take().or_else(|| log.trouble());
        durable.lock().len() == 1
    });
    assert_eq!(seen, None);
}

/// Scenario: the power fails soon after the directory was created. Guarantee: its name is durable
/// before the first frame is, also if an earlier process created it and was killed.
#[test]
fn the_names_of_new_directories_are_durable() {
    let disk = FaultyDisk::new(1);
    for path in ["/log", DIRECTORY, "/log/traces/cursors"] {
        disk.create_directory(Path::new(path)).unwrap();
    }
    let disk = disk.kill_process();
    let (log, _) = open(&disk);
    let (id, durable) = (subscribe(&log, "a"), Durable::default());
    append(&log, 0, 100, &[id], &durable);
    wait_durable(&durable, 1);
    let disk = disk.cut_power(Unsynced::Lost);
    let (log, _) = open(&disk);
    assert_eq!(values(&read_all(&log, subscribe(&log, "a"))), [0]);
}

/// Scenario: the power fails while a start cuts the unused end of the newest segment. Guarantee: no
/// block with durable frames is written again, since a torn one would lose them.
#[test]
fn a_start_writes_no_block_with_durable_frames() {
    for seed in 0..60 {
        let disk = FaultyDisk::new(seed);
        let (log, _) = open(&disk);
        let durable = Durable::default();
        append(&log, 0, 100, &[subscribe(&log, "a")], &durable);
        wait_durable(&durable, 1);
        let disk = disk.kill_process();
        disk.reset_counts();
        disk.set_ignores_syncs(true);
        let keep_interval = Duration::from_secs(3_600);
        let log = Log::<Note>::open(OpenOptions { keep_interval, ..options(&disk) });
        wait_until("cut", || disk.counts().of(Operation::SetLen) == 1);
        let disk = disk.cut_power(Unsynced::Garbage);
        disk.set_ignores_syncs(false);
        drop(log);
        let (log, _) = open(&disk);
        assert_eq!(values(&read_all(&log, subscribe(&log, "a"))), [0], "seed {seed}");
    }
}

/// Scenario: the disk has less free than a segment's length. Guarantee: it is used to its end.
#[test]
fn little_space_is_used_to_its_end() {
    let disk = FaultyDisk::new(1);
    let options = OpenOptions { segment_bytes: 64 << 20, ..options(&disk) };
    let capacity = 6 << 20;
    disk.set_capacity(Some(capacity));
    let (log, _) = Log::<Note>::open(options).unwrap();
    let (id, durable) = (subscribe(&log, "a"), Durable::default());
    for value in 0..80 {
        append(&log, value, 100_000, &[id], &durable);
        wait_until("durable or full", || {
            durable.lock().len() as u64 == value + 1 || log.trouble().is_some()
        });
    }
    wait_until("full", || log.trouble().is_some_and(|trouble| trouble.out_of_space));
    let stored = durable.lock().len() as u64 * 100_000;
    assert!(stored > capacity * 3 / 4, "{stored}");
    disk.set_capacity(None);
    wait_durable(&durable, 80);
}

/// Scenario: the directory is removed with a backlog for a reader whose backend is dead. Guarantee:
/// its bytes can be given up, so that they do not count as used for good; the reader says how much
/// it has lost.
#[test]
fn a_backlog_that_was_removed_can_be_given_up() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let id = subscribe(&log, "dead");
    append_durable(&log, 0..500, 1_000, &[id]);
    wait_evicted(&log, 500);
    disk.remove_tree(Path::new(DIRECTORY));
    append_durable(&log, 500..501, 1_000, &[id]);
    wait_until("given up", || {
        log.shed_segments(1_000_000);
        log.needed_disk_bytes() < 100_000
    });
    let read = read_all(&log, id);
    assert_eq!(values(&read), [500]);
    assert_eq!(log.lost_total(id).frames, 500);
}
