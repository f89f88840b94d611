//! The tests' own disk does what it says: a test on a disk that is too kind sees nothing.

mod support;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use sluice_log::disk::{Access, Disk, DiskFile, read_full_at, write_all_at};
use support::faulty_disk::{Answer, FaultyDisk, Operation, Trouble, Unsynced};
use support::note::wait_until;
use support::troubles::Lasts;

const FILE: &str = "/a.seg";

fn disk_with_file() -> (FaultyDisk, Arc<dyn DiskFile>) {
    let disk = FaultyDisk::new(1);
    disk.put(Path::new(FILE), &[7; 5 * 4_096]);
    let file = disk.open(Path::new(FILE), Access::ReadWrite).expect("it is there");
    (disk, file)
}

fn read(file: &dyn DiskFile, position: u64) -> io::Result<usize> {
    file.read_at(&mut [0; 100], position)
}

/// The numbers of reads of many that fail.
fn failing_reads(disk: &FaultyDisk, file: &dyn DiskFile, lasts: Lasts) -> Vec<usize> {
    disk.trouble(Trouble { lasts, ..Trouble::new(&[Operation::Read], Errno::IO) });
    let failing = (0..1_000).filter(|_| read(file, 0).is_err()).collect();
    disk.clear_fault();
    failing
}

#[test]
fn troubles_come_and_go() {
    let (disk, file) = disk_with_file();
    assert_eq!(failing_reads(&disk, &*file, Lasts::Calls(2..4)), [2, 3]);
    let now = disk.ticks();
    assert_eq!(failing_reads(&disk, &*file, Lasts::Ticks(now + 1..now + 4)), [1, 2, 3]);
    assert_eq!(failing_reads(&disk, &*file, Lasts::On).len(), 1_000);
    let by_chance = failing_reads(&disk, &*file, Lasts::Chance(300)).len();
    assert!((200..400).contains(&by_chance), "{by_chance}");
    assert!(read(&*file, 0).is_ok());
}

#[test]
fn troubles_meet_the_calls_that_they_are_for() {
    let (disk, file) = disk_with_file();
    let path_part = ".seg".to_owned();
    let trouble = Trouble::new(&[Operation::Read, Operation::Len], Errno::IO);
    disk.trouble(Trouble { positions: 4_096..8_192, path_part, ..trouble });
    assert!(read(&*file, 0).is_ok() && read(&*file, 8_192).is_ok());
    assert!(read(&*file, 4_000).is_err() && read(&*file, 8_191).is_err());
    assert!(file.len_bytes().is_err() && file.is_at(Path::new(FILE)).is_ok());
    disk.put(Path::new("/other"), &[7; 8_192]);
    let other = disk.open(Path::new("/other"), Access::Read).expect("it is there");
    assert!(read(&*other, 4_096).is_ok());
    disk.clear_fault();
    disk.trouble(Trouble::new(&[Operation::Linked, Operation::Device], Errno::INTR));
    assert_eq!(file.is_at(Path::new(FILE)).unwrap_err().kind(), io::ErrorKind::Interrupted);
    assert_eq!(disk.device(Path::new("/")).unwrap_err().kind(), io::ErrorKind::Interrupted);
}

#[test]
fn a_read_only_disk_takes_no_change() {
    let (disk, file) = disk_with_file();
    disk.trouble(Trouble::read_only());
    let path = Path::new(FILE);
    let refused = [
        file.write_at(&[1], 0).map(drop),
        file.sync_data(),
        file.set_len(1),
        disk.open(path, Access::ReadWrite).map(drop),
        disk.create_new(Path::new("/b")).map(drop),
        disk.create_directory(Path::new("/c")),
        disk.rename(path, Path::new("/d")),
        disk.remove_file(path),
    ];
    for result in refused {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
    }
    assert!(read(&*file, 0).is_ok() && disk.open(path, Access::Read).is_ok());
    assert_eq!(disk.list(Path::new("/")).unwrap().len(), 1);
}

