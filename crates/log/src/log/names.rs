//! Names of files. A start knows where most files end only from the name of the next one, and names
//! can be wrong: a file was renamed or copied by hand. Before a file goes, the next one is asked.

use super::{Passed, Segment, Shared, Store};
use crate::disk::Disk;
use crate::error::FileError;
use crate::segment::{ScanOptions, SegmentScan};
use crate::types::Offset;

impl<T> Shared<T> {
    /// Whether a file has nothing that its readers have not got, as far as names tell. False also
    /// while the disk refuses the next file.
    pub(crate) fn has_nothing_more(&self, disk: &dyn Disk, segment: &Segment) -> bool {
        let next = self.with_store(|store| {
            let next = store.segments.next_unproven(segment.first);
            next.map(|next| (next.first, next.path.clone()))
        });
        let Some((first, path)) = next else { return !segment.may_have_more() };
        let options = ScanOptions { pass_unreadable: true, ..ScanOptions::default() };
        let is_wrong = match SegmentScan::open_misnamed(disk, &path, options) {
            Ok(scan) => scan.name_if_misnamed().is_some(),
            Err(error @ FileError::Io { .. }) if !error.is_not_found() => return false,
            // No header says otherwise.
            Err(_) => false,
        };
        self.with_store(|store| store.note_name(first, is_wrong));
        !is_wrong && !segment.may_have_more()
    }
}

impl Store {
    /// Notes what the header of a segment says of its name. If it is wrong, the segment before may
    /// go on behind its end.
    pub(crate) fn note_name(&mut self, first: Offset, is_wrong: bool) {
        let segments = &mut self.segments.by_first;
        segments.get_mut(&first).into_iter().for_each(|named| named.has_unproven_name = false);
        if is_wrong && let Some((_, before)) = segments.range_mut(..first).next_back() {
            before.note_passed(&[(before.len_bytes, Passed::DAMAGED)], &mut self.stats);
        }
    }
}
