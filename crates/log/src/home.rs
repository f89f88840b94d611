//! Paths, options, id and cursor files of a log on disk, which its threads share.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::cursor_file::CursorFiles;
use crate::error::Result;
use crate::format::{FileKind, SegmentHeader, VERSION};
use crate::log::segments::Segment;
use crate::options::OpenOptions;
use crate::segment::{ReaderOptions, SegmentReader, SegmentWriter, random_u64};
use crate::types::{Offset, unix_now_ns};

#[derive(Clone)]
pub(crate) struct Home {
    /// As they were at the start. The store has the current values of what a reload changes.
    pub(crate) options: OpenOptions,
    pub(crate) cursors_directory: PathBuf,
    pub(crate) cursor_files: Arc<Mutex<CursorFiles>>,
    /// Rewritten segments are created here before they replace old ones.
    pub(crate) rewrite_directory: PathBuf,
    pub(crate) log_id: u128,
    pub(crate) devices: Devices,
}

/// The file systems of a log's directory and of the one above it.
#[derive(Clone, Copy)]
pub(crate) struct Devices {
    pub(crate) own: u64,
    pub(crate) above: u64,
}

impl Home {
    pub(crate) fn create_segment(
        &self,
        directory: &Path,
        first_offset: Offset,
        len_bytes: u64,
    ) -> Result<SegmentWriter> {
        let header = SegmentHeader {
            version: VERSION,
            kind: FileKind::Log,
            log_id: self.log_id,
            epoch: random_u64(),
            first_offset,
            created_unix_ns: unix_now_ns(),
            name: self.options.name.clone(),
        };
        SegmentWriter::create(&*self.options.disk, directory, header, len_bytes)
    }

    /// False if the log's directory is not there or on another file system: a mount may be missing,
    /// and a file that is not found may be there all the same.
    pub(crate) fn is_there(&self) -> bool {
        let device = self.options.disk.device(&self.options.directory);
        device.is_ok_and(|device| device == self.devices.own)
    }

    /// Opens a segment up to the end of its durable frames.
    pub(crate) fn open(&self, segment: &Segment, options: ReaderOptions) -> Result<SegmentReader> {
        let mut reader = SegmentReader::open_path(&*self.options.disk, &segment.path, options)?;
        reader.check_name(segment.first)?;
        // If another file has taken its place, that file's own end counts.
        let is_known = segment.epoch.is_none_or(|epoch| epoch == reader.info().header.epoch);
        segment.end.filter(|_| is_known).into_iter().for_each(|end| reader.set_end(end));
        Ok(reader)
    }
}
