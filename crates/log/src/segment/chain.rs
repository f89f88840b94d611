//! All segments of a directory, one after the other, as they are when the chain is opened. Their
//! owner may write and remove segments meanwhile.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Damage, Located, ReaderOptions, SegmentName, SegmentReader, list_segments};
use crate::disk::Disk;
use crate::error::{FileError, Result};
use crate::record::StoredRecord;

/// A position in a directory's segments, for inspection.
pub struct SegmentChain {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    from_offset: u64,
    left: VecDeque<SegmentName>,
    current: Option<SegmentReader>,
    damage: Damage,
}

impl SegmentChain {
    /// Frames below `from_offset` are passed over.
    pub fn open(disk: Arc<dyn Disk>, directory: &Path, from_offset: u64) -> Result<Self> {
        let left = list_segments(&*disk, directory)?.into_iter().map(|(name, _)| name).collect();
        Ok(SegmentChain {
            disk,
            directory: directory.to_owned(),
            from_offset,
            left,
            current: None,
            damage: Damage::default(),
        })
    }

    /// The next whole header, None after the last one.
    pub fn next_frame(&mut self) -> Result<Option<Located>> {
        loop {
            let Some(reader) = &mut self.current else {
                let Some(name) = self.left.pop_front() else { return Ok(None) };
                let path = self.directory.join(name.to_string());
                self.current = open_if_there(&*self.disk, &path)?.filter(|reader| {
                    let footer = reader.info().footer;
                    footer.is_none_or(|footer| footer.last_offset >= self.from_offset)
                });
                continue;
            };
            match reader.next_frame()? {
                Some(located) if located.header.offset >= self.from_offset => {
                    return Ok(Some(located));
                }
                Some(_) => {}
                None => self.skip_segment(),
            }
        }
    }

    /// Goes on with the next segment.
    pub(crate) fn skip_segment(&mut self) {
        self.damage.add(self.current.take().map_or(Damage::default(), |reader| reader.damage()));
    }

    /// As [`SegmentChain::next_frame`], but skips unreadable segments, which `verify` reports, and
    /// the rest of one that the disk refuses to read.
    pub(crate) fn next_readable(&mut self) -> Result<Option<Located>> {
        loop {
            match self.next_frame() {
                Err(FileError::NoSegment { .. } | FileError::NewerVersion { .. }) => {}
                Err(FileError::Io { .. }) => self.current = None,
                result => return result,
            }
        }
    }

    /// The reader ids of the frame that `next_frame` returned last.
    pub fn readers(&self) -> &[u32] {
        self.current.as_ref().map_or(&[], SegmentReader::readers)
    }

    /// The frame that `next_frame` returned last; call it once for each. None if it is damaged.
    pub fn body(&mut self) -> Result<Option<StoredRecord>> {
        self.current.as_mut().map_or(Ok(None), SegmentReader::body)
    }

    /// Damage found so far.
    pub fn damage(&self) -> Damage {
        let mut damage = self.damage;
        if let Some(reader) = &self.current {
            damage.add(reader.damage());
        }
        damage
    }
}

/// None for a segment that its owner has removed meanwhile, or is just creating.
pub(crate) fn open_if_there(disk: &dyn Disk, path: &Path) -> Result<Option<SegmentReader>> {
    match SegmentReader::open_path(disk, path, ReaderOptions::default()) {
        Ok(reader) => Ok(Some(reader)),
        Err(FileError::Unfinished { .. }) => Ok(None),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
