//! Every frame of a damaged segment but the damaged one is read back, and the damage is counted.

mod support;

use std::path::Path;

use fastrand::Rng;
use sluice_log::FileError;
use sluice_log::disk::Disk as _;
use sluice_log::format::{BLOCK_LEN_BYTES, FOOTER_LEN_BYTES, SEGMENT_HEADER_LEN_BYTES};
use sluice_log::segment::{ScanOptions, SegmentScan};
use support::faulty_disk::{FaultyDisk, Operation, input_output};
use support::frames::{EPOCH, TestFrame, create, open, read_all, write_segment};

const DIRECTORY: &str = "/log/traces";

/// Payloads of a few lengths around the alignment, two syncs.
fn small_frames() -> Vec<TestFrame> {
    [0, 1, 7, 8, 40, 333]
        .into_iter()
        .enumerate()
        .map(|(offset, len)| TestFrame::new(offset as u64, len))
        .collect()
}

fn small_read_ahead() -> ScanOptions {
    ScanOptions { read_ahead_bytes: 4096, pass_unreadable: false }
}

#[test]
fn what_was_written_is_read_whatever_the_sizes_and_however_short_the_calls() {
    for seed in 0..40 {
        let disk = FaultyDisk::new(seed);
        disk.set_short_calls(true);
        let mut random = Rng::with_seed(seed);
        let frames = (0..random.u64(1..30))
            .map(|offset| {
                let len = if random.u8(0..6) == 0 {
                    random.usize(0..200_000)
                } else {
                    random.usize(0..5000)
                };
                TestFrame::new(offset * 3, len)
            })
            .collect::<Vec<_>>();
        let mut writer = create(&disk, Path::new(DIRECTORY), 0, 8 << 20);
        for frame in &frames {
            writer.append(&frame.as_ref()).unwrap();
            if random.bool() {
                writer.sync().unwrap();
                assert_eq!(writer.durable_end() % BLOCK_LEN_BYTES, 0);
            }
        }
        let is_sealed = random.bool();
        if is_sealed {
            writer.seal().unwrap()
        } else {
            writer.sync().unwrap()
        }
        let options =
            ScanOptions { read_ahead_bytes: random.usize(1..100_000), pass_unreadable: false };
        let mut reader = open(&disk, writer.path(), options);
        let (read, damage) = read_all(&mut reader);
        assert_eq!(read, frames, "seed {seed}");
        assert!(damage.is_none(), "seed {seed}: {damage:?}");
        let footer = reader.info().footer;
        assert_eq!(footer.is_some(), is_sealed);
        if let Some(footer) = footer {
            assert_eq!(footer, writer.totals());
            assert_eq!(
                (footer.frames, footer.last_offset),
                (frames.len() as u64, frames[frames.len() - 1].offset)
            );
            assert_eq!(
                footer.items,
                frames.iter().map(|frame| u64::from(frame.items)).sum::<u64>()
            );
        }
    }
}

#[test]
fn any_flipped_bit_costs_at_most_the_frame_that_it_is_in() {
    let disk = FaultyDisk::new(1);
    let frames = small_frames();
    let mut writer = create(&disk, Path::new(DIRECTORY), 0, 16 << 10);
    for batch in frames.chunks(3) {
        batch.iter().for_each(|frame| assert!(writer.append(&frame.as_ref()).is_ok()));
        writer.sync().unwrap();
    }
    let used_end = writer.durable_end();
    for is_sealed in [false, true] {
        if is_sealed {
            writer.seal().unwrap();
        }
        let end = used_end + if is_sealed { FOOTER_LEN_BYTES } else { BLOCK_LEN_BYTES };
        for bit in 0..end * 8 {
            disk.flip_bit(writer.path(), bit);
            let (read, damage) = read_all(&mut open(&disk, writer.path(), small_read_ahead()));
            let lost = frames.len() - read.len();
            assert!(
                read.iter().all(|frame| frames.contains(frame)),
                "bit {bit}: a frame that was never written"
            );
            assert!(lost <= 1, "bit {bit} cost {lost} frames");
            // A bit that is flipped in the zeros between two frames may be counted, but costs
            // no frame.
            assert!(lost == 0 || damage.frames + damage.regions == 1, "bit {bit}: {damage:?}");
            assert!(damage.frames as usize <= lost, "bit {bit}: {damage:?}");
            disk.flip_bit(writer.path(), bit);
        }
    }
}

