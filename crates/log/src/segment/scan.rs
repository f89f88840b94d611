//! Reads a segment's frames from front to back, and passes over damage.
//!
//! Without a whole header at its position, a scan searches for the next one by the marker and the
//! file's epoch. Zeros that it passes over are no damage up to the end of a block, where a sync
//! ended; nor are further blocks where the file was not sealed: they are space that was reserved
//! and not used, or pages that were never acknowledged.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{SegmentInfo, read_info, segment_before};
use crate::disk::{Access, BadBlocks, Disk, DiskFile, ReadBuffer};
use crate::error::{FileError, IoContext as _, Result};
use crate::format::{
    BLOCK_LEN_BYTES, FOOTER_LEN_BYTES, FRAME_ALIGNMENT_BYTES, FRAME_PREFIX_LEN_BYTES, Footer,
    FrameHeader, HeaderParse, SEGMENT_HEADER_LEN_BYTES, SegmentHeader, SegmentName, body_checksum,
    find_marker, parse_frame_header, reader_ids,
};
use crate::types::StoredRecord;

/// How a segment is read.
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions {
    /// Bytes that are read at a time, at least a block.
    pub read_ahead_bytes: usize,
    /// Blocks that the disk refuses are passed as damage if the disk can read other blocks.
    /// Otherwise the error is returned, and the call can be repeated.
    pub pass_unreadable: bool,
}

impl Default for ScanOptions {
    fn default() -> Self {
        ScanOptions { read_ahead_bytes: 1 << 20, pass_unreadable: false }
    }
}

/// Parts of a segment that were not read because they are damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Frames with a whole header and a damaged body.
    pub frames: u64,
    /// Regions without a readable header, up to the next whole frame. Each has lost at least one
    /// frame, except at the end of a segment that was not sealed: there it may be what a crash left
    /// of an unacknowledged write.
    pub regions: u64,
    /// Bytes of both.
    pub bytes: u64,
}

impl Damage {
    pub fn add(&mut self, other: Damage) {
        self.frames += other.frames;
        self.regions += other.regions;
        self.bytes += other.bytes;
    }

    pub fn is_none(&self) -> bool {
        *self == Damage::default()
    }

    /// At least this many frames are lost.
    pub(crate) fn places(&self) -> u64 {
        self.frames + self.regions
    }
}

/// The header of a frame and its position in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    pub position: u64,
    pub header: FrameHeader,
}

impl Located {
    /// Position at which the next frame may begin.
    pub fn end(&self) -> u64 {
        self.position + self.header.frame_len_bytes()
    }
}

/// A position in a segment.
pub struct SegmentScan {
    path: PathBuf,
    info: SegmentInfo,
    buffer: ReadBuffer,
    /// Bytes from this position on are not looked at.
    end: u64,
    position: u64,
    current: Option<Located>,
    readers: Vec<u32>,
    /// The highest offset of all frames so far.
    last_offset: Option<u64>,
    /// The footer of a file that was sealed and whose space behind it was not freed, and its
    /// position.
    footer_within: Option<(u64, Footer)>,
    damage: Damage,
    first_damage: Option<u64>,
    /// Position behind the last damage.
    damage_end: u64,
    /// Positions of the damage since the last [`SegmentScan::take_damaged_at`].
    damaged_at: Vec<u64>,
}

impl SegmentScan {
    /// Opens a segment at its first frame. It ends before its footer if it was sealed, otherwise at
    /// the present end of the file, or where [`SegmentScan::set_end`] says.
    pub fn open(file: Arc<dyn DiskFile>, path: &Path, options: ScanOptions) -> Result<Self> {
        let bad = BadBlocks::new(options.pass_unreadable);
        Self::open_with(file, path, options.read_ahead_bytes, bad)
    }

