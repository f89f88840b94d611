//! A small record, and logs of it on a disk that a test can make fail.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sluice_log::{
    Charge, CursorId, FileError, Log, Next, Offset, OpenOptions, Record, RecordFacts, Recovered,
    Sheds, StoredRecord, Subscription, Undecodable,
};

use super::faulty_disk::FaultyDisk;

pub const DIRECTORY: &str = "/log/traces";
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Notes from this value on cannot be decoded as notes, but as [`StoredRecord`]s.
pub const OF_NEWER_RELEASE: u64 = 1 << 40;

/// Values of the notes that the log called durable.
pub type Durable = Arc<Mutex<BTreeSet<u64>>>;

#[derive(Debug)]
pub struct Note {
    pub value: u64,
    payload: Vec<u8>,
    durable: Durable,
}

impl Note {
    pub fn new(value: u64, len: usize, durable: &Durable) -> Self {
        let byte = value as u8;
        Note { value, payload: vec![byte; len], durable: durable.clone() }
    }

    pub fn charge(&self) -> Charge {
        Charge { bytes: self.payload.len() as u64 + 100, items: 1 + self.value % 3 }
    }
}

impl Record for Note {
    fn facts(&self) -> RecordFacts {
        RecordFacts {
            received_unix_ns: 1,
            encoding: 2,
            flags: 3,
            uncompressed_len_bytes: self.payload.len() as u32,
        }
    }

    fn encode_metadata(&self, output: &mut Vec<u8>) {
        output.extend_from_slice(&self.value.to_le_bytes());
    }

    fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn decode(stored: StoredRecord) -> Result<Self, Undecodable> {
        let Ok(value) = stored.metadata[..].try_into().map(u64::from_le_bytes) else {
            return Err(Undecodable::Damaged);
        };
        if value >= OF_NEWER_RELEASE {
            return Err(Undecodable::OfNewerRelease);
        }
        let note = Note::new(value, stored.payload.len(), &Durable::default());
        let is_whole = note.payload == stored.payload
            && note.facts() == stored.facts
            && note.charge() == stored.charge;
        if is_whole { Ok(note) } else { Err(Undecodable::Damaged) }
    }

    fn durable(&self) {
        assert!(self.durable.lock().insert(self.value), "told twice");
    }
}

pub fn options(disk: &FaultyDisk) -> OpenOptions {
    OpenOptions {
        segment_bytes: 64 << 10,
        memory_limit_bytes: 0,
        flush_after: Duration::ZERO,
        keep_interval: Duration::from_millis(5),
        ..OpenOptions::new(Arc::new(disk.clone()), DIRECTORY, "traces")
    }
}

pub fn open(disk: &FaultyDisk) -> (Log<Note>, Recovered) {
    Log::open(options(disk)).expect("the log opens")
}

pub fn try_open(disk: &FaultyDisk) -> Result<(Log<Note>, Recovered), FileError> {
    Log::open(options(disk))
}

/// A reader that may give up everything, also if it comes back.
pub fn subscribe(log: &Log<Note>, name: &str) -> CursorId {
    let id = log.subscribe(Subscription::new(name));
    log.gauges(id).allow(Sheds::Everything);
    id
}

pub fn readers(ids: &[CursorId]) -> Arc<[CursorId]> {
    ids.into()
}

pub fn append(
    log: &Log<Note>,
    value: u64,
    len: usize,
    ids: &[CursorId],
    durable: &Durable,
) -> Offset {
    let note = Note::new(value, len, durable);
    let charge = note.charge();
    log.append(Arc::new(note), charge, &readers(ids)).offset
}

/// The next entry, waiting for the disk. None if there is none.
pub fn next(log: &Log<Note>, id: CursorId) -> Option<(Offset, Arc<Note>)> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match log.read(id) {
            Next::Entry(offset, entry) => return Some((offset, entry)),
            Next::Empty | Next::Full => return None,
            Next::Loading => std::thread::sleep(Duration::from_micros(50)),
        }
        assert!(
            Instant::now() < deadline,
            "nothing comes from the disk: {:?} {:?}",
            log.stats(),
            log.trouble()
        );
    }
}

