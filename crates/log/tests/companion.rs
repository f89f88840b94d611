//! The frames that a start shows to the log's user.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sluice_log::companion::Companion;
use sluice_log::{FileError, Log, Offset, OpenOptions, StoredRecord};
use support::faulty_disk::FaultyDisk;
use support::note::*;

/// Notes what is shown.
#[derive(Default)]
struct Shown(Mutex<Vec<Offset>>);

impl Companion for Shown {
    fn asks_from(&self) -> Offset {
        0
    }

    fn found(&self, record: StoredRecord) {
        self.0.lock().push(record.offset);
    }

    fn opened(&self, _: Offset, errors: Vec<FileError>) {
        assert!(errors.is_empty(), "{errors:?}");
    }

    fn is_changed(&self) -> bool {
        false
    }

    fn text(&self) -> String {
        String::new()
    }

    fn stored(&self, _: Result<(), FileError>) {}
}

/// Scenario: frames are given up by both of their readers, by one, or by none, and stay on disk
/// beside one that both wait for. Guarantee: a start does not show those that were given up: their
/// senders may have been told to come again, as a frame may be given up while it is written.
#[test]
fn a_frame_that_a_reader_gave_up_is_not_shown() {
    let disk = FaultyDisk::new(1);
    let (log, _) = open(&disk);
    let ids = [subscribe(&log, "a"), subscribe(&log, "b")];
    let durable = Durable::default();
    let taken_by = [[false, false], [true, false], [true, true]];
    for value in 0..=taken_by.len() as u64 {
        append(&log, value, 100, &ids, &durable);
    }
    let began = Instant::now();
    while durable.lock().len() <= taken_by.len() {
        assert!(began.elapsed() < PATIENCE, "all are written");
        std::thread::sleep(Duration::from_millis(1));
    }
    for (reader, id) in ids.into_iter().enumerate() {
        for takes in taken_by.map(|it| it[reader]) {
            let (offset, _) = next(&log, id).expect("a frame");
            if takes {
                assert!(log.resolve(id, offset));
            } else {
                assert!(log.give_up(id, offset).is_some());
            }
        }
    }
    log.close(PATIENCE);
    let disk = disk.kill_process();
    let shown = Arc::new(Shown::default());
    let options = OpenOptions { companion: Some(shown.clone()), ..options(&disk) };
    let (_log, _): (Log<Note>, _) = Log::open(options).expect("opens");
    assert_eq!(*shown.0.lock(), [2, 3]);
}
