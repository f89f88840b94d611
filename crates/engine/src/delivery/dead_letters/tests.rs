//! Dead letters of a delivery, in memory and on disk.

use std::path::Path;

use sluice_flow::{Frame, Outcome};
use sluice_log::READ_PATIENCE;
use sluice_log::disk::{Access, DirectoryEntry, DiskFile, RealDisk};
use sluice_log::format::{SegmentHeader, VERSION, Version};
use sluice_otlp::Signal;
use tempfile::TempDir;
use tracing::span::{Attributes, Id};
use tracing::{Event, Metadata, Subscriber};

use super::*;
use crate::delivery::dead_letter_writer::DeadLetterWriter;
use crate::delivery::tests::Backend;
use crate::delivery::{Delivery, DeliveryId, SharedMemory};
use crate::entry::Origin;
use crate::receiving::ReceivingBudget;
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
    let origin = Origin { receiver: "otlp".to_owned(), prepared: Vec::new(), log: None };
    let memory = Arc::new(SharedWorkMemory::new(0, Arc::default()));
    let entry = Entry::new(frame, Arc::new(origin), None, memory);
    dead_letter(&entry, &[1], payload, items, reason.to_owned())
}

fn reasons(letters: &DeadLetters) -> Vec<String> {
    letters.listing(10).newest.into_iter().map(|letter| letter.reason).collect()
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
        DeadLetterTotals { letters: 2, bytes: 2 * one, evicted_items: 30, ..Default::default() }
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
        DeadLetters::OnDisk(Box::new(store))
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
        let store = OnDisk::open(disk, path, "traces".to_owned(), 1 << 20);
        DeadLetters::OnDisk(Box::new(store))
    };
    open().store(&[letter(100, 3, "first")]).unwrap();
    let state = directory_of(directory.path(), "traces").join("state.cursor");
    let aside = state.with_extension("aside");
    std::fs::rename(&state, &aside).unwrap();
    std::fs::create_dir(&state).unwrap();
    let letters = open();
    assert!(letters.store(&[letter(100, 4, "second")]).is_err());
    std::fs::remove_dir(&state).unwrap();
    std::fs::rename(&aside, &state).unwrap();
    letters.store(&[letter(100, 4, "second")]).unwrap();
    assert_eq!((letters.totals().letters, reasons(&letters)[0].as_str()), (2, "second"));
}

/// The letters of a delivery `traces` below a directory.
fn on_disk(directory: &Path) -> DeadLetters {
    let (disk, path) = (Arc::new(RealDisk), directory.to_owned());
    DeadLetters::OnDisk(Box::new(OnDisk::open(disk, path, "traces".to_owned(), 1 << 20)))
}

/// Guarantee: letters go on, and those that are gone are not counted, after the log's directory was
/// removed or moved away and the log made it anew.
#[test]
fn letters_go_on_after_the_directory_of_their_log_is_gone() {
    for is_moved in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let of_log = directory.path().join("traces");
        std::fs::create_dir(&of_log).unwrap();
        let letters = on_disk(&of_log);
        letters.store(&[letter(100, 3, "first"), letter(100, 4, "second")]).unwrap();
        match is_moved {
            true => std::fs::rename(&of_log, directory.path().join("away")).unwrap(),
            false => std::fs::remove_dir_all(&of_log).unwrap(),
        }
        assert!((0..3).all(|_| letters.store(&[letter(100, 5, "third")]).is_err()));
        std::fs::create_dir(&of_log).unwrap();
        letters.store(&[letter(100, 5, "third")]).unwrap();
        let totals = letters.totals();
        assert_eq!((totals.letters, totals.evicted_items, totals.unreadable_files), (1, 0, 0));
        assert_eq!(
            (reasons(&letters), reasons(&on_disk(&of_log))[0].as_str()),
            (vec!["third".to_owned()], "third")
        );
    }
}

fn segment(directory: &Path, first: u64) -> PathBuf {
    directory_of(directory, "traces").join(format!("{first:016x}.seg"))
}

/// A directory with two letters, each in a file of its own.
fn with_two_files() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    on_disk(directory.path()).store(&[letter(100, 3, "first")]).unwrap();
    on_disk(directory.path()).store(&[letter(100, 4, "second")]).unwrap();
    directory
}

