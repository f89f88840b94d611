//! The log on the disk of the operating system: modes, reserved space, locks between processes.

mod support;

use std::fs;
use std::io::IoSliceMut;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use rustix::io::{Errno, ReadWriteFlags};
use sluice_log::RecordFacts;
use sluice_log::cursors::{CursorFile, file_name};
use sluice_log::dead_letters::{DeadLetter, DeadLetters};
use sluice_log::disk::{Access, AlignedBuffer, Disk as _, RealDisk, read_full_at, write_all_at};
use sluice_log::disk::{DirectoryLock, LockError};
use sluice_log::format::{CursorState, Refusal};
use sluice_log::segment::{ScanOptions, list_segments};
use support::frames::{TestFrame, create, open, read_all};
use support::no_sync::NoSync;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn segments_are_written_read_and_cut() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("a/b/traces");
    let mut writer = create(&RealDisk, &directory, 0, 4 << 20);
    let blocks = fs::metadata(writer.path()).unwrap().blocks();
    assert!(blocks * 512 >= 4 << 20, "space is reserved before anything is written");
    let frames =
        (0..30).map(|offset| TestFrame::new(offset, 1 << (offset % 17))).collect::<Vec<_>>();
    for frame in &frames {
        writer.append(&frame.as_ref()).unwrap();
    }
    writer.seal().unwrap();
    assert_eq!(read_all(&mut open(&RealDisk, writer.path(), ScanOptions::default())).0, frames);
    let listed = list_segments(&RealDisk, &directory).unwrap();
    assert_eq!(listed, [(writer.name(), writer.len_bytes())]);
    assert!(writer.len_bytes() < 400_000);
    assert_eq!(
        (mode(&directory), mode(&root.path().join("a")), mode(writer.path())),
        (0o700, 0o700, 0o600)
    );
}

/// Scenario: many deliveries have written large dead letters. Guarantee: their stores, which stay
/// open, keep almost no memory.
#[test]
fn stores_of_dead_letters_hold_no_buffers_at_rest() {
    const STORES: usize = 32;
    let root = tempfile::tempdir().unwrap();
    let payload = bytes::Bytes::from(vec![7; 3 << 20]);
    let facts = RecordFacts::default();
    let refusal = Refusal::default();
    let letter = DeadLetter { refusal, facts, items: 1, metadata: Vec::new(), payload };
    let before = resident_bytes();
    let stores = (0..STORES).map(|index| {
        let (disk, name) = (Arc::new(RealDisk), format!("traces/{index}"));
        let mut store = DeadLetters::open(disk, root.path(), &name, 32 << 20).unwrap();
        store.append(std::slice::from_ref(&letter)).unwrap();
        store
    });
    let stores: Vec<_> = stores.collect();
    let held_bytes = resident_bytes().saturating_sub(before);
    assert!(held_bytes < 16 << 20, "{held_bytes} bytes for {} stores", stores.len());
}

fn resident_bytes() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn cursor_files_are_replaced_and_read() {
    let root = tempfile::tempdir().unwrap();
    let mut state = CursorState { id: 1, name: "a/b".to_owned(), ..CursorState::default() };
    let path = root.path().join(file_name(&state.name));
    let mut file = CursorFile::create(&RealDisk, &path, &state).unwrap();
    state.floor = 7;
    state.head = 9;
    file.store(&RealDisk, &state).unwrap();
    assert_eq!(CursorFile::read(&RealDisk, file.path()).unwrap(), state);
    assert_eq!(RealDisk.list(root.path()).unwrap().len(), 1);
}

#[test]
fn bytes_at_an_odd_position_are_written_in_order() {
    let root = tempfile::tempdir().unwrap();
    let file = RealDisk.create_new(&root.path().join("file")).unwrap();
    let parts = (0..3000_u32).map(u32::to_le_bytes).collect::<Vec<_>>();
    write_all_at(&*file, &parts.concat(), 10).unwrap();
    let mut bytes = vec![0; 20_000];
    assert_eq!(read_full_at(&*file, &mut bytes, 10).unwrap(), 12_000);
    assert_eq!(&bytes[..12_000], parts.concat());
}