/// Overwrites, zeroes, moves or cuts a few ranges of a file.
fn damage_somewhere(bytes: &mut Vec<u8>, random: &mut Rng) {
    for _ in 0..random.usize(1..5) {
        let len = random.usize(1..=bytes.len() / 4);
        let at = random.usize(0..=bytes.len() - len);
        match random.u8(0..5) {
            0 => random.fill(&mut bytes[at..at + len]),
            1 => bytes[at..at + len].fill(0),
            2 => {
                let to = random.usize(0..=(bytes.len() - len) / 8) * 8;
                bytes.copy_within(at..at + len, to);
            }
            3 => bytes[at] = random.u8(..),
            _ => bytes.truncate(bytes.len() - len / 8),
        }
    }
}

#[test]
fn whatever_happens_to_a_file_no_frame_is_made_up_and_every_untouched_one_is_found() {
    let disk = FaultyDisk::new(1);
    let frames = (0..40)
        .map(|offset| TestFrame::new(offset, (offset as usize * 37) % 600))
        .collect::<Vec<_>>();
    let path = write_segment(&disk, Path::new(DIRECTORY), &frames, 5);
    let mut reader = open(&disk, &path, small_read_ahead());
    let mut places = Vec::new();
    while let Some(located) = reader.next_frame().unwrap() {
        places.push(located.position as usize..located.end() as usize);
    }
    let whole = disk.contents().remove(0).1[..64 << 10].to_vec();
    let mut found_after_damage = 0;
    for seed in 0..3000 {
        let mut random = Rng::with_seed(seed);
        let mut bytes = whole.clone();
        damage_somewhere(&mut bytes, &mut random);
        disk.put(&path, &bytes);
        let untouched =
            places.iter().map(|place| bytes.get(place.clone()) == Some(&whole[place.clone()]));
        let untouched = frames
            .iter()
            .zip(untouched)
            .filter(|(_, untouched)| *untouched)
            .map(|(frame, _)| frame);
        let file = disk.open(&path, sluice_log::disk::Access::Read).unwrap();
        let options =
            ScanOptions { read_ahead_bytes: random.usize(1..20_000), pass_unreadable: false };
        let Ok(mut reader) = SegmentScan::open(file, &path, options) else {
            assert_ne!(bytes.get(..4096 + 64), Some(&whole[..4096 + 64]), "seed {seed}");
            continue;
        };
        let (read, damage) = read_all(&mut reader);
        assert!(
            read.iter().all(|frame| frames.contains(frame)),
            "seed {seed}: a frame that was never written"
        );
        let untouched = untouched.collect::<Vec<_>>();
        // Moved bytes form neither a footer nor a header whose body covers other frames: no
        // checksum passes at another position.
        assert!(
            untouched.iter().all(|frame| read.contains(frame)),
            "seed {seed}: an untouched frame is missing"
        );
        found_after_damage += usize::from(!damage.is_none() && !read.is_empty());
    }
    assert!(
        found_after_damage > 1000,
        "{found_after_damage} of the files were damaged and had whole frames"
    );
}

#[test]
fn a_header_block_that_is_gone_costs_no_frame() {
    let disk = FaultyDisk::new(1);
    let frames = small_frames();
    let path = write_segment(&disk, Path::new(DIRECTORY), &frames, 2);
    let mut bytes = disk.contents().remove(0).1;
    bytes[..SEGMENT_HEADER_LEN_BYTES as usize].fill(0xa5);
    disk.put(&path, &bytes);
    assert_eq!(read_all(&mut open(&disk, &path, small_read_ahead())).0, frames);
}

#[test]
fn every_prefix_gives_the_frames_that_are_whole_in_it() {
    let disk = FaultyDisk::new(1);
    let frames = small_frames();
    let path = write_segment(&disk, Path::new(DIRECTORY), &frames, 2);
    let mut reader = open(&disk, &path, small_read_ahead());
    let mut ends = Vec::new();
    while let Some(located) = reader.next_frame().unwrap() {
        ends.push(
            located.position + located.header.header_len_bytes() + located.header.body_len_bytes(),
        );
    }
    let bytes = disk.contents().remove(0).1;
    for len in 0..bytes.len().min(*ends.last().unwrap() as usize + 100) {
        disk.put(&path, &bytes[..len]);
        let file = disk.open(&path, sluice_log::disk::Access::Read).unwrap();
        let whole = ends.iter().filter(|&&end| end <= len as u64).count();
        match SegmentScan::open(file, &path, small_read_ahead()) {
            Ok(mut reader) => assert_eq!(read_all(&mut reader).0, frames[..whole], "{len} bytes"),
            Err(FileError::Unfinished { .. }) => {
                assert!(len < SEGMENT_HEADER_LEN_BYTES as usize, "{len} bytes")
            }
            Err(error) => panic!("{len} bytes: {error}"),
        }
    }
}

