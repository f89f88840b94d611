//! Giving up whole segments that are on disk only.

use std::collections::HashMap;

use super::Reader;
use crate::error::FileError;
use crate::log::segments::Shed;
use crate::log::shed_segments::DiskFrame;
use crate::record::Record;
use crate::segment::{ReaderOptions, SegmentReader};
use crate::types::Offset;

/// Frames that are looked at while the log's lock is held once.
const FRAMES_AT_ONCE: usize = 256;

impl<T: Record> Reader<T> {
    /// Gives up one segment that was asked for, if all of it may go. False if there is none.
    pub(super) fn shed_segment(&self) -> bool {
        let (path, range, end) = {
            let inner = self.shared.inner.lock();
            let segments = inner.store.as_ref().map(|store| &store.segments);
            let asked = segments
                .and_then(|segments| segments.iter().find(|segment| segment.shed == Shed::Asked));
            let Some(asked) = asked else { return false };
            (asked.path.clone(), (asked.first, asked.last), asked.end)
        };
        let mut dropped = HashMap::new();
        let mut shed = || -> Result<bool, FileError> {
            let open = || {
                let options = ReaderOptions::default();
                let mut segment = SegmentReader::open_path(&*self.home.disk, &path, options)?;
                end.into_iter().for_each(|end| segment.set_end(end));
                Ok::<_, FileError>(segment)
            };
            let ids = self.shared.inner.lock().ids_by_persistent_id();
            // Nothing goes before it is known that all may go.
            let may_go =
                self.each_frame(open()?, range.1, |inner, frame| inner.all_may_drop(frame, &ids))?;
            if !may_go {
                return Ok(false);
            }
            let mut all_went = true;
            let was_read = self.each_frame(open()?, range.1, |inner, frame| {
                all_went &= inner.drop_for_all(frame, &ids, &mut dropped);
                true
            })?;
            Ok(was_read && all_went)
        };
        // What cannot be read stays.
        let is_free = shed().unwrap_or(false);
        let wakes = self.shared.inner.lock().end_shed(range, is_free, dropped);
        wakes.into_iter().for_each(|wake| wake());
        true
    }

    /// Looks at frames until one is refused. False then, and if damage hides whom frames are for.
    fn each_frame(
        &self,
        mut segment: SegmentReader,
        last: Offset,
        mut look: impl FnMut(&mut crate::log::Inner<T>, &DiskFrame) -> bool,
    ) -> Result<bool, FileError> {
        loop {
            let mut frames = Vec::with_capacity(FRAMES_AT_ONCE);
            while frames.len() < FRAMES_AT_ONCE
                && let Some(located) = segment.next()?.filter(|it| it.header.offset <= last)
            {
                let readers = segment.readers().to_vec();
                frames.push(DiskFrame { header: located.header, readers });
            }
            if frames.is_empty() {
                return Ok(segment.damage().is_none());
            }
            let mut inner = self.shared.inner.lock();
            if !frames.iter().all(|frame| look(&mut inner, frame)) {
                return Ok(false);
            }
        }
    }
}