/// Guarantee: letters of a newer release end no start. Their file is named and stays as it is, new
/// letters wait, and when the file can be read all are there.
#[test]
fn letters_of_a_newer_release_do_not_end_the_start() {
    let directory = with_two_files();
    let path = segment(directory.path(), 1);
    let whole = std::fs::read(&path).unwrap();
    let mut header = SegmentHeader::decode(&whole).unwrap();
    header.version = Version { major: VERSION.major + 1, minor: 0 };
    let mut newer = whole.clone();
    let header = header.encode();
    newer[..header.len()].copy_from_slice(&header);
    std::fs::write(&path, &newer).unwrap();

    let letters = on_disk(directory.path());
    for _ in 0..2 {
        let refused = letters.store(&[letter(100, 5, "third")]);
        assert!(matches!(refused, Err(FileError::NewerVersion { .. })), "{refused:?}");
    }
    assert!(std::fs::read(&path).unwrap() == newer, "it stays as it is");
    let listing = letters.listing(10);
    assert_eq!((listing.items, listing.newest.len()), (3, 1), "{listing:?}");
    let [problem] = &listing.problems[..] else { panic!("{listing:?}") };
    let path = path.display().to_string();
    assert!(problem.contains(&path) && problem.contains("wait in the log"), "{problem}");

    std::fs::write(path, whole).unwrap();
    letters.store(&[letter(100, 5, "third")]).unwrap();
    assert_eq!(reasons(&letters), ["third", "second", "first"]);
    assert_eq!(letters.listing(10).problems, Vec::<String>::new());
}

/// Guarantee: the list names each file of which something is not in it, and goes on behind it.
#[test]
fn the_list_names_what_it_cannot_read() {
    let says = |letters: &DeadLetters, path: &Path, why: &str| {
        let Listing { letters, items, newest, problems } = letters.listing(10);
        assert_eq!((letters, items, &*newest[0].reason, newest.len()), (1, 4, "second", 1));
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        let is_named = problem.starts_with(&format!("{}: ", path.display()));
        assert!(is_named && problem.contains(why), "{problem}");
    };
    let directory = with_two_files();
    let path = segment(directory.path(), 0);
    let mut damaged = std::fs::read(&path).unwrap();
    let payload = damaged.windows(100).position(|bytes| bytes == [7; 100]).unwrap();
    damaged[payload] = 8;
    std::fs::write(&path, &damaged).unwrap();
    says(&on_disk(directory.path()), &path, "1 letters and 0 places in it are damaged");

    // An open store, too.
    let letters = on_disk(directory.path());
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&path, &path).unwrap();
    says(&letters, &path, "cannot open");
    says(&on_disk(directory.path()), &path, "cannot open");

    std::fs::rename(segment(directory.path(), 1), segment(directory.path(), 7)).unwrap();
    let Listing { newest, problems, .. } = on_disk(directory.path()).listing(10);
    assert!(newest.is_empty() && problems[1].contains("renamed or copied"), "{problems:?}");
}

/// A disk that refuses to list, or to open a state, as long as it is told to.
#[derive(Clone, Default)]
struct Refusing {
    lists: Arc<AtomicBool>,
    states: Arc<AtomicBool>,
}

impl Refusing {
    fn ask(refuses: &AtomicBool) -> io::Result<()> {
        match refuses.load(Ordering::Relaxed) {
            true => Err(io::Error::other("refused")),
            false => Ok(()),
        }
    }
}

