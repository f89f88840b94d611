//! Showing the frames that a start finds to a companion.

use std::path::Path;

use super::super::{Segment, Segments};
use crate::companion::{Companion, store};
use crate::disk::{Access, Disk};
use crate::error::{IoContext as _, Result};
use crate::segment::open_if_there;
use crate::types::{Offset, StoredRecord};

/// A start reads no more segments than this, the newest ones.
const SEGMENTS_AT_START: usize = 32;

/// Shows a companion the frames that a start has found in the newest segments, and tells it the
/// head. A copy that tells of offsets that are given again is replaced before they are.
pub(super) fn show_found(
    companion: &dyn Companion,
    disk: &dyn Disk,
    directory: &Path,
    segments: &Segments,
    head: Offset,
) {
    let from = companion.asks_from();
    let newest = segments.by_first.values().rev().take(SEGMENTS_AT_START);
    let shown = newest.filter(|segment| segment.last >= from).map(|segment| {
        let show = |record: StoredRecord| companion.found(record);
        visit(disk, directory, segment, from, show)
    });
    let errors = shown.filter_map(Result::err).collect();
    companion.opened(head, errors);
    if from > head {
        companion.stored(store(disk, directory, &companion.text()));
    }
}

/// Visits the whole frames of a segment that count.
fn visit(
    disk: &dyn Disk,
    directory: &Path,
    segment: &Segment,
    from: Offset,
    mut visit: impl FnMut(StoredRecord),
) -> Result<()> {
    let path = &segment.path;
    let Some(mut scan) = open_if_there(disk, path)? else { return Ok(()) };
    if scan.info().footer.is_none() {
        // A process that was killed may have left frames in it that were never synced, and a name.
        let file = disk.open(path, Access::ReadWrite).at(path, "cannot open")?;
        file.sync_data().at(path, "cannot sync")?;
        disk.sync_directory(directory).at(directory, "cannot sync")?;
    }
    while let Some(located) = scan.next_frame()? {
        let offset = located.header.offset;
        // Those above are in a later segment, or were never written as a whole.
        if (from..=segment.last).contains(&offset)
            && let Some(record) = scan.body()?
        {
            visit(record);
        }
    }
    Ok(())
}
