//! Another process removes, moves or cuts files while the log writes to them: nothing is called
//! durable that a start would not find, and it is said.

mod support;

use std::path::{Path, PathBuf};

use sluice_log::disk::{Access, Disk};
use support::faulty_disk::FaultyDisk;
use support::note::*;

const AWAY: &str = "/away";

fn segments(disk: &FaultyDisk) -> Vec<PathBuf> {
    let paths = disk.contents().into_iter().map(|(path, _)| path);
    paths
        .filter(|path| path.starts_with(DIRECTORY) && path.to_string_lossy().ends_with(".seg"))
        .collect()
}

fn move_away(disk: &FaultyDisk, path: &Path) {
    let name = path.file_name().expect("a name");
    disk.rename(path, &Path::new(AWAY).join(name)).expect("moved");
}

type Disturbance = (&'static str, fn(&FaultyDisk));

const DISTURBANCES: [Disturbance; 4] = [
    ("moved", |disk| move_away(disk, &segments(disk)[0])),
    ("replaced", |disk| {
        move_away(disk, &segments(disk)[0]);
        disk.put(&Path::new(DIRECTORY).join("0000000000000000.seg"), &[7; 100_000]);
    }),
    ("cut", |disk| {
        let file = disk.open(&segments(disk)[0], Access::ReadWrite).expect("it is there");
        file.set_len(0).expect("cut");
    }),
    ("with the directory", |disk| {
        let of_log = disk.contents().into_iter().map(|(path, _)| path);
        of_log.filter(|path| path.starts_with(DIRECTORY)).for_each(|path| move_away(disk, &path));
        disk.remove_tree(Path::new(DIRECTORY));
    }),
];

/// Guarantee: what is called durable afterwards is there at the next start, and the log says what
/// happened, once.
#[test]
fn nothing_is_called_durable_in_a_file_that_a_start_does_not_find() {
    for (what, disturb) in DISTURBANCES {
        let disk = FaultyDisk::new(1);
        disk.make_directory(Path::new(AWAY));
        let (log, _) = open(&disk);
        let id = subscribe(&log, "a");
        append_durable(&log, 0..5, 1_000, &[id]);
        assert_eq!(segments(&disk).len(), 1, "{what}");
        disturb(&disk);
        append_durable(&log, 5..10, 1_000, &[id]);
        assert_eq!(log.stats().disturbed_files, 1, "{what}");
        let said = log.take_disturbances();
        assert!(said.len() == 1 && said[0].contains("0000000000000000.seg"), "{what}: {said:?}");
        assert!(log.take_disturbances().is_empty() && log.trouble().is_none(), "{what}");
        append_durable(&log, 10..15, 1_000, &[id]);
        let (log, _) = open(&disk.kill_process());
        let read = values(&read_all(&log, subscribe(&log, "a")));
        let expected: Vec<u64> = (5..15).collect();
        assert!(read.ends_with(&expected), "{what}: {read:?}");
    }
}
