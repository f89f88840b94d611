//! Appends frames to a new segment file.
//!
//! Invariants: what is synced together starts at a block that nothing durable is in, so that a torn write cannot damage it;
//! after a failed write or sync the file is never touched again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{SegmentError, SegmentName};
use crate::disk::{Disk, DiskFile, write_all_at, write_all_vectored_at};
use crate::format::{
    BLOCK_LEN_BYTES, FOOTER_LEN_BYTES, Footer, FrameRef, SEGMENT_HEADER_LEN_BYTES, SegmentHeader, align_up,
    encode_frame_header,
};

/// Frames are collected up to this many bytes before they are handed to the disk.
const BUFFER_LEN_BYTES: usize = 1 << 20;
/// A payload of at least this length is written from where it is instead of being copied.
const COPY_LIMIT_BYTES: usize = 64 << 10;

/// What a new segment is made from.
#[derive(Clone, Debug)]
pub struct NewSegment<'a> {
    /// Directory of the log, which exists.
    pub directory: &'a Path,
    /// The first offset in it is the file's name. A random epoch.
    pub header: SegmentHeader,
    /// Length that is reserved on disk.
    pub len_bytes: u64,
}

/// An open segment at its end.
pub struct SegmentWriter {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    name: SegmentName,
    header: SegmentHeader,
    len_bytes: u64,
    /// Where the next frame begins: the end of all that was appended.
    end: u64,
    /// Where the buffered bytes belong: the end of what was handed to the disk.
    buffer_position: u64,
    buffer: Vec<u8>,
    durable_end: u64,
    totals: Footer,
    failed: bool,
}

impl SegmentWriter {
    /// Creates a file whose directory entry is durable, reserves its space and writes its header, which the first sync makes durable
    /// with the first frames: before that the file is an unfinished one. If a file of this first offset exists, the name gets the next
    /// free attempt. What was begun is removed after an error.
    pub fn create(disk: &dyn Disk, new: NewSegment<'_>) -> Result<Self, SegmentError> {
        let mut name = SegmentName { first_offset: new.header.first_offset, attempt: 0 };
        let (path, file) = loop {
            let path = new.directory.join(name.to_string());
            match disk.create_new(&path) {
                Ok(file) => break (path, file),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => name = name.next_attempt(),
                Err(error) => return Err(SegmentError::io(&path, "cannot create")(error)),
            }
        };
        let len_bytes = align_up(new.len_bytes, BLOCK_LEN_BYTES).max(SEGMENT_HEADER_LEN_BYTES + 2 * BLOCK_LEN_BYTES);
        let prepared = prepare(disk, &*file, &path, &new, len_bytes);
        if let Err(error) = prepared {
            // Best effort: an unfinished file is passed over and removed at the next start.
            drop(file);
            let _ = disk.remove_file(&path);
            return Err(error);
        }
        Ok(SegmentWriter {
            file,
            path,
            name,
            header: new.header,
            len_bytes,
            end: SEGMENT_HEADER_LEN_BYTES,
            buffer_position: SEGMENT_HEADER_LEN_BYTES,
            buffer: Vec::new(),
            durable_end: SEGMENT_HEADER_LEN_BYTES,
            totals: Footer::default(),
            failed: false,
        })
    }

    /// Length that a segment needs to take at least this one frame.
    pub fn len_for(frame: &FrameRef<'_>) -> u64 {
        align_up(SEGMENT_HEADER_LEN_BYTES + frame.frame_len_bytes(), BLOCK_LEN_BYTES) + BLOCK_LEN_BYTES
    }

    /// True if the frame has room within the reserved space, of which the last block is kept for the footer.
    pub fn fits(&self, frame: &FrameRef<'_>) -> bool {
        self.end + frame.frame_len_bytes() + BLOCK_LEN_BYTES <= self.len_bytes
    }

    /// Appends a frame, which must fit; returns where it begins. It is not durable before [`SegmentWriter::sync`], and may not be
    /// readable before either.
    pub fn append(&mut self, frame: &FrameRef<'_>) -> Result<u64, SegmentError> {
        self.refuse_if_failed()?;
        if !frame.is_within_limits() || !self.fits(frame) {
            let body_bytes = frame.metadata.len() + frame.payload.len();
            return Err(SegmentError::FrameTooLarge { body_bytes, readers: frame.readers.len() });
        }
        let position = self.end;
        encode_frame_header(frame, self.header.epoch, position, &mut self.buffer);
        self.buffer.extend_from_slice(frame.metadata);
        let padding = [0; 8];
        let unaligned = FrameLen::of(frame);
        if frame.payload.len() >= COPY_LIMIT_BYTES {
            self.write_ahead(&[frame.payload])?;
        } else {
            self.buffer.extend_from_slice(frame.payload);
        }
        self.buffer.extend_from_slice(&padding[..unaligned.padding]);
        self.end = position + unaligned.whole;
        self.totals.count(frame.offset, frame.items, frame.charge_bytes);
        if self.buffer.len() >= BUFFER_LEN_BYTES {
            self.write_ahead(&[])?;
        }
        Ok(position)
    }

