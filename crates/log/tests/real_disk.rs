//! The same on the disk of the operating system: modes, reserved space, locks between processes.

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use sluice_log::cursor_file::CursorFile;
use sluice_log::disk::{Access, Disk as _, RealDisk, read_full_at, write_all_at, write_all_vectored_at};
use sluice_log::format::CursorState;
use sluice_log::lock::{DirectoryLock, LockError};
use sluice_log::segment::{ReaderOptions, list_segments};
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
    let frames = (0..30).map(|offset| TestFrame::new(offset, 1 << (offset % 17))).collect::<Vec<_>>();
    for frame in &frames {
        writer.append(&frame.as_ref()).unwrap();
    }
    writer.seal().unwrap();
    assert_eq!(read_all(&mut open(&RealDisk, writer.path(), ReaderOptions::default())).0, frames);
    let listed = list_segments(&RealDisk, &directory).unwrap();
    assert_eq!(listed, [(writer.name(), writer.len_bytes())]);
    assert!(writer.len_bytes() < 400_000);
    assert_eq!((mode(&directory), mode(&root.path().join("a")), mode(writer.path())), (0o700, 0o700, 0o600));
}

#[test]
fn cursor_files_are_replaced_and_read() {
    let root = tempfile::tempdir().unwrap();
    let mut state = CursorState { id: 1, name: "a/b".to_owned(), ..CursorState::default() };
    let mut file = CursorFile::create(&RealDisk, root.path(), &state).unwrap();
    state.floor = 7;
    state.head = 9;
    file.store(&RealDisk, &state).unwrap();
    assert_eq!(CursorFile::read(&RealDisk, file.path()).unwrap(), state);
    assert_eq!(RealDisk.list(root.path()).unwrap().len(), 1);
}

#[test]
fn more_buffers_than_one_call_takes_are_written_in_order() {
    let root = tempfile::tempdir().unwrap();
    let file = RealDisk.create_new(&root.path().join("file")).unwrap();
    let parts = (0..3000_u32).map(u32::to_le_bytes).collect::<Vec<_>>();
    let mut slices = parts.iter().map(|part| std::io::IoSlice::new(part)).collect::<Vec<_>>();
    write_all_vectored_at(&*file, &mut slices, 10).unwrap();
    let mut bytes = vec![0; 20_000];
    assert_eq!(read_full_at(&*file, &mut bytes, 10).unwrap(), 12_000);
    assert_eq!(&bytes[..12_000], parts.concat());
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
    let lock = DirectoryLock::acquire(&RealDisk, root.path()).unwrap();
    match DirectoryLock::acquire(&RealDisk, root.path()) {
        Err(LockError::Held { holder, .. }) => assert_eq!(holder, Some(std::process::id())),
        other => panic!("{:?}", other.map(drop)),
    }
    assert_eq!(mode(&root.path().join("lock")), 0o600);
    drop(lock);
    DirectoryLock::acquire(&RealDisk, root.path()).unwrap();
}

#[test]
fn the_space_of_the_file_system_is_known() {
    let space = RealDisk.space(Path::new("/")).unwrap();
    assert!(space.total_bytes >= space.available_bytes && space.total_bytes > 1 << 20);
}

#[test]
fn the_disk_without_syncs_does_everything_else() {
    let root = tempfile::tempdir().unwrap();
    let disk = NoSync(RealDisk);
    let mut writer = create(&disk, &root.path().join("traces"), 0, 1 << 16);
    writer.append(&TestFrame::new(0, 100).as_ref()).unwrap();
    writer.sync().unwrap();
    assert_eq!(read_all(&mut open(&disk, writer.path(), ReaderOptions::default())).0, [TestFrame::new(0, 100)]);
}
