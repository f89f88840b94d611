use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

#[test]
fn names_order_as_their_frames_and_have_one_spelling() {
    let names = [(0, 0), (0, 1), (0, 10), (9, 0), (255, 2), (u64::MAX, u32::MAX)]
        .map(|(first_offset, attempt)| SegmentName { first_offset, attempt });
    assert!(names.is_sorted());
    for name in names {
        assert_eq!(SegmentName::parse(&name.to_string()), Some(name));
    }
    assert_eq!(names[4].to_string(), "00000000000000ff-2.seg");
    for foreign in [
        "0.seg",
        "00000000000000FF.seg",
        "00000000000000ff-0.seg",
        "00000000000000ff-02.seg",
        "lock",
    ] {
        assert_eq!(SegmentName::parse(foreign), None, "{foreign}");
    }
}

#[test]
fn a_file_that_was_set_aside_is_known_by_its_name() {
    for before in ["00000000000000ff-2.seg", "a.cursor", "x.damaged.cursor", "x.damaged"] {
        for aside in names_aside(before).take(3) {
            assert_eq!(name_before(&aside), Some(before));
        }
    }
    for other in ["a.cursor", "x.damaged.cursor", "a.seg.damaged-x", "a.seg.damaged-", ".damaged"] {
        assert_eq!(name_before(other), None, "{other}");
    }
}

const BLOCK: usize = BLOCK_LEN_BYTES as usize;

/// A file of sevens that is refused for this many reads. One block of it stays bad.
struct Away {
    reads: AtomicUsize,
    bad: Range<u64>,
}

impl DiskFile for Away {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let is_away = self
            .reads
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if is_away.is_ok() || self.bad.contains(&position) {
            return Err(io::Error::other("refused"));
        }
        buffer.fill(7);
        Ok(buffer.len())
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(16 * BLOCK_LEN_BYTES)
    }

    fn is_at(&self, _: &Path) -> io::Result<bool> {
        Ok(true)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        unreachable!("it is read only")
    }

    fn sync_data(&self) -> io::Result<()> {
        unreachable!("it is read only")
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        unreachable!("it is read only")
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        unreachable!("it is read only")
    }
}

/// Scenario: a disk comes back while a file is read by the block, and one block stays bad.
/// Guarantee: that block alone counts as bad.
#[test]
fn of_a_disk_that_comes_back_only_what_stays_bad_is_passed() {
    for away_for in [0, 1, 5, 12] {
        let bad = 3 * BLOCK_LEN_BYTES..4 * BLOCK_LEN_BYTES;
        let file = Away { reads: AtomicUsize::new(1 + away_for), bad };
        let mut buffer = vec![0; 16 * BLOCK];
        let mut reads = Reads::new(Arc::new(file), BadBlocks::new(true));
        let read = reads.read(&mut buffer, 0).expect("bad blocks are few");
        assert_eq!(read, buffer.len());
        let blocks: Vec<u8> = buffer.chunks(BLOCK).map(|block| block[0]).collect();
        let expected: Vec<u8> = (0..16).map(|block| if block == 3 { 0xff } else { 7 }).collect();
        assert_eq!(blocks, expected, "away for {away_for} blocks");
        assert!(reads.last_error.is_some());
    }
}
