//! Where files end. Of most files a start knows it only from the name of the next one. Names can be
//! wrong, if a file was renamed or copied by hand: before such a file goes, its footer is asked.

use super::{Passed, Segment, Shared, Store};
use crate::disk::Disk;
use crate::segment::{ScanOptions, SegmentScan};

impl<T> Shared<T> {
    /// Whether a file has no frame behind its end. One that has some, or that the disk refuses, is
    /// noted, so that it is set aside instead of removed.
    pub(crate) fn has_all_before_its_end(&self, disk: &dyn Disk, segment: &Segment) -> bool {
        if !segment.ends_by_name {
            return !segment.may_have_more();
        }
        let has_more = match SegmentScan::open_misnamed(disk, &segment.path, ScanOptions::default())
        {
            Ok(scan) => segment.has_more_by(scan.info().footer.as_ref()),
            Err(error) => !error.is_not_found() && !error.is_of_whole_segment(),
        };
        self.with_store(|Store { segments, stats, .. }| {
            let known = segments.by_first.get_mut(&segment.first);
            if let Some(known) = known.filter(|it| it.generation == segment.generation) {
                known.ends_by_name = false;
                if has_more {
                    known.note_passed(&[(known.len_bytes, Passed::DAMAGED)], stats);
                }
            }
        });
        !has_more
    }
}