    fn open_with(
        file: Arc<dyn DiskFile>,
        path: &Path,
        read_ahead_bytes: usize,
        bad: Arc<BadBlocks>,
    ) -> Result<Self> {
        let info = read_info(&file, path, &bad)?;
        let end = info.len_bytes - if info.footer.is_some() { FOOTER_LEN_BYTES } else { 0 };
        Ok(SegmentScan {
            path: path.to_owned(),
            info,
            buffer: ReadBuffer::new(file, read_ahead_bytes, bad),
            end,
            position: SEGMENT_HEADER_LEN_BYTES,
            current: None,
            readers: Vec::new(),
            last_offset: None,
            footer_within: None,
            damage: Damage::default(),
            first_damage: None,
            damage_end: 0,
            damaged_at: Vec::new(),
        })
    }

    /// Opens the file at a path. An error if its name is that of another segment.
    pub(crate) fn open_path(disk: &dyn Disk, path: &Path, options: ScanOptions) -> Result<Self> {
        Self::open_misnamed(disk, path, options)?.with_its_name()
    }

    /// The same, whatever its name is.
    pub(crate) fn open_misnamed(
        disk: &dyn Disk,
        path: &Path,
        options: ScanOptions,
    ) -> Result<Self> {
        let file = disk.open(path, Access::Read).at(path, "cannot open")?;
        Self::open(file, path, options)
    }

    /// As [`SegmentScan::open_path`]. Its reads pass these blocks and end with the turn.
    pub(crate) fn open_passing(
        disk: &dyn Disk,
        path: &Path,
        read_ahead_bytes: usize,
        bad: Arc<BadBlocks>,
    ) -> Result<Self> {
        let file = disk.open(path, Access::Read).at(path, "cannot open")?;
        Self::open_with(file, path, read_ahead_bytes, bad)?.with_its_name()
    }

    /// An error if the file has the name of another segment.
    fn with_its_name(self) -> Result<Self> {
        let Some(name) = self.name_if_misnamed() else { return Ok(self) };
        Err(FileError::Misnamed { path: self.path, name, log_id: self.info.header.log_id })
    }

