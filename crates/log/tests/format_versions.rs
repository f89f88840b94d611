//! Files of older versions, as a release wrote them, are read. Files of a newer version are refused
//! and left as they are.
//!
//! The fixtures are never written again: `write_fixtures` (ignored) made them, and a new version of
//! the format gets new ones. Version 1.1 changed cursors only.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sluice_log::cursors::{CursorFile, file_name};
use sluice_log::dead_letters::{DeadLetter, DeadLetterScan, DeadLetters, directory_of};
use sluice_log::disk::{Disk, RealDisk, create_directories};
use sluice_log::format::{CursorState, DroppedRange, FileKind, Refusal, VERSION, Version};
use sluice_log::inspect::verify;
use sluice_log::segment::{ScanOptions, SegmentScan};
use sluice_log::{FileError, Holding, RecordFacts};
use support::faulty_disk::{FaultyDisk, Operation};
use support::frames::{EPOCH, TestFrame, create, open, read_all};

const DELIVERY: &str = "traces/otlp_grpc/backend";

/// The cursor of a version.
fn cursor_path(version: &str) -> PathBuf {
    fixtures(version).join("traces/cursors/traces%2fotlp_grpc%2fbackend.cursor")
}

fn fixtures(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(version)
}

fn frames() -> Vec<TestFrame> {
    (0..5).map(|index| TestFrame::new(100 + 3 * index, 50 * index as usize)).collect()
}

fn cursor_state() -> CursorState {
    CursorState {
        id: 2,
        name: DELIVERY.to_owned(),
        log_id: 77,
        floor: 103,
        resolved: vec![(106, 107), (112, 113)],
        untaken: vec![(92, 95), (106, 107)],
        head: 113,
        held: Holding { frames: 2, items: 214, bytes: 350 },
        dropped: Holding { frames: 1, items: 101, bytes: 100 },
        dropped_ranges: vec![DroppedRange {
            start: 90,
            end: 101,
            dropped: Holding { frames: 1, items: 101, bytes: 100 },
            dropped_unix_ns: 1_700_000_000_000_000_001,
        }],
        written_unix_ns: 1_700_000_000_000_000_002,
    }
}

fn refusal() -> Refusal {
    Refusal {
        refused_unix_ns: 1_700_000_000_000_000_003,
        code: 400,
        reason: "field 7 has the wrong type".to_owned(),
    }
}

#[test]
#[ignore = "made the fixtures; for a new version give it a new directory"]
fn write_fixtures() {
    let directory = fixtures("version-1.1").join("traces");
    let mut writer = create(&RealDisk, &directory, 100, 1 << 14);
    frames()[..3].iter().for_each(|frame| assert!(writer.append(&frame.as_ref()).is_ok()));
    writer.seal().unwrap();
    let mut writer = create(&RealDisk, &directory, 109, 1 << 14);
    frames()[3..].iter().for_each(|frame| assert!(writer.append(&frame.as_ref()).is_ok()));
    writer.sync().unwrap();
    let cursors = directory.join("cursors");
    create_directories(&RealDisk, &cursors).unwrap();
    let state = cursor_state();
    CursorFile::create(&RealDisk, &cursors.join(file_name(&state.name)), &state).unwrap();
    let mut letters = DeadLetters::open(Arc::new(RealDisk), &directory, DELIVERY, 1 << 20).unwrap();
    let letter = DeadLetter {
        refusal: refusal(),
        facts: RecordFacts {
            received_unix_ns: 1_700_000_000_000_000_000,
            encoding: 1,
            flags: 0,
            uncompressed_len_bytes: 8,
        },
        items: 4,
        metadata: b"peer".to_vec(),
        payload: Bytes::from_static(b"refused"),
    };
    letters.append(&[letter]).unwrap();
    // Reserved space is cut off, as a restart does.
    drop(letters);
    DeadLetters::open(Arc::new(RealDisk), &directory, DELIVERY, 1 << 20).unwrap();
}

#[test]
fn segments_of_version_1_are_read() {
    let directory = fixtures("version-1").join("traces");
    let mut sealed =
        open(&RealDisk, &directory.join("0000000000000064.seg"), ScanOptions::default());
    let mut unsealed =
        open(&RealDisk, &directory.join("000000000000006d.seg"), ScanOptions::default());
    let header = &sealed.info().header;
    assert_eq!((header.version, header.kind), (Version { major: 1, minor: 0 }, FileKind::Log));
    assert_eq!((header.log_id, header.epoch, header.first_offset), (77, EPOCH, 100));
    assert_eq!(header.name, "traces");
    let footer = sealed.info().footer.unwrap();
    assert_eq!((footer.frames, footer.first_offset, footer.last_offset), (3, 100, 106));
    assert_eq!(unsealed.info().footer, None);
    let mut read = read_all(&mut sealed).0;
    read.extend(read_all(&mut unsealed).0);
    assert_eq!(read, frames());
}

