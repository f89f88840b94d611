//! Senders, readers and threads of the log run at once until the power is cut. Every reader gets
//! everything in order meanwhile, and afterwards all durable frames that it had not resolved.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use sluice_log::{
    Charge, CursorId, Log, Next, OpenOptions, Record, RecordFacts, StoredRecord, Subscription,
};
use support::faulty_disk::{FaultyDisk, Operation, Unsynced, input_output};
use support::note::*;

const READERS: usize = 3;

/// Values that a reader thread resolved, recorded before it did.
type Resolved = Arc<Mutex<BTreeSet<u64>>>;

struct Life {
    log: Arc<Log<Note>>,
    ids: [CursorId; READERS],
    ends: Arc<AtomicBool>,
    appended: Arc<Mutex<BTreeMap<u64, u64>>>,
    resolved: [Resolved; READERS],
    durable: Durable,
}

fn send(life: &Life, values: &AtomicU64, seed: u64) {
    let mut random = Rng::with_seed(seed);
    while !life.ends.load(Ordering::SeqCst) {
        let value = values.fetch_add(1, Ordering::SeqCst);
        // Under one lock, so that the check knows the value before it is durable.
        let mut appended = life.appended.lock();
        let offset = append(&life.log, value, random.usize(..2000), &life.ids, &life.durable);
        assert!(appended.insert(offset, value).is_none());
        drop(appended);
        if random.u8(..10) == 0 {
            std::thread::sleep(Duration::from_micros(random.u64(..300)));
        }
        if life.log.stored_bytes() > 10 << 20 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Reader 0 keeps pace, 1 is slow, 2 rewinds now and then. All leave some frames unresolved.
fn receive(life: &Life, reader: usize, seed: u64) {
    let (log, id) = (&life.log, life.ids[reader]);
    let mut random = Rng::with_seed(seed);
    let mut last = None;
    while !life.ends.load(Ordering::SeqCst) {
        match log.read(id) {
            Next::Entry(offset, note) => {
                assert!(
                    last.is_none_or(|last| last < offset),
                    "reader {reader}: {offset} after {last:?}"
                );
                last = Some(offset);
                assert!(
                    !life.resolved[reader].lock().contains(&note.value),
                    "resolved frames do not come again"
                );
                if random.u8(..20) > 0 {
                    life.resolved[reader].lock().insert(note.value);
                    assert!(log.resolve(id, offset));
                }
            }
            Next::Loading | Next::Empty => std::thread::sleep(Duration::from_micros(50)),
            Next::Full => {
                log.rewind(id);
                last = None;
            }
        }
        if reader == 1 && random.u8(..4) == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
        if reader == 2 && random.u16(..2000) == 0 {
            log.rewind(id);
            last = None;
        }
    }
}

fn live_until_the_power_goes(seed: u64) {
    let mut random = Rng::with_seed(seed);
    let disk = FaultyDisk::new(seed);
    let flush_after = Duration::from_millis(if seed.is_multiple_of(2) { 0 } else { 2 });
    let options = OpenOptions {
        flush_after,
        memory_limit_bytes: 100_000,
        read_ahead_bytes: 20_000,
        ..options(&disk)
    };
    let log = Arc::new(Log::open(options.clone()).unwrap().0);
    let subscribe = |name: &str| {
        log.subscribe(Subscription { lease_limit_bytes: 300_000, ..Subscription::new(name) })
    };
    let life = Life {
        ids: [subscribe("0"), subscribe("1"), subscribe("2")],
        log: log.clone(),
        ends: Arc::default(),
        appended: Arc::default(),
        resolved: Default::default(),
        durable: Durable::default(),
    };
    let values = AtomicU64::new(0);
    let disk = std::thread::scope(|scope| {
        for sender in 0..2 {
            let (life, values) = (&life, &values);
            scope.spawn(move || send(life, values, seed + sender));
        }
        for reader in 0..READERS {
            let life = &life;
            scope.spawn(move || receive(life, reader, seed + reader as u64));
        }
        std::thread::sleep(Duration::from_millis(100));
        let failing =
            [Operation::SyncData, Operation::Write, Operation::Rename, Operation::Allocate];
        disk.fail_operation(failing[random.usize(..failing.len())], input_output);
        std::thread::sleep(Duration::from_millis(20));
        disk.clear_fault();
        wait_until("frames are durable and evicted", || {
            life.durable.lock().len() > 100 && life.log.stats().frames_evicted > 10
        });
        std::thread::sleep(Duration::from_millis(random.u64(100..300)));
        let disk =
            disk.cut_power([Unsynced::Lost, Unsynced::Mixed, Unsynced::Garbage][random.usize(..3)]);
        life.ends.store(true, Ordering::SeqCst);
        disk
    });
    let Life { log: last, appended, resolved, durable, .. } = life;
    drop((last, log));

    let (log, _) = Log::<Note>::open(OpenOptions { disk: Arc::new(disk), ..options }).unwrap();
    let (appended, durable) = (appended.lock(), durable.lock());
    for (reader, resolved) in resolved.iter().enumerate() {
        let id = support::note::subscribe(&log, &reader.to_string());
        let read = read_all(&log, id);
        assert!(read.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(read.iter().all(|(offset, value)| appended.get(offset) == Some(value)));
        let read: BTreeSet<u64> = values_of(&read);
        let resolved = resolved.lock();
        let lost: Vec<_> = durable
            .iter()
            .filter(|value| !resolved.contains(value) && !read.contains(value))
            .collect();
        assert!(lost.is_empty(), "seed {seed}, reader {reader} lost {lost:?}");
        assert_eq!(log.held(id).frames, read.len() as u64);
    }
}

fn values_of(read: &[(u64, u64)]) -> BTreeSet<u64> {
    read.iter().map(|(_, value)| *value).collect()
}

#[test]
fn all_at_once_until_the_power_goes() {
    for seed in 0..12 {
        live_until_the_power_goes(seed);
    }
}

/// A record that panics.
struct Fatal;

impl Record for Fatal {
    fn facts(&self) -> RecordFacts {
        RecordFacts::default()
    }

    fn encode_metadata(&self, _output: &mut Vec<u8>) {}

    fn payload(&self) -> &[u8] {
        &[]
    }

    fn decode(_stored: StoredRecord) -> Result<Self, sluice_log::Undecodable> {
        Ok(Fatal)
    }

    fn durable(&self) {
        panic!("this is what the test is about");
    }
}

#[test]
fn a_thread_that_panics_does_not_go_unnoticed() {
    let disk = FaultyDisk::new(1);
    let (log, _) = Log::<Fatal>::open(options(&disk)).unwrap();
    let id = log.subscribe(Subscription::new("a"));
    log.append(Arc::new(Fatal), Charge { bytes: 1, items: 1 }, &readers(&[id]));
    wait_until("trouble", || log.trouble().is_some());
    log.close(Duration::from_secs(3600));
}
