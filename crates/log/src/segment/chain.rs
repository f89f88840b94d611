//! All segments of a directory one after the other, as they are when it begins; their owner may go on writing and removing meanwhile.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Body, Damage, Located, ReaderOptions, SegmentError, SegmentName, SegmentReader, list_segments};
use crate::disk::{Access, Disk};

/// A position in a directory's segments, for looking at them.
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
    pub fn open(disk: Arc<dyn Disk>, directory: &Path, from_offset: u64) -> Result<Self, SegmentError> {
        let left = list_segments(&*disk, directory)?.into_iter().map(|(name, _)| name).collect();
        let directory = directory.to_owned();
        Ok(SegmentChain { disk, directory, from_offset, left, current: None, damage: Damage::default() })
    }

    /// The next whole header, None behind the last one.
    #[expect(clippy::should_implement_trait, reason = "it can fail, and lends what it found until the next call")]
    pub fn next(&mut self) -> Result<Option<Located>, SegmentError> {
        loop {
            let Some(reader) = &mut self.current else {
                let Some(name) = self.left.pop_front() else { return Ok(None) };
                self.current = open_if_there(&*self.disk, &self.directory.join(name.to_string()))?
                    .filter(|reader| reader.info().footer.is_none_or(|footer| footer.last_offset >= self.from_offset));
                continue;
            };
            match reader.next()? {
                Some(located) if located.header.offset >= self.from_offset => return Ok(Some(located)),
                Some(_) => {}
                None => {
                    self.damage.add(reader.damage());
                    self.current = None;
                }
            }
        }
    }

    /// As [`SegmentChain::next`], over segments that cannot be read at all: others say why.
    pub(crate) fn next_readable(&mut self) -> Result<Option<Located>, SegmentError> {
        loop {
            match self.next() {
                Err(SegmentError::NoSegment { .. } | SegmentError::NewerVersion { .. }) => {}
                result => return result,
            }
        }
    }

    /// The reader ids of the frame that `next` returned last.
    pub fn readers(&self) -> &[u32] {
        self.current.as_ref().map_or(&[], SegmentReader::readers)
    }

    /// The body of the frame that `next` returned last; to be called at most once for each. None if it is damaged.
    pub fn body(&mut self) -> Result<Option<Body>, SegmentError> {
        self.current.as_mut().map_or(Ok(None), SegmentReader::body)
    }

    /// What was damaged so far.
    pub fn damage(&self) -> Damage {
        let mut damage = self.damage;
        if let Some(reader) = &self.current {
            damage.add(reader.damage());
        }
        damage
    }
}

/// None for a segment that its owner has removed meanwhile, or has only begun.
pub(crate) fn open_if_there(disk: &dyn Disk, path: &Path) -> Result<Option<SegmentReader>, SegmentError> {
    let opened = disk.open(path, Access::Read).map_err(SegmentError::io(path, "cannot open"));
    match opened.and_then(|file| SegmentReader::open(file, path, ReaderOptions::default())) {
        Ok(reader) => Ok(Some(reader)),
        Err(SegmentError::Unfinished { .. }) => Ok(None),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