#[test]
fn readers_and_dead_letters_of_version_1_are_read() {
    let directory = fixtures("version-1").join("traces");
    // Version 1.0 stored no untaken ranges but the dropped ones.
    let expected = CursorState { untaken: vec![(90, 101)], ..cursor_state() };
    assert_eq!(CursorFile::read(&RealDisk, &cursor_path("version-1")).unwrap(), expected);
    assert_eq!(CursorFile::read(&RealDisk, &cursor_path("version-1.1")).unwrap(), cursor_state());
    let mut letters =
        DeadLetterScan::open(Arc::new(RealDisk), &directory_of(&directory, DELIVERY), 0).unwrap();
    let (letter, refused) = letters.next_letter().unwrap().unwrap();
    assert_eq!((letter.offset, refused, &letter.payload[..]), (0, refusal(), &b"refused"[..]));
    assert_eq!(letters.next_letter().unwrap(), None);
    let verification = verify(&RealDisk, &fixtures("version-1"), &mut |_, _| {}).unwrap();
    assert!(verification.findings.is_empty(), "{:?}", verification.findings);
    assert_eq!(verification.frames, 6);
}

/// Gives a file another version, with a checksum that fits.
fn with_version(bytes: &[u8], version: Version, magics: &[(usize, usize, usize)]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for &(start, len, checksum_at) in magics {
        bytes[start + 8..start + 10].copy_from_slice(&version.major.to_le_bytes());
        bytes[start + 10..start + 12].copy_from_slice(&version.minor.to_le_bytes());
        let before = crc32c::crc32c(&bytes[start..start + checksum_at]);
        let checksum = crc32c::crc32c_append(before, &bytes[start + checksum_at + 4..start + len]);
        bytes[start + checksum_at..start + checksum_at + 4]
            .copy_from_slice(&checksum.to_le_bytes());
    }
    bytes
}

const NEWER: Version = Version { major: VERSION.major + 1, minor: 0 };
const MORE: Version = Version { major: VERSION.major, minor: VERSION.minor + 1 };

#[test]
fn a_segment_of_a_newer_version_is_refused_and_left_as_it_is() {
    let bytes = fs::read(fixtures("version-1").join("traces/0000000000000064.seg")).unwrap();
    let copies = [(0, 128, 124), (2048, 128, 124)];
    let disk = FaultyDisk::new(1);
    let path = Path::new("/0000000000000064.seg");
    let open = |version| {
        disk.put(path, &with_version(&bytes, version, &copies));
        let file = disk.open(path, sluice_log::disk::Access::ReadWrite).unwrap();
        SegmentScan::open(file, path, ScanOptions::default())
    };
    let Err(FileError::NewerVersion { path: refused, found }) = open(NEWER) else {
        panic!("not refused")
    };
    assert_eq!((refused.as_path(), found), (path, NEWER));
    assert_eq!((disk.counts().of(Operation::Write), disk.counts().of(Operation::SetLen)), (0, 0));
    // A higher minor version only adds parts that older code may skip.
    assert_eq!(read_all(&mut open(MORE).unwrap()).0, frames()[..3]);
}

#[test]
fn a_cursor_of_a_newer_version_is_refused_and_left_as_it_is() {
    let bytes = fs::read(cursor_path("version-1.1")).unwrap();
    let len = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let disk = FaultyDisk::new(1);
    let path = Path::new("/a.cursor");
    let read = |version, slots: &[(usize, usize, usize)]| {
        disk.put(path, &with_version(&bytes, version, slots));
        CursorFile::open(&disk, path).map(|(_, state)| state)
    };
    let (first, second) = ((0, len, 16), (32 << 10, len, 16));
    // One slot of the newer version is enough: the newer release had the file.
    for slots in [&[first, second][..], &[first], &[second]] {
        assert!(matches!(read(NEWER, slots), Err(FileError::NewerVersion { found: NEWER, .. })));
    }
    assert_eq!(disk.counts().of(Operation::Write), 0);
    assert_eq!(read(MORE, &[first, second]).unwrap(), cursor_state());
}
