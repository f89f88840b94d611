//! Dead letters of a delivery: data that it has given up, with the reason. The newest are kept,
//! bounded in bytes; on disk if there is a directory.

mod patience;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::Mutex;
use patience::Patience;
use sluice_flow::Payload;
pub(crate) use sluice_log::dead_letters::DeadLetter;
use sluice_log::dead_letters::{DeadLetterScan, DeadLetters as Store, FoundLetters, directory_of};
use sluice_log::disk::Disk;
use sluice_log::format::Refusal;
use sluice_log::{FileError, Record, RecordFacts};

use crate::entry::Entry;
use crate::stored;

/// A frame or a part of one, as it is stored. `prepared`: fingerprints of the steps that were run.
pub(crate) fn dead_letter(
    entry: &Entry,
    prepared: &[u64],
    payload: Payload,
    items: u32,
    reason: String,
) -> DeadLetter {
    let mut metadata = Vec::new();
    let sender = &entry.frame.metadata;
    stored::encode(&entry.origin.receiver, prepared, sender, &mut metadata);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let refusal = Refusal { refused_unix_ns: now.as_nanos() as u64, code: 0, reason };
    let facts = RecordFacts {
        encoding: stored::encoding_code(payload.encoding),
        uncompressed_len_bytes: payload.uncompressed_len_bytes as u32,
        ..entry.facts()
    };
    DeadLetter { refusal, facts, items: u64::from(items), metadata, payload: payload.bytes }
}