/// Whether a block of a file can be read without waiting. One that is in the kernel's page cache
/// can. Another one seldom can: the call begins to read it, and its bytes may come at once.
fn is_cached(path: &Path, position: u64) -> bool {
    let file = fs::File::open(path).unwrap();
    let mut block = [0; 4096];
    let buffers = &mut [IoSliceMut::new(&mut block)];
    match rustix::io::preadv2(&file, buffers, position, ReadWriteFlags::NOWAIT) {
        Ok(_) => true,
        Err(Errno::AGAIN) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn aligned_blocks_go_past_the_page_cache_and_everything_can_be_read_all_the_same() {
    // The build's folder is on a disk; the folder for temporary files may not be.
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = root.path().join("file");
    let file = RealDisk.create_new(&path).unwrap();
    file.allocate(1 << 20).unwrap();
    let mut buffer = AlignedBuffer::new(512 << 10);
    let bytes: Vec<u8> = (0..512_u32 << 10).map(|index| (index / 7) as u8).collect();
    assert!(buffer.append(&bytes).is_empty());
    write_all_at(&*file, buffer.bytes(), 4096).unwrap();
    let far_apart = [4096, 128 << 10, 256 << 10, 384 << 10, 512 << 10];
    assert!(!far_apart.into_iter().all(|position| is_cached(&path, position)));
    // Bytes with an unaligned length or position are written the usual way.
    write_all_at(&*file, b"header", 0).unwrap();
    write_all_at(&*file, &buffer.bytes()[..4096], (512 << 10) + 4096 + 1).unwrap();
    file.sync_data().unwrap();
    assert!(is_cached(&path, 0) && is_cached(&path, (512 << 10) + 4096));
    let mut read = vec![0; 512 << 10];
    assert_eq!(read_full_at(&*file, &mut read, 4096).unwrap(), 512 << 10);
    assert_eq!(read, bytes);
    // A cached page is read as it was last written past the cache.
    buffer.clear();
    assert!(buffer.append(&[7; 8192]).is_empty());
    write_all_at(&*file, buffer.bytes(), 8192).unwrap();
    assert_eq!(read_full_at(&*file, &mut read, 4096).unwrap(), 512 << 10);
    assert_eq!(
        (&read[..4096], &read[4096..12_288], &read[12_288..]),
        (&bytes[..4096], &[7; 8192][..], &bytes[12_288..])
    );
    let mut tail = [0; 4096];
    file.read_at(&mut tail, (512 << 10) + 4096 + 1).unwrap();
    assert_eq!(tail[..], bytes[..4096]);
}

#[test]
fn a_file_that_was_moved_before_its_first_block_is_still_the_one_that_is_written() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("file");
    let file = RealDisk.create_new(&path).unwrap();
    fs::rename(&path, root.path().join("moved")).unwrap();
    fs::write(&path, b"another's").unwrap();
    let mut buffer = AlignedBuffer::new(4096);
    assert!(buffer.append(&[9; 4096]).is_empty());
    write_all_at(&*file, buffer.bytes(), 0).unwrap();
    assert_eq!(fs::read(root.path().join("moved")).unwrap(), [9; 4096]);
    assert_eq!(fs::read(&path).unwrap(), b"another's");
}

#[test]
fn a_file_opened_for_reading_cannot_be_written() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("file");
    RealDisk.create_new(&path).unwrap();
    let file = RealDisk.open(&path, Access::Read).unwrap();
    assert!(write_all_at(&*file, b"x", 0).is_err());
    assert_eq!(RealDisk.create_new(&path).err().unwrap().kind(), std::io::ErrorKind::AlreadyExists);
}

#[test]
fn the_second_owner_of_a_directory_is_refused_with_the_first_ones_process_id() {
    let root = tempfile::tempdir().unwrap();
    let lock = DirectoryLock::acquire(root.path()).unwrap();
    match DirectoryLock::acquire(root.path()) {
        Err(LockError::InUse { holder, .. }) => assert_eq!(holder, Some(std::process::id())),
        other => panic!("{:?}", other.map(drop)),
    }
    assert_eq!(mode(&root.path().join("lock")), 0o600);
    drop(lock);
    DirectoryLock::acquire(root.path()).unwrap();
}

#[test]
fn the_space_of_the_file_system_is_known() {
    assert!(RealDisk.available_bytes(Path::new("/")).unwrap() > 1 << 20);
}

#[test]
fn the_disk_without_syncs_does_everything_else() {
    let root = tempfile::tempdir().unwrap();
    let disk = NoSync(RealDisk);
    let mut writer = create(&disk, &root.path().join("traces"), 0, 1 << 16);
    writer.append(&TestFrame::new(0, 100).as_ref()).unwrap();
    writer.sync().unwrap();
    assert_eq!(
        read_all(&mut open(&disk, writer.path(), ScanOptions::default())).0,
        [TestFrame::new(0, 100)]
    );
}

/// Guarantee: a file is at a path only as long as the path leads to that file.
#[test]
fn a_file_that_was_moved_or_replaced_is_not_at_its_path() {
    let root = tempfile::tempdir().unwrap();
    let [directory, moved] = ["a", "b"].map(|name| root.path().join(name));
    fs::create_dir(&directory).unwrap();
    let path = directory.join("file");
    let file = RealDisk.create_new(&path).unwrap();
    let is_at = |path: &Path| file.is_at(path).unwrap();
    assert!(is_at(&path));
    fs::rename(&directory, &moved).unwrap();
    assert!(!is_at(&path) && is_at(&moved.join("file")));
    fs::create_dir(&directory).unwrap();
    fs::write(&path, b"another").unwrap();
    assert!(!is_at(&path) && !is_at(&path.join("below a file")));
    fs::remove_file(moved.join("file")).unwrap();
    assert!(!is_at(&moved.join("file")));
}