    /// The segment's own name, if the file has that of another one.
    pub(crate) fn name_if_misnamed(&self) -> Option<SegmentName> {
        let file_name = self.path.file_name()?.to_str()?;
        let name = SegmentName::parse(file_name).or_else(|| segment_before(file_name))?;
        let SegmentHeader { log_id, first_offset, .. } = self.info.header;
        // A header that was made from the first frame does not say it.
        let is_misnamed = log_id != 0 && name.first_offset != first_offset;
        is_misnamed.then_some(SegmentName { first_offset, attempt: 0 })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub fn info(&self) -> &SegmentInfo {
        &self.info
    }

    /// Sets where reading stops: the durable end of a segment that is being written. Bytes before
    /// it never change, so that bytes read ahead up to an earlier end stay valid.
    pub fn set_end(&mut self, end: u64) {
        if end < self.end {
            self.buffer.free();
        }
        self.end = end;
    }

    /// Frees the memory of the bytes that were read ahead.
    pub(crate) fn free_buffer(&mut self) {
        self.buffer.free();
    }

    /// Position at which the next frame is looked for.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Goes on at a position of a [`Located`] or of [`SegmentScan::position`].
    pub fn seek(&mut self, position: u64) {
        let position = position.max(SEGMENT_HEADER_LEN_BYTES);
        self.position = position.next_multiple_of(FRAME_ALIGNMENT_BYTES);
        self.current = None;
    }

    /// The next whole header, None at the end. Damage before it is passed over and counted. After
    /// an error of the disk the call can be repeated.
    pub fn next_frame(&mut self) -> Result<Option<Located>> {
        let start = self.position;
        let found = self.find_frame(start);
        if found.is_err() {
            // The next call sees all of the damage that it passes.
            self.position = start;
        }
        found
    }

    fn find_frame(&mut self, start: u64) -> Result<Option<Located>> {
        self.current = None;
        self.readers.clear();
        let mut last_foreign_byte = None;
        let mut found = self.parse_here()?;
        while found.is_none() && self.position < self.end {
            let passed = self.pass_to_marker()?;
            last_foreign_byte = passed.or(last_foreign_byte);
            found = self.parse_here()?;
        }
        if found.is_none()
            && start == SEGMENT_HEADER_LEN_BYTES
            && let Some(error) = self.buffer.reads.last_error.take()
        {
            // No frame of the file could be read.
            self.buffer.free();
            return Err(error).at(&self.path, "cannot read");
        }
        let lost_bytes = self.lost_bytes(start, found.is_some(), last_foreign_byte)?;
        if lost_bytes > 0 {
            self.count_damage(start, Damage { frames: 0, regions: 1, bytes: lost_bytes });
        }
        Ok(found.and_then(|header| self.accept(header)))
    }

    /// Bytes from `start` to the position that are damaged: they had frames, or may have had.
    fn lost_bytes(
        &mut self,
        start: u64,
        is_frame_behind: bool,
        last_foreign: Option<u64>,
    ) -> Result<u64> {
        if let Some(last) = last_foreign {
            if self.info.footer.is_none() && !is_frame_behind {
                self.footer_within = self.footer_behind(start)?;
                let is_whole = |(_, footer): &(u64, Footer)| !self.is_frame_missing(footer);
                if self.footer_within.as_ref().is_some_and(is_whole) {
                    return Ok(0);
                }
            }
            return Ok(last + 1 - start);
        }
        // Padding ends with its block, and a sealed file has no whole block of zeros.
        let all_bytes = self.position - start;
        let padding_end = start.next_multiple_of(BLOCK_LEN_BYTES);
        Ok(match self.info.footer {
            Some(footer) if !is_frame_behind && self.is_frame_missing(&footer) => all_bytes,
            Some(_) if self.position > padding_end => self.position - padding_end,
            _ if is_frame_behind && !self.position.is_multiple_of(BLOCK_LEN_BYTES) => all_bytes,
            _ => 0,
        })
    }

    /// Whether the last frame that a footer tells of was not found.
    fn is_frame_missing(&self, footer: &Footer) -> bool {
        footer.frames > 0 && self.last_offset < Some(footer.last_offset)
    }

    /// The reader ids of the frame that [`SegmentScan::next_frame`] returned last.
    pub fn readers(&self) -> &[u32] {
        &self.readers
    }

    /// The frame that [`SegmentScan::next_frame`] returned last, in memory of its own. Call it at
    /// most once for each. None if it is damaged (counted) or goes on behind the end.
    pub fn body(&mut self) -> Result<Option<StoredRecord>> {
        let Some(Located { position, header }) = self.current else { return Ok(None) };
        let FrameHeader { offset, facts, charge, .. } = header;
        let start = position + header.header_len_bytes();
        let len = header.body_len_bytes();
        // Nothing is allocated for a length that exceeds the file.
        let bytes = match start + len <= self.end {
            true => self.io(|buffer, end| buffer.copy(start, len as usize, end))?,
            false => None,
        };
        let stored = bytes.map(|mut bytes| {
            let metadata = bytes.split_to(header.metadata_len_bytes as usize);
            StoredRecord { offset, facts, charge, metadata, payload: bytes }
        });
        let whole = stored.filter(|stored| {
            body_checksum(&stored.metadata, &stored.payload) == header.body_checksum
        });
        if whole.is_none() {
            let bytes = header.frame_len_bytes();
            self.count_damage(position, Damage { frames: 1, regions: 0, bytes });
        }
        Ok(whole)
    }

    /// The footer of a file that was sealed and whose space behind it was not freed, and its
    /// position. None before the end was reached.
    pub(crate) fn footer_within(&self) -> Option<(u64, Footer)> {
        self.footer_within
    }

    /// Damage found so far.
    pub fn damage(&self) -> Damage {
        self.damage
    }

    /// Position in the file of the first damage.
    pub fn first_damage(&self) -> Option<u64> {
        self.first_damage
    }

    /// Position behind the last damage that was found.
    pub(crate) fn damage_end(&self) -> u64 {
        self.damage_end
    }

    /// Positions of the damage that was found since the last call.
    pub(crate) fn take_damaged_at(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.damaged_at)
    }