#[test]
fn a_payload_cannot_pass_for_frames_even_if_the_header_before_it_is_damaged() {
    let disk = FaultyDisk::new(1);
    // An attacker knows the format but not the epoch, or even has a copy of the whole segment.
    let inner = write_segment(&disk, Path::new("/stolen"), &small_frames(), 2);
    let stolen = disk.contents().remove(0).1;
    let mut foreign = stolen.clone();
    let epoch = EPOCH.to_le_bytes();
    for at in 0..foreign.len() - 8 {
        if foreign[at..at + 8] == epoch {
            foreign[at] ^= 1;
        }
    }
    disk.remove_file(&inner).unwrap();
    for payload in [stolen[..20_000].to_vec(), foreign[..20_000].to_vec()] {
        for shift in 0..8 {
            let mut hostile = TestFrame::new(1, shift);
            hostile.payload.extend_from_slice(&payload);
            let frames = vec![TestFrame::new(0, 50), hostile, TestFrame::new(2, 50)];
            let path = write_segment(&disk, Path::new(DIRECTORY), &frames, 10);
            assert_eq!(read_all(&mut open(&disk, &path, small_read_ahead())).0, frames);
            let mut reader = open(&disk, &path, small_read_ahead());
            reader.next_frame().unwrap();
            let position = reader.next_frame().unwrap().unwrap().position;
            disk.flip_bit(&path, (position + 16) * 8);
            let (read, damage) = read_all(&mut open(&disk, &path, small_read_ahead()));
            assert_eq!(read, [frames[0].clone(), frames[2].clone()], "shift {shift}");
            assert_eq!((damage.frames, damage.regions), (0, 1));
            disk.remove_file(&path).unwrap();
        }
    }
}

#[test]
fn a_block_that_cannot_be_read_is_an_error_or_damage_as_one_asks() {
    let disk = FaultyDisk::new(1);
    let frames = (0..20).map(|offset| TestFrame::new(offset, 1000)).collect::<Vec<_>>();
    let path = write_segment(&disk, Path::new(DIRECTORY), &frames, 100);
    let mut reader = open(&disk, &path, ScanOptions::default());
    disk.fail_operation(Operation::Read, input_output);
    assert!(reader.next_frame().is_err());
    disk.clear_fault();
    assert_eq!(read_all(&mut reader).0, frames, "the call can be repeated");

    let options = ScanOptions { pass_unreadable: true, ..ScanOptions::default() };
    let mut reader = open(&disk, &path, options);
    // The block stays bad: a block that is refused once is read again.
    disk.set_unreadable(".seg", 2 * BLOCK_LEN_BYTES..3 * BLOCK_LEN_BYTES);
    let (read, damage) = read_all(&mut reader);
    assert!((15..20).contains(&read.len()), "{} frames", read.len());
    assert!(read.iter().all(|frame| frames.contains(frame)));
    assert!(damage.frames + damage.regions >= 1);
}

#[test]
fn a_header_block_that_cannot_be_read_costs_no_frame() {
    let disk = FaultyDisk::new(1);
    let frames = small_frames();
    let path = write_segment(&disk, Path::new(DIRECTORY), &frames, 2);
    let mut reads = 0;
    // The read of the first two blocks fails, and then the read of the first one alone.
    disk.set_fault(move |call| {
        let is_read = call.operation == Operation::Read;
        reads += u64::from(is_read);
        (is_read && reads <= 2).then(input_output)
    });
    let options = ScanOptions { pass_unreadable: true, ..ScanOptions::default() };
    assert_eq!(read_all(&mut open(&disk, &path, options)).0, frames);
}

#[test]
fn the_next_header_is_found_wherever_what_was_read_so_far_ends() {
    let disk = FaultyDisk::new(1);
    // The second frame begins around the end of the first read.
    for len in 3900..4050 {
        let frames = [TestFrame::new(0, len), TestFrame::new(1, 10)];
        let path = write_segment(&disk, Path::new(DIRECTORY), &frames, 2);
        disk.flip_bit(&path, (SEGMENT_HEADER_LEN_BYTES + 20) * 8);
        let (read, damage) = read_all(&mut open(&disk, &path, small_read_ahead()));
        assert_eq!(read, frames[1..], "{len} bytes");
        assert_eq!((damage.frames, damage.regions), (0, 1));
        disk.remove_file(&path).unwrap();
    }
}

