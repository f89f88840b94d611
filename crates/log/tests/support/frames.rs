//! Frames and segments for tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_log::disk::{Access, Disk, create_directories, sync_above};
use sluice_log::format::{FileKind, FrameRef, SegmentHeader, VERSION};
use sluice_log::segment::{Damage, Located, ScanOptions, SegmentScan, SegmentWriter};
use sluice_log::{Charge, RecordFacts, StoredRecord};

pub const EPOCH: u64 = 0x005e_ed0f_e90c_4000_u64;

/// A frame as it is expected to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestFrame {
    pub offset: u64,
    pub items: u32,
    pub readers: Vec<u32>,
    pub metadata: Vec<u8>,
    pub payload: Vec<u8>,
}

impl TestFrame {
    pub fn new(offset: u64, payload_len: usize) -> Self {
        let payload =
            (0..payload_len).map(|index| (index as u64 * 31 + offset * 7 + 1) as u8).collect();
        let metadata = format!("peer of {offset}").into_bytes();
        TestFrame {
            offset,
            items: offset as u32 + 1,
            readers: vec![1, 2 + offset as u32 % 3],
            metadata,
            payload,
        }
    }

    pub fn as_ref(&self) -> FrameRef<'_> {
        FrameRef {
            offset: self.offset,
            facts: RecordFacts {
                received_unix_ns: 1_700_000_000_000_000_000 + self.offset,
                encoding: 1,
                flags: 0,
                uncompressed_len_bytes: 2 * self.payload.len() as u32,
            },
            charge: Charge { bytes: self.payload.len() as u64 + 100, items: u64::from(self.items) },
            is_taken: self.offset.is_multiple_of(2),
            readers: &self.readers,
            metadata: &self.metadata,
            payload: &self.payload,
        }
    }

    pub fn from_read(located: &Located, readers: &[u32], body: StoredRecord) -> Self {
        TestFrame {
            offset: located.header.offset,
            items: located.header.charge.items as u32,
            readers: readers.to_vec(),
            metadata: body.metadata.to_vec(),
            payload: body.payload.to_vec(),
        }
    }
}

pub fn header(first_offset: u64) -> SegmentHeader {
    SegmentHeader {
        version: VERSION,
        kind: FileKind::Log,
        log_id: 77,
        epoch: EPOCH,
        first_offset,
        created_unix_ns: 1_700_000_000_000_000_000,
        name: "traces".to_owned(),
    }
}

pub fn create(
    disk: &dyn Disk,
    directory: &Path,
    first_offset: u64,
    len_bytes: u64,
) -> SegmentWriter {
    create_directories(disk, directory).expect("a directory");
    sync_above(disk, directory).expect("synced");
    SegmentWriter::create(disk, directory, header(first_offset), len_bytes).expect("a segment")
}

/// Writes a segment with a sync after every `sync_every` frames and at the end; returns its path.
pub fn write_segment(
    disk: &dyn Disk,
    directory: &Path,
    frames: &[TestFrame],
    sync_every: usize,
) -> PathBuf {
    let mut writer = create(disk, directory, 0, 1 << 20);
    for batch in frames.chunks(sync_every) {
        for frame in batch {
            writer.append(&frame.as_ref()).expect("appended");
        }
        writer.sync().expect("synced");
    }
    writer.path().to_owned()
}

pub fn open(disk: &dyn Disk, path: &Path, options: ScanOptions) -> SegmentScan {
    let file = disk.open(path, Access::Read).expect("opened");
    SegmentScan::open(Arc::clone(&file), path, options).expect("a segment")
}

/// Every whole frame, and the damage.
pub fn read_all(reader: &mut SegmentScan) -> (Vec<TestFrame>, Damage) {
    let mut frames = Vec::new();
    while let Some(located) = reader.next_frame().expect("read") {
        if let Some(body) = reader.body().expect("read") {
            frames.push(TestFrame::from_read(&located, reader.readers(), body));
        }
    }
    (frames, reader.damage())
}