    fn count_damage(&mut self, position: u64, damage: Damage) {
        self.first_damage.get_or_insert(position);
        self.damage_end = self.damage_end.max(position + damage.bytes);
        self.damaged_at.push(position);
        self.damage.add(damage);
    }

    /// Accepts the header at the position. None if its body goes on behind the end.
    fn accept(&mut self, header: FrameHeader) -> Option<Located> {
        let located = Located { position: self.position, header };
        if located.position + header.header_len_bytes() + header.body_len_bytes() > self.end {
            let bytes = self.end - self.position;
            self.count_damage(self.position, Damage { frames: 1, regions: 0, bytes });
            self.position = self.end;
            self.readers.clear();
            return None;
        }
        self.current = Some(located);
        self.position = located.end();
        self.last_offset = self.last_offset.max(Some(located.header.offset));
        Some(located)
    }

    /// The header at the position, if a whole one is there. Keeps its reader ids.
    fn parse_here(&mut self) -> Result<Option<FrameHeader>> {
        let (epoch, position) = (self.info.header.epoch, self.position);
        let mut needs = FRAME_PREFIX_LEN_BYTES;
        loop {
            let bytes = self.io(|buffer, end| buffer.get(position, needs, end))?;
            match parse_frame_header(bytes, epoch, position) {
                HeaderParse::Frame(header) => {
                    let readers = reader_ids(self.buffer.buffered_from(position), &header);
                    self.readers.extend(readers);
                    return Ok(Some(header));
                }
                HeaderParse::Needs(more) if more > needs => needs = more,
                HeaderParse::Needs(_) | HeaderParse::NoFrame => return Ok(None),
            }
        }
    }

    /// The footer in the first block behind `from`, if one is there, and its position.
    fn footer_behind(&mut self, from: u64) -> Result<Option<(u64, Footer)>> {
        let (epoch, position) = (self.info.header.epoch, from.next_multiple_of(BLOCK_LEN_BYTES));
        let bytes = self.io(|buffer, end| buffer.get(position, FOOTER_LEN_BYTES as usize, end))?;
        Ok(Footer::decode(bytes, epoch, position).map(|footer| (position, footer)))
    }

    /// Moves from a position without a frame to the next one where a frame may begin, or to the end
    /// of the buffer. Returns the position of the last byte passed that is not zero.
    fn pass_to_marker(&mut self) -> Result<Option<u64>> {
        let (epoch, position, end) = (self.info.header.epoch, self.position, self.end);
        let bytes = self.io(|buffer, end| buffer.get(position, FRAME_PREFIX_LEN_BYTES, end))?;
        if bytes.is_empty() {
            // The file is shorter than it was when it was opened.
            self.end = position;
            return Ok(None);
        }
        let is_last = bytes.len() < FRAME_PREFIX_LEN_BYTES || position + bytes.len() as u64 >= end;
        let first = (FRAME_ALIGNMENT_BYTES as usize).min(bytes.len());
        let passed = match find_marker(&bytes[first..], epoch) {
            Some(at) => first + at,
            None if is_last => bytes.len(),
            // Position of the last marker that is possible without its epoch.
            None => (bytes.len() - 8) / 8 * 8,
        };
        let last_set = last_byte_set(&bytes[..passed]);
        self.position = position + passed as u64;
        Ok(last_set.map(|index| position + index as u64))
    }

    fn io<'a, T>(
        &'a mut self,
        call: impl FnOnce(&'a mut ReadBuffer, u64) -> io::Result<T>,
    ) -> Result<T> {
        call(&mut self.buffer, self.end).at(&self.path, "cannot read")
    }
}

/// Index of the last byte that is not zero. By the block, since most is reserved space.
pub(super) fn last_byte_set(bytes: &[u8]) -> Option<usize> {
    let is_set = |block: &&[u8]| block.iter().fold(0, |set, byte| set | byte) != 0;
    let unset: usize = bytes
        .rchunks(BLOCK_LEN_BYTES as usize)
        .take_while(|block| !is_set(block))
        .map(<[u8]>::len)
        .sum();
    bytes[..bytes.len() - unset].iter().rposition(|&byte| byte != 0)
}