pub fn read_all(log: &Log<Note>, id: CursorId) -> Vec<(Offset, u64)> {
    std::iter::from_fn(|| next(log, id)).map(|(offset, note)| (offset, note.value)).collect()
}

/// Opens the log, delivers all to `a`, and ends. Returns the values.
pub fn deliver_all(disk: &FaultyDisk) -> Vec<u64> {
    let (log, _) = open(disk);
    let id = subscribe(&log, "a");
    let read = read_all(&log, id);
    read.iter().for_each(|(offset, _)| assert!(log.resolve(id, *offset)));
    wait_until("all is delivered", || log.stats().segments == 0);
    log.close(PATIENCE);
    values(&read)
}

pub fn values(read: &[(Offset, u64)]) -> Vec<u64> {
    read.iter().map(|(_, value)| *value).collect()
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never came to be: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

pub fn wait_durable(durable: &Durable, count: usize) {
    wait_until("all durable", || durable.lock().len() >= count);
}

/// Appends notes of these values, of one length, and waits until all are durable.
pub fn append_durable(log: &Log<Note>, values: Range<u64>, len: usize, ids: &[CursorId]) {
    let durable = Durable::default();
    values.clone().for_each(|value| _ = append(log, value, len, ids, &durable));
    wait_durable(&durable, values.count());
}

/// As [`append_durable`], each in a block of its own: where frames lie does not depend on how many
/// of them a busy machine happens to write at once.
pub fn append_one_by_one(log: &Log<Note>, values: Range<u64>, len: usize, ids: &[CursorId]) {
    values.for_each(|value| append_durable(log, value..value + 1, len, ids));
}

/// Waits until all frames have left memory, a moment after they were durable.
pub fn wait_evicted(log: &Log<Note>, frames: u64) {
    wait_until("all are let go from memory", || log.stats().frames_evicted == frames);
}

/// A disk with the files of six processes, ten frames in each: those of the first process for the
/// reader `dead`, the others, with the values 10 to 59, for `keeper`.
pub fn disk_with_small_files() -> FaultyDisk {
    let mut disk = FaultyDisk::new(3);
    for process in 0..6 {
        let keep_interval = Duration::from_secs(3_600);
        let options = OpenOptions { keep_interval, ..large_segments(&disk) };
        let log: Log<Note> = Log::open(options).expect("the log opens").0;
        let id = subscribe(&log, if process == 0 { "dead" } else { "keeper" });
        append_durable(&log, process * 10..process * 10 + 10, 1_000, &[id]);
        log.close(PATIENCE);
        disk = disk.kill_process();
    }
    disk
}

/// Options under which the files of [`disk_with_small_files`] are rewritten as one.
pub fn large_segments(disk: &FaultyDisk) -> OpenOptions {
    OpenOptions { segment_bytes: 1 << 20, ..options(disk) }
}

/// Of every 50 frames one is for a dead reader. The others are resolved, except for the first 49.
pub fn append_sparse(log: &Log<Note>, rounds: Range<u64>) {
    let (dead, alive) = (subscribe(log, "dead"), subscribe(log, "alive"));
    let durable = Durable::default();
    for (round, count) in rounds.zip(1..) {
        append(log, round * 50, 100, &[dead], &durable);
        for index in 1..50 {
            append(log, round * 50 + index, 1_000, &[alive], &durable);
        }
        wait_durable(&durable, count * 50);
        if count > 1 {
            for (offset, _) in read_all(log, alive) {
                log.resolve(alive, offset);
            }
        }
    }
}

/// Whether a file with this in its path is there.
pub fn is_in(disk: &FaultyDisk, part_of_path: &str) -> bool {
    disk.contents().iter().any(|(path, _)| path.to_string_lossy().contains(part_of_path))
}
