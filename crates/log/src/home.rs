//! Where and as what a log is kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::disk::Disk;
use crate::error::{FileError, IoContext as _};
use crate::format::{FileKind, SegmentHeader, VERSION};
use crate::log::budget::unix_now_ns;
use crate::segment::{NewSegment, SegmentWriter, random_u64};
use crate::types::Offset;

#[derive(Clone)]
pub(crate) struct Home {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) directory: PathBuf,
    pub(crate) cursors_directory: PathBuf,
    /// Where segments are written anew before they take the place of others.
    pub(crate) rewrite_directory: PathBuf,
    pub(crate) name: String,
    pub(crate) log_id: u128,
    pub(crate) segment_bytes: u64,
    pub(crate) keep_interval: Duration,
}

impl Home {
    pub(crate) fn create_segment(
        &self,
        directory: &Path,
        first_offset: Offset,
        len_bytes: u64,
    ) -> Result<SegmentWriter, FileError> {
        let header = SegmentHeader {
            version: VERSION,
            kind: FileKind::Log,
            log_id: self.log_id,
            epoch: random_u64().at(directory, "cannot get a random number")?,
            first_offset,
            created_unix_ns: unix_now_ns(),
            name: self.name.clone(),
        };
        SegmentWriter::create(&*self.disk, NewSegment { directory, header, len_bytes })
    }
}
