//! Frames that a segment calls durable survive power cuts and failing calls.

mod support;

use std::path::Path;

use fastrand::Rng;
use sluice_log::FileError;
use sluice_log::disk::{Access, Disk};
use sluice_log::segment::{ScanOptions, SegmentScan, SegmentWriter, list_segments};
use support::faulty_disk::{
    FaultyDisk, Operation, Unsynced, input_output, no_space, too_many_open_files,
};
use support::frames::{TestFrame, create, header, open, read_all, write_segment};

const DIRECTORY: &str = "/log/traces";

/// Every frame of a directory, in whatever segment it is.
fn recover(disk: &dyn Disk) -> Vec<TestFrame> {
    let directory = Path::new(DIRECTORY);
    let mut frames = Vec::new();
    for (name, _) in list_segments(disk, directory).unwrap() {
        let path = directory.join(name.to_string());
        let file = disk.open(&path, Access::Read).unwrap();
        match SegmentScan::open(file, &path, ScanOptions::default()) {
            Ok(mut reader) => frames.extend(read_all(&mut reader).0),
            Err(FileError::Unfinished { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    frames
}

#[test]
fn a_power_cut_takes_nothing_that_was_synced_and_makes_nothing_up() {
    let mut not_synced = 0;
    for seed in 0..300 {
        let disk = FaultyDisk::new(seed);
        let mut random = Rng::with_seed(seed);
        disk.set_short_calls(random.bool());
        let mut writer = create(&disk, Path::new(DIRECTORY), 0, 1 << 20);
        let (mut appended, mut synced) = (Vec::new(), 0);
        for offset in 0..random.u64(1..40) {
            let frame = TestFrame::new(offset, random.usize(0..9000));
            writer.append(&frame.as_ref()).unwrap();
            appended.push(frame);
            if random.u8(0..4) == 0 {
                writer.sync().unwrap();
                synced = appended.len();
            }
        }
        // The last sync is under way when the power is cut: any of its pages may be on disk.
        disk.fail_operation(Operation::SyncData, input_output);
        assert!(synced == appended.len() || writer.sync().is_err());
        disk.clear_fault();
        let unsynced =
            *random.choice(&[Unsynced::Lost, Unsynced::Mixed, Unsynced::Garbage]).unwrap();
        let read = recover(&disk.cut_power(unsynced));
        assert_eq!(read.get(..synced), Some(&appended[..synced]), "seed {seed}");
        assert!(read.iter().all(|frame| appended.contains(frame)), "seed {seed}");
        not_synced += appended.len() - synced;
    }
    assert!(not_synced > 500, "the test must have something to lose: {not_synced}");
}

#[test]
fn a_disk_that_ignores_syncs_loses_frames_so_the_test_above_can_see_loss() {
    let disk = FaultyDisk::new(1);
    disk.set_ignores_syncs(true);
    write_segment(&disk, Path::new(DIRECTORY), &[TestFrame::new(0, 100)], 1);
    assert_eq!(recover(&disk), [TestFrame::new(0, 100)]);
    assert_eq!(recover(&disk.cut_power(Unsynced::Lost)), []);
}

/// Writes frames as the log does: after a failure the frames that are not durable go to a new
/// segment. Returns the number of frames that were called durable.
fn write_with_retries(disk: &FaultyDisk, frames: &[TestFrame], attempts: usize) -> usize {
    let (mut durable, mut writer) = (0, None::<SegmentWriter>);
    for _ in 0..attempts {
        if let Some(failed) = writer.take_if(|writer| writer.is_failed()) {
            failed.abandon();
        }
        let result = (|| {
            if writer.is_none() {
                let header = header(durable as u64);
                let new = SegmentWriter::create(disk, Path::new(DIRECTORY), header, 1 << 16)?;
                writer = Some(new);
            }
            let writer = writer.as_mut().expect("just made");
            for batch in frames[durable..].chunks(2) {
                for frame in batch {
                    writer.append(&frame.as_ref())?;
                }
                writer.sync()?;
                durable += batch.len();
            }
            writer.seal()
        })();
        if result.is_ok() {
            return durable;
        }
    }
    durable
}

#[test]
fn whichever_call_fails_nothing_durable_is_lost_and_the_next_attempt_succeeds() {
    let frames = (0..6).map(|offset| TestFrame::new(offset, 3000)).collect::<Vec<_>>();
    for error in [no_space, input_output, too_many_open_files] {
        for number in 0.. {
            for cut in [false, true] {
                let disk = FaultyDisk::new(number);
                disk.make_directory(Path::new(DIRECTORY));
                disk.reset_counts();
                disk.fail_call(number, error);
                let durable = write_with_retries(&disk, &frames, if cut { 1 } else { 2 });
                disk.clear_fault();
                let disk = if cut { disk.cut_power(Unsynced::Mixed) } else { disk };
                let read = recover(&disk);
                assert!(
                    frames[..durable].iter().all(|frame| read.contains(frame)),
                    "call {number}"
                );
                assert!(read.iter().all(|frame| frames.contains(frame)), "call {number}");
                assert!(cut || durable == frames.len(), "call {number}: {durable} frames");
            }
            let disk = FaultyDisk::new(0);
            disk.make_directory(Path::new(DIRECTORY));
            disk.reset_counts();
            write_with_retries(&disk, &frames, 1);
            if number > disk.counts().total() {
                break;
            }
        }
    }
}

#[test]
fn a_full_disk_shows_when_the_segment_is_made_and_leaves_nothing_behind() {
    let disk = FaultyDisk::new(1);
    disk.make_directory(Path::new(DIRECTORY));
    disk.set_capacity(Some(1 << 20));
    let create =
        |len_bytes| SegmentWriter::create(&disk, Path::new(DIRECTORY), header(0), len_bytes);
    let refused = create(2 << 20).err().unwrap();
    assert!(refused.is_out_of_space(), "{refused}");
    assert_eq!((disk.used_bytes(), disk.contents().len()), (0, 0));
    // Reserved space can be filled to the end on a full disk, footer included.
    let mut writer = create(1 << 20).unwrap();
    let mut frames = Vec::new();
    loop {
        let frame = TestFrame::new(frames.len() as u64, 5000);
        if !writer.fits(&frame.as_ref()) {
            break;
        }
        writer.append(&frame.as_ref()).unwrap();
        if frames.len() % 3 == 0 {
            writer.sync().unwrap();
        }
        frames.push(frame);
    }
    writer.seal().unwrap();
    assert!(frames.len() > 150);
    assert_eq!(recover(&disk.cut_power(Unsynced::Lost)), frames);
}

#[test]
fn no_inodes_and_no_descriptors_are_refusals_that_pass() {
    let disk = FaultyDisk::new(1);
    disk.make_directory(Path::new(DIRECTORY));
    let try_create =
        || SegmentWriter::create(&disk, Path::new(DIRECTORY), header(0), 1 << 16).map(drop);
    disk.set_file_limit(Some(0));
    assert!(try_create().is_err_and(|error| error.is_out_of_space()));
    disk.set_file_limit(None);
    disk.set_open_files_limit(Some(0));
    assert!(try_create().is_err_and(|error| !error.is_out_of_space()));
    disk.set_open_files_limit(None);
    try_create().unwrap();
    assert_eq!(disk.open_files(), 0);
}

#[test]
fn a_segment_that_failed_takes_nothing_more_and_is_not_synced_again() {
    let disk = FaultyDisk::new(1);
    let mut writer = create(&disk, Path::new(DIRECTORY), 0, 1 << 16);
    writer.append(&TestFrame::new(0, 10).as_ref()).unwrap();
    disk.fail_operation(Operation::SyncData, input_output);
    assert!(writer.sync().is_err());
    disk.clear_fault();
    disk.reset_counts();
    assert!(matches!(writer.sync(), Err(FileError::Failed { .. })));
    assert!(matches!(
        writer.append(&TestFrame::new(1, 10).as_ref()),
        Err(FileError::Failed { .. })
    ));
    assert!(matches!(writer.seal(), Err(FileError::Failed { .. })));
    assert_eq!(disk.counts().total(), 0);
    // A second file of this first offset gets another name; both order before the next offset.
    let second = create(&disk, Path::new(DIRECTORY), 0, 1 << 16);
    let third = create(&disk, Path::new(DIRECTORY), 1, 1 << 16);
    assert!(writer.name() < second.name() && second.name() < third.name());
    assert_eq!(second.name().to_string(), "0000000000000000-1.seg");
}

#[test]
fn a_frame_that_is_too_large_for_the_segment_is_refused_and_gets_one_of_its_size() {
    let disk = FaultyDisk::new(1);
    let large = TestFrame::new(0, 300_000);
    let mut writer = create(&disk, Path::new(DIRECTORY), 0, 1 << 16);
    assert!(!writer.fits(&large.as_ref()));
    assert!(matches!(writer.append(&large.as_ref()), Err(FileError::FrameTooLarge { .. })));
    assert!(!writer.is_failed());
    let mut writer =
        create(&disk, Path::new(DIRECTORY), 1, SegmentWriter::len_for(&large.as_ref()));
    writer.append(&large.as_ref()).unwrap();
    writer.seal().unwrap();
    assert_eq!(read_all(&mut open(&disk, writer.path(), ScanOptions::default())).0, [large]);
}

#[test]
fn a_footer_without_the_cut_behind_it_is_no_damage() {
    let disk = FaultyDisk::new(1);
    let mut writer = create(&disk, Path::new(DIRECTORY), 0, 1 << 16);
    let frame = TestFrame::new(0, 10);
    writer.append(&frame.as_ref()).unwrap();
    disk.fail_operation(Operation::SetLen, input_output);
    assert!(writer.seal().is_err());
    disk.clear_fault();
    let (read, damage) = read_all(&mut open(&disk, writer.path(), ScanOptions::default()));
    assert_eq!(read, [frame]);
    assert!(damage.is_none(), "{damage:?}");
}