impl Disk for Refusing {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        RealDisk.create_new(path)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let is_state = path.extension().is_some_and(|extension| extension == "cursor");
        if is_state {
            Refusing::ask(&self.states)?;
        }
        RealDisk.open(path, access)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_directory(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        Refusing::ask(&self.lists)?;
        RealDisk.list(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_directory(path)
    }

    fn device(&self, path: &Path) -> io::Result<u64> {
        RealDisk.device(path)
    }
}

fn on_refusing(disk: &Refusing, directory: &Path) -> OnDisk {
    OnDisk::open(Arc::new(disk.clone()), directory.to_owned(), "traces".to_owned(), 1 << 20)
}

/// Guarantee: a disk that refuses at a start is not taken for one without letters. They are said to
/// be missing, and are counted once they can be opened, without a new letter.
#[tokio::test]
async fn letters_that_are_refused_at_a_start_are_counted_later() {
    for refuses_lists in [true, false] {
        let (directory, disk) = (with_two_files(), Refusing::default());
        let refuses = if refuses_lists { &disk.lists } else { &disk.states };
        refuses.store(true, Ordering::Relaxed);
        let letters = DeadLetters::OnDisk(Box::new(on_refusing(&disk, directory.path())));
        assert_eq!((letters.is_refused(), letters.totals()), (true, DeadLetterTotals::default()));
        assert!(!letters.listing(10).problems.is_empty());
        let delivery = delivery_with(letters);
        let _writer = {
            let exporter = Arc::new(Backend(Outcome::Delivered));
            DeadLetterWriter::new(delivery.clone(), exporter, Arc::default())
        };
        delivery.dead_letters.open_found();
        assert!(delivery.dead_letters.is_refused(), "the disk refuses still");
        refuses.store(false, Ordering::Relaxed);
        while delivery.dead_letters.is_refused() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(delivery.dead_letters.totals().letters, 2);
        assert_eq!(delivery.dead_letters.listing(10).problems, Vec::<String>::new());
    }
    let empty = tempfile::tempdir().unwrap();
    assert!(!on_disk(empty.path()).is_refused(), "nothing is there");
}

fn delivery_with(letters: DeadLetters) -> Arc<Delivery> {
    let id = DeliveryId { pipeline: "traces".to_owned(), exporter: "otlp".to_owned() };
    let receiving = ReceivingBudget::new(0);
    let (log, private, sending) = Default::default();
    let memory = SharedMemory { receiving, private, sending };
    Arc::new(Delivery::new(id, Signal::Traces, log, letters, memory, false))
}

/// Guarantee: the time that letters wait for their turn is no break of the disk's, so that many
/// deliveries do not keep each other from giving up a state that the disk refuses.
#[test]
fn waiting_for_a_turn_is_no_break() {
    let directory = with_two_files();
    let letters =
        OnDisk::open(Arc::new(RealDisk), directory.path().to_owned(), "traces".to_owned(), 1 << 20);
    let mut patience = letters.patience.lock();
    let refused = Instant::now() - READ_PATIENCE;
    patience.begin(refused);
    assert!(!patience.refuse(refused));
    drop(patience);
    *letters.store.lock() = None;
    let state = directory_of(directory.path(), "traces").join("state.cursor");
    std::fs::remove_file(&state).unwrap();
    std::os::unix::fs::symlink(&state, &state).unwrap();
    let ready = refused + Duration::from_secs(1);
    let refused = letters.append(&[letter(100, 5, "third")], ready);
    let first = letters.patience.lock().refuse(Instant::now());
    assert!(refused.is_err() && first, "the first refusal counts");
}

/// Counts the messages of a thread.
#[derive(Default)]
struct Messages(Arc<AtomicU64>);

impl Subscriber for Messages {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Guarantee: a start that cannot open letters says later which of them cannot be read, also if a
/// new letter opens them.
#[test]
fn letters_that_a_letter_opens_are_reported() {
    let (directory, disk) = (with_two_files(), Refusing::default());
    std::fs::write(segment(directory.path(), 0), [7; 100_000]).unwrap();
    let state = directory_of(directory.path(), "traces").join("state.cursor");
    std::fs::remove_file(state).unwrap();
    disk.lists.store(true, Ordering::Relaxed);
    let letters = on_refusing(&disk, directory.path());
    disk.lists.store(false, Ordering::Relaxed);
    let messages = Messages::default();
    let said = messages.0.clone();
    tracing::subscriber::with_default(messages, || {
        letters.append(&[letter(100, 5, "third")], Instant::now()).unwrap();
    });
    assert_eq!(said.load(Ordering::Relaxed), 2, "the state is lost, and a file unreadable");
    assert_eq!(letters.totals.lock().unreadable_files, 1);
}
