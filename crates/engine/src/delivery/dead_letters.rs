//! Dead letters of a delivery: data that it has given up, with the reason. The newest are kept,
//! bounded in bytes; on disk if there is a directory.

mod patience;

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::Mutex;
use patience::Patience;
use sluice_flow::Payload;
pub(crate) use sluice_log::dead_letters::DeadLetter;
use sluice_log::dead_letters::{
    DeadLetterScan, DeadLetters as Store, FoundLetters, GoneLetters, directory_of,
};
use sluice_log::disk::Disk;
use sluice_log::format::Refusal;
use sluice_log::segment::Damage;
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

#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Those that can be read, and their items.
    pub letters: u64,
    pub items: u64,
    /// Newest first.
    pub newest: VecDeque<DeadLetterSummary>,
    /// Files of which something is not listed, or that may list too much, and why.
    pub problems: Vec<String>,
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
        self.store_in_turn(letters, Instant::now())
    }

    /// The same for letters that have waited for their turn to be written since they were ready.
    pub(crate) fn store_in_turn(
        &self,
        letters: &[DeadLetter],
        ready: Instant,
    ) -> Result<(), FileError> {
        match self {
            DeadLetters::InMemory(list) => letters.iter().for_each(|it| list.lock().push(it)),
            DeadLetters::OnDisk(store) => store.append(letters, ready)?,
        }
        Ok(())
    }

    /// The disk refused to open letters of earlier runs: [`DeadLetters::open_found`] tries again.
    pub(crate) fn is_refused(&self) -> bool {
        match self {
            DeadLetters::InMemory(_) => false,
            DeadLetters::OnDisk(store) => store.is_refused.load(Ordering::Relaxed),
        }
    }

    /// Opens the letters of earlier runs that were refused before. Blocks.
    pub(crate) fn open_found(&self) {
        if let DeadLetters::OnDisk(store) = self {
            store.open_found();
        }
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

    /// All letters, of which the newest `count` are listed one by one. Reads all of them, which on
    /// disk is not for the runtime's threads.
    pub(crate) fn listing(&self, count: usize) -> Listing {
        match self {
            DeadLetters::InMemory(list) => list.lock().listing(count),
            DeadLetters::OnDisk(store) => store.listing(count),
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

    fn listing(&self, count: usize) -> Listing {
        let items = self.letters.iter().map(|letter| letter.items).sum();
        let newest = self.letters.iter().rev().take(count);
        let summary = |letter: &DeadLetter| summary(letter.items, &letter.refusal);
        let letters = self.totals.letters;
        Listing { letters, items, newest: newest.map(summary).collect(), problems: Vec::new() }
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
    /// Why the store could not be opened last time.
    unopened: Mutex<Option<String>>,
    /// Letters of earlier runs may be there, and the disk refused to open them.
    is_refused: AtomicBool,
    totals: Mutex<DeadLetterTotals>,
}

impl OnDisk {
    /// Opens the letters of earlier runs, if there are any. Blocks. If they cannot be opened, since
    /// the disk refuses or a newer release wrote them, the next letter tries again, and after a
    /// refusal so does [`OnDisk::open_found`].
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        log_directory: PathBuf,
        delivery: String,
        limit_bytes: u64,
    ) -> Self {
        let letters = OnDisk {
            disk,
            log_directory,
            delivery,
            limit_bytes: AtomicU64::new(limit_bytes),
            store: Mutex::new(None),
            patience: Mutex::default(),
            unopened: Mutex::default(),
            is_refused: AtomicBool::new(false),
            totals: Mutex::default(),
        };
        if let Some(problem) = letters.open_found() {
            tracing::error!(
                delivery = letters.delivery, %problem,
                "dead letters of earlier runs cannot be opened and are not counted; this is tried \
                 again with the next one, and at intervals if the disk refuses"
            );
        }
        letters
    }

    /// Opens the letters of earlier runs, if there are any and no letter has opened them yet. A
    /// state that is refused is not given up: no letter waits for it.
    fn open_found(&self) -> Option<FileError> {
        // A letter that is just being written opens them itself.
        let mut opened = self.store.try_lock().filter(|opened| opened.is_none())?;
        let directory = directory_of(&self.log_directory, &self.delivery);
        let found = match self.disk.list(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FileError::Io { path: directory, action: "cannot list", error }),
            Ok(_) => self.open_once().map(Some),
        };
        let problem = match found {
            Ok(store) => {
                *opened = store.map(|store| self.opened(store));
                None
            }
            Err(error) => Some(error),
        };
        let is_refused = matches!(problem, Some(FileError::Io { .. }));
        self.is_refused.store(is_refused, Ordering::Relaxed);
        *self.unopened.lock() = problem.as_ref().map(ToString::to_string);
        problem
    }

    fn open_once(&self) -> Result<Store, FileError> {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        Store::open(self.disk.clone(), &self.log_directory, &self.delivery, limit_bytes)
    }

    /// To be called with each store that was opened.
    fn opened(&self, store: Store) -> Store {
        self.report(store.found());
        self.note_totals(&store);
        self.is_refused.store(false, Ordering::Relaxed);
        store
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

    fn open_store(&self, ready: Instant) -> Result<Store, FileError> {
        let opened = self.try_to_open(ready);
        *self.unopened.lock() = opened.as_ref().err().map(ToString::to_string);
        opened.map(|store| self.opened(store))
    }

    /// `ready`: since when the attempt has waited for its turn. That is no break of the disk's.
    fn try_to_open(&self, ready: Instant) -> Result<Store, FileError> {
        let mut patience = self.patience.lock();
        patience.begin(ready);
        let opened = self.open_once();
        let Err(refused @ FileError::Io { .. }) = opened else {
            patience.end();
            return opened;
        };
        if !patience.refuse(Instant::now()) {
            return Err(refused);
        }
        Store::mend_state(&*self.disk, &self.log_directory, &self.delivery)?;
        let opened = self.open_once()?;
        tracing::error!(
            delivery = self.delivery, problem = %refused,
            "the disk refuses to read a part of the state of dead letters: those that were \
             replayed or removed last may be back"
        );
        Ok(opened)
    }

    fn append(&self, letters: &[DeadLetter], ready: Instant) -> Result<(), FileError> {
        let mut opened = self.store.lock();
        let store = match &mut *opened {
            Some(store) => store,
            closed => closed.insert(self.open_store(ready)?),
        };
        store.set_limit(self.limit_bytes.load(Ordering::Relaxed));
        let appended = store.append(letters);
        self.note_totals(store);
        let GoneLetters { files, letters } = store.take_gone();
        if files > 0 {
            tracing::error!(
                delivery = self.delivery,
                files,
                letters,
                "dead letters were removed or moved away by another process while Sluice runs: \
                 they are not counted any more, and new ones go to a new file"
            );
        }
        let segments = store.take_uncounted();
        if segments > 0 {
            tracing::warn!(
                delivery = self.delivery,
                segments,
                "unreadable dead letters were deleted to make room; their number is unknown"
            );
        }
        appended.map(drop)
    }

    fn note_totals(&self, store: &Store) {
        *self.totals.lock() = DeadLetterTotals {
            letters: store.letters(),
            bytes: store.len_bytes(),
            evicted_items: store.dropped().items,
            unreadable_files: store.unreadable_files(),
        };
    }

    fn listing(&self, count: usize) -> Listing {
        let directory = directory_of(&self.log_directory, &self.delivery);
        let (mut listing, unopened) = (Listing::default(), self.unopened.lock().clone());
        let (mut refused, mut unreadable) = (Vec::new(), Vec::new());
        match DeadLetterScan::open_in_part(self.disk.clone(), &directory, &mut refused) {
            Ok(mut reader) => {
                let read = listing.read(&mut reader, count, &mut unreadable);
                unreadable.extend(read.err());
                listing.problems.extend(reader.damaged().into_iter().map(damaged));
                if reader.is_state_lost && listing.letters > 0 {
                    let path = reader.state_path();
                    let lost = || format!("{}: is gone or damaged", path.display());
                    let why = refused.first().map_or_else(lost, ToString::to_string);
                    listing.problems.push(format!("{why}; letters that were removed may be back"));
                }
            }
            Err(error) => unreadable.push(error),
        }
        for why in unreadable.iter().map(ToString::to_string) {
            if unopened.as_ref() != Some(&why) {
                listing.problems.push(format!("{why}; its letters are not listed"));
            }
        }
        let waits = |why| format!("{why}; new dead letters wait in the log until it can be read");
        listing.problems.extend(unopened.map(waits));
        listing
    }
}

impl Listing {
    fn read(
        &mut self,
        reader: &mut DeadLetterScan,
        count: usize,
        unreadable: &mut Vec<FileError>,
    ) -> Result<(), FileError> {
        while let Some((letter, refusal)) = reader.next_readable(unreadable)? {
            self.letters += 1;
            self.items += letter.charge.items;
            self.newest.push_front(summary(letter.charge.items, &refusal));
            self.newest.truncate(count);
        }
        Ok(())
    }
}

fn damaged((path, damage): (PathBuf, Damage)) -> String {
    let Damage { frames, regions, .. } = damage;
    format!(
        "{}: {frames} letters and {regions} places in it are damaged and not listed; the file is \
         kept until newer letters need its room",
        path.display()
    )
}

#[cfg(test)]
mod tests;