    /// Makes everything that was appended durable. The next frame begins in a new block. Does nothing if all is durable already.
    pub fn sync(&mut self) -> Result<(), SegmentError> {
        self.refuse_if_failed()?;
        if self.end == self.durable_end {
            return Ok(());
        }
        self.write_out(&[])?;
        self.attempt("cannot sync", |writer| writer.file.sync_data())?;
        // The rest of the block is zeros since the file's space was reserved.
        self.end = align_up(self.end, BLOCK_LEN_BYTES);
        self.buffer_position = self.end;
        self.durable_end = self.end;
        Ok(())
    }

    /// Syncs, appends the footer, gives back the space behind it and syncs that too. Returns the totals.
    /// After an error the frames up to [`SegmentWriter::durable_end`] are durable all the same.
    pub fn seal(&mut self) -> Result<Footer, SegmentError> {
        self.sync()?;
        let footer = self.totals.encode(self.header.epoch, self.end);
        let end = self.end + FOOTER_LEN_BYTES;
        self.attempt("cannot write the footer", |writer| write_all_at(&*writer.file, &footer, writer.end))?;
        self.attempt("cannot truncate", |writer| writer.file.set_len(end))?;
        self.attempt("cannot sync", |writer| writer.file.sync_data())?;
        self.len_bytes = end;
        Ok(self.totals)
    }

    /// For a segment that failed: gives back the space behind what is durable, so that what was not durable there cannot come
    /// back beside its second writing. Best effort: the same offset twice is the same frame.
    pub fn abandon(self) {
        let _ = self.file.set_len(self.durable_end);
    }

    /// Everything before this position is durable and may be read.
    pub fn durable_end(&self) -> u64 {
        self.durable_end
    }

    /// Totals of all that was appended.
    pub fn totals(&self) -> Footer {
        self.totals
    }

    pub fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
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

    /// As [`SegmentWriter::write_out`]; the disk begins to write while the next frames are copied.
    fn write_ahead(&mut self, more: &[&[u8]]) -> Result<(), SegmentError> {
        let position = self.buffer_position;
        self.write_out(more)?;
        self.file.begin_writing(position, self.buffer_position - position);
        Ok(())
    }

    /// Hands the buffer and what follows it to the disk.
    fn write_out(&mut self, more: &[&[u8]]) -> Result<(), SegmentError> {
        let mut written = self.buffer.len();
        self.attempt("cannot write", |writer| {
            let mut slices = vec![std::io::IoSlice::new(&writer.buffer)];
            slices.extend(more.iter().map(|bytes| std::io::IoSlice::new(bytes)));
            write_all_vectored_at(&*writer.file, &mut slices, writer.buffer_position)
        })?;
        written += more.iter().map(|bytes| bytes.len()).sum::<usize>();
        self.buffer.clear();
        self.buffer_position += written as u64;
        Ok(())
    }

    fn attempt(
        &mut self,
        action: &'static str,
        call: impl FnOnce(&mut Self) -> std::io::Result<()>,
    ) -> Result<(), SegmentError> {
        let result = call(self);
        result.map_err(|error| {
            self.failed = true;
            SegmentError::io(&self.path, action)(error)
        })
    }

    fn refuse_if_failed(&self) -> Result<(), SegmentError> {
        if self.failed { Err(SegmentError::Failed { path: self.path.clone() }) } else { Ok(()) }
    }
}

/// Lengths of a frame on disk.
struct FrameLen {
    whole: u64,
    padding: usize,
}

impl FrameLen {
    fn of(frame: &FrameRef<'_>) -> Self {
        let whole = frame.frame_len_bytes();
        let unaligned = crate::format::FRAME_PREFIX_LEN_BYTES
            + 4 * frame.readers.len()
            + frame.metadata.len()
            + frame.payload.len();
        FrameLen { whole, padding: whole as usize - unaligned }
    }
}

fn prepare(
    disk: &dyn Disk,
    file: &dyn DiskFile,
    path: &Path,
    new: &NewSegment<'_>,
    len_bytes: u64,
) -> Result<(), SegmentError> {
    file.allocate(len_bytes).map_err(SegmentError::io(path, "cannot reserve space"))?;
    write_all_at(file, &new.header.encode(), 0).map_err(SegmentError::io(path, "cannot write the header"))?;
    disk.sync_directory(new.directory).map_err(SegmentError::io(new.directory, "cannot sync the directory"))
}