#[test]
fn a_call_that_hangs_is_done_when_the_trouble_is_over_and_never_by_a_dead_process() {
    for dies in [false, true] {
        let (disk, file) = disk_with_file();
        let answer = Answer::Hang;
        disk.trouble(Trouble { answer, ..Trouble::new(&[Operation::Write], Errno::IO) });
        let has_answer = Arc::new(AtomicBool::new(false));
        let writes = {
            let has_answer = has_answer.clone();
            std::thread::spawn(move || {
                let written = file.write_at(&[9], 0);
                has_answer.store(true, Ordering::SeqCst);
                written
            })
        };
        wait_until("it hangs", || disk.troubled_calls() == 1);
        std::thread::sleep(Duration::from_millis(20));
        assert!(!has_answer.load(Ordering::SeqCst));
        let disk = if dies { disk.kill_process() } else { disk };
        if !dies {
            disk.clear_fault();
        }
        assert_eq!(writes.join().expect("no panic").is_ok(), !dies);
        assert_eq!(disk.contents()[0].1[0], if dies { 7 } else { 9 });
    }
}

#[test]
fn a_bad_page_is_refused_until_it_is_overwritten_whole() {
    let (disk, file) = disk_with_file();
    let path = Path::new(FILE);
    disk.spoil(path, 5_000).expect("a page");
    let mut buffer = [0; 8_192];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 4_096, "short, up to the bad page");
    assert!(read_full_at(&*file, &mut buffer, 0).is_err());
    assert!(read(&*file, 8_191).is_err() && read(&*file, 8_192).is_ok());
    assert!(file.write_at(&[1; 100], 5_000).is_err(), "the rest of the page has to be read");
    let disk = disk.cut_power(Unsynced::Mixed);
    let file = disk.open(path, Access::ReadWrite).expect("it is there");
    assert!(read(&*file, 5_000).is_err(), "it stays bad");
    write_all_at(&*file, &[1; 4_096], 4_096).expect("written");
    assert!(read(&*file, 5_000).is_ok());
    let damaged = disk.spoil(path, 0).expect("a page");
    disk.rename(path, Path::new("/b.seg")).expect("renamed");
    assert!(read(&*file, 0).is_err());
    assert_eq!(disk.path_of(damaged).as_deref(), Some(Path::new("/b.seg")));
    disk.restore(damaged);
    assert!(read(&*file, 0).is_ok());
}

#[test]
fn bytes_that_rot_stay_so_and_can_be_restored() {
    let (disk, _) = disk_with_file();
    let damaged = disk.rot(Path::new(FILE), 5_000, 0b101).expect("a byte");
    assert_eq!(disk.rot(Path::new(FILE), 50_000, 1), None);
    let disk = disk.cut_power(Unsynced::Lost);
    assert_eq!(disk.contents()[0].1[5_000], 7 ^ 0b101);
    disk.restore(damaged);
    assert_eq!(disk.contents()[0].1[5_000], 7);
}

#[test]
fn a_process_dies_between_any_two_calls() {
    let (disk, file) = disk_with_file();
    disk.die_after(2);
    assert!(disk.is_dying());
    assert!(file.write_at(&[1], 0).is_ok() && file.write_at(&[1], 1).is_ok());
    assert!(file.write_at(&[1], 2).is_err() && disk.list(Path::new("/")).is_err());
    let disk = disk.kill_process();
    assert!(!disk.is_dying() && disk.contents()[0].1[..3] == [1, 1, 7]);
}

/// Guarantee: names are not durable before their directory is synced, and neither is the directory
/// before the one above.
#[test]
fn a_directory_that_was_not_synced_is_gone_after_a_power_cut() {
    let disk = FaultyDisk::new(1);
    disk.create_directory(Path::new("/a")).unwrap();
    disk.create_directory(Path::new("/a/b")).unwrap();
    disk.create_new(Path::new("/a/b/c")).unwrap().sync_data().unwrap();
    disk.sync_directory(Path::new("/a/b")).unwrap();
    disk.sync_directory(Path::new("/")).unwrap();
    let disk = disk.cut_power(Unsynced::Lost);
    assert!(disk.list(Path::new("/a")).unwrap().is_empty());
}