#[test]
fn headers_are_walked_without_reading_large_payloads() {
    let disk = FaultyDisk::new(1);
    let frames = (0..10).map(|offset| TestFrame::new(offset, 90_000)).collect::<Vec<_>>();
    let mut writer = create(&disk, Path::new(DIRECTORY), 0, 1 << 20);
    frames.iter().for_each(|frame| assert!(writer.append(&frame.as_ref()).is_ok()));
    writer.sync().unwrap();
    let mut reader = open(&disk, writer.path(), small_read_ahead());
    reader.set_end(writer.durable_end());
    disk.reset_counts();
    let mut offsets = Vec::new();
    while let Some(located) = reader.next_frame().unwrap() {
        offsets.push(located.header.offset);
        assert_eq!(reader.readers(), frames[located.header.offset as usize].readers);
    }
    assert_eq!(offsets, (0..10).collect::<Vec<_>>());
    assert!(disk.counts().read_bytes <= 60_000, "{}", disk.counts().read_bytes);
}

#[test]
fn reading_goes_on_where_it_stopped_while_the_segment_grows() {
    let disk = FaultyDisk::new(1);
    let frames = small_frames();
    let mut writer = create(&disk, Path::new(DIRECTORY), 0, 64 << 10);
    let mut reader = open(&disk, writer.path(), small_read_ahead());
    let mut read = Vec::new();
    for frame in &frames {
        reader.set_end(writer.durable_end());
        assert_eq!(reader.next_frame().unwrap(), None);
        writer.append(&frame.as_ref()).unwrap();
        writer.sync().unwrap();
        reader.set_end(writer.durable_end());
        read.extend(read_all(&mut reader).0);
    }
    assert_eq!(read, frames);
    assert!(reader.damage().is_none());
}

/// Scenario: a frame is overwritten with zeros, in a file that was sealed or not. Guarantee: zeros
/// within a block before another frame count as damage, since padding ends with its block.
#[test]
fn zeros_between_frames_of_a_sync_are_damage() {
    for is_sealed in [false, true] {
        let disk = FaultyDisk::new(1);
        let frames = small_frames();
        let mut writer = create(&disk, Path::new(DIRECTORY), 0, 64 << 10);
        frames.iter().for_each(|frame| assert!(writer.append(&frame.as_ref()).is_ok()));
        if is_sealed {
            writer.seal().unwrap()
        } else {
            writer.sync().unwrap()
        }
        let whole = disk.contents().remove(0).1;
        let mut position = SEGMENT_HEADER_LEN_BYTES as usize;
        for (index, frame) in frames.iter().enumerate() {
            let end = position + frame.as_ref().frame_len_bytes() as usize;
            let mut bytes = whole.clone();
            bytes[position..end].fill(0);
            disk.put(writer.path(), &bytes);
            let (read, damage) = read_all(&mut open(&disk, writer.path(), small_read_ahead()));
            assert_eq!(read.len(), frames.len() - 1);
            // Behind the last frame, zeros are padding, unless the footer tells of a frame there.
            let is_damage = index + 1 < frames.len() || is_sealed;
            assert_eq!((damage.frames, damage.regions), (0, u64::from(is_damage)), "{index}");
            position = end;
        }
    }
}

/// Scenario: a file was not cut behind its footer, and the header of the last frame before it is
/// damaged. Guarantee: that is damage; without it there is none.
#[test]
fn a_damaged_frame_before_a_footer_that_was_not_cut_is_seen() {
    let disk = FaultyDisk::new(1);
    let frames = small_frames();
    let mut writer = create(&disk, Path::new(DIRECTORY), 0, 64 << 10);
    frames.iter().for_each(|frame| assert!(writer.append(&frame.as_ref()).is_ok()));
    disk.fail_operation(Operation::SetLen, input_output);
    assert!(writer.seal().is_err());
    disk.clear_fault();
    let mut reader = open(&disk, writer.path(), small_read_ahead());
    let mut last = 0;
    while let Some(located) = reader.next_frame().unwrap() {
        last = located.position;
    }
    assert!(reader.damage().is_none());
    disk.flip_bit(writer.path(), (last + 20) * 8);
    let (read, damage) = read_all(&mut open(&disk, writer.path(), small_read_ahead()));
    assert_eq!((read.len(), damage.regions), (frames.len() - 1, 1));
}