/// Bytes of memory that a letter takes.
fn memory_bytes(letter: &DeadLetter) -> u64 {
    let DeadLetter { refusal, metadata, payload, .. } = letter;
    let parts_bytes = refusal.reason.len() + metadata.len() + payload.len();
    (size_of::<DeadLetter>() + parts_bytes) as u64
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeadLetterTotals {
    pub letters: u64,
    pub bytes: u64,
    /// Removed to make room, or larger than all letters may be.
    pub evicted_items: u64,
    /// Files of which something is not counted, because it cannot be read.
    pub unreadable_files: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeadLetterSummary {
    pub at: SystemTime,
    pub items: u64,
    pub reason: String,
}

/// A bounded list: the oldest are evicted and counted.
pub(crate) enum DeadLetters {
    InMemory(Mutex<InMemory>),
    OnDisk(Box<OnDisk>),
}

impl DeadLetters {
    pub(crate) fn in_memory(limit_bytes: u64) -> Self {
        DeadLetters::InMemory(Mutex::new(InMemory { limit_bytes, ..InMemory::default() }))
    }

    /// Stores letters, on disk durably, which blocks. After an error some may be stored.
    pub(crate) fn store(&self, letters: &[DeadLetter]) -> Result<(), FileError> {
        match self {
            DeadLetters::InMemory(list) => letters.iter().for_each(|it| list.lock().push(it)),
            DeadLetters::OnDisk(store) => store.append(letters)?,
        }
        Ok(())
    }

    /// Storing takes time, and can fail.
    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(self, DeadLetters::OnDisk(_))
    }

    /// In memory the oldest are evicted at once, on disk with the next letter.
    pub(crate) fn set_limit(&self, limit_bytes: u64) {
        match self {
            DeadLetters::InMemory(list) => {
                let mut list = list.lock();
                list.limit_bytes = limit_bytes;
                list.keep_within_limit();
            }
            DeadLetters::OnDisk(store) => store.limit_bytes.store(limit_bytes, Ordering::Relaxed),
        }
    }

    /// The most that all letters may take.
    pub(crate) fn limit_bytes(&self) -> u64 {
        match self {
            DeadLetters::InMemory(list) => list.lock().limit_bytes,
            DeadLetters::OnDisk(store) => store.limit_bytes.load(Ordering::Relaxed),
        }
    }

    /// False for a letter that is larger than all letters may be: it is counted and not kept.
    pub(crate) fn takes(&self, letter: &DeadLetter) -> bool {
        let letter_bytes = match self {
            DeadLetters::InMemory(_) => memory_bytes(letter),
            DeadLetters::OnDisk(_) => Store::bytes_for(letter),
        };
        letter_bytes <= self.limit_bytes()
    }

    pub(crate) fn totals(&self) -> DeadLetterTotals {
        match self {
            DeadLetters::InMemory(list) => list.lock().totals,
            DeadLetters::OnDisk(store) => *store.totals.lock(),
        }
    }

    /// The items of all letters, and the newest `count` letters, newest first. Reads all of them,
    /// which on disk is not for the runtime's threads.
    pub(crate) fn summaries(&self, count: usize) -> (u64, VecDeque<DeadLetterSummary>) {
        match self {
            DeadLetters::InMemory(list) => list.lock().summaries(count),
            DeadLetters::OnDisk(store) => store.summaries(count),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct InMemory {
    letters: VecDeque<DeadLetter>,
    limit_bytes: u64,
    /// `bytes`: the memory that the letters take.
    totals: DeadLetterTotals,
}

impl InMemory {
    fn push(&mut self, letter: &DeadLetter) {
        let memory_bytes = memory_bytes(letter);
        if memory_bytes > self.limit_bytes {
            self.totals.evicted_items += letter.items;
            return;
        }
        // The payload may be a small part of a large request, all of which it would keep in memory.
        let payload = Bytes::copy_from_slice(&letter.payload);
        self.letters.push_back(DeadLetter { payload, ..letter.clone() });
        self.totals.letters += 1;
        self.totals.bytes += memory_bytes;
        self.keep_within_limit();
    }

    fn keep_within_limit(&mut self) {
        while self.totals.bytes > self.limit_bytes {
            let Some(evicted) = self.letters.pop_front() else { break };
            self.totals.letters -= 1;
            self.totals.bytes -= memory_bytes(&evicted);
            self.totals.evicted_items += evicted.items;
        }
    }

    fn summaries(&self, count: usize) -> (u64, VecDeque<DeadLetterSummary>) {
        let items = self.letters.iter().map(|letter| letter.items).sum();
        let newest = self.letters.iter().rev().take(count);
        let summary = |letter: &DeadLetter| summary(letter.items, &letter.refusal);
        (items, newest.map(summary).collect())
    }
}

fn summary(items: u64, refusal: &Refusal) -> DeadLetterSummary {
    let at = UNIX_EPOCH + Duration::from_nanos(refusal.refused_unix_ns);
    DeadLetterSummary { at, items, reason: refusal.reason.clone() }
}

/// The store on disk. It is opened with the first letter: without letters nothing is written, and a
/// store that cannot be opened delays no other delivery.
pub(crate) struct OnDisk {
    disk: Arc<dyn Disk>,
    log_directory: PathBuf,
    delivery: String,
    limit_bytes: AtomicU64,
    /// Locked while letters are written.
    store: Mutex<Option<Store>>,
    /// Of opening the store.
    patience: Mutex<Patience>,
    totals: Mutex<DeadLetterTotals>,
}

impl OnDisk {
    /// Opens the letters of earlier runs, if there are any. Blocks. If the disk refuses, the next
    /// letter tries again; letters of a newer release are an error.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        log_directory: PathBuf,
        delivery: String,
        limit_bytes: u64,
    ) -> Result<Self, FileError> {
        let letters = OnDisk {
            disk,
            log_directory,
            delivery,
            limit_bytes: AtomicU64::new(limit_bytes),
            store: Mutex::new(None),
            patience: Mutex::default(),
            totals: Mutex::default(),
        };
        if letters.disk.list(&directory_of(&letters.log_directory, &letters.delivery)).is_ok() {
            match letters.open_store() {
                Ok(store) => {
                    letters.report(store.found());
                    letters.note_totals(&store);
                    *letters.store.lock() = Some(store);
                }
                Err(error @ FileError::NewerVersion { .. }) => return Err(error),
                Err(error) => tracing::error!(
                    delivery = letters.delivery, problem = %error,
                    "dead letters of earlier runs cannot be opened and are not counted; this is \
                     tried again with the next one"
                ),
            }
        }
        Ok(letters)
    }

    /// Says what is missing of earlier runs.
    fn report(&self, found: &FoundLetters) {
        if found.is_state_lost {
            tracing::error!(
                delivery = self.delivery,
                "the state of dead letters is gone or damaged and is written anew: letters that \
                 were replayed or removed may be back"
            );
        }
        for problem in &found.unreadable {
            tracing::error!(
                delivery = self.delivery, %problem,
                "dead letters of earlier runs cannot be read and are not counted: their file stays \
                 until newer letters need its room"
            );
        }
        for (file, damage) in &found.damaged {
            tracing::error!(
                delivery = self.delivery, file = %file.display(), letters = damage.frames,
                places = damage.regions,
                "dead letters of earlier runs are damaged and are not counted: their file stays as \
                 it is until newer letters need its room. A place at the end of the newest file \
                 may be what a crash left of a letter that was never stored"
            );
        }
    }

    fn open_store(&self) -> Result<Store, FileError> {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let open =
            || Store::open(self.disk.clone(), &self.log_directory, &self.delivery, limit_bytes);
        let mut patience = self.patience.lock();
        patience.begin(Instant::now());
        let opened = open();
        let Err(refused @ FileError::Io { .. }) = opened else {
            patience.end();
            return opened;
        };
        if !patience.refuse(Instant::now()) {
            return Err(refused);
        }
        Store::mend_state(&*self.disk, &self.log_directory, &self.delivery)?;
        let opened = open()?;
        tracing::error!(
            delivery = self.delivery, problem = %refused,
            "the disk refuses to read a part of the state of dead letters: those that were \
             replayed or removed last may be back"
        );
        Ok(opened)
    }

    fn append(&self, letters: &[DeadLetter]) -> Result<(), FileError> {
        let mut opened = self.store.lock();
        let store = match &mut *opened {
            Some(store) => store,
            closed => closed.insert(self.open_store()?),
        };
        store.set_limit(self.limit_bytes.load(Ordering::Relaxed));
        store.append(letters)?;
        self.note_totals(store);
        let segments = store.take_uncounted();
        if segments > 0 {
            tracing::warn!(
                delivery = self.delivery,
                segments,
                "dead letters that cannot be read made room for newer ones: they are not counted"
            );
        }
        Ok(())
    }

    fn note_totals(&self, store: &Store) {
        *self.totals.lock() = DeadLetterTotals {
            letters: store.letters(),
            bytes: store.len_bytes(),
            evicted_items: store.dropped().items,
            unreadable_files: store.unreadable_files(),
        };
    }

    fn summaries(&self, count: usize) -> (u64, VecDeque<DeadLetterSummary>) {
        let directory = directory_of(&self.log_directory, &self.delivery);
        let (mut items, mut newest) = (0, VecDeque::new());
        // Without a directory there are no letters. The writer reports unreadable ones.
        let Ok(mut reader) = DeadLetterScan::open(self.disk.clone(), &directory, 0) else {
            return (items, newest);
        };
        loop {
            match reader.next_letter() {
                Ok(Some((letter, refusal))) => {
                    items += letter.charge.items;
                    newest.push_front(summary(letter.charge.items, &refusal));
                    newest.truncate(count);
                }
                // The next call goes on with the next file.
                Err(FileError::NoSegment { .. }) => {}
                Ok(None) | Err(_) => return (items, newest),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_flow::Frame;
    use sluice_log::disk::RealDisk;
    use sluice_otlp::Signal;

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
        letters.summaries(10).1.into_iter().map(|letter| letter.reason).collect()
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
            DeadLetterTotals {
                letters: 2,
                bytes: 2 * one,
                evicted_items: 30,
                ..Default::default()
            }
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
            DeadLetters::OnDisk(Box::new(store.unwrap()))
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
            OnDisk::open(disk, path, "traces".to_owned(), 1 << 20)
                .map(|store| DeadLetters::OnDisk(Box::new(store)))
        };
        open().unwrap().store(&[letter(100, 3, "first")]).unwrap();
        let state = directory_of(directory.path(), "traces").join("state.cursor");
        let aside = state.with_extension("aside");
        std::fs::rename(&state, &aside).unwrap();
        std::fs::create_dir(&state).unwrap();
        let letters = open().expect("the delivery starts");
        assert!(letters.store(&[letter(100, 4, "second")]).is_err());
        std::fs::remove_dir(&state).unwrap();
        std::fs::rename(&aside, &state).unwrap();
        letters.store(&[letter(100, 4, "second")]).unwrap();
        assert_eq!((letters.totals().letters, reasons(&letters)[0].as_str()), (2, "second"));
    }
}
