//! Appends frames to a new segment file.
//!
//! Invariants: each sync starts at a block without durable bytes, so that a torn write damages none
//! of them; after a failed write or sync the file is never touched again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::list_segments;
use crate::disk::{ALIGNMENT_BYTES, AlignedBuffer, Disk, DiskFile, remove_if_there, write_all_at};
use crate::error::{FileError, IoContext as _, Result};
use crate::format::{
    BLOCK_LEN_BYTES, FOOTER_LEN_BYTES, FRAME_ALIGNMENT_BYTES, Footer, FrameRef,
    SEGMENT_HEADER_LEN_BYTES, SegmentHeader, SegmentName, encode_frame_header,
};

/// Frames are collected up to this many bytes, so that a slow disk has much to do at a time. A
/// quarter of it gives a fast disk nine tenths of its bandwidth.
const BUFFER_LEN_BYTES: usize = 4 << 20;

// The writer hands over whole blocks that start at a block.
const _: () = assert!(BLOCK_LEN_BYTES.is_multiple_of(ALIGNMENT_BYTES as u64));

/// An open segment at its end.
pub struct SegmentWriter {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    name: SegmentName,
    header: SegmentHeader,
    len_bytes: u64,
    /// Position of the next frame: the end of all frames that were appended.
    end: u64,
    /// Position of the buffered bytes: the end of a block.
    buffer_position: u64,
    buffer: AlignedBuffer,
    /// Header of the frame that is being appended; kept for its memory.
    frame_header: Vec<u8>,
    durable_end: u64,
    totals: Footer,
    durable_totals: Footer,
    failed: bool,
}

impl SegmentWriter {
    /// Creates a file in a directory that exists. Its name gets an attempt above all that are
    /// there: of the files of one offset a start reads only the last one. `len_bytes` are reserved;
    /// the directory entry and `header`, whose epoch has to be random, are durable. So a file with
    /// frames and without a header is damaged; one of zeros only is unfinished. After an error the
    /// file is removed.
    pub fn create(
        disk: &dyn Disk,
        directory: &Path,
        header: SegmentHeader,
        len_bytes: u64,
    ) -> Result<Self> {
        Self::create_or_leave(disk, directory, header, len_bytes, &mut Vec::new())
    }

    /// The same. A file that cannot be removed after an error is added to `left`.
    pub(crate) fn create_or_leave(
        disk: &dyn Disk,
        directory: &Path,
        header: SegmentHeader,
        len_bytes: u64,
        left: &mut Vec<PathBuf>,
    ) -> Result<Self> {
        let first_offset = header.first_offset;
        let there = list_segments(disk, directory)?.into_iter().map(|(name, _)| name);
        let attempts = there.filter(|name| name.first_offset == first_offset);
        let attempt = attempts.map(|name| name.attempt + 1).max().unwrap_or(0);
        let mut name = SegmentName { first_offset, attempt };
        let (path, file) = loop {
            let path = directory.join(name.to_string());
            match disk.create_new(&path) {
                Ok(file) => break (path, file),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => name.attempt += 1,
                Err(error) => return Err(error).at(&path, "cannot create"),
            }
        };
        let len_bytes = len_bytes
            .next_multiple_of(BLOCK_LEN_BYTES)
            .max(SEGMENT_HEADER_LEN_BYTES + 2 * BLOCK_LEN_BYTES);
        let prepare = || {
            file.allocate(len_bytes).at(&path, "cannot reserve space")?;
            write_all_at(&*file, &header.encode(), 0).at(&path, "cannot write the header")?;
            file.sync_data().at(&path, "cannot sync the header")?;
            disk.sync_directory(directory).at(directory, "cannot sync the directory")
        };
        if let Err(error) = prepare() {
            // Best effort: an unfinished file is passed over and removed at the next start.
            drop(file);
            if remove_if_there(disk, &path).is_err() {
                left.push(path);
            }
            return Err(error);
        }
        Ok(SegmentWriter {
            file,
            path,
            name,
            header,
            len_bytes,
            end: SEGMENT_HEADER_LEN_BYTES,
            buffer_position: SEGMENT_HEADER_LEN_BYTES,
            buffer: AlignedBuffer::new(BUFFER_LEN_BYTES),
            frame_header: Vec::new(),
            durable_end: SEGMENT_HEADER_LEN_BYTES,
            totals: Footer::default(),
            durable_totals: Footer::default(),
            failed: false,
        })
    }

    /// Length that a segment needs to take at least this one frame.
    pub fn len_for(frame: &FrameRef<'_>) -> u64 {
        let least_bytes = SEGMENT_HEADER_LEN_BYTES + frame.frame_len_bytes();
        least_bytes.next_multiple_of(BLOCK_LEN_BYTES) + BLOCK_LEN_BYTES
    }

    /// True if the frame fits. The last block is reserved for the footer.
    pub fn fits(&self, frame: &FrameRef<'_>) -> bool {
        self.end + frame.frame_len_bytes() + BLOCK_LEN_BYTES <= self.len_bytes
    }

    /// Appends a frame, which must fit; returns its position. It is not durable, and may not be
    /// readable, before [`SegmentWriter::sync`].
    pub fn append(&mut self, frame: &FrameRef<'_>) -> Result<u64> {
        self.refuse_if_failed()?;
        if !frame.is_within_limits() || !self.fits(frame) {
            let body_bytes = frame.metadata.len() + frame.payload.len();
            return Err(FileError::FrameTooLarge { body_bytes, readers: frame.readers.len() });
        }
        let position = self.end;
        let mut frame_header = std::mem::take(&mut self.frame_header);
        frame_header.clear();
        encode_frame_header(frame, self.header.epoch, position, &mut frame_header);
        let len_bytes = frame.frame_len_bytes();
        let padding_len = len_bytes as usize - frame.unpadded_len();
        let padding = &[0; FRAME_ALIGNMENT_BYTES as usize][..padding_len];
        for part in [&frame_header, frame.metadata, frame.payload, padding] {
            self.put(part)?;
        }
        self.frame_header = frame_header;
        self.end = position + len_bytes;
        self.totals.count(frame.offset, frame.charge);
        Ok(position)
    }

    /// Makes the appended frames durable. The next frame begins in a new block.
    pub fn sync(&mut self) -> Result<()> {
        self.refuse_if_failed()?;
        if self.end == self.durable_end {
            return Ok(());
        }
        // The rest of the block stays zeros.
        self.buffer.fill_block();
        self.write_out()?;
        self.checked(self.file.sync_data(), "cannot sync")?;
        self.check_place()?;
        self.end = self.end.next_multiple_of(BLOCK_LEN_BYTES);
        (self.durable_end, self.durable_totals) = (self.end, self.totals);
        Ok(())
    }

    /// A start does not find what is in a file that has gone from its path, or that was cut.
    fn check_place(&mut self) -> Result<()> {
        if !self.checked(self.file.is_at(&self.path), "cannot look at")? {
            self.failed = true;
            return Err(FileError::Removed { path: self.path.clone() });
        }
        if self.checked(self.file.len_bytes(), "cannot look at")? < self.len_bytes {
            self.failed = true;
            return Err(FileError::Cut { path: self.path.clone() });
        }
        Ok(())
    }

    /// Frees the buffer until the next frame. Frames that were not synced are lost.
    pub fn release_buffer(&mut self) {
        self.buffer = AlignedBuffer::new(BUFFER_LEN_BYTES);
    }

    /// Syncs, appends the footer and frees the space behind it. The footer is not synced: a segment
    /// without one is scanned. After an error the frames before [`SegmentWriter::durable_end`] are
    /// durable all the same.
    pub fn seal(&mut self) -> Result<()> {
        self.sync()?;
        let footer = self.totals.encode(self.header.epoch, self.end);
        let end = self.end + FOOTER_LEN_BYTES;
        self.checked(write_all_at(&*self.file, &footer, self.end), "cannot write the footer")?;
        self.checked(self.file.set_len(end), "cannot truncate")?;
        self.len_bytes = end;
        Ok(())
    }

    /// For a segment that failed: cuts the file behind its durable frames. The other frames are
    /// written elsewhere and must not come back here. Best effort: the same offset twice is the
    /// same frame. False if the disk refused.
    pub fn abandon(self) -> bool {
        self.file.set_len(self.durable_end).is_ok()
    }

    /// Everything before this position is durable and may be read.
    pub fn durable_end(&self) -> u64 {
        self.durable_end
    }

    /// Totals of all frames that were appended.
    pub fn totals(&self) -> Footer {
        self.totals
    }

    /// Totals of the durable frames.
    pub fn durable_totals(&self) -> Footer {
        self.durable_totals
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn name(&self) -> SegmentName {
        self.name
    }

    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// Bytes that the file takes on disk.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// True after a failed write or sync.
    pub fn is_failed(&self) -> bool {
        self.failed
    }

    /// Collects bytes. Writes the buffer to the disk when it is full.
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let mut rest = self.buffer.append(bytes);
        while !rest.is_empty() {
            self.write_out()?;
            rest = self.buffer.append(rest);
        }
        Ok(())
    }

    /// Writes the buffer, which ends with a block, to the disk.
    fn write_out(&mut self) -> Result<()> {
        let written = write_all_at(&*self.file, self.buffer.bytes(), self.buffer_position);
        self.checked(written, "cannot write")?;
        self.buffer_position += self.buffer.bytes().len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn checked<A>(&mut self, result: io::Result<A>, action: &'static str) -> Result<A> {
        self.failed |= result.is_err();
        result.at(&self.path, action)
    }

    fn refuse_if_failed(&self) -> Result<()> {
        if self.failed { Err(FileError::Failed { path: self.path.clone() }) } else { Ok(()) }
    }
}
